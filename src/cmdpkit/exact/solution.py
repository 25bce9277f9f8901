"""What `solve` returns: a policy with its values, prices and a proof of how good it is.

If no policy meets all bounds it raises `Infeasible`: the best compromise, and which bounds conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError, shown
from cmdpkit.exact.columns import EXTRA_LOWERING, Pool
from cmdpkit.exact.sources import columns_of
from cmdpkit.model import showing
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import Decision, Mixture, Policy
from cmdpkit.model.showing import Shown
from cmdpkit.model.tolerances import NEGLIGIBLE, SHOWN_AS_ZERO
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.model.validate import Name
from cmdpkit.operators.chains import relative_values
from cmdpkit.operators.policies import decompose, evaluate, occupancy, reach

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cmdpkit.exact.diagnosis import Relaxation  # which itself needs `Infeasible` from here

MIN_CLASH_MULTIPLIER = 1e-9  # smaller multipliers, of a sum of 1, are due to rounding


@dataclass(frozen=True)
class Solution(Shown):
    """The optimum of a constrained MDP, in the user's units and sense."""

    cmdp: CMDP  # the model that was solved
    policy: Policy  # an optimal policy with at most N stochastic decisions
    value: float  # expected total reward of the policy
    utilities: FloatArray  # [N], expected totals of the constraints' signals
    shadow_prices: FloatArray  # [N], value gained per unit by which a bound is relaxed, in the unit it was given in
    gap: float  # proved, with rounding included: no feasible policy has a value above value + gap
    tolerance: FloatArray  # [N], no total misses its bound by more than this
    binds: BoolArray  # [N], whether the bound has a price above 0
    method: str  # "columns" or "lp", whichever found the policy
    seconds: float  # how long solving took
    # "optimal" (to a millionth), as close as was asked for, as close as double precision allows, or ended by Ctrl-C
    ended: Literal["optimal", "gap", "precision", "interrupted"] = "optimal"

    @property
    def complete(self) -> bool:
        """False if Ctrl-C ended the search: then policy and gap are the best that had been found."""
        return self.ended != "interrupted"

    @property
    def lam(self) -> FloatArray:
        """[N], value gained per unit of a total: the prices of bounds per step, divided by the number of steps."""
        return self.shadow_prices / self.cmdp.bound_scales

    @cached_property
    def occupancy(self) -> FloatArray:
        """The occupancy q[h, s, a] of the policy: the probability of being in s at step h and taking a."""
        return occupancy(self.cmdp, self.policy)

    @cached_property
    def reach(self) -> FloatArray:
        """The probability [H, S] of being in a state at a step: the occupancy, summed over the actions."""
        return reach(self.cmdp, self.policy)

    @cached_property
    def used(self) -> int:
        """How many triples of step, state and action the policy ever uses."""
        if not isinstance(self.policy, Policy):  # a mixture, which only a stationary solution can be
            return int((self.occupancy > NEGLIGIBLE).sum())
        where, p = self.policy.rows
        drawn = self.reach[where[:, 0], where[:, 1]]
        extra = (drawn[:, None] * p > NEGLIGIBLE).sum() - (drawn > NEGLIGIBLE).sum()
        return int((self.reach > NEGLIGIBLE).sum() + extra)

    @cached_property
    def mixture(self) -> Mixture:
        """At most N + 1 deterministic policies with the same occupancy; for averages the policy or mixture itself."""
        if isinstance(self.policy, Mixture):  # which only a stationary solution can have
            return self.policy
        average = self.cmdp.criterion.kind == "average"
        return Mixture((self.policy,), np.ones(1)) if average else decompose(self.cmdp, self.policy)

    def plot(self, **options: Any) -> Figure:
        """A matplotlib figure of the policy: boards where the model has a grid, otherwise a map of states and steps.

        ``size`` is the width in inches, or width and height, and ``steps`` are those of boards.
        """
        return showing.draw(self, **options)

    def stochastic_decisions(self) -> list[Decision]:
        """Where the policy draws its action at random: at most N of them, and none for a mixture."""
        return [] if isinstance(self.policy, Mixture) else self.policy.stochastic_decisions(reach=self.reach)


class OneClass(NamedTuple):
    """The cost of a policy with one recurrent class (long-run averages, ``solve(..., one_class=True)``)."""

    optimum: float  # value of the best of all policies
    limit: float  # proved: no policy with one recurrent class has a larger value
    lost: float  # how much the policy is below the optimum
    share: float  # the same as a share of the optimum
    draws: int  # states of the class in which the policy randomises
    stay: float | None  # mean number of steps in a class of the optimum before it moves on; None if it does not move


@dataclass(frozen=True)
class StationarySolution(Solution):
    """The optimum without a horizon; values are discounted totals, averages or totals, in the user's units."""

    policy: Policy | Mixture  # type: ignore[assignment]  # a mixture only where no single policy attains the optimum
    attained: bool = True  # False if stationary policies only come near the optimum
    notes: tuple[str, ...] = ()  # what a user should know about the answer
    one_class: OneClass | None = None  # the cost of one recurrent class, if that was asked for

    @property
    def start(self) -> dict[Name, float]:
        """The start that the optimum is for: states and their probabilities."""
        mu = self.cmdp.mu
        return {self.cmdp.states[int(s)]: float(mu[s]) for s in np.flatnonzero(mu)}

    @property
    def value_per_step(self) -> float | None:
        """The value per step: times 1 - discount, or the average itself; None for totals."""
        steps = self.cmdp.criterion.steps_in_value
        return None if steps is None else self.value / steps

    @property
    def utilities_per_step(self) -> FloatArray | None:
        """The utilities per step, [N]; None for totals."""
        steps = self.cmdp.criterion.steps_in_value
        return None if steps is None else self.utilities / steps

    @cached_property
    def bias(self) -> FloatArray:
        """Relative values [1 + N, S] of reward and utilities, zero at one recurrent state; for totals, the totals."""
        if isinstance(self.policy, Mixture):
            raise CmdpkitError("a mixture of policies has no relative values of its own; ask for those of a part")
        c, pi = self.cmdp.compact, self.policy.table(0)
        x = np.array([(pi * signal).sum(axis=1) for signal in (*c.r, *c.g[:, 0])]).T
        return relative_values(self.cmdp, pi, x)[1].T


class Infeasible(CmdpkitError):
    """No policy meets all bounds. The error carries the best compromise and the bounds that conflict."""

    __module__ = "cmdpkit"
    exit_code = 3

    def __init__(
        self, cmdp: Any, policy: Any, best: FloatArray, conflict: tuple[str, ...], utilities: FloatArray | None = None
    ) -> None:
        self.cmdp = cmdp  # the model, with arrays or by functions
        self.policy = policy  # the compromise: its largest shortfall, relative to the signal's range, is the smallest
        # [N], totals of that policy
        self.utilities: FloatArray = evaluate(cmdp, policy).w if utilities is None else utilities
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
        from cmdpkit.exact.diagnosis import relaxations

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
    """The error for a model whose bounds conflict, with an irreducible set of those that do."""
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
    return Infeasible(cmdp, compromise, own * cmdp.signs + 0.0, names)


def subject_to(cmdp: CMDP, constraints: list[int], r: FloatArray | None = None) -> CMDP:
    """The model with some of its constraints only, and perhaps with another reward r [1 or H, S, A]."""
    kept = tuple(cmdp.constraints[n] for n in constraints)
    return cmdp.reformulated(r=r, g=cmdp.compact.g[constraints], constraints=kept)
