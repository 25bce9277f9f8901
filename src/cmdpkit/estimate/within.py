"""Intervals around everything counted, and inductions over all models within them.

**Intervals.** They are for the mean of numbers in [0, 1], and hold at all times at once, however the numbers came
about. Let x_1, x_2, ... in [0, 1] have conditional mean m given what came before, and k = x_1 + .. + x_n. With
probability at least 1 - d, for all n at once, m lies in

    C_n = { m : k ln m + (n-k) ln(1-m) >= ln B(k+1/2, n-k+1/2) - ln pi - ln(1/d) }.

The proof is Lemma A of docs/theory/guarantees.md. C_n is an interval around k/n, because the left side is concave.
Newton's method from a point outside of the interval never enters it, for the same reason: a tangent lies above a
concave function. So every iterate is an end that holds, and rounding is met by a little more than ln(1/d).

**Inductions.** They find the best pair of a policy and a model, and a policy's extreme totals. The rows of the models
are as sparse as the counts: next states that were seen have an interval each, and all others share one largest
probability. Given the values of the next step, the best row begins with the smallest probabilities and gives what is
missing to the states of largest value first. One sort of the states serves all rows of a step.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.extended import sort_descending
from cmdpkit.model.compiled import compiled, inlined, internal
from cmdpkit.model.tolerances import LGAMMA_ERROR, ROUNDOFF, STIRLING_ERROR
from cmdpkit.model.transitions import FloatArray, IntArray

STIRLING_FROM = 16.0  # the logarithm of the gamma function is taken from Stirling's series from here on


class Sides(NamedTuple):
    """The intervals, with the numbers of observations that they rest on; compiled code fills the arrays."""

    lo: FloatArray  # [capacity]: smallest probability of each transition in the lists of `Counts`
    up: FloatArray  # [capacity]: the largest
    unseen: FloatArray  # [cells]: the largest probability of any one next state that was never seen
    spare: FloatArray  # [cells]: 1 - sum of lo, the probability that is still to be given out
    moves: IntArray  # [cells]: moves that these rest on
    least: FloatArray  # [cells, M]: smallest mean of each signal
    most: FloatArray  # [cells, M]: the largest
    visits: IntArray  # [cells]: visits that these rest on
    start_lo: FloatArray  # [S]: smallest probability of starting in each state
    start_up: FloatArray  # [S]: the largest


class Work(NamedTuple):
    """What an induction finds, and its working memory."""

    V: FloatArray  # [H+1, S, 1 + M]: values of the objective, then of the signals
    choice: IntArray  # [H, S]: the action of a policy that was chosen
    order: IntArray  # [S]: states by falling value of the next step
    room: FloatArray  # [S]: -1, or how much more than its least a next state of the row at hand can get
    bounds: FloatArray  # [A]: no less than the value of each action
    totals: FloatArray  # [1 + M]: expectations of the objective and of the signals


def new_sides(T: int, S: int, A: int, M: int) -> Sides:
    """Nothing known yet; T is 1 where all steps share their counts, else H."""
    cells = T * S * A
    return Sides(
        lo=np.zeros(0),
        up=np.zeros(0),
        unseen=np.ones(cells),
        spare=np.ones(cells),
        moves=np.full(cells, -1),
        least=np.zeros((cells, M)),
        most=np.ones((cells, M)),
        visits=np.full(cells, -1),
        start_lo=np.zeros(S),
        start_up=np.ones(S),
    )


def new_work(H: int, S: int, A: int, M: int) -> Work:
    """Arrays for inductions to fill."""
    return Work(
        V=np.zeros((H + 1, S, 1 + M)),
        choice=np.zeros((H, S), dtype=np.int64),
        order=np.arange(S),
        room=np.full(S, -1.0),
        bounds=np.zeros(A),
        totals=np.zeros(1 + M),
    )


@inlined
def ends_of(k, n, log):
    """Both ends of C_n for a sum k of n numbers, with log = ln(1/d); 0 and 1 without any numbers.

    >>> low, high = ends_of(30.0, 100, math.log(20))
    >>> round(low, 3), round(high, 3), ends_of(0.0, 0, 1.0)
    (0.166, 0.463, (0.0, 1.0))
    """
    if n == 0:
        return 0.0, 1.0
    b = allowed_of(k, n, terms_of(n, log))
    return lower_end(k / n, b), upper_end(k / n, b)


@internal
def terms_of(n, log):
    """The terms of `allowed_of` that depend on n alone, without and with Stirling's series, for n > 0."""
    log += LGAMMA_ERROR * (n + 1.0) * math.log(n + 3.0) + STIRLING_ERROR
    return log + math.log(math.pi) + _lgamma(n + 1.0), log + 0.5 * math.log(0.5 * math.pi * n) + 1.0 / (12.0 * n)


