"""OptDual-CMDP: greedy in the best model the data allow, with prices that follow the promised utilities.

Efroni, Mannor, Pirotta, "Exploration-Exploitation in Constrained MDPs" (arXiv 2003.02189), Algorithm "OptDual-CMDP".
The Lagrangian of the optimistic problem of OptCMDP is maximised by extended value iteration, and the prices take a
sub-gradient step: lam_n <- [lam_n + (1/t_lam) (rho_n - optimistic utility)]_+, t_lam = H sqrt(N K) / rd.

Guarantee ("theory"): weak regret and weak violation of order sqrt(S^3 A H^4 K) + (1 + rd) sqrt(H^2 N K), with
probability 1 - delta. Needs: `slack`, for the bound rd = H / slack on the optimal prices. Output: a mixture; every
single policy is deterministic, hence not near the optimum. Per episode O(H S^2 A). Memory O(H S^2 A).

Symbols: rd = `dual_bound`; 1/t_lam = `dual_rate`; beta_p, beta_l = radii of `cmdpkit.learners._planning.confidence`.

Departures: utilities instead of costs; the start distribution is unknown too and has its own box; optimistic signals
are cut at 1; `dual_step` multiplies the paper's 1/t_lam.
"practical": c and dual_step are the best of 15 pairs on the development instances (docs/algorithms/model-based.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from cmdpkit.learners import Source, Spec
from cmdpkit.learners._model_based.baseline import slack_of
from cmdpkit.learners._model_based.counting import play
from cmdpkit.learners._model_based.iterating import Iterating, use
from cmdpkit.learners._model_based.notes import even_visits, on_radius
from cmdpkit.learners._model_based.settings import Settings, chosen, logs
from cmdpkit.learners._planning.confidence import Box, confidence_box, hoeffding, update_box
from cmdpkit.learners._planning.empirical import Estimate, estimate, update_estimate
from cmdpkit.learners._planning.induction import Optimistic, extended_induction
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.simulate.random import Stream

NEEDS: tuple[str, ...] = ("slack",)


@dataclass(frozen=True)
class Params(Settings):
    """Settings of OptDual-CMDP."""

    deterministic: bool = False  # one visit tells rewards and utilities: they have no radius after it
    dual_step: float = 1.0  # times the theory's step of the prices

    def __post_init__(self) -> None:
        super().__post_init__()
        self._expect("dual_step", 0 < self.dual_step < math.inf, "a finite number above 0")


PRESETS = {"theory": Params(), "practical": Params(c=1e-4, dual_step=3.0)}


class Problem(NamedTuple):
    """What the kernel needs of spec and settings."""

    allowed: BoolArray  # [H, S, A]
    rho: FloatArray  # [N]
    kernel_log: float
    mean_log: float
    dual_rate: float


class Room(NamedTuple):
    """Scratch: estimates, the box around them, optimistic signals and the policy and kernel that are best there."""

    means: Estimate
    box: Box
    signals: FloatArray  # [1+N, T, S, A]
    objective: FloatArray  # [T, S, A]
    found: Optimistic


class Learner(Iterating):
    """OptDual-CMDP at work; keyword arguments other than preset and slack change single settings.

    >>> from cmdpkit import envs
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = Learner(Spec.of(cmdp, K=5000), slack=0.0898)
    >>> returns = learner.run(Source.of(cmdp), stream(1), 5000)
    >>> bool(abs(returns.utilities.mean() - 2.0) < 0.05)
    True
    """

    params: Params

    def __init__(self, spec: Spec, preset: str = "practical", *, slack: float | None = None, **changes: Any) -> None:
        super().__init__(spec, chosen(PRESETS, preset, changes))
        p = self.params
        log_p, log_l = logs(spec, p, p.deterministic)
        self.dual_bound = spec.H / slack_of(spec, slack)
        self.problem = Problem(
            allowed=self.allowed,
            rho=spec.rho,
            kernel_log=log_p,
            mean_log=log_l,
            dual_rate=p.dual_step * self.dual_bound / (spec.H * math.sqrt(max(spec.N, 1) * spec.K)),
        )
        means = estimate(self.counts)
        self.room = Room(
            means=means,
            box=confidence_box(means, 0.0, spec.H),
            signals=means.signals.copy(),
            objective=means.r.copy(),
            found=Optimistic.room(spec.H, spec.S, spec.A, 1 + spec.N),
        )
        self.notes = on_radius(spec, hoeffding(even_visits(spec), log_l))
        self._improve()

    def _play(self, source: Source, rng: Stream, out: FloatArray) -> None:
        sim, meter = source.simulator, source.meter
        _episodes(sim, meter, self.counts, self.book, self.usage, self.room, self.problem, rng, out)

    def _improve(self) -> None:
        _improve(self.counts, self.book, self.room, self.problem)


@compiled
def _episodes(  # type: ignore[no-untyped-def]  # pragma: no cover
    sim, meter, counts, book, usage, room, problem, rng, out
):
    """Episodes for all columns of out."""
    for k in range(out.shape[1]):
        play(sim, meter, counts, book, rng, out, k)
        use(book, usage)
        _improve(counts, book, room, problem)


@compiled
def _improve(counts, book, room, problem):  # type: ignore[no-untyped-def]  # pragma: no cover
    """The next policy, and the prices after it."""
    H, S, A = book.pi.shape
    update_estimate(counts, room.means)
    update_box(room.means, problem.kernel_log, H, room.box)
    _optimistic(room, problem.mean_log, book.lam)
    extended_induction(room.box, room.objective, room.signals, problem.allowed, room.found)
    for h in range(H):
        for s in range(S):
            for a in range(A):
                book.pi[h, s, a] = 1.0 if a == room.found.choice[h, s] else 0.0
    for n in range(len(book.lam)):
        short = problem.rho[n] - room.found.totals[2 + n]  # totals: objective, reward, utilities
        book.lam[n] = max(book.lam[n] + problem.dual_rate * short, 0.0)


@compiled
def _optimistic(room, log, lam):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Fill the signals, each with its radius and at most 1, and the objective r + sum_n lam_n g_n of these."""
    T, S, A = room.objective.shape
    for t in range(T):
        for s in range(S):
            for a in range(A):
                radius = hoeffding(room.means.visits[t, s, a], log)
                for n in range(len(room.signals)):
                    x = min(room.means.signals[n, t, s, a] + radius, 1.0)
                    room.signals[n, t, s, a] = x
                    room.objective[t, s, a] = x if n == 0 else room.objective[t, s, a] + lam[n - 1] * x
