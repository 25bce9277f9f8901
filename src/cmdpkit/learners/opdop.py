"""OPDOP: multiplicative updates of the policy on optimistic values, with a capped price per constraint.

Ding, Wei, Yang, Wang, Jovanovic, "Provably Efficient Safe Exploration via Primal-Dual Policy Optimization" (AISTATS
2021, arXiv 2003.00534), tabular case. As OptPrimalDual-CMDP, with one bonus 2 Gamma for everything, estimates that
shrink towards zero, and a little of the uniform policy mixed in before every step.

Guarantee ("theory"): weak regret and weak violation of order H^3 sqrt(S^2 A K), with probability 1 - delta. Needs:
`slack`, for the cap chi = 2 H / slack of the prices. Output: a mixture. Per episode O(H S^2 A). Memory O(H S^2 A).

Symbols: alpha = sqrt(ln A / (H^2 K)) = `policy_rate`; eta = 1 / sqrt(K) = `dual_rate`; theta = 1 / K = `mixing`;
Gamma = beta / sqrt(n + 1), beta = C1 H sqrt(S ln(S A H K / delta)) = `beta`; Y = `Book.lam`; chi = `cap`.

Departures: the paper leaves the constant C1 open, here it is 1; N constraints, one price each; the start distribution
is unknown and treated like a row of the kernel; a policy is evaluated with the data of its own episode included;
`policy_step` and `dual_step` multiply the paper's steps.
"practical": c, policy_step and dual_step are the best of 32 settings on the development instances
(docs/algorithms/model-based.md).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners import Source, Spec
from cmdpkit.learners._model_based.baseline import slack_of
from cmdpkit.learners._model_based.counting import play
from cmdpkit.learners._model_based.iterating import Bench, Iterating, evaluate, mirror, mix, use
from cmdpkit.learners._model_based.notes import even_visits, on_bonus
from cmdpkit.learners._model_based.settings import Steps, chosen
from cmdpkit.learners._planning.empirical import estimate, update_estimate
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.simulate.random import Stream

NEEDS: tuple[str, ...] = ("slack",)
PRESETS = {"theory": Steps(), "practical": Steps(c=1e-5, policy_step=3.0)}


class Problem(NamedTuple):
    """What the kernel needs of spec and settings."""

    allowed: BoolArray  # [H, S, A]
    rho: FloatArray  # [N]
    beta: float
    policy_rate: float
    dual_rate: float
    mixing: float
    cap: float


class Learner(Iterating):
    """OPDOP at work; keyword arguments other than preset and slack change single settings.

    >>> from cmdpkit import envs
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = Learner(Spec.of(cmdp, K=5000), slack=0.0898)
    >>> returns = learner.run(Source.of(cmdp), stream(1), 5000)
    >>> bool(abs(returns.utilities[:, 2500:].mean() - 2.0) < 0.1)
    True
    """

    params: Steps

    def __init__(self, spec: Spec, preset: str = "practical", *, slack: float | None = None, **changes: Any) -> None:
        super().__init__(spec, chosen(PRESETS, preset, changes))
        p, H, K = self.params, spec.H, spec.K
        log = p.c * math.log(spec.S * spec.A * H * K / p.delta)
        self.problem = Problem(
            allowed=self.allowed,
            rho=spec.rho,
            beta=H * math.sqrt(spec.S * log),
            policy_rate=p.policy_step * math.sqrt(math.log(spec.A) / K) / H,
            dual_rate=p.dual_step / math.sqrt(K),
            mixing=1 / K,
            cap=2 * H / slack_of(spec, slack),
        )
        self.bench = Bench.of(estimate(self.counts), spec.H)
        self.promised = spec.rho.copy()  # [N], optimistic utilities of the policy before
        self.notes = on_bonus(spec, 2 * self.problem.beta / math.sqrt(even_visits(spec) + 1))

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that changes, by name; the arrays themselves."""
        return super().arrays | {"promised": self.promised}

    def _play(self, source: Source, rng: Stream, out: FloatArray) -> None:
        sim, meter = source.simulator, source.meter
        _episodes(sim, meter, self.counts, self.book, self.usage, self.bench, self.promised, self.problem, rng, out)

    def _improve(self) -> None:
        _improve(self.counts, self.book, self.bench, self.promised, self.problem)


@compiled
def _episodes(  # type: ignore[no-untyped-def]  # pragma: no cover
    sim, meter, counts, book, usage, bench, promised, problem, rng, out
):
    """Episodes for all columns of out."""
    for k in range(out.shape[1]):
        play(sim, meter, counts, book, rng, out, k)
        use(book, usage)
        _improve(counts, book, bench, promised, problem)


@compiled
def _improve(counts, book, bench, promised, problem):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Prices by the evaluation before, a new evaluation, then the policy."""
    for n in range(len(book.lam)):
        moved = book.lam[n] + problem.dual_rate * (problem.rho[n] - promised[n])
        book.lam[n] = min(max(moved, 0.0), problem.cap)
    update_estimate(counts, bench.means)
    evaluate(bench, book.pi, _shrink(bench, problem.beta))
    for n in range(len(book.lam)):
        promised[n] = bench.start[1 + n]
    mix(bench.Q, book.lam, bench.mixed)
    _blend(book.pi, problem.mixing, problem.allowed)
    mirror(book.pi, bench.mixed, problem.policy_rate, problem.allowed)


@compiled
def _shrink(bench, beta):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Divide by n + 1 instead of n, and fill `bonus` with 2 Gamma; returns that of the start distribution."""
    H, S, A = bench.bonus.shape
    T = len(bench.means.p)
    for t in range(T):
        for s in range(S):
            for a in range(A):
                moved, visits = bench.means.moved[t, s, a], bench.means.visits[t, s, a]
                for s_next in range(S):
                    bench.means.p[t, s, a, s_next] *= moved / (moved + 1)
                for n in range(len(bench.Q)):
                    bench.means.signals[n, t, s, a] *= visits / (visits + 1)
                for h in range(t, H, T):
                    bench.bonus[h, s, a] = 2 * beta / np.sqrt(visits + 1.0)
    episodes = bench.means.episodes[0]
    for s in range(S):
        bench.means.mu[s] *= episodes / (episodes + 1)
    return 2 * beta / np.sqrt(episodes + 1.0)


@compiled
def _blend(pi, share, allowed):  # type: ignore[no-untyped-def]  # pragma: no cover
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
