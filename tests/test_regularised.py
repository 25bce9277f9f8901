"""Steps on the Lagrangian: the regularised learner and the planners with exact gradients, against transcriptions."""

import math

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.estimate.counts import counts_of
from cmdpkit.learners import Spec, load
from cmdpkit.learners._gradients import _project
from instances import synthetic
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
    learner._improve()

    moved, n, episodes = moves.sum(axis=-1), visits, int(starts.sum())
    p = np.where(moved[..., None] > 0, moves / np.maximum(moved, 1)[..., None], 1 / S)
    mu, means = starts / episodes, sums / np.maximum(visits, 1)
    if preset == "uopt":
        eta, tau, m = (k + 3) ** -0.53, (k + 3) ** -0.4, 0.0

        def width(n, roots):
            phi = np.sqrt(
                (2 * np.log(np.log(np.maximum(2 * n, math.e))) + 2 * math.log(48 * S * S * A * H / 0.2))
                / np.maximum(n, 1)
            )
            return 0.001 * (phi * roots + 5 * phi**2)

        roots = np.sqrt(p).sum(axis=-1)
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

        p0 = np.where(moved[..., None] > 0, p, 1 / S)
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
    found = ck.gradient_plan(cmdp, "rpg-pd", tau=tau, step=0.05, steps=100_000)
    assert found.prices[0] == pytest.approx(lam, abs=1e-8)
    assert found.policy.pi[0, 0, 1] == pytest.approx(p, abs=1e-8)


@pytest.mark.parametrize("margin", [0.0, 0.02])
def test_where_the_learner_stands_still_the_shortfall_is_tau_times_the_price(margin):
    """With data without end and constant steps: rho + m - w = tau lam, for each of two prices."""
    cmdp, many = ck.load("random", S=4, A=3, H=3, N=2, conflict=0.5, seed=3), 10**12
    fixed = {"step": 0.2, "tau": 0.05, "step_power": 0.0, "tau_power": 0.0, "margin_power": 0.0}
    learner = load("reg-primal-dual")(Spec.of(cmdp, 10), preset="muller", c=0.0, margin=margin, **fixed)
    know(learner, cmdp, many)
    for _ in range(20_000):
        learner._improve()
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


# -- planners with exact gradients -------------------------------------------------------------------------------------


def transcribed(cmdp, method, steps, eta, eta_lam, tau):
    """Values of the first iterates [steps, 1+N] by the formulas; signals are in [0, 1] already."""
    H, S, A = cmdp.actions.shape
    r, g = np.broadcast_to(cmdp.r, (H, S, A)), np.broadcast_to(cmdp.g, (cmdp.N, H, S, A))
    pi, lam, path = np.full((H, S, A), 1 / A), np.zeros(cmdp.N), []
    ahead, ahead_lam = pi, lam  # opg-pd: its pi^ and lam^

    def gradients(pi, lam):
        Q, _ = values_of(cmdp.P, r, pi, cmdp.mu, tau=tau if method == "rpg-pd" else 0.0)
        parts = [values_of(cmdp.P, x, pi, cmdp.mu) for x in g]
        w = np.array([w for _, w in parts])
        path.append([values_of(cmdp.P, r, pi, cmdp.mu)[1], *w])
        return Q, [Q for Q, _ in parts], Q + sum(lam[n] * parts[n][0] for n in range(cmdp.N)), cmdp.rho - w

    for t in range(steps):
        Q, Qs, G, d = gradients(pi, lam)
        if method == "npg-pd":
            pi, lam = softmax(np.log(pi) + eta * G), np.maximum(lam + eta_lam * d, 0)
        elif method == "rpg-pd":
            pi, lam = softmax((1 - eta * tau) * np.log(pi) + eta * G), np.maximum((1 - eta * tau) * lam + eta * d, 0)
        elif method == "opg-pd":
            if t > 0:
                ahead, ahead_lam = nearest(ahead + eta * G), np.maximum(ahead_lam + eta * d, 0)
            pi, lam = nearest(ahead + eta * G), np.maximum(ahead_lam + eta * d, 0)
        else:
            pi = softmax(np.log(pi) + eta * (Q if (d <= 0).all() else Qs[int(np.argmax(d > 0))]))
    return np.array(path)


def nearest(rows):
    """The nearest distributions, by bisection on the level that is taken off."""
    low, high = rows.min(axis=-1, keepdims=True) - 1, rows.max(axis=-1, keepdims=True)
    for _ in range(80):
        level = (low + high) / 2
        large = np.maximum(rows - level, 0).sum(axis=-1, keepdims=True) > 1
        low, high = np.where(large, level, low), np.where(large, high, level)
    return np.maximum(rows - (low + high) / 2, 0)


