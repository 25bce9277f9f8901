"""OPDOP: multiplicative updates of the policy on optimistic values, with a capped price per constraint.

Ding, Wei, Yang, Wang, Jovanovic, "Provably Efficient Safe Exploration via Primal-Dual Policy Optimization" (AISTATS
2021, arXiv 2003.00534), tabular case. It works like OptPrimalDual-CMDP, with one bonus 2 Gamma for all signals and
transitions, with estimates that are shrunk towards zero, and with a small share of the uniform policy mixed in before
every update.

Needs: `slack`, for the cap chi = 2 H / slack of the prices. Output: a mixture.

Symbols: alpha = sqrt(ln A / (H^2 K)) = `policy_rate`; eta = 1 / sqrt(K) = `dual_rate`; theta = 1 / K = `mixing`;
Gamma = beta / sqrt(n + 1), beta = C1 H sqrt(S ln(S A H K / delta)) = `OpdopBonus.beta`; Y = `Playing.lam`; chi = `cap`.

Departures: those of all (`_model_based`); the paper leaves the constant C1 open, here it is 1; the start distribution
is treated like a row of the kernel; a policy is evaluated with the data of its own episode included; `policy_step` and
`dual_step` multiply the paper's steps. "practical": c = 1e-6 and policy_step = 3; policy_step = 10 is the best of 12
pairs by the common rule of choice, but with it a small problem of the tests is not learned.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.iterating import (
    Improving,
    PolicyEvaluation,
    bonus_of,
    evaluate_and_mix,
    improve,
    mirror,
    move_prices,
    start_bonus_of,
)
from cmdpkit.learners._model_based.settings import StepSettings, even_visits, on_bonus, slack_of


class OpdopBonus(NamedTuple):
    """2 Gamma; where a transition follows, it must have been seen."""

    beta: float


@bonus_of.of(OpdopBonus)
def _bonus(bonus, counts, row):
    moved, visited = counts.moves[row], counts.visits[row]
    return 2 * bonus.beta / np.sqrt(moved + 1.0), 2 * bonus.beta / np.sqrt(visited + 1.0)


@start_bonus_of.of(OpdopBonus)
def _start_bonus(bonus, counts):
    return 2 * bonus.beta / np.sqrt(counts.starts.sum() + 1.0)


class OpdopParts(NamedTuple):
    """What compiled code needs."""

    values: PolicyEvaluation
    bonus: OpdopBonus
    policy_rate: float  # alpha, step of the policy
    dual_rate: float  # eta, step of the prices
    mixing: float  # theta, share of the uniform policy that is mixed in
    cap: float  # chi, largest price


@improve.of(OpdopParts)
def _improve(parts, counts, playing):
    """Move the prices by the previous evaluation, evaluate the policy again, then move the policy."""
    values, pi, share = parts.values, playing.pi, parts.mixing
    move_prices(playing.lam, values.rho, values.start[1:], parts.dual_rate, 0.0, 0.0, parts.cap)
    evaluate_and_mix(parts.bonus, counts, values, playing, 1, None)  # sums divided by n + 1 instead of n
    H, S, A = pi.shape
    for h in range(H):
        for s in range(S):
            choices = 0
            for a in range(A):
                choices += values.allowed[h, s, a]
            for a in range(A):
                if values.allowed[h, s, a]:
                    pi[h, s, a] = (1.0 - share) * pi[h, s, a] + share / choices
    mirror(pi, values, parts.policy_rate)


class OPDOP(Improving):
    """OPDOP at work; keyword arguments other than preset and slack change single settings.

    >>> import cmdpkit as ck
    >>> run = ck.learn("paper/synthetic", "opdop", episodes=5000, seed=1)
    >>> bool(abs(run.final("realised_violation")[0] / 5000) < 0.05)
    True
    """

    title = "OPDOP: multiplicative updates of the policy on optimistic values, with a capped price per constraint."
    guarantee = "weak regret and weak violation of order H^3 sqrt(S^2 A K), with probability 1 - delta"
    paper = "arXiv 2003.00534"
    source = "text"
    needs = ("slack",)
    presets = {"practical": StepSettings(c=1e-6, policy_step=3.0), "theory": StepSettings()}
    changing: ClassVar[tuple[str, ...]] = (*Improving.changing, "promised")
    params: StepSettings

    def __init__(self, spec: Spec, *, preset: str | None = None, slack: float | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        p, H, K = self.params, spec.H, spec.K
        log = p.c * math.log(spec.S * spec.A * H * K / p.delta)
        self.parts = OpdopParts(
            values=self.values,
            bonus=OpdopBonus(H * math.sqrt(spec.S * log)),
            policy_rate=p.policy_step * math.sqrt(math.log(spec.A) / K) / H,
            dual_rate=p.dual_step / math.sqrt(K),
            mixing=1 / K,
            cap=2 * H / slack_of(spec, slack),
        )
        self.promised = self.values.start[1:]  # [N]: optimistic utilities of the previous policy
        self.promised[:] = spec.rho
        self.improve_with(self.parts)
        self.notes = on_bonus(spec, 2 * self.parts.bonus.beta / math.sqrt(even_visits(spec) + 1))
