"""Dense estimates of everything counted, and how far the truth can be from them: radii, boxes of kernels, bonuses.

    beta_p[h, s, a, s'] = 2 sqrt(p_hat (1 - p_hat) L_p / n) + (14/3) L_p / n,   L_p = c ln(6 S A H K / delta)
    beta_l[h, s, a]     = sqrt(L_l / n),                                        L_l = 2 c ln(6 S A H (N+1) K / delta)

(empirical Bernstein and Hoeffding; Efroni, Mannor, Pirotta 2020, arXiv 2003.02189). c = 1 is the theory: with
probability 1 - delta the true kernel lies in the box p_hat +- beta_p, and the true means within beta_l, in all K
episodes. Presets make the radii smaller by this number c alone; the formulas stay as they are.

In a world that is declared stationary, one count serves all steps, and the same formulas hold with the same logarithms:
each of the S A pairs has up to H K observations instead of each of the H S A triples up to K, so the union bound is
over as many events. The observations of a pair are independent draws from one distribution, whatever steps they were
made at. A plan may choose another kernel of the box at every step, which only makes it more optimistic.

Where nothing was seen a radius is at least 1, whatever c is: any distribution is possible and any mean in [0, 1]. The
last step has no transition, hence no radius. The start distribution is a row like any other: an unknown one has a box,
which takes the place of a row of the last step in the union bound.

From one plan to the next only those rows change whose action was taken meanwhile. `refresh` finds them by their number
of visits, and leaves all other rows of a `Belief` alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.counts import Counts, signals_of, steps_of
from cmdpkit.model.compiled import compiled, internal, readonly
from cmdpkit.model.tolerances import NOTHING_MISSING
from cmdpkit.model.transitions import FloatArray, IntArray

STALE = -1  # a number of visits that no row has, so that the row is filled again


class Means(NamedTuple):
    """Empirical means and how many observations each rests on."""

    mu: FloatArray  # [S]: start distribution; uniform before the first episode
    p: FloatArray  # [T, S, A, S]: transition probabilities; uniform where no transition was seen
    signals: FloatArray  # [1+N, T, S, A]: mean reward and utilities; 0 where the action was never taken
    episodes: IntArray  # [1]: number of episodes that the start distribution rests on
    moved: IntArray  # [T, S, A]: number of transitions that each row of p rests on
    visits: IntArray  # [T, S, A]: number of visits that the mean signals rest on

    @property
    def r(self) -> FloatArray:
        """Mean reward [T, S, A]."""
        r: FloatArray = self.signals[0]
        return r

    @property
    def g(self) -> FloatArray:
        """Mean utilities [N, T, S, A]."""
        return self.signals[1:]


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


class Belief(NamedTuple):
    """Estimates, how far they can be trusted, and the kernels that remain possible."""

    means: Means  # the estimated model
    box: Box  # kernels to plan with: all within their radii, or the estimated one alone
    width: FloatArray  # [T, S, A]: sum_s' beta_p, the radii of a row added up

    def transition_bonus(self, H: int) -> FloatArray:
        """`width` for every step [H, S, A]; 0 at the last one, which no transition follows."""
        bonus = np.broadcast_to(self.width, (H, *self.width.shape[1:])).copy()
        bonus[H - 1] = 0.0
        return bonus


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


def means_of(counts: Counts, A: int) -> Means:
    """Means of everything counted; A is the number of actions."""
    S = len(counts.starts)
    cells, M = (steps_of(counts, A), S, A), signals_of(counts)
    means = Means(
        mu=np.zeros(S),
        p=np.zeros((*cells, S)),
        signals=np.zeros((M, *cells)),
        episodes=np.zeros(1, dtype=np.int64),
        moved=np.zeros(cells, dtype=np.int64),
        visits=np.zeros(cells, dtype=np.int64),
    )
    update_means(counts, means)
    return means


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


def _new_box(means: Means) -> Box:
    """A box of its own arrays, to be filled."""
    return box_of(*(np.zeros_like(side) for side in (means.p, means.p, means.mu, means.mu)))


def confidence_box(means: Means, log: float, H: int) -> Box:
    """The kernels and the start distributions within beta_p of their estimates."""
    box = _new_box(means)
    update_box(means, log, H, box)
    return box


def point(p: FloatArray, mu: FloatArray) -> Box:
    """The box that holds one kernel and one start distribution."""
    return box_of(p, p, mu, mu)


def new_belief(counts: Counts, A: int, *, boxed: bool) -> Belief:
    """A belief that has seen nothing; `boxed` asks for the box of all kernels within their radii."""
    means = means_of(counts, A)
    box = _new_box(means) if boxed else point(means.p, means.mu)
    belief = Belief(means, box, np.zeros(means.visits.shape))
    forget(belief)
    return belief


def forget(belief: Belief) -> None:
    """Let the next `refresh` fill every row."""
    belief.means.visits[...] = STALE


def mean_radius(visits: IntArray, log: float) -> FloatArray:
    """beta_l [T, S, A] with logarithm `log`."""
    radius = np.zeros(visits.shape)
    update_mean_radius(visits, log, radius)
    return radius


def start_bonus(means: Means, log: float) -> float:
    """sum_s beta_p[s] of the start distribution."""
    return float(total_radius(means.mu, means.episodes[0], log))


@compiled
def refresh(counts, belief, log, H, boxed):
    """Bring a belief up to date with the counts; `log` is that of the radii of transitions."""
    means, box = belief.means, belief.box
    T, S, A = means.visits.shape
    for t in range(T):
        for s in range(S):
            for a in range(A):
                if means.visits[t, s, a] == counts.visits[(t * S + s) * A + a]:
                    continue
                update_row(counts, means, t, s, a)
                belief.width[t, s, a] = total_radius(means.p[t, s, a], means.moved[t, s, a], log)
                if boxed:
                    update_box_row(means, log, H, box, t, s, a)
                else:
                    list_needed_row(box.lo[t, s, a], box.needed, box.states, box.missing, t, s, a)
    update_start_estimate(counts, means)
    if boxed:
        _interval(means.mu, means.episodes[0], log, False, box.start_lo, box.start_up)


@compiled
def update_means(counts, means):
    """Fill `means` (Means) from the counts."""
    T, S, A = means.visits.shape
    update_start_estimate(counts, means)
    for t in range(T):
        for s in range(S):
            for a in range(A):
                update_row(counts, means, t, s, a)


@internal
def update_row(counts, means, t, s, a):
    """Fill what `means` (Means) says of one cell."""
    _, S, A = means.visits.shape
    cell = (t * S + s) * A + a
    visits, moved, p = counts.visits[cell], counts.moves[cell], means.p[t, s, a]
    means.visits[t, s, a], means.moved[t, s, a] = visits, moved
    for n in range(len(means.signals)):
        means.signals[n, t, s, a] = counts.moments[cell, n] / max(visits, 1)
    for s_next in range(S):
        p[s_next] = 0.0 if moved > 0 else 1.0 / S
    j = counts.head[cell]
    while j >= 0:
        p[counts.state[j]] = counts.times[j] / moved
        j = counts.link[j]


@internal
def update_start_estimate(counts, means):
    """Fill the start distribution of `means` (Means)."""
    S, total = len(counts.starts), 0
    for s in range(S):
        total += counts.starts[s]
    means.episodes[0] = total
    for s in range(S):
        means.mu[s] = counts.starts[s] / total if total > 0 else 1.0 / S


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
    """Fill bonus [H, S, A] with sum_s' beta_p[h, s, a, s'], and 0 at the last step.

    H times this bonus covers what the error of the kernel can do to values of signals in [0, 1]: values are optimistic
    if it is added to the signal, and pessimistic if it is subtracted. Where the start distribution is estimated too,
    H times `start_bonus` does the same for the expected totals from the start.
    """
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
    _interval(means.mu, means.episodes[0], log, False, box.start_lo, box.start_up)


@internal
def update_box_row(means, log, H, box, t, s, a):
    """Fill one row of `box`. If the last step has rows of its own, they get no radius: no transition follows it."""
    last = len(means.p) == H and t == H - 1
    _interval(means.p[t, s, a], means.moved[t, s, a], log, last, box.lo[t, s, a], box.up[t, s, a])
    list_needed_row(box.lo[t, s, a], box.needed, box.states, box.missing, t, s, a)


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
