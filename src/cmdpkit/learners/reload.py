"""ReLOAD: optimistic mirror descent on the Lagrangian of the estimated model, one step per episode.

Moskovitz, O'Donoghue, Veeriah, Flennerhag, Singh, Zahavy, "ReLOAD: Reinforcement Learning with Optimistic
Ascent-Descent for Last-Iterate Convergence in Constrained MDPs" (ICML 2023, arXiv 2302.01275), brought to finite
horizons. Plain ascent in the policy and descent in the prices circle around the saddle point forever; a step along
twice the current gradient minus the one before settles there:

    pi <- pi exp(eta (2 G - G_before)),   lam_n <- [lam_n + eta (2 d_n - d_n_before)]_+,
    G = Q_r + sum_n lam_n Q_n,            d_n = rho_n - w_n.

The learner takes one such step after every episode, on the estimated model with the bonuses of OptPrimalDual-CMDP.

Output: the last iterate.

Symbols: eta = `step` / sqrt(H); G_before, d_before = `Gradients`.

What is proved is asymptotic and for occupancy measures; for the form in policy space nothing is (table 1 of Ding et
al., arXiv 2306.11700, which also confirms the kind of step: one-step optimistic multiplicative weights).

Departures: those of all (`_model_based`); the step is taken in policy space, state by state; step sizes and details are
ours, checked by convergence; an action's probability does not fall below 1e-26. "theory": bonuses at full size.
"practical": c and step are the best of 12 pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.iterating import (
    BernsteinBonus,
    Improving,
    PolicyEvaluation,
    evaluate_and_mix,
    improve,
    mirror,
)
from cmdpkit.learners._model_based.settings import Radii, logs, on_bernstein_bonus
from cmdpkit.learners.params import positive
from cmdpkit.model.transitions import FloatArray, IntArray


@dataclass(frozen=True)
class ReLOADParams(Radii):
    """Settings of the learner."""

    step: float = positive(1.0)  # step of policy and prices, times 1 / sqrt(H)


class Gradients(NamedTuple):
    """The gradients of the step before."""

    G: FloatArray  # [H, S, A]: of the policy
    d: FloatArray  # [N]: of the prices
    steps: IntArray  # [1]: how many steps were taken


class ReLOADParts(NamedTuple):
    """What compiled code needs."""

    values: PolicyEvaluation
    before: Gradients
    eta: float
    bonus: BernsteinBonus


@improve.of(ReLOADParts)
def _improve(parts, counts, playing):
    """Evaluate the policy in the estimated model, then move it and the prices at once.

    They move along 2 current - previous gradient, the first time along the current one.
    """
    (values, before, eta, bonus), pi, lam = parts, playing.pi, playing.lam
    evaluate_and_mix(bonus, counts, values, playing, 0, None)
    weight = 1.0 if before.steps[0] > 0 else 0.0
    before.steps[0] += 1
    H, S, A = pi.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                G = values.mixed[h, s, a]
                values.mixed[h, s, a] += weight * (G - before.G[h, s, a])
                before.G[h, s, a] = G
    mirror(pi, values, eta)
    for n in range(len(lam)):
        d = values.rho[n] - values.start[1 + n]
        lam[n] = max(lam[n] + eta * (d + weight * (d - before.d[n])), 0.0)
        before.d[n] = d


class ReLOAD(Improving):
    """ReLOAD at work; keyword arguments other than the preset change single settings.

    >>> import cmdpkit as ck
    >>> run = ck.learn("paper/synthetic", "reload", episodes=10_000, seed=1)
    >>> bool(abs(run.final("realised_violation")[0] / 10_000) < 0.05)
    True
    """

    title = "ReLOAD: optimistic mirror descent on the Lagrangian of the estimated model, one step per episode."
    guarantee = (
        "asymptotic convergence of the last iterate for occupancy measures; none for this form in policy space, none "
        "for the learner"
    )
    paper = "arXiv 2302.01275"
    source = "restatement"
    presets = {"practical": ReLOADParams(c=1e-7), "theory": ReLOADParams()}
    changing: ClassVar[tuple[str, ...]] = (*Improving.changing, "before")
    params: ReLOADParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        p, radii = self.params, logs(spec, self.params)
        self.before = Gradients(np.zeros(spec.allowed.shape), np.zeros(spec.N), np.zeros(1, dtype=np.int64))
        self.improve_with(
            ReLOADParts(self.values, self.before, p.step / math.sqrt(spec.H), BernsteinBonus(spec.H, *radii))
        )
        self.notes = on_bernstein_bonus(spec, *radii)

    def recommend(self) -> FloatArray:
        """pi [H, S, A] of the last iterate."""
        return self.behaviour()
