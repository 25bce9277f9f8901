"""The best stationary policy of an estimated model, by the exact solver, also where its bounds cannot be met."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.continuing import Model
from cmdpkit.exact.columns import Columns
from cmdpkit.exact.stationary.problem import whole_policy
from cmdpkit.exact.stationary.sources import Stationary
from cmdpkit.model.transitions import FloatArray


class Planned(NamedTuple):
    """A policy, and whether it meets the bounds in the model that it was planned in."""

    pi: FloatArray  # [S, A]
    feasible: bool  # whether it meets the bounds there


def planned(model: Model, rho: FloatArray) -> Planned:
    """The best policy under bounds rho [N] per step, or the one that misses the worst bound by least."""
    return ContinuingPlanner(model).policy(rho)


class ContinuingPlanner:
    """One model that is solved for several bounds; what was found for one serves the others."""

    def __init__(self, model: Model) -> None:
        self.source = Stationary(model)
        self.pool = Columns(self.source)
        self.per_step = 1.0 - model.discount if model.kind == "discounted" else 1.0

    def reach(self, rho: FloatArray) -> float:
        """By how much all bounds rho can be exceeded at once, negative if they cannot be met together."""
        return self.pool.slack(rho / self.per_step) * self.per_step

    def policy(self, rho: FloatArray, relaxed: tuple[float, ...] = (1e-9, 1e-4, 1e-2, 0.2)) -> Planned:
        """The best policy under bounds rho [N] per step, or the one that misses the worst bound by least.

        If no policy meets rho, the bounds are lowered to what can be reached, less each number of `relaxed` in turn,
        in unit scale, until a policy is found; the first one nearly always suffices.
        """
        pi = self._solved(rho)
        if pi is not None:
            return Planned(pi, True)
        best = rho + self.reach(rho)
        for room in relaxed:
            pi = self._solved(best - room)
            if pi is not None:
                return Planned(pi, False)
        raise CmdpkitError("not solved: no policy was found in the estimated model, even with relaxed bounds")

    def _solved(self, rho: FloatArray) -> FloatArray | None:
        """The optimum, if the bounds can be met; of a mixture, the part with the largest weight."""
        best = self.pool.optimum(self.pool.scaled(rho / self.per_step))
        if best is None:
            return None
        plans = self.source.plans(self.pool.parts(best.weights), best.proof, best.rho)
        return whole_policy(self.source.problem, plans.policies[int(np.argmax(plans.weights))])
