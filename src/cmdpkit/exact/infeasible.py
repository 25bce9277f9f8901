"""When no policy meets all bounds: what can be had instead, and which bounds exclude each other."""

from __future__ import annotations

import numpy as np

from cmdpkit.errors import CmdpkitError, shown
from cmdpkit.exact.columns import Pool
from cmdpkit.exact.drawn import blend
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.evaluate import evaluate
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import FloatArray

CLASHING = 1e-9  # multipliers (they sum to 1) below this are rounding


class Infeasible(CmdpkitError):
    """No policy meets all bounds. Carries the best that can be had and the bounds that exclude each other."""

    __module__ = "cmdpkit"
    exit_code = 3

    def __init__(self, cmdp: CMDP, policy: Policy, best: FloatArray, conflict: tuple[str, ...]) -> None:
        self.cmdp = cmdp
        self.policy = policy  # misses its worst bound (relative to the signal's range) by the least
        self.utilities = evaluate(cmdp, policy).w  # [N], of that policy
        self.best = best  # [N], best of each alone
        self.conflict = conflict
        super().__init__(self._explanation())

    def _explanation(self) -> str:
        bounds = {c.name: c for c in self.cmdp.constraints}
        if len(self.conflict) == 1:
            c = bounds[self.conflict[0]]
            best = float(self.best[self.cmdp.constraint_index(c.name)])
            asked, reached = _told_apart(c.bound, best)
            name = shown(c.name)
            return f"infeasible: {name} {c.symbol} {asked} cannot be met, the best any policy reaches is {reached}"
        clash = " and ".join(str(bounds[name]) for name in self.conflict)
        reached = ", ".join(
            f"{shown(c.name)} {u:.6g}"
            for c, u in zip(self.cmdp.constraints, self.utilities, strict=True)
            if c.name in self.conflict
        )
        return f"infeasible: {clash} cannot hold together; the best compromise reaches {reached}"


def _told_apart(bound: float, best: float) -> tuple[str, str]:
    """Two different numbers with as many digits as it takes to see that."""
    for digits in (6, 9, 12, 15):
        if f"{bound:.{digits}g}" != f"{best:.{digits}g}":
            return f"{bound:.{digits}g}", f"{best:.{digits}g}"
    return repr(bound), repr(best)


def explain_infeasible(cmdp: CMDP, pool: Pool) -> Infeasible:
    """What can be had instead: the best compromise, the best of each alone, an irreducible set of clashing bounds."""
    _, weights, y = pool.reach(pool.scaled(cmdp.rho), np.ones(cmdp.N))
    used = np.flatnonzero(weights)
    choices = [pool.columns[j].choice for j in used]
    compromise = blend(cmdp, choices, weights[used] / weights[used].sum(), pool.columns[-1].choice)
    conflict = [n for n in range(cmdp.N) if y[n] > CLASHING]
    for n in list(conflict):  # a bound that is not needed for the clash is left out of it
        rest = [m for m in conflict if m != n]
        if rest and _clash(cmdp, pool, rest):
            conflict = rest
    names = tuple(cmdp.constraints[n].name for n in conflict)
    return Infeasible(cmdp, compromise.policy(cmdp), pool.ranges.best[1:] * cmdp.signs + 0.0, names)


def _clash(cmdp: CMDP, pool: Pool, subset: list[int]) -> bool:
    """Whether these constraints alone are infeasible."""
    part = cmdp.reformulated(g=cmdp.compact.g[subset], constraints=tuple(cmdp.constraints[n] for n in subset))
    return Pool(part, pool.ranges.of(subset)).thresholds(pool.scaled(cmdp.rho)[subset]) is None
