"""Counting, estimating and keeping estimates up to date against bookkeeping in plain Python."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from cmdpkit.estimate.boxes import confidence_box, means_of, new_belief, point, refresh
from cmdpkit.estimate.counts import Counts, compare_move, compare_signals, count_start
from counted import bonus_of, cell, count_move, count_step, no_counts

pytestmark = pytest.mark.compiled
H, S, A, N = 3, 4, 2, 2


Episode = list[tuple[int, int, np.ndarray]]  # state, action, reward and utilities of every step


def episodes(rng: np.random.Generator, n: int) -> list[Episode]:
    states = rng.integers(0, S - 1, (n, H))  # the last state is never seen
    return [[(int(s), int(rng.integers(A)), rng.random(1 + N)) for s in row] for row in states]


def count(counts: Counts, episode: Episode) -> None:
    count_start(counts, episode[0][0])
    for h, (s, a, signals) in enumerate(episode):
        count_step(counts, A, h, s, a, signals)
        compare_signals(counts, cell(counts, A, h, s, a), h, H, signals[None], 0)
        if h + 1 < H:
            count_move(counts, A, h, s, a, episode[h + 1][0])
            compare_move(counts, cell(counts, A, h, s, a), h, H, episode[h + 1][0])


@pytest.mark.parametrize("pooled", [False, True])
def test_estimates_are_the_means_of_the_observations(pooled):
    seen = episodes(np.random.default_rng(0), 40)
    counts = no_counts(H, S, A, N, pooled=pooled)
    earned, successors = defaultdict(list), defaultdict(list)
    for episode in seen:
        count(counts, episode)
        for h, (s, a, signals) in enumerate(episode):
            place = (0 if pooled else h, s, a)
            earned[place].append(signals)
            if h + 1 < H:
                successors[place].append(episode[h + 1][0])
    means = means_of(counts, A)
    assert means.p.shape == (1 if pooled else H, S, A, S)
    assert means.episodes[0] == 40
    starts = Counter(episode[0][0] for episode in seen)
    assert means.mu == pytest.approx([starts[s] / 40 for s in range(S)])
    for place in np.ndindex(means.r.shape):
        assert means.visits[place] == len(earned[place])
        assert means.moved[place] == len(successors[place])
        expected = np.mean(earned[place], axis=0) if earned[place] else np.zeros(1 + N)
        assert (means.r[place], *means.g[:, *place]) == pytest.approx(tuple(expected))
        to = Counter(successors[place])
        n = len(successors[place])
        assert means.p[place] == pytest.approx([to[s] / n if n else 1 / S for s in range(S)])


def test_before_any_data_everything_is_uniform_or_zero():
    counts = no_counts(H, S, A, N)
    means = means_of(counts, A)
    assert (means.p == 0.25).all() and (means.mu == 0.25).all()
    assert not means.r.any() and not means.g.any() and not means.visits.any() and not means.moved.any()


def test_the_last_step_adds_visits_but_no_moves():
    counts = no_counts(1, 2, 1, 0, pooled=True)
    count_start(counts, 1)
    count_step(counts, 1, 0, 1, 0, np.array([0.5]))
    assert counts.visits[1] == 1
    assert means_of(counts, 1).p[0, 1, 0].tolist() == [0.5, 0.5], "nothing was learnt about transitions"


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


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("boxed", [False, True])
def test_a_belief_refreshed_now_and_then_is_the_one_made_at_once(pooled, boxed):
    counts, log = no_counts(H, S, A, N, pooled=pooled), 0.02
    belief = new_belief(counts, A, boxed=boxed)
    for i, episode in enumerate(episodes(np.random.default_rng(3), 60)):
        count(counts, episode)
        if i % 7 == 0:
            refresh(counts, belief, log, H, boxed)
    refresh(counts, belief, log, H, boxed)
    means = means_of(counts, A)
    box = confidence_box(means, log, H) if boxed else point(means.p, means.mu)
    for mine, other in zip((*belief.means, *belief.box), (*means, *box), strict=True):
        if mine.shape == belief.box.states.shape and mine.dtype == np.int32:
            listed = np.arange(S) < box.needed[..., None]
            mine, other = np.where(listed, mine, -1), np.where(listed, other, -1)
        np.testing.assert_array_equal(mine, other)
    np.testing.assert_array_equal(belief.transition_bonus(H), bonus_of(means, log, H))


PART = [0, 1, 3]  # of each of the H steps


def test_pooled_counts_keep_the_parts_of_an_episode_apart_to_its_last_step():
    counts, seen = no_counts(H, S, A, N, pooled=True), episodes(np.random.default_rng(4), 25)
    for episode in seen:
        count(counts, episode)
    for s, a in np.ndindex(S, A):
        for part in range(4):
            earned, reached = [], []
            for episode in seen:
                for h, (s_h, a_h, signals) in enumerate(episode):
                    if (s_h, a_h) == (s, a) and PART[h] == part:
                        earned.append(signals)
                        reached += [episode[h + 1][0]] if h + 1 < H else []
            record, moves = counts.parts[s * A + a, part], counts.part_moves[s * A + a, part]
            assert (record[0], moves[0]) == (len(earned), len(reached))
            assert record[1::2] == pytest.approx(sum(earned, np.zeros(1 + N)))
            assert record[2::2] == pytest.approx(sum((x**2 for x in earned), np.zeros(1 + N)))
            assert moves[1::2] == pytest.approx(counts.marks[:, reached].sum(axis=1))
    assert len(no_counts(H, S, A, N).parts) == len(no_counts(H, S, A, N).part_moves) == 0