@pytest.mark.parametrize("method", ["npg-pd", "rpg-pd", "opg-pd", "crpo"])
def test_iterates_are_those_of_the_formulas(method):
    cmdp, eta, eta_lam, tau = synthetic(), 0.3, 0.2, 0.1
    given = {"step": eta, "dual_step": eta_lam} if method == "npg-pd" else {"step": eta}
    found = ck.gradient_plan(cmdp, method, steps=60, tau=tau, **given)
    np.testing.assert_allclose(found.path, transcribed(cmdp, method, 60, eta, eta_lam, tau), rtol=0, atol=1e-9)


def test_projections_are_the_nearest_distributions():
    rng = np.random.default_rng(2)
    pi, G = rng.random((3, 4, 5)), 3 * rng.normal(size=(3, 4, 5))
    allowed, out = rng.random((3, 4, 5)) < 0.7, np.zeros((3, 4, 5))
    allowed[..., 2] = True
    _project(pi, G, 0.7, allowed, np.zeros((2, 5)), out)
    np.testing.assert_allclose(out, nearest(np.where(allowed, pi + 0.7 * G, -1e3)), atol=1e-12)
    assert (out[~allowed] == 0).all()


def test_on_the_papers_instance_they_end_where_theory_says():
    cmdp, best = synthetic(), ck.solve(synthetic())
    npg = ck.gradient_plan(cmdp, "npg-pd")
    assert npg.error < 0.002 and np.ptp(npg.path[-2000:, 1]) > 0.05  # the average converges, the iterates circle
    np.testing.assert_allclose([npg.value, *npg.utilities], npg.path.mean(axis=0), atol=1e-9)
    opg = ck.gradient_plan(cmdp, "opg-pd")
    assert opg.error < 1e-9 and abs(opg.value - best.value) < 1e-9
    assert opg.prices == pytest.approx(best.shadow_prices, abs=1e-6)
    rpg = ck.gradient_plan(cmdp, "rpg-pd", steps=20_000, step=0.2, tau=0.02)
    assert 2 - rpg.utilities[0] == pytest.approx(0.02 * rpg.prices[0], abs=1e-9)
    for tol in (0.0, 0.02):
        crpo = ck.gradient_plan(cmdp, "crpo", tol=tol)
        joined = crpo.path[crpo.path[:, 1] >= 2 - tol]
        assert crpo.utilities[0] >= 2 - tol - 1e-12 and crpo.error < 0.005 + tol
        np.testing.assert_allclose([crpo.value, *crpo.utilities], joined.mean(axis=0), atol=1e-9)


def test_two_bounds_costs_and_other_units_come_back_in_the_users_sense():
    rng = np.random.default_rng(4)
    P, r, cost, good = (
        rng.dirichlet(np.ones(3), (3, 2)),
        10 * rng.random((3, 2)) - 3,
        5 * rng.random((3, 2)),
        rng.random((3, 2)),
    )
    cmdp = ck.CMDP(P, r, horizon=3, constraints=[ck.at_most("cost", 7.0, cost), ck.at_least("good", 1.2, good)])
    exact, found = ck.solve(cmdp), ck.gradient_plan(cmdp, "opg-pd", steps=40_000)
    assert found.value == pytest.approx(exact.value, abs=1e-6)
    assert found.prices == pytest.approx(exact.shadow_prices, abs=1e-5)
    np.testing.assert_allclose(found.path[-1], [found.value, *found.utilities], atol=1e-5)
    crpo = ck.gradient_plan(cmdp, "crpo", seed=1)
    assert crpo.utilities[0] <= 7 + 1e-9 and crpo.utilities[1] >= 1.2 - 1e-9


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"method": "npg"}, "unknown method 'npg'; did you mean 'npg-pd'"),
        ({"method": "opg-pd", "dual_step": 0.1}, "only npg-pd has a step of its own"),
        ({"method": "rpg-pd", "step": 2.0, "tau": 0.6}, "expected a product of at most 1"),
        ({"step": 0.0}, "step is 0.0, expected"),
        ({"steps": 0}, "steps is 0, expected a whole number, at least 1"),
    ],
)
def test_senseless_settings_are_refused(given, sentence):
    with pytest.raises(ck.CmdpkitError, match=sentence):
        ck.gradient_plan(synthetic(), **given)
    with pytest.raises(ck.CmdpkitError, match="for models with a horizon"):
        ck.gradient_plan(ck.load("machine-two"))
