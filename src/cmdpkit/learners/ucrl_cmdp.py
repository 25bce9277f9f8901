"""UCRL-CMDP: plan in the best model that the data allow, with the extended program for long-run averages.

Singh, Gupta, Shroff, "Learning in Markov decision processes under constraints" (arXiv 2002.12435). The guarantee is
from the abstract: an expected vector of regrets, of reward and of every constraint, of order T^(2/3), for unichain
models that mix uniformly. The program below is as in the paper; the constants c and b of the radius are from memory.

    epochs of ceil(T^(1/3)) steps; at the start of each, with n(s, a) visits and observed frequencies p_hat,
    eps(s, a) = sqrt(c log(t^b S A) / n(s, a)),  b > 1
    maximise <z, r> over z(s, a, s') >= 0 with
        (p_hat - eps) sum_s'' z(s, a, s'') <= z(s, a, s') <= (p_hat + eps) sum_s'' z(s, a, s''),
        sum_{a, s'} z(s, a, s') = sum_{s', a'} z(s', a', s),   sum z = 1,   <z, g_n> >= rho_n
    play pi(a|s) = z(s, a, .) / z(s, ., .) until the epoch ends

Per plan: column generation with relative value iteration over the box (`cmdpkit.learners._continuing.optimistic`),
O(S^2 A) per sweep. Memory O(S^2 A).

Departures. Signals are the observed means, and 1 where nothing was seen (that the paper takes them as known is from
memory). Where no kernel of the box has a policy within the bounds, the paper plays any policy (memory); here it is the
one that misses the worst bound by least. The bounds cannot be loosened to trade the regret of one constraint for that
of another, as the paper allows. In a discounted problem the box is that of the world that begins again. The policy
handed over is the best one of the mean model that does not rely on luck (`proven_model` of
`cmdpkit.estimate.continuing`). "practical": c = 1e-4; an epoch lasts until the visits of some action in some
state have doubled; and an action that was tried `few` times leads only where it has led to: a full queue that is not
served would otherwise be believed to empty itself, however seldom. c and few are the best of four settings on
development problems (in a clone: `python -m bench average_settings`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cmdpkit.estimate.continuing import box_around, frequencies, means
from cmdpkit.learners._continuing.optimistic import optimistic_model
from cmdpkit.learners._continuing.planning import planned
from cmdpkit.learners._continuing.player import Player
from cmdpkit.learners.params import Params
from cmdpkit.learners.spec import Spec
from cmdpkit.simulate.random import Stream


@dataclass(frozen=True)
class BoxParams(Params):
    """Numbers that do not change during a run; the default is the practical preset."""

    c: float = 1e-4  # multiplies the logarithm inside the radius
    power: float = 2.0  # b, the power of t in the logarithm
    few: int = 20  # tries after which a pair leads only where it has led to
    epoch: int = 0  # steps of an epoch; 0: until the visits of a pair have doubled

    def __post_init__(self) -> None:
        self._expect("c", 0 <= self.c < math.inf, "a finite number, at least 0")
        self._expect("power", 1 < self.power < math.inf, "a finite number above 1")
        self._expect("few", self.few >= 1, "at least 1")
        self._expect("epoch", self.epoch >= 0, "at least 0")


def theory(spec: Spec) -> BoxParams:
    """Constants of the paper, as far as they are remembered."""
    return BoxParams(c=1.0, few=2**62, epoch=math.ceil(spec.K ** (1 / 3)))


class UCRLCMDP(Player):
    """UCRL-CMDP at work; keyword arguments other than preset change single parameters.

    >>> import cmdpkit as ck
    >>> from cmdpkit.simulate.random import stream
    >>> from cmdpkit.simulate.steps import Walk
    >>> cmdp = ck.load("machine-two")
    >>> learner = UCRLCMDP(Spec.of(cmdp, K=1000))
    >>> returns = learner.walk(Walk.of(cmdp), stream(1), 1000)
    >>> learner.recommend().shape
    (1, 2, 3)
    """

    title = "UCRL-CMDP: plans in the best model the data allow, for averages and discounted totals."
    guarantee = "expected regret and violation of order T^(2/3) for unichain models that mix uniformly"
    paper = "arXiv 2002.12435"
    source = "memory"
    presets = {"practical": BoxParams(), "theory": theory}
    params: BoxParams

    def decide(self, rng: Stream) -> None:
        """Plan with all kernels of the box, until the epoch ends."""
        spec, p = self.spec, self.params
        self.begin_epoch()
        if p.epoch:
            self.ignore_doubling()
        log = p.c * (p.power * math.log(max(self.steps, 1)) + math.log(spec.S * spec.A))
        seen = self.seen()
        radius = np.sqrt(log / np.maximum(seen.visits, 1))[:, :, None]
        box = box_around(frequencies(seen), radius, seen, p.few)
        model = optimistic_model(box, means(seen), spec.rho, spec.allowed[0])
        self.follow(planned(model, spec.rho))
        self.wait(p.epoch or spec.K)
