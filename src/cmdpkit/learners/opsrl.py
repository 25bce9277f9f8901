"""OPSRL: never unsafe; optimistic about the kernel and unknown rewards, pessimistic about utilities.

Bura, HasanzadeZonuzy, Kalathil, Shakkottai, Chamberland, "Safe Exploration for Constrained Reinforcement Learning with
Provable Guarantees" (arXiv 2112.00885v1), which became DOPE (`cmdpkit.learners.dope`): the same pessimistic utilities
and the same box of kernels, but no bonus on the reward for unknown transitions.

Needs, output, effort and symbols are those of DOPE.

Departures: those of DOPE. The objective is inferred from the published code, without the text of the first version. Its
theory assumes that rewards are known. Here they are not, so the reward gets the bonus (3 H / slack_b) beta_l, as in
DOPE: without it, an action that the baseline never takes has estimated reward 0 and a pessimistic utility. It is then
never tried, and the regret grows linearly forever.
"practical": as that of DOPE, with bonus = 1.
"""

from __future__ import annotations

from typing import Any

from cmdpkit.learners import Spec
from cmdpkit.learners.dope import DOPE, DOPEParams


class OPSRL(DOPE):
    """OPSRL at work; keyword arguments other than preset and baseline change single settings.

    >>> import cmdpkit as ck
    >>> run = ck.learn("paper/synthetic", "opsrl", episodes=500, preset="theory")
    >>> run.internals["baseline_episodes"]
    500
    """

    title = "OPSRL: never unsafe; optimistic about the kernel and unknown rewards, pessimistic about utilities."
    guarantee = (
        "with probability 1 - delta no policy played is ever unsafe; regret of order S^2 sqrt(A H^7 K) as "
        "published, though later versions prove theirs with a bonus on the reward"
    )
    presets = {"practical": DOPEParams(replan="need", c=1e-3, warm_up=0.0), "theory": DOPEParams()}

    def __init__(self, spec: Spec, **given: Any) -> None:
        super().__init__(spec, **given)
        self.weights = self.weights[0], 0.0  # the box covers unknown transitions
