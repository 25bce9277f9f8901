"""PAC: explore where least is known, and return a policy that is proved to be feasible and nearly optimal.

    EXPLORE    play the actions of largest X[h,s,a] = min(H-h, b + the largest expectation within the intervals of
               max_a' X[h+1, ., a']), where b is the largest width of a signal plus (H-h-1) min(1, half the sum of the
               row's widths); find them again whenever the visits of some action have doubled
    HAND OVER  of plans of the estimated model with tightened bounds, those that are proved to meet the bounds, and of
               these the one with the largest proved value (`Certifier.safe_policy`)

With ``stop="gap=EPS"`` the run ends when the certificate proves that the policy meets its bounds and is at most EPS
below the optimum. Rewards do not guide the exploration, which improves what is known about all policies at once; a
learner that looks for the optimum of one problem may need fewer episodes for that one.

To explore by an upper bound on the error of all values is the idea of reward-free exploration (Kaufmann and others,
arXiv 2006.06294). Intervals and inductions are those of every certificate (`cmdpkit.estimate.certificate`). Statement
12 of docs/theory/guarantees.md bounds the number of episodes; its constant is far too large to be of use, so nothing
depends on it. A plan takes O(H S A G) for G next states per action that are seen or can matter; memory as the counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cmdpkit.estimate.model import best_plan, model_of
from cmdpkit.learners import Params, Spec
from cmdpkit.learners._model_based.learner import ModelBased
from cmdpkit.learners._model_based.settings import Cadence, new_cadence
from cmdpkit.learners.params import probability
from cmdpkit.model.policy import one_hot
from cmdpkit.model.transitions import FloatArray


@dataclass(frozen=True)
class PACParams(Params):
    """Numbers that do not change during a run."""

    delta: float = probability(0.05)  # probability with which the certificate may be wrong, at any time of the run


class PAC(ModelBased):
    """PAC at work; keyword arguments other than preset change single parameters.

    >>> import cmdpkit as ck
    >>> run = ck.learn("paper/synthetic", "pac", episodes=2000)
    >>> run.certificate.level
    0.95
    """

    title = "PAC: our own; explores where least is known until its policy is proved feasible and nearly optimal."
    guarantee = (
        "stopped by gap=eps, its policy is feasible and at most eps below the optimum with probability 1 - delta; it "
        "stops after O(H^4 G S A (1 + H/slack)^2 log / eps^2) episodes with probability 1 - 2 delta"
    )
    paper = "our own, after arXiv 2006.06294"
    source = "ours"
    presets = {"practical": PACParams()}
    anytime = True
    params: PACParams  # type: ignore[assignment]

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.after = new_cadence(self.T, spec.S, spec.A, "doubling")  # then it explores elsewhere

    def recommend(self) -> FloatArray:
        """pi [H, S, A] with the largest proved value of those proved safe, or else the best of the estimated model."""
        return self.once(self._hand_over).copy()

    @property
    def multipliers(self) -> None:  # type: ignore[override]
        """None: exploration does not price the bounds."""
        return None

    def internals(self) -> dict[str, Any]:
        """How often exploration was planned, and how well all policies are known, in unit scale."""
        self.certifier.look(self.counts)
        said = super().internals()
        known = {"totals of every policy are known up to": self.certifier.least_known()[0]}
        return {"counts": said["counts"], "plans": said["plans"]} | known

    def _replan(self, cadence: Cadence) -> None:
        self.certifier.look(self.counts)
        self.playing.pi[...] = one_hot(self.certifier.least_known()[1], self.spec.A)
        cadence.planned[...] = self.counts.visits.reshape(cadence.planned.shape)
        cadence.due[0] = False

    def _hand_over(self) -> FloatArray:
        self.certifier.look(self.counts)
        safe = self.certifier.safe_policy()
        if safe is not None:
            return safe[0]
        model = model_of(self.counts, self.spec.rho, np.asarray(self.spec.allowed), 1)
        return best_plan(model, self.spec.rho).pi  # in states that it does not know, any action
