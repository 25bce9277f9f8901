"""Which actions are tried beside the plan, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmdpkit.learners.cl_pri.counts.estimate import Evidence, Model
from cmdpkit.learners.cl_pri.counts.plans import worth_trying
from cmdpkit.learners.cl_pri.quantiles import error_quantile
from cmdpkit.model.transitions import FloatArray

if TYPE_CHECKING:
    from cmdpkit.learners.cl_pri.counts import WithCounts

LOOKS = 60  # times that every action is tested in a run of known length, for the error budget of the tests
MAX_NOISE_TO_LOSS = 20.0  # by how much deviations are more frequent where they cost little
MAX_DEVIATIONS = 0.5  # per episode


def choose_deviations(learner: WithCounts, model: Model, found: Evidence) -> None:
    """Which actions are worth trying beside the plan in the episodes to come, and what one of them costs."""
    spec, memory, T = learner.spec, learner.memory, learner.T
    shape = (spec.H, spec.S, spec.A)
    seen = np.broadcast_to(memory.moves.reshape(T, spec.S, spec.A), shape).astype(float)
    seen[-1] = np.broadcast_to(memory.visits.reshape(T, spec.S, spec.A), shape)[-1]
    z = error_quantile(learner.params.delta, learner.cells * _looks(learner))
    chosen = worth_trying(model, found, seen, _visit_share(learner), _to_come(learner), _noise(learner), z)
    learner.explore[...] = chosen.worth & spec.allowed & (learner.pi == 0)
    learner.loss[0] = chosen.loss


def deviation_chance(learner: WithCounts) -> float:
    """Chance of a deviation per step: more while losses are small beside the noise, less and less in time."""
    k = learner.clock.episode
    if k >= learner.table.freeze or not learner.explore.any():
        return 0.0
    worth = min(max(_noise(learner) / max(float(learner.loss[0]), 1e-9), 1.0), MAX_NOISE_TO_LOSS)
    per_episode = learner.params.deviations * worth * np.sqrt(learner.cells / max(k, 1))
    return float(min(MAX_DEVIATIONS, per_episode) / learner.spec.H)


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
