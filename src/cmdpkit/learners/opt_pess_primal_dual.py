"""OptPess-PrimalDual: greedy on optimistic values, with queues driven by tightened bounds that pay violations back.

Liu, Zhou, Kalathil, Kumar, Tian, "Learning Policies with Zero or Bounded Constraint Violation for Constrained MDPs"
(NeurIPS 2021, arXiv 2106.02684), Algorithm "OptPess-PrimalDual". The policy is greedy for r + (Z_n / eta_k) g_n with
bonuses in the estimated model; the queues grow by how much the policy promises less than the tightened threshold,
Z_n <- [Z_n + rho_n + eps_k - w_n]_+, with a tightening eps_k that fades like 1 / sqrt(k).

Needs: `baseline_utility`, the utilities of some safe policy, but not the policy itself. Output: a mixture; every single
policy is deterministic.

Symbols: b = sqrt(L_k / n), L_k = ln(16 S^2 A H k / delta); eta_k = `eta` slack_b H sqrt(k); eps_k = `tighten` 5 H^2
sqrt(S^3 A) (L_k + 1) / sqrt(k L_k), at most `tighten_max` slack_b; slack_b = least margin of the baseline.

Departures: those of all (`_model_based`); the forms of eta_k and eps_k are restated by Ghosh et al. (AISTATS 2024,
appendix K, which tunes them to eta = 10 / slack_b and tighten = 1/5), the numbers 5 and 16 and the factor slack_b are
from memory; the start distribution has its own bonus H S b; the last step has no transition, so 1 takes the place of
1 + S H there; optimistic signals are cut at H - h; the settings `eta`, `tighten` (both times the paper's) and
`tighten_max` (infinite in the paper) exist for "practical", where tighten and tighten_max are of an earlier choice
among 43 settings on four random problems.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cmdpkit.estimate.boxes import NO_VALUES
from cmdpkit.estimate.counts import frequencies
from cmdpkit.estimate.radii import hoeffding
from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.iterating import (
    Improving,
    PolicyEvaluation,
    bonus_of,
    evaluate,
    improve,
    improved,
    move_prices,
    start_bonus_of,
    take,
    update_estimates,
)
from cmdpkit.learners._model_based.settings import RadiusSettings, utilities_of
from cmdpkit.learners.params import at_least_zero, not_negative, positive
from cmdpkit.model.compiled import compiled
from cmdpkit.model.decisions import Decisions, undrawn
from cmdpkit.model.transitions import FloatArray, Signals
from cmdpkit.operators.steps import induction


@dataclass(frozen=True)
class OptPessPrimalDualParams(RadiusSettings):
    """Settings of OptPess-PrimalDual."""

    eta: float = positive(1.0)  # times the theory's weight of the reward against the queues
    tighten: float = not_negative(1.0)  # times the theory's tightening
    tighten_max: float = at_least_zero(math.inf)  # largest tightening, in margins of the baseline


class OptPessBonus(NamedTuple):
    """(1 + S H) b; where a transition follows, it must have been seen."""

    SH: int
    log: float  # L_k


@bonus_of.of(OptPessBonus)
def _bonus(bonus, counts, row):
    return (1.0 + bonus.SH) * hoeffding(counts.moves[row], bonus.log), hoeffding(counts.visits[row], bonus.log)


@start_bonus_of.of(OptPessBonus)
def _start_bonus(bonus, counts):
    return bonus.SH * hoeffding(counts.starts.sum(), bonus.log)


class OptPessParts(NamedTuple):
    """What compiled code needs."""

    queue: FloatArray  # [N]: Z
    values: PolicyEvaluation
    policy: Decisions  # the greedy one
    V: FloatArray  # [2, S]: working memory
    X: FloatArray  # [2, S, 0]: no signal is evaluated along with it
    Q: FloatArray  # of drawn actions, of which there are none
    c: float  # multiplies the logarithm inside every radius
    events: float  # L_k = ln(events * k)
    eta: float  # eta_k / sqrt(k), the weight of the reward against the queues
    tighten: float  # eps_k sqrt(k L_k) / (L_k + 1), the tightening without its cap
    tighten_max: float  # the cap


@improve.of(OptPessParts)
def _improve(parts, counts, playing):
    """Find the policy of the next episode, and move the queues by what it promises."""
    queue, values, lam, V = parts.queue, parts.values, playing.lam, parts.V
    H, S, A = playing.pi.shape
    k = playing.episodes[0] + 1
    bonus = OptPessBonus(S * H, parts.c * np.log(parts.events * k))
    values.visits[:] = -1  # the logarithm has changed, and with it the bonus of every row
    update_estimates(bonus, counts, values, 0)
    for n in range(len(queue)):
        lam[n] = queue[n] / (parts.eta * np.sqrt(k))
    for h in range(H):  # r + sum_n lam_n g_n, each optimistic and at most what steps h.. can earn
        t = h % values.signals.shape[1]
        for s in range(S):
            for a in range(A):
                total = 0.0
                for n in range(len(values.Q)):
                    x = min(values.signals[n, t, s, a] + values.bonus[h, s, a], float(H - h))
                    total += x if n == 0 else lam[n - 1] * x
                values.mixed[h, s, a] = total
    V[H % 2] = 0.0
    rows, signals = frequencies(counts, A, 0), Signals(values.signals[0], values.signals[1:])  # X has no room for them
    induction(rows, values.mixed, values.allowed, signals, parts.policy, 0, H - 1, 0, S, V, parts.X, parts.Q)
    take(playing.pi, parts.policy.choice)
    evaluate(bonus, counts, values, playing.pi, 0, None)
    move_prices(queue, values.rho, values.start[1:], 1.0, 0.0, _tightening(k, parts), np.inf)


@compiled(inline=True)
def _tightening(k, parts):
    """eps_k."""
    log = np.log(parts.events * k)
    return min(parts.tighten * (log + 1.0) / np.sqrt(k * log), parts.tighten_max)


class OptPessPrimalDual(Improving):
    """OptPess-PrimalDual at work; keyword arguments other than preset and baseline_utility change single settings.

    >>> import cmdpkit as ck
    >>> run = ck.learn("paper/synthetic", "opt-pess-primal-dual", episodes=5000, seed=1)
    >>> bool(abs(run.final("realised_violation")[0] / 5000) < 0.05)
    True
    """

    title = (
        "OptPess-PrimalDual: greedy on optimistic values, with queues driven by tightened bounds that pay "
        "violations back."
    )
    guarantee = "weak regret of order (H^3 / slack_b) sqrt(S^3 A K) and a weak violation that does not grow with K"
    paper = "arXiv 2106.02684"
    source = "memory"
    needs = ("baseline_utility",)
    presets = {
        "practical": OptPessPrimalDualParams(c=1e-6, tighten=3e-4, tighten_max=0.5),
        "theory": OptPessPrimalDualParams(),
    }
    changing: ClassVar[tuple[str, ...]] = (*Improving.changing, "queue")
    params: OptPessPrimalDualParams

    def __init__(self, spec: Spec, *, preset: str | None = None, baseline_utility: Any = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        p, (S, A, H) = self.params, (spec.S, spec.A, spec.H)
        self.margin = float((utilities_of(spec, baseline_utility) - spec.rho).min(initial=H))
        self.queue = np.zeros(spec.N)
        parts = OptPessParts(
            self.queue,
            self.values,
            *(undrawn(np.zeros((H, S), dtype=np.int16), A), np.zeros((2, S)), np.zeros((2, S, 0)), NO_VALUES),
            c=p.c,
            events=16 * S**2 * A * H / p.delta,
            eta=p.eta * self.margin * H,
            tighten=p.tighten * 5 * H**2 * math.sqrt(S**3 * A),
            tighten_max=p.tighten_max * self.margin,
        )
        self.improve_with(parts)
        last = float(_tightening.plain(spec.K, parts))
        if spec.N and last > self.margin / 2:
            self.notes = (
                f"the tightening is still {last / self.margin:.0%} of the baseline's margin in the last episode, more "
                "than half of it: the queues grow and the reward counts for little",
            )
        improved(parts, self.counts, self.playing)
