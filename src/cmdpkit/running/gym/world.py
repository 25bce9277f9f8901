"""Any Gymnasium environment with `Discrete` spaces as a world, and `GymRecipe`, by which any process makes it again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.estimate.changes import START, change_of, compared_groups, told
from cmdpkit.io.loading import build, builder_of
from cmdpkit.learners import Learner, Spec
from cmdpkit.learners.spec import is_stationary
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint, at_least, listed
from cmdpkit.model.fits import check_fits
from cmdpkit.model.functions import FunctionModel
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import BoolArray, FloatArray, Kernel
from cmdpkit.model.validate import action_mask, index_of
from cmdpkit.records.code import code_digest
from cmdpkit.running.gym.env import CMDPEnv, FunctionEnv, Numbers, Range, WithCost, cost_scales, reward_scale, steps
from cmdpkit.running.gym.episodes import EPISODES_PER_SEED, ByStep, FixedPolicy, GymPlayer, GymProblem
from cmdpkit.running.gym.periods import PeriodRows, Periods
from cmdpkit.running.worlds import World
from cmdpkit.simulate.meter import EPISODES, REALISED, Meter
from cmdpkit.simulate.random import Stream

ASSUMED = "nothing depends on the step (GymWorld(..., stationary=False) otherwise)"


class GymWorld(World):
    """An environment to learn in: episodes of H steps, with constraints on ``info["cost"]``.

    Parameters
    ----------
    env : environment with Discrete observation and action spaces
    constraints : `at_most` / `at_least` bounds, in the order of ``info["cost"]`` (a number, or an array [N])
    horizon : H, by default the environment's time limit
    reward_range : smallest and largest reward of a step, by default ``env.metadata["reward_range"]``
    cost_ranges : smallest and largest value of each cost, by default ``env.metadata["cost_ranges"]``, or else 0 .. 1
    allowed : bool [S, A] or [H, S, A], the actions that may be tried, by default all
    model : the environment's exact model; regret is then measured against its optimum
    stationary : whether nothing depends on the step, so that learners may share what they count between the steps; by
        default that of the model; without a model it is assumed, and notes and certificate mention it

    An episode that ends early continues in an extra state, without reward and cost, up to H steps. An environment's
    ``info["action_mask"]`` is not read; `allowed` fixes beforehand which actions may be tried. Environments made by
    `to_gym` and `make_env` have a model, with constraints and actions, which is used by default.

    >>> import cmdpkit as ck
    >>> from cmdpkit.running.gym import make_env
    >>> world = GymWorld(make_env("gym/frozen-lake"), [ck.at_most("falls", 0.02)])
    >>> world.spec(K=1000).S, round(world.optimum, 4)
    (17, 0.0877)
    """

    meter: Meter
    growing = tuple(f"periods/{name}" for name in PeriodRows._fields)

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        constraints: Iterable[Constraint] | None = None,
        *,
        horizon: int | None = None,
        reward_range: tuple[float, float] | None = None,
        cost_ranges: Iterable[tuple[float, float]] | None = None,
        allowed: Any = None,
        model: CMDP | None = None,
        stationary: bool | None = None,
    ) -> None:
        if not isinstance(env, gymnasium.Env):
            raise CmdpkitError(f"env is a {type(env).__name__}, expected a gymnasium.Env, a CMDP or its name")
        states, actions, H = Numbers.of(env, "observation"), Numbers.of(env, "action"), steps(env, horizon)
        self.notes: tuple[str, ...] = ()
        self.cmdp = self._matched(env, model, constraints, (H, states.size, actions.size))
        if constraints is None and self.cmdp is None:
            raise CmdpkitError('constraints are missing: which bounds hold for info["cost"]? Give [] for none')
        self.constraints = self.cmdp.constraints if self.cmdp is not None else _over(H, listed(constraints))
        if len({c.name for c in self.constraints}) < len(self.constraints):
            raise CmdpkitError(f"two constraints have the same name: {', '.join(c.name for c in self.constraints)}")
        ranges = None if cost_ranges is None else list(cost_ranges)
        self.scales = (reward_scale(env, reward_range), *cost_scales(env, ranges, self.constraints))
        self.problem = GymProblem(H, states, actions, self.constraints, self.scales)
        self.names: tuple[Sequence[Any], Sequence[Any]] = (  # of states and actions
            (states.all, actions.all) if self.cmdp is None else (self.cmdp.states, self.cmdp.action_names)
        )
        self.allowed = _allowed(allowed, self.cmdp, self.problem)
        # An observation is the state, so an environment does not depend on the step unless its owner says so.
        known = True if self.cmdp is None else is_stationary(self.cmdp)
        self.stationary = known if stationary is None else stationary
        if stationary is None and self.cmdp is None and H > 1:
            self.assumed = ASSUMED
            self.notes += (f"learned assuming that {ASSUMED}",)
        best = self._solved()
        self.optimum = None if best is None else best.value
        self.rho = np.array([c.sign * c.bound_on_total for c in self.constraints], dtype=float)
        self.meter = Meter.blind(H, self.rho, self.scales, self.optimum)
        self.player = GymPlayer(env, self.problem, self.meter.sums[REALISED])
        self.periods = Periods(1 if self.stationary else H, states.size + 1, actions.size, len(self.scales))
        declared = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        self.name: str = (env.name if isinstance(env, WithCost) else None) or declared
        digest = "" if self.cmdp is None else self.cmdp.fingerprint()
        text = repr((self.name, self.problem, digest, self.stationary)).encode() + self.allowed.tobytes()
        self.fingerprint = hashlib.sha256(text).hexdigest()
        self.recipe: GymRecipe | None = None  # how to make this world again, if that is known
        self.bounds: Mapping[str, float] = {}
        self.noise = "none"

    def fresh(self) -> GymWorld:
        """The same world with nothing counted yet, in an environment of its own."""
        if self.recipe is None:
            raise CmdpkitError(
                f"{self.name} cannot be made again: name a function that makes it, 'package.module:function'"
            )
        return self.recipe.make()

    def close(self) -> None:
        """Close the environment."""
        self.player.env.close()

    def begin(self) -> None:
        """Begin a run: set all counts to zero."""
        self.meter.sums[...] = 0.0
        self.meter.clock[EPISODES] = 0
        self.periods.clear()

    def spec(self, K: int) -> Spec:
        """The specification for the learner."""
        H, S, A = self.problem.H, self.problem.states.size, self.problem.actions.size
        rho = [scale.total_to_unit(x, H) for scale, x in zip(self.scales[1:], self.rho, strict=True)]
        return Spec(H, S + 1, A, K, np.array(rho), self.allowed, self.stationary)

    def play(self, learner: Learner, rng: Stream, n: int) -> None:
        """Let the learner play n more episodes."""
        done = int(self.meter.clock[EPISODES])
        if done == 0:
            self.player.root[...] = rng
        driven = learner.episodic() or ByStep(learner, self.player, done)
        for k in range(done, done + n):
            self.player.episode(k, driven, rng)
            self.meter.clock[EPISODES] += 1
            if (k + 1) % EPISODES_PER_SEED == 0 or k + 1 == done + n:
                player = self.player
                self.periods.count(player.states, player.actions, player.lengths, player.signals, k + 1)

    def change(self) -> tuple[int, str] | None:
        """As in `World`, from what followed the same action in the same state in earlier and later episodes."""
        H, scales, names = self.problem.H, self.scales, [c.name for c in self.constraints]

        def judge(kernel: Kernel, signals: FloatArray, mu: FloatArray) -> CMDP:
            over = np.array([scale.to_unit(0.0) for scale in scales])
            signals[:, :, -1] = over[:, None, None]  # after an early end
            bounds = [at_least(str(n), 0.0) for n in range(len(names))]
            return CMDP(kernel, signals[0], signals[1:], mu=mu, constraints=bounds, horizon=H, renormalise=True)

        if self.periods.episodes < 2:
            return None
        seen = self.periods.observed(judge)
        found = change_of(compared_groups(seen), seen)
        if found is None:
            return None
        before, after = (self._earned(totals[:, None])[:, 0] for totals in (found.before, found.after))
        episode = found.split * self.periods.length + 1  # the first of its period, counting from 1
        places = [self._place(cell) for cell in found.cells]
        note = told(found._replace(before=before, after=after), f"episode {episode:,}", places, ["reward", *names])
        return episode, (
            f"{note}. The policy was learned from both; learn it again from what comes after the change. (If the "
            "observation leaves out something that matters, a policy that changes while it learns has the same "
            "effect)"
        )

    def _place(self, cell: int) -> str:
        """A cell in the user's names."""
        if cell == START:
            return "the beginning of an episode"
        t, s, a = (int(x) for x in np.unravel_index(cell, self.periods.shape))
        states, actions = self.names
        at = f" at step {t + 1}" if self.periods.shape[0] > 1 else ""
        return f"action {quoted(actions[a])} in state {quoted(states[s])}{at}"

    def policy(self, pi: FloatArray) -> Policy:
        """The policy for the environment's observations, with the names of the model or else with numbers."""
        return Policy(pi[:, : self.problem.states.size], *self.names)

    def table(self, policy: Policy) -> FloatArray:
        """pi [H, S+1, A] of a policy for the environment's observations; in the extra state there is one action."""
        S, shape = self.problem.states.size, self.allowed.shape
        if policy.shape != (shape[0], S, shape[2]):
            raise CmdpkitError(f"the policy has shape {policy.shape}, expected (H, S, A) = {(shape[0], S, shape[2])}")
        if self.cmdp is not None:
            check_fits(self.cmdp, policy)
        pi = self.allowed.astype(float)
        pi[:, :S] = policy.pi
        return pi

    def sample(self, pi: FloatArray, rng: Stream, n: int) -> FloatArray:
        """Totals [1+N, n] of n episodes of a policy, in the user's units and sense; they are not counted."""
        sums = np.zeros(len(self.scales))
        player = GymPlayer(self.player.env, self.problem, sums)
        player.root[...] = rng
        fixed, totals = FixedPolicy(pi), np.zeros((len(self.scales), n))
        for k in range(n):
            sums[...] = 0.0
            player.episode(k, fixed, rng)
            totals[:, k] = sums
        return self._earned(totals)

    def _earned(self, totals: FloatArray) -> FloatArray:
        """Totals [1+N, n] of episodes in the user's units and sense, from those in unit scale."""
        signs = np.array([1.0, *(c.sign for c in self.constraints)])
        earned: FloatArray = signs[:, None] * (totals * self.meter.scale[:, :1] + self.meter.scale[:, 1:])
        return earned

    def state(self) -> dict[str, NDArray[Any]]:
        """The meter's sums, the counts by periods, and the actions that bring the environment back to its state."""
        periods = {f"periods/{name}": x for name, x in self.periods.state().items()}
        return {**self.meter.state(), **self.player.state(), **periods}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a checkpoint."""
        self.meter.restore(state)
        k = int(self.meter.clock[EPISODES])
        self.periods.restore({name[8:]: x for name, x in state.items() if name.startswith("periods/")}, k)
        self.player.restore(state, k)

    def _matched(
        self, env: Any, given: CMDP | None, constraints: Iterable[Constraint] | None, sizes: tuple[int, int, int]
    ) -> CMDP | None:
        """The model that was given, or else that of the environment, with the bounds asked for; None if none fits."""
        model = given if given is not None else env.cmdp if isinstance(env, CMDPEnv | WithCost) else None
        if model is None:
            return None
        asked = model.constraints if constraints is None else listed(constraints)
        wrong = []
        if sizes != (model.H, model.S, model.A):
            wrong.append(f"it has (H, S, A) = {(model.H, model.S, model.A)}, the environment {sizes}")
        if [(c.name, c.sense) for c in model.constraints] != [(c.name, c.sense) for c in asked]:
            bounds = "; ".join(str(c) for c in model.constraints) or "none"
            wrong.append(f"its constraints are {bounds}")
        if wrong and given is not None:
            raise CmdpkitError(f"the model does not fit: {', and '.join(wrong)}")
        if wrong:
            self.notes += (f"the model of the environment is not used: {', and '.join(wrong)}",)
            return None
        return model.reformulated(constraints=_over(model.H, asked))


def function_world(model: FunctionModel) -> GymWorld:
    """A model by functions as a world: it is simulated, and nothing is measured against its optimum."""
    env = FunctionEnv(model)
    world = GymWorld(env, model.constraints, allowed=env.allowed, stationary=True)
    world.name, world.fingerprint = "model", env.digest
    world.names = [model.state(s) for s in range(model.S)], model.action_names
    return world


def _over(H: int, constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Constraints on totals over H steps."""
    return tuple(c.over(float(H)) for c in constraints)


