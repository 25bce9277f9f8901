"""Chains too large for elimination and too slow for sweeps: a Krylov method with iterative refinement.

A chain that is left once in a million steps has values of a million plus small differences between states. Products
with I - P round the million, and the differences are lost. Here a solution is kept as a constant and a rest, the
constant takes no part in products, and each round of the Krylov method starts from the residual of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, bicgstab, gmres

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.transitions import FloatArray

ROUNDS = 30  # rounds of a Krylov method, each of which starts from an accurate residual
STEPS = 400  # products with the chain in one round
REDUCTION = 1e-8  # of the residual in one round
REFINED = 1e-15  # residual, relative to the terms it consists of, at which only rounding is left
USABLE = 1e-11  # the largest such residual that counts as a solution


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
