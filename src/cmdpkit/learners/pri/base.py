"""One run of a base learner inside an action set: the unit that pruning is made of.

A base learner is any algorithm that needs nothing but K. It is told the action set D and the tightened thresholds
through its `Spec` and starts with empty tables. Afterwards two things are taken from it: how often each action was
used, and what it earned, counted from its first episode on and once more after burn-in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.learners import Learner, Source, Spec, State, resolve
from cmdpkit.learners.pri.presets import PRIParams
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.simulate.random import Stream

COUNT, SUM = 0, 1  # rows of a tally [2, 1+N]: how many returns, and their sum


class BaseRun:
    """A base learner at the beginning of its spec.K episodes; the first `burn_in` of them are not averaged."""

    def __init__(self, learner: Learner, burn_in: int = 0) -> None:
        self.learner, self.spec, self.burn_in = learner, learner.spec, burn_in
        self.played = 0
        self.tally = empty_tally(self.spec.N)  # returns after burn-in
        self.whole = empty_tally(self.spec.N)  # all returns

    @property
    def left(self) -> int:
        """Episodes still to play."""
        return self.spec.K - self.played

    def play(self, source: Source, rng: Stream, out: FloatArray) -> None:
        """Fill out [1+N, n] with the returns of n more episodes."""
        returns = self.learner.run(source, rng, out.shape[1])
        out[0], out[1:] = returns.reward, returns.utilities
        self.count(out)

    def count(self, totals: FloatArray) -> None:
        """Note episodes that were played, by their totals [1+N, n]."""
        skip = min(max(self.burn_in - self.played, 0), totals.shape[1])
        add_up(totals, self.whole)
        add_up(totals[:, skip:], self.tally)
        self.played += totals.shape[1]

    def usage(self, whole: bool) -> FloatArray:
        """How often each action was used, [H, S, A]: in the whole run, or in its last part, scaled to the whole run.

        A learner that counts nothing is taken to have followed its recommended policy, and to have been in every state
        at every step of all episodes.
        """
        counted = self.learner.total_usage() if whole else self.learner.usage()
        used = self.learner.recommend() if counted is None else counted
        episodes = 1.0 if counted is None else np.maximum(used.sum(axis=(1, 2), keepdims=True), 1.0)
        scaled: FloatArray = used * (self.played / episodes)
        return scaled

    def state(self) -> dict[str, NDArray[Any]]:
        """All that changes; the learner's own arrays under "learner/"."""
        own = {"played": np.array(self.played), "tally": self.tally.copy(), "whole": self.whole.copy()}
        return own | {f"learner/{name}": array for name, array in self.learner.state().items()}

    def restore(self, state: State) -> None:
        """Continue from a state."""
        self.played = int(state["played"])
        self.tally, self.whole = np.array(state["tally"]), np.array(state["whole"])
        self.learner.restore(without_prefix("learner/", state))


def total(signals: Sequence[FloatArray]) -> FloatArray:
    """Sum of the steps' signals [1+N], in the order in which compiled loops add them."""
    summed = np.zeros(len(signals[0]))
    for earned in signals:
        summed += earned
    return summed


def without_prefix(prefix: str, state: State) -> dict[str, NDArray[Any]]:
    """The part of a state whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}


def base_learner(p: PRIParams, preset: str, spec: Spec) -> Learner:
    """The algorithm called p.base for this spec.

    Triple-Q has the constants of its theory (preset "theory" of PRI), or the settings with which PRI seems to have been
    published (preset "paper"). Other algorithms have their default preset.
    """
    name = p.base
    if name == "pri":
        raise CmdpkitError("base is 'pri': PRI cannot be its own base learner")
    kind = resolve(name)
    if kind.needs:
        raise CmdpkitError(f"base {name!r} needs {', '.join(kind.needs)}, which PRI does not know")
    if name == "triple-q":
        settings = {"preset": "theory"} if preset == "theory" else published(spec)
        return kind(spec, **settings, **_habits(p))
    if _habits(p):
        raise CmdpkitError(
            f"base_random_ties and base_explore are settings of Triple-Q, but base is {name!r}: leave them out"
        )
    return kind(spec)


def _habits(p: PRIParams) -> dict[str, Any]:
    """Further settings of Triple-Q that were asked for: how ties are broken, and random actions as in its public code.

    There, every action is random at first, which fades by 5 % every 20 episodes, and a share of 3 % stays random.
    """
    asked: dict[str, Any] = {"random_ties": True} if p.base_random_ties else {}
    if p.base_explore > 0:
        asked |= {"explore": p.base_explore, "explore_start": 1.0, "explore_decay": 0.95 ** (1 / 20)}
    return asked


def published(spec: Spec) -> dict[str, Any]:
    """Triple-Q as PRI's experiments seem to have run it: its theory's rates, small bonuses, warm start, realised queue.

    The paper prints no settings. These reproduce its usage pattern on the synthetic instance: bonus
    0.02 sqrt((chi + 1) / (chi + t)), eta = 0.1 K^0.2, tables lifted by 0.05 at the end of a frame.
    """
    K, chi = spec.K, spec.K**0.2
    frame = math.ceil(K**0.6)
    bonus, lift = 0.02 * math.sqrt(chi + 1), 0.05 * K / frame
    return {
        "frame": frame,
        "eta": 0.1 * K**0.2,
        "steady": math.inf,
        "chi": chi,
        "keep": 0.0,
        "reward_bonus": bonus,
        "utility_bonus": bonus,
        "bonus_offset": chi,
        "reward_lift": lift,
        "utility_lift": lift,
        "lift_power": 1.0,
        "eps_low": 0.0,
        "eps_high": 0.0,
        "margin": 0.0,
    }


def within(spec: Spec, K: int, rho: FloatArray, allowed: BoolArray) -> Spec:
    """The same problem for K episodes, with other thresholds and fewer actions."""
    return Spec(spec.H, spec.S, spec.A, K, rho, allowed.copy())


def means(tally: FloatArray) -> FloatArray:
    """[1+N]: average reward and utilities, zero before the first episode that counts."""
    average: FloatArray = tally[SUM] / np.maximum(tally[COUNT], 1.0)
    return average


def empty_tally(N: int) -> FloatArray:
    """Where nothing was earned yet."""
    return np.zeros((2, 1 + N))


def add_up(returns: FloatArray, tally: FloatArray) -> None:
    """Add returns [1+N, n] to a tally, one after the other, so that the bits do not depend on how a run is cut."""
    _add_up(np.ascontiguousarray(returns), tally)


@compiled
def _add_up(returns, tally):
    for n in range(len(returns)):
        for k in range(returns.shape[1]):
            tally[COUNT, n] += 1.0
            tally[SUM, n] += returns[n, k]
