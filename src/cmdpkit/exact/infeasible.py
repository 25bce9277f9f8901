"""When no policy meets all bounds: the best compromise, and which bounds exclude each other."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cmdpkit.errors import CmdpkitError, shown
from cmdpkit.exact.columns import EXTRA_LOWERING, Pool
from cmdpkit.exact.sources import columns_of
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import SHOWN_AS_ZERO
from cmdpkit.model.transitions import FloatArray
from cmdpkit.operators.policies import evaluate

if TYPE_CHECKING:
    from cmdpkit.exact.tradeoff import Relaxation  # which itself needs `Infeasible` from here

MIN_CLASH_MULTIPLIER = 1e-9  # smaller multipliers, of a sum of 1, are due to rounding


class Infeasible(CmdpkitError):
    """No policy meets all bounds. The error carries the best compromise and the bounds that exclude each other."""

    __module__ = "cmdpkit"
    exit_code = 3

    def __init__(self, cmdp: CMDP, policy: Policy, best: FloatArray, conflict: tuple[str, ...]) -> None:
        self.cmdp = cmdp
        self.policy = policy  # the compromise: its largest shortfall, relative to the signal's range, is the smallest
        self.utilities = evaluate(cmdp, policy).w  # [N], totals of that policy
        self.best = best  # [N], the best total of each signal if the other bounds are ignored
        self.conflict = conflict  # names of constraints that cannot be met together; leaving out one makes it possible
        super().__init__(self._explanation())

    @cached_property
    def relax(self) -> Mapping[str, Relaxation | None]:
        """How far each bound alone must move while the others stay; None where no move of it alone is enough.

        >>> import cmdpkit as ck
        >>> bounds = [ck.at_least("left", 1.5, [[1.0, 0.0]]), ck.at_least("right", 1.0, [[0.0, 1.0]])]
        >>> cmdp = ck.CMDP([[[1.0], [1.0]]], r=[[0.0, 0.0]], constraints=bounds, horizon=2)
        >>> try:
        ...     ck.solve(cmdp)
        ... except ck.Infeasible as infeasible:
        ...     print({name: round(move.bound, 6) for name, move in infeasible.relax.items()})
        {'left': 1.0, 'right': 0.5}
        """
        from cmdpkit.exact.tradeoff import relaxations

        return relaxations(self.cmdp)

    def _explanation(self) -> str:
        bounds = {c.name: c for c in self.cmdp.constraints}
        if len(self.conflict) == 1:
            c = bounds[self.conflict[0]]
            best = float(self.best[self.cmdp.constraint_index(c.name)]) / c.scale
            best = best if abs(best) > SHOWN_AS_ZERO * abs(c.bound) else 0.0
            asked, reached = _told_apart(c.bound, best)
            name = shown(c.name)
            return (
                f"infeasible: {name} {c.symbol} {asked}{c.unit} cannot be met, the best any policy reaches is "
                f"{reached}{c.unit}"
            )
        clash = " and ".join(str(bounds[name]) for name in self.conflict)
        reached = ", ".join(
            f"{shown(c.name)} {u / c.scale:.6g}{c.unit}"
            for c, u in zip(self.cmdp.constraints, self.utilities, strict=True)
            if c.name in self.conflict
        )
        return f"infeasible: {clash} cannot hold together; the best compromise reaches {reached}"


def _told_apart(bound: float, best: float) -> tuple[str, str]:
    """Two different numbers as texts, with as many digits as it takes to see the difference."""
    for digits in (6, 9, 12, 15):
        if f"{bound:.{digits}g}" != f"{best:.{digits}g}":
            return f"{bound:.{digits}g}", f"{best:.{digits}g}"
    return repr(bound), repr(best)


def explain_infeasible(cmdp: CMDP, pool: Pool) -> Infeasible:
    """The error for a model whose bounds exclude each other, with an irreducible set of those that do."""
    rho = pool.scaled(cmdp.rho)
    t, weights, y = pool.reach(rho, np.ones(cmdp.N))
    compromise = pool.source.policy(pool.parts(weights), pool.columns[-1], rho + t - EXTRA_LOWERING).policy
    conflict = [n for n in range(cmdp.N) if y[n] > MIN_CLASH_MULTIPLIER]
    for n in list(conflict):  # a bound that is not needed for the clash is left out of it
        rest = [m for m in conflict if m != n]
        if rest:
            smaller = columns_of(subject_to(cmdp, rest), ranges=pool.source.ranges.of(rest))
            if smaller.thresholds(smaller.scaled(cmdp.rho[rest])) is None:
                conflict = rest
    names = tuple(cmdp.constraints[n].name for n in conflict)
    best = [pool.price(np.eye(1, 1 + cmdp.N, 1 + n)[0])[1].w[n] for n in range(cmdp.N)]
    own = np.array(best) * pool.units[1:] + pool.offsets[1:]
    return Infeasible(cmdp, compromise, own * cmdp.signs + 0.0, names)  # type: ignore[arg-type]


def subject_to(cmdp: CMDP, constraints: list[int], r: FloatArray | None = None) -> CMDP:
    """The model with some of its constraints only, and perhaps with another reward r [1 or H, S, A]."""
    kept = tuple(cmdp.constraints[n] for n in constraints)
    return cmdp.reformulated(r=r, g=cmdp.compact.g[constraints], constraints=kept)
