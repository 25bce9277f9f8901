"""OPDOP: multiplicative updates of the policy on optimistic values, with a capped price per constraint.

Ding, Wei, Yang, Wang, Jovanovic, "Provably Efficient Safe Exploration via Primal-Dual Policy Optimization" (AISTATS
2021, arXiv 2003.00534), tabular case. It works like OptPrimalDual-CMDP, with one bonus 2 Gamma for all signals and
transitions, with estimates that are shrunk towards zero, and with a small share of the uniform policy mixed in before
every update.

Needs: `slack`, for the cap chi = 2 H / slack of the prices. Output: a mixture.

Symbols: alpha = sqrt(ln A / (H^2 K)) = `policy_rate`; eta = 1 / sqrt(K) = `dual_rate`; theta = 1 / K = `mixing`;
Gamma = beta / sqrt(n + 1), beta = C1 H sqrt(S ln(S A H K / delta)) = `beta`; Y = `Playing.lam`; chi = `cap`.

Departures: those of all (`_model_based`); the paper leaves the constant C1 open, here it is 1; the start distribution
is treated like a row of the kernel; a policy is evaluated with the data of its own episode included; `policy_step` and
`dual_step` multiply the paper's steps. "practical": c = 1e-6 and policy_step = 3; policy_step = 10 is the best of 12
pairs by the common rule of choice, but with it a small problem of the tests is not learned.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cmdpkit.estimate.counts import frequencies
from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.iterating import (
    Iterating,
    evaluate,
    has_changed,
    mirror,
    mix,
    move_prices,
    set_bonus,
    update_means,
)
from cmdpkit.learners._model_based.settings import StepSettings, even_visits, on_bonus, slack_of
from cmdpkit.model.compiled import compiled


class OpdopConstants(NamedTuple):
    """What compiled code needs of spec and settings."""

    beta: float  # scale of the bonus
    policy_rate: float  # alpha, step of the policy
    dual_rate: float  # eta, step of the prices
    mixing: float  # theta, share of the uniform policy that is mixed in
    cap: float  # chi, largest price


@compiled
def _improve(counts, playing, parts):
    """Move the prices by the previous evaluation, evaluate the policy again, then move the policy."""
    values, constants = parts
    move_prices(values, playing.lam, constants.dual_rate, constants.cap, playing.lam)
    _fill_bonus(counts, values, constants.beta)
    update_means(counts, values, 1)  # sums divided by n + 1 instead of n
    start_bonus = 2 * constants.beta / np.sqrt(counts.starts.sum() + 1.0)
    evaluate(frequencies(counts, playing.pi.shape[2], 1), values, playing.pi, start_bonus)
    mix(values, playing.lam)
    _blend(playing.pi, constants.mixing, values.allowed)
    mirror(playing.pi, values.mixed, constants.policy_rate, values.allowed)


@compiled
def _fill_bonus(counts, values, beta):
    """Fill `bonus` with 2 Gamma; where a transition follows, it must have been seen."""
    _, S, A = values.bonus.shape
    for t in range(values.signals.shape[1]):
        for s in range(S):
            for a in range(A):
                row = has_changed(counts, values, t, s, a)
                if row >= 0:
                    moved, visited = counts.moves[row], counts.visits[row]
                    set_bonus(values, t, s, a, 2 * beta / np.sqrt(moved + 1.0), 2 * beta / np.sqrt(visited + 1.0))


@compiled
def _blend(pi, share, allowed):
    """Mix a share of the uniform policy into pi."""
    H, S, A = pi.shape
    for h in range(H):
        for s in range(S):
            choices = 0
            for a in range(A):
                choices += allowed[h, s, a]
            for a in range(A):
                if allowed[h, s, a]:
                    pi[h, s, a] = (1.0 - share) * pi[h, s, a] + share / choices


class OPDOP(Iterating):
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
    changing: ClassVar[tuple[str, ...]] = (*Iterating.changing, "promised")
    params: StepSettings
    improve = _improve

    def __init__(self, spec: Spec, *, preset: str | None = None, slack: float | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        p, H, K = self.params, spec.H, spec.K
        log = p.c * math.log(spec.S * spec.A * H * K / p.delta)
        self.constants = OpdopConstants(
            beta=H * math.sqrt(spec.S * log),
            policy_rate=p.policy_step * math.sqrt(math.log(spec.A) / K) / H,
            dual_rate=p.dual_step / math.sqrt(K),
            mixing=1 / K,
            cap=2 * H / slack_of(spec, slack),
        )
        self.promised = self.values.start[1:]  # [N]: optimistic utilities of the previous policy
        self.promised[:] = spec.rho
        self.parts = (self.values, self.constants)
        self.notes = on_bonus(spec, 2 * self.constants.beta / math.sqrt(even_visits(spec) + 1))
