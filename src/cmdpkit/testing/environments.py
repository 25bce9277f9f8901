"""What every environment promises: a function that returns a CMDP, or a Gymnasium environment with discrete spaces.

A CMDP has been checked when it was made, so little is left to promise: that its function makes the same problem every
time, and that the problem can be solved or is infeasible. A Gymnasium environment is code that can do anything. It is
played with random actions, twice with the same seed, and in turns with a second instance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from cmdpkit.errors import CmdpkitError, RunFailed
from cmdpkit.exact.solution import Infeasible
from cmdpkit.exact.solver import solve_fully
from cmdpkit.io.loading import build
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.running.gym import GymWorld
from cmdpkit.running.gym.episodes import EPISODES_PER_SEED, FixedPolicy, GymPlayer
from cmdpkit.simulate.random import stream

# -- How the contract tests report a broken promise.


class ContractBroken(AssertionError):
    """A learner or an environment does not keep a promise; the message says in sentences what it does instead."""

    __module__ = "cmdpkit.testing"


def expect(holds: bool, sentence: str) -> None:
    """Raise `ContractBroken` with this sentence unless the promise holds."""
    if not holds:
        raise ContractBroken(sentence)


def report(name: str, what: str, sentences: Iterable[str]) -> None:
    """Raise one `ContractBroken` for all the sentences that were collected; do nothing if there are none."""
    listed = "\n".join(f"- {sentence}" for sentence in dict.fromkeys(sentences))
    expect(not listed, f"{name} breaks the contract of {what}:\n{listed}")


# The default number of episodes: the environment is then given a seed twice, and is reset 68 times without one.
EPISODES = EPISODES_PER_SEED + 6


def check_env(
    source: str | Callable[[], Any],
    constraints: Iterable[Constraint] | None = None,
    *,
    episodes: int = EPISODES,
    seed: int = 0,
    **options: Any,
) -> None:
    """Raise `ContractBroken` unless an environment keeps all the promises of an environment.

    Parameters
    ----------
    source : a function without arguments that returns a CMDP, a Gymnasium environment or a `GymWorld`; or what names
        one, such as "package.module:function" or "package.module:function:n=3"
    constraints : what bounds the costs of a Gymnasium environment, as `cmdpkit.learn` takes them
    episodes : how many episodes a Gymnasium environment is played, each time
    seed : of the random actions and of the environment
    options : more that `GymWorld` has to be told about a Gymnasium environment: horizon, reward_range, cost_ranges

    >>> check_env("paper/grid")
    """
    name = source if isinstance(source, str) else getattr(source, "__qualname__", type(source).__name__)
    given = {} if constraints is None else {"constraints": tuple(constraints)}
    broken: list[str] = []
    try:
        one, two = (_made(source, {**given, **options}) for _ in range(2))
        checks = _checks(one, two, episodes, seed)
    except (CmdpkitError, ContractBroken) as error:
        checks, broken = [], [_sentence(error)]
    for check in checks:
        try:
            check()
        except (RunFailed, ContractBroken) as error:
            broken.append(_sentence(error))
    report(name, "an environment", broken)


def _made(source: str | Callable[[], Any], options: dict[str, Any]) -> CMDP | GymWorld:
    """What the function returns, with a Gymnasium environment made into a world to learn in."""
    made = build(source) if isinstance(source, str) else source()
    if isinstance(made, CMDP | GymWorld):
        expect(not options, f"It returns a {type(made).__name__}, which settles {', '.join(options)} itself.")
        return made
    kind = type(made).__name__
    expect(isinstance(made, gymnasium.Env), f"It returns a {kind}, expected a CMDP, a gymnasium.Env or a GymWorld.")
    return GymWorld(made, **options)


def _checks(one: CMDP | GymWorld, two: CMDP | GymWorld, episodes: int, seed: int) -> list[Callable[[], None]]:
    """The promises to hold two builds of an environment to, in this order."""
    if isinstance(one, CMDP) and isinstance(two, CMDP):
        return [partial(builds_are_the_same_model, one, two), partial(it_is_solved_or_infeasible, one)]
    if isinstance(one, CMDP) or isinstance(two, CMDP):
        raise ContractBroken("One call of the function returns a CMDP and the next one does not.")
    pair = InstancePair(one, two, episodes, seed)
    return [partial(check, pair) for check in PLAYED]


def _sentence(error: Exception) -> str:
    """What is wrong, as a sentence."""
    if isinstance(error, ContractBroken):
        return str(error)
    return f"{'Played with random actions' if isinstance(error, RunFailed) else 'When it is made'}, it fails: {error}."


# -- the promises of a model -------------------------------------------------------------------------------------------


def builds_are_the_same_model(one: CMDP, two: CMDP) -> None:
    """The function makes the same model at every call, whatever was drawn or built before."""
    expect(one.fingerprint() == two.fingerprint(), "Two calls of the function return different models.")


def it_is_solved_or_infeasible(cmdp: CMDP) -> None:
    """The exact solver finds an optimum, or names the bounds that conflict."""
    try:
        solve_fully(cmdp)
    except Infeasible as error:
        expect(bool(error.conflict), "It is infeasible, but no bound is named that cannot be met.")
    except CmdpkitError as error:
        raise ContractBroken(f"It cannot be solved: {error}.") from error


# -- the promises of a Gymnasium environment ---------------------------------------------------------------------------


@dataclass
class InstancePair:
    """Two instances of a Gymnasium environment, from two calls of its function, and how to play them."""

    one: GymWorld  # from the first call
    two: GymWorld  # from the second call
    episodes: int  # of every test
    seed: int  # of actions and environment

    @cached_property
    def alone(self) -> list[PlayedEpisode]:
        """The first episodes of the first instance, played by itself."""
        return _episodes(self.one, self.episodes, self.seed)


class PlayedEpisode(NamedTuple):
    """What happened in an episode; after an early end it goes on in an extra state, at no reward and no cost."""

    states: IntArray  # [H], the state at each step
    actions: IntArray  # [H], the action taken there
    signals: FloatArray  # [H, 1+N]: reward and utilities, each between 0 and 1


def builds_are_the_same_world(pair: InstancePair) -> None:
    """Sizes, horizon, constraints, ranges and model are the same at every call."""
    same = pair.one.fingerprint == pair.two.fingerprint
    expect(same, "Two calls of the function return environments that differ in sizes, horizon, constraints or ranges.")


def answers_fit_what_is_declared(pair: InstancePair) -> None:
    """Observations are in their space, rewards and costs in their ranges, and ``info["cost"]`` has one per constraint.

    The loop that plays it refuses everything else with a `RunFailed`, which names episode and step.
    """
    _ = pair.alone


def the_seed_decides(pair: InstancePair) -> None:
    """After ``reset(seed=...)`` the same actions lead to the same episodes, in the same instance and in another one."""
    again, other = (_episodes(world, pair.episodes, pair.seed) for world in (pair.one, pair.two))
    _expect_same(pair.alone, again, "Played again with the same seed and actions")
    _expect_same(pair.alone, other, "Made again and played with the same seed")


def instances_share_nothing(pair: InstancePair) -> None:
    """An instance does the same whether or not another one is played in between its steps."""
    one, two = pair.one.player.env, pair.two.player.env
    expect(one.unwrapped is not two.unwrapped, "Two calls of the function return the same environment, not a new one.")
    beside = _episodes(pair.one, pair.episodes, pair.seed, _wandering(pair.two, pair.seed + 1))
    _expect_same(pair.alone, beside, "Played in turns with another instance of itself")


def it_can_be_closed(pair: InstancePair) -> None:
    """``close`` raises nothing, also when called twice, and the other instance can still be played."""
    expected = _episodes(pair.two, 1, pair.seed)
    for _ in range(2):
        try:
            pair.one.close()
        except Exception as error:
            raise ContractBroken(f"close() raises {error!r}.") from error
    _expect_same(expected, _episodes(pair.two, 1, pair.seed), "After another instance of it was closed")
    pair.two.close()


PLAYED: tuple[Callable[[InstancePair], None], ...] = (
    builds_are_the_same_world,
    answers_fit_what_is_declared,
    the_seed_decides,
    instances_share_nothing,
    it_can_be_closed,
)


class SecondInstance(FixedPolicy):
    """A policy that is played, while before every action another environment makes a step."""

    def __init__(self, pi: FloatArray, other: Iterator[None]) -> None:
        super().__init__(pi)
        self.other = other

    def act(self, h: int, s: int) -> int:
        """Let the other environment go on, and choose."""
        next(self.other)
        return super().act(h, s)


def _episodes(world: GymWorld, n: int, seed: int, other: Iterator[None] | None = None) -> list[PlayedEpisode]:
    """n episodes of random actions after a reset with a seed, possibly with another environment going on meanwhile."""
    pi = world.allowed / world.allowed.sum(axis=-1, keepdims=True)
    policy = FixedPolicy(pi) if other is None else SecondInstance(pi, other)
    player, rng = GymPlayer(world.player.env, world.problem, np.zeros(len(world.scales))), stream(seed)
    player.root[...] = rng
    found = []
    for k in range(n):
        player.episode(k, policy, rng)
        row = k % EPISODES_PER_SEED
        found.append(PlayedEpisode(player.states[row].copy(), player.actions[row].copy(), player.signals.copy()))
    return found


def _wandering(world: GymWorld, seed: int) -> Iterator[None]:
    """Play an environment with random actions, one call of it at a time, without end."""
    env, (H, states, actions, *_), random = world.player.env, world.problem, np.random.default_rng(seed)
    for k in count():
        try:
            obs, _ = env.reset(seed=seed) if k == 0 else env.reset()
            yield
            for h in range(H):
                a = int(random.choice(np.flatnonzero(world.allowed[h, int(obs) - states.first])))
                obs, _, terminated, truncated, _ = env.step(a + actions.first)
                yield
                if terminated or truncated:
                    break
        except Exception as error:
            raise ContractBroken(f"Played in turns with another instance of itself, it raises {error!r}.") from error


def _expect_same(expected: list[PlayedEpisode], found: list[PlayedEpisode], circumstance: str) -> None:
    """Two plays are the same, to the bit."""
    for k, (one, two) in enumerate(zip(expected, found, strict=True), start=1):
        for name, x, y in zip(PlayedEpisode._fields, one, two, strict=True):
            what = "rewards or costs" if name == "signals" else name
            expect(np.array_equal(x, y), f"{circumstance}, it goes through other {what} in episode {k}.")
