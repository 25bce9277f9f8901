"""What has to be declared about an environment before anything can be learned in it, found out by playing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from cmdpkit.errors import CmdpkitError, printable, quoted
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.validate import check_length, check_seed
from cmdpkit.running.gym.env import CMDPEnv, Numbers, Range, declared_ranges, limits
from cmdpkit.running.gym.episodes import reset_of, step_of
from cmdpkit.running.gym.world import GymWorld

GUESS = (0.0, 1.0)  # proposed for a signal that was 0 at every step, and of which nothing is declared


@dataclass(frozen=True)
class Probe:
    """The observations of `probe`, and the declarations that it proposes."""

    env: gymnasium.Env[Any, Any]  # the environment
    name: str  # name of the environment
    episodes: int  # that were played
    steps: int  # that were taken in them
    states: int  # size of the observation space
    seen: int  # states that were met
    lengths: tuple[int, ...]  # steps of each episode
    unfinished: int  # episodes that had not ended when they were cut
    rewards: Range  # smallest and largest reward of a step
    costs: tuple[Range, ...]  # the same of every number in the cost
    horizon: int  # proposed: the time limit, or a round number of steps in which all episodes ended
    reward_range: Range  # proposed range: holds 0 and all observed rewards, with round ends
    cost_ranges: tuple[Range, ...]  # proposed in the same way
    notes: tuple[str, ...]  # remarks about the proposals

    def world(self, constraints: Iterable[Constraint], **options: Any) -> GymWorld:
        """The environment as a world to learn in, with what is proposed; ``options`` of `GymWorld` go before that."""
        bounds = list(constraints)
        if len(bounds) not in (0, len(self.cost_ranges)):
            raise CmdpkitError(
                f"{len(bounds)} constraints are given, but info has {len(self.cost_ranges)} costs; give one for each"
            )
        found = {"horizon": self.horizon, "reward_range": self.reward_range}
        found |= {"cost_ranges": list(self.cost_ranges)} if bounds else {}
        return GymWorld(self.env, bounds, **{**found, **options})

    def __str__(self) -> str:
        cells = [("reward of a step", self.rewards, self.reward_range)]
        cells += [
            ("cost of a step" if len(self.costs) == 1 else f"cost {i} of a step", seen, proposed)
            for i, (seen, proposed) in enumerate(zip(self.costs, self.cost_ranges, strict=True), 1)
        ]
        steps = (float(min(self.lengths)), float(max(self.lengths)))
        lines = [
            f"Probed {printable(self.name)}: {self.episodes:,} episodes of random actions, {self.steps:,} steps.",
            "",
            f"{'':<18} {'seen':>20}   proposed",
            *(f"{what:<18} {_told(seen):>20}   {_told(proposed)}" for what, seen, proposed in cells),
            f"{'steps':<18} {_told(steps):>20}   horizon {self.horizon:,}",
            f"{'states':<18} {f'{self.seen:,} of {self.states:,}':>20}",
            "",
            *self.notes,
            f"To learn in it: {self._call()}",
        ]
        return "\n".join(lines)

    def _call(self) -> str:
        bounds = ", ".join(f'at_most("cost {i + 1}", ...)' for i in range(len(self.costs)))
        reward, *costs = (f"({low:g}, {high:g})" for low, high in (self.reward_range, *self.cost_ranges))
        ranges = f", cost_ranges=[{', '.join(costs)}]" if costs else ""
        return (
            f"GymWorld(env, [{bounds}], horizon={self.horizon}, reward_range={reward}{ranges}), "
            "or probe(env).world([...])"
        )


def probe(env: gymnasium.Env[Any, Any], episodes: int = 100, *, longest: int = 1_000, seed: int = 0) -> Probe:
    """Play random actions in an environment, and propose the horizon and the ranges that `GymWorld` needs.

    Ranges are proposed so that they hold 0 and everything that was seen: those that the environment declares, or else
    the values seen, rounded outwards to a number such as 1, 2, 5 or 10. Random actions may not have met the largest
    values, so look at the proposals: a value outside ends a run.

    Parameters
    ----------
    env : environment with Discrete observation and action spaces
    episodes : how many to play
    longest : an episode that has not ended after this many steps is cut
    seed : of the actions and of the environment

    >>> import gymnasium
    >>> found = probe(gymnasium.make("FrozenLake-v1"), episodes=50)
    >>> found.horizon, found.reward_range, found.costs
    (100, (0.0, 1.0), ())
    """
    if not isinstance(env, gymnasium.Env):
        raise CmdpkitError(f"env is a {type(env).__name__}, expected a gymnasium.Env")
    check_length("episodes", episodes, 1_000_000)
    check_length("longest", longest, 1_000_000_000)
    check_seed(seed)
    states, actions = Numbers.of(env, "observation"), Numbers.of(env, "action")
    rng, N = np.random.default_rng(seed), None
    met, lengths, unfinished, signals = set[int](), list[int](), 0, list[list[float]]()
    for k in range(episodes):
        s, info = reset_of(f"episode {k + 1}", env, states, **({"seed": seed} if k == 0 else {}))
        met.add(s)
        for h in range(1, longest + 1):
            place = f"episode {k + 1}, step {h}"
            answer = step_of(place, env, _random_action(env, actions, info, rng), states, N)
            N, info = len(answer.costs), answer.info
            met.add(answer.state)
            signals.append([answer.reward, *answer.costs.tolist()])
            if not np.isfinite(signals[-1]).all():
                told = quoted(signals[-1])
                raise CmdpkitError(f"{place}: reward and costs are {told}, expected finite numbers")
            if answer.over:
                break
        else:
            unfinished += 1
        lengths.append(h)
    horizon, note = _horizon(env, lengths, unfinished, longest)
    notes, table = [note], np.array(signals)
    seen = [(float(low), float(high)) for low, high in zip(table.min(axis=0), table.max(axis=0), strict=True)]
    if not N:
        notes.append('info has no "cost", so nothing can be bounded; cmdpkit.gym.WithCost adds one.')
    if len(met) < states.size:
        missing = f"{states.size - len(met):,} of {states.size:,}"
        notes.append(f"States that were not met: {missing}. Their rewards and costs are not known.")
    declared = declared_ranges(env, len(seen) - 1)
    for what, ends, known in zip(("reward", *["cost"] * (len(seen) - 1)), seen, declared, strict=True):
        if ends == (0.0, 0.0) and known is None:
            notes.append(f"The {what} was 0 at every step, so its range is a guess: what earns or costs was never met.")
    reward_range, *cost_ranges = (_proposed(ends, known) for ends, known in zip(seen, declared, strict=True))
    return Probe(
        env=env,
        name=env.spec.id if env.spec is not None else type(env.unwrapped).__name__,
        episodes=episodes,
        steps=len(table),
        states=states.size,
        seen=len(met),
        lengths=tuple(lengths),
        unfinished=unfinished,
        rewards=seen[0],
        costs=tuple(seen[1:]),
        horizon=horizon,
        reward_range=reward_range,
        cost_ranges=tuple(cost_ranges),
        notes=tuple(notes),
    )


def _random_action(env: Any, actions: Numbers, info: Any, rng: np.random.Generator) -> int:
    """A random action; a model made into an environment has a mask of those that exist."""
    if isinstance(env.unwrapped, CMDPEnv):
        return int(rng.choice(np.flatnonzero(info["action_mask"])))
    return actions.first + int(rng.integers(actions.size))


def _horizon(env: Any, lengths: list[int], unfinished: int, longest: int) -> tuple[int, str]:
    """The time limit of the environment, or a round number of steps within which all episodes ended, and a note."""
    declared = limits(env)
    if declared:
        return min(declared), f"The horizon is the time limit of the environment, {min(declared):,} steps."
    if unfinished:
        return longest, (
            f"{unfinished:,} of {len(lengths):,} episodes had not ended after {longest:,} steps: choose a horizon by "
            "what you want to know, not by this proposal."
        )
    return math.ceil(_round_up(max(lengths))), "The horizon is the longest episode, rounded up."


def _proposed(seen: Range, declared: Range | None) -> Range:
    """A range that holds 0 and what was seen: the declared one if that is enough, else one with round ends."""
    low, high = seen
    if declared is not None and declared[0] <= low and high <= declared[1]:
        return min(0.0, declared[0]), max(0.0, declared[1])
    if low == high == 0:
        return GUESS
    return min(0.0, -_round_up(-low) if low < 0 else 0.0), max(0.0, _round_up(high) if high > 0 else 0.0)


def _round_up(x: float) -> float:
    """The smallest of 1, 2, 5, 10 times a power of ten that is at least x > 0.

    >>> _round_up(0.93), _round_up(97.2), _round_up(2.0), _round_up(0.00023)
    (1.0, 100.0, 2.0, 0.0005)
    """
    exponent = math.floor(math.log10(x))
    steps = (float(f"{m}e{exponent}") for m in (1, 2, 5, 10, 20))
    return next(step for step in steps if step >= x)


def _told(ends: Range) -> str:
    return " .. ".join(f"{x:.6g}" for x in ends)
