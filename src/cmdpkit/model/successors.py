"""What a user's step function returns: every answer is checked, and refused where it could mean two things."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.rounding import tolerance_of
from cmdpkit.model.signatures import Function
from cmdpkit.model.transitions import ROW_SUM_TOLERANCE
from cmdpkit.model.validate import is_hashable

Row = dict[Any, float]  # next state -> probability, which is positive
Pairs = list[tuple[Any, Any]]  # (probability, next state)
EXPECTED_ANSWER = "expected [(probability, next state), ...] or {next state: probability}"


class Successors:
    """The user's step function, called for one state and action at a time."""

    def __init__(self, step: Function, *, renormalise: bool) -> None:
        self.step, self.renormalise = step, renormalise
        self.correction = 0.0  # the largest difference from 1 of a sum of rounded probabilities

    def __call__(self, s: Hashable, a: Hashable, h: int) -> Row:
        """The possible next states with their probabilities, which sum to 1."""
        answer = self.step.call(s, a, h)
        try:
            is_mapping = type(answer) is not list and isinstance(answer, Mapping)
            pairs = [(p, x) for x, p in answer.items()] if is_mapping else [(p, x) for p, x in answer]
        except (TypeError, ValueError):
            raise CmdpkitError(f"{self._place(s, a, h)} returned {quoted(answer)}, {EXPECTED_ANSWER}") from None
        row: Row = {}
        tolerance = ROW_SUM_TOLERANCE
        maybe_exchanged = False
        for p, x in pairs:
            if type(p) is not float:
                tolerance = max(tolerance, self._precision(p))
                p = float(p) if isinstance(p, np.floating) else p
            if tolerance == np.inf or not 0 <= p <= sys.float_info.max:
                what = f"{self._place(s, a, h)} gives {quoted(x)} probability {quoted(p)}"
                raise CmdpkitError(f"{what}, expected a number between 0 and 1{_hint(pairs, is_mapping)}")
            try:
                row[x] = row.get(x, 0.0) + float(p)
            except TypeError:
                hashable(f"next state of {self._place(s, a, h)}", x)
                raise
            maybe_exchanged |= type(x) is not int and isinstance(x, (float, np.floating))
        if maybe_exchanged and not is_mapping:
            self._refuse_ambiguous(pairs, row, answer, (s, a, h))
        return self._distribution(row, tolerance, pairs, is_mapping, (s, a, h))

    def _distribution(
        self, row: Row, tolerance: float, pairs: Pairs, is_mapping: bool, place: tuple[Any, Any, int]
    ) -> Row:
        """The row without zeros, divided by its sum if the user wants that or if rounding explains why it is not 1."""
        total = sum(row.values())
        miss = abs(total - 1)
        if self.renormalise and total > 0:
            return {x: p / total for x, p in row.items()}
        if miss > tolerance:
            came = quoted({x: p for p, x in pairs} if is_mapping else pairs)
            raise CmdpkitError(
                f"probabilities of {self._place(*place)} sum to {total:.12g}, expected 1 within {tolerance:g}; it "
                f"returned {came}{_hint(pairs, is_mapping) or _lost(is_mapping, total)}"
            )
        if miss > ROW_SUM_TOLERANCE:
            self.correction = max(self.correction, miss)
            return {x: p / total for x, p in row.items() if p > 0}
        return {x: p for x, p in row.items() if p > 0}

    def _refuse_ambiguous(self, pairs: Pairs, row: Row, answer: Any, place: tuple[Any, Any, int]) -> None:
        """Refuse pairs of numbers that give another distribution when each pair is read the other way round."""
        other = _exchanged(pairs)
        fractions = any(0 < x < 1 for _, x in pairs) if other else False
        if other and fractions and {x: p for x, p in row.items() if p > 0} != other:
            raise CmdpkitError(
                f"{self._place(*place)} returned {quoted(answer)}, which could be (probability, next state) or "
                "(next state, probability); return a mapping {next state: probability}"
            )

    def _precision(self, p: Any) -> float:
        """How far from 1 a sum with this probability may be; infinite if the probability is not a number."""
        if isinstance(p, (int, float, np.integer)):
            return ROW_SUM_TOLERANCE
        return tolerance_of(p.dtype) if isinstance(p, np.floating) else np.inf

    def _place(self, s: Any, a: Any, h: int) -> str:
        return f"step({quoted(s)}, {quoted(a)}" + (f", {h})" if self.step.on_step else ")")


def _exchanged(pairs: Pairs) -> Row | None:
    """The distribution that results from reading the pairs as (next state, probability); None if they are not one."""
    other: Row = {}
    for x, p in pairs:
        if not isinstance(p, (int, float, np.integer, np.floating)) or not 0 <= p <= 1:
            return None
        if p > 0:
            other[x] = other.get(x, 0.0) + float(p)
    return other if abs(sum(other.values()) - 1) <= ROW_SUM_TOLERANCE else None


def _hint(pairs: Pairs, is_mapping: bool) -> str:
    """The end of an error message, which points out entries that look exchanged."""
    try:
        if _exchanged(pairs) is None:
            return ""
    except TypeError:  # what would be the next state is not hashable
        return ""
    given, wanted = ("{probability: next state}", "{next state: probability}")
    if not is_mapping:
        given, wanted = "(next state, probability)", "(probability, next state)"
    return f"; this looks like {given}, expected is {wanted}"


def _lost(is_mapping: bool, total: float) -> str:
    """The end of an error message about a sum that is not 1, where nothing looks exchanged."""
    if is_mapping and total < 1:
        return "; if it wrote the same next state twice, a mapping kept only the last: add their probabilities up"
    return "; correct them, or give renormalise=True to have them divided by their sum"


def hashable(what: str, x: Any) -> Any:
    """Return x, or raise an error if it is not hashable and can therefore be neither a state nor an action."""
    if not is_hashable(x):
        raise CmdpkitError(f"{what} is {quoted(x)}: use something that cannot change, such as a tuple")
    return x
