"""Chen-Jain-Luo: short segments, each planned as a problem with a horizon from the present state.

Chen, Jain, Luo, "Learning infinite-horizon average-reward Markov decision processes with constraints" (arXiv
2202.00150), the algorithm for weakly communicating models (Algorithm 3, equations 6 and 7). Guarantee (Theorem 2), with
probability 1 - 10 delta: regret of order (1 + span of reward) (S^2 A)^(1/3) T^(2/3), violation likewise:

    segments of L = ceil((T / (S^2 A))^(1/3)) steps; at the start of each, from the present state, with n(s, a) visits,
    radius(s, a, s') = 4 sqrt(p_hat x) + 28 x,   x = c log(2 S A T / delta) / n(s, a),   c = 1
    the best policy of L steps over all kernels of the box p_hat +- radius, with expected utilities of at least
    L rho_n - span_n in L steps; play it until the segment ends

span_n bounds the span of the relative values of utility n, and must be known. The program is that of `opt-cmdp`
(`cmdpkit.estimate.boxes`) with the present state as the start. Per plan: column generation, each column at
most O(L S^2 A). Memory O(S^2 A).

The algorithm of the same paper for ergodic models (Algorithm 1: regret of order sqrt(T), constant violation) must know
mixing and hitting times and a safe cost. It plays a policy for a segment, estimates action values from the means of
windows that begin at visits of a state, takes a mirror step with a bonus on the simplex with probabilities of at least
1 / T, and moves the price by one unit of the segment's mean cost. Its printed constants are vacuous (a scale above
2^10 sqrt(S^2 A T)), and its authors' experiment ignores them; it is left out, and so is Algorithm 4, with a constraint
on spans, which cannot be computed.

Departures. Reward and costs are known in the paper; here signals are the observed means, and 1 where nothing was seen.
Where no kernel of the box has a policy within the bounds, the plan is the pair that misses them least. span_n is the
parameter `span` times L for all n, 0 unless told otherwise, as in the public code of arXiv 2405.19017; with 0 the
bounds are those of every segment, which is stricter than the paper from bad states. In a discounted problem the box is
that of the world that begins again. The returned policy is the best one of the mean model that does not rely on luck
(`proven_model` of `cmdpkit.estimate.continuing`). "practical": L = 50; c = 1e-6; an action that was tried `few` times
leads only where it has led to. L and c are the best of four settings on development problems
(`bench/history/settings.md`, in a clone). Plans may lack a reward of `gap` per step. And a plan serves later segments
from the same state too, until the next one is due by the rule of `cmdpkit.learners._model_based.settings`:

    error = sum of q(s, a) / sqrt(n(s, a)),    2 in place of 1 / sqrt(n) where nothing was seen,

with the visits q(s, a) that the plan expects, must have fallen by the share `replan` since the plan was made, or the
number of steps must have doubled. Memory is then O(S^2 A L); in large models fewer than S plans are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.estimate.boxes import ExtendedPlan, plan
from cmdpkit.estimate.continuing import box_around, hopeful_means
from cmdpkit.learners._continuing import Planned, Player
from cmdpkit.learners._model_based.settings import error_of
from cmdpkit.learners.params import NEVER, Params, Spec, at_least_one, below_one, not_negative, probability
from cmdpkit.model.transitions import FloatArray, IntArray
from cmdpkit.simulate.random import Stream


@dataclass(frozen=True)
class SegmentParams(Params):
    """Numbers that do not change during a run; the default is the practical preset."""

    segment: int = at_least_one(50)  # L, steps of a segment
    c: float = not_negative(1e-6)  # multiplies the logarithm inside the radius: 1 is the theory, less is bolder
    delta: float = probability(0.1)  # probability with which the box may fail
    span: float = not_negative(0.0)  # by how much bounds are loosened per step of a segment, unit scale
    few: int = at_least_one(20)  # tries after which a pair leads only where it has led to
    replan: float = below_one(0.02)  # share by which the error of a plan must have fallen for a new one; 0: always one
    gap: float = not_negative(1e-5)  # reward per step, unit scale, that plans may lack; 0: only what rounding takes


class Kept(NamedTuple):
    """The last plans. That of segments from state s is in place s modulo the number of places."""

    start: IntArray  # [places], the state for which the plan was made; -1 as long as there is none
    made: IntArray  # [places], the step at which it was made
    pi: FloatArray  # [places, L, S, A], what it plays
    visits: FloatArray  # [places, S, A], what it expects to visit in a segment
    error: FloatArray  # [places], its error when it was made
    lam: FloatArray  # [places, N], its prices, near which those of the next one are looked for

    @classmethod
    def none(cls, spec: Spec, L: int, most: int = 2_000_000) -> Kept:
        """No plan was made yet; all together may consist of `most` numbers (16 MB), or there is a single place."""
        S, A = spec.S, spec.A
        places = min(S, max(1, most // (L * S * A)))
        return cls(
            start=np.full(places, -1),
            made=np.zeros(places, dtype=np.int64),
            pi=np.zeros((places, L, S, A)),
            visits=np.zeros((places, S, A)),
            error=np.zeros(places),
            lam=np.zeros((places, spec.N)),
        )


def theory(spec: Spec) -> SegmentParams:
    """Constants of the paper, as far as they are known."""
    return SegmentParams(
        segment=math.ceil((spec.K / (spec.S**2 * spec.A)) ** (1 / 3)), c=1.0, few=NEVER, replan=0.0, gap=0.0
    )


class ChenJainLuo(Player):
    """Chen-Jain-Luo at work; keyword arguments other than preset change single parameters.

    >>> import cmdpkit as ck
    >>> from cmdpkit.simulate.random import stream
    >>> from cmdpkit.simulate.meter import Walk
    >>> cmdp = ck.load("machine-two")
    >>> learner = ChenJainLuo(Spec.of(cmdp, K=10_000))
    >>> returns = learner.walk(Walk.of(cmdp), stream(1), 10_000)
    >>> learner.internals()["plans"]  # for 201 segments of 50 steps, of which the last one begins after the run
    92
    """

    title = "Chen-Jain-Luo: plans short segments from the present state, for averages and discounted totals."
    guarantee = "regret and violation of order T^(2/3) for weakly communicating models whose spans are known"
    paper = "arXiv 2202.00150"
    source = "text"
    presets = {"practical": SegmentParams(), "theory": theory}
    params: SegmentParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.pi = np.repeat(self.pi, self.params.segment, axis=0)  # one policy per step of a segment
        self.kept = Kept.none(spec, self.params.segment)

    def decide(self, rng: Stream) -> None:
        """Play the next segment: by a new plan from the present state, or by the last one if none is due."""
        s, kept = int(self.position.place[0]), self.kept
        place = s % len(kept.start)
        if self._is_due(s, place):
            found = self._planned(kept.lam[place])
            self.follow(Planned(found.pi, found.feasible))
            self._keep(found, s, place)
        else:
            self.pi[...] = kept.pi[place]
        self.wait(self.params.segment)

    def _planned(self, guess: FloatArray) -> ExtendedPlan:
        """The plan for a segment from the present state; its prices are looked for near a guess [N]."""
        spec, p, seen = self.spec, self.params, self.seen()
        x = p.c * math.log(2 * spec.S * spec.A * spec.K / p.delta) / np.maximum(self.counts.visits, 1)
        box = box_around(seen, lambda q, row: 4 * np.sqrt(q * x[row]) + 28 * x[row], p.few, p.segment)
        bounds = p.segment * (spec.rho - p.span)
        return plan(box, hopeful_means(seen)[:, None], bounds, spec.allowed, p.segment, guess=guess, gap=p.gap)

    def _is_due(self, s: int, place: int) -> bool:
        """Whether a segment from state s needs a new plan."""
        kept = self.kept
        if self.params.replan == 0 or kept.start[place] != s or self.steps >= 2 * kept.made[place]:
            return True
        return self._error(kept.visits[place]) <= (1 - self.params.replan) * float(kept.error[place])

    def _error(self, visits: FloatArray) -> float:
        """How wrong the prediction of a plan with these expected visits [S, A] may be by now, up to a factor."""
        return float((visits * error_of(self.counts.visits.reshape(visits.shape))).sum())

    def _keep(self, found: ExtendedPlan, s: int, place: int) -> None:
        """Keep a plan for later segments from state s."""
        kept, visits = self.kept, found.q.sum(axis=0)
        kept.start[place], kept.made[place] = s, self.steps
        kept.pi[place], kept.visits[place] = found.pi, visits
        kept.error[place] = self._error(visits)
        kept.lam[place] = found.lam if found.feasible else 0.0
