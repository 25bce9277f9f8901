"""Counting, estimating and the doubling rule against bookkeeping in plain Python."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from cmdpkit.learners._planning.empirical import (
    Counts,
    count_move,
    count_start,
    count_step,
    estimate,
    mark_planned,
    no_counts,
    plan_is_due,
    update_estimate,
)
from cmdpkit.model.compiled import compiled
from cmdpkit.simulate.random import stream
from cmdpkit.simulate.simulator import Simulator, reset, step
from instances import synthetic

pytestmark = pytest.mark.compiled
H, S, A, N = 3, 4, 2, 2


Episode = list[tuple[int, int, np.ndarray]]  # state, action, reward and utilities of every step


def episodes(rng: np.random.Generator, n: int) -> list[Episode]:
    states = rng.integers(0, S - 1, (n, H))  # the last state is never seen
    return [[(int(s), int(rng.integers(A)), rng.random(1 + N)) for s in row] for row in states]


def count(counts: Counts, episode: Episode) -> None:
    count_start(counts, episode[0][0])
    for h, (s, a, signals) in enumerate(episode):
        count_step(counts, h, s, a, signals[None], 0)
        if h + 1 < H:
            count_move(counts, h, s, a, episode[h + 1][0])


@pytest.mark.parametrize("pooled", [False, True])
def test_estimates_are_the_means_of_what_was_seen(pooled):
    seen = episodes(np.random.default_rng(0), 40)
    counts = no_counts(H, S, A, N, pooled=pooled)
    earned, successors = defaultdict(list), defaultdict(list)
    for episode in seen:
        count(counts, episode)
        for h, (s, a, signals) in enumerate(episode):
            cell = (0 if pooled else h, s, a)
            earned[cell].append(signals)
            if h + 1 < H:
                successors[cell].append(episode[h + 1][0])
    means = estimate(counts)
    assert means.p.shape == (1 if pooled else H, S, A, S)
    assert means.episodes[0] == 40
    starts = Counter(episode[0][0] for episode in seen)
    assert means.mu == pytest.approx([starts[s] / 40 for s in range(S)])
    for cell in np.ndindex(means.r.shape):
        assert means.visits[cell] == len(earned[cell])
        assert means.moved[cell] == len(successors[cell])
        expected = np.mean(earned[cell], axis=0) if earned[cell] else np.zeros(1 + N)
        assert (means.r[cell], *means.g[:, *cell]) == pytest.approx(tuple(expected))
        to = Counter(successors[cell])
        n = len(successors[cell])
        assert means.p[cell] == pytest.approx([to[s] / n if n else 1 / S for s in range(S)])


def test_before_any_data_everything_is_uniform_or_zero_and_a_plan_is_due():
    counts = no_counts(H, S, A, N)
    means = estimate(counts)
    assert (means.p == 0.25).all() and (means.mu == 0.25).all()
    assert not means.r.any() and not means.g.any() and not means.visits.any() and not means.moved.any()
    assert plan_is_due(counts)


def test_the_last_step_adds_visits_but_no_moves():
    counts = no_counts(1, 2, 1, 0, pooled=True)
    count_start(counts, 1)
    count_step(counts, 0, 1, 0, np.array([[0.5]]), 0)
    assert counts.visits[0, 1, 0] == 1
    assert estimate(counts).p[0, 1, 0].tolist() == [0.5, 0.5], "nothing was learnt about transitions"


def test_plans_fall_due_when_a_count_doubles():
    counts = no_counts(1, 1, 1, 0)
    planned_at = []
    for k in range(1, 101):
        count_step(counts, 0, 0, 0, np.zeros((1, 1)), 0)
        if plan_is_due(counts):
            mark_planned(counts)
            planned_at.append(k)
    assert planned_at == [1, 2, 4, 8, 16, 32, 64]


@pytest.mark.parametrize("pooled", [False, True])
def test_a_plan_is_due_exactly_when_some_count_has_doubled_since_the_last(pooled):
    counts = no_counts(H, S, A, N, pooled=pooled)
    before = np.zeros_like(counts.visits)
    plans = waits = 0
    for episode in episodes(np.random.default_rng(1), 400):
        count(counts, episode)
        doubled = ((counts.visits > before) & (counts.visits >= 2 * before)).any()
        assert plan_is_due(counts) == doubled
        if doubled:
            mark_planned(counts)
            before = counts.visits.copy()
            plans += 1
        waits += not doubled
    reached = counts.visits[counts.visits > 0]
    assert plans <= (np.floor(np.log2(reached)) + 1).sum()
    assert waits > 200, "most episodes need no plan"


def test_saved_by_name_and_loaded_counting_goes_on_as_if_nothing_had_happened(tmp_path):
    seen = episodes(np.random.default_rng(2), 30)
    straight, first = no_counts(H, S, A, N), no_counts(H, S, A, N)
    for episode in seen:
        count(straight, episode)
    for episode in seen[:17]:
        count(first, episode)
    np.savez(tmp_path / "counts.npz", **first._asdict())
    with np.load(tmp_path / "counts.npz", allow_pickle=False) as saved:
        resumed = Counts(**saved)
    for episode in seen[17:]:
        count(resumed, episode)
    for a, b in zip(straight, resumed, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


@compiled
def play_until_due(sim, counts, means, rng):
    """Episodes of the action (h + s) % 3 until a plan is due, as the compiled loop of a learner has them."""
    episodes = 0
    while not plan_is_due(counts):
        s = reset(sim, rng)
        count_start(counts, s)
        for h in range(sim.H):
            a = (h + s) % np.uint64(3)
            s_next, x = step(sim, h, s, a, rng)
            count_step(counts, h, s, a, sim.outcomes, x)
            if h + np.uint64(1) < sim.H:
                count_move(counts, h, s, a, s_next)
            s = s_next
        episodes += 1
    update_estimate(counts, means)
    return episodes


def test_a_compiled_loop_plays_until_a_plan_is_due():
    cmdp = synthetic()
    sim, counts, rng = Simulator.of(cmdp), no_counts(3, 3, 3, 1), stream(1)
    means = estimate(counts)
    played = []
    for _ in range(24):
        mark_planned(counts)
        played.append(play_until_due(sim, counts, means, rng))
    assert played[0] == 1 and played[-1] > 10_000
    assert counts.starts.sum() == sum(played) == means.episodes[0]
    assert (counts.visits.sum(axis=(1, 2)) == sum(played)).all()
    assert (counts.moves.sum(axis=(1, 2, 3)) == [sum(played), sum(played), 0]).all()
    used = np.add.outer(np.arange(3), np.arange(3)) % 3
    assert (np.argwhere(counts.visits) == [(h, s, used[h, s]) for h in range(3) for s in range(3)]).all()
    seen = counts.visits > 0
    np.testing.assert_allclose(means.r[seen], cmdp.r[seen], rtol=1e-9)
    np.testing.assert_allclose(means.g[0][seen], cmdp.g[0][seen], rtol=1e-9)
