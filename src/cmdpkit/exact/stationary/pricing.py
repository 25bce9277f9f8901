"""The best policy for one objective, by sweeps and Krylov methods, with rounding bounded for all states alike.

These are the functions for large parts in which numbers are of similar size; `careful` has those for all others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.exact.stationary.parts import (
    ELIMINATION,
    EPS,
    IMPROVEMENTS,
    SWEEPS,
    UNTRIED,
    Methods,
    PolicyValues,
    ScaledPart,
    by_elimination,
    by_krylov,
    combined,
)
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.operators.chains import BLOCK
from cmdpkit.operators.row_lists import Followed, improve_rows
from cmdpkit.operators.steps import sweeps

FACTORED = 20_000  # states up to which elimination is tried where sweeps and Krylov methods are too slow
TRY, SLOW = 5, 0.7  # after TRY sweeps a Krylov method takes over if the error falls by less than SLOW in each
FAR = 20  # a Krylov method takes over only if more sweeps than this would be left; boards are solved a fifth faster
MAX_SWEEPS = 200_000  # of one policy


class Step(NamedTuple):
    """A better choice of rows, and what the values at hand prove for all policies."""

    bound: float  # on the objective
    pad: float  # rounding in it
    choice: IntArray  # [S]
    moved: int  # how many states take another row


class _Swept(NamedTuple):
    """What sweeps over the table of a policy have found."""

    Y: FloatArray  # [S, K], what the last sweep began with
    Z: FloatArray  # [S, K], the table after it
    level: FloatArray  # [K]
    values: FloatArray  # [K]
    error: FloatArray  # [K]
    ratio: float  # factor by which the error fell per sweep
    sweeps: int


def evaluate(part: ScaledPart, before: PolicyValues, choice: IntArray, tol: float, weights: FloatArray) -> PolicyValues:
    """The values of a choice of rows [S], to within tol if rounding allows it, beginning with those of `before`."""
    if before.method == ELIMINATION:
        return _eliminated(part, before, choice, weights)
    chain = before.chain if np.array_equal(choice, before.choice) else None
    chain = part.chain(choice) if chain is None else chain
    Y, Z = before.Y.copy(), np.empty(before.Y.shape)
    done, last, top = 0, np.inf, float(np.abs(chain.x).max())
    while True:
        floor = 4 * EPS * (float(np.abs(Y).max()) + top) * _omega(part, Y)
        goal = max(tol, floor)
        swept = _swept(part, chain, choice, Y, Z, TRY if done < TRY else BLOCK, goal)
        done, width = done + swept.sweeps, float(swept.error.max())
        if width <= goal or (width < 64 * floor and width > 0.9 * last) or done > MAX_SWEEPS:
            return _known(before, choice, swept, swept.Y, SWEEPS, before.pivot)._replace(chain=chain)
        Y, Z, last = swept.Z, swept.Y, width
        slow = done == TRY and swept.ratio >= SLOW and swept.ratio**FAR * width > tol
        if slow or done // 100 > (done - swept.sweeps) // 100:
            solved = by_krylov(part, chain, Y, goal / _omega(part, Y))
            if solved or part.S > FACTORED:
                continue
            if float(_swept(part, chain, choice, Y, Z, 1, 0.0).error.max()) > 64 * floor:
                return _eliminated(part, before._replace(Y=Y), choice, weights)


def _eliminated(part: ScaledPart, before: PolicyValues, choice: IntArray, weights: FloatArray) -> PolicyValues:
    """The values by elimination, and their error by one sweep."""
    found = by_elimination(part, before, choice, weights)
    swept = _swept(part, found.chain, found.choice, found.Y, np.empty(found.Y.shape), 1, 0.0)
    return _known(before, found.choice, swept, found.Y, ELIMINATION, found.pivot)


def _known(
    before: PolicyValues, choice: IntArray, swept: _Swept, Y: FloatArray, method: int, pivot: int
) -> PolicyValues:
    return PolicyValues(choice, swept.values, swept.error, Y, swept.level, method, pivot, before.bound, before.pad)


def _swept(
    part: ScaledPart, chain: Followed, choice: IntArray, Y: FloatArray, Z: FloatArray, most: int, goal: float
) -> _Swept:
    """Sweeps until the values have an error of `goal`, by the bound with d = 1; Y and Z [S, K] are overwritten."""
    low, high, widths = np.zeros(part.K), np.zeros(part.K), np.zeros(most)
    loss = part.losses[choice] if len(part.losses) else part.losses
    goal /= max(_omega(part, Y), 1e-300)
    given = chain.rows, chain.x, Y, Z, part.tau, part.uniform, loss, part.times - loss
    count = sweeps(*given, goal, widths, low, high)
    if count % 2 == 0:
        Y, Z = Z, Y
    ratio = (widths[count - 1] / widths[0]) ** (1 / (count - 1)) if count > 1 and widths[0] > 0 else 0.0
    start = part.alpha * part.from_start(Y)
    if part.uniform:
        level = (low + high) / 2
        return _Swept(Y, Z, level, start + level, (high - low) / 2, ratio, count)
    error = np.maximum(np.abs(low), np.abs(high))
    return _Swept(Y, Z, np.zeros(part.K), start, error * _omega(part, Y, float(error[0])), ratio, count)


def _omega(part: ScaledPart, Y: FloatArray, error: float = 0.0) -> float:
    """Omega of d = 1 for a policy with values Y; `error` is that of T Y - Y for the reward."""
    if not part.endless:
        return part.omega
    least = float(-part.X[0].max())  # the cost of a step
    return float(-part.from_start(Y)[0] / (least - error)) if error < least else np.inf


def rounding(part: ScaledPart, policy: PolicyValues) -> FloatArray:
    """What rounding adds to the error of the values, [K]."""
    x, sizes = part.X[:, policy.choice], np.abs(policy.Y).max(axis=0)
    noise = part.row_roundings * EPS * (np.abs(x).max(axis=1) + 2 * sizes)
    start = part.start_roundings * EPS * (part.alpha * sizes + np.abs(policy.level))
    return np.asarray(noise * _omega(part, policy.Y) + start)


def improve(part: ScaledPart, policy: PolicyValues, weights: FloatArray, o: FloatArray) -> Step:
    """The bound on o = weights . X that the policy's values prove for all policies, and a better choice of rows."""
    h = combined(weights, policy.Y.T)
    start = part.alpha * float(part.from_start(h))
    omega = longest_of_better(part, policy, weights, o) if part.endless else part.omega
    top, choice = float(np.abs(h).max()), policy.choice.copy()
    noise = (part.row_roundings + part.K) * EPS * (float(np.abs(weights) @ part.largest) + 2 * top)
    high, moved = improve_rows(part.rows.rows, part.rows.first, o, h, noise, choice)
    over = high if part.uniform else max(0.0, high)
    pad = noise * omega + part.start_roundings * EPS * (part.alpha * top + (abs(high) if part.uniform else 0.0))
    return Step(start + over * omega + pad, pad, choice, moved)


