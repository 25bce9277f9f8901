"""OptDual-CMDP: greedy in the best model the data allow, with prices that follow the promised utilities.

Efroni, Mannor, Pirotta, "Exploration-Exploitation in Constrained MDPs" (arXiv 2003.02189), Algorithm "OptDual-CMDP".
The Lagrangian of the optimistic problem of OptCMDP is maximised by extended value iteration, and the prices take a
sub-gradient step: lam_n <- [lam_n + (1/t_lam) (rho_n - optimistic utility)]_+, t_lam = H sqrt(N K) / rd.

Needs: `slack`, for the bound rd = H / slack on the optimal prices. Output: a mixture, because every single policy is
deterministic and hence not near the optimum.

Symbols: rd = `bound`; 1/t_lam = `dual_rate`.

Departures: those of all (`_model_based`); optimistic signals are cut at 1. "practical": c = 1e-3.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.estimate.boxes import BestPair, Box, best_pair, grown, new_box, update_box
from cmdpkit.estimate.counts import mean_of
from cmdpkit.estimate.radii import Bernstein, hoeffding
from cmdpkit.learners import Spec
from cmdpkit.learners._model_based.iterating import (
    Improving,
    PolicyEvaluation,
    improve,
    improved,
    move_prices,
    take,
)
from cmdpkit.learners._model_based.learner import CountingPlayer
from cmdpkit.learners._model_based.settings import Radii, even_visits, logs, on_bonus, slack_of
from cmdpkit.model.transitions import FloatArray, Signals


class OptDualParts(NamedTuple):
    """What compiled code needs."""

    values: PolicyEvaluation
    box: Box
    objective: FloatArray  # [T, S, A]: the reward and the priced utilities, optimistic
    pair: BestPair
    kernel_log: float  # the logarithm inside the radii of transitions
    mean_log: float  # the logarithm inside the radii of signals
    dual_rate: float  # 1 / t_lam, step of the prices


@improve.of(OptDualParts)
def _improve(parts, counts, playing):
    """Find the next policy, and move the prices by what it promises."""
    values, pair, objective, lam = parts.values, parts.pair, parts.objective, playing.lam
    update_box(counts, parts.box, Bernstein(parts.kernel_log))
    T, S, A = objective.shape
    for t in range(T):
        for s in range(S):
            for a in range(A):
                row = (t * S + s) * A + a
                n = counts.visits[row]
                if values.visits[row] != n:  # signals with their radius, at most 1
                    values.visits[row] = n
                    for m in range(len(values.signals)):
                        x = mean_of(counts, row, m, 0) + hoeffding(n, parts.mean_log)
                        values.signals[m, t, s, a] = min(x, 1.0)
                objective[t, s, a] = values.signals[0, t, s, a]
                for m in range(len(lam)):
                    objective[t, s, a] += lam[m] * values.signals[1 + m, t, s, a]
    best_pair(parts.box, objective, values.allowed, Signals(values.signals[0], values.signals[1:]), pair)
    take(playing.pi, pair.policy.choice)
    promised = pair.totals[2:]  # totals: objective, reward, utilities
    move_prices(lam, values.rho, promised, parts.dual_rate, 0.0, 0.0, np.inf)


class OptDual(Improving):
    """OptDual-CMDP at work; keyword arguments other than preset and slack change single settings.

    >>> import cmdpkit as ck
    >>> run = ck.learn("paper/synthetic", "opt-dual", episodes=5000, seed=1)
    >>> bool(abs(run.final("realised_violation")[0] / 5000) < 0.05)
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
    presets = {"practical": Radii(c=1e-3), "theory": Radii()}
    params: Radii

    def __init__(self, spec: Spec, *, preset: str | None = None, slack: float | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        log_p, log_l = logs(spec, self.params)
        bound = spec.H / slack_of(spec, slack)
        dual_rate = bound / (spec.H * math.sqrt(max(spec.N, 1) * spec.K))
        box, pair = new_box(self.counts, spec.H, spec.A), BestPair.empty(spec.allowed.shape, 1 + spec.N)
        objective = np.zeros((self.T, spec.S, spec.A))
        parts = OptDualParts(self.values, box, objective, pair, log_p, log_l, dual_rate)
        self.improve_with(parts, box.moves)
        self.notes = on_bonus(spec, float(hoeffding(even_visits(spec), log_l)), 0.1)
        improved(parts, self.counts, self.playing)

    def _player(self) -> CountingPlayer:
        """The lists of counts may have been replaced by longer ones, which the box shares."""
        parts = self.after.parts
        self.after = self.after._replace(parts=parts._replace(box=grown(parts.box, self.counts)))
        return super()._player()
