"""Steps on the Lagrangian: the regularised learner against a transcription and solved points."""

import math

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.learners import Spec, load
from cmdpkit.learners._model_based.iterating import improved
from counted import counts_of
from told import know

pytestmark = pytest.mark.compiled


def values_of(P, x, pi, mu, *, cut=np.inf, tau=0.0):
    """Q [H, S, A], at most cut (H - h), and the total from mu of a signal [H, S, A] with tau times the entropy."""
    H, S, A = pi.shape
    Q, V = np.zeros((H, S, A)), np.zeros(S)
    for h in reversed(range(H)):
        Q[h] = np.minimum(x[h] + P[h] @ V, cut * (H - h))
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = -np.where(pi[h] > 0, pi[h] * np.log(pi[h]), 0.0).sum(axis=-1)
        V = (pi[h] * Q[h]).sum(axis=-1) + tau * entropy
    return Q, float(mu @ V)


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def seen(cmdp, seed=0, most=30):
    """Made-up counts with every kind of row, some of them without visits."""
    rng = np.random.default_rng(seed)
    H, S, A = cmdp.H, cmdp.S, cmdp.A
    moves = rng.multinomial(7, rng.dirichlet(np.ones(S), (H, S, A))) * rng.integers(0, 2, (H, S, A))[..., None]
    moves[-1] = 0
    visits = moves.sum(axis=-1)
    visits[-1] = rng.integers(0, most, (S, A))
    sums = rng.random((1 + cmdp.N, H, S, A)) * visits
    return moves, visits, sums, rng.integers(1, 9, S)


@pytest.mark.parametrize("preset", ["uopt", "muller", "flexdome"])
def test_a_step_of_the_learner_is_the_formula(preset):
    """Bonus, values that are cut, and both updates, transcribed from the formulas with NumPy."""
    cmdp, K, k = ck.load("random", S=4, A=3, H=3, N=2, conflict=0.5, seed=3), 1000, 5
    learner = load("reg-primal-dual")(Spec.of(cmdp, K), preset=preset, delta=0.2, cap=1.5)
    moves, visits, sums, starts = seen(cmdp)
    learner.counts = counts_of(moves, visits, sums, np.zeros_like(sums), starts)
    rng, (H, S, A), rho = np.random.default_rng(1), cmdp.actions.shape, learner.spec.rho
    pi, lam = rng.dirichlet(np.ones(A), (H, S)), np.array([0.3, 1.4])
    learner.playing.pi[...], learner.playing.lam[...], learner.playing.episodes[0] = pi, lam, k
    improved(learner.parts, learner.counts, learner.playing)

    moved, n, episodes = moves.sum(axis=-1), visits, int(starts.sum())
    p = np.where(moved[..., None] > 0, moves / np.maximum(moved, 1)[..., None], np.eye(S)[:, None])
    mu, means = starts / episodes, sums / np.maximum(visits, 1)
    if preset == "uopt":
        eta, tau, m = (k + 3) ** -0.53, (k + 3) ** -0.4, 0.0

        def width(n, roots):
            phi = np.sqrt(
                (2 * np.log(np.log(np.maximum(2 * n, math.e))) + 2 * math.log(48 * S * S * A * H / 0.2))
                / np.maximum(n, 1)
            )
            return 0.001 * (phi * roots + 5 * phi**2)

        roots = np.where(moved > 0, np.sqrt(p).sum(axis=-1), np.sqrt(S))  # where nothing was seen, at their largest
        roots[-1] = 1.0
        bonus, at_start = width(n, roots), width(episodes, np.sqrt(mu).sum())
    else:
        eta, tau, m = (
            (K**-0.75, K**-0.125, 0.0)
            if preset == "muller"
            else (k ** (-5 / 6), 0.1 * k ** (-1 / 6), 0.1 * k ** (-1 / 6))
        )
        L_p, L_l = math.log(6 * S * A * H * K / 0.2), 2 * math.log(6 * S * A * H * 3 * K / 0.2)

        def total(p, n):
            x = L_p / np.maximum(n, 1)[..., None]
            return np.maximum(2 * np.sqrt(p * (1 - p) * x) + 14 / 3 * x, np.where(n[..., None] == 0, 1.0, 0.0)).sum(
                axis=-1
            )

        p0 = np.where(moved[..., None] > 0, p, 0.0)  # the radius of a state that was not seen, at least 1
        bonus = np.maximum(np.sqrt(L_l / np.maximum(n, 1)), np.where(n == 0, 1.0, 0.0))
        bonus[:-1] += H * total(p0, moved)[:-1]
        at_start = H * float(total(mu, np.array(episodes)))
    G, _ = values_of(p, means[0] + bonus, pi, mu, cut=1 + tau * math.log(A), tau=tau)
    w = np.zeros(2)
    for i in range(2):
        Q, found = values_of(p, means[1 + i] + bonus, pi, mu, cut=1.0)
        w[i], G = min(found + at_start, H), G + lam[i] * Q
    np.testing.assert_allclose(learner.playing.pi, softmax((1 - eta * tau) * np.log(pi) + eta * G), rtol=1e-9)
    np.testing.assert_allclose(
        learner.playing.lam, np.clip((1 - eta * tau) * lam + eta * (rho + m - w), 0, 1.5), rtol=1e-9
    )


