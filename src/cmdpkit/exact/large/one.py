"""One policy with at most N draws in place of a mixture of at most N + 1 policies.

The parts of the mixture are all nearly optimal at the same prices, so any policy that takes an action of some part in
every state is nearly optimal too; it only has to meet the bounds. Around a policy pi, the totals of another one are

    w(pi') = w(pi) + sum_s d(s) sum_a pi'(a | s) (Q(s, a) - V(s)) ,

exactly with the visits d of pi', and to first order with those of pi, which one transposed pass gives. This is a linear
program with one row for each state in which parts differ and one for each bound, and at an extreme point at most N
states draw. The policy is evaluated, and the program is made again around it, until the bounds are proved to be met.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.exact.highs import INFINITY, answer, configured, program, run
from cmdpkit.exact.large.policy import Draw, LargePart, values_of
from cmdpkit.exact.large.sweeps import Sweeps
from cmdpkit.model.compiled import njit
from cmdpkit.model.functions import LOOSE, Form
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.transitions import FloatArray, IntArray

EXACT = 0.05  # share of the gap that errors of a policy's values may take, in units
ROUNDS = 30  # linear programs that are tried
FAR_ENOUGH = 1e-3  # discounted visits end when this weight is left; the rest is taken to be distributed alike
MOST_PASSES = 2_000  # of discounted visits
INTEGRAL = 1e-9  # a probability this close to 0 or 1 is one of them


def single(
    sweeps: Sweeps, parts: list[LargePart], base: int, rho: FloatArray, units: FloatArray, bound: float, goal: float
) -> tuple[LargePart, FloatArray, FloatArray] | None:
    """A policy with at most N draws, its totals and errors [K]; None if none is found that proves its worth.

    ``base`` is the part to begin with, ``rho`` [N] and ``units`` [1 + N] are those of utilities; the
    policy's value has to be proved within ``goal`` of ``bound``.
    """
    signs, choice = sweeps.model.signs, np.array(parts[base].choice)
    t, s = np.nonzero(np.any([part.choice != choice for part in parts], axis=0))
    options = [sorted({int(part.choice[i, j]) for part in parts}) for i, j in zip(t, s, strict=True)]
    of = np.repeat(np.arange(len(t)), [len(x) for x in options])  # the decision of each pair
    pairs = np.column_stack((t[of], s[of], [a for x in options for a in x])).astype(np.int64).reshape(-1, 3)
    draws: dict[tuple[int, int], Draw] = {}
    best, accuracy = None, EXACT * goal / units[0] * units
    for _ in range(ROUNDS):
        values, half, gains = values_of(sweeps, choice, draws, accuracy, pairs)
        own, short = signs * values, rho - (signs * values - half)[1:]
        if (short <= 0).all() and (best is None or own[0] - half[0] > best[0]):
            best = own[0] - half[0], LargePart(sweeps.model, choice.copy(), dict(draws)), values, half
            if bound - best[0] <= goal:
                return best[1:]
        visits = _visits(sweeps, choice, draws, pairs)
        p = _program(of, (visits[:, None] * gains) * signs / units, (short + 2 * half[1:]) / units[1:])
        if p is None:
            return None
        choice, draws = _rounded(choice, pairs, of, p, sweeps.model.A)
        if len(draws) > sweeps.K - 1:
            return None
    return None


def _program(of: IntArray, gains: FloatArray, short: FloatArray) -> FloatArray | None:
    """Probabilities of the pairs at an extreme point: the largest reward that makes up for what is short, [N]."""
    rows, n = int(of.max(initial=-1)) + 1, len(of)
    N = gains.shape[1] - 1
    start = np.arange(n + 1, dtype=np.int32) * (1 + N)
    index = np.column_stack((of, np.tile(rows + np.arange(N), (n, 1)))).astype(np.int32).reshape(-1)
    matrix = np.column_stack((np.ones(n), gains[:, 1:])).reshape(-1)
    highs = configured()
    low, high = np.append(np.ones(rows), short), np.append(np.ones(rows), np.full(N, INFINITY))
    highs.passModel(program(gains[:, 0], (np.zeros(n), np.ones(n)), (low, high), (start, index, matrix), maximise=True))
    if run(highs) != "optimal":
        return None
    return answer(highs)[0]


def _rounded(
    choice: NDArray[Any], pairs: IntArray, of: IntArray, p: FloatArray, A: int
) -> tuple[NDArray[Any], dict[tuple[int, int], Draw]]:
    """The policy with these probabilities: choices, and the decisions with more than one action."""
    p = np.where(p < INTEGRAL, 0.0, np.where(p > 1 - INTEGRAL, 1.0, p))
    made, draws = choice.copy(), {}
    taken = np.flatnonzero(p == 1.0)
    made[pairs[taken, 0], pairs[taken, 1]] = pairs[taken, 2]
    for i in np.unique(of[(p > 0) & (p < 1)]).tolist():
        mine = np.flatnonzero((of == i) & (p > 0))
        t, s = (int(x) for x in pairs[mine[0], :2])
        draws[t, s] = tuple((int(pairs[j, 2]), float(p[j] / p[mine].sum())) for j in mine)
        made[t, s] = A
    return made, draws


def _visits(sweeps: Sweeps, choice: NDArray[Any], draws: dict[tuple[int, int], Draw], pairs: IntArray) -> FloatArray:
    """Expected discounted visits of a policy to the state of each pair, at its step."""
    model = sweeps.model
    carry, carry_one = carriers(sweeps.form)
    d, found = np.zeros(model.S), np.zeros(len(pairs))
    d[sweeps.starts] += sweeps.start_p
    weight, h = 1.0, 0
    stationary = not model.criterion.has_horizon
    while weight > FAR_ENOUGH and h < MOST_PASSES if stationary else h < len(choice):
        t = 0 if stationary else h
        here = pairs[:, 0] == t
        found[here] += weight * d[pairs[here, 1]]
        then = np.zeros(model.S)
        carry(d, choice[t], then)
        for (at, s), options in draws.items():
            for a, p in options if at == t else ():
                carry_one(s, a, p * d[s], then)
        d = _moved(then, model) if model.noise else then
        weight, h = weight * sweeps.discount, h + 1
    return found / (1 - weight) if stationary else found


def _moved(d: FloatArray, model: Any) -> FloatArray:
    """Visits after the noise of a factored model."""
    for i, part in enumerate(model.noise):
        into = np.zeros((math.prod(model.space[:i]), model.space[i], math.prod(model.space[i + 1 :])))
        blocks = d.reshape(into.shape)
        for j in range(model.space[i]):
            for to, p in zip(part.to[j], part.p[j], strict=True):
                if p > NEGLIGIBLE:
                    into[:, to] += p * blocks[:, j]
        d = into.reshape(-1)
    return d


@lru_cache(maxsize=8)
def carriers(form: Form) -> tuple[Any, Any]:
    """Compiled functions that carry visits on: from all states without a draw, and from one state and action."""
    step, decode, encode, A, events, after = form.step, form.decode, form.encode, form.A, form.events, form.after

    @njit(**LOOSE)
    def carry_one(s, a, mass, out):
        x = decode(s)
        if after is None:
            for e in range(events):
                then, p = step(x, a, e)
                out[encode(then)] += p * mass
        else:
            out[encode(step(x, a))] += mass

    @njit(**LOOSE)
    def carry(d, choice, out):
        for s in range(len(d)):
            if d[s] != 0.0 and choice[s] != A:
                carry_one(s, np.int64(choice[s]), d[s], out)

    return carry, carry_one
