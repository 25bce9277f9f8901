"""Discounted, long-run and total problems against SciPy's linear programs, exact fractions and definitions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from stationary_oracle import bounded, exact_discounted, model_of, optimum, random_model

import cmdpkit as ck
from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.sources import columns_of
from cmdpkit.exact.stationary.careful import elimination_error, improve

CRITERIA = [("discounted", 0.5), ("discounted", 0.95), ("discounted", 0.9999), ("average", 1.0)]
BATCH = 20


def bounds_between(cmdp: ck.CMDP, share: float) -> np.ndarray:
    """Bounds between what comes by itself (share 0) and the best compromise (share 1), in own units."""
    pool = columns_of(cmdp)
    _, weights, _ = pool.reach(np.zeros(cmdp.N), np.ones(cmdp.N))
    best = sum(x * c.w for x, c in pool.parts(weights))
    free = sum(x * c.w for x, c in pool.parts(pool.maximise(np.full(cmdp.N, -5.0)).weights))
    return (free + share * (best - free)) * pool.units[1:] + pool.offsets[1:]


def solved(model, kind, discount, share):
    cmdp = model_of(*model, kind, discount)
    rho = bounds_between(cmdp, share) if cmdp.N else np.zeros(0)
    return rho, ck.solve(bounded(cmdp, rho))


def policies_of(answer: ck.Solution) -> list[np.ndarray]:
    """The tables [S, A] of the policy, or of all policies of a mixture."""
    parts = answer.policy.policies if isinstance(answer.policy, ck.Mixture) else (answer.policy,)
    return [policy.table(0) for policy in parts]


def draws(pi: np.ndarray) -> int:
    """Actions beyond one per state."""
    return int(((pi > 1e-9).sum(axis=1) - 1).sum())


def simulated_values(model, pi, kind, discount, steps=20_000):
    """(v, w_1 .. w_N) by following the distribution of the state, step after step."""
    P, r, g, mu = model
    chain = np.einsum("sa,sat->st", pi, P)
    signals = np.array([(pi * x).sum(axis=1) for x in (r, *g)])
    total, d, weight = np.zeros(len(signals)), mu.copy(), 1.0
    if kind == "average":  # from a mean over many steps of the lazy chain, which has the same long-run shares
        for _ in range(steps):
            d = (d + d @ chain) / 2
        return signals @ d
    while weight > 1e-14:
        total += weight * (signals @ d)
        d, weight = d @ chain, weight * discount
    return total


@pytest.mark.parametrize("batch", range(15))
def test_three_hundred_random_models_agree_with_scipy(batch):
    for seed in range(BATCH * batch, BATCH * (batch + 1)):
        rng = np.random.default_rng([1, seed])
        model = random_model(rng)
        kind, discount = CRITERIA[rng.integers(4)]
        factor = 1 / (1 - discount) if kind == "discounted" else 1.0
        rho, answer = solved(model, kind, discount, rng.choice([0.3, 0.6, 0.9]))
        best = optimum(*model[:3], rho, model[3], kind, discount)
        assert best is not None, seed
        if answer.attained:
            assert answer.value == pytest.approx(best, abs=1e-8 * factor), seed
            # The promise is 1e-9 of the value; where the value is small, 1e-9 of what signals of order 1 add up to.
            assert answer.gap <= 1e-9 * max(factor, abs(answer.value)), seed
        assert answer.value <= best + 1e-8 * factor <= answer.value + answer.gap + 2e-8 * factor, seed
        assert (answer.utilities >= rho - 1e-9 * factor).all(), seed
        if len(policies_of(answer)) == 1:
            if answer.attained:
                assert draws(policies_of(answer)[0]) <= len(rho), seed
            if discount < 0.999:
                values = simulated_values(model, policies_of(answer)[0], kind, discount)
                tolerance = 1e-9 * factor if kind == "discounted" else 1e-3
                np.testing.assert_allclose(values, [answer.value, *answer.utilities], rtol=0, atol=tolerance)


@pytest.mark.parametrize("batch", [0, 1, *(pytest.param(i, marks=pytest.mark.long) for i in range(2, 10))])
def test_two_hundred_models_with_several_end_components_agree_with_the_two_block_program(batch):
    several = 0
    for seed in range(BATCH * batch, BATCH * (batch + 1)):
        rng = np.random.default_rng([2, seed])
        model = random_model(rng, blocks=True)
        rho, answer = solved(model, "average", 1.0, rng.choice([0.3, 0.6, 0.9]))
        best = optimum(*model[:3], rho, model[3], "average")
        assert best is not None, seed
        assert answer.value <= best + 1e-8 <= answer.value + answer.gap + 2e-8, seed
        if answer.attained or len(policies_of(answer)) > 1:
            assert answer.value == pytest.approx(best, abs=1e-8), seed
            # Before it settles, a run may take 300,000 steps in model 15, and the rounding of each of them is counted.
            assert answer.gap <= (2e-9 if seed == 15 else 1e-9), seed
        assert (answer.utilities >= rho - 1e-9).all(), seed
        assert len(policies_of(answer)) <= len(rho) + 1
        several += len(policies_of(answer)) > 1
    assert several  # the mixtures are really met in every batch


def test_the_proved_gap_is_never_below_the_true_one_in_exact_fractions():
    for seed in range(40):
        rng = np.random.default_rng([3, seed])
        S, A = 3, 2
        P = [[[Fraction(int(x), 16) for x in rng.multinomial(16, np.ones(S) / S)] for _ in range(A)] for _ in range(S)]
        r, g = (
            [[Fraction(int(x), 8) for x in row] for row in rng.integers(-8, 9, (S, A))],
            [[Fraction(int(x), 8) for x in row] for row in rng.integers(-8, 9, (S, A))],
        )
        mu = [Fraction(1), Fraction(0), Fraction(0)]
        discount = Fraction([1, 15, 1023][seed % 3], [2, 16, 1024][seed % 3])
        free = exact_discounted(P, g, None, None, mu, discount)
        worst = -exact_discounted(P, [[-x for x in row] for row in g], None, None, mu, discount)
        rho = Fraction(float(worst + (free - worst) * 2 / 3))
        best = exact_discounted(P, r, g, rho, mu, discount)
        numbers = [np.array(x, dtype=float) for x in (P, r, [g], [rho], mu)]
        cmdp = model_of(*numbers[:3], numbers[4], "discounted", float(discount))
        answer = ck.solve(bounded(cmdp, numbers[3]))
        scale = float(1 / (1 - discount))
        assert Fraction(answer.value) + Fraction(answer.gap) >= best, seed
        assert abs(float(Fraction(answer.value) - best)) <= 1e-12 * scale, seed
        assert answer.gap <= 1e-12 * scale, seed


def test_any_vector_proves_a_bound_and_better_ones_a_tighter_one():
    for seed in range(30):
        rng = np.random.default_rng([4, seed])
        P, r, _, mu = random_model(rng)
        nothing = np.zeros((0, *r.shape))
        source = columns_of(model_of(P, r, nothing, mu, "discounted", 0.9)).source
        best = optimum(P, r, nothing, np.zeros(0), mu, "discounted", 0.9)
        part, best_policy = source.part, source.best_policy(np.ones(1), 0.0, 1e-15)
        noise, bounds = rng.normal(size=best_policy.Y.shape), []
        for size in (0.0, 0.01, 1.0, 100.0):
            policy = best_policy._replace(Y=best_policy.Y + size * noise)
            bounds.append(source.scale.own(np.array([improve(part, policy, np.ones(1), part.X[0]).bound]))[0])
        assert bounds == sorted(bounds)
        assert bounds[0] == pytest.approx(best, abs=1e-7) and bounds[0] >= best - 1e-7


def test_totals_agree_with_scipy_and_endless_models_are_refused():
    for seed in range(40):
        rng = np.random.default_rng([5, seed])
        S, A, N = int(rng.integers(3, 10)), int(rng.integers(2, 4)), int(rng.integers(0, 3))
        P = rng.dirichlet(np.ones(S), (S, A))
        P[:, :, -1] += rng.uniform(0.01, 0.3)
        P /= P.sum(axis=-1, keepdims=True)
        r, g = rng.normal(size=(S, A)), rng.normal(size=(N, S, A))
        P[-1], r[-1], g[:, -1] = np.eye(S)[-1], 0.0, 0.0
        mu = np.eye(S)[0]
        rho, answer = solved((P, r, g, mu), "total", 1.0, 0.5)
        transient = P[:-1, :, :-1]
        best = optimum(transient, r[:-1], g[:, :-1], rho, mu[:-1], "total")
        assert best is not None
        assert answer.value == pytest.approx(best, abs=1e-7)
        assert answer.gap <= 1e-9 * max(1.0, abs(best))
        assert (answer.utilities >= rho - 1e-8).all()
        assert draws(policies_of(answer)[0]) <= N
    P[0, 0] = np.eye(S)[0]
    with pytest.raises(CmdpkitError, match="'total', but a policy can stay forever in state 1"):
        ck.solve(model_of(P, r, g, mu, "total"))


def test_unreachable_signals_have_no_influence():
    P, r, g, mu = np.zeros((3, 2, 3)), np.zeros((3, 2)), np.zeros((1, 3, 2)), np.eye(3)[0]
    P[0, 0, 1] = P[0, 1, 0] = P[1, :, 0] = P[2, :, 2] = 1.0
    r[0, 1], g[0, 1] = 1.0, 1.0
    r[2], g[:, 2] = 1e12, -1e15
    for kind, discount in CRITERIA:
        cmdp, small = model_of(P, r, g, mu, kind, discount), r.copy()
        rho = bounds_between(cmdp, 0.5)
        small[2] = 0.0
        best = optimum(P, small, np.where(g < 0, 0, g), rho, mu, kind, discount)
        answer = ck.solve(bounded(cmdp, rho))
        assert answer.value == pytest.approx(best, rel=1e-9)
        assert answer.gap <= 1e-9 * best


def test_signals_that_vary_little_are_solved_to_the_same_precision():
    """Costs 1.00000000059 and 1.00000000091 with a bound of 1.00000000078 on the average."""
    P, r = np.ones((1, 2, 1)), np.array([[0.0, 1.0]])
    g = -np.array([[[1.00000000059, 1.00000000091]]])
    answer = ck.solve(bounded(model_of(P, r, g, np.ones(1), "average"), [-1.00000000078]))
    assert answer.value == pytest.approx(19 / 32, abs=1e-6)
    assert answer.utilities[0] >= -1.00000000078 - 1e-15


# -- rounding in elimination -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("S", [3, 200, 400])
def test_the_error_of_elimination_counts_products_of_roundings(S):
    """k roundings that all go the worst way, in the value and, the other way, in that of the absolute signal."""
    u, k = 2.0**-53, S * (S + 1) * (2 * S + 1) // 3 + 4 * S * (S + 1) + 6 * S  # the sum of (2n + 2) (n + 3)
    grown, shrunk = math.expm1(-k * math.log1p(-u)), math.exp(k * math.log1p(-u))
    assert grown <= elimination_error(S, S - 1) * shrunk <= (1 + 2 * k * u) * grown + 1e-30
    if S == 3:
        worst = 1 / (1 - Fraction(1, 2**53)) ** 94
        assert worst - 1 <= Fraction(elimination_error(3, 2)) / worst
    if S == 400:
        assert grown > k * u * (1 + 1e-9), "to first order and raised by 1e-9 is too little here"
