"""What learners say, put into the user's names and units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cmdpkit.learners._bound_warning import BoundWarning, UtilityAmount
from cmdpkit.model.policy import Policy
from cmdpkit.running.baselines import Baseline
from cmdpkit.running.worlds import World


def in_users_units(sentence: str, world: World) -> str:
    """A note or warning of a learner in the names and units of the world's user.

    If the optimum of the world is known, all bounds can be met together, and no warning may say otherwise.
    """
    if not isinstance(sentence, BoundWarning):
        return sentence
    possible = world.optimum is not None
    n = sentence.constraint
    if n is None:
        return sentence.told("a constraint", possible=possible)
    reward, utility = world.scales[0].span, world.scales[1 + n].span
    name = str(world.constraints[n])
    return sentence.told(name, sentence.by * utility, sentence.price * reward / utility, possible=possible)


def in_users_names(value: Any, world: World, policy: Policy) -> Any:
    """A learner's explanation with states and actions by name instead of index, and totals in the user's units."""
    if isinstance(value, Mapping):
        return dict(_named(key, inner, world, policy) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return [in_users_names(inner, world, policy) for inner in value]
    if isinstance(value, UtilityAmount):
        return float(value) * world.scales[1 + value.constraint].span
    return value


def _named(key: str, value: Any, world: World, policy: Policy) -> tuple[str, Any]:
    """An entry of an explanation."""
    if key == "state index":
        return "state", policy.states[value] if value < len(policy.states) else "(episode over)"
    if key == "action index":
        return "action", policy.action_names[value]
    return key, in_users_names(value, world, policy)


def told_slack(world: World, safe: Baseline) -> str:
    """By how much a safe policy clears its bounds, in the user's units."""
    rho, spans = world.spec(1).rho, [scale.span for scale in world.scales[1:]]
    clears = (safe.utility - rho) * spans
    told = (f"{c} by {x / c.scale:.4g}" for c, x in zip(world.constraints, clears, strict=True))
    return f", which clears {', '.join(told)}" if world.constraints else ""
