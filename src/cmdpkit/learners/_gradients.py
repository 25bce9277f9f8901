"""Planning with exact gradients: iterations on the Lagrangian of a known model, as the literature studies them.

All begin with the uniform policy and prices of 0, evaluate the present policy exactly, and move policy and prices at
once. With G = Q_r + sum_n lam_n Q_n and d_n = rho_n - w_n, brought from discounted problems to finite horizons:

    npg-pd   pi <- pi exp(eta G),  lam <- clip(lam + eta_lam d, 0, cap). Ding, Zhang, Basar, Jovanovic, "Natural Policy
             Gradient Primal-Dual Method for Constrained MDPs" (NeurIPS 2020). The iterates circle, their average
             converges; it is what is returned. Steps 1 and 0.1 are those that Jain et al. (UAI 2022) found best for it.
    rpg-pd   the same with an entropy and a square, pi <- pi^(1 - eta tau) exp(eta G_tau), lam <- clip((1 - eta tau) lam
             + eta d, 0, cap). Ding, Wei, Zhang, Ribeiro (NeurIPS 2023, arXiv 2306.11700), (6). The last iterate
             converges to a point with d = tau lam. Ours: no floor eps_0 / A for probabilities but 1e-26.
    opg-pd   pi <- Proj(pi' + eta G_before), pi' <- Proj(pi' + eta G), and lam alike; Proj is the Euclidean projection
             on the simplex. Same paper, (9). The last iterate pi' converges linearly, and is returned.
    crpo     pi <- pi exp(eta Q_r) if every d_n <= tol, and then pi joins the output set; else pi <- pi exp(eta Q_n) for
             a bound n that is missed, drawn at random. Xu, Liang, Lan (ICML 2021), as restated in the code of Jain et
             al.; the paper was not read. The average over the output set is returned. There are no prices.

An average of policies is returned as the one policy that has its occupancy, and hence its totals. `reload_plan` of
`cmdpkit.learners.reload` is one more method of the kind.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.boxes import Means
from cmdpkit.exact.solver import solve_fully
from cmdpkit.learners._model_based.cadence import add_expected_visits
from cmdpkit.learners._model_based.iterating import PolicyEvaluation, evaluate, mirror, mix, move_prices, soften
from cmdpkit.learners.spec import Spec
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import compiled, internal
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import check_length, index_of
from cmdpkit.operators.evaluate import evaluate as exact
from cmdpkit.simulate.random import stream, uniform
from cmdpkit.simulate.simulator import stacked

METHODS = ("npg-pd", "rpg-pd", "opg-pd", "crpo")
NPG, RPG, OPG, CRPO = range(4)


class Saddle(NamedTuple):
    """Where a planner has arrived, in the user's units."""

    policy: Policy  # the last iterate, or the average
    value: float  # its expected total reward
    utilities: FloatArray  # [N]: its expected total of every constraint's signal
    prices: FloatArray  # [N]: value per unit by which a bound is relaxed; NaN for crpo, which has none
    error: float  # the larger of gap and shortfall, in unit scale
    iterations: int  # number of steps that were taken
    path: FloatArray  # [iterations, 1+N]: value and utilities of every iterate; empty for `reload_plan`


