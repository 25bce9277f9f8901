"""How far estimates can be from the truth: the radii of papers on optimism, and bonuses made of them.

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
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.boxes import Box, ends, new_box, of_count, update_box
from cmdpkit.estimate.counts import Counts
from cmdpkit.model.compiled import call, compiled
from cmdpkit.model.transitions import FloatArray, IntArray


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


@compiled(inline=True)
def hoeffding(n, log):
    """Radius of a mean of n observations in [0, 1]; at least 1 without any."""
    radius = math.sqrt(log / max(n, 1))
    return max(1.0, radius) if n == 0 else radius


def mean_radius(n: IntArray, log: float) -> FloatArray:
    """`hoeffding` of every number of observations."""
    radius: FloatArray = np.sqrt(log / np.maximum(n, 1))
    return np.where(n == 0, np.maximum(radius, 1.0), radius)


@compiled(inline=True)
def bernstein(p, n, log):
    """Radius of a frequency p among n observations; at least 1 without any."""
    x = log / max(n, 1)
    radius = 2.0 * math.sqrt(p * (1.0 - p) * x) + 14.0 / 3.0 * x
    return max(1.0, radius) if n == 0 else radius


class Bernstein(NamedTuple):
    """The intervals p_hat +- beta_p, for `boxes.update_box`."""

    log: float  # L_p


@of_count.of(Bernstein)
def _of_count(interval, n):
    return interval.log


@ends.of(Bernstein)
def _ends(interval, k, n, log):
    p = k / max(n, 1)
    radius = bernstein(p, n, log)
    return max(p - radius, 0.0), min(p + radius, 1.0)


def confidence_box(counts: Counts, H: int, A: int, log: float) -> Box:
    """The kernels and the start distributions within beta_p of their estimates."""
    box = new_box(counts, H, A)
    call(update_box, len(counts.head) + int(counts.used[0]), counts, box, Bernstein(log))
    return box


@compiled
def row_radius(counts, row, log):
    """The sum over all next states of beta_p."""
    n, j, seen, total = counts.moves[row], counts.head[row], 0, 0.0
    while j >= 0:
        seen, total, j = seen + 1, total + bernstein(counts.times[j] / n, n, log), counts.link[j]
    return total + (len(counts.starts) - seen) * bernstein(0.0, n, log)


def row_radii(counts: Counts, A: int, log: float) -> FloatArray:
    """[T, S, A]: `row_radius` of all rows."""
    radii = np.zeros(len(counts.head))
    call(_row_radii, len(radii) + int(counts.used[0]), counts, log, radii)
    return radii.reshape(-1, len(counts.starts), A)


@compiled
def _row_radii(counts, log, radii):
    for row in range(len(radii)):
        radii[row] = row_radius(counts, row, log)


def transition_bonus(counts: Counts, H: int, A: int, log: float) -> FloatArray:
    """[H, S, A]: the sum over all next states of beta_p; 0 at the last step, which no transition follows.

    H times this bonus covers what the error of the kernel can do to values of signals in [0, 1]: values are optimistic
    if it is added to the signal, and pessimistic if it is subtracted. Where the start distribution is estimated too,
    H times `start_bonus` does the same for the expected totals from the start.
    """
    radii = row_radii(counts, A, log)
    bonus = np.broadcast_to(radii, (H, *radii.shape[1:])).copy()
    bonus[H - 1] = 0.0
    return bonus


@compiled
def start_bonus(starts, log):
    """The sum over all states of beta_p of the start distribution, which was seen starts [S] times."""
    episodes, total = starts.sum(), 0.0
    for s in range(len(starts)):
        total += bernstein(starts[s] / max(episodes, 1), episodes, log)
    return total