@internal
def allowed_of(k, n, terms):
    """The largest kl(k/n, m) of any m in C_n."""
    rest = n - k
    if min(k, rest) >= STIRLING_FROM:  # the entropy of k/n cancels in Stirling's series
        return (terms[1] + (1.0 / k + 1.0 / rest) / 24.0) / n
    beyond = terms[0] - _lgamma(k + 0.5) - _lgamma(rest + 0.5)
    if k > 0.0:
        beyond += k * math.log(k / n)
    return (beyond + rest * math.log(rest / n) if rest > 0.0 else beyond) / n


@internal
def upper_end(p, b):
    """The largest m with kl(p, m) <= b, or a little more."""
    return min(1.0 - lower_end(1.0 - p, b) + 2.0**-52, 1.0)


@internal
def _lgamma(x):
    """The logarithm of the gamma function, by Stirling's series where that is exact enough."""
    if x < STIRLING_FROM:
        return math.lgamma(x)
    y = 1.0 / (x * x)
    return (x - 0.5) * math.log(x) - x + 0.9189385332046727 + (1.0 / 12.0 - y * (1.0 / 360.0 - y / 1260.0)) / x


@internal
def lower_end(p, b):
    """The smallest m with kl(p, m) <= b, or a little less.

    Newton's method begins outside of the interval: kl(p, m) is the integral of (p-x) / (x(1-x)) from m to p, and x(1-x)
    is at most p(1-m) and at most 1/4, so that kl(p, m) is at least (p-m)^2 / (2p(1-m)) and at least 2 (p-m)^2. Where
    both would begin below 0, it begins where p ln(p/m) + (1-p) ln(1-p), which is less than kl(p, m), has reached b.
    """
    if p <= 0.0:
        return 0.0
    if p >= 1.0:
        return math.exp(-b)
    q, pb = 1.0 - p, p * b
    m = p - min(pb + math.sqrt(pb * (pb + 2.0 * q)), math.sqrt(0.5 * b))
    if m <= 0.0:
        m = p * math.exp((q * math.log(q) - b) / p)
        if m < 1e-290:
            return 0.0
    for _ in range(60):  # two are usual
        beyond = -p * math.log(m / p) - q * math.log((1.0 - m) / q) - b
        step = beyond / (p / m - q / (1.0 - m))
        if not step > 0.0:
            break
        m += step
        if step <= 0.01 * (p - m):  # the error is then less than a thousandth of the width
            break
    return m


@compiled
def update_sides(counts, sides, log, noiseless):
    """Fill `sides` (Sides) for all rows that were visited since; log is the logarithm of intervals / delta."""
    M = sides.least.shape[1]
    for cell in range(len(sides.moves)):
        n = counts.moves[cell]
        if n != sides.moves[cell]:
            sides.moves[cell] = n
            terms, total = terms_of(max(n, 1), log), 0.0
            j = counts.head[cell]
            while j >= 0:
                p, b = counts.times[j] / n, allowed_of(float(counts.times[j]), n, terms)
                sides.lo[j], sides.up[j] = lower_end(p, b), upper_end(p, b)
                total += sides.lo[j]
                j = counts.link[j]
            sides.spare[cell] = max(1.0 - total, 0.0)
            sides.unseen[cell] = upper_end(0.0, allowed_of(0.0, n, terms)) if n else 1.0
        n = counts.visits[cell]
        if n != sides.visits[cell]:
            sides.visits[cell] = n
            terms = terms_of(max(n, 1), log)
            for m in range(M):
                error = n * ROUNDOFF  # of a sum of n numbers, relative to it
                low, high = counts.moments[cell, m] * (1.0 - error), counts.moments[cell, m] * (1.0 + error)
                if n == 0:
                    sides.least[cell, m], sides.most[cell, m] = 0.0, 1.0
                elif noiseless:
                    sides.least[cell, m], sides.most[cell, m] = max(low / n, 0.0), min(high / n, 1.0)
                else:
                    high = min(high, float(n))
                    sides.least[cell, m] = lower_end(low / n, allowed_of(low, n, terms))
                    sides.most[cell, m] = upper_end(high / n, allowed_of(high, n, terms))
    episodes = counts.starts.sum()
    for s in range(len(counts.starts)):
        sides.start_lo[s], sides.start_up[s] = ends_of(float(counts.starts[s]), episodes, log)


