"""One run of a base learner inside an action set: the unit that pruning is made of.

A base learner is any algorithm that needs nothing but K. It is told the action set D and the tightened thresholds
through its `Spec` and starts with empty tables. Afterwards two things are read off it: how often each action was used,
and the average returns after burn-in, with a radius that holds at all times at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.learners import Learner, Source, Spec, State, resolve
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.simulate.random import Stream

COUNT, SUM, SQUARES = 0, 1, 2  # rows of a tally [3, 1+N]; squares are about the mean of what came before

ETA, POWER = 2.0, 1.4  # of the stitched boundary: ratio of its epochs, and how its error is spread over them
ZETA = 3.105472  # Riemann's zeta function at POWER


class BaseRun:
    """A fresh base learner for spec.K episodes; the returns of the first `burn_in` of them are not averaged."""

    def __init__(self, name: str, preset: str, spec: Spec, burn_in: int = 0) -> None:
        self.spec, self.burn_in = spec, burn_in
        self.learner = base_learner(name, preset, spec)
        self.played = 0
        self.tally = np.zeros((3, 1 + spec.N))

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
        _add_up(np.ascontiguousarray(totals[:, skip:]), self.spec.H / 2, self.tally)
        self.played += totals.shape[1]

    def usage(self) -> FloatArray:
        """How often each action was used, [H, S, A], as if all of the run had been like the part the learner counts.

        A learner that counts nothing is taken to have followed what it recommends, in every state all the time.
        """
        counted = self.learner.usage()
        used = self.learner.recommend() if counted is None else counted
        episodes = 1.0 if counted is None else np.maximum(used.sum(axis=(1, 2), keepdims=True), 1.0)
        scaled: FloatArray = used * (self.played / episodes)
        return scaled

    def state(self) -> dict[str, NDArray[Any]]:
        """All that changes; the learner's own arrays under "learner/"."""
        own = {"played": np.array(self.played), "tally": self.tally.copy()}
        return own | {f"learner/{name}": array for name, array in self.learner.state().items()}

    def restore(self, state: State) -> None:
        """Continue from a state."""
        self.played, self.tally = int(state["played"]), np.array(state["tally"])
        self.learner.restore(under("learner/", state))


def total(signals: Sequence[FloatArray]) -> FloatArray:
    """Sum of the steps' signals [1+N], in the order in which compiled loops add them."""
    summed = np.zeros(len(signals[0]))
    for earned in signals:
        summed += earned
    return summed


def under(prefix: str, state: State) -> dict[str, NDArray[Any]]:
    """The part of a state whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}


def base_learner(name: str, preset: str, spec: Spec) -> Learner:
    """The algorithm called `name` for this spec: with its theory's constants, or as PRI was run ("paper").

    Other algorithms than Triple-Q have one setting here, their default.
    """
    if name == "pri":
        raise CmdpkitError("base is 'pri': PRI cannot be its own base learner")
    kind = resolve(name)
    if kind.needs:
        raise CmdpkitError(f"base {name!r} needs {', '.join(kind.needs)}, which PRI does not know")
    if name != "triple-q":
        return kind(spec)
    return kind(spec, preset="theory") if preset == "theory" else kind(spec, **published(spec))


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


def radius(tally: FloatArray, H: int, error: float) -> FloatArray:
    """[1+N]: how far each average may be from the average of what was expected, at all times at once.

    Each side fails with probability at most `error`, ever. This is the empirical-Bernstein confidence sequence of
    Howard, Ramdas, McAuliffe and Sekhon (Annals of Statistics 2021, Theorem 4 with the stitched boundary of Theorem 1)
    for returns in [0, H]. It asks for no independence: a learner that changes its policy is covered.
    """
    v = np.maximum(tally[SQUARES], H * H)
    level = POWER * np.log(np.log(ETA * v / H**2) / math.log(ETA)) + math.log(ZETA / error)
    slope, offset = (ETA**0.25 + ETA**-0.25) / math.sqrt(2), (math.sqrt(ETA) + 1) / 2 * H
    boundary = np.sqrt(slope**2 * v * level + (offset * level) ** 2) + offset * level
    wide: FloatArray = boundary / np.maximum(tally[COUNT], 1.0)
    return wide


@compiled
def _add_up(returns, guess, tally):
    """Add returns [1+N, n] to a tally, one after the other, so that the bits do not depend on how a run is cut."""
    for n in range(len(returns)):
        for k in range(returns.shape[1]):
            mean = (guess + tally[SUM, n]) / (tally[COUNT, n] + 1.0)
            surprise = returns[n, k] - mean
            tally[COUNT, n] += 1.0
            tally[SUM, n] += returns[n, k]
            tally[SQUARES, n] += surprise * surprise
