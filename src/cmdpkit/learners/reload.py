"""ReLOAD: optimistic mirror descent on the Lagrangian, whose last iterate converges; plans on a model or on estimates.

Moskovitz, O'Donoghue, Veeriah, Flennerhag, Singh, Zahavy, "ReLOAD: Reinforcement Learning with Optimistic
Ascent-Descent for Last-Iterate Convergence in Constrained MDPs" (ICML 2023, arXiv 2302.01275), brought to finite
horizons. Plain ascent in the policy and descent in the prices circle around the saddle point for ever; a step along
twice the current gradient minus the one before settles there:

    pi <- pi exp(eta (2 G - G_before)),   lam_n <- [lam_n + eta_lam (2 d_n - d_n_before)]_+,
    G = Q_r + sum_n lam_n Q_n,            d_n = rho_n - w_n.

`reload_plan` does this on a model; the learner does one step after every episode, on the estimated model with the
bonuses of OptPrimalDual-CMDP.

Output: the last iterate. Per step O(H S^2 A). Memory O(H S^2 A) for the learner's counts.

Symbols: eta = `step` / sqrt(H), eta_lam = `dual_step` / sqrt(H), both halved by the planner where the error does not
fall; G_before, d_before = `Gradients`.

What is proved is asymptotic and for occupancy measures; for the form in policy space nothing is (table 1 of Ding et
al., arXiv 2306.11700, which also confirms the kind of step: one-step optimistic multiplicative weights).

Departures: the step is taken in policy space, state by state; step sizes and details are ours, checked by convergence;
an action's probability does not fall below 1e-26. "theory": bonuses at full size. "practical": c and step are the best
of 12 pairs by the common rule of choice (docs/algorithms/model-based.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cmdpkit.estimate.boxes import point
from cmdpkit.estimate.induction import extended_value_iteration
from cmdpkit.estimate.means import means_of, update_means
from cmdpkit.learners import Source, Spec
from cmdpkit.learners._gradients import Saddle, exact_model
from cmdpkit.learners._model_based.counting import play
from cmdpkit.learners._model_based.iterating import (
    Iterating,
    PolicyEvaluation,
    bernstein_start_bonus,
    evaluate,
    fill_bernstein_bonus,
    mirror,
    mix,
    remember,
)
from cmdpkit.learners._model_based.settings import Radii, logs, on_bonus, transition_and_signal
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import compiled
from cmdpkit.model.evaluate import evaluate as exact
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.simulate.random import Stream


@dataclass(frozen=True)
class ReLOADParams(Radii):
    """Settings of the learner."""

    step: float = 1.0  # step of the policy, times 1 / sqrt(H)
    dual_step: float = 1.0  # step of the prices, times 1 / sqrt(H)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("step", "dual_step"):
            self._expect(name, 0 < getattr(self, name) < math.inf, "a finite number above 0")


class Gradients(NamedTuple):
    """The gradients of the step before."""

    G: FloatArray  # [H, S, A]: of the policy
    d: FloatArray  # [N]: of the prices
    steps: IntArray  # [1]: how many steps were taken


class ReloadConstants(NamedTuple):
    """What compiled code needs of spec and settings."""

    allowed: BoolArray  # [H, S, A]: actions that may be used
    rho: FloatArray  # [N]: thresholds
    step: float  # eta, of the policy
    dual_step: float  # eta_lam, of the prices
    optimism: float  # weight of the change since the gradient before: 1, or 0 for plain ascent and descent


def reload_plan(
    cmdp: CMDP,
    *,
    tol: float = 1e-6,
    iterations: int = 50_000,
    step: float = 1.0,
    dual_step: float = 1.0,
    optimistic: bool = True,
    epoch: int = 500,
    progress: float = 0.9,
    patience: int = 5,
) -> Saddle:
    """The saddle point of a model's Lagrangian by optimistic mirror descent, from the uniform policy.

    Stops when no policy within the bounds can be better by more than `tol`, as the prices prove, and no bound is missed
    by more (both for rewards and utilities scaled to [0, 1]), or after `iterations`. With ``optimistic=False`` it is
    plain ascent and descent, which circles around the saddle point for ever. `cmdpkit.solve` is faster and exact; this
    function shows how the last iterate behaves.

    The error is computed after every `epoch` of iterations. Both steps are halved when `patience` epochs in a row have
    left it above `progress` times the smallest error so far. These three are ours: the paper has fixed steps.

    >>> from cmdpkit import envs
    >>> found = reload_plan(envs.build("paper/synthetic"))
    >>> round(found.value, 4), found.utilities.round(4).tolist(), found.prices.round(3).tolist()
    (1.5731, [2.0], [0.739])
    """
    spec, values = Spec.of(cmdp, K=1), exact_model(cmdp)
    allowed: BoolArray = np.array(spec.allowed, order="C")
    constants = _constants(spec, allowed, step, dual_step, float(optimistic))
    pi, lam, before = allowed / allowed.sum(axis=-1, keepdims=True), np.zeros(spec.N), _no_gradients(spec)
    done, error, best, stale = 0, math.inf, math.inf, 0
    while done < iterations and error > tol:
        n = min(epoch, iterations - done)
        _descend(values, pi, lam, before, constants, n)
        done += n
        error = _error(values, pi, lam, constants)
        best, stale = (error, 0) if error < progress * best else (best, stale + 1)
        if stale == patience:  # steps that are too long circle as well
            constants = constants._replace(step=constants.step / 2, dual_step=constants.dual_step / 2)
            best, stale = math.inf, 0
    policy = Policy.of(cmdp, pi / pi.sum(axis=-1, keepdims=True))
    found = exact(cmdp, policy)
    spans = np.array([scale.span for scale in cmdp.utility_scales])
    return Saddle(
        policy, found.v, found.w, lam * cmdp.reward_scale.span / spans, error, done, np.zeros((0, 1 + spec.N))
    )


def _error(values: PolicyEvaluation, pi: FloatArray, lam: FloatArray, constants: ReloadConstants) -> float:
    """How far pi and lam are from a saddle point: the duality gap or the largest shortfall, whichever is larger."""
    evaluate(values, pi, 0.0)
    means, (v, *w) = values.means, values.start
    objective = means.r + np.tensordot(lam, means.g, axes=1)
    best = extended_value_iteration(point(means.p, means.mu), objective, means.signals[:0], constants.allowed, len(pi))
    gap = float(best.totals[0]) - float(lam @ constants.rho) - float(v)
    return max(abs(gap), float((constants.rho - w).max(initial=0.0)))


def _constants(spec: Spec, allowed: BoolArray, step: float, dual_step: float, optimism: float) -> ReloadConstants:
    root = math.sqrt(spec.H)
    return ReloadConstants(allowed, spec.rho, step / root, dual_step / root, optimism)


def _no_gradients(spec: Spec) -> Gradients:
    return Gradients(np.zeros(spec.allowed.shape), np.zeros(spec.N), np.zeros(1, dtype=np.int64))


class ReLOAD(Iterating):
    """ReLOAD at work; keyword arguments other than the preset change single settings.

    >>> from cmdpkit import envs
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = ReLOAD(Spec.of(cmdp, K=10_000))
    >>> returns = learner.run(Source.of(cmdp), stream(1), 10_000)
    >>> bool(abs(returns.utilities[:, 5000:].mean() - 2.0) < 0.05)
    True
    """

    title = (
        "ReLOAD: optimistic mirror descent on the Lagrangian, whose last iterate converges; plans on a model or on "
        "estimates."
    )
    guarantee = (
        "asymptotic convergence of the last iterate for occupancy measures; none for this form in policy space, none "
        "for the learner"
    )
    paper = "arXiv 2302.01275"
    source = "restatement"
    presets = {"practical": ReLOADParams(c=1e-7), "theory": ReLOADParams()}

    changing: ClassVar[tuple[str, ...]] = (*Iterating.changing, "before")
    params: ReLOADParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **params)
        p = self.params
        self.logs = logs(spec, p)
        self.constants = _constants(spec, self.allowed, p.step, p.dual_step, 1.0)
        self.values, self.before = PolicyEvaluation.of(means_of(self.counts, spec.A), spec.H), _no_gradients(spec)
        self.notes = on_bonus(spec, transition_and_signal(spec, *self.logs))

    def recommend(self) -> FloatArray:
        """pi [H, S, A] of the last iterate."""
        return self.behaviour()

    def _play(self, source: Source, rng: Stream, out: FloatArray) -> None:
        sim, meter, parts = source.simulator, source.meter, (self.values, self.before, self.constants, self.logs)
        _episodes(sim, meter, self.counts, self.playing, self.choices, parts, rng, out)

    def _improve(self) -> None:
        _improve(self.counts, self.playing, (self.values, self.before, self.constants, self.logs))


@compiled
def _episodes(sim, meter, counts, playing, choices, parts, rng, out):
    """Episodes for all columns of out."""
    for k in range(out.shape[1]):
        play(sim, meter, counts, playing, rng, out, k)
        remember(playing, choices)
        _improve(counts, playing, parts)


@compiled
def _improve(counts, playing, parts):
    """Evaluate the policy with bonuses in the estimated model, then take a step."""
    values, before, constants, (kernel_log, mean_log) = parts
    update_means(counts, values.means)
    fill_bernstein_bonus(values, kernel_log, mean_log)
    evaluate(values, playing.pi, bernstein_start_bonus(values, kernel_log))
    _step(values, playing.pi, playing.lam, before, constants)


@compiled
def _descend(values, pi, lam, before, constants, n):
    """n steps on the model in `values`."""
    for _ in range(n):
        evaluate(values, pi, 0.0)
        _step(values, pi, lam, before, constants)


@compiled
def _step(values, pi, lam, before, constants):
    """Move pi and lam at once, along 2 current - previous gradient (the first time, along the current one)."""
    weight = constants.optimism if before.steps[0] > 0 else 0.0
    before.steps[0] += 1
    mix(values.Q, lam, values.mixed)
    H, S, A = pi.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                G = values.mixed[h, s, a]
                values.mixed[h, s, a] += weight * (G - before.G[h, s, a])
                before.G[h, s, a] = G
    mirror(pi, values.mixed, constants.step, constants.allowed)
    for n in range(len(lam)):
        d = constants.rho[n] - values.start[1 + n]
        lam[n] = max(lam[n] + constants.dual_step * (d + weight * (d - before.d[n])), 0.0)
        before.d[n] = d
