"""Where learners act: a `World` is a model simulated by compiled code, or any Gymnasium environment (`gym`).

A model without a horizon is one run of single steps, without episodes (`StepWorld`). Its curves and the bounds that
learners work with are per step. For a discounted model this means totals times 1 - discount, and the world begins again
with probability 1 - discount after each step (see `cmdpkit.simulate.meter`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import Any, Self

from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.solution import Infeasible, StationarySolution
from cmdpkit.exact.solver import Solution, solve_fully
from cmdpkit.exact.stationary import gap_table
from cmdpkit.io.loading import build
from cmdpkit.learners import Learner, Source, Spec
from cmdpkit.model.cmdp import CMDP, Scale
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.fits import check_fits
from cmdpkit.model.functions import FunctionModel
from cmdpkit.model.policy import Decision, Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.operators.chains import chain_of, long_run_shares
from cmdpkit.operators.policies import Values, evaluate, reach
from cmdpkit.simulate.meter import Meter, StepMeter, StepOptimum, Tally, Walk
from cmdpkit.simulate.random import Stream
from cmdpkit.simulate.simulator import Noise


class World:
    """Where a learner acts, and the facts about it that are known from outside."""

    cmdp: CMDP | None  # the model, where there is one
    name: str  # its name in records
    bounds: Mapping[str, float]  # the bounds that the user changed, by the name of their constraint
    noise: Noise  # how rewards and utilities of a model are drawn
    fingerprint: str  # a digest of everything that defines the world
    constraints: tuple[Constraint, ...]  # [N], the bounds
    scales: tuple[Scale, ...]  # [1 + N], of reward and utilities
    notes: tuple[str, ...]  # facts about the world that a reader of the results must know
    meter: Meter | StepMeter  # what measures the run
    assumed: str = ""  # what learners take for granted although nobody declared it
    criterion = "horizon"  # the kind of learner that fits; "average" and "discounted" ones learn in single steps
    growing: tuple[str, ...] = ()  # names of arrays of its state that have any length

    def fresh(self) -> World:
        """The same world with nothing counted yet."""
        raise NotImplementedError

    def begin(self) -> None:
        """Begin a run: set all counts to zero."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what the world holds, such as windows and files; nothing is played in it afterwards."""

    def spec(self, K: int) -> Spec:
        """The specification for the learner: sizes, thresholds, which actions exist, and whether signals are drawn."""
        raise NotImplementedError

    def play(self, learner: Learner, rng: Stream, n: int) -> None:
        """Let the learner play n more episodes."""
        raise NotImplementedError

    def tally(self) -> Tally:
        """Regret and violation so far."""
        return self.meter.tally()

    def policy(self, pi: FloatArray) -> Policy:
        """The policy for the user, with the user's names, of a learner's pi."""
        raise NotImplementedError

    def table(self, policy: Policy) -> FloatArray:
        """A learner's pi [H, S, A] of a policy with the user's names: the inverse of `policy`."""
        raise NotImplementedError

    def values(self, policy: Policy) -> tuple[Values, list[Decision]] | None:
        """Exact values of a policy and the stochastic decisions that it reaches; None without a model."""
        if self.cmdp is None:
            return None
        return evaluate(self.cmdp, policy), policy.stochastic_decisions(reach=reach(self.cmdp, policy))

    def sample(self, pi: FloatArray, rng: Stream, n: int) -> FloatArray:
        """Play n episodes, not counted, where there is no model: totals [1+N, n] in the user's units and sense."""
        raise NotImplementedError

    def change(self) -> tuple[int, str] | None:
        """The episode at which the world changed during the run, and what is told of it; None if none was found."""
        return None

    def warnings(self, policy: Policy) -> tuple[str, ...]:
        """What is wrong with a policy that was learned."""
        return ()

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that changes, for a checkpoint."""
        return self.meter.state()

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a checkpoint."""
        self.meter.restore(state)

    @cached_property
    def solution(self) -> Solution | None:
        """What regret is measured against; None without a model or, with a note, if the bounds cannot be met."""
        try:
            return None if self.cmdp is None else solve_fully(self.cmdp)
        except Infeasible as error:
            self.notes += (f"{error}; without an optimum there is no regret",)
            return None

    @property
    def optimum(self) -> float | None:
        """The best value under the bounds; None if it is not known."""
        return None if self.solution is None else self.solution.value


