"""Three ways to solve the linear systems of Markov chains; `chains` chooses among them.

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
little memory and time.

*Sweeps* multiply by the transition matrix until the result settles. They take less memory than LU factors, which fill
up on random graphs, and one sweep is one pass over the transitions.

*A Krylov method with iterative refinement* serves chains that are too large for elimination and too slow for sweeps. A
chain that is left once in a million steps has values of a million plus small differences between states. Products with
I - P round the million, and the differences are lost. Here a solution is kept as a constant and a rest, the constant
takes no part in products, and each round of the Krylov method starts from the residual of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import LinearOperator, bicgstab, gmres

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.compiled import compiled, readonly
from cmdpkit.model.tolerances import NEARLY_SETTLED, REFINED, SETTLED, USABLE
from cmdpkit.model.transitions import FloatArray, IntArray

FULL = 128  # number of states up to which the order does not matter: the whole matrix is the band


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
    """The systems of one chain that loses mass.

    P [S, S] is sparse, and its diagonal is not read. `exits` [S] is the probability of leaving from each state, and
    from every state some exit can be reached.
    """

    def __init__(self, P: Any, exits: FloatArray) -> None:
        S = P.shape[0]
        self.order, width = band_order(P)
        place = np.empty(S, dtype=np.int64)
        place[self.order] = np.arange(S)
        self.band = np.zeros((S, 2 * width + 1))  # [i, j - i + width]: probability of going from place i to place j
        entries = P.tocoo()
        rows, columns = place[entries.coords[0]], place[entries.coords[1]]
        np.add.at(self.band, (rows, columns - rows + width), entries.data)
        leaving = np.array(exits, dtype=float)[self.order]
        self.diagonal = np.empty(S)
        _eliminate(self.band, leaving, self.diagonal)

    def values(self, x: FloatArray) -> FloatArray:
        """y [S, K] with y = x + P y for signals x [S, K] or [S]."""
        y = np.ascontiguousarray(x[self.order], dtype=float).reshape(len(x), int(np.prod(x.shape[1:])))
        _values(self.band, self.diagonal, y)
        return self._back(y, x)

    def flow(self, inflow: FloatArray) -> FloatArray:
        """d [S, K] with d = inflow + P^T d for inflows [S, K] or [S]."""
        d = np.ascontiguousarray(inflow[self.order], dtype=float).reshape(len(inflow), int(np.prod(inflow.shape[1:])))
        _flow(self.band, self.diagonal, d)
        return self._back(d, inflow)

    def _back(self, found: FloatArray, like: FloatArray) -> FloatArray:
        whole = np.empty_like(found)
        whole[self.order] = found
        return whole.reshape(like.shape)


@compiled
def _eliminate(band, leaving, diagonal):
    """Eliminate state after state; entries left of the middle become factors, those right of it the chain that skips.

    The middle of a row collects returns of the state to itself, which nobody reads.
    """
    S, width = len(band), band.shape[1] // 2
    for k in range(S):
        last = min(S, k + width + 1)
        total = leaving[k]
        for j in range(k + 1, last):
            total += band[k, j - k + width]
        diagonal[k] = total
        for i in range(k + 1, last):
            factor = band[i, k - i + width]
            if factor == 0.0:
                continue
            factor /= total
            band[i, k - i + width] = factor
            leaving[i] += factor * leaving[k]
            shift = k - i
            for j in range(width + 1, last - k + width):
                band[i, j + shift] += factor * band[k, j]


@compiled
def _values(band, diagonal, y):
    """Solve for values in place, where y [S, K] holds the signals at first."""
    S, width = len(y), band.shape[1] // 2
    for i in range(S):
        for k in range(max(0, i - width), i):
            _add(y, i, band[i, k - i + width], k)
    for k in range(S - 1, -1, -1):
        for j in range(k + 1, min(S, k + width + 1)):
            _add(y, k, band[k, j - k + width], j)
        for m in range(y.shape[1]):
            y[k, m] /= diagonal[k]


@compiled
def _flow(band, diagonal, d):
    """Solve for visits in place, where d [S, K] holds the inflow at first."""
    S, width = len(d), band.shape[1] // 2
    for k in range(S):
        for m in range(d.shape[1]):
            d[k, m] /= diagonal[k]
        for j in range(k + 1, min(S, k + width + 1)):
            _add(d, j, band[k, j - k + width], k)
    for i in range(S - 1, -1, -1):
        for k in range(max(0, i - width), i):
            _add(d, k, band[i, k - i + width], i)


@compiled(inline=True)
def _add(y, i, factor, k):
    """Add row k of y [S, K], times a factor, to row i."""
    if factor != 0.0:
        for m in range(y.shape[1]):
            y[i, m] += factor * y[k, m]


# -- Krylov method ----------------------------------------------------------------------------------------------------

ROUNDS = 30  # rounds of a Krylov method, each of which starts from an accurate residual
STEPS = 400  # products with the chain in one round
REDUCTION = 1e-8  # of the residual in one round


def refined_values(between: Any, exits: FloatArray, x: FloatArray, pivot: int | None) -> tuple[float, FloatArray]:
    """Constant c and rest h [S] of the values of a signal x [S].

    `between` [S, S] are transitions between different states, which may lose mass to `exits` [S]. Without a pivot,
    c + h = x + P (c + h). With one, h = x - c + P h and h is zero there.
    """
    leaving = exits + np.asarray(between.sum(axis=1)).reshape(-1)
    weight = exits if pivot is None else np.ones(len(x))  # the constant's part of the left side

    def product(y: FloatArray) -> FloatArray:
        full: FloatArray = leaving * y - between @ y
        return full if pivot is None else full + (1 - exits) * y[pivot]

    def residual(c: float, h: FloatArray) -> tuple[FloatArray, float]:
        size = np.abs(x).max() + np.abs(c * weight).max() + 2 * (leaving * np.abs(h)).max()
        return x - c * weight - (leaving * h - between @ h), float(size)

    def split(y: FloatArray) -> float:
        return float(y.mean() if pivot is None else y[pivot])

    return _refine(product, residual, split, leaving)


def refined_flow(between: Any, exits: FloatArray, inflow: FloatArray, mass: float | None) -> FloatArray:
    """d [S] with d = inflow + P^T d; with a given total `mass` where nothing is lost."""
    leaving = exits + np.asarray(between.sum(axis=1)).reshape(-1)
    onward = sparse.csr_array(between.T)
    source = inflow.copy()
    if mass is not None:
        source[0] += mass

    def product(d: FloatArray) -> FloatArray:
        full: FloatArray = leaving * d - onward @ d
        if mass is not None:
            full[0] += d.sum()
        return full

    def residual(_: float, d: FloatArray) -> tuple[FloatArray, float]:
        return source - product(d), float(np.abs(source).max() + 2 * (leaving * np.abs(d)).max())

    d = _refine(product, residual, lambda _: 0.0, leaving)[1]
    if mass is None and (inflow >= 0).all():  # what comes in goes out: the slowest part of the error has this size
        d *= inflow.sum() / float(exits @ d)
    return d


def _refine(
    product: Callable[[FloatArray], FloatArray],
    residual: Callable[[float, FloatArray], tuple[FloatArray, float]],
    split: Callable[[FloatArray], float],
    leaving: FloatArray,
) -> tuple[float, FloatArray]:
    """Constant and rest whose residual is down to rounding; CmdpkitError if that is out of reach."""
    S = len(leaving)
    system = LinearOperator((S, S), matvec=product, dtype=float)
    scaled = LinearOperator((S, S), matvec=lambda y: y / leaving, dtype=float)
    c, rest = 0.0, np.zeros(S)
    best: tuple[float, float, FloatArray] = (np.inf, c, rest)
    methods = [bicgstab, gmres]
    for _ in range(ROUNDS):
        r, size = residual(c, rest)
        left = float(np.abs(r).max()) / size if size else 0.0
        if not left < 0.5 * best[0]:  # no better than before: rounding, or a breakdown of the method
            if best[0] <= USABLE or len(methods) == 1:
                break
            methods.pop(0)
            c, rest = best[1:]
            r, size = residual(c, rest)
        else:
            best = (left, c, rest)
            if left <= REFINED:
                break
        more = {"restart": 40, "maxiter": STEPS // 40} if methods[0] is gmres else {"maxiter": STEPS}
        y, _info = methods[0](system, r, rtol=REDUCTION, M=scaled, **more)
        if not np.isfinite(y).all():
            y = np.zeros(S)
        shift = split(y)
        c, rest = c + shift, rest + (y - shift)
    if best[0] > USABLE:
        raise CmdpkitError(
            f"this chain of {S:,} states is left too rarely to be evaluated: after {ROUNDS} rounds of iteration its "
            f"equations still miss by {best[0]:.1g} (relative). Merge states that are hardly ever left, or use a "
            "smaller discount"
        )
    return best[1], best[2]


# -- sweeps -----------------------------------------------------------------------------------------------------------

DAMPING = 0.9  # share of a new sweep where gamma = 1: periodic chains do not converge without damping
STUCK = 20  # sweeps without a smaller change after which it is rounding that is left,


class Sparse(NamedTuple):
    """The rows of a sparse matrix as compiled code sees them, always with the same types."""

    indptr: Any  # [rows + 1]
    columns: Any  # [nonzeros]
    data: Any  # [nonzeros]


def sparse_rows(P: Any) -> Sparse:
    """The rows of a SciPy matrix in CSR form."""
    return Sparse(
        readonly(P.indptr.astype(np.int64, copy=False)),
        readonly(P.indices.astype(np.int32, copy=False)),
        readonly(P.data.astype(np.float64, copy=False)),
    )


@compiled
def settle(P, x, gamma, tau, flows, relative, pivot, most, y, change):
    """Repeat y <- y + tau (x + gamma P y - y), in place, until it settles; whether it did within `most` sweeps.

    With `flows` it is P^T that multiplies. With `relative`, y is meant up to a constant, and is 0 at `pivot`.
    `change` [S] is room to work in.
    """
    S = len(y)
    largest = 0.0
    for s in range(S):
        largest = max(largest, abs(x[s]))
    smallest, waited = np.inf, 0
    for _ in range(most):
        if flows:
            _push(P, y, change)
        else:
            _pull(P, y, change)
        size, scale = _finish_change(x, gamma, relative, y, change)
        settled = size <= SETTLED * (scale + largest)
        if size < 0.9 * smallest:
            waited = 0
        else:
            waited += 1
        smallest = min(smallest, size)
        if not settled and waited > STUCK and size < NEARLY_SETTLED * scale:  # rounding lets it come no nearer
            return True
        if settled and relative:
            return True
        step = 1.0 if settled else tau
        base = y[pivot] + step * change[pivot] if relative else 0.0
        for s in range(S):
            y[s] = y[s] + step * change[s] - base
        if settled:
            return True
    return False


@compiled(inline=True)
def _pull(P, y, out):
    """out [S] = P y."""
    for s in range(len(y)):
        total = 0.0
        for e in range(P.indptr[s], P.indptr[s + 1]):
            total += P.data[e] * y[P.columns[e]]
        out[s] = total


@compiled(inline=True)
def _push(P, y, out):
    """out [S] = P^T y."""
    out[:] = 0.0
    for s in range(len(y)):
        for e in range(P.indptr[s], P.indptr[s + 1]):
            out[P.columns[e]] += P.data[e] * y[s]


@compiled(inline=True)
def _finish_change(x, gamma, relative, y, change):
    """Turn the product in `change` into x + gamma * product - y; how large that is, and how large y is."""
    low, high, size, largest, scale = np.inf, -np.inf, 0.0, 0.0, 0.0
    for s in range(len(y)):
        change[s] = x[s] + gamma * change[s] - y[s]
        low, high = min(low, change[s]), max(high, change[s])
        size += abs(change[s])
        largest = max(largest, abs(y[s]))
        scale += abs(y[s])
    return (high - low, largest) if relative else (size, scale)