SOFT = pytest.param(0.1, 0.9610728621, 0.4038927138, marks=pytest.mark.long)
FIRM = (0.01, 0.9996001067, 0.4900039989)


@pytest.mark.parametrize(("tau", "lam", "p"), [FIRM, SOFT])
def test_the_fixed_point_solved_by_hand(tau, lam, p):
    """Rewards (1, 0), utilities (0, 1), half asked for: p = 1 / (1 + exp((1 - lam) / tau)) = 1/2 - tau lam."""
    assert 1 / (1 + math.exp((1 - lam) / tau)) == pytest.approx(p, abs=2e-8)
    cmdp = ck.CMDP([[[1.0], [1.0]]], [[1.0, 0.0]], [[0.0, 1.0]], rho=0.5, horizon=1)
    fixed = {"step": 0.05, "tau": tau, "step_power": 0.0, "tau_power": 0.0}
    learner = load("reg-primal-dual")(Spec.of(cmdp, 10), preset="muller", c=0.0, **fixed)
    know(learner, cmdp, 10**12)
    for _ in range(100_000):
        improved(learner.parts, learner.counts, learner.playing)
    assert learner.multipliers[0] == pytest.approx(lam, abs=1e-8)
    assert learner.recommend()[0, 0, 1] == pytest.approx(p, abs=1e-8)


@pytest.mark.parametrize("margin", [0.0, 0.02])
def test_where_the_learner_stands_still_the_shortfall_is_tau_times_the_price(margin):
    """With data without end and constant steps: rho + m - w = tau lam, for each of two prices."""
    cmdp, many = ck.load("random", S=4, A=3, H=3, N=2, conflict=0.5, seed=3), 10**12
    fixed = {"step": 0.2, "tau": 0.05, "step_power": 0.0, "tau_power": 0.0, "margin_power": 0.0}
    learner = load("reg-primal-dual")(Spec.of(cmdp, 10), preset="muller", c=0.0, margin=margin, **fixed)
    know(learner, cmdp, many)
    for _ in range(20_000):
        improved(learner.parts, learner.counts, learner.playing)
    lam, w = learner.multipliers, ck.evaluate(cmdp, ck.Policy.of(cmdp, learner.recommend())).w
    assert (lam > 0.01).all()
    spans = np.array([s.span for s in cmdp.utility_scales])
    np.testing.assert_allclose((cmdp.rho - w) / spans + margin, 0.05 * lam, atol=1e-7)


def test_only_what_needs_no_length_can_be_stopped_at_will():
    for preset in ("muller", "flexdome"):
        with pytest.raises(ck.CmdpkitError, match=f"preset '{preset}' must know the number of episodes"):
            ck.learn("paper/synthetic", "reg-primal-dual", preset=preset, stop=100)
    with pytest.raises(ck.CmdpkitError, match=r"step is 3\.0, expected at most 1 / tau, 1"):
        ck.learn("paper/synthetic", "reg-primal-dual", preset="uopt", episodes=10, step=3)
