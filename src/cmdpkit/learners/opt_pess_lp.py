"""OptPess-LP: never unsafe; optimistic rewards and pessimistic utilities once a known policy passes a test.

Liu, Zhou, Kalathil, Kumar, Tian, "Learning Policies with Zero or Bounded Constraint Violation for Constrained MDPs"
(NeurIPS 2021, arXiv 2106.02684), Algorithm "OptPess-LP". The baseline is played until it can be shown, with pessimistic
utilities, to keep half of its margin. From then on the policy is that of the occupancy LP on p_hat with r_hat + a_r b
and g_hat - (1 + H S) b, which is feasible because the baseline meets its constraints.

Needs: a safe policy `baseline` and its utilities `baseline_utility`. Output: the current policy.

Symbols: b = sqrt(L / n), L = ln(16 S^2 A H K / delta) = `log`; a_r = (1 + S H) (1 + 4 H / slack_b); slack_b =
`margin`.

Departures: those of all planners (`_model_based`); slack_b is the least of the baseline's margins; the last step has no
transition, so 1 takes the place of 1 + H S there; the start distribution raises the thresholds by its own term H S b;
`bonus` multiplies a_r, so that optimism and pessimism can be scaled apart. "practical": c = 1e-4 and bonus = 0.1.
Nothing promises that it is safe elsewhere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cmdpkit.estimate.boxes import drawn, total
from cmdpkit.estimate.radii import hoeffding, mean_radius
from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.learner import Belief, Decided, SafePlanner
from cmdpkit.learners._model_based.settings import SafePlanning
from cmdpkit.model.transitions import FloatArray, IntArray


class OptPessLP(SafePlanner):
    """OptPess-LP at work; keyword arguments other than preset and baseline change single settings.

    >>> import cmdpkit as ck
    >>> run = ck.learn("paper/synthetic", "opt-pess-lp", episodes=500, preset="theory")
    >>> run.internals["baseline_episodes"]
    500
    """

    title = "OptPess-LP: never unsafe; optimistic rewards and pessimistic utilities once a known policy passes a test."
    guarantee = (
        "with probability 1 - delta no policy played is ever unsafe; regret of order (H^3 / slack_b) sqrt(S^3 A K)"
    )
    paper = "arXiv 2106.02684"
    source = "restatement"
    presets = {"practical": SafePlanning(replan="need", c=1e-4, bonus=0.1), "theory": SafePlanning()}
    params: SafePlanning

    def __init__(self, spec: Spec, **given: Any) -> None:
        super().__init__(spec, **given)
        p = self.params
        self.log = p.c * math.log(16 * spec.S**2 * spec.A * spec.H * spec.K / p.delta)
        most = np.full(spec.allowed.shape, spec.K)
        signal, transition = self._radii(most, most)
        pessimism = float((signal + spec.H * transition).max(axis=(1, 2)).sum()) + self._start(spec.K)
        self.notes = self.doubt(pessimism, self.margin / 2)

    def plan(self, belief: Belief) -> Decided:
        """The baseline, or the best policy that is safe in the estimated model with pessimistic utilities."""
        spec, (signal, transition) = self.spec, self._radii(belief.visits, belief.moved)
        boldness = self.params.bonus * (1 + 4 * spec.H / self.margin)
        x = belief.signals - (signal + spec.H * transition)
        x[0] = belief.signals[0] + boldness * (signal + spec.H * transition)
        start, known, V = self._start(belief.episodes), drawn(self.baseline), np.zeros((2, spec.S, 1))
        shown = np.array([total(belief.model, g, known, V) for g in x[1:]]) - start
        if (shown <= (spec.rho + self.baseline_utilities) / 2).any():
            return self.to_baseline()
        return self.best_or_baseline(belief.model, x, spec.rho + start)

    def _radii(self, visits: IntArray, moved: IntArray) -> tuple[FloatArray, FloatArray]:
        """Of signals [T, S, A], and of the rows of the kernel in total variation [H, S, A], none at the last step."""
        spec = self.spec
        signal = mean_radius(visits, 0.0 if self.params.deterministic else self.log)
        moves = np.arange(spec.H)[:, None, None] < spec.H - 1
        return signal, spec.S * mean_radius(moved, self.log) * moves

    def _start(self, episodes: int) -> float:
        """What the unknown start distribution may cost."""
        return self.spec.H * self.spec.S * float(hoeffding(episodes, self.log))
