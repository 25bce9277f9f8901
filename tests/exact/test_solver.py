"""The exact solver against enumeration of all deterministic policies, SciPy, and hand-solved numbers."""

import numpy as np
import oracle
import pytest
from scipy.optimize import linprog

import cmdpkit as ck
from instances import deterministic_values, sparse, synthetic, tiny, with_rho

pytestmark = pytest.mark.compiled
METHODS = ("columns", "lp")
KINDS = ("inside", "near", "tight", "beyond")


def mixture_lp(values: np.ndarray, rho: np.ndarray) -> float | None:
    """The optimum over mixtures of all deterministic policies, or None: an oracle that knows nothing of occupancies."""
    if not len(rho):
        return float(values[:, 0].max())
    result = linprog(
        -values[:, 0], A_ub=-values[:, 1:].T, b_ub=-rho, A_eq=np.ones((1, len(values))), b_eq=[1], method="highs"
    )
    return None if result.status == 2 else -result.fun


def drawn_rho(rng: np.random.Generator, values: np.ndarray, kind: str) -> np.ndarray:
    """Thresholds inside, at the edge of, or outside what mixtures reach."""
    w = rng.dirichlet(np.full(len(values), 0.3)) @ values[:, 1:]
    if kind == "tight":
        return values[values[:, 1:].sum(axis=1).argmax(), 1:]
    return w + {"inside": -0.05, "near": 0.1, "beyond": 0.8}[kind] * rng.random(len(w))


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))])
@pytest.mark.parametrize("ties", [False, True])
def test_columns_and_lp_agree_with_the_lp_over_all_deterministic_policies(seed, ties):
    rng = np.random.default_rng([seed, ties])
    infeasible = 0
    for _ in range(40):  # 16 x 40 = 640 instances
        cmdp = tiny(rng, N := int(rng.integers(0, 6)), ties=ties)
        values = deterministic_values(cmdp)
        cmdp = with_rho(cmdp, drawn_rho(rng, values, KINDS[rng.integers(4)]) if N else np.zeros(0))
        optimum = mixture_lp(values, cmdp.rho)
        infeasible += optimum is None
        for method in METHODS:
            if optimum is None:
                with pytest.raises(ck.Infeasible):
                    ck.solve(cmdp, method)
            else:
                check_solution(ck.solve(cmdp, method), optimum)
    assert 0 < infeasible < 40


def check_solution(solution: ck.Solution, optimum: float) -> None:
    cmdp = solution.cmdp
    assert solution.value == pytest.approx(optimum, abs=1e-8)
    assert solution.gap <= 1e-9 * max(1.0, abs(optimum))
    assert (cmdp.signs * solution.utilities >= cmdp.rho - 1e-9).all()
    assert (solution.shadow_prices >= 0).all()
    extra = sum(len(d.probabilities) - 1 for d in solution.stochastic_decisions())
    assert extra <= cmdp.N
    assert len(solution.mixture.policies) <= extra + 1
    mixed = ck.evaluate(cmdp, solution.mixture)
    assert mixed.v == pytest.approx(solution.value, abs=1e-10)
    assert mixed.w == pytest.approx(solution.utilities, abs=1e-10)
    slack = cmdp.signs * solution.utilities - cmdp.rho
    assert (solution.shadow_prices * slack <= 1e-8).all(), "complementary slackness"


