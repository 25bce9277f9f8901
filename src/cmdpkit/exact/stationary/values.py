"""What a stationary policy is worth: its occupancy, and its values with a proved lower bound.

For any h, the value of a policy pi lies between the smallest and the largest entry of T_pi h - h, plus
(1 - gamma) mu . h, where T_pi h = o_pi + gamma P_pi h (see `pricing`, same proof). Totals: mu . h minus the largest
shortfall of T_pi h - h times mu . m.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cmdpkit.exact.stationary.components import Rows
from cmdpkit.exact.stationary.pricing import EPS
from cmdpkit.exact.stationary.problem import Problem
from cmdpkit.model.chains import Chain, long_run_shares, within
from cmdpkit.model.transitions import FloatArray


class Certified(NamedTuple):
    """Values of reward and utilities [1 + N] up to rounding, and a proved lower bound on the reward's."""

    middle: FloatArray  # [1 + N], values up to rounding
    low: float  # the reward's value is proved to be at least this


def evaluate_rows(rows: Rows, p: FloatArray, kind: str, gamma: float, mu: FloatArray) -> FloatArray:
    """Occupancy q [R] of the policy p [R]: normalised, or for totals expected visits."""
    P = rows.chain(p)
    if kind == "average":
        d, _ = long_run_shares(P, mu)
    elif kind == "discounted":
        d = Chain(P, gamma).flow((1 - gamma) * mu, 1.0)
    else:
        d = Chain(P, bordered=False).flow(mu)
    q: FloatArray = np.maximum(d, 0.0)[rows.owner] * p
    return q


def certified(problem: Problem, X: FloatArray, p: FloatArray, longest: float) -> Certified:
    """Values of the policy p [R] on the part, for scaled signals X [1 + N, R].

    For totals, no policy takes more than `longest` steps in expectation.
    """
    rows, kind, gamma = problem.rows, problem.kind, problem.discount
    P = rows.chain(p)
    x = np.array([np.bincount(rows.owner, p * row, rows.S) for row in X]).T  # [S, 1 + N]
    if kind == "average":
        return _average(P, x, problem.mu)
    if kind == "discounted":
        _, h = Chain(P, gamma).values(x)
        low, high = _ends(P, x, h, gamma)
        shift = (1 - gamma) * (problem.mu @ h)
        return Certified((low + high) / 2 + shift, float(low[0] + shift[0] - _noise(P, x, h)))
    _, h = Chain(P, bordered=False).values(x)
    missing = max(0.0, float((h - x - P @ h)[:, 0].max()) + _noise(P, x, h))
    middle = problem.mu @ h
    return Certified(middle, float(middle[0]) - missing * longest - _noise(P, x, h))


def _average(P: Any, x: FloatArray, mu: FloatArray) -> Certified:
    """By recurrent classes, each with its relative values, weighted by the probabilities of ending there."""
    _, classes = long_run_shares(P, mu)
    middle, low = np.zeros(x.shape[1]), 0.0
    for members, mass in classes:
        inside = within(P, members)
        _, h = Chain(inside).values(x[members])
        down, up = _ends(inside, x[members], h, 1.0)
        middle += mass * (down + up) / 2
        low += mass * (float(down[0]) - _noise(inside, x[members], h))
    if len(classes) > 1:  # the probabilities of ending in a class are rounded as well
        low -= 16 * EPS * len(mu) * float(np.abs(x).max())
    return Certified(middle, low)


def _ends(P: Any, x: FloatArray, h: FloatArray, gamma: float) -> tuple[FloatArray, FloatArray]:
    change = x + gamma * (P @ h) - h
    return change.min(axis=0), change.max(axis=0)


def _noise(P: Any, x: FloatArray, h: FloatArray) -> float:
    """Bound on the rounding in x + P h - h of the reward."""
    entries = int(np.diff(P.indptr).max(initial=0))
    return (entries + 8) * EPS * (float(np.abs(x[:, 0]).max()) + 2 * float(np.abs(h[:, 0]).max()))
