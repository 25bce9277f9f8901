"""Whether a policy fits a model: sizes, names, and only actions that exist."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.decisions import Decisions, forbidden, renumbered
from cmdpkit.model.transitions import IntArray
from cmdpkit.model.validate import Name

if TYPE_CHECKING:
    from cmdpkit.model.policy import Policy  # which itself needs `check_fits` from here


def _check_names(what: str, own: Sequence[Name], model: Sequence[Name]) -> None:
    """Refuse a policy whose names differ from the model's; default names fit every model."""
    if own == range(1, len(own) + 1) or own is model or len(own) != len(model):
        return  # a wrong size is reported by the shape
    for i, (mine, theirs) in enumerate(zip(own, model, strict=True)):
        if mine != theirs and str(mine) != str(theirs):  # files hold the text of a name
            raise CmdpkitError(
                f"the policy's {what} {i + 1} is called {mine!r}, the model's {theirs!r}; both must have the same "
                "names in the same order: Policy.of(cmdp, policy) puts them in order if they are the same, and "
                "otherwise give a policy that was made for this model"
            )


def in_order(cmdp: CMDP, policy: Policy) -> Decisions:
    """A policy's decisions with states and actions in the model's order, where both have the same names."""
    places = [_places(policy.states, cmdp.states), _places(policy.action_names, cmdp.action_names)]
    if all((place == np.arange(len(place))).all() for place in places):
        return policy.decisions
    return renumbered(policy.decisions, *places)


def _places(own: Sequence[Name], model: Sequence[Name]) -> IntArray:
    """Where the model has each of a policy's names; as they stand, if the names are others."""
    as_they_stand = np.arange(len(own))
    if own is model or own == model or isinstance(own, range) or len(own) != len(model):
        return as_they_stand
    there = {str(name): i for i, name in enumerate(model)}
    found = np.array([there.get(str(name), -1) for name in own])
    return found if (np.sort(found) == as_they_stand).all() else as_they_stand


def _no_policy(given: Any) -> str:
    """What to do with something that is no policy."""
    if hasattr(given, "policies"):
        step = "cmdpkit.markov(cmdp, mixture) is one with the same totals, and mixture.policies are its parts"
    elif hasattr(given, "policy"):
        step = "it is in the attribute policy of what you gave"
    else:
        step = "Policy.of(cmdp, rule) makes one of a function, a mapping, an array or a file"
    return f"the policy is a {type(given).__name__}, expected a Policy; {step}"


def check_policy(given: Any) -> None:
    """Raise CmdpkitError unless this is a policy."""
    if not hasattr(given, "is_stationary"):
        raise CmdpkitError(_no_policy(given))


def check_mixture(given: Any) -> None:
    """Raise CmdpkitError if something that is no policy is no mixture either."""
    if not hasattr(given, "policies"):
        raise CmdpkitError(_no_policy(given))


def check_model(cmdp: Any) -> None:
    """Raise CmdpkitError unless this is a model."""
    if isinstance(cmdp, CMDP):
        return
    step = "CMDP(...) and CMDP.from_function(...) make one"
    if isinstance(cmdp, (str, os.PathLike)):
        step = f"cmdpkit.load({str(cmdp)!r}) makes one of an environment or a file"
    elif hasattr(cmdp, "cmdp"):
        step = "it is in the attribute cmdp of what you gave"
    raise CmdpkitError(f"the model is {quoted(cmdp)}, expected a CMDP; {step}")


def check_fits(cmdp: CMDP, policy: Policy) -> None:
    """Raise CmdpkitError unless a policy has the sizes and names of a model and uses only its actions."""
    check_model(cmdp)
    check_policy(policy)
    if policy.is_stationary != cmdp.criterion.stationary:
        has, needs = ("stationary", "one for every step: policy.repeated(H)")
        if cmdp.criterion.stationary:
            has, needs = (f"for {policy.horizon} steps", "a stationary one: Policy.stationary(pi)")
        judged = cmdp.criterion.in_words
        raise CmdpkitError(f"the policy is {has}, but the model is judged by {judged}, which needs {needs}")
    if policy.shape != (cmdp.steps, cmdp.S, cmdp.A):
        sizes = (cmdp.steps, cmdp.S, cmdp.A)
        raise CmdpkitError(
            f"the policy has shape {policy.shape}, the model (H, S, A) = {sizes}; give a policy that was made for this "
            "model"
        )
    _check_names("state", policy.states, cmdp.states)
    _check_names("action", policy.action_names, cmdp.action_names)
    if cmdp.compact.allowed.all():
        return
    found = forbidden(policy.decisions, cmdp.compact.allowed)
    if found is not None:
        h, s, a = found
        at = "" if cmdp.criterion.stationary else f" at step {h + 1}"
        p = policy.row(h, s)[a]
        raise CmdpkitError(
            f"the policy gives action {cmdp.action_names[a]!r} probability {p}{at} in state {cmdp.states[s]!r}, where "
            "it does not exist; give another action there"
        )
