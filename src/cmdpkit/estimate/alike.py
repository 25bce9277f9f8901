"""Does the log contradict that all steps behave alike? If it does not, steps may share their counts.

The steps are cut into four groups. For every state and action, Pearson's statistic compares how often each next state
follows in the groups, and an analysis of variance compares the means of each signal. Each kind of statistic is added
up over the states and actions. If the steps are alike, such a sum has approximately a chi-squared distribution with as
many degrees of freedom as comparisons. Signals and next states of the same transition may go together, so the smallest
p-value of the kinds is taken, times their number (Bonferroni).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from cmdpkit.estimate.log import Log
from cmdpkit.model.transitions import FloatArray, IntArray

GROUPS = 4  # parts of the horizon that are compared with each other
LEAST_EXPECTED = 5.0  # expected counts below this are too small for the approximation
CONTRADICTED = 0.01  # a smaller p-value contradicts
ROUNDING = 1e-9  # relative difference of equal means


class Homogeneity(NamedTuple):
    """The result of the test."""

    p: float  # bound on the probability of statistics as large as these, if all steps behave alike
    comparisons: int  # degrees of freedom of all statistics

    @property
    def contradicted(self) -> bool:
        """Whether steps behave more differently than chance explains."""
        return self.p < CONTRADICTED


def homogeneity(log: Log) -> Homogeneity:
    """Compare the steps of a log with a horizon."""
    H = int(log.criterion.horizon or 1)
    group = np.minimum(log.step * GROUPS // H, GROUPS - 1)
    cell = log.s * log.A + log.a
    order = np.argsort(cell, kind="stable")
    sums = np.zeros((2 + log.N, 2))  # statistic and degrees of freedom of the next states, the reward, each signal
    for members in np.split(order, np.flatnonzero(np.diff(cell[order])) + 1):
        inner = members[log.step[members] < H - 1]  # the next state after the last step does not matter
        sums += [_moves(log.s_next[inner], group[inner]), *(_means(x[members], group[members]) for x in log.x)]
    compared = sums[sums[:, 1] > 0]
    if not len(compared):
        return Homogeneity(1.0, 0)
    p = [0.0 if np.isinf(statistic) else float(chdtrc(freedom, statistic)) for statistic, freedom in compared]
    return Homogeneity(min(1.0, len(p) * min(p)), int(compared[:, 1].sum()))


def _moves(s_next: IntArray, group: IntArray) -> tuple[float, int]:
    """Pearson's statistic of group against next state, and its degrees of freedom; rare next states count as one."""
    found, place = np.unique(s_next, return_inverse=True)
    table = np.zeros((GROUPS, len(found)))
    np.add.at(table, (group, place), 1)
    table = table[table.sum(axis=1) > 0]
    if len(table) < 2:
        return 0.0, 0
    rare = (_expected(table) < LEAST_EXPECTED).any(axis=0)
    merged = np.column_stack((table[:, ~rare], table[:, rare].sum(axis=1)))
    merged = merged[:, merged.sum(axis=0) > 0]
    expected = _expected(merged)
    if merged.shape[1] < 2 or expected.min() < LEAST_EXPECTED:
        return 0.0, 0
    return float(((merged - expected) ** 2 / expected).sum()), (len(merged) - 1) * (merged.shape[1] - 1)


def _expected(table: FloatArray) -> FloatArray:
    """Counts that would be expected if rows and columns had nothing to do with each other."""
    expected: FloatArray = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    return expected


def _means(x: FloatArray, group: IntArray) -> tuple[float, int]:
    """Squared differences of the groups' means over the variance within; infinite if a constant differs."""
    many = np.bincount(group, minlength=GROUPS) >= 2 * LEAST_EXPECTED
    if many.sum() < 2:
        return 0.0, 0
    x, group = x[many[group]], group[many[group]]
    n = np.bincount(group, minlength=GROUPS)
    means = np.bincount(group, weights=x, minlength=GROUPS) / np.maximum(n, 1)
    within = float(((x - means[group]) ** 2).mean())
    rounding = ROUNDING * max(float(np.abs(x).max()), 1.0)
    if within <= rounding**2:  # the same number at every visit of a group says nothing about chance
        return (np.inf, 1) if np.ptp(means[many]) > rounding else (0.0, 0)
    between = float((n * (means - x.mean()) ** 2)[many].sum())
    return between / within, int(many.sum()) - 1