def gradient_plan(
    cmdp: CMDP,
    method: str = "opg-pd",
    *,
    steps: int = 10_000,
    step: float | None = None,
    dual_step: float | None = None,
    tau: float = 0.01,
    tol: float = 0.0,
    cap: float = math.inf,
    seed: int = 0,
) -> Saddle:
    """A policy within the bounds by iterations on the Lagrangian of a known model with exact gradients.

    `cmdpkit.solve` is faster and exact; this function shows how methods of the literature behave. `error` of the result
    is what its value lacks of the optimum or the largest shortfall, whichever is larger, and `path` has value and
    utilities of every iterate.

    Parameters
    ----------
    cmdp : the model, with a horizon
    method : "npg-pd", "rpg-pd", "opg-pd" or "crpo"
    steps : number of iterations
    step, dual_step : of the policy and of the prices, for rewards and utilities scaled to [0, 1]. The default of
        `step` is 1 for npg-pd, 0.5 for opg-pd and 0.1 for the others, that of `dual_step` is 0.1 for npg-pd. rpg-pd
        and opg-pd have one step for both, and crpo has no prices
    tau : rpg-pd, the weight of the regularisers
    tol : crpo, by how much a bound may be missed without being attended to, in unit scale
    cap : largest price in unit scale; 2 H / slack in the paper on npg-pd
    seed : crpo, of the draws among several bounds that are missed

    >>> from cmdpkit import envs
    >>> found = gradient_plan(envs.build("paper/synthetic"), "opg-pd")
    >>> round(found.value, 6), found.utilities.round(6).tolist(), found.prices.round(3).tolist(), found.error < 1e-9
    (1.573063, [2.0], [0.739], True)
    """
    kind = index_of("method", METHODS, method)
    if cmdp.criterion.stationary:
        raise CmdpkitError("gradient_plan is for models with a horizon, and this one has none; use cmdpkit.solve")
    check_length("steps", steps)
    if dual_step is not None and kind != NPG:
        raise CmdpkitError(f"dual_step is {dual_step!r}, but only npg-pd has a step of its own for the prices")
    eta = {NPG: 1.0, OPG: 0.5}.get(kind, 0.1) if step is None else float(step)
    eta_lam = (0.1 if dual_step is None else float(dual_step)) if kind == NPG else eta
    for name, x, holds in (
        ("step", eta, 0 < eta < math.inf), ("dual_step", eta_lam, 0 < eta_lam < math.inf),
        ("tau", tau, 0 < tau < math.inf), ("tol", tol, 0 <= tol < math.inf), ("cap", cap, cap > 0),
    ):  # fmt: skip
        if not holds:
            raise CmdpkitError(f"{name} is {x!r}, expected a finite number above 0 (tol may be 0)")
    if kind == RPG and eta * tau > 1:
        raise CmdpkitError(f"step is {eta:g} and tau is {tau:g}, expected a product of at most 1")
    values = exact_model(cmdp)
    cells, N, allowed = values.allowed.shape, cmdp.N, values.allowed
    state = State(
        pi=allowed / allowed.sum(axis=-1, keepdims=True),
        lam=np.zeros(N),
        q=np.zeros(cells),
        prices=np.zeros(N),
        path=np.zeros((steps, 1 + N)),
        played=allowed / allowed.sum(axis=-1, keepdims=True),
        paid=np.zeros(N),
        flow=np.zeros((2, cmdp.S)),
        rows=np.zeros((2, cmdp.A)),
    )
    _iterate(values, state, (kind, eta, eta_lam, float(tau), float(tol), float(cap)), stream(seed))
    pi, lam = state.pi, state.lam
    if kind in (NPG, CRPO):
        reached = state.q.sum(axis=-1, keepdims=True)
        pi = np.where(reached > 0, state.q / np.where(reached > 0, reached, 1.0), pi)
        lam = state.prices / steps if kind == NPG else np.full(N, np.nan)
    path = np.empty_like(state.path)
    for n, (scale, sign) in enumerate(zip((cmdp.reward_scale, *cmdp.utility_scales), (1, *cmdp.signs), strict=True)):
        path[:, n] = [sign * scale.total_from_unit(x, cmdp.H) for x in state.path[:, n]]
    found = saddle_of(cmdp, pi, lam, math.nan, path)
    spans = np.array([scale.span for scale in cmdp.utility_scales])
    short = float(((cmdp.rho - cmdp.signs * found.utilities) / spans).max(initial=0.0))
    gap = (solve_fully(cmdp).value - found.value) / cmdp.reward_scale.span
    return found._replace(error=max(gap, short, 0.0))


class State(NamedTuple):
    """What the iterations change."""

    pi: FloatArray  # [H, S, A]: the policy
    lam: FloatArray  # [N]: the prices
    q: FloatArray  # [H, S, A]: occupancies added up, for the methods that return an average
    prices: FloatArray  # [N]: prices added up
    path: FloatArray  # [steps, 1+N]: value and utilities of every iterate, in unit scale
    played: FloatArray  # [H, S, A]: opg-pd, the policy that is evaluated
    paid: FloatArray  # [N]: opg-pd, its prices
    flow: FloatArray  # [2, S]: working memory, the distribution of the state at this and the next step
    rows: FloatArray  # [2, A]: working memory, a row of a policy


def saddle_of(cmdp: CMDP, pi: FloatArray, lam: FloatArray, error: float, path: FloatArray) -> Saddle:
    """A policy and prices in unit scale, in the user's units, after as many iterations as `path` has rows."""
    policy = Policy.of(cmdp, pi / pi.sum(axis=-1, keepdims=True))
    found, spans = exact(cmdp, policy), np.array([scale.span for scale in cmdp.utility_scales])
    return Saddle(policy, found.v, found.w, lam * cmdp.reward_scale.span / spans, error, len(path), path)


