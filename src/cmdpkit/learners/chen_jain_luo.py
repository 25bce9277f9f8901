"""Chen-Jain-Luo: short segments, each planned as a problem with a horizon from the present state.

Chen, Jain, Luo, "Learning infinite-horizon average-reward Markov decision processes with constraints" (arXiv
2202.00150), the algorithm for weakly communicating models (Algorithm 3). The guarantee is from the abstract: regret and
violation of order T^(2/3). The rest is from notes on the paper and from memory, without the text at hand:

    segments of L = ceil((T / (S^2 A))^(1/3)) steps; at the start of each, from the present state, with n(s, a) visits,
    radius(s, a, s') = 4 sqrt(p_hat x) + 28 x,   x = c log(2 S A T / delta) / n(s, a),   c = 1
    the best policy of L steps over all kernels of the box p_hat +- radius, with expected utilities of at least
    L rho_n - span_n in L steps; play it until the segment ends

span_n bounds the span of the relative values of utility n, and must be known. The program is that of `opt-cmdp`
(`cmdpkit.learners._planning.extended`) with the present state as the start. Per plan: column generation, each column at
most O(L S^2 A). Memory O(S^2 A).

The algorithm of the same paper for ergodic models (regret of order sqrt(T), constant violation) must know mixing and
hitting times and is left out, and so is the one with a constraint on spans, which cannot be computed.

Departures. Signals are the observed means, and 1 where nothing was seen. Where no kernel of the box has a policy within
the bounds, the plan is the pair that misses them least. span_n is the parameter `span` times L for all n, 0 unless told
otherwise, as in the public code of arXiv 2405.19017; with 0 the bounds are those of every segment, which is stricter
than the paper from bad states. In a discounted problem the box is that of the world that begins anew. The policy handed
over is the best one of the mean model. "practical": L = 50; c = 1e-6; an action that was tried `few` times leads only
where it has led to. L and c are the best of four settings on development problems (`python -m bench average_settings`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmdpkit.learners._continuing.boxes import box_around, frequencies
from cmdpkit.learners._continuing.models import means
from cmdpkit.learners._continuing.planning import Planned
from cmdpkit.learners._continuing.player import Player
from cmdpkit.learners._planning.extended import plan
from cmdpkit.learners.params import Params
from cmdpkit.learners.spec import Spec
from cmdpkit.model.validate import MIN_DELTA
from cmdpkit.simulate.random import Stream


@dataclass(frozen=True)
class SegmentParams(Params):
    """Numbers that do not change during a run; the default is the practical preset."""

    segment: int = 50  # L, steps of a segment
    c: float = 1e-6  # multiplies the logarithm inside the radius: 1 is the theory, less is bolder
    delta: float = 0.1  # probability with which the box may fail
    span: float = 0.0  # by how much bounds are loosened per step of a segment, unit scale
    few: int = 20  # tries after which a pair leads only where it has led to

    def __post_init__(self) -> None:
        self._expect("segment", self.segment >= 1, "at least 1")
        self._expect("c", 0 <= self.c < math.inf, "a finite number, at least 0")
        self._expect("delta", MIN_DELTA <= self.delta < 1, f"a probability of at least {MIN_DELTA:g} and below 1")
        self._expect("span", 0 <= self.span < math.inf, "a finite number, at least 0")
        self._expect("few", self.few >= 1, "at least 1")


def theory(spec: Spec) -> SegmentParams:
    """Constants of the paper, as far as they are known."""
    return SegmentParams(segment=math.ceil((spec.K / (spec.S**2 * spec.A)) ** (1 / 3)), c=1.0, few=2**62)


class ChenJainLuo(Player):
    """Chen-Jain-Luo at work; keyword arguments other than preset change single parameters.

    >>> import cmdpkit as ck
    >>> from cmdpkit.simulate.random import stream
    >>> from cmdpkit.simulate.steps import Walk
    >>> cmdp = ck.load("machine-two")
    >>> learner = ChenJainLuo(Spec.of(cmdp, K=1000))
    >>> returns = learner.walk(Walk.of(cmdp), stream(1), 1000)
    >>> learner.explain()["plans"]  # one for every segment of 50 steps, and one for the step after the last
    21
    """

    title = "Chen-Jain-Luo: plans short segments from the present state, for averages and discounted totals."
    guarantee = "regret and violation of order T^(2/3) for weakly communicating models whose spans are known"
    paper = "arXiv 2202.00150"
    presets = {"practical": SegmentParams(), "theory": theory}
    params: SegmentParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.ignore_doubling()
        self.lam = np.zeros(spec.N)  # prices of the last plan, near which those of the next one are looked for

    @property
    def length(self) -> int:
        """Number of policies of a plan: one per step of a segment."""
        return self.params.segment

    def decide(self, rng: Stream) -> None:
        """Plan the next segment from the present state."""
        spec, p = self.spec, self.params
        x = p.c * math.log(2 * spec.S * spec.A * spec.K / p.delta) / np.maximum(self.counts.visits, 1)[:, :, None]
        p_hat = frequencies(self.counts)
        box = box_around(p_hat, 4 * np.sqrt(p_hat * x) + 28 * x, self.counts, spec, p.few)
        signals = means(self.counts)[:, None]  # [1+N, 1, S, A]: the same at every step
        bounds = p.segment * (spec.rho - p.span)
        found = plan(box, signals[0], signals[1:], bounds, spec.allowed, p.segment, guess=self.lam)
        self.lam[...] = found.lam if found.feasible else 0.0
        self.follow(Planned(found.pi, found.feasible))
        self.wait(p.segment)