class ModelWorld(World):
    """A known model, simulated; regret is measured against its exact optimum, which is computed for the first run."""

    cmdp: CMDP

    def __init__(
        self, cmdp: CMDP, name: str = "model", noise: Noise = "none", bounds: Mapping[str, float] | None = None
    ) -> None:
        self.cmdp, self.name, self.noise = cmdp, name, noise
        self.bounds = dict(bounds or {})
        self.constraints = cmdp.constraints
        self.fingerprint = cmdp.fingerprint()
        self.scales = (cmdp.reward_scale, *cmdp.utility_scales)
        self.notes = () if noise == "none" else (f"rewards and utilities are drawn: {noise}",)
        self._lock = Lock()  # for runs that are begun side by side

    @cached_property
    def unplayed(self) -> Source:
        """The place where learners act, before the first run."""
        return Source.of(self.cmdp, self.optimum, self.noise)

    def fresh(self) -> Self:
        """The same world with nothing counted yet; the optimum and the simulator are shared, not computed again."""
        with self._lock:
            _ = self.unplayed
        return copy(self)

    def begin(self) -> None:
        """Begin a run: set all counts to zero."""
        self.source = self.unplayed._replace(meter=Meter.of(self.cmdp, self.optimum))
        self.meter = self.source.meter

    def spec(self, K: int) -> Spec:
        """The specification for the learner."""
        return replace(Spec.of(self.cmdp, K), noiseless=self.noise == "none" and self.cmdp.outcomes is None)

    def play(self, learner: Learner, rng: Stream, n: int) -> None:
        """Let the learner play n more episodes, usually in compiled code."""
        learner.run(self.source, rng, n)

    def policy(self, pi: FloatArray) -> Policy:
        """A policy in the model's names."""
        return Policy.of(self.cmdp, pi)

    def table(self, policy: Policy) -> FloatArray:
        """pi [H, S, A] of a policy that fits the model."""
        check_fits(self.cmdp, policy)
        return policy.pi


class StepWorld(ModelWorld):
    """A known model without a horizon: one run of single steps, without episodes."""

    def __init__(self, cmdp: CMDP, *about: Any) -> None:
        super().__init__(cmdp, *about)
        self.criterion = cmdp.criterion.kind
        if self.criterion == "discounted":
            self.notes += (
                f"regret and violation are per step, which is totals times {1 - (cmdp.criterion.discount or 0):g}; the "
                "run starts again with this probability after each step",
            )

    @cached_property
    def best(self) -> StepOptimum | None:
        """The optimum per step, and what every action loses against it."""
        if self.solution is None:
            return None
        assert isinstance(self.solution, StationarySolution)
        steps, lam = self.cmdp.criterion.steps_in_value or 1.0, self.solution.lam
        return StepOptimum(self.solution.value / steps, lam, gap_table(self.cmdp, lam))

    @cached_property
    def unplayed(self) -> Walk:  # type: ignore[override]
        """The place where learners act, before the first run."""
        return Walk.of(self.cmdp, self.best, self.noise)

    def begin(self) -> None:
        """Begin a run: set all counts to zero."""
        self.meter = StepMeter.of(self.cmdp, self.best)
        self.walk = self.unplayed._replace(meter=self.meter, place=self.unplayed.place.copy())

    def play(self, learner: Learner, rng: Stream, n: int) -> None:
        """Let the learner take n more steps, usually in compiled code."""
        learner.walk(self.walk, rng, n)

    def warnings(self, policy: Policy) -> tuple[str, ...]:
        """Several classes of states between which the policy never moves."""
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
        return {**super().state(), "place": self.walk.place.copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a checkpoint."""
        super().restore(state)
        self.walk.place[...] = state["place"]


def model_world(cmdp: CMDP, name: str, noise: Noise, bounds: Mapping[str, float] | None) -> ModelWorld:
    """The world of a model, with episodes if it has a horizon; ``bounds`` are those of its bounds that were changed."""
    kind = ModelWorld if cmdp.criterion.has_horizon else StepWorld
    return kind(cmdp, name, noise, bounds)


def world_of(
    env: Any,
    constraints: Iterable[Constraint] | None = None,
    noise: Noise = "none",
    bounds: Mapping[str, float] | None = None,
) -> World:
    """The world in which a learner acts, made from what the user gives.

    ``env`` is a model, its name or its file, a Gymnasium environment, the name of a function that makes one of these
    ("package.module:function"), a `GymRecipe`, or a world. The other parameters are those of `cmdpkit.learn`.
    """
    made = build(env) if isinstance(env, str) else env
    changed = dict(bounds or {})
    if constraints is not None and isinstance(made, CMDP | FunctionModel):
        raise CmdpkitError("a model has its own constraints; change its bounds with bounds={...} instead")
    if isinstance(made, CMDP):
        return model_world(made.with_bounds(**changed), env if isinstance(env, str) else "model", noise, changed)
    if noise != "none":
        raise CmdpkitError(f"noise is {noise!r}, but only a CMDP can be simulated with noise")
    if bounds and not isinstance(made, FunctionModel):
        raise CmdpkitError("bounds are for models; give an environment's bounds in its constraints")
    from cmdpkit.running.gym.world import GymRecipe, GymWorld, function_world

    if isinstance(env, str):
        limits = None if constraints is None else tuple(constraints)
        return GymRecipe(env, constraints=limits, bounds=tuple(changed.items())).make(made)
    if isinstance(env, FunctionModel):
        return function_world(env.with_bounds(**changed))
    if not isinstance(env, World | GymRecipe):
        return GymWorld(env, constraints)
    if constraints is not None:
        raise CmdpkitError("a world or a recipe has constraints of its own; leave constraints out")
    return env.make() if isinstance(env, GymRecipe) else env
