"""The best policy for one objective where numbers of very different size meet, with proved errors.

That is so where a large signal is collected in a state that is seldom visited, or where states are seldom left, and in
small parts, where it costs little. The profile d of the bound is in proportion to the rounding in each state, delta is
computed from differences of h, policies are evaluated by elimination without subtraction, and the error of their values
is proved as in the section "How wrong a value can be" of docs/theory/stationary.md.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from cmdpkit.exact.stationary.parts import (
    DIRECT_STATES,
    ELIMINATION,
    EPS,
    IMPROVEMENTS,
    Methods,
    PolicyValues,
    Profile,
    ScaledPart,
    Solved,
    TooLong,
    by_elimination,
    combined,
    longest,
)
from cmdpkit.exact.stationary.pricing import QUICK, Step, longest_of_better
from cmdpkit.model.tolerances import ROUNDOFF
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.operators.row_lists import differences

COARSE = 1e-13  # a profile by which rounding counts for more is made again
WILD = 1e-6  # error of values (of order 1) beyond which only the largest improvements of a policy are believed
FAINT = 1e-12  # a profile is at least this share of the total of it that may follow
ROUND_UP = 1 + 1e-9  # factor of errors that are computed with rounding themselves


def profiled(
    part: ScaledPart, policy: PolicyValues, weights: FloatArray, over: FloatArray | None = None
) -> PolicyValues:
    """The policy with a profile that was made for it, and is nowhere less than the profile it has.

    `over` [S] is by how much some row of each state seems to be better than the policy, which is due to rounding.
    """
    if part.endless:
        return policy._replace(method=ELIMINATION, profile=Profile(np.ones(part.S), np.inf))
    found = by_elimination(part, policy, policy.choice, weights)
    policy = policy._replace(choice=found.choice, Y=found.Y, level=found.level, pivot=found.pivot, method=ELIMINATION)
    size = np.abs(part.X) + part.changes(part.X, policy.Y.T)[1] + np.abs(policy.level)[:, None]
    d = np.maximum.reduceat(size.sum(axis=0), part.rows.firsts) + 1e-30
    if not part.uniform:  # a profile that is small against what follows it could not be checked
        d += FAINT * longest(part, policy, d)[0]
    if over is not None:
        d = np.maximum(d, over / EPS)
    omega = longest(part, policy, d)[1]
    if not np.isfinite(omega):
        raise TooLong
    return policy._replace(profile=Profile(d, omega))


def certify(part: ScaledPart, before: PolicyValues, choice: IntArray, weights: FloatArray) -> PolicyValues:
    """The values of a choice of rows [S] as exact as they can be, with their proved error.

    For averages, all states walk to the recurrent class that is best at the weights [K].
    """
    if before.profile is None:
        before = profiled(part, before._replace(choice=choice), weights)
        choice = before.choice
    found = by_elimination(part, before, choice, weights)
    values, error = _proved(part, found)
    return PolicyValues(
        found.choice,
        values,
        error,
        found.Y,
        found.level,
        ELIMINATION,
        found.pivot,
        before.bound,
        before.pad,
        before.profile,
    )


def _proved(part: ScaledPart, found: Solved) -> tuple[FloatArray, FloatArray]:
    """Values [K] and their error, which is the value of what is wrong in every state.

    Totals are counted from that of one state, which counts as if it were paid at the exit. Otherwise the rounding
    of a large total would hide what is wrong in a single step.
    """
    K, choice, chain, pivot = part.K, found.choice, found.chain, found.pivot
    x, Y, offset, lost = chain.x, found.Y, np.zeros(K), part.rows.exits[choice][:, None]
    if not part.uniform:
        offset = Y[pivot].copy()
        x = chain.x - lost * offset
        Y = found.system.values(x)[1]
    wrong = _residual(part, found, x, Y, found.level) + 2 * EPS * (np.abs(chain.x) + lost * np.abs(offset)) + 1e-40
    if not part.uniform:  # what is small against what follows it could not be checked
        wrong += FAINT * found.system.values(wrong)[1]
    added = chain.x - chain.x[pivot] if part.uniform else chain.x  # by the elimination
    level, W = found.system.values(np.hstack((wrong, np.abs(added))))
    wide, size, level, W = level[K:], W[:, K:], level[:K], W[:, :K]
    left = _residual(part, found, wrong, W, level, signed=True)
    error = part.alpha * part.from_start(W)
    if part.uniform:
        error = error + level + left.max(axis=0)
    else:  # if W lacks at most a share theta of what is wrong anywhere, W / (1 - theta) lacks nothing
        theta = np.minimum((left / wrong).max(axis=0), 1.0)
        error = np.divide(error, 1 - theta, out=np.full(K, np.inf), where=theta < 1)
    mass = float(part.mu.sum())
    paid = found.level + offset * mass
    values = part.alpha * part.from_start(Y) + paid
    error = np.where(np.isfinite(error), np.abs(error), np.inf)
    # Values count from those of the pivot, with two subtractions.
    whole = part.alpha * part.from_start(np.abs(size)) + 3 * wide + 2 * part.alpha * mass * size[pivot]
    error = np.minimum(error, elimination_error(part.S, found.system.width) * whole)
    rounding = part.start_roundings * EPS * (part.alpha * part.from_start(np.abs(Y)) + np.abs(paid))
    return values, error * ROUND_UP + rounding


def _residual(
    part: ScaledPart, found: Solved, x: FloatArray, Y: FloatArray, level: FloatArray, signed: bool = False
) -> FloatArray:
    """At most how much x + P Y - Y of a policy differs from the level, rounding included, [S, K]."""
    delta, size = np.empty((x.shape[1], part.S)), np.empty((x.shape[1], part.S))
    given = np.arange(part.S), part.rows.exits[found.choice], np.ascontiguousarray(x.T), np.ascontiguousarray(Y.T)
    differences(found.chain.rows, *given, delta, size)
    off = delta.T - level
    noise = part.row_roundings * EPS * (size.T + np.abs(x) + np.abs(level))
    return np.asarray((off if signed else np.abs(off)) + noise)


def elimination_error(S: int, width: int) -> float:
    """Error of a value from elimination without subtraction in a chain of S states, as a share of what it returned.

    States are at most `width` apart from their neighbours in the order of elimination. The share is of the absolute
    signal. k roundings change a number by a share g = k u / (1 - k u) at most, products of roundings included. The
    number that is returned may be too small by this share itself, hence g / (1 - g).
    """
    m = min(S, width + 1)
    k = m * (m + 1) * (2 * m + 1) // 3 + 4 * m * (m + 1) + 6 * m  # the sum of (2n + 2) (n + 3) for n up to m
    if m < S:
        k += (S - m) * (2 * m + 2) * (m + 3) + 2 * (S + 3)
    return k * ROUNDOFF / (1 - 2 * k * ROUNDOFF)


def improve(part: ScaledPart, policy: PolicyValues, weights: FloatArray, o: FloatArray) -> Step:
    """The bound on o = weights . X that the policy's values prove for all policies, and a better choice of rows."""
    assert policy.profile is not None
    h, owner, b = combined(weights, policy.Y.T), part.rows.owner, float(policy.level @ weights)
    start = part.alpha * float(part.from_start(h))
    omega = longest_of_better(part, policy, weights, o) if part.endless else policy.profile.omega
    (delta,), (size,) = part.changes(o[None], h[None])
    size += np.abs(weights) @ np.abs(part.X) + float(np.abs(policy.level) @ np.abs(weights))
    noise = (part.row_roundings + part.K) * EPS * size
    d = policy.profile.d[owner]
    kappa = max(0.0, float(((delta - b + noise) / d).max()))
    rounding = part.start_roundings * EPS * (part.alpha * float(part.from_start(np.abs(h))) + abs(b))
    pad = float((noise / d).max()) * omega + rounding
    here = delta[policy.choice]
    off = np.abs(here - b)  # where the values at hand are not exact, only what is clearly better is taken
    error = float(((off + noise[policy.choice]) / d[policy.choice]).max()) * omega
    if np.isfinite(error) and error > WILD:
        off += min(10 * error, 1e-3 * float((delta - here[owner]).max()))
    better = np.where(delta > (np.maximum(here, b) + off)[owner] + 2 * noise, delta, -np.inf)
    better[policy.choice] = delta[policy.choice]
    choice = part.rows.best(better)
    return Step(start + b + kappa * omega + rounding, pad, choice, int((choice != policy.choice).sum()))


