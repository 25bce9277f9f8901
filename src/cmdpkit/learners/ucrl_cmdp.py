"""UCRL-CMDP: plan in the best model that the data allow, with the extended program for long-run averages.

Singh, Gupta, Shroff, "Learning in Markov decision processes under constraints" (arXiv 2002.12435). The guarantee is
from the abstract: an expected vector of regrets, of reward and of every constraint, of order T^(2/3), for unichain
models that mix uniformly. The program below is as in the paper; the constants c and b of the radius are from memory.

    epochs of ceil(T^(1/3)) steps; at the start of each, with n(s, a) visits and observed frequencies p_hat,
    eps(s, a) = sqrt(c log(t^b S A) / n(s, a)),  b > 1
    maximise <z, r> over z(s, a, s') >= 0 with
        (p_hat - eps) sum_s'' z(s, a, s'') <= z(s, a, s') <= (p_hat + eps) sum_s'' z(s, a, s''),
        sum_{a, s'} z(s, a, s') = sum_{s', a'} z(s', a', s),   sum z = 1,   <z, g_n> >= rho_n
    play pi(a|s) = z(s, a, .) / z(s, ., .) until the epoch ends

The extreme points of this program are recurrent classes of deterministic policies with an extreme kernel each, so that
column generation solves it (`cmdpkit.exact.columns`). A mixture of such points is a point of the same polytope, so one
kernel of the box can be read off it, and the policy is the optimum of that model. Pricing is relative value iteration
in which every row takes the best distribution of the box, as in UCRL2 (Jaksch, Ortner, Auer 2010). For any h and the
improved (T h)(s) = max over a and p of o(s, a) + p h, no policy under any kernel of the box has more of the objective o
than max_s (T h - h)(s): the proof in `cmdpkit.exact.stationary.parts` holds with the actions (a, p). O(S^2 A) work per
sweep. Memory O(S^2 A).

Departures. Signals are the observed means, and 1 where nothing was seen (that the paper takes them as known is from
memory). Where no kernel of the box has a policy within the bounds, the paper plays any policy (memory); here it is the
one that misses the worst bound by least. The bounds cannot be loosened to trade the regret of one constraint for that
of another, as the paper allows. In a discounted problem the box is that of the world that begins again. The policy
returned is the best one of the mean model that does not rely on luck (`proven_model` of
`cmdpkit.estimate.continuing`). "practical": c = 1e-4; an epoch lasts until the visits of some action in some
state have doubled; and an action that was tried `few` times leads only where it has led to: a full queue that is not
served would otherwise be believed to empty itself, however seldom. c and few are the best of four settings on
development problems (`bench/history/settings.md`, in a clone).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from cmdpkit.estimate.boxes import Box, PairSource
from cmdpkit.estimate.continuing import Model, box_around, hopeful_means
from cmdpkit.exact.columns import Columns, PolicyColumn
from cmdpkit.learners import Params, Spec
from cmdpkit.learners._continuing import Player, planned
from cmdpkit.learners.params import above_one, at_least_one, at_least_zero, not_negative
from cmdpkit.model.compiled import compiled, readonly
from cmdpkit.model.tolerances import FEASIBLE, MAX_UNEXPLAINED_GAP, NEGLIGIBLE, PRICED
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.operators.chain_systems import DAMPING
from cmdpkit.operators.chains import Chain, closed_classes, within
from cmdpkit.operators.row_lists import rows_of
from cmdpkit.operators.rows import prepare, push, row_of
from cmdpkit.operators.steps import bellman
from cmdpkit.simulate.random import Stream


@dataclass(frozen=True)
class BoxParams(Params):
    """Numbers that do not change during a run; the default is the practical preset."""

    c: float = not_negative(1e-4)  # multiplies the logarithm inside the radius
    power: float = above_one(2.0)  # b, the power of t in the logarithm
    few: int = at_least_one(20)  # tries after which a pair leads only where it has led to
    epoch: int = at_least_zero(0)  # steps of an epoch; 0: until the visits of a pair have doubled


def theory(spec: Spec) -> BoxParams:
    """Constants of the paper, as far as they are remembered."""
    return BoxParams(c=1.0, few=2**62, epoch=math.ceil(spec.K ** (1 / 3)))


class UCRLCMDP(Player):
    """UCRL-CMDP at work; keyword arguments other than preset change single parameters.

    >>> import cmdpkit as ck
    >>> ck.learn("machine-two", "ucrl-cmdp", steps=1000).policy.pi.shape
    (1, 2, 3)
    """

    title = "UCRL-CMDP: plans in the best model the data allow, for averages and discounted totals."
    guarantee = "expected regret and violation of order T^(2/3) for unichain models that mix uniformly"
    paper = "arXiv 2002.12435"
    source = "memory"
    presets = {"practical": BoxParams(), "theory": theory}
    params: BoxParams

    def decide(self, rng: Stream) -> None:
        """Plan with all kernels of the box, until the epoch ends."""
        spec, p = self.spec, self.params
        if not p.epoch:
            self.begin_epoch()
        log = p.c * (p.power * math.log(max(self.steps, 1)) + math.log(spec.S * spec.A))
        seen = self.seen()
        radius = np.sqrt(log / np.maximum(self.counts.visits, 1))
        box = box_around(seen, lambda q, row: radius[row], p.few)
        model = optimistic_model(box, hopeful_means(seen), spec.rho, spec.allowed[0])
        self.follow(planned(model, spec.rho))
        self.wait(p.epoch or spec.K)


# -- The extended program: the best policy and kernel of a box together.


class ContinuingBoxSource(PairSource):
    """Columns of the extended program: recurrent classes of the best pair of a policy and a kernel of the box.

    The `plan` of a column holds the rows of its class, their shares of time, and their kernel [rows, S]. Pricing takes
    at most `sweeps`; a box that needs more only gets a looser upper bound.
    """

    exact = False

    def __init__(self, box: Box, signals: FloatArray, allowed: BoolArray, sweeps: int = 20_000) -> None:
        super().__init__(box, signals[:, None], allowed[None], 1, np.ones(len(signals)))
        self.box, self.sweeps = box, sweeps
        self.h, self.choice = np.zeros((2, len(allowed))), np.zeros(len(allowed), dtype=np.int64)

    def price(self, weights: FloatArray, slack: float) -> tuple[float, list[PolicyColumn]]:
        """An upper bound on weights . (v, w) over all pairs, and the classes of a pair that nearly reaches it."""
        _, S, A = self._allowed.shape
        X, goal = self.x.reshape(1 + self.N, S * A), max(PRICED * float(np.abs(weights).sum()), slack)
        objective = readonly((weights @ X).reshape(1, S, A))
        upper = float(_iterate(self.box.rows, objective, self._allowed, goal, self.sweeps, self.h, self.choice))
        rows = np.arange(S) * A + self.choice
        kernel = written(self.box, rows)
        P, columns = sparse.csr_array(kernel), []
        for members in closed_classes(P):
            q = np.maximum(Chain(within(P, members)).flow(np.zeros(len(members)), 1.0), 0.0)
            shares = q / q.sum()
            v, *w = X[:, rows[members]] @ shares
            plan = rows[members], shares, kernel[members]
            columns.append(PolicyColumn(rows, float(v), np.array(w), weights, 0.0, plan=plan))
        columns.sort(key=lambda c: -float(weights @ np.append(c.v, c.w)))  # the best class first
        return upper, columns


def optimistic_model(box: Box, signals: FloatArray, rho: FloatArray, allowed: BoolArray) -> Model:
    """The model of the box in which the best policy with utilities of at least rho [N] has most reward.

    signals [1 + N, S, A], allowed [S, A]. If no policy reaches rho in any model of the box, it is the model in which
    the worst bound is missed least. Pairs that the best policy does not use have the kernel that is best for it.
    """
    pool = Columns(ContinuingBoxSource(box, signals, allowed), FEASIBLE, MAX_UNEXPLAINED_GAP)
    best = pool.optimum(rho)
    weights = pool.reach(rho, np.ones(len(rho)), enough=0.0)[1] if best is None else best.weights
    kernel = written(box, np.arange(allowed.size))
    q, flow = np.zeros(len(kernel)), np.zeros(kernel.shape)
    for weight, column in pool.parts(weights):
        rows, shares, taken = column.plan
        q[rows] += weight * shares
        flow[rows] += (weight * shares)[:, None] * taken
    used = q > NEGLIGIBLE
    kernel[used] = without_rounding(flow[used] * (1.0 / q[used])[:, None])
    return Model(rows_of(kernel), signals[0], signals[1:], box.start.lo, allowed, "average")


def written(box: Box, rows: IntArray) -> FloatArray:
    """The best rows [rows, S] of a box without a horizon, for the values that it was asked about last."""
    kernel = np.zeros((len(rows), len(box.start.lo)))
    _write(box.rows, rows, kernel)
    return without_rounding(kernel)


def without_rounding(P: FloatArray) -> FloatArray:
    """Transition rows without probabilities that rounding left, which would connect what nothing connects."""
    return np.where(P < NEGLIGIBLE, 0.0, P)


@compiled
def _iterate(rows, objective, allowed, closed, sweeps, h, choice):
    """Improve h[0] [S] until the span of its change is at most `closed`; fill choice [S] of the best pair.

    There are at most `sweeps`. Returns the largest change of the last one, which no pair exceeds.
    """
    S, (now, then) = len(choice), h
    for sweep in range(sweeps):
        prepare(rows, 0, now)
        bellman(rows, objective, allowed, 0, 0, S, now, then, choice)
        low, high = np.inf, -np.inf
        for s in range(S):
            low, high = min(low, then[s] - now[s]), max(high, then[s] - now[s])
        if high - low <= closed or sweep + 1 == sweeps:
            break
        base = now[0] + DAMPING * (then[0] - now[0])
        for s in range(S):
            now[s] += DAMPING * (then[s] - now[s]) - base
    return high


@compiled
def _write(rows, wanted, kernel):
    for i in range(len(wanted)):
        s, a = wanted[i] // rows.A, wanted[i] % rows.A
        push(rows, row_of(rows, 0, s, a), 1.0, kernel[i])
