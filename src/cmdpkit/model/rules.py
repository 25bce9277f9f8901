"""Policies as people have them: a function, a table of names, an array, with steps or without.

A rule without steps is stored once and holds at every step. Where a state has only one action there is nothing to
decide, and a rule is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.decisions import Decisions, of_rows, of_table
from cmdpkit.model.positions import Positions
from cmdpkit.model.signatures import called_with_step, step_parameter
from cmdpkit.model.transitions import ROW_SUM_TOLERANCE, IntArray
from cmdpkit.model.validate import nearest, numbers

EXPECTED_ANSWER = "expected the name of an action, or {action: probability}"
EXPECTED_RULE = "a function of the state, or of the state and h, which is the step from 0"


def decisions_of(cmdp: CMDP, rule: Any) -> tuple[Decisions, int]:
    """The decisions of a rule for a model, and for how many steps they are; `Policy.of` describes the rules."""
    if isinstance(rule, Mapping):
        return _of_mapping(cmdp, rule), cmdp.steps
    if callable(rule):
        return _of_function(cmdp, rule), cmdp.steps
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
    step = step_parameter("the rule", rule, EXPECTED_RULE)
    if step is not None and cmdp.criterion.stationary:
        raise CmdpkitError(
            f"the rule takes {step.name}, the step, but the model is judged by {cmdp.criterion.in_words}, which needs "
            "a rule of the state alone"
        )
    ask = called_with_step(rule, step)
    answers = _Answers(cmdp, 1 if step is None else cmdp.steps)
    open_to_choice = answers.choice < 0
    for s, name in enumerate(cmdp.states):
        for h in np.flatnonzero(open_to_choice[:, s]).tolist():
            answer = ask(name, h)
            place = f"rule({quoted(name)})" if step is None else f"rule at {step.name} = {h} for {quoted(name)}"
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
        return of_table(table[None]), cmdp.steps
    if table.ndim != 3 or 0 in table.shape:
        sizes = f"(H, S, A) = {(cmdp.steps, cmdp.S, cmdp.A)}, or (S, A) for the same decisions at every step"
        raise CmdpkitError(f"pi has shape {table.shape}, expected {sizes}")
    return of_table(table), len(table)


def _holds_indices(cmdp: CMDP, array: NDArray[Any]) -> bool:
    """Whether an array of whole numbers holds indices of actions; refused where it could be something else."""
    if array.ndim == 3:
        return False
    may_be_choices = array.shape in ((cmdp.S,), (cmdp.steps, cmdp.S))
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
    if indices.shape not in ((cmdp.S,), (cmdp.steps, cmdp.S)):
        sizes = f"({cmdp.S},), one per state, or (H, S) = {(cmdp.steps, cmdp.S)}"
        raise CmdpkitError(f"the rule has actions in an array of shape {indices.shape}, expected {sizes}")
    none = np.zeros((0, 2), dtype=np.int64), np.zeros((0, cmdp.A))
    return of_rows(np.atleast_2d(indices), *none), cmdp.steps