@pytest.mark.parametrize(("S", "A", "H", "N"), [(30, 4, 8, 1), (20, 3, 10, 3), (12, 2, 6, 5)])
def test_larger_models_agree_with_scipys_occupancy_lp(S, A, H, N):
    cmdp = sparse(S, A, H, 4, N, seed=S)
    reference = oracle.optimum(cmdp)
    for method in METHODS:
        solution = ck.solve(cmdp, method)
        check_solution(solution, reference.value)
        assert solution.shadow_prices == pytest.approx(np.asarray(reference.prices), abs=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_the_papers_synthetic_instance_has_the_published_optimum(method):
    solution = ck.solve(synthetic(), method)
    assert solution.value == pytest.approx(1.573063, abs=1e-6)
    assert solution.utilities == pytest.approx([2.0], abs=1e-9)
    assert solution.shadow_prices == pytest.approx([0.739261], abs=1e-6)
    (decision,) = solution.stochastic_decisions()
    assert (decision.step, decision.state) == (1, 1)
    assert decision.probabilities == pytest.approx({2: 0.2738, 3: 0.7262}, abs=5e-5)


def test_the_stochastic_decision_moves_as_the_bound_is_tightened():
    places = [ck.solve(synthetic(2 + eps)).stochastic_decisions()[0][:2] for eps in (0.016, 0.03, 0.06)]
    assert places == [(1, 1), (3, 2), (1, 2)]


def test_an_at_most_constraint_is_the_mirror_image_of_an_at_least_one():
    up = synthetic()
    down = ck.CMDP(up.P, up.r, mu=up.mu, constraints=[ck.at_most("cost", -2.0, -up.g[0])])
    a, b = ck.solve(up), ck.solve(down)
    assert b.value == pytest.approx(a.value, abs=1e-12)
    assert b.utilities == pytest.approx(-a.utilities, abs=1e-12)
    assert b.shadow_prices == pytest.approx(a.shadow_prices, abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_units_of_reward_and_utility_only_rescale_the_answer(method):
    cmdp = synthetic()
    scaled = ck.CMDP(cmdp.P, 1e6 * cmdp.r - 3e5, 1e-4 * cmdp.g + 7.0, [2e-4 + 21.0], cmdp.mu)
    solution = ck.solve(scaled, method)
    assert solution.value == pytest.approx(1e6 * 1.5730628631039136 - 9e5, rel=1e-9)
    assert solution.shadow_prices == pytest.approx([0.7392609628991763e10], rel=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_redundant_constraint_costs_nothing(method):
    cmdp = synthetic()
    twice = ck.CMDP(cmdp.P, cmdp.r, np.concatenate((cmdp.g, cmdp.g, cmdp.g)), [2.0, 2.0, 1.5], cmdp.mu)
    solution = ck.solve(twice, method)
    check_solution(solution, 1.5730628631039136)
    assert solution.shadow_prices.sum() == pytest.approx(0.739261, abs=1e-6)
    assert solution.shadow_prices[2] == 0
    assert len(solution.stochastic_decisions()) == 1


@pytest.mark.parametrize("method", METHODS)
def test_without_constraints_the_policy_is_deterministic(method):
    cmdp = synthetic()
    free = ck.CMDP(cmdp.P, cmdp.r, mu=cmdp.mu)
    solution = ck.solve(free, method)
    assert solution.stochastic_decisions() == []
    assert solution.value == pytest.approx(deterministic_values(free)[:, 0].max(), abs=1e-12)


def test_one_impossible_bound_is_named_with_the_best_that_can_be_had():
    with pytest.raises(
        ck.Infeasible, match=r"utility ≥ 2\.2 cannot be met, the best any policy reaches is 2\.08984"
    ) as caught:
        ck.solve(synthetic(2.2))
    assert caught.value.utilities == pytest.approx([2.0898392], abs=1e-6)
    assert ck.evaluate(synthetic(), caught.value.policy).w == pytest.approx(caught.value.utilities)


def test_bounds_that_clash_are_named_and_innocent_ones_are_not():
    # One state, two actions, one step: the utilities are the probabilities of the two actions.
    cmdp = ck.CMDP(
        np.ones((1, 2, 1)),
        [[0.0, 0.0]],
        constraints=[
            ck.at_least("left", 0.7, [[1.0, 0.0]]),
            ck.at_least("free", -1.0, [[0.0, 0.0]]),
            ck.at_least("right", 0.6, [[0.0, 1.0]]),
        ],
        horizon=1,
    )
    for method in METHODS:
        with pytest.raises(ck.Infeasible, match=r"left ≥ 0\.7 and right ≥ 0\.6 cannot hold together") as caught:
            ck.solve(cmdp, method)
        assert caught.value.conflict == ("left", "right")
        assert caught.value.best == pytest.approx([1.0, 0.0, 1.0])
        assert caught.value.utilities == pytest.approx([0.55, 0.0, 0.45], abs=1e-6), "both miss by 0.15"


def test_unreachable_states_still_have_a_decision():
    P = np.zeros((2, 3, 2, 3))
    P[..., 0] = 1.0
    cmdp = ck.CMDP(P, np.ones((2, 3, 2)), np.ones((1, 2, 3, 2)), [1.0])
    assert ck.solve(cmdp).policy.pi.sum(axis=-1) == pytest.approx(np.ones((2, 3)))


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="method is 'simplex', expected one of auto, columns, lp"):
        ck.solve(synthetic(), "simplex")


def test_a_large_sparse_model_needs_no_dense_kernel():
    cmdp = sparse(3000, 3, 6, 4, 2)
    with pytest.raises(ValueError, match="use the sparse rows"):
        sparse(20_000, 3, 6, 4, 1).P  # noqa: B018
    solution = ck.solve(cmdp, "columns")
    assert solution.gap <= 1e-9 * solution.value
    assert sum(len(d.probabilities) - 1 for d in solution.stochastic_decisions()) <= 2