def _allowed(given: Any, model: CMDP | None, problem: GymProblem) -> BoolArray:
    """Which actions may be tried, [H, S+1, A]; in the extra state, S, there is only one."""
    H, S, A = problem.H, problem.states.size, problem.actions.size
    mask = np.ones((1, S, A), dtype=bool) if model is None else model.compact.allowed
    if given is not None:
        mask = mask & action_mask(given, S, A)
    if len(mask) not in (1, H):
        raise CmdpkitError(f"allowed has {len(mask)} steps, expected 1 or {H}")
    allowed = np.zeros((H, S + 1, A), dtype=bool)
    allowed[:, :S] = mask
    allowed[:, S, 0] = True
    return allowed


# -- How any process can make the same Gymnasium environment: the name of a function, its parameters, and constraints.


@dataclass(frozen=True)
class GymRecipe:
    """How to make a new world from a user's function, whose code counts: an edited environment is another one."""

    source: str  # "package.module:function", with parameters after another colon, or a name that a package offers
    params: tuple[tuple[str, Any], ...] = ()  # further parameters of the function
    name: str = ""  # its name in records, by default the source
    constraints: tuple[Constraint, ...] | None = None  # this and the last three fields are parameters of `GymWorld`
    bounds: tuple[tuple[str, float], ...] = ()  # bounds that replace those of the constraints, by name
    horizon: int | None = None  # number of steps; the time limit of the environment if None
    reward_range: Range | None = None  # smallest and largest reward of a step
    cost_ranges: tuple[Range, ...] | None = None  # smallest and largest value of each cost

    def make(self, built: Any = None) -> GymWorld:
        """A new world; ``built`` is what the function returned, if it was called already."""
        try:
            world = self._world(build(self.source, **dict(self.params)) if built is None else built)
        except CmdpkitError as error:
            raise CmdpkitError(f"{self.source}: {error}") from None
        world.name, world.recipe, world.bounds = self.name or self.source, self, dict(self.bounds)
        code = code_digest(builder_of(self.source))
        world.fingerprint = hashlib.sha256(f"{world.fingerprint} {code}".encode()).hexdigest()
        return world

    def _world(self, built: Any) -> GymWorld:
        if isinstance(built, GymWorld):
            given = [field.name for field in fields(self)[3:] if getattr(self, field.name)]
            if given:
                raise CmdpkitError(f"the function returns a GymWorld, which settles {', '.join(given)} itself")
            return built
        if isinstance(built, FunctionModel):
            return function_world(built.with_bounds(**dict(self.bounds)))
        if not isinstance(built, gymnasium.Env):
            if isinstance(built, CMDP):
                raise CmdpkitError("it is a model, which has constraints and a horizon of its own: change its bounds")
            kind = type(built).__name__
            raise CmdpkitError(f"the function returns a {kind}, expected a CMDP, a gymnasium.Env or a GymWorld")
        options: Any = {name: getattr(self, name) for name in ("horizon", "reward_range", "cost_ranges")}
        world, bounds = GymWorld(built, self.constraints, **options), dict(self.bounds)
        for name in bounds:
            index_of("constraint", [c.name for c in world.constraints], name)
        changed = [replace(c, bound=bounds.get(c.name, c.bound)) for c in world.constraints]
        return GymWorld(built, changed, **options) if bounds else world
