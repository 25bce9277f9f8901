"""What a policy can be made from, and whether it fits a model: sizes, names, and only actions that exist.

Rules are functions, mappings from states to actions, and arrays, with steps or without. A rule without steps is stored
once and holds at every step. Where a state has only one action there is nothing to decide, and a rule is not asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.decisions import Decisions, forbidden, of_rows, of_states, of_table, renumbered
from cmdpkit.model.functions import FunctionModel
from cmdpkit.model.signatures import read_state_function
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE
from cmdpkit.model.transitions import IntArray
from cmdpkit.model.validate import Name, Positions, nearest, numbers

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
    decisions, states = policy.decisions, policy.states
    if len(states) > cmdp.S and not lacking(cmdp, policy):
        place = {str(name): s for s, name in enumerate(states)}
        decisions, states = of_states(decisions, np.array([place[str(name)] for name in cmdp.states])), cmdp.states
    places = [_places(states, cmdp.states), _places(policy.action_names, cmdp.action_names)]
    if all((place == np.arange(len(place))).all() for place in places):
        return decisions
    return renumbered(decisions, *places)


def lacking(cmdp: CMDP, policy: Policy) -> list[Name]:
    """The states of the model that a policy does not name; all of them, if its names are the default ones."""
    known = set() if isinstance(policy.states, range) else {str(name) for name in policy.states}
    return [name for name in cmdp.states if str(name) not in known]


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
    elif isinstance(cmdp, FunctionModel):
        step = "this needs arrays, which model.arrays() makes of a model by functions that is small enough"
    elif hasattr(cmdp, "cmdp"):
        step = "it is in the attribute cmdp of what you gave"
    raise CmdpkitError(f"the model is {quoted(cmdp)}, expected a CMDP; {step}")


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

EXPECTED_ANSWER = "expected the name of an action, or {action: probability}"


def decisions_of(cmdp: CMDP, rule: Any) -> tuple[Decisions, int]:
    """The decisions of a rule for a model, and for how many steps they are; `Policy.of` describes the rules."""
    if isinstance(rule, Mapping):
        return _of_mapping(cmdp, rule), cmdp.n_steps
    if callable(rule):
        return _of_function(cmdp, rule), cmdp.n_steps
    return _of_array(cmdp, rule)


def forced(cmdp: CMDP) -> IntArray:
    """The action [1 or H, S] where a state has only one, and -1 elsewhere."""
    allowed = cmdp.compact.allowed
    return np.where(allowed.sum(axis=-1) == 1, allowed.argmax(axis=-1), -1)


# -- functions and mappings --------------------------------------------------------------------------------------------


class _Answers:
    """What a rule answered so far, for T steps."""

    def __init__(self, cmdp: CMDP, T: int) -> None:
        self.cmdp, self.action = cmdp, Positions("action", cmdp.action_names)
        only = forced(cmdp)
        if len(only) > T:  # one answer for all steps is needed wherever some step has a choice
            only = np.where((only == only[0]).all(axis=0), only[0], -1)[None]
        self.choice = np.array(np.broadcast_to(only, (T, cmdp.S)), dtype=np.int32, order="C")
        self.where: list[tuple[int, int]] = []
        self.rows: list[Any] = []

    def keep(self, h: int, s: int, answer: Any, place: str) -> None:
        """Keep the answer for step h and state s; ``place`` says in words what answered."""
        if isinstance(answer, Mapping):
            self.where.append((h, s))
            self.rows.append(self._row(answer, place))
            self.choice[h, s] = 0
            return
        try:
            self.choice[h, s] = self.action(answer)
        except CmdpkitError:
            known = nearest(str(answer), [str(a) for a in self.cmdp.action_names])
            raise CmdpkitError(f"{place} is {quoted(answer)}, {EXPECTED_ANSWER}{known}") from None

    def _row(self, answer: Mapping[Any, Any], place: str) -> Any:
        row = np.zeros(self.cmdp.A)
        for name, p in answer.items():
            try:
                row[self.action(name)] += float(numbers("a probability", [p])[0])
            except CmdpkitError as error:
                raise CmdpkitError(f"{place} is {quoted(answer)}: {error}") from None
        if not (np.isfinite(row) & (row >= 0)).all() or abs(row.sum() - 1) > ROW_SUM_TOLERANCE:
            raise CmdpkitError(
                f"{place} is {quoted(answer)}, expected probabilities that sum to 1 within {ROW_SUM_TOLERANCE:g}; "
                f"these sum to {row.sum():.12g}"
            )
        return row

    def decisions(self) -> Decisions:
        where = np.array(self.where, dtype=np.int64).reshape(-1, 2)
        return of_rows(self.choice, where, np.array(self.rows, dtype=float).reshape(-1, self.cmdp.A))


def _of_mapping(cmdp: CMDP, rule: Mapping[Any, Any]) -> Decisions:
    answers, state = _Answers(cmdp, 1), Positions("state", cmdp.states)
    given: dict[int, Any] = {}
    for name, answer in rule.items():
        s = state(name)
        if s in given:
            raise CmdpkitError(f"the rule names state {quoted(name)} twice: it is the same as {quoted(given[s])}")
        given[s] = name
        answers.keep(0, s, answer, f"the rule for state {quoted(name)}")
    missing = np.flatnonzero(answers.choice[0] < 0)
    if len(missing):
        more = f" (and for {len(missing) - 1:,} more)" if len(missing) > 1 else ""
        raise CmdpkitError(
            f"the rule has no action for state {quoted(cmdp.states[int(missing[0])])}{more}; name one for every state "
            "that has more than one action"
        )
    return answers.decisions()


def _of_function(cmdp: CMDP, rule: Callable[..., Any]) -> Decisions:
    ask, step = read_state_function("the rule", rule)
    if step is not None and not cmdp.criterion.has_horizon:
        raise CmdpkitError(
            f"the rule takes {step}, the step, but the model is judged by {cmdp.criterion.in_words}, which needs "
            "a rule of the state alone"
        )
    answers = _Answers(cmdp, 1 if step is None else cmdp.n_steps)
    open_to_choice = answers.choice < 0
    for s, name in enumerate(cmdp.states):
        for h in np.flatnonzero(open_to_choice[:, s]).tolist():
            answer = ask(name, h)
            place = f"rule({quoted(name)})" if step is None else f"rule at {step} = {h} for {quoted(name)}"
            answers.keep(h, s, answer, place)
    return answers.decisions()


# -- arrays ------------------------------------------------------------------------------------------------------------


def _of_array(cmdp: CMDP, rule: Any) -> tuple[Decisions, int]:
    try:
        array = np.asarray(rule)
    except ValueError as error:
        raise CmdpkitError(f"the rule must be an array, a mapping or a function: {error}") from None
    if array.dtype.kind in "US" or (array.dtype.kind == "O" and any(isinstance(x, str) for x in array.flat)):
        return _of_choices(cmdp, _indices(cmdp, array))
    if array.dtype.kind in "iu" and _holds_indices(cmdp, array):
        return _of_choices(cmdp, array)
    table = numbers("pi", rule, copy=False)
    if table.ndim == 2 and table.shape == (cmdp.S, cmdp.A):
        return of_table(table[None]), cmdp.n_steps
    if table.ndim != 3 or 0 in table.shape:
        sizes = f"(H, S, A) = {(cmdp.n_steps, cmdp.S, cmdp.A)}, or (S, A) for the same decisions at every step"
        raise CmdpkitError(f"pi has shape {table.shape}, expected {sizes}")
    return of_table(table), len(table)


def _holds_indices(cmdp: CMDP, array: NDArray[Any]) -> bool:
    """Whether an array of whole numbers holds indices of actions; refused where it could be something else."""
    if array.ndim == 3:
        return False
    may_be_choices = array.shape in ((cmdp.S,), (cmdp.n_steps, cmdp.S))
    if array.shape == (cmdp.S, cmdp.A) and may_be_choices:
        raise CmdpkitError(
            f"the rule is an array of whole numbers of shape {array.shape}, which could be actions (H, S) or "
            "probabilities (S, A); pass names of actions, or probabilities as floats"
        )
    names = cmdp.action_names
    if (
        may_be_choices
        and all(isinstance(x, int) for x in names)
        and tuple(names) not in (tuple(range(cmdp.A)), tuple(range(1, cmdp.A + 1)))
    ):
        raise CmdpkitError(
            "the rule is an array of whole numbers, and so are the names of the actions: pass {state: action} with "
            "names, or Policy.deterministic(indices, A)"
        )
    return may_be_choices


def _indices(cmdp: CMDP, names: NDArray[Any]) -> IntArray:
    """The indices of actions given by their names, in an array [S] or [H, S]."""
    action = Positions("action", cmdp.action_names)
    different, inverse = np.unique(names.astype(str), return_inverse=True)
    return np.array([action(name) for name in different.tolist()], dtype=np.int64)[inverse].reshape(names.shape)


def _of_choices(cmdp: CMDP, indices: IntArray) -> tuple[Decisions, int]:
    if indices.shape not in ((cmdp.S,), (cmdp.n_steps, cmdp.S)):
        sizes = f"({cmdp.S},), one per state, or (H, S) = {(cmdp.n_steps, cmdp.S)}"
        raise CmdpkitError(f"the rule has actions in an array of shape {indices.shape}, expected {sizes}")
    none = np.zeros((0, 2), dtype=np.int64), np.zeros((0, cmdp.A))
    return of_rows(np.atleast_2d(indices), *none), cmdp.n_steps
