"""Elimination and a Krylov method for the linear systems of Markov chains; `chains` chooses, also sweeps.

A chain that loses mass has two systems: the values y = x + P y and the visits d = inflow + P^T d.

*Elimination without subtraction* is exact to the last digits however rarely a state is left. Elimination on I - P
cancels: where a state is left with probability 1e-14, the difference 1 - P[s, s] has two correct digits. Nothing needs
to be subtracted (Grassmann, Taksar and Heyman 1985): the diagonal is the sum of what leaves the state, D[s] = exit[s] +
sum of P[s, t] over t != s, also for the chain that skips an eliminated state. All numbers are sums, products and
quotients of numbers that are not negative, so every visit, and every value of a signal without negative entries, has a
small relative error whatever the probabilities are (O'Cinneide 1993; with exits: Alfa, Xue and Ye 2002, where the bound
grows with the cube of the number of states; in the tests it is below 2e-15). For other signals the error is that share
of the value of the absolute signal.

The chain is kept as a band around the diagonal, in the reverse Cuthill-McKee order, so that queues and boards take
little memory and time. In a small one the whole matrix is the band.

*A Krylov method* serves chains that are too large for elimination and too slow for sweeps, which are in `steps`. Where
values are wanted to a given residual only, as while a policy is still being improved, `krylov` is enough. A chain that
is left once in a million steps has values of a million plus small differences between states. Products with I - P round
the million, and the differences are lost. For these *iterative refinement* keeps a solution as a constant and a rest,
the constant takes no part in products, and each round of the Krylov method starts from the residual of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.compiled import compiled
from cmdpkit.model.tolerances import REFINED, USABLE
from cmdpkit.model.transitions import FloatArray, IntArray, Rows
from cmdpkit.operators.row_lists import Entries, rows_of
from cmdpkit.operators.rows import expect

FULL = 128  # number of states up to which the order does not matter: the whole matrix is the band
DAMPING = 0.9  # share of a new sweep where gamma = 1: periodic chains do not converge without damping


def band_order(P: Any) -> tuple[IntArray, int]:
    """The states [S] in an order that keeps neighbours together, and how far apart neighbours are in it."""
    S = P.shape[0]
    if S <= FULL:
        return np.arange(S), max(S - 1, 0)
    pattern = sparse.csr_array(P + P.T)
    order = np.asarray(reverse_cuthill_mckee(sparse.csr_matrix(pattern), symmetric_mode=True), dtype=np.int64)
    place = np.empty(S, dtype=np.int64)
    place[order] = np.arange(S)
    entries = pattern.tocoo()
    return order, int(np.abs(place[entries.coords[0]] - place[entries.coords[1]]).max(initial=0))


class Elimination:
    """The systems of a chain that loses mass, for some of its states in a given order.

    `entries` are rows, columns and probabilities of a sparse matrix [S, S], of which the diagonal is not read, and
    `exits` [S] the probabilities of leaving, also to states that are not in `order` [n]. From every state some exit can
    be reached. Entry (i, j) is kept at i `stride` + j, of a band or of the full matrix.
    """

    def __init__(self, entries: Entries, exits: FloatArray, order: IntArray, width: int) -> None:
        n, (row, to, prob) = len(order), entries
        self.order, self.width = order, width
        start, self.stride = (width, 2 * width) if 2 * width < n else (0, n)
        place = np.full(len(exits), -1)
        place[order] = np.arange(n)
        i, j = place[row], place[to]
        inside = (i >= 0) & (j >= 0)
        at = start + i[inside] * self.stride + j[inside]
        self.band = np.bincount(at, prob[inside], n * (self.stride + 1))[start:]
        self.diagonal = np.empty(n)
        _eliminate(self.band, self.stride, width, exits[order], self.diagonal)

    def values(self, x: FloatArray) -> FloatArray:
        """y [n, K] with y = x + P y for signals x [n, K]."""
        y = np.array(x, dtype=float, order="C")
        _values(self.band, self.stride, self.width, self.diagonal, y)
        return y

    def flow(self, inflow: FloatArray) -> FloatArray:
        """d [n] with d = inflow + P^T d."""
        d = np.array(inflow, dtype=float)
        _flow(self.band, self.stride, self.width, self.diagonal, d)
        return d


@compiled
def _eliminate(band, stride, width, leaving, diagonal):
    """Eliminate state after state; entries left of the middle become factors, those right of it the chain that skips.

    The middle of a row collects returns of the state to itself, which nobody reads.
    """
    n = len(diagonal)
    for k in range(n):
        last, row = min(n, k + width + 1), k * stride
        total = leaving[k]
        for j in range(k + 1, last):
            total += band[row + j]
        diagonal[k] = total
        for i in range(k + 1, last):
            here = i * stride
            factor = band[here + k]
            if factor == 0.0:
                continue
            factor /= total
            band[here + k] = factor
            leaving[i] += factor * leaving[k]
            for j in range(k + 1, last):
                band[here + j] += factor * band[row + j]


@compiled
def _values(band, stride, width, diagonal, y):
    """Solve for values in place, where y [n, K] holds the signals at first."""
    n = len(y)
    for i in range(n):
        for k in range(max(0, i - width), i):
            _add(y, i, band[i * stride + k], k)
    for k in range(n - 1, -1, -1):
        for j in range(k + 1, min(n, k + width + 1)):
            _add(y, k, band[k * stride + j], j)
        for m in range(y.shape[1]):
            y[k, m] /= diagonal[k]


@compiled(inline=True)
def _add(y, i, factor, k):
    """Add row k of y [n, K], times a factor, to row i."""
    if factor != 0.0:
        for m in range(y.shape[1]):
            y[i, m] += factor * y[k, m]


@compiled
def _flow(band, stride, width, diagonal, d):
    """Solve for visits in place, where d [n] holds the inflow at first."""
    n = len(d)
    for k in range(n):
        d[k] /= diagonal[k]
        for j in range(k + 1, min(n, k + width + 1)):
            d[j] += band[k * stride + j] * d[k]
    for i in range(n - 1, -1, -1):
        for k in range(max(0, i - width), i):
            d[k] += band[i * stride + k] * d[i]


# -- Krylov method ----------------------------------------------------------------------------------------------------

ROUNDS = 30  # rounds of the Krylov method, each of which starts from an accurate residual
PRODUCTS = 400  # with the chain, in one round
REDUCTION = 1e-8  # of the residual in one round
NOTHING = np.zeros(0)  # in the place of a vector


def refined_values(between: Any, exits: FloatArray, x: FloatArray, pivot: int | None) -> tuple[float, FloatArray]:
    """Constant c and rest h [S] of the values of a signal x [S].

    `between` [S, S] are transitions between different states, which may lose mass to `exits` [S]. Without a pivot,
    c + h = x + P (c + h). With one, h = x - c + P h and h is zero there.
    """
    leaving = exits + np.asarray(between.sum(axis=1)).reshape(-1)
    weight = exits if pivot is None else np.ones(len(x))  # the constant's part of the left side
    left, right = NOTHING, NOTHING
    if pivot is not None:
        left, right = (1 - exits) / leaving, np.eye(1, pivot + 1, pivot)[0]
    jumps = rows_of(sparse.diags_array(1 / leaving) @ between)

    def residual(c: float, h: FloatArray) -> tuple[FloatArray, float]:
        size = np.abs(x).max() + np.abs(c * weight).max() + 2 * (leaving * np.abs(h)).max()
        return x - c * weight - (leaving * h - between @ h), float(size)

    def solve(r: FloatArray) -> tuple[float, FloatArray]:
        y = _krylov_round(jumps, left, right, r / leaving)
        c = float(y.mean() if pivot is None else y[pivot])
        return c, y - c

    return _refine(solve, residual, len(x))


def refined_flow(between: Any, exits: FloatArray, inflow: FloatArray, mass: float | None) -> FloatArray:
    """d [S] with d = inflow + P^T d; with a given total `mass` where nothing is lost."""
    leaving = exits + np.asarray(between.sum(axis=1)).reshape(-1)
    onward, source = sparse.csr_array(between.T), inflow.copy()
    left, right = NOTHING, NOTHING
    if mass is not None:
        source[0] += mass
        left, right = np.ones(1), 1 / leaving
    jumps = rows_of(onward @ sparse.diags_array(1 / leaving))

    def residual(_: float, d: FloatArray) -> tuple[FloatArray, float]:
        missing = source - (leaving * d - onward @ d)
        if mass is not None:
            missing[0] -= d.sum()
        return missing, float(np.abs(source).max() + 2 * (leaving * np.abs(d)).max())

    d = _refine(lambda r: (0.0, _krylov_round(jumps, left, right, r) / leaving), residual, len(inflow))[1]
    if mass is None and (inflow >= 0).all():  # what comes in goes out: the slowest part of the error has this size
        d *= inflow.sum() / float(exits @ d)
    return d


def _krylov_round(rows: Rows, left: FloatArray, right: FloatArray, r: FloatArray) -> FloatArray:
    """What to add to a solution with the residual r [S]; 0 if the method breaks down."""
    y = np.zeros(len(r))
    krylov(rows, r, left, right, y, np.zeros((6, len(r))), REDUCTION * float(np.abs(r).max()))
    return y if np.isfinite(y).all() else np.zeros(len(r))


def _refine(
    solve: Callable[[FloatArray], tuple[float, FloatArray]],
    residual: Callable[[float, FloatArray], tuple[FloatArray, float]],
    S: int,
) -> tuple[float, FloatArray]:
    """Constant and rest whose residual is down to rounding; CmdpkitError if that is out of reach."""
    c, rest = 0.0, np.zeros(S)
    best: tuple[float, float, FloatArray] = (np.inf, c, rest)
    for _ in range(ROUNDS):
        r, size = residual(c, rest)
        left = float(np.abs(r).max()) / size if size else 0.0
        if not left < 0.5 * best[0]:  # no better than before: rounding, or a breakdown of the method
            break
        best = (left, c, rest)
        if left <= REFINED:
            break
        shift, more = solve(r)
        c, rest = c + shift, rest + more
    if best[0] > USABLE:
        raise CmdpkitError(
            f"this chain of {S:,} states is left too rarely to be evaluated: after {ROUNDS} rounds of iteration its "
            f"equations still miss by {best[0]:.1g} (relative). Merge states that are rarely left, or use a "
            "smaller discount"
        )
    return best[1], best[2]


RESTARTS = 4  # of the Krylov method, each with the true residual
BROKEN = 1e6  # growth of the residual at which a Krylov method has failed


@compiled(inline=True)
def _apply(rows, left, right, y, out, other):
    """out = y - P y + left (right . y), vectors ending with zeros; the sums of out * other and of out * out."""
    base, product, square = 0.0, 0.0, 0.0
    for s in range(np.uint64(len(right))):
        base += right[s] * y[s]
    for s in range(np.uint64(len(y))):
        v = y[s] - expect(rows, s, y, 0.0)
        if s < len(left):
            v += left[s] * base
        out[s] = v
        product, square = product + other[s] * v, square + v * v
    return product, square


@compiled
def krylov(rows, x, left, right, y, work, tol):
    """Solve y - P y + left (right . y) = x in place by BiCGSTAB; whether the residual is below tol.

    left and right end with as many zeros as they are shorter than y [S], and work [6, S] is room. If left is 1
    everywhere, and right picks out one state, the solution differs from relative values by a constant only, and right .
    y is the mean per step.
    """
    S = len(y)
    r, shadow, p, v, t, q = work[0], work[1], work[2], work[3], work[4], work[5]
    used = 0
    for _ in range(RESTARTS):
        _apply(rows, left, right, y, t, y)
        used += 1
        top, rho = 0.0, 0.0
        for s in range(S):
            d = x[s] - t[s]
            r[s], shadow[s], p[s] = d, d, d
            top, rho = max(top, abs(d)), rho + d * d
        if top <= tol:
            return True
        start = top
        while used < PRODUCTS:
            along, _ = _apply(rows, left, right, p, v, shadow)
            alpha = rho / along
            for s in range(S):
                q[s] = r[s] - alpha * v[s]
            along, square = _apply(rows, left, right, q, t, q)
            used += 2
            omega = along / square
            top, new = 0.0, 0.0
            for s in range(S):
                y[s] += alpha * p[s] + omega * q[s]
                r[s] = q[s] - omega * t[s]
                top, new = max(top, abs(r[s])), new + shadow[s] * r[s]
            if not top > 0.5 * tol or not top < BROKEN * start:
                break
            beta = new / rho * alpha / omega
            rho = new
            for s in range(S):
                p[s] = r[s] + beta * (p[s] - omega * v[s])
        if not top < BROKEN * start or used >= PRODUCTS:
            return False
    return False
