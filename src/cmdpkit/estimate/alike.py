"""Are these the same distribution? One test, for steps against other steps and for early against late.

**Records.** Observations are kept by cell (a state and an action, or a step, a state and an action) and by group (parts
of the horizon, or periods of time): their number, and the sum and the squares of several quantities. These are the
signals and marks of the next state, which tell next states apart.

**Test.** The groups are in order, and every split, "the first g groups against the others", is tested. For each
quantity three statistics are compared with chance: the largest difference of a single cell; the sum of squared
differences of all cells, in standard errors, against a chi-squared distribution; and the sum of the differences
themselves, which finds a small shift that all cells share. Limits are those of Bernstein's inequality where outcomes
may be rare. The smallest p-value counts, times the number of tests (Bonferroni), so that the probability of a false
alarm is at most the error that is asked for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, ndtr

from cmdpkit.model.tolerances import EQUAL_SUMS, SMALLEST_ERROR
from cmdpkit.model.transitions import FloatArray, IntArray


class Alike(NamedTuple):
    """The result of the test."""

    p: float  # bound on the probability of differences as large as these, if all groups are alike
    comparisons: int  # differences that were looked at
    split: int  # groups before the split with the clearest difference
    cells: IntArray  # the cells that differ at that split, the clearest first

    @property
    def contradicted(self) -> bool:
        """Whether the groups differ more than chance explains, which does so with probability 0.005 at most."""
        return self.p < 0.005


def several_marks(S: int, marks: int = 3) -> FloatArray:
    """[marks, S]: the number of the state, which shows shifts along an order of the states, and random marks.

    Random marks are in the lower third for half of the states and in the upper third for the others. A shift towards a
    state in the middle would not change the mean of a mark.
    """
    rng = np.random.default_rng(S)
    drawn = [(2 * (rng.permutation(S) % 2) + rng.random(S)) / 3 for _ in range(marks - 1)]
    return np.array([np.linspace(0.0, 1.0, S), *drawn])


def new_records(cells: int, groups: int, quantities: int) -> FloatArray:
    """Room for what is observed: number, then sum and squares of every quantity, by cell and group."""
    return np.zeros((cells, groups, 1 + 2 * quantities))


def steps_differ(signals: FloatArray, moves: FloatArray) -> bool:
    """Whether what a learner recorded by parts of the episode contradicts that all steps behave alike."""
    return bool(steps_warning(signals, moves))


def steps_warning(signals: FloatArray, moves: FloatArray, error: float = 1e-4) -> tuple[str, ...]:
    """What a user is told where that is so; ``error`` is small because a run looks more than once."""
    p = together(compared(signals), compared(moves)).p
    if p >= error:
        return ()
    return (
        "the steps were taken to behave alike, but the same actions in the same states have different consequences at "
        f"different steps (p = {p:.2g}). Either the world depends on the step: declare it (stationary=False for a "
        "Gymnasium environment, a model with a step axis). Or the state is too coarse, as where an observation was cut "
        "into few cells: make it finer",
    )


def compared(records: FloatArray, ranges: FloatArray | None = None) -> Alike:
    """Test whether the groups are alike; ``ranges`` [Q] are the largest differences that a quantity can have (1)."""
    groups, width = records.shape[1:]
    spans = np.ones((width - 1) // 2)
    if ranges is not None:
        spans = np.where(ranges > EQUAL_SUMS, ranges, np.inf)  # a constant is never apart
    sums = np.cumsum(records, axis=1)
    whole = sums[:, -1]
    found: list[tuple[float, int, IntArray]] = []  # strength, split, clearest cells
    smallest = 1.0
    tests = comparisons = 0
    for split in range(1, groups):
        before = sums[:, split - 1]
        n, m = before[:, 0], whole[:, 0] - before[:, 0]
        both = np.flatnonzero((n > 0) & (m > 0) & (n + m > 2))
        if not len(both):
            continue
        n, m = n[both, None], m[both, None]
        early, late = before[both, 1::2] / n, (whole - before)[both, 1::2] / m
        inverse = 1 / n + 1 / m
        within = whole[both, 2::2] - n * early**2 - m * late**2
        variance = np.maximum(within, 0.0) / (n + m - 2)
        variance = np.where(variance > (1e-7 * spans) ** 2, variance, 0.0)
        apart = np.where(np.abs(late - early) > EQUAL_SUMS * np.maximum(spans, np.abs(early)), late - early, 0.0)
        p, count = _p_values(apart, variance, inverse, np.minimum(n, m), spans)
        smallest, tests, comparisons = min(smallest, p), tests + count, comparisons + apart.size
        z = np.abs(apart) / np.sqrt(np.maximum(variance * inverse, SMALLEST_ERROR))
        strength = float(np.minimum(z**2, 1e6).sum())  # beyond this a difference is as clear as it can be
        found.append((strength, split, both[np.argsort(-z.max(axis=1), kind="stable")]))
    if not found:
        return Alike(1.0, 0, 0, np.zeros(0, dtype=np.int64))
    _, split, clearest = max(found, key=lambda x: x[0])
    return Alike(min(1.0, max(tests, 1) * smallest), comparisons if tests else 0, split, clearest)


def together(*found: Alike) -> Alike:
    """Several tests of the same groups as one: the clearest of them, its p-value times their number."""
    clearest = min(found, key=lambda x: x.p)
    return clearest._replace(p=min(1.0, len(found) * clearest.p), comparisons=sum(x.comparisons for x in found))


def _p_values(
    apart: FloatArray,
    variance: FloatArray,
    inverse: FloatArray,
    least: FloatArray,
    spans: FloatArray,
    *,
    enough: int = 10,
    spread: float = 5.0,
) -> tuple[float, int]:
    """The smallest p-value of the three statistics of one split, and the number of tests.

    Differences and variances are [cells, Q], and 1 / n + 1 / m and the smaller number of observations are [cells, 1].
    Single cells are tested if both sides have `enough` observations. Squared differences count as chi-squared if there
    are at least `spread` observations times variance, with range 1.
    """
    found = []
    for q, span in enumerate(spans):
        if np.isinf(span):
            continue
        d, v, varies = apart[:, q], variance[:, q], variance[:, q] > 0
        single = (least[:, 0] >= enough) & (varies | (d != 0))
        if single.any():
            found.append(_tail(d[single], v[single], inverse[single, 0], span).min() * int(single.sum()))
        usual = varies & (least[:, 0] * v >= spread * span**2)
        if usual.any():
            total = float((d[usual] ** 2 / (v[usual] * inverse[usual, 0])).sum())
            found.append(chdtrc(int(usual.sum()), total))
        if varies.any():
            weights = 1 / inverse[varies, 0]
            found.append(_tail(np.array([weights @ d[varies]]), np.array([weights @ v[varies]]), np.ones(1), span)[0])
    return float(min(found, default=1.0)), len(found)


def _tail(apart: FloatArray, variance: FloatArray, inverse: FloatArray, span: float) -> FloatArray:
    """Probability of differences as large as these by chance, as in Bernstein's inequality: z sd + z^2 span / 6."""
    a, b = span * inverse / 6, np.sqrt(variance * inverse)
    z = (np.sqrt(b**2 + 4 * a * np.abs(apart)) - b) / (2 * a)
    certain = (variance == 0) & (apart != 0)  # the same number at every visit, but another one in each group
    return np.where(certain, 0.0, 2 * ndtr(-z))