def longest_of_better(part: ScaledPart, policy: PolicyValues, weights: FloatArray, o: FloatArray) -> float:
    """How many steps a policy takes at most that has more of o than the given one, if every step costs."""
    least = float(-o.max())
    worth = float(weights @ policy.values) - float(np.abs(weights) @ policy.error)
    return max(-worth, 0.0) / least if least > 0 else np.inf


def price(part: ScaledPart, policy: PolicyValues, weights: FloatArray, slack: float, accuracy: float) -> PolicyValues:
    """A policy within `slack` of the most that weights . values can be, and the bound on that.

    The search begins with the given policy. Values are known to within `accuracy`; both are reached as far as rounding
    allows.
    """
    o, upper, scale = combined(weights, part.X), np.inf, float(np.abs(weights).sum())
    if policy.method == UNTRIED:
        policy = evaluate(part, policy, improve(part, policy, weights, o).choice, 0.05, weights)
    elif not np.isfinite(policy.error).all():
        policy = evaluate(part, policy, policy.choice, 0.05, weights)
    last = np.inf
    for _ in range(part.S + IMPROVEMENTS):
        error = float(np.abs(weights) @ policy.error)
        step = improve(part, policy, weights, o)
        upper = min(upper, step.bound)
        lack = upper - float(weights @ policy.values) + error
        if lack <= slack + 4 * step.pad:
            break
        if step.moved == 0:
            rounded = error <= step.pad or (lack >= 0.5 * last and error <= 16 * step.pad)
            if policy.method == ELIMINATION or rounded:
                break
            tol = min(0.05 * lack, 0.1 * error) / scale
        else:
            share = 0.1 if step.moved > part.S / 20 else 0.01 if step.moved > part.S / 200 else 0.001
            tol = max(share * lack, 0.2 * slack) / scale
        last = lack
        policy = evaluate(part, policy, step.choice, max(tol, step.pad / (8 * scale)), weights)
    if float(policy.error.max()) > accuracy:
        policy = evaluate(part, policy, policy.choice, accuracy, weights)
    return policy._replace(bound=upper, pad=step.pad)


QUICK = Methods(False, evaluate, price)