def _over(part: ScaledPart, policy: PolicyValues, weights: FloatArray, o: FloatArray) -> FloatArray:
    """[S], by how much the best row of each state is better than the policy, by the policy's values."""
    (delta,), _ = part.changes(o[None], combined(weights, policy.Y.T)[None])
    return np.maximum(np.maximum.reduceat(delta, part.rows.firsts) - float(policy.level @ weights), 0.0)


def price(part: ScaledPart, policy: PolicyValues, weights: FloatArray, slack: float) -> PolicyValues:
    """A policy within `slack` of the most that weights . values can be, as far as rounding allows, and the bound."""
    o, upper, scale = combined(weights, part.X), np.inf, float(np.abs(weights).sum())
    if not np.isfinite(policy.error).all():
        policy = certify(part, policy, policy.choice, weights)
    for _ in range(part.S + IMPROVEMENTS):
        step = improve(part, policy, weights, o)
        upper = min(upper, step.bound)
        lack = upper - float(weights @ policy.values) + float(np.abs(weights) @ policy.error)
        if lack <= slack or step.moved == 0:
            break
        policy = certify(part, policy, step.choice, weights)
    if step.pad > COARSE * scale and not part.endless:  # the profile was made for other policies
        policy = profiled(part, policy, weights)
        policy = certify(part, policy, policy.choice, weights)
        step = improve(part, policy, weights, o)
        upper = min(upper, step.bound)
    left = upper - float(weights @ policy.values)
    if step.moved == 0 and left > max(slack, COARSE * scale) and not part.endless:
        with suppress(TooLong):  # then the bound stays as it is
            sharper = profiled(part, policy, weights, _over(part, policy, weights, o))
            sharper = certify(part, sharper, sharper.choice, weights)
            again = improve(part, sharper, weights, o)
            if again.bound < upper:
                policy, step, upper = sharper, again, again.bound
    return policy._replace(bound=upper, pad=step.pad)


CAREFUL = Methods(  # values are always as exact as they can be, whatever is asked for
    True,
    lambda part, before, choice, tol, weights: certify(part, before, choice, weights),
    lambda part, policy, weights, slack, accuracy: price(part, policy, weights, slack),
)


def methods_for(S: int) -> Methods:
    """The methods for a part with S states of which nothing else is known."""
    return CAREFUL if S <= DIRECT_STATES else QUICK
