"""PS-CMDP: posterior sampling in episodes; every plan is the optimum of a model drawn from what was seen.

Ours, after CMDP-PSRL for long-run averages (Agarwal, Bai, Aggarwal, arXiv 2106.06680, `cmdpkit.learners.cmdp_psrl`):

    plan: P(h, s, a, .) ~ Dirichlet(moves(h, s, a, .) + prior),   start ~ Dirichlet(starts + prior)
          signals       ~ Beta(1 + weight sum, 1 + weight (n - sum)),   exact for signals of 0 and 1 with weight 1
          pi = optimum of the drawn model under the bounds plus a margin;  play pi until the next plan

The published episodic algorithm Safe-PSRL (arXiv 2301.11547, Bayesian regret of order H^2.5 sqrt(S^2 A K), violation of
order 1) is another one, primal-dual and pessimistic; its steps were not readable. Nothing is proved for this form.
Nothing has to be known: no K, no delta, no slack.

Output: the best policy of the estimated model, with a margin for its own error. Per plan H S^2 A draws and an LP.

Symbols: `prior`, `weight`; m_k = `tighten` sqrt(ln k / k) in all utilities, by which violations can be made one-sided.

Departures from CMDP-PSRL: those of all planners (`_model_based`); models are drawn again only at plans. Where no policy
of the drawn model meets the bounds, the paper ignores them; here the plan is the policy that misses the worst bound by
least. A draw is never repeated until it is feasible: that would favour wishful models. "practical": once an action was
taken `few` times, its prior is on states to which some action has led from the same state and step, because jumps that
nobody has seen make a quarter of the draws of a sparse model infeasible. A weight of 100 suits signals that vary little
from visit to visit, as in the problems on which it was chosen; with signals of 0 and 1 it is overconfident, and 1 is
right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.boxes import Known
from cmdpkit.estimate.continuing import added, drawn_signals, everywhere, gamma_drawn, observed, shared
from cmdpkit.estimate.counts import kernel_of, start_of
from cmdpkit.learners._model_based.learner import Belief, Decided, OptimisticPlanner
from cmdpkit.learners._model_based.settings import WithMargin
from cmdpkit.learners.params import NEVER, at_least_one, not_negative, positive
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import generator


@dataclass(frozen=True)
class PosteriorPlanning(WithMargin):
    """Settings of PS-CMDP."""

    prior: float = positive(1.0)  # added to the counts of all next states that are possible
    few: int = at_least_one(NEVER)  # visits after which the prior is on next states seen from the same state alone
    weight: float = positive(1.0)  # 0/1 observations that one observation of a signal counts as
    tighten: float = not_negative(0.0)  # plans exceed the bounds by this times sqrt(ln k / k), unit scale


class Drawn(NamedTuple):
    """A model drawn from the posterior."""

    model: Known
    signals: FloatArray  # [1+N, T, S, A]: mean reward and utilities


class PSCMDP(OptimisticPlanner):
    """PS-CMDP at work; keyword arguments other than the preset change single settings.

    >>> import cmdpkit as ck
    >>> run = ck.learn("paper/synthetic", "ps-cmdp", episodes=2000, seed=1)
    >>> bool(abs(run.final("realised_violation")[0] / 2000) < 0.05)
    True
    """

    title = "PS-CMDP: posterior sampling in episodes, one exact plan in a drawn model at a time."
    guarantee = "none for this form; those of CMDP-PSRL and Safe-PSRL are for averages and for a primal-dual method"
    paper = "our own, after arXiv 2106.06680"
    source = "ours"
    anytime = True
    presets = {
        "practical": PosteriorPlanning(replan="need", few=5, prior=0.1, weight=100.0),
        "theory": PosteriorPlanning(),
    }

    params: PosteriorPlanning

    def draw(self, belief: Belief, draw: np.random.Generator) -> Drawn:
        """A model from the posterior."""
        p, (S, A), moves = self.params, (self.spec.S, self.spec.A), observed(self.counts)
        R, young = belief.visits.size, belief.visits.ravel() < p.few
        guesses = everywhere(np.flatnonzero(young), S, p.prior), shared(moves, np.flatnonzero(~young), S, A, p.prior)
        kernel = kernel_of((self.T, S, A), *gamma_drawn(added(S, moves, *guesses), R, S, p.prior, draw))
        starts = draw.standard_gamma(self.counts.starts + p.prior)
        signals = drawn_signals(belief.signals, np.asarray(p.weight * belief.visits, dtype=float), draw)
        return Drawn(Known.of(kernel, start_of(starts)), signals)

    def plan(self, belief: Belief) -> Decided:
        """The optimum of a model that is drawn for it."""
        drawn, k = self.draw(belief, generator(self._rng)), belief.episodes + 1
        rho = self.spec.rho + self.params.tighten * math.sqrt(math.log(k) / k)
        return self.best(drawn.model, drawn.signals, rho)
