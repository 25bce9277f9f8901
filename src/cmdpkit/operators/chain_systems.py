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
little memory and time. A small one that is solved again and again is a full matrix (`eliminate_whole`).

*Sweeps* multiply by the transition matrix until the result settles. They take less memory than LU factors, which fill
up on random graphs, and one sweep is one pass over the transitions.

*A Krylov method with iterative refinement* serves chains that are too large for elimination and too slow for sweeps. A
chain that is left once in a million steps has values of a million plus small differences between states. Products with
I - P round the million, and the differences are lost. Here a solution is kept as a constant and a rest, the constant
takes no part in products, and each round of the Krylov method starts from the residual of both. Where values are wanted
to a given residual only, as while a policy is still being improved, the compiled `krylov` is enough.
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
from cmdpkit.operators.rows import expect

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


@compiled
def eliminate_whole(P, loss, x, time, h, mean, relative):
    """Values of a chain P [S, S] that loses loss [S], by elimination without subtraction; all but h are overwritten.

    Signals x [S, K] become h [S, K] with h = x - mean + P h. If `relative`, mean [K] is such that h is 0 in state 0,
    which every state must be able to reach or lose its mass on the way; otherwise mean is 0. `time` [S] is room. The
    diagonal of P is not read: rows of P and loss sum to 1 by definition (Grassmann, Taksar, Heyman 1985).

    Returns how long it takes to come back to state 0, and the state that is visited most in between. With a state 0
    that is seldom visited, x and mean times time are large and nearly equal, so another one is the better choice.
    """
    S, K = x.shape
    time[:] = 1.0
    for n in range(S - 1, 0, -1):
        out = loss[n]
        for j in range(n):
            out += P[n, j]
        for i in range(n):
            if P[i, n] > 0.0:
                share = P[i, n] / out
                for j in range(n):
                    if P[n, j] > 0.0:
                        P[i, j] += share * P[n, j]
                loss[i] += share * loss[n]
                time[i] += share * time[n]
                for k in range(K):
                    x[i, k] += share * x[n, k]
    for k in range(K):
        mean[k] = x[0, k] / time[0] if relative else 0.0
        h[0, k] = 0.0 if relative else x[0, k] / loss[0]
    for n in range(1, S):
        out = loss[n]
        for j in range(n):
            out += P[n, j]
        for k in range(K):
            total = x[n, k] - mean[k] * time[n]
            for j in range(n):
                total += P[n, j] * h[j, k]
            h[n, k] = total / out
    back, most = time[0], 0
    time[0] = 1.0
    for n in range(1, S):
        out, into = loss[n], 0.0
        for j in range(n):
            out += P[n, j]
            into += time[j] * P[j, n]
        time[n] = into / out
        if time[n] > time[most]:
            most = n
    return back, most


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
            f"equations still miss by {best[0]:.1g} (relative). Merge states that are rarely left, or use a "
            "smaller discount"
        )
    return best[1], best[2]


RESTARTS = 4  # of the Krylov method, each with the true residual
BROKEN = 1e6  # growth of the residual at which a Krylov method has failed


@compiled(inline=True)
def _apply(rows, ref, y, out, other):
    """out = y - P y, plus y[ref] in every state if ref is not negative; the sums of out * other and of out * out."""
    base, product, square = y[ref] if ref >= 0 else 0.0, 0.0, 0.0
    for s in range(np.uint64(len(y))):
        v = y[s] - expect(rows, s, y, 0.0) + base
        out[s] = v
        product, square = product + other[s] * v, square + v * v
    return product, square


@compiled
def krylov(rows, x, ref, y, work, tol, most):
    """Solve y - P y (+ y[ref]) = x in place by BiCGSTAB; whether the residual is below tol. work [6, S] is room.

    With y[ref], the solution differs from relative values by a constant only, and y[ref] is the mean per step.
    """
    S = len(y)
    r, shadow, p, v, t, q = work[0], work[1], work[2], work[3], work[4], work[5]
    used = 0
    for _ in range(RESTARTS):
        _apply(rows, ref, y, t, y)
        used += 1
        top, rho = 0.0, 0.0
        for s in range(S):
            d = x[s] - t[s]
            r[s], shadow[s], p[s] = d, d, d
            top, rho = max(top, abs(d)), rho + d * d
        if top <= tol:
            return True
        start = top
        while used < most:
            along, _ = _apply(rows, ref, p, v, shadow)
            alpha = rho / along
            for s in range(S):
                q[s] = r[s] - alpha * v[s]
            along, square = _apply(rows, ref, q, t, q)
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
        if not top < BROKEN * start or used >= most:
            return False
    return False


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
