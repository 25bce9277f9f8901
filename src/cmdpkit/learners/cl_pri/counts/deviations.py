"""Which actions are tried beside the plan, and how often."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from cmdpkit.estimate.errors import Evidence
from cmdpkit.estimate.model import Model
from cmdpkit.estimate.quantiles import error_quantile
from cmdpkit.learners.cl_pri.counts.debts import STEEPEST, repayment
from cmdpkit.learners.cl_pri.counts.plans import SHORT, worth_trying
from cmdpkit.learners.cl_pri.counts.play import Tries, tries_of
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from cmdpkit.learners.cl_pri.counts import WithCounts

LONG = 200_000  # episodes: while more are to come, nearly equal actions and rare states are worth a search of their own
LOOKS = 60  # times that every action is tested in a run of known length, for the error budget of the tests
MAX_NOISE_TO_LOSS = 20.0  # by how much deviations are more frequent where they cost little
MAX_DEVIATIONS = 0.5  # per episode, if all its states had that chance, in runs that are not long
MAX_CHANCE = 0.25  # of a deviation in a state, in long runs
ALWAYS = 1e9  # makes a deviation as frequent as it may be
HAND_OVER_LEAST = 3  # observations without which the policy handed over does not use an action
SPENT = 0.5  # of what plans can exceed the bounds by: what tries may cost in a long run, together with what is owed,
SPENT_IN_DEBT = 0.1  # and what they may cost however much is owed
LEAST = 0.02  # of the usual tries are made in any case
MAX_RARITY = 50.0  # by how much deviations are more frequent in states that are hardly ever reached,
MAX_RARITY_LONG = 1000.0  # and the same in long runs


def choose_deviations(learner: WithCounts, model: Model, found: Evidence) -> None:
    """Which actions are worth trying beside the plan in the episodes to come, and what one of them costs."""
    spec, memory, T = learner.spec, learner.memory, learner.T
    shape = (spec.H, spec.S, spec.A)
    seen = np.broadcast_to(memory.moves.reshape(T, spec.S, spec.A), shape).astype(float)
    seen[-1] = np.broadcast_to(memory.visits.reshape(T, spec.S, spec.A), shape)[-1]
    z = error_quantile(learner.params.delta, learner.cells * _looks(learner))
    left = _to_come(learner)
    long = left > LONG
    chosen = worth_trying(model, found, seen, _visit_share(learner), left, _noise(learner), z, long=long)
    learner.explore[...] = chosen.worth & spec.allowed & (learner.pi == 0)
    worth = np.maximum(_noise(learner) / np.maximum(chosen.loss, 1e-9), 1.0)
    rarity = _rarity(found.reach, T) if length_of(learner) > 0 else np.ones((spec.H, spec.S))
    if long:
        _choose_frequencies(learner, chosen.rare & learner.explore, worth, rarity, seen)
        _restrain(learner)
    else:
        learner.weights[...] = 1.0
        learner.urge[...] = np.minimum(worth[..., 0], MAX_NOISE_TO_LOSS) * np.minimum(rarity, MAX_RARITY)
        learner.most[...] = MAX_DEVIATIONS / spec.H


def _choose_frequencies(
    learner: WithCounts, rare: BoolArray, worth: FloatArray, rarity: FloatArray, seen: FloatArray
) -> None:
    """How often each action is tried in a long run: the more often, the less a try costs.

    Every state then costs about the same per visit. In states that are hardly ever reached (`rare` [H, S, A]) all
    actions are taken equally often, and first of all those that were observed too rarely to be handed over.
    """
    explore = learner.explore
    fewest = np.where(rare, seen, np.inf).min(axis=-1, keepdims=True)
    missing = rare & (seen < HAND_OVER_LEAST) & (seen == fewest)
    options = np.maximum(explore.sum(axis=-1), 1)
    learner.weights[...] = np.where(missing.any(axis=-1, keepdims=True), missing, worth)
    learner.urge[...] = np.where(rare.any(axis=-1), ALWAYS, rarity * (worth * explore).sum(axis=-1) / options)
    equally = np.where(rare.any(axis=-1), options / (options + 1), MAX_CHANCE)
    learner.most[...] = np.where(missing.any(axis=-1), 1.0, equally)


def _restrain(learner: WithCounts) -> None:
    """Try less where what tries cost of a utility, together with what is owed by now, could hardly be repaid."""
    tilt = tilt_of(learner.effect, tries_of(learner.explore, learner.weights))
    cost = np.maximum(-np.tensordot(tilt, deviation_chance(learner), 2), 1e-300)
    most = np.minimum(learner.surplus, STEEPEST * learner.spec.H)
    spare = np.maximum(SPENT * most - repayment(learner), SPENT_IN_DEBT * most)
    factor = max(float((spare / cost).min(initial=1.0)), LEAST)
    learner.urge *= factor
    learner.most *= factor


def tilt_of(effect: FloatArray, tries: Tries) -> FloatArray:
    """[N, H, S]: what the utilities of an episode gain if it deviates wherever it comes to a state at a step."""
    tilt: FloatArray = (effect * tries.share.reshape(effect.shape[1:])).sum(axis=-1)
    return tilt


def least_observations(learner: WithCounts) -> IntArray:
    """[H, S, 1]: observations without which the policy handed over does not use an action.

    In a long run it may use one that was observed half as often as the most frequent one of its state: in states that
    are hardly ever reached, none is known better.
    """
    spec, T = learner.spec, learner.T
    least = np.full((spec.H, spec.S, 1), HAND_OVER_LEAST)
    if learner.table.K <= SHORT:
        return least
    most = learner.memory.visits.reshape(T, spec.S, spec.A).max(axis=-1, keepdims=True)
    half: IntArray = np.minimum(least, np.maximum((most + 1) // 2, 1))
    return half


def deviation_chance(learner: WithCounts) -> FloatArray:
    """[H, S]: chance of a deviation: more while losses are small beside the noise, less and less in time."""
    k = learner.clock.episode
    if k >= learner.table.freeze or not learner.explore.any():
        return np.zeros_like(learner.urge)
    per_episode = learner.params.deviations * learner.urge * np.sqrt(learner.cells / max(k, 1))
    chance: FloatArray = np.minimum(learner.most, per_episode / learner.spec.H)
    return chance


def _rarity(reach: FloatArray, T: int) -> FloatArray:
    """[H, S]: the factor by which deviations are more frequent in states that the plan reaches more rarely than others.

    It grows with the square root, 1 / sqrt(S reach). The sum of reach * factor over the states of a step is then at
    most 1 by the inequality of Cauchy and Schwarz, so that all rare states together at most double the deviations.
    """
    if T == 1:  # what is learned at one step serves all of them
        reach = np.broadcast_to(reach.mean(axis=0), reach.shape)
    S = reach.shape[1]
    factor: FloatArray = 1 / np.sqrt(np.maximum(S * reach, 1 / MAX_RARITY_LONG**2))
    return np.maximum(factor, 1.0)


def length_of(learner: WithCounts) -> float:
    """Logarithm of how many times as many episodes are to come as make a run short; negative in short runs.

    What is wrongly left alone is paid for in all episodes to come. So long runs look more carefully.
    """
    return math.log(max(_to_come(learner), 1) / SHORT)


def _looks(learner: WithCounts) -> int:
    """What the error budget of the present tests of all actions is divided by.

    Without a known end the j-th look gets the share 1 / (j (j + 1)) of the budget, so that all shares add up to 1.
    """
    plans = learner.clock.plans
    return plans * (plans + 1) if learner.spec.anytime else LOOKS


def _to_come(learner: WithCounts) -> int:
    """Episodes in which what is learned now will be of use; in an anytime run, as many as the run has by then."""
    return learner.table.K if learner.spec.anytime else learner.table.K - learner.clock.episode


def _noise(learner: WithCounts) -> float:
    """The spread of an episode's total at the present prices, at most."""
    return float(np.sqrt((np.append(1.0, learner.prices) ** 2) @ learner.sd**2))


def _visit_share(learner: WithCounts) -> FloatArray:
    """[H, S]: how often an episode so far came there; where steps share their counts, an average over them."""
    spec, T = learner.spec, learner.T
    per_state = learner.memory.visits.reshape(T, spec.S, spec.A).sum(axis=-1)
    share: FloatArray = per_state / max(learner.clock.episode, 1) / (spec.H if T == 1 else 1)
    return np.broadcast_to(share, (spec.H, spec.S))
