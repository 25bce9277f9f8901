"""CL-PRI: closed-loop PRI, our own algorithm for the purpose of PRI (`cmdpkit.learners.pri`, arXiv 2309.15395).

Few episodes in, one policy out that keeps its bounds and has at most N stochastic decisions, with a certificate from
its own data. What it remembers is a choice:

- ``memory="counts"`` (the default) counts the transitions that were seen and plans in the model they suggest
  (`counts`). It needs far fewer episodes, and memory for every transition that occurred.
- ``memory="none"`` never counts a transition (`model_free`). Memory is O(H S A (1 + N)^2), and every problem takes tens
  of times as many episodes.

In worlds without episodes (long-run averages and discounted totals) it is `endless`, which counts as well.

All of them steer in a closed loop: what was realised is compared with the bounds block by block, and what is played is
shifted so that it ends within them. What is proved and what is not is in docs/theory/cl-pri.md.
"""

from __future__ import annotations

from typing import Any, ClassVar

from cmdpkit.errors import CmdpkitError
from cmdpkit.learners import Learner, Spec
from cmdpkit.learners.cl_pri.settings import CountsParams

MEMORIES = ("counts", "none")


class ClosedLoopPRI(Learner):
    """CL-PRI at work; keyword arguments other than preset and memory change single parameters.

    >>> from cmdpkit import envs
    >>> from cmdpkit.learners import Source
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = ClosedLoopPRI(Spec.of(cmdp, K=3000))
    >>> returns = learner.run(Source.of(cmdp), stream(1), 3000)
    >>> learner.recommend().shape, learner.certificate().episodes
    ((3, 3, 3), 150)
    """

    title = "CL-PRI: our own; plans from counts, steers what is realised to the bounds, one policy with a certificate."
    guarantee = "the certificate of the policy handed over holds with probability 1 - delta; no proved rate of regret"
    paper = "our own, after arXiv 2309.15395"
    presets = {"practical": CountsParams()}
    anytime = True  # with memory="counts"
    criteria: ClassVar[tuple[str, ...]] = ("horizon", "average", "discounted")

    def __new__(cls, spec: Spec, *, memory: str = "counts", **settings: Any) -> ClosedLoopPRI:
        """The variant with that memory."""
        from cmdpkit.learners.cl_pri.counts import WithCounts
        from cmdpkit.learners.cl_pri.endless import Endless
        from cmdpkit.learners.cl_pri.model_free import WithoutCounts

        if memory not in MEMORIES:
            raise CmdpkitError(f"memory is {memory!r}, expected one of {', '.join(MEMORIES)}")
        if memory == "none" and spec.anytime:
            raise CmdpkitError(
                'cl-pri with memory="none" must know the number of episodes in advance: give episodes= instead of '
                'stop=, or take memory="counts"'
            )
        if memory == "none" and spec.criterion != "horizon":
            raise CmdpkitError('cl-pri with memory="none" learns from episodes only; leave memory out')
        if cls is ClosedLoopPRI and spec.criterion != "horizon":
            return super().__new__(Endless)
        if cls is ClosedLoopPRI:
            return super().__new__(WithCounts if memory == "counts" else WithoutCounts)
        return super().__new__(cls)
