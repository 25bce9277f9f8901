"""How far the truth can be from the estimates: radii, the box of kernels they leave, and bonuses.

    beta_p[h, s, a, s'] = 2 sqrt(p_hat (1 - p_hat) L_p / n) + (14/3) L_p / n,   L_p = c ln(6 S A H K / delta)
    beta_l[h, s, a]     = sqrt(L_l / n),                                        L_l = 2 c ln(6 S A H (N+1) K / delta)

(empirical Bernstein and Hoeffding; Efroni, Mannor, Pirotta 2020, arXiv 2003.02189). c = 1 is the theory: with
probability 1 - delta the true kernel lies in the box p_hat +- beta_p, and the true means within beta_l, in all K
episodes. Presets make the radii smaller by this number c alone; the formulas stay as they are.

In a world that is declared stationary, one count serves all steps, and the same formulas hold with the same logarithms.
Each of the S A pairs then has up to H K observations instead of each of the H S A triples up to K, so the union bound
is over as many events. The observations of a pair are independent draws from one distribution, whatever steps they were
made at: think of a pile of next states and signals that was drawn beforehand for every pair, and of which each visit
takes the next one. A box that holds the true kernel then holds it at every step. The plan may choose another kernel of
the box at every step, which only makes it more optimistic.

Where nothing was seen a radius is at least 1, whatever c is: any distribution is possible and any mean in [0, 1]. The
last step has no transition, hence no radius. The start distribution is a row like any other: an unknown one has a box,
which takes the place of a row of the last step in the union bound.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.means import Means
from cmdpkit.model.compiled import compiled, internal, readonly
from cmdpkit.model.tolerances import NOTHING_MISSING
from cmdpkit.model.transitions import FloatArray, IntArray


class Box(NamedTuple):
    """All kernels with lo <= P <= up and all start distributions between start_lo and start_up; never empty.

    Most rows have few next states with lo > 0. These are listed, so that compiled loops need not look at all states.
    """

    lo: FloatArray  # [T, S, A, S]: smallest probability of each next state
    up: FloatArray  # [T, S, A, S]: largest probability of each next state
    start_lo: FloatArray  # [S]: smallest probability of starting in each state
    start_up: FloatArray  # [S]: largest probability of starting in each state
    needed: NDArray[np.int32]  # [T, S, A]: how many next states have lo > 0
    states: NDArray[np.int32]  # [T, S, A, S]: these next states, in the first entries of each row
    missing: FloatArray  # [T, S, A]: 1 - sum of lo, the probability that is still to be given out


def kernel_log(S: int, A: int, H: int, K: int, delta: float, c: float = 1.0) -> float:
    """L_p = c ln(6 S A H K / delta).

    >>> round(kernel_log(3, 3, 3, 5000, 0.1), 4)
    15.9074
    """
    return _scaled_log(6 * S * A * H * K, delta, c)


def mean_log(S: int, A: int, H: int, N: int, K: int, delta: float, c: float = 1.0) -> float:
    """L_l = 2 c ln(6 S A H (N + 1) K / delta)."""
    return 2 * _scaled_log(6 * S * A * H * (N + 1) * K, delta, c)


def _scaled_log(events: float, delta: float, c: float) -> float:
    if not 0 < delta < 1:
        raise CmdpkitError(f"delta is {delta!r}, expected a probability between 0 and 1, both excluded")
    if not 0 <= c < math.inf:
        raise CmdpkitError(f"c is {c!r}, expected a finite number, at least 0")
    return c * math.log(events / delta)


def mean_radius(visits: IntArray, log: float) -> FloatArray:
    """beta_l [T, S, A] with logarithm `log`."""
    radius = np.zeros(visits.shape)
    update_mean_radius(visits, log, radius)
    return radius


def box_of(lo: FloatArray, up: FloatArray, start_lo: FloatArray, start_up: FloatArray) -> Box:
    """The box between given sides."""
    box = Box(
        lo=lo,
        up=up,
        start_lo=start_lo,
        start_up=start_up,
        needed=np.zeros(lo.shape[:3], dtype=np.int32),
        states=np.zeros(lo.shape, dtype=np.int32),
        missing=np.zeros(lo.shape[:3]),
    )
    list_needed(readonly(lo), box.needed, box.states, box.missing)
    return box


def confidence_box(means: Means, log: float, H: int) -> Box:
    """The kernels and the start distributions within beta_p of their estimates."""
    cells, start = means.p.shape, means.mu.shape
    box = box_of(np.zeros(cells), np.zeros(cells), np.zeros(start), np.zeros(start))
    update_box(means, log, H, box)
    return box


def point(p: FloatArray, mu: FloatArray) -> Box:
    """The box that holds one kernel and one start distribution."""
    return box_of(p, p, mu, mu)


def transition_bonus(means: Means, log: float, H: int) -> FloatArray:
    """sum_s' beta_p[h, s, a, s'], [H, S, A], and 0 at the last step.

    H times this bonus covers what the error of the kernel can do to values of signals in [0, 1]: values are optimistic
    if it is added to the signal, and pessimistic if it is subtracted. Where the start distribution is estimated too,
    H times `start_bonus` does the same for the expected totals from the start.
    """
    bonus = np.zeros((H, *means.moved.shape[1:]))
    update_transition_bonus(means, log, bonus)
    return bonus


def start_bonus(means: Means, log: float) -> float:
    """sum_s beta_p[s] of the start distribution."""
    return float(total_radius(means.mu, means.episodes[0], log))


@compiled
def hoeffding(n, log):
    """Radius of a mean of n observations in [0, 1]; at least 1 without any."""
    radius = math.sqrt(log / max(n, 1))
    return max(1.0, radius) if n == 0 else radius


@compiled
def bernstein(p, n, log):
    """Radius of a frequency p among n observations; at least 1 without any."""
    x = log / max(n, 1)
    radius = 2.0 * math.sqrt(p * (1.0 - p) * x) + 14.0 / 3.0 * x
    return max(1.0, radius) if n == 0 else radius


@compiled
def total_radius(p, n, log):
    """Sum of the radii of the frequencies p [S]."""
    unseen, total = bernstein(0.0, n, log), 0.0
    for s in range(len(p)):
        total += unseen if p[s] == 0.0 else bernstein(p[s], n, log)
    return total


@compiled
def update_mean_radius(visits, log, radius):
    """Fill radius [T, S, A]."""
    T, S, A = visits.shape
    for t in range(T):
        for s in range(S):
            for a in range(A):
                radius[t, s, a] = hoeffding(visits[t, s, a], log)


@compiled
def update_transition_bonus(means, log, bonus):
    """Fill bonus [H, S, A]."""
    H, S, A = bonus.shape
    T = len(means.p)
    for h in range(H):
        for s in range(S):
            for a in range(A):
                if h == H - 1:
                    bonus[h, s, a] = 0.0
                elif h < T:
                    bonus[h, s, a] = total_radius(means.p[h, s, a], means.moved[h, s, a], log)
                else:
                    bonus[h, s, a] = bonus[h % T, s, a]


@compiled
def update_box(means, log, H, box):
    """Fill `box` (a Box)."""
    T, S, A = means.moved.shape
    for t in range(T):
        for s in range(S):
            for a in range(A):
                update_box_row(means, log, H, box, t, s, a)
    update_start(means, log, box)


@internal
def update_box_row(means, log, H, box, t, s, a):
    """Fill one row of `box`. If the last step has rows of its own, they get no radius: no transition follows it."""
    last = len(means.p) == H and t == H - 1
    _interval(means.p[t, s, a], means.moved[t, s, a], log, last, box.lo[t, s, a], box.up[t, s, a])
    list_needed_row(box.lo[t, s, a], box.needed, box.states, box.missing, t, s, a)


@internal
def update_start(means, log, box):
    """Fill both sides of the start distribution."""
    _interval(means.mu, means.episodes[0], log, False, box.start_lo, box.start_up)


@internal
def _interval(p, n, log, certain, lo, up):
    """Fill lo and up [S] with p -+ its radii, cut to [0, 1]."""
    unseen = 0.0 if certain else bernstein(0.0, n, log)
    for s in range(len(p)):
        radius = unseen if certain or p[s] == 0.0 else bernstein(p[s], n, log)
        lo[s] = max(p[s] - radius, 0.0)
        up[s] = min(p[s] + radius, 1.0)


@compiled
def list_needed(lo, needed, states, missing):
    """Fill `needed`, `states` and `missing` of a box for all rows of lo [T, S, A, S]."""
    T, S, A, _ = lo.shape
    for t in range(T):
        for s in range(S):
            for a in range(A):
                list_needed_row(lo[t, s, a], needed, states, missing, t, s, a)


@internal
def list_needed_row(lo, needed, states, missing, t, s, a):
    """Fill `needed`, `states` and `missing` of a box for the row lo [S]."""
    found, total = 0, 0.0
    for s_next in range(len(lo)):
        if lo[s_next] > 0.0:
            states[t, s, a, found] = s_next
            found += 1
            total += lo[s_next]
    needed[t, s, a] = found
    missing[t, s, a] = 1.0 - total if total < 1.0 - NOTHING_MISSING else 0.0