@internal
def _at_most(counts, sides, cell, work, V):
    """No less than the largest expectation of V [S, 1 + M] over a row, found without dividing what is missing."""
    value = sides.spare[cell] * V[work.order[0], 0]
    j = counts.head[cell]
    while j >= 0:
        value += sides.lo[j] * V[counts.state[j], 0]
        j = counts.link[j]
    return value


@internal
def _expected(counts, sides, cell, work, V, K):
    """Fill work.totals [K] with expectations of columns of V [S, 1 + M], over the row where that of V[:, 0] is largest.

    work.order lists the states by falling V[:, 0].
    """
    for k in range(K):
        work.totals[k] = 0.0
    j = counts.head[cell]
    while j >= 0:
        s = counts.state[j]
        for k in range(K):
            work.totals[k] += sides.lo[j] * V[s, k]
        work.room[s] = sides.up[j] - sides.lo[j]
        j = counts.link[j]
    missing, i = sides.spare[cell], 0
    while missing > 0.0 and i < len(work.order):
        s = work.order[i]
        more = min(sides.unseen[cell] if work.room[s] < 0.0 else work.room[s], missing)
        for k in range(K):
            work.totals[k] += more * V[s, k]
        missing -= more
        i += 1
    j = counts.head[cell]
    while j >= 0:
        work.room[counts.state[j]] = -1.0
        j = counts.link[j]
    return work.totals[0]


@internal
def _from_start(sides, work, V, K):
    """The same as `_expected` over start distributions; orders the states itself."""
    sort_descending(V[:, 0], work.order)
    missing = 1.0
    for k in range(K):
        work.totals[k] = 0.0
    for s in range(len(V)):
        missing -= sides.start_lo[s]
    for i in range(len(V)):
        s = work.order[i]
        more = max(min(sides.start_up[s] - sides.start_lo[s], missing), 0.0)
        for k in range(K):
            work.totals[k] += (sides.start_lo[s] + more) * V[s, k]
        missing -= more
    return work.totals[0]


@internal
def _begin(work):
    """Prepare an induction: nothing follows the last step, and the order is fresh, so that ties break alike."""
    for s in range(len(work.order)):
        work.order[s] = s
        work.V[len(work.V) - 1, s] = 0.0


@compiled
def best_pair(counts, sides, weights, allowed, work):
    """Fill work.choice, V and totals with the pair of a policy and a model that has most of weights . signals."""
    H, S, A = allowed.shape
    M = len(weights)
    T = len(counts.head) // (S * A)
    _begin(work)
    for h in range(H - 1, -1, -1):
        V, first = work.V[h + 1], (0 if T == 1 else h) * S * A
        sort_descending(V[:, 0], work.order)
        for s in range(S):
            best, best_value = 0, -np.inf
            for a in range(A):
                work.bounds[a] = -np.inf
                if allowed[h, s, a]:
                    work.bounds[a] = V[work.order[0], 0]
                    for m in range(M):
                        work.bounds[a] += weights[m] * sides.most[first + s * A + a, m]
            while True:  # the most promising action comes first; most others are then known to be worse
                a = work.bounds.argmax()
                if not work.bounds[a] > best_value:
                    break
                cell, signal = first + s * A + a, work.bounds[a] - V[work.order[0], 0]
                work.bounds[a] = -np.inf
                if signal + _at_most(counts, sides, cell, work, V) <= best_value:
                    continue
                value = signal + _expected(counts, sides, cell, work, V, 1 + M)
                if value > best_value:
                    best, best_value = a, value
                    for m in range(M):
                        work.V[h, s, 1 + m] = sides.most[cell, m] + work.totals[1 + m]
            work.choice[h, s], work.V[h, s, 0] = best, best_value
    _from_start(sides, work, work.V[0], 1 + M)


