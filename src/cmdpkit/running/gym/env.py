"""Models as Gymnasium environments, environments that are given a cost, and what environments declare."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Discrete, MultiDiscrete
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from cmdpkit import envs
from cmdpkit.envs.gym import GymTable
from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.large import digest_of
from cmdpkit.exact.large.sweeps import Sweeps
from cmdpkit.model import showing
from cmdpkit.model.cmdp import CMDP, Scale
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.functions import MOST_ENTRIES, FunctionModel
from cmdpkit.model.transitions import FloatArray, Kernel
from cmdpkit.model.validate import check_horizon
from cmdpkit.simulate.simulator import Noise

Mask = NDArray[np.int8]
Range = tuple[float, float]


class CMDPEnv(gymnasium.Env[Any, Any]):
    """An environment whose episodes are those of a model: H steps from its start distribution, and then truncated.

    `CMDP.to_gym` makes it. Observations and actions are indices of states and actions. ``info["costs"]`` [N] holds what
    the constraints count, in the user's units and order, and ``info["cost"]`` the same as a number where there is one
    constraint, as other libraries expect it; ``info["action_mask"]`` marks the actions that exist now, and
    ``info["step"]`` how many steps were taken. With noise "bernoulli" each signal is drawn with the model's value as
    its mean: it is 0 or 1 if all values in the model lie between these, and else the smallest or the largest value in
    the model.

    With ``observe_step`` an observation is the pair (steps taken, state), of the space MultiDiscrete([H + 1, S]): an
    optimal policy depends on both, and a library that sees only observations needs both.

    >>> from cmdpkit import envs
    >>> env = envs.build("paper/grid").to_gym()
    >>> s, info = env.reset(seed=1)
    >>> s, info["action_mask"].tolist(), info["step"]
    (2, [0, 1, 1, 1, 1], 0)
    >>> s, reward, terminated, truncated, info = env.step(1)
    >>> s, round(reward, 3), info["cost"], info["costs"].tolist(), info["step"]
    (7, 0.646, 1.0, [1.0], 1)
    """

    def __init__(self, cmdp: CMDP, noise: Noise = "none", *, observe_step: bool = False) -> None:
        cmdp.need_horizon("a Gymnasium environment of this package")
        if noise not in ("none", "bernoulli"):
            raise CmdpkitError(f"noise is {noise!r}, expected 'none' or 'bernoulli'")
        self.cmdp, self.noise, self.observe_step = cmdp, noise, observe_step
        self.metadata = {
            "render_modes": [],
            "reward_range": _range(cmdp.reward_scale),
            "cost_ranges": [_range(scale, c) for scale, c in zip(cmdp.utility_scales, cmdp.constraints, strict=True)],
        }
        self.observation_space = MultiDiscrete([cmdp.H + 1, cmdp.S]) if observe_step else Discrete(cmdp.S)
        self.action_space = self._actions = Actions(cmdp)
        self.spec = EnvSpec(
            "cmdpkit/CMDP-v0",
            entry_point=lambda **_: CMDPEnv(cmdp, noise, observe_step=observe_step),
            max_episode_steps=cmdp.H,
        )
        self._h, self._s = cmdp.H, 0  # as after the last step, so that the first call must be reset

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._h, self._s = 0, _drawn(self.cmdp.mu, self.np_random)
        return self._observed(), self._info()

    def step(self, action: int) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take one step; an action that does not exist raises CmdpkitError."""
        cmdp, h, s = self.cmdp, self._h, self._s
        if h == cmdp.H:
            raise CmdpkitError("there is no episode: call reset() first")
        known = action in self.action_space
        if not known or not self._mask()[int(action)]:
            shown = repr(cmdp.action_names[int(action)]) if known else f"index {action!r}"
            raise CmdpkitError(
                f"step {h + 1}, state {cmdp.states[s]!r}: there is no action {shown}; those that exist have a 1 in "
                "info['action_mask']"
            )
        a = int(action)
        if cmdp.outcomes is None:
            r, g = cmdp.compact.r, cmdp.compact.g
            reward, costs = self._earned(np.array([r[h % len(r), s, a], *g[:, h % g.shape[1], s, a]]))
            self._s = int(cmdp.kernel.successors[self._entry(cmdp.kernel, a)])
        else:  # what is earned is drawn together with the next state
            entry = self._entry(cmdp.outcomes.entries, a)
            reward, costs = self._earned(cmdp.outcomes.signals[entry] * np.array([1.0, *cmdp.signs]))
            self._s = int(cmdp.outcomes.entries.successors[entry])
        self._h += 1
        return self._observed(), reward, False, self._h == cmdp.H, {**_told(costs), **self._info()}

    def _observed(self) -> Any:
        """The state, or the number of steps taken and the state."""
        return np.array([self._h, self._s]) if self.observe_step else self._s

    def _entry(self, rows: Kernel, action: int) -> int:
        """The position of an entry that is drawn from the row of an action."""
        entries = rows.entries(self._h, self._s, action)
        return int(entries.start) + _drawn(rows.prob[entries], self.np_random)

    def _earned(self, values: FloatArray) -> tuple[float, FloatArray]:
        """Reward, and what the constraints count [N], in the user's units, from reward and utilities [1 + N]."""
        if self.noise == "bernoulli":
            for n, scale in enumerate((self.cmdp.reward_scale, *self.cmdp.utility_scales)):
                values[n] = scale.low + scale.span * (self.np_random.random() < scale.to_unit(values[n]))
        return float(values[0]), self.cmdp.signs * values[1:] + 0.0  # no negative zeros

    def _info(self) -> dict[str, Any]:
        self._actions.mask = self._mask()
        return {"action_mask": self._mask(), "step": self._h}

    def _mask(self) -> Mask:
        """Which actions exist now; after the last step, those of the last step."""
        allowed = self.cmdp.compact.allowed
        mask: Mask = allowed[min(self._h, self.cmdp.H - 1) % len(allowed), self._s].astype(np.int8)
        return mask


