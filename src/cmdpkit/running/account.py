"""What is added to a record for its reader only: the learner's own account of the run, and its certificate.

A run is worth hours, and its result is complete without these. So if one of them cannot be computed (a method of a
user's learner raises an error, or returns a value that a record cannot hold), it is left out and a note says why.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple, TypeVar

import numpy as np

from cmdpkit.errors import printable
from cmdpkit.learners import Learner
from cmdpkit.learners.registry import name_of
from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.manifest import plain
from cmdpkit.records.record import Certificate, Evaluation
from cmdpkit.running.active import certificate_of
from cmdpkit.running.steps import StepWorld
from cmdpkit.running.wording import in_users_names, in_users_units
from cmdpkit.running.worlds import World
from cmdpkit.simulate.random import stream

EVALUATION_EPISODES = 1000  # of the final policy, in addition to those of the run
CONFIDENCE_LEVEL = 0.95  # of every interval of the evaluation
EVALUATION_STREAM = 1  # key of the stream, which makes its random numbers independent of those of the run

Part = TypeVar("Part")


class Account(NamedTuple):
    """The parts of a record that no result depends on."""

    certificate: Certificate | None  # what the data prove about the policy
    phases: tuple[tuple[str, int], ...]  # name and first episode of each phase
    explanation: dict[str, Any]  # how the learner explains its result, in plain values
    evaluation: Evaluation | None  # estimated values of the policy; only in a world without a model
    notes: tuple[str, ...]  # sentences of the world and of the learner
    missing: tuple[str, ...]  # a sentence for every part that could not be computed


def account_of(world: World, learner: Learner, pi: FloatArray, seed: int) -> Account:
    """The account of a run that has ended with the policy `pi` of the learner."""
    policy = world.policy(pi)
    missing: list[str] = []
    no_notes: tuple[str, ...] = ()

    def part(name: str, make: Callable[[], Part], otherwise: Part) -> Part:
        try:
            return make()
        except Exception as error:
            who = name_of(type(learner))
            missing.append(
                f"the record has no {name}, because it could not be computed for {who}: {type(error).__name__}: "
                f"{printable(str(error))}. Everything else in the record is complete"
            )
            return otherwise

    def explanation() -> dict[str, Any]:
        told: dict[str, Any] = in_users_names(learner.explain(), world, policy)
        plain(told, "explanation")  # refuses what a record cannot hold
        return told

    def phases() -> tuple[tuple[str, int], ...]:
        return tuple((str(name), int(first)) for name, first in learner.phases())

    def notes() -> tuple[str, ...]:
        said = (*learner.notes, *learner.warnings())
        return tuple(in_users_units(sentence, world) for sentence in said)

    return Account(
        certificate=part("certificate", lambda: certificate_of(world, learner), None),
        phases=part("list of phases", phases, ()),
        explanation=part("explanation", explanation, {}),
        evaluation=part("evaluation", lambda: evaluated(world, pi, seed), None) if world.cmdp is None else None,
        notes=(
            *world.notes,
            *part("notes of the learner", notes, no_notes),
            *(world.warnings(policy) if isinstance(world, StepWorld) else ()),
        ),
        missing=tuple(missing),  # evaluated last
    )


def evaluated(world: World, pi: FloatArray, seed: int) -> Evaluation:
    """An estimate of what a policy is worth where there is no model to compute it from, by fresh episodes."""
    totals = world.sample(pi, stream(seed, EVALUATION_STREAM), EVALUATION_EPISODES)  # [1+N, n]
    means = totals.mean(axis=1)
    half = NormalDist().inv_cdf((1 + CONFIDENCE_LEVEL) / 2) * totals.std(axis=1, ddof=1) / np.sqrt(EVALUATION_EPISODES)
    value, *utilities = (float(x) for x in means)
    first, *others = ((float(m - x), float(m + x)) for m, x in zip(means, half, strict=True))
    return Evaluation(EVALUATION_EPISODES, CONFIDENCE_LEVEL, value, first, tuple(utilities), tuple(others))
