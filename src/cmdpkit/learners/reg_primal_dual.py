"""Regularised primal-dual: an entropy for the policy and a square for the prices make the last iterate converge.

The saddle point of L(pi, lam) = v(pi) + sum_n lam_n (w_n(pi) - rho_n - m) + tau (Ent(pi) + |lam|^2 / 2), with
Ent(pi) = E sum_h -ln pi(a_h | s_h), attracts the iterates themselves. Plain ascent and descent circle around theirs, so
that only averages converge, and half of the policies played are unsafe. After episode k, with all values of the policy
that was played, in the estimated model with bonus b on every signal:

    Q_n = g_n + b + p V_n,                  each cut to [0, H - h]
    Q_r = r + b + p V_r,                    at most (1 + tau ln A) (H - h);   V_r = sum_a pi (Q_r - tau ln pi)
    ln pi  <- (1 - eta tau) ln pi + eta (Q_r + sum_n lam_n Q_n),              normalised
    lam_n  <- clip((1 - eta tau) lam_n + eta (rho_n + m - w_n), 0, cap)

Where this stands still, rho_n + m - w_n = tau lam_n: without a margin the limit misses every bound that has a price, by
tau lam_n. Output: the last policy.

Symbols: eta_k = `step` k^-`step_power`, tau_k = `tau` k^-`tau_power`, m_k = `margin` k^-`margin_power`; k counts from
`shift`, and is the number K of all episodes throughout where `whole` is set.

"uopt", after Kitamura et al., "A Policy Gradient Primal-Dual Algorithm for Constrained MDPs with Uniform PAC
Guarantees" (arXiv 2401.17780). From the authors' notebook, not from the text: eta_k = (k + 3)^-0.53, tau_k =
(k + 3)^-0.4, no margin, b = c (phi sum_s' sqrt(p) + 5 phi^2) with phi^2 = (2 ln ln max(2 n, e) + 2 ln(48 S^2 A H /
delta)) / n and c = 0.001. It needs to know neither K nor a slack. Ours: one bonus for all unknowns, signals and start
among them; the entropy is counted once (the notebook adds -tau pi ln pi to Q and then averages with pi).
"muller", after Müller et al., "Truly No-Regret Learning in Constrained MDPs" (arXiv 2402.15776), of which the abstract
and a summary were read. Theirs: the two regularisers, the closed form of the step, optimistic values that are cut.
Ours: the powers eta = K^-3/4 and tau = K^-1/8, which balance the terms of the recursion for the distance from the
saddle point, and OptPrimalDual's bonus. Their bound K^0.93 needs other powers, which we have not seen.
"flexdome", after FlexDOME (arXiv 2602.10917), of which public reviews were read. Theirs: margin and tau of order
k^-1/6. Ours: eta_k = k^-5/6, which follows from the two rates that reviews quote, the factors 1, 0.1 and 0.1, and
OptPrimalDual's bonus.

Departures: those of all (`_model_based`); prices have no cap unless one is given as `cap` (H / slack in the papers),
but never exceed (rho + m) / tau; the probability of an action does not fall below 1e-26. "practical": "flexdome" with
the c of opt-primal-dual; step and tau are the best of 12 settings, the three presets with two values each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.iterating import (
    BernsteinBonus,
    Improving,
    PolicyEvaluation,
    bonus_of,
    evaluate_and_mix,
    improve,
    mirror,
    move_prices,
    start_bonus_of,
)
from cmdpkit.learners._model_based.settings import Radii, even_visits, logs, on_bernstein_bonus, on_bonus
from cmdpkit.learners.params import above_zero, not_negative
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import index_of

BONUSES = ("uopt", "bernstein")


@dataclass(frozen=True)
class RegParams(Radii):
    """Settings of the regularised primal-dual learner."""

    bonus: str = "bernstein"  # that of "uopt", which c multiplies, or "bernstein", in whose logarithm c is
    step: float = above_zero(1.0)  # eta, times k^-step_power
    step_power: float = not_negative(0.75)  # how fast eta falls
    tau: float = above_zero(1.0)  # weight of the regularisers, times k^-tau_power
    tau_power: float = not_negative(0.125)  # how fast tau falls
    margin: float = not_negative(0.0)  # how far utilities are to exceed bounds, unit scale, times k^-margin_power
    margin_power: float = not_negative(0.0)  # how fast the margin falls
    shift: int = not_negative(0)  # added to k
    whole: bool = False  # k is the number of all episodes throughout
    cap: float = above_zero(math.inf)  # largest price, in unit scale; the papers take H / slack

    def __post_init__(self) -> None:
        super().__post_init__()
        index_of("bonus", BONUSES, self.bonus)
        self._expect("step", self.step * self.tau <= 1, f"at most 1 / tau, {1 / self.tau:g}")


class UoptBonus(NamedTuple):
    """The bonus of "uopt"; after the last step there is one next state."""

    c: float
    log: float  # ln(48 S^2 A H / delta)


@bonus_of.of(UoptBonus)
def _bonus(bonus, counts, row):
    n, j = counts.moves[row], counts.head[row]
    roots = math.sqrt(len(counts.starts)) if n == 0 else 0.0  # as if all next states were equally likely
    while j >= 0:
        roots += math.sqrt(counts.times[j] / n)
        j = counts.link[j]
    visits = counts.visits[row]
    return bonus.c * _width(visits, roots, bonus.log), bonus.c * _width(visits, 1.0, bonus.log)


@start_bonus_of.of(UoptBonus)
def _start_bonus(bonus, counts):
    episodes, roots = counts.starts.sum(), 0.0
    for s in range(len(counts.starts)):
        roots += math.sqrt(counts.starts[s] / episodes)
    return bonus.c * _width(episodes, roots, bonus.log)


@compiled(inline=True)
def _width(n, roots, log):
    """phi sum sqrt(p) + 5 phi^2 after n observations, where `roots` is the sum."""
    phi = math.sqrt((2.0 * math.log(math.log(max(2.0 * n, math.e))) + 2.0 * log) / max(n, 1))
    return phi * roots + 5.0 * phi * phi


class RegParts(NamedTuple):
    """What compiled code needs."""

    values: PolicyEvaluation
    bonus: UoptBonus | BernsteinBonus
    schedules: FloatArray  # [3, 2]: factors and powers of k of eta, tau and the margin
    shift: int  # added to k
    whole: int  # takes the place of k, if above 0
    cap: float  # largest price


@improve.of(RegParts)
def _improve(parts, counts, playing):
    """Evaluate the policy in the estimated model with bonuses, then move it and the prices at once."""
    values, eta, tau, margin = parts.values, parts.schedules[0], parts.schedules[1], parts.schedules[2]
    k = float(parts.whole if parts.whole > 0 else playing.episodes[0] + parts.shift)
    eta_k, tau_k, margin_k = eta[0] * k ** -eta[1], tau[0] * k ** -tau[1], margin[0] * k ** -margin[1]
    evaluate_and_mix(parts.bonus, counts, values, playing, 0, tau_k)
    mirror(playing.pi, values, eta_k)
    move_prices(playing.lam, values.rho, values.start[1:], eta_k, tau_k, margin_k, parts.cap)


UOPT = RegParams(bonus="uopt", c=1e-3, step_power=0.53, tau_power=0.4, shift=3)
MULLER = RegParams(whole=True)
FLEXDOME = RegParams(step_power=5 / 6, tau=0.1, tau_power=1 / 6, margin=0.1, margin_power=1 / 6)


class RegPrimalDual(Improving):
    """The regularised primal-dual learner at work; keyword arguments other than the preset change single settings.

    >>> import cmdpkit as ck
    >>> run = ck.learn("paper/synthetic", "reg-primal-dual", episodes=10_000, seed=1)
    >>> bool(abs(run.policy_utilities[0] - 2.0) < 0.05)
    True
    """

    title = "Regularised primal-dual: an entropy and a square on the prices make the last policy converge."
    guarantee = (
        "none for this form; of the papers behind its presets, up to logarithms: uopt is Uniform-PAC, muller has "
        "strong regret and violation K^0.93, flexdome strong regret K^(5/6) and strong violation 1"
    )
    paper = "arXiv 2401.17780, 2402.15776, 2602.10917"
    source = "restatement"
    anytime = True
    presets = {
        "practical": replace(FLEXDOME, c=1e-6, step=3.0, tau=0.3),
        "uopt": UOPT,
        "muller": MULLER,
        "flexdome": FLEXDOME,
    }
    params: RegParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        p = self.params
        if spec.anytime and (p.whole or p.bonus != "uopt"):
            raise CmdpkitError(
                f"RegPrimalDual with preset {self.preset!r} must know the number of episodes in advance, for its "
                "steps or its bonus: give episodes= instead of stop=, or take preset 'uopt'"
            )
        radii, log = logs(spec, p), math.log(48 * spec.S**2 * spec.A * spec.H / p.delta)
        bonus: UoptBonus | BernsteinBonus = BernsteinBonus(spec.H, *radii)
        self.notes = on_bernstein_bonus(spec, *radii)
        if p.bonus == "uopt":
            bonus = UoptBonus(p.c, log)
            self.notes = on_bonus(spec, p.c * _width.plain(even_visits(spec), math.sqrt(spec.S), log))
        schedules = np.array([(p.step, p.step_power), (p.tau, p.tau_power), (p.margin, p.margin_power)])
        self.parts = RegParts(self.values, bonus, schedules, p.shift, spec.K if p.whole else 0, p.cap)
        self.improve_with(self.parts)

    def recommend(self) -> FloatArray:
        """pi [H, S, A] of the last iterate."""
        return self.behaviour()