class FunctionEnv(gymnasium.Env[Any, Any]):
    """A model by functions to act in: observations are indices of states, and a step earns what is expected of it.

    What the environment declares is found by one pass over all states: the ranges of the signals, and which actions
    exist. An episode is truncated after H steps.
    """

    def __init__(self, model: FunctionModel) -> None:
        if not model.criterion.has_horizon:
            raise CmdpkitError(
                f"the model is judged by {model.criterion.in_words}, and models by functions are learned with a "
                "horizon only; give one, or learn model.arrays() if it is small enough"
            )
        self.model, self.H = model, int(model.criterion.horizon or 0)
        if model.S * model.A * self.H > MOST_ENTRIES:
            raise CmdpkitError(
                f"{model!r} has {model.S * model.A * self.H:.2g} steps, states and actions, and what is learned is a "
                f"table of at most {MOST_ENTRIES:.2g}; merge states, or make the horizon shorter"
            )
        sweeps = Sweeps(model)
        facts, form = sweeps.facts, model.form()
        self.digest = digest_of(sweeps)
        ranges = list(zip(facts.lowest.tolist(), facts.highest.tolist(), strict=True))
        self.metadata = {"render_modes": [], "reward_range": ranges[0], "cost_ranges": ranges[1:]}
        self.observation_space, self.action_space = Discrete(model.S), Discrete(model.A)
        self.spec = EnvSpec(
            "cmdpkit/functions-v0", entry_point=lambda **_: FunctionEnv(model), max_episode_steps=self.H
        )
        pairs = ((form.decode(s), a) for s in range(model.S) for a in range(model.A))
        self.allowed = np.array([form.allowed(x, a) for x, a in pairs], dtype=bool).reshape(model.S, model.A)
        self._h, self._s = self.H, 0  # as after the last step, so that the first call must be reset

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        start = list(self.model.start)[_drawn(np.array(list(self.model.start.values())), self.np_random)]
        self._h, self._s = 0, self.model.state_index(start)
        return self._s, self._info()

    def step(self, action: int) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take one step; an action that does not exist raises CmdpkitError."""
        model, form, x = self.model, self.model.form(), self.model.state(self._s)
        if self._h == self.H:
            raise CmdpkitError("there is no episode: call reset() first")
        if action not in self.action_space or not self.allowed[self._s, int(action)]:
            raise CmdpkitError(f"state {x}: there is no action {action!r}; info['action_mask'] has those that exist")
        a = int(action)
        signals = np.array(form.collect(x, a))
        if model.noise:
            y = form.step(x, a, 0)[0]
            signals += form.after(y)
            moves = zip(model.noise, y, strict=True)
            x = tuple(int(part.to[j, _drawn(part.p[j], self.np_random)]) for part, j in moves)
        else:
            outcomes = [form.step(x, a, e) for e in range(model.events)]
            x = outcomes[_drawn(np.array([p for _, p in outcomes]), self.np_random)][0]
        self._s, self._h = int(form.encode(x)), self._h + 1
        return self._s, float(signals[0]), False, self._h == self.H, {**_told(signals[1:]), **self._info()}

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self.allowed[self._s].astype(np.int8), "step": self._h}


class Actions(Discrete[np.int64]):
    """Discrete(A) whose samples exist in the current state, or after `seed`, in all start states."""

    def __init__(self, cmdp: CMDP) -> None:
        super().__init__(cmdp.A)
        self._first = cmdp.compact.allowed[0, cmdp.mu > 0].all(axis=0).astype(np.int8)
        self.mask: Mask = self._first

    def seed(self, seed: int | None = None) -> Any:
        """Seed the space; the next sample is for the beginning of an episode."""
        self.mask = self._first
        return super().seed(seed)

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """An action drawn from those that exist, unless other masks or probabilities are given."""
        return super().sample(self.mask if mask is None and probability is None else mask, probability)


def _told(costs: FloatArray) -> dict[str, Any]:
    """What the constraints count, as ``info`` holds it."""
    return {"cost": float(costs[0]) if len(costs) == 1 else costs, "costs": costs}


def _drawn(p: FloatArray, rng: np.random.Generator) -> int:
    """An index with probabilities p."""
    cdf = np.cumsum(p)
    return int(np.searchsorted(cdf / cdf[-1], rng.random(), side="right"))  # the last is 1, and draws are below 1


def _range(scale: Scale, constraint: Constraint | None = None) -> Range:
    """Smallest and largest value of a signal in the user's units and sense."""
    ends = (scale.low, scale.low + scale.span)
    return ends if constraint is None or constraint.sign > 0 else (-ends[1] + 0.0, -ends[0] + 0.0)


