"""What a policy can be made from, and whether it fits a model: sizes, names, and only actions that exist.

Rules are functions, mappings from states to actions, and arrays, with steps or without. A rule without steps is stored
once and holds at every step. Where a state has only one action there is nothing to decide, and a rule is not asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.decisions import Decisions, forbidden, of_rows, of_table, rearranged
from cmdpkit.model.signatures import read_state_function
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE
from cmdpkit.model.transitions import IntArray
from cmdpkit.model.validate import Name, Positions, numbers

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
    """A policy's decisions with states and actions in the model's order, where both have the same names.

    A policy may have more states than the model. One that lacks some of them stays as it is, and does not fit.
    """
    _, S, A = policy.shape
    states = _places(policy.states, cmdp.states)
    actions = _places(policy.action_names, cmdp.action_names) if A == cmdp.A else None
    if states is None and actions is None:
        return policy.decisions
    kept = np.arange(S) if states is None else states
    return rearranged(policy.decisions, kept, np.arange(A) if actions is None else actions)


def lacking(cmdp: CMDP, policy: Policy) -> list[Name]:
    """The states of the model that a policy does not name; all of them, if its names are the default ones."""
    known = set() if isinstance(policy.states, range) else {str(name) for name in policy.states}
    return [name for name in cmdp.states if str(name) not in known]


def _places(own: Sequence[Name], model: Sequence[Name]) -> IntArray | None:
    """Where a policy's own names have each name of the model; None if they are the same, or one is missing."""
    if own == model or isinstance(own, range) or len(own) < len(model):
        return None
    there = {str(name): i for i, name in enumerate(own)}
    found = np.array([there.get(str(name), -1) for name in model])
    return None if (found < 0).any() else found


def _no_policy(given: Any) -> CmdpkitError:
    """The error about something that is no policy."""
    return CmdpkitError(
        f"the policy is a {type(given).__name__}, expected a Policy: Policy.of(cmdp, rule) makes one of a function, a "
        "mapping or an array, cmdpkit.read_policy(path, cmdp) of a file, and cmdpkit.markov(cmdp, mixture) of a "
        "mixture; that of a solution is in its attribute policy"
    )


def check_policy(given: Any) -> None:
    """Raise CmdpkitError unless this is a policy."""
    if not hasattr(given, "is_stationary"):
        raise _no_policy(given)


def check_mixture(given: Any) -> None:
    """Raise CmdpkitError if something that is no policy is no mixture either."""
    if not hasattr(given, "policies"):
        raise _no_policy(given)


def check_model(cmdp: Any) -> None:
    """Raise CmdpkitError unless this is a model."""
    if not isinstance(cmdp, CMDP):
        raise CmdpkitError(
            f"the model is {quoted(cmdp)}, expected a CMDP: cmdpkit.load(name) makes one of an environment or a file, "
            "and model.arrays() of a model by functions that is small enough; that of an estimate is in its attribute "
            "cmdp"
        )


def check_fits(cmdp: CMDP, policy: Policy) -> None:
    """Raise CmdpkitError unless a policy has the sizes and names of a model and uses only its actions."""
    check_model(cmdp)
    check_policy(policy)
    if policy.is_stationary == cmdp.criterion.has_horizon:
        has, needs = ("stationary", "one for every step: policy.repeated(H)")
        if not cmdp.criterion.has_horizon:
            has, needs = (f"for {policy.horizon} steps", "a stationary one: Policy.stationary(pi)")
        judged = cmdp.criterion.in_words
        raise CmdpkitError(f"the policy is {has}, but the model is judged by {judged}, which needs {needs}")
    if policy.shape != (cmdp.n_steps, cmdp.S, cmdp.A):
        sizes, missing = (cmdp.n_steps, cmdp.S, cmdp.A), lacking(cmdp, policy)
        without = f"; it has no decision for state {quoted(missing[0])}" if 0 < len(missing) < cmdp.S else ""
        raise CmdpkitError(
            f"the policy has shape {policy.shape}, the model (H, S, A) = {sizes}{without}; give a policy that was made "
            "for this model"
        )
    _check_names("state", policy.states, cmdp.states)
    _check_names("action", policy.action_names, cmdp.action_names)
    if cmdp.compact.allowed.all():
        return
    found = forbidden(policy.decisions, cmdp.compact.allowed)
    if found is not None:
        h, s, a = found
        at = f" at step {h + 1}" if cmdp.criterion.has_horizon else ""
        p = policy.row(h, s)[a]
        raise CmdpkitError(
            f"the policy gives action {cmdp.action_names[a]!r} probability {p}{at} in state {cmdp.states[s]!r}, where "
            "it does not exist; give another action there"
        )


# -- policies from rules ----------------------------------------------------------------------------------------------


def decisions_of(cmdp: CMDP, rule: Any) -> tuple[Decisions, int]:
    """The decisions of a rule for a model, and for how many steps they are; `Policy.of` describes the rules."""
    if isinstance(rule, Mapping):
        return _of_mapping(cmdp, rule), cmdp.n_steps
    if callable(rule):
        return _of_function(cmdp, rule), cmdp.n_steps
    if isinstance(rule, (str, os.PathLike)):
        raise CmdpkitError(f"the rule is {quoted(str(rule))}; cmdpkit.read_policy(path, cmdp) reads a policy of a file")
    return _of_array(cmdp, rule)


