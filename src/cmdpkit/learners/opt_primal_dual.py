"""OptPrimalDual-CMDP: multiplicative updates of policy and prices, on optimistic values.

Efroni, Mannor, Pirotta, "Exploration-Exploitation in Constrained MDPs" (arXiv 2003.02189), Algorithm
"OptPrimalDual-CMDP". There is no planning. The policy is evaluated in the estimated model with bonuses, where every
value is cut to what can be earned. Then it is moved a little, pi <- pi exp(t_K (Q_r + sum_n lam_n Q_n)), and so are the
prices, lam_n <- clip(lam_n + (1/t_lam) (rho_n - w_n), 0, rd).

Needs: `slack`, for the bound rd = H / slack on the optimal prices. Output: a mixture.

Symbols: t_lam = H sqrt(N K) / rd, 1/t_lam = `dual_rate`; t_K = sqrt(2 ln A / (H^2 (1 + N rd)^2 K)) = `policy_rate`;
b = beta_l + H sum beta_p = `BernsteinBonus`.

Departures: those of all (`_model_based`); a policy is evaluated with the data of its own episode included;
`policy_step` and `dual_step` multiply the paper's steps; the probability of an action does not fall below 1e-26.
"practical": c and policy_step are the best of 12 pairs; dual_step is of an earlier choice among 34 settings on four
random problems.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.iterating import (
    BernsteinBonus,
    Improving,
    PolicyEvaluation,
    evaluate_and_mix,
    improve,
    mirror,
    move_prices,
)
from cmdpkit.learners._model_based.settings import Radii, StepSettings, logs, on_bernstein_bonus, slack_of


@dataclass(frozen=True)
class OptPrimalDualParams(Radii, StepSettings):
    """Settings of OptPrimalDual-CMDP."""


class OptPrimalDualParts(NamedTuple):
    """What compiled code needs."""

    values: PolicyEvaluation
    bonus: BernsteinBonus
    policy_rate: float  # t_K, step of the policy
    dual_rate: float  # 1 / t_lam, step of the prices
    dual_bound: float  # rd, largest price


@improve.of(OptPrimalDualParts)
def _improve(parts, counts, playing):
    """Evaluate the policy, then move it and the prices."""
    values = parts.values
    evaluate_and_mix(parts.bonus, counts, values, playing, 0, None)
    mirror(playing.pi, values, parts.policy_rate)
    move_prices(playing.lam, values.rho, values.start[1:], parts.dual_rate, 0.0, 0.0, parts.dual_bound)


class OptPrimalDual(Improving):
    """OptPrimalDual-CMDP at work; keyword arguments other than preset and slack change single settings.

    >>> import cmdpkit as ck
    >>> run = ck.learn("paper/synthetic", "opt-primal-dual", episodes=5000, seed=1)
    >>> bool(abs(run.final("realised_violation")[0] / 5000) < 0.05)
    True
    """

    title = "OptPrimalDual-CMDP: multiplicative updates of policy and prices, on optimistic values."
    guarantee = (
        "weak regret and weak violation of order sqrt(S^3 A H^4 K) + sqrt(H^4 (1 + N rd)^2 K), rd = H / slack, "
        "with probability 1 - delta"
    )
    paper = "arXiv 2003.02189"
    source = "restatement"
    needs = ("slack",)
    presets = {
        "practical": OptPrimalDualParams(c=1e-6, policy_step=1000.0, dual_step=3.0),
        "theory": OptPrimalDualParams(),
    }
    params: OptPrimalDualParams

    def __init__(self, spec: Spec, *, preset: str | None = None, slack: float | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        p, radii = self.params, logs(spec, self.params)
        bound = spec.H / slack_of(spec, slack)
        reach = spec.H * (1 + spec.N * bound)  # largest Q_r + sum_n lam_n Q_n
        self.parts = OptPrimalDualParts(
            values=self.values,
            bonus=BernsteinBonus(spec.H, *radii),
            policy_rate=p.policy_step * math.sqrt(2 * math.log(spec.A) / spec.K) / reach,
            dual_rate=p.dual_step * bound / (spec.H * math.sqrt(max(spec.N, 1) * spec.K)),
            dual_bound=bound,
        )
        self.improve_with(self.parts)
        self.notes = on_bernstein_bonus(spec, *radii)
