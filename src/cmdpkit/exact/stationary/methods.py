"""How policies of a part are evaluated and improved: chosen once, by who makes the part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.exact.stationary import careful, pricing
from cmdpkit.exact.stationary.parts import (
    DIRECT_STATES,
    EXACT,
    PolicyValues,
    ScaledPart,
    first_policy,
    part_of,
    unevaluated,
)
from cmdpkit.exact.stationary.problem import ComponentRows
from cmdpkit.model.transitions import FloatArray, IntArray


class Methods(NamedTuple):
    """Two functions that belong together."""

    careful: bool  # whether errors are proved state by state
    # evaluate(part, before, choice [S], tol, weights [K]): the values of a choice of rows, to within tol
    evaluate: Callable[[Any, Any, IntArray, float, FloatArray], Any]
    # price(part, policy, weights [K], slack, accuracy): a policy within slack of the best, values to within accuracy
    price: Callable[[Any, Any, FloatArray, float, float], Any]


def _certify(part: ScaledPart, before: PolicyValues, choice: IntArray, tol: float, weights: FloatArray) -> PolicyValues:
    del tol  # values are always as exact as they can be
    return careful.certify(part, before, choice, weights)


def _price(part: ScaledPart, policy: PolicyValues, weights: FloatArray, slack: float, accuracy: float) -> PolicyValues:
    del accuracy  # likewise
    return careful.price(part, policy, weights, slack)


QUICK, CAREFUL = Methods(False, pricing.evaluate, pricing.price), Methods(True, _certify, _price)


def methods_for(S: int) -> Methods:
    """The methods for a part with S states of which nothing else is known."""
    return CAREFUL if S <= DIRECT_STATES else QUICK


def with_values(
    part: ScaledPart, methods: Methods, policy: PolicyValues, X: FloatArray
) -> tuple[ScaledPart, PolicyValues]:
    """The part with other signals X [K, R], and the policy with values of these."""
    other = part.with_signals(X)
    unknown = unevaluated(other, policy.choice, policy.method, policy.pivot)
    return other, methods.evaluate(other, unknown, policy.choice, EXACT, np.ones(len(X)))


def best_total(rows: ComponentRows, x: FloatArray) -> PolicyValues:
    """The policy with the largest total of a signal x [R] until it leaves these rows, from a uniform start."""
    methods = methods_for(rows.S)
    start = np.full(rows.S, 1.0 / rows.S)
    part = part_of(rows, x[None], "total", start, endless=False, blur=0, careful=methods.careful)
    best: PolicyValues = methods.price(part, first_policy(part), np.ones(1), 0.0, EXACT)
    return best
