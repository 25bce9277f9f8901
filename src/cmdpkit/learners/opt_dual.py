"""OptDual-CMDP: greedy in the best model the data allow, with prices that follow the promised utilities.

Efroni, Mannor, Pirotta, "Exploration-Exploitation in Constrained MDPs" (arXiv 2003.02189), Algorithm "OptDual-CMDP".
The Lagrangian of the optimistic problem of OptCMDP is maximised by extended value iteration, and the prices take a
sub-gradient step: lam_n <- [lam_n + (1/t_lam) (rho_n - optimistic utility)]_+, t_lam = H sqrt(N K) / rd.

Needs: `slack`, for the bound rd = H / slack on the optimal prices. Output: a mixture, because every single policy is
deterministic and hence not near the optimum. Per episode O(H S^2 A). Memory O(H S^2 A).

Symbols: rd = `dual_bound`; 1/t_lam = `dual_rate`; beta_p, beta_l = radii of `cmdpkit.estimate.boxes`.

Departures: utilities instead of costs; the start distribution is unknown too and has its own box; optimistic signals
are cut at 1; `dual_step` multiplies the paper's 1/t_lam.
"practical": c and dual_step are the best of 12 pairs by the common rule of choice (docs/algorithms/model-based.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from cmdpkit.estimate.boxes import Box, confidence_box, hoeffding, update_box
from cmdpkit.estimate.induction import Optimistic, extended_induction
from cmdpkit.estimate.means import Means, means_of, update_means
from cmdpkit.learners import Source, Spec
from cmdpkit.learners._model_based.baseline import slack_of
from cmdpkit.learners._model_based.counting import play
from cmdpkit.learners._model_based.iterating import Iterating, remember
from cmdpkit.learners._model_based.settings import Radii, even_visits, logs, on_radius
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.simulate.random import Stream


@dataclass(frozen=True)
class OptDualParams(Radii):
    """Settings of OptDual-CMDP."""

    dual_step: float = 1.0  # times the theory's step of the prices

    def __post_init__(self) -> None:
        super().__post_init__()
        self._expect("dual_step", 0 < self.dual_step < math.inf, "a finite number above 0")


class OptDualConstants(NamedTuple):
    """What compiled code needs of spec and settings."""

    allowed: BoolArray  # [H, S, A]: actions that may be used
    rho: FloatArray  # [N]: thresholds
    kernel_log: float  # the logarithm inside the radii of transitions
    mean_log: float  # the logarithm inside the radii of signals
    dual_rate: float  # step of the prices per unit of shortfall


class Scratch(NamedTuple):
    """Arrays that are filled again after every episode, when the next policy is found."""

    means: Means  # the estimated model
    box: Box  # the confidence box around it
    signals: FloatArray  # [1+N, T, S, A]: optimistic reward and utilities
    objective: FloatArray  # [T, S, A]: their weighted sum at the present prices
    found: Optimistic  # the policy and the model of the box that are best for it


class OptDual(Iterating):
    """OptDual-CMDP at work; keyword arguments other than preset and slack change single settings.

    >>> from cmdpkit import envs
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = OptDual(Spec.of(cmdp, K=5000), slack=0.0898)
    >>> returns = learner.run(Source.of(cmdp), stream(1), 5000)
    >>> bool(abs(returns.utilities.mean() - 2.0) < 0.05)
    True
    """

    title = "OptDual-CMDP: greedy in the best model the data allow, with prices that follow the promised utilities."
    guarantee = (
        "weak regret and weak violation of order sqrt(S^3 A H^4 K) + (1 + rd) sqrt(H^2 N K), rd = H / slack, with "
        "probability 1 - delta"
    )
    paper = "arXiv 2003.02189"
    source = "restatement"
    needs = ("slack",)
    presets = {"practical": OptDualParams(c=1e-3), "theory": OptDualParams()}

    params: OptDualParams

    def __init__(self, spec: Spec, *, preset: str | None = None, slack: float | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        p = self.params
        log_p, log_l = logs(spec, p)
        self.dual_bound = spec.H / slack_of(spec, slack)
        self.constants = OptDualConstants(
            allowed=self.allowed,
            rho=spec.rho,
            kernel_log=log_p,
            mean_log=log_l,
            dual_rate=p.dual_step * self.dual_bound / (spec.H * math.sqrt(max(spec.N, 1) * spec.K)),
        )
        means = means_of(self.counts, spec.A)
        self.scratch = Scratch(
            means=means,
            box=confidence_box(means, 0.0, spec.H),
            signals=means.signals.copy(),
            objective=means.r.copy(),
            found=Optimistic.empty(spec.H, spec.S, 1 + spec.N),
        )
        self.notes = on_radius(spec, hoeffding(even_visits(spec), log_l))
        self._improve()

    def _play(self, source: Source, rng: Stream, out: FloatArray) -> None:
        sim, meter = source.simulator, source.meter
        _episodes(sim, meter, self.counts, self.playing, self.choices, self.scratch, self.constants, rng, out)

    def _improve(self) -> None:
        _improve(self.counts, self.playing, self.scratch, self.constants)


@compiled
def _episodes(sim, meter, counts, playing, choices, scratch, constants, rng, out):
    """Episodes for all columns of out."""
    for k in range(out.shape[1]):
        play(sim, meter, counts, playing, rng, out, k)
        remember(playing, choices)
        _improve(counts, playing, scratch, constants)


@compiled
def _improve(counts, playing, scratch, constants):
    """Find the next policy, and move the prices by what it promises."""
    H, S, A = playing.pi.shape
    update_means(counts, scratch.means)
    update_box(scratch.means, constants.kernel_log, H, scratch.box)
    _optimistic(scratch, constants.mean_log, playing.lam)
    extended_induction(scratch.box, scratch.objective, scratch.signals, constants.allowed, scratch.found)
    for h in range(H):
        for s in range(S):
            for a in range(A):
                playing.pi[h, s, a] = 1.0 if a == scratch.found.choice[h, s] else 0.0
    for n in range(len(playing.lam)):
        short = constants.rho[n] - scratch.found.totals[2 + n]  # totals: objective, reward, utilities
        playing.lam[n] = max(playing.lam[n] + constants.dual_rate * short, 0.0)


@compiled
def _optimistic(scratch, log, lam):
    """Fill the signals, each with its radius and at most 1, and the objective r + sum_n lam_n g_n of these."""
    T, S, A = scratch.objective.shape
    for t in range(T):
        for s in range(S):
            for a in range(A):
                radius = hoeffding(scratch.means.visits[t, s, a], log)
                for n in range(len(scratch.signals)):
                    x = min(scratch.means.signals[n, t, s, a] + radius, 1.0)
                    scratch.signals[n, t, s, a] = x
                    scratch.objective[t, s, a] = x if n == 0 else scratch.objective[t, s, a] + lam[n - 1] * x