showing.to_gym.register(CMDP, CMDPEnv)


# -- Environments that are given a cost, and Gymnasium's toy environments with one.


class WithCost(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives an environment a cost, and perhaps another reward: ``outcome(obs, action, next obs, reward)`` returns both.

    The reward may be anything that the environment returns, such as a vector of reward and costs.

    >>> from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
    >>> env = WithCost(FrozenLakeEnv(), lambda s, a, s_next, reward: (reward, float(s_next == s)))
    >>> s, _ = env.reset(seed=3)
    >>> s_next, reward, terminated, truncated, info = env.step(0)
    >>> info["cost"] == (s_next == s)
    True
    """

    cmdp: CMDP | None = None  # the exact model, if there is one; `GymWorld` looks here
    name: str | None = None  # name of the environment in records

    def __init__(self, env: gymnasium.Env[Any, Any], outcome: Callable[[Any, Any, Any, Any], tuple[Any, Any]]) -> None:
        super().__init__(env)
        self._outcome, self._obs = outcome, None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; its first observation is kept, because the cost of the next step depends on it."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._obs = obs
        return obs, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take one step, with its cost in ``info["cost"]``."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        reward, info["cost"] = self._outcome(self._obs, action, obs, reward)
        self._obs = obs
        return obs, reward, terminated, truncated, info


def make_env(name: str, **params: object) -> WithCost:
    """One of the environments ``gym/...`` as a Gymnasium environment, with the parameters of its exact model.

    >>> env = make_env("gym/taxi", H=15)
    >>> env.observation_space, env.action_space, env.cmdp
    (Discrete(500), Discrete(6), CMDP(H=15, S=500, A=6, N=1: fuel ≤ 9))
    """
    cmdp = envs.build(name, **params)
    if not name.startswith("gym/"):
        raise CmdpkitError(f"{name!r} is a model, not an environment of Gymnasium; to_gym makes one of it")
    module = importlib.import_module("cmdpkit.envs." + name.replace("/", ".").replace("-", "_"))
    takes = inspect.signature(module.make).parameters
    base = module.make(**{key: value for key, value in params.items() if key in takes})
    table = GymTable.of(base.P, module.outcome)
    env = WithCost(TimeLimit(base, cmdp.H), module.outcome)
    env.cmdp, env.name = cmdp, name
    reward, cost = ((float(x.min()), float(x.max())) for x in (table.reward, table.cost))
    env.metadata = {**base.metadata, "reward_range": reward, "cost_ranges": [cost]}
    return env


# -- What an environment declares about itself: sizes, horizon and ranges.


class Numbers(NamedTuple):
    """A `Discrete` space: the numbers first, first + 1, ..., first + size - 1."""

    size: int  # how many there are
    first: int  # the smallest

    @property
    def all(self) -> range:
        """The numbers."""
        return range(self.first, self.first + self.size)

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any], what: str) -> Numbers:
        """The observation or action space of an environment."""
        space = getattr(env, f"{what}_space", None)
        if isinstance(space, Discrete):
            return cls(int(space.n), int(space.start))
        wrapper = {"observation": "ObservationWrapper", "action": "ActionWrapper"}[what]
        raise CmdpkitError(
            f"{what}_space is {space}, expected Discrete: what is learned is a table. Number the {what}s from 0 on "
            f"with a gymnasium.{wrapper} (continuous ones cut into cells first)"
        )


def steps(env: gymnasium.Env[Any, Any], horizon: int | None) -> int:
    """The horizon H: the one given, which may not exceed the time limit of the environment, or else that limit."""
    declared = limits(env)
    if horizon is None:
        if not declared:
            raise CmdpkitError(
                "the environment has no time limit: give a horizon, GymWorld(env, constraints, horizon=...), or wrap "
                "it in gymnasium.wrappers.TimeLimit(env, max_episode_steps=...)"
            )
        return min(declared)
    check_horizon(horizon)
    if declared and horizon > min(declared):
        raise CmdpkitError(f"horizon is {horizon}, but the time limit of the environment is {min(declared)} steps")
    return int(horizon)


def limits(env: gymnasium.Env[Any, Any]) -> list[int]:
    """All time limits that an environment and its wrappers have."""
    found = [env.spec.max_episode_steps] if env.spec is not None and env.spec.max_episode_steps is not None else []
    layer = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, TimeLimit):
            found.append(layer._max_episode_steps)
        layer = layer.env
    return found


def reward_scale(env: gymnasium.Env[Any, Any], given: Any) -> Scale:
    """The map of the reward to [0, 1], from the range that was given or that the environment declares."""
    declared = _metadata(env).get("reward_range", getattr(env.unwrapped, "reward_range", None))
    if given is None and declared is None:
        raise CmdpkitError(
            "the range of the reward is not known: give it, GymWorld(env, constraints, reward_range=(low, high)), or "
            'declare it in env.metadata["reward_range"]; a loop of random actions shows what to expect (see "Ranges '
            'and horizon" in the guide to Gymnasium)'
        )
    low, high = _ordered("reward_range", declared if given is None else given)
    return Scale(low, high - low or 1.0)


def cost_scales(env: gymnasium.Env[Any, Any], given: Any, constraints: Sequence[Constraint]) -> tuple[Scale, ...]:
    """Maps of the utilities ("at most" costs, negated) to [0, 1]; costs lie between 0 and 1 unless declared."""
    usual = [(0.0, 1.0) if c.range is None else c.range for c in constraints]
    ranges = _metadata(env).get("cost_ranges", usual) if given is None else given
    if not isinstance(ranges, Sequence) or len(ranges) != len(constraints):
        raise CmdpkitError(
            f"cost_ranges is {ranges!r}, expected a pair (low, high) for each of {len(constraints)} constraints"
        )
    scales = []
    for c, pair in zip(constraints, ranges, strict=True):
        low, high = _ordered(f"cost range of {c.name!r}", pair)
        scales.append(Scale(low if c.sign > 0 else -high, high - low or 1.0))
    return tuple(scales)


def _metadata(env: gymnasium.Env[Any, Any]) -> Mapping[str, Any]:
    """The metadata of the environment; empty if they are not a mapping."""
    return env.metadata if isinstance(env.metadata, Mapping) else {}


def _ordered(what: str, pair: Any) -> Range:
    """Two finite numbers in order, extended to include 0, which is the reward and cost after an early end."""
    try:
        low, high = (float(x) for x in pair)
    except (TypeError, ValueError):
        raise CmdpkitError(f"{what} is {pair!r}, expected a pair (low, high)") from None
    if not (np.isfinite([low, high]).all() and low <= high):
        raise CmdpkitError(f"{what} is {pair!r}, expected two finite numbers, the smaller one first")
    return min(low, 0.0), max(high, 0.0)