def forced(cmdp: CMDP) -> IntArray:
    """The action [1 or H, S] where a state has only one, and -1 elsewhere."""
    allowed = cmdp.compact.allowed
    return np.where(allowed.sum(axis=-1) == 1, allowed.argmax(axis=-1), -1)


# -- functions and mappings --------------------------------------------------------------------------------------------


Answer = tuple[int, int, Any, str]  # step and state, from 0, what a rule answered there, and what answered, in words


def _undecided(cmdp: CMDP, T: int) -> NDArray[np.int32]:
    """A choice [T, S] for T steps: the action of states that have only one, and -1 elsewhere."""
    only = forced(cmdp)
    if len(only) > T:  # one answer for all steps is needed wherever some step has a choice
        only = np.where((only == only[0]).all(axis=0), only[0], -1)[None]
    return np.array(np.broadcast_to(only, (T, cmdp.S)), dtype=np.int32, order="C")


def _decided(cmdp: CMDP, choice: NDArray[np.int32], answers: Iterable[Answer]) -> Decisions:
    """The decisions of a choice [T, S] with the answers of a rule entered."""
    action = Positions("action", cmdp.action_names)
    where, rows = [], []
    for h, s, answer, place in answers:
        try:
            if not isinstance(answer, Mapping):
                choice[h, s] = action(answer)
                continue
            row = np.zeros(cmdp.A)
            for name, p in answer.items():
                row[action(name)] += float(numbers("a probability", [p])[0])
        except CmdpkitError as error:
            expected = "expected the name of an action, or {action: probability}"
            raise CmdpkitError(f"{place} is {quoted(answer)}, {expected}: {error}") from None
        if not (np.isfinite(row) & (row >= 0)).all() or abs(row.sum() - 1) > ROW_SUM_TOLERANCE:
            raise CmdpkitError(
                f"{place} is {quoted(answer)}, expected probabilities that sum to 1 within {ROW_SUM_TOLERANCE:g}; "
                f"these sum to {row.sum():.12g}"
            )
        choice[h, s] = 0
        where.append((h, s))
        rows.append(row)
    drawn = np.array(where, dtype=np.int64).reshape(-1, 2), np.array(rows, dtype=float).reshape(-1, cmdp.A)
    return of_rows(choice, *drawn)


def _of_mapping(cmdp: CMDP, rule: Mapping[Any, Any]) -> Decisions:
    choice, state = _undecided(cmdp, 1), Positions("state", cmdp.states)
    given: dict[int, Name] = {}
    for name in rule:
        s = state(name)
        if s in given:
            raise CmdpkitError(f"the rule names state {quoted(name)} twice: it is the same as {quoted(given[s])}")
        given[s] = name
    missing = [s for s in np.flatnonzero(choice[0] < 0).tolist() if s not in given]
    if missing:
        more = f" (and for {len(missing) - 1:,} more)" if len(missing) > 1 else ""
        raise CmdpkitError(
            f"the rule has no action for state {quoted(cmdp.states[missing[0]])}{more}; name one for every state that "
            "has more than one action"
        )
    answers = ((0, s, rule[name], f"the rule for state {quoted(name)}") for s, name in given.items())
    return _decided(cmdp, choice, answers)


def _of_function(cmdp: CMDP, rule: Callable[..., Any]) -> Decisions:
    ask, step = read_state_function("the rule", rule)
    if step is not None and not cmdp.criterion.has_horizon:
        raise CmdpkitError(
            f"the rule takes {step}, the step, but the model is judged by {cmdp.criterion.in_words}, which needs "
            "a rule of the state alone"
        )

    def place(h: int, name: Name) -> str:
        return f"rule({quoted(name)})" if step is None else f"rule at {step} = {h} for {quoted(name)}"

    choice = _undecided(cmdp, 1 if step is None else cmdp.n_steps)
    asked = np.argwhere(choice.T < 0).tolist()  # state by state
    names = cmdp.states
    return _decided(cmdp, choice, ((h, s, ask(names[s], h), place(h, names[s])) for s, h in asked))


# -- arrays ------------------------------------------------------------------------------------------------------------


def _of_array(cmdp: CMDP, rule: Any) -> tuple[Decisions, int]:
    """The decisions of probabilities, which are written as floats so that they can be nothing else."""
    try:
        array = np.asarray(rule)
    except ValueError as error:
        raise CmdpkitError(f"the rule must be an array, a mapping or a function: {error}") from None
    if array.dtype.kind in "USiu" and array.ndim < 3:
        raise CmdpkitError(
            "the rule is an array of names or whole numbers, expected probabilities (H, S, A) or (S, A), which are "
            "floats; pass a mapping {state: action} for names of actions, and np.eye(A)[rule] for indices, from 0"
        )
    table = numbers("pi", rule, copy=False)
    if table.ndim == 2 and table.shape == (cmdp.S, cmdp.A):
        return of_table(table[None]), cmdp.n_steps
    if table.ndim != 3 or 0 in table.shape:
        sizes = f"(H, S, A) = {(cmdp.n_steps, cmdp.S, cmdp.A)}, or (S, A) for the same decisions at every step"
        raise CmdpkitError(f"pi has shape {table.shape}, expected {sizes}")
    return of_table(table), len(table)
