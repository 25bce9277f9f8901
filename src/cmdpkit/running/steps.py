"""A model without a horizon as a world: one run of single steps, without episodes.

Curves and the bounds that learners work with are per step. For a discounted model this means totals times 1 - discount,
and the world begins anew with probability 1 - discount after each step (see `cmdpkit.simulate.steps`).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

from numpy.typing import NDArray

from cmdpkit.exact.solution import StationarySolution
from cmdpkit.exact.solver import Solution
from cmdpkit.exact.stationary.gaps import gap_table
from cmdpkit.learners import Learner, Spec
from cmdpkit.model.chains import chain_of, long_run_shares
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import Policy
from cmdpkit.running.worlds import ModelWorld
from cmdpkit.simulate.meter import Tally
from cmdpkit.simulate.random import Stream
from cmdpkit.simulate.simulator import Noise
from cmdpkit.simulate.steps import Optimum, StepMeter, Walk


class StepWorld(ModelWorld):
    """A known model without a horizon, simulated step by step; regret is measured against its exact optimum."""

    def __init__(
        self, cmdp: CMDP, name: str = "model", noise: Noise = "none", bounds: Mapping[str, float] | None = None
    ) -> None:
        Spec.of(cmdp, 1)  # refuses criteria that nobody can learn
        self.criterion = cmdp.criterion.kind
        self.best: Optimum | None = None  # per step
        super().__init__(cmdp, name, noise, bounds)
        if self.criterion == "discounted":
            self.notes += (
                f"regret and violation are per step, which is totals times {1 - (cmdp.criterion.discount or 0):g}; the "
                "run begins anew with this probability after each step",
            )

    def _measure_against(self, best: Solution) -> None:
        assert isinstance(best, StationarySolution)
        self.optimum = best.value
        steps = self.cmdp.criterion.steps or 1.0
        self.best = Optimum(best.value / steps, best.lam, gap_table(self.cmdp, best.lam))

    def _enter(self) -> None:
        self.walk = Walk.of(self.cmdp, self.best, self.noise)

    def fresh(self) -> StepWorld:
        """The same world with nothing counted yet; the optimum and the simulator are shared, not computed again."""
        new = copy(self)
        meter = StepMeter.of(self.cmdp, self.best)
        new.walk = self.walk._replace(meter=meter, place=self.walk.place * 0 - 1)
        return new

    def begin(self) -> None:
        """Begin a run: set all counts to zero."""
        self.walk = self.fresh().walk

    def play(self, learner: Learner, rng: Stream, n: int) -> None:
        """Let the learner take n more steps, usually in compiled code."""
        learner.walk(self.walk, rng, n)

    def tally(self) -> Tally:
        """Regret and violation so far."""
        return self.walk.meter.tally()

    def warnings(self, policy: Policy) -> tuple[str, ...]:
        """What is wrong with a policy that was learned: several classes of states between which it never moves."""
        if self.criterion != "average":
            return ()
        classes = len(long_run_shares(chain_of(self.cmdp, policy.pi[0]), self.cmdp.mu)[1])
        if classes == 1:
            return ()
        return (
            f"from its start the policy can end in {classes} classes of states that it never leaves again, and its "
            "long-run averages differ between them; the values given are expectations",
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """The meter's sums, and where the run has come to."""
        return {**self.walk.meter.state(), "place": self.walk.place.copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a checkpoint."""
        self.walk.meter.restore(state)
        self.walk.place[...] = state["place"]
