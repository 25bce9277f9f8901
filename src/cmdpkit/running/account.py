"""The parts of a record that are for its reader only: the learner's own account of the run, and its certificate.

A run is worth hours, and its result is complete without these. So if one of them cannot be computed (a method of a
user's learner raises an error, or returns a value that a record cannot hold), it is left out and a note says why.
Sentences and explanations of a learner are put into the user's names and units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any, NamedTuple, TypeVar

import numpy as np

from cmdpkit.errors import printable
from cmdpkit.learners import Learner
from cmdpkit.learners._note import Note
from cmdpkit.learners.registry import name_of
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.record import Certificate, Evaluation, plain
from cmdpkit.running.active import certificate_of
from cmdpkit.running.request import Baseline
from cmdpkit.running.worlds import StepWorld, World
from cmdpkit.simulate.random import stream

# -- What learners say, put into the user's names and units.

UNIT_SCALE = ", unit scale"  # end of the name of an explanation that has one number per constraint in unit scale


def in_users_units(note: str | Note, world: World, *, changed: bool = False) -> str:
    """A note or warning of a learner in the names and units of the world's user.

    If the optimum of the world is known, all bounds can be met together, and no warning may say otherwise. If the
    world has ``changed`` during the run, that may be why a bound was missed, and no other reason is suspected.
    """
    if not isinstance(note, Note):
        return note
    possible = None if changed else world.optimum is not None
    n = note.constraint
    if n is None:
        return note.told("a constraint", possible=possible)
    reward, utility = world.scales[0].span, world.scales[1 + n].span
    name = str(world.constraints[n])
    return note.told(name, note.by * utility, note.price * reward / utility, possible=possible)


def in_users_names(value: Any, world: World, policy: Policy) -> Any:
    """A learner's explanation with states and actions by name instead of index, and totals in the user's units."""
    if isinstance(value, Mapping):
        return dict(_named(key, inner, world, policy) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return [in_users_names(inner, world, policy) for inner in value]
    return value


def _named(key: str | int, value: Any, world: World, policy: Policy) -> tuple[str | int, Any]:
    """An entry of an explanation."""
    if key == "state index":
        return "state", policy.states[value] if value < len(policy.states) else "(episode over)"
    if key == "action index":
        return "action", policy.action_names[value]
    if isinstance(key, str) and key.endswith(UNIT_SCALE):  # one total per constraint; rounds and the like are numbers
        spans = (scale.span for scale in world.scales[1:])
        return key.removesuffix(UNIT_SCALE), [x * span for x, span in zip(value, spans, strict=True)]
    return key, in_users_names(value, world, policy)


def told_slack(world: World, safe: Baseline) -> str:
    """By how much a safe policy clears its bounds, in the user's units."""
    rho, spans = world.spec(1).rho, [scale.span for scale in world.scales[1:]]
    clears = (safe.utility - rho) * spans
    told = (f"{c} by {x / c.scale:.4g}" for c, x in zip(world.constraints, clears, strict=True))
    return f", which clears {', '.join(told)}" if world.constraints else ""


EVALUATION_EPISODES = 1000  # episodes of the final policy, in addition to those of the run
CONFIDENCE_LEVEL = 0.95  # of every interval of the evaluation
EVALUATION_STREAM = 1  # key of the stream, which makes its random numbers independent of those of the run

Part = TypeVar("Part")


class RecordAccount(NamedTuple):
    """The parts of a record that no result depends on."""

    certificate: Certificate | None  # intervals for the values of the policy
    phases: tuple[tuple[str, int], ...]  # name and first episode of each phase
    explanation: dict[str, Any]  # how the learner explains its result, in plain values
    evaluation: Evaluation | None  # estimated values of the policy; only in a world without a model
    notes: tuple[str, ...]  # sentences of the world and of the learner; a change of the world comes first
    missing: tuple[str, ...]  # a sentence for every part that could not be computed


def account_of(world: World, learner: Learner, pi: FloatArray, seed: int) -> RecordAccount:
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

    changed = part("search for changes of the environment", world.change, None)

    def notes() -> tuple[str, ...]:
        said = (*learner.notes, *learner.warnings())
        if changed is not None:  # more of the same would not have mended it
            said = tuple(x for x in said if not (isinstance(x, Note) and x.patience))
        return tuple(in_users_units(note, world, changed=changed is not None) for note in said)

    def certificate() -> Certificate | None:
        found = certificate_of(world, learner)
        if found is None or changed is None:
            return found
        proved = replace(found, gap=None, optimum_at_most=None, infeasible=False, least_known=())
        return replace(proved, safe=(None,) * len(found.safe), since=changed[0])

    return RecordAccount(
        certificate=part("certificate", certificate, None),
        phases=part("list of phases", phases, ()),
        explanation=part("explanation", explanation, {}),
        evaluation=part("evaluation", lambda: evaluated(world, pi, seed), None) if world.cmdp is None else None,
        notes=(
            *(() if changed is None else (changed[1],)),
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
