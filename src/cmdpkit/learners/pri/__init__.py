"""PRI: prune, refine and identify one policy, with at most as many stochastic decisions as there are constraints.

Presets: "practical" (default) is our own, constrained policy iteration on data in a closed loop (`practical`);
"paper" and "theory" are the algorithm of arXiv 2309.15395 with the schedules of its experiments and with its literal
constants (`paper`).

Guarantee ("theory", if the optimum is well separated): regret of order H sqrt(K), zero weak violation, and one policy
within order 1/sqrt(K) of the optimum; for "practical" see docs/theory/pri.md. Needs: nothing beside K. Output: one
policy with at most N stochastic decisions, with a certificate ("practical"). Memory O(H S A (1 + N)^2).
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from cmdpkit.learners import Returns, Source, Spec, State
from cmdpkit.learners._certificate import Intervals
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import index_of
from cmdpkit.simulate.random import Stream

PRESETS = ("practical", "paper", "theory")


class Learner:
    """PRI at work; keyword arguments other than the preset change single parameters.

    >>> from cmdpkit import envs
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = Learner(Spec.of(cmdp, K=200_000))
    >>> returns = learner.run(Source.of(cmdp), stream(1), 200_000)
    >>> learner.recommend().shape, learner.certificate().episodes
    ((3, 3, 3), 10000)
    """

    def __init__(self, spec: Spec, preset: str = "practical", **changes: Any) -> None:
        self.spec = spec
        self.inner: Any
        if PRESETS[index_of("preset", PRESETS, preset)] == "practical":
            from cmdpkit.learners.pri.practical import PracticalPRI

            self.inner = PracticalPRI(spec, **changes)
        else:
            from cmdpkit.learners.pri.paper import PaperPRI

            self.inner = PaperPRI(spec, preset, **changes)
        self.notes: tuple[str, ...] = self.inner.notes

    def run(self, source: Source, rng: Stream, n: int) -> Returns:
        """Play n more episodes in compiled loops."""
        source.check(self.spec)
        returns: Returns = self.inner.run(source, rng, n)
        return returns

    def first(self, s: int, rng: Stream) -> int:
        """Begin an episode in state s: the action to take."""
        return int(self.inner.first(s, rng))

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Learn from a step's reward and utilities [1+N], which led to s: the action to take there."""
        return int(self.inner.next(signals, s, rng))

    def last(self, signals: FloatArray) -> None:
        """Learn from the last step's reward and utilities [1+N], and end the episode."""
        self.inner.last(signals)

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays."""
        pi: FloatArray = self.inner.behaviour()
        return pi

    def recommend(self) -> FloatArray:
        """pi [H, S, A] to hand over now."""
        pi: FloatArray = self.inner.recommend()
        return pi

    @property
    def multipliers(self) -> FloatArray | None:
        """lam [N], the prices of the constraints now; None where the preset has none."""
        return getattr(self.inner, "multipliers", None)

    def certificate(self) -> Intervals | None:
        """Confidence intervals for value and utilities of the policy handed over, in unit scale, if there are any."""
        found: Intervals | None = self.inner.certificate()
        return found

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Names of the phases and their first episodes, counting from 0."""
        return tuple(self.inner.phases())

    def warnings(self) -> tuple[str, ...]:
        """What looks wrong by now."""
        return tuple(self.inner.warnings())

    def explain(self) -> dict[str, Any]:
        """The run's account as plain values: phases, decisions with their evidence, what stayed ambiguous."""
        return dict(self.inner.explain())

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of all arrays that change, between two episodes."""
        return dict(self.inner.state())

    def restore(self, state: State) -> None:
        """Continue from a state, in a learner made with the same spec and parameters."""
        self.inner.restore(state)
