"""Counting, estimating and keeping estimates up to date against bookkeeping in plain Python."""

from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest
from box_oracle import Sides

from cmdpkit.estimate.boxes import grown, new_box, update_box
from cmdpkit.estimate.counts import Counts, frequencies, kernel_of
from cmdpkit.estimate.radii import AllTimes, Bernstein
from cmdpkit.learners._model_based.learner import Belief
from cmdpkit.operators.row_lists import matrix_of
from cmdpkit.operators.rows import expect, push, row_of
from counted import cell, count_episode, no_counts

pytestmark = pytest.mark.compiled
H, S, A, N = 3, 4, 2, 2


Episode = list[tuple[int, int, np.ndarray]]  # state, action, reward and utilities of every step


def episodes(rng: np.random.Generator, n: int) -> list[Episode]:
    states = rng.integers(0, S - 1, (n, H))  # the last state is never seen
    return [[(int(s), int(rng.integers(A)), rng.random(1 + N)) for s in row] for row in states]


def count(counts: Counts, episode: Episode) -> None:
    count_episode(counts, A, *map(np.array, zip(*episode, strict=True)))


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
    belief = Belief.of(counts, A)
    P = matrix_of(belief.model.rows, S).toarray().reshape(-1, S, A, S)
    assert P.shape == (1 if pooled else H, S, A, S)
    assert belief.episodes == 40
    starts = Counter(episode[0][0] for episode in seen)
    assert matrix_of(belief.model.start, S).toarray()[0] == pytest.approx([starts[s] / 40 for s in range(S)])
    for place in np.ndindex(belief.visits.shape):
        assert belief.visits[place] == len(earned[place])
        assert belief.moved[place] == len(successors[place])
        expected = np.mean(earned[place], axis=0) if earned[place] else np.zeros(1 + N)
        assert belief.signals[:, *place] == pytest.approx(expected)
        to = Counter(successors[place])
        n = len(successors[place])
        assert P[place] == pytest.approx([to[s] / n if n else float(s == place[1]) for s in range(S)])


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("extra", [0, 1])
def test_counts_as_rows_are_the_frequencies_divided_by_one_more_if_asked(pooled, extra):
    rng, counts = np.random.default_rng(5), no_counts(H, S, A, N, pooled=pooled)
    for episode in episodes(rng, 25):
        count(counts, episode)
    rows, P = frequencies(counts, A, extra), matrix_of(Belief.of(counts, A).model.rows, S).toarray()
    V = rng.normal(size=S)
    for h, s, a in np.ndindex(H, S, A):
        i, row, out = cell(counts, A, h, s, a), row_of(rows, h, s, a), np.zeros(S)
        p = P[i] * counts.moves[i] / (counts.moves[i] + 1) if extra else P[i]
        push(rows, row, 0.5, out)
        assert out == pytest.approx(0.5 * p) and expect(rows, row, V, 2.0) == pytest.approx(2.0 + p @ V)


def test_before_any_data_the_start_is_uniform_and_nothing_moves():
    belief = Belief.of(no_counts(H, S, A, N), A)
    stays = np.broadcast_to(np.eye(S)[:, None], (H, S, A, S))
    np.testing.assert_array_equal(matrix_of(belief.model.rows, S).toarray().reshape(H, S, A, S), stays)
    assert (matrix_of(belief.model.start, S).toarray() == 0.25).all()
    assert not belief.signals.any() and not belief.visits.any() and not belief.moved.any()


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
@pytest.mark.parametrize("interval", [Bernstein(0.02), AllTimes(3.0)])
def test_a_box_brought_up_to_date_now_and_then_is_the_one_made_at_once(pooled, interval):
    counts = no_counts(H, S, A, N, pooled=pooled)
    box = new_box(counts, H, A)
    for i, episode in enumerate(episodes(np.random.default_rng(3), 60)):
        count(counts, episode)
        if i == 30:  # lists that grow are replaced by longer ones
            longer = {name: np.append(getattr(counts, name), np.zeros(9, int)).astype(getattr(counts, name).dtype)
                      for name in ("link", "state", "times")}  # fmt: skip
            counts = counts._replace(**longer)
            box = grown(box, counts)
        if i % 7 == 0:
            update_box(counts, box, interval)
    update_box(counts, box, interval)
    once = new_box(counts, H, A)
    update_box(counts, once, interval)
    for mine, other in zip(Sides.of(box), Sides.of(once), strict=True):
        np.testing.assert_array_equal(mine, other)
    for mine, other in zip(box.rows[5:7], once.rows[5:7], strict=True):  # what is shared, and what is to be given out
        np.testing.assert_array_equal(mine, other)
    lo = Sides.of(box).lo.reshape(-1, S)
    assert box.rows.spare == pytest.approx(1 - lo.sum(axis=1)) and 0 < lo.max() < 1


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


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("declared", [False, True])
def test_rows_of_weights_are_shares_of_their_sum_whatever_the_order_of_the_entries(seed, declared):
    """Against fractions: entries come in any order, some twice and some with weight 0, and some rows have none."""
    rng = np.random.default_rng([5, seed])
    T, n = int(rng.integers(1, 4)), int(rng.integers(0, 40))
    R = T * S * A
    rows, to = rng.integers(0, R, n) // 2 * 2, rng.integers(0, S, n)  # rows of odd number are never seen
    weights = rng.integers(0, 4, n) / 8
    unknown = rng.integers(0, S, R) if declared else None
    exact = [[Fraction(0)] * S for _ in range(R)]
    for row, s_next, weight in zip(rows, to, weights, strict=True):
        exact[row][s_next] += Fraction(weight)
    for row, shares in enumerate(exact):
        total = sum(shares)
        if total == 0:
            exact[row] = [Fraction(int(s == (unknown[row] if declared else row // A % S))) for s in range(S)]
        else:
            exact[row] = [x / total for x in shares]
    kernel = kernel_of((T, S, A), rows, to, weights, unknown)
    assert kernel.shape == (T, S, A) and (kernel.prob > 0).all()
    found = np.concatenate([kernel.dense(T)[t].reshape(-1, S) for t in range(T)])
    assert np.abs(found - np.array(exact, dtype=float)).max() <= 2**-52
    for row in range(R):
        own = kernel.successors[kernel.indptr[row] : kernel.indptr[row + 1]]
        assert (np.diff(own) > 0).all()  # every next state once, and rising
