"""When a plan is due: by doubling against a count in plain Python, by need against the error written out."""

import numpy as np
import pytest

from cmdpkit.learners._model_based.learner import Belief
from cmdpkit.learners._model_based.settings import UNSEEN, mark_planned, new_cadence, note_episode
from counted import count_episode, dense_moves, no_counts

pytestmark = pytest.mark.compiled
H, S, A = 3, 4, 2
PROGRESS = 0.03


def random_episode(rng: np.random.Generator, counts, fewest: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Count an episode of random states, and of random actions from `fewest` on; returns both."""
    path, actions = rng.integers(0, S - 1, H), rng.integers(fewest, A, H)
    count_episode(counts, A, path, actions, np.zeros((H, 1)))
    return path, actions


@pytest.mark.parametrize("pooled", [False, True])
def test_a_plan_is_due_exactly_when_some_count_has_doubled_since_the_last(pooled):
    rng, counts = np.random.default_rng(1), no_counts(H, S, A, 0, pooled=pooled)
    cadence, pi = new_cadence(1 if pooled else H, S, A, "doubling"), np.full((H, S, A), 1 / A)
    mark_planned(cadence, counts, Belief.of(counts, A).model, pi)
    before, plans, waits = np.zeros_like(counts.visits), 0, 0
    for _ in range(400):
        note_episode(cadence, counts.visits, *random_episode(rng, counts))
        doubled = ((counts.visits > before) & (counts.visits >= 2 * before)).any()
        assert cadence.due[0] == doubled
        if doubled:
            mark_planned(cadence, counts, Belief.of(counts, A).model, pi)
            before, plans = counts.visits.copy(), plans + 1
        waits += not doubled
    reached = counts.visits[counts.visits > 0]
    assert plans <= (np.floor(np.log2(reached)) + 1).sum()
    assert waits > 200, "most episodes need no plan"


def expected_visits(counts, pi: np.ndarray) -> np.ndarray:
    """[T, S, A], forward through the steps in NumPy; an action that was never tried leads back to its state."""
    moves = dense_moves(counts, A)
    n = moves.sum(axis=-1, keepdims=True)
    p = np.where(n > 0, moves / np.maximum(n, 1), np.eye(S)[:, None])
    reach, d = np.zeros(moves.shape[:3]), counts.starts / counts.starts.sum()
    for h in range(H):
        q = d[:, None] * pi[h]
        reach[h % len(reach)] += q
        d = np.einsum("sa,sat->t", q, p[h % len(reach)])
    return reach


def error(reach: np.ndarray, visits: np.ndarray) -> float:
    return float((reach * np.where(visits == 0, UNSEEN, np.maximum(visits, 1) ** -0.5)).sum())


@pytest.mark.parametrize("pooled", [False, True])
def test_by_need_a_plan_is_due_when_its_error_has_fallen_or_the_episodes_have_doubled(pooled):
    rng, counts = np.random.default_rng(2), no_counts(H, S, A, 0, pooled=pooled)
    cadence, by_error, by_doubling, waits = new_cadence(1 if pooled else H, S, A, "need", PROGRESS), 0, 0, 0
    for _ in range(30):
        random_episode(rng, counts)
    while counts.starts.sum() < 3000:
        pi, visits = np.eye(A)[rng.integers(0, A, (H, S))], counts.visits.copy()
        elsewhere = int(rng.random() < 0.2)  # no episode takes the actions of the plan: its error never falls
        if elsewhere:
            pi[...] = np.eye(A)[0]
        mark_planned(cadence, counts, Belief.of(counts, A).model, pi)
        reach, k = expected_visits(counts, pi), int(counts.starts.sum())
        assert not cadence.due[0]
        while not cadence.due[0]:
            note_episode(cadence, counts.visits, *random_episode(rng, counts, elsewhere))
            fallen = error(reach, counts.visits.reshape(reach.shape)) <= (1 - PROGRESS) * error(
                reach, visits.reshape(reach.shape)
            )
            doubled = counts.starts.sum() >= 2 * k
            assert cadence.due[0] == (fallen or doubled)
            waits += not cadence.due[0]
        by_error, by_doubling = by_error + fallen, by_doubling + doubled
    assert by_error >= 5 and by_doubling >= 3 and waits >= 100
