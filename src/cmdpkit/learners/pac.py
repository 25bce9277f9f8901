"""PAC: explore where least is known, and hand over a policy that is proved to be feasible and nearly optimal.

    EXPLORE    play the actions of largest X[h,s,a] = min(H-h, b + the largest expectation within the intervals of
               max_a' X[h+1, ., a']), where b is the largest width of a signal plus (H-h-1) min(1, half the sum of the
               row's widths); find them again whenever the visits of some action have doubled
    HAND OVER  of plans of the estimated model with tightened bounds, those that are proved to keep the bounds, and of
               these the one with the largest proved value (`Certifier.safe_policy`)

With ``stop="gap=EPS"`` the run ends when the certificate proves that the policy keeps its bounds and is at most EPS
below the optimum. Rewards do not guide the exploration, which improves what is known about all policies at once; a
learner that looks for the optimum of one problem may need fewer episodes for that one.

To explore by an upper bound on the error of all values is the idea of reward-free exploration (Kaufmann and others,
arXiv 2006.06294). Intervals and inductions are those of every certificate (`cmdpkit.estimate.certificate`). Statement
12 of docs/theory/guarantees.md bounds the number of episodes; its constant is far too large to be of use, so nothing
depends on it. A plan takes O(H S A G) for G next states per action that are seen or can matter; memory as the counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cmdpkit.estimate.model import best_plan, model_of
from cmdpkit.learners import Params, Source, Spec
from cmdpkit.learners._model_based.cadence import DOUBLING, PlanRule, new_cadence, note_episode
from cmdpkit.learners._model_based.counting import Counting
from cmdpkit.learners._model_based.planner import episodes_until_due
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import MIN_DELTA
from cmdpkit.simulate.random import Stream


@dataclass(frozen=True)
class PACParams(Params):
    """Numbers that do not change during a run."""

    delta: float = 0.05  # probability with which the certificate may be wrong, at any time of the run

    def __post_init__(self) -> None:
        self._expect("delta", MIN_DELTA <= self.delta < 1, f"a probability of at least {MIN_DELTA:g} and below 1")


class PAC(Counting):
    """PAC at work; keyword arguments other than preset change single parameters.

    >>> from cmdpkit import envs
    >>> from cmdpkit.learners import Source
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = PAC(Spec.of(cmdp, K=2000))
    >>> returns = learner.run(Source.of(cmdp), stream(1), 2000)
    >>> learner.recommend().shape, learner.certificate().level
    ((3, 3, 3), 0.95)
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
    changing: ClassVar[tuple[str, ...]] = (*Counting.changing, "cadence", "plans")
    _found: tuple[int, FloatArray] | None = None  # number of episodes, and the policy to hand over after them

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        self.cadence, self.plans = new_cadence(self.T, spec.S, spec.A), 0
        self.rule = PlanRule(DOUBLING, 0.0)

    def recommend(self) -> FloatArray:
        """pi [H, S, A] with the largest proved value of those proved safe, or else the best of the estimated model."""
        episodes = int(self.counts.starts.sum())
        if self._found is None or self._found[0] != episodes:
            self.certifier.look(self.counts)
            safe = self.certifier.safe_policy()
            self._found = episodes, self._estimated() if safe is None else safe[0]
        return self._found[1].copy()

    @property
    def multipliers(self) -> None:  # type: ignore[override]
        """None: exploration does not price the bounds."""
        return None

    def _estimated(self) -> FloatArray:
        """The best policy of the model that the counts suggest; in states that it does not know, any action."""
        model = model_of(self.counts, self.spec.rho, np.asarray(self.spec.allowed), 1)
        return best_plan(model, self.spec.rho).pi

    def explain(self) -> dict[str, Any]:
        """How often exploration was planned, and how well all policies are known, in unit scale."""
        self.certifier.look(self.counts)
        return {
            "counts": "shared by all steps" if self.T < self.spec.H else "kept per step",
            "plans": self.plans,
            "totals of every policy are known up to": self.certifier.accuracy(),
        }

    def _begin(self) -> None:
        if not self.cadence.due[0]:
            return
        self.certifier.look(self.counts)
        self.certifier.accuracy()
        self.playing.pi[...] = np.eye(self.spec.A)[self.certifier.work.choice]
        self.playing.changed[0] = True
        self.cadence.planned[...] = self.counts.visits.reshape(self.cadence.planned.shape)
        self.cadence.due[0] = False
        self.plans += 1

    def _play(self, source: Source, rng: Stream, out: FloatArray) -> None:
        done = 0
        while done < out.shape[1]:
            self._begin()
            parts = (self.counts, self.playing, self.cadence)
            done = episodes_until_due(source.simulator, source.meter, parts, rng, out, done, self.rule)

    def _end(self) -> None:
        self.playing.episodes[0] += 1
        note_episode(self.cadence, self.counts.visits, self.playing.path, self.playing.actions, self.rule)
