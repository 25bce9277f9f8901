"""CL-PRI: closed-loop PRI, our own algorithm for the purpose of PRI (`cmdpkit.learners.pri`, arXiv 2309.15395).

Few episodes in, one policy out that keeps its bounds and has at most N stochastic decisions, with a certificate from
its own data. It counts the transitions that were seen and plans in the model they suggest (`counts`). In worlds without
episodes (long-run averages and discounted totals) it is `endless`, which counts as well. Its sister `mf_pri` never
counts a transition.

Both steer in a closed loop: what was realised is compared with the bounds block by block, and what is played is
shifted so that it ends within them. What is proved and what is not is in docs/theory/cl-pri.md.
"""

from __future__ import annotations

from typing import Any, ClassVar

from cmdpkit.errors import CmdpkitError
from cmdpkit.learners import Learner, Spec
from cmdpkit.learners.cl_pri.settings import CountsParams


class ClosedLoopPRI(Learner):
    """CL-PRI at work; keyword arguments other than preset change single parameters.

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
    source = "ours"
    presets = {"practical": CountsParams()}
    anytime = True
    criteria: ClassVar[tuple[str, ...]] = ("horizon", "average", "discounted")

    def __new__(cls, spec: Spec, **settings: Any) -> ClosedLoopPRI:
        """The variant for the criterion of the spec."""
        from cmdpkit.learners.cl_pri.counts import WithCounts
        from cmdpkit.learners.cl_pri.endless import Endless

        if "memory" in settings:
            raise CmdpkitError(
                f"memory is {settings['memory']!r}, but cl-pri has no such parameter any more: it always counts "
                'transitions. What was memory="none" is the algorithm mf-pri; leave memory out, or ask for mf-pri'
            )
        if cls is ClosedLoopPRI:
            return super().__new__(WithCounts if spec.criterion == "horizon" else Endless)
        return super().__new__(cls)