@internal
def extreme_total(counts, sides, signals, m, sign, pi, work):
    """The smallest (sign -1) or largest (sign 1) total of signal m of signals [cells, M] under pi; fills sign * V."""
    H, S, A = pi.shape
    T = len(counts.head) // (S * A)
    _begin(work)
    for h in range(H - 1, -1, -1):
        V, first = work.V[h + 1], (0 if T == 1 else h) * S * A
        sort_descending(V[:, 0], work.order)
        for s in range(S):
            total = 0.0
            for a in range(A):
                if pi[h, s, a] > 0.0:
                    cell = first + s * A + a
                    total += pi[h, s, a] * (sign * signals[cell, m] + _expected(counts, sides, cell, work, V, 1))
            work.V[h, s, 0] = total
    return sign * _from_start(sides, work, work.V[0], 1)


@compiled
def extreme_totals(counts, sides, pi, work, found):
    """Fill found [M, 2] with the smallest and largest totals of pi; work.V is left with minus the smallest values."""
    for m in range(len(found) - 1, -1, -1):
        found[m, 1] = extreme_total(counts, sides, sides.most, m, 1.0, pi, work)
        found[m, 0] = extreme_total(counts, sides, sides.least, m, -1.0, pi, work)


@compiled
def most_unknown(counts, sides, allowed, work, choice):
    """Fill choice [H, S] with the actions of largest X (see docs/theory/guarantees.md); returns eps_t."""
    H, S, A = allowed.shape
    T, M = len(counts.head) // (S * A), sides.least.shape[1]
    _begin(work)
    for h in range(H - 1, -1, -1):
        V = work.V[h + 1]
        sort_descending(V[:, 0], work.order)
        left = H - h - 1
        for s in range(S):
            best, best_value = 0, -np.inf
            for a in range(A):
                if allowed[h, s, a]:
                    cell = ((0 if T == 1 else h) * S + s) * A + a
                    value = 0.0
                    for m in range(M):
                        value = max(value, sides.most[cell, m] - sides.least[cell, m])
                    if left > 0:
                        seen, widths, j = 0, 0.0, counts.head[cell]
                        while j >= 0:
                            seen, widths, j = seen + 1, widths + sides.up[j] - sides.lo[j], counts.link[j]
                        widths += (S - seen) * sides.unseen[cell]
                        value += left * min(1.0, widths / 2)
                        value += _expected(counts, sides, cell, work, V, 1)
                    value = min(value, left + 1.0)
                    if value > best_value:
                        best, best_value = a, value
            choice[h, s], work.V[h, s, 0] = best, best_value
    widths = 0.0
    for s in range(S):
        widths += sides.start_up[s] - sides.start_lo[s]
    total = H * min(1.0, widths / 2) + _from_start(sides, work, work.V[0], 1)
    return min(total, float(H))


@compiled
def add_parts(counts, sides, signals, weights, pi, sign, work, flow, amounts):
    """Add to amounts [cells] what the intervals allow beyond the estimate, times expected visits in the estimate.

    The values that work.V has of pi are `sign` times its extreme values in the models within the intervals.
    """
    H, S, A = pi.shape
    T, M = len(counts.head) // (S * A), len(weights)
    episodes = max(counts.starts.sum(), 1)
    for s in range(S):
        flow[0, s], work.order[s] = counts.starts[s] / episodes, s
    for h in range(H):
        now, then = flow[h % 2], flow[(h + 1) % 2]
        then[:] = 0.0
        V = work.V[h + 1]
        sort_descending(V[:, 0], work.order)
        for s in range(S):
            for a in range(A):
                mass = now[s] * pi[h, s, a]
                if mass == 0.0:
                    continue
                cell = ((0 if T == 1 else h) * S + s) * A + a
                beyond = 0.0
                for m in range(M):
                    mean = counts.moments[cell, m] / max(counts.visits[cell], 1)
                    beyond += sign * weights[m] * (signals[cell, m] - mean)
                if h + 1 < H:
                    beyond += _expected(counts, sides, cell, work, V, 1)
                    n = counts.moves[cell]
                    if n == 0:  # the estimated model stays where it is
                        beyond -= V[s, 0]
                        then[s] += mass
                    j = counts.head[cell]
                    while j >= 0:
                        p = counts.times[j] / n
                        beyond -= p * V[counts.state[j], 0]
                        then[counts.state[j]] += mass * p
                        j = counts.link[j]
                amounts[cell] += mass * beyond