def exact_model(cmdp: CMDP) -> PolicyEvaluation:
    """The true model in the place of estimates, without bonuses."""
    H, S, A, N = cmdp.H, cmdp.S, cmdp.A, cmdp.N
    signals = np.moveaxis(stacked(cmdp, unit=True).reshape(-1, S, A, 1 + N), -1, 0)
    wide = np.ascontiguousarray(np.broadcast_to(signals, (1 + N, H, S, A)))
    none = np.zeros((H, S, A), dtype=np.int64)
    means = Means(np.array(cmdp.mu), np.array(cmdp.P, order="C"), wide, none[:1, 0, 0], none, none)
    return PolicyEvaluation.of(means, Spec.of(cmdp, K=1))


@compiled
def _iterate(values, state, given, rng):
    """As many iterations as `path` has rows."""
    kind, eta, eta_lam, tau, tol, cap = given
    pi, lam = state.pi, state.lam
    for t in range(len(state.path)):
        evaluate(values, state.played if kind == OPG else pi, 0.0)
        for n in range(len(values.start)):
            state.path[t, n] = values.start[n]
        if kind == RPG:
            regularised_step(values, pi, lam, eta, tau, 0.0, cap)
        elif kind == OPG:
            _optimistic_step(values, state, t, eta, cap)
        elif kind == NPG:
            _join(values, state)
            mix(values, lam)
            mirror(pi, values.mixed, eta, values.allowed)
            move_prices(values, lam, eta_lam, cap, lam)
        else:
            missed = _one_missed(values, tol, rng)
            if missed < 0:
                _join(values, state)
            mirror(pi, values.Q[1 + missed], eta, values.allowed)


@internal
def _join(values, state):
    """Add the present policy to the average."""
    add_expected_visits(values.means.p, values.means.mu, state.pi, state.q, state.flow)
    for n in range(len(state.lam)):
        state.prices[n] += state.lam[n]


@internal
def _one_missed(values, tol, rng):
    """A bound that is missed by more than tol, drawn at random; -1 if there is none."""
    chosen, found = -1, 0
    for n in range(len(values.rho)):
        if values.start[1 + n] < values.rho[n] - tol:
            found += 1
            if found == 1 or uniform(rng) * found < 1.0:
                chosen = n
    return chosen


@internal
def _optimistic_step(values, state, t, eta, cap):
    """Move pi and lam by the gradient of what was played, then look ahead from there along the same gradient."""
    mix(values, state.paid)
    if t > 0:  # the first gradient only looks ahead
        _project(state.pi, values.mixed, eta, values.allowed, state.rows, state.pi)
        move_prices(values, state.lam, eta, cap, state.lam)
    _project(state.pi, values.mixed, eta, values.allowed, state.rows, state.played)
    move_prices(values, state.lam, eta, cap, state.paid)


@internal
def _project(pi, G, eta, allowed, rows, out):
    """out[h, s] <- the nearest distribution to pi[h, s] + eta G[h, s] among those on allowed actions."""
    H, S, A = pi.shape
    row, falling = rows[0], rows[1]
    for h in range(H):
        for s in range(S):
            count = 0
            for a in range(A):
                row[a] = pi[h, s, a] + eta * G[h, s, a]
                if allowed[h, s, a]:
                    j = count
                    while j > 0 and falling[j - 1] < row[a]:
                        falling[j] = falling[j - 1]
                        j -= 1
                    falling[j] = row[a]
                    count += 1
            total, level = 0.0, 0.0
            for j in range(count):
                total += falling[j]
                if falling[j] - (total - 1.0) / (j + 1) > 0.0:
                    level = (total - 1.0) / (j + 1)
            for a in range(A):
                out[h, s, a] = max(row[a] - level, 0.0) if allowed[h, s, a] else 0.0


@internal
def regularised_step(values, pi, lam, eta, tau, margin, cap):
    """Move pi, which was evaluated, and lam at once, with entropy and square and with a margin on the thresholds."""
    soften(values, pi, tau)
    mix(values, lam)
    H, S, A = pi.shape
    for h in range(H):
        for s in range(S):
            for a in range(A):
                if values.allowed[h, s, a]:
                    values.mixed[h, s, a] -= tau * math.log(pi[h, s, a])
    mirror(pi, values.mixed, eta, values.allowed)
    for n in range(len(lam)):
        moved = (1.0 - eta * tau) * lam[n] + eta * (values.rho[n] + margin - values.start[1 + n])
        lam[n] = min(max(moved, 0.0), cap)
