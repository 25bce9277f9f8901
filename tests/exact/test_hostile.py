"""No wrong answer: problems made to break the solver, against exact rational arithmetic and numbers solved by hand."""

import time
from fractions import Fraction

import numpy as np
import pytest
import rational
from bench.solver import queue
from scipy.optimize import linprog

import cmdpkit as ck
from adversarial import examine, instance
from cmdpkit.exact.master import best_mixture, farthest_mixture
from cmdpkit.exact.solver import _Candidate
from cmdpkit.exact.sources import columns_of
from cmdpkit.model.decisions import undrawn

pytestmark = pytest.mark.compiled


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_hostile_problems_are_answered_as_exact_arithmetic_says(part):
    """`python -m bench adversarial` tries 20,000 of them."""
    reports = [
        examine(instance(np.random.default_rng([1, part, k])), wide=k % 8 == 0) for k in range(25)
    ]  # fmt: skip
    assert [fault for report in reports for fault in report.faults] == []


def test_where_the_lp_solver_goes_round_in_circles_the_answer_comes_all_the_same():
    """HiGHS, without a limit on its steps, never returns from a trade-off of this one."""
    assert examine(instance(np.random.default_rng([4, 11325])), wide=True).faults == []


def test_the_oracle_knows_a_problem_solved_by_hand():
    # One state, two steps: work earns 1 and costs 1, rest nothing; at most 3/2 of cost, so the value is 3/2.
    cmdp = ck.CMDP(np.ones((1, 2, 1)), [[1.0, 0.0]], constraints=[ck.at_most("cost", 1.5, [[1.0, 0.0]])], horizon=2)
    exact = rational.Exact(cmdp, cmdp.r, cmdp.g, [-1.5], [1])
    assert (exact.slack, exact.best(0), exact.best(Fraction(1, 4)), exact.best(2)) == (1.5, 1.5, 1.25, None)
    assert rational.ranges(cmdp, cmdp.g[0]) == (-2, 0, 2)


def unreachable(bound: float) -> ck.CMDP:
    P = np.zeros((2, 2, 2))
    P[0, :, 0] = P[1, :, 1] = 1
    cost = [[1, 0.5], [1e10, 1e10]]
    return ck.CMDP(P, r=[[1, 0], [0, 0]], horizon=10, constraints=[ck.at_most("cost", bound, cost)])


@pytest.mark.parametrize("method", ["auto", "columns", "lp"])
def test_a_huge_number_in_an_unreached_state_does_not_switch_a_bound_off(method):
    solution = ck.solve(unreachable(7.5), method)
    assert solution.value == pytest.approx(5.0, abs=1e-9)
    assert solution.utilities == pytest.approx([7.5], abs=1e-9)
    assert solution.shadow_prices == pytest.approx([2.0])
    with pytest.raises(ck.Infeasible, match="cost ≤ 4 cannot be met, the best any policy reaches is 5"):
        ck.solve(unreachable(4.0), method)


def test_a_huge_penalty_that_is_reached_counts_with_its_probability():
    """With 1e-9 an accident costs 1e12: 1000 in expectation. Driving fast doubles the chance and earns 1."""
    P = np.zeros((2, 2, 2))
    P[0, 0], P[0, 1], P[1, :, 1] = [1 - 1e-9, 1e-9], [1 - 2e-9, 2e-9], 1
    cost = ck.at_most("damage", 1500.0, [[[0, 0], [0, 0]], [[0, 0], [1e12, 1e12]]])
    solution = ck.solve(ck.CMDP(P, [[[0, 1], [0, 0]], [[0, 0], [0, 0]]], constraints=[cost], horizon=2))
    assert solution.value == pytest.approx(0.5, abs=1e-9)
    assert solution.utilities == pytest.approx([1500.0])


def test_a_bound_that_costs_three_quarters_of_the_value_binds_in_any_units():
    for reward, unit in ((1e-3, 1e9), (1e9, 1e-3), (1.0, 1.0)):
        cost = ck.at_most("cost", 0.25 * unit, [[0.0, unit]])
        found = ck.diagnose(ck.CMDP(np.ones((1, 2, 1)), [[0.0, reward]], constraints=[cost], horizon=1))
        assert found.binding == ("cost",)
        assert found.solution.value == pytest.approx(0.25 * reward)
        loose = ck.diagnose(found.solution.cmdp.with_bounds(cost=2 * unit))
        assert loose.binding == ()


def test_a_nearly_constant_signal_still_tells_policies_apart():
    low, bound, high = 1.00000000059, 1.00000000078, 1.00000000091
    cmdp = ck.CMDP(np.ones((1, 2, 1)), [[0.0, 1.0]], constraints=[ck.at_most("cost", bound, [[low, high]])], horizon=1)
    solution = ck.solve(cmdp)
    share = (Fraction(bound) - Fraction(low)) / (Fraction(high) - Fraction(low))
    assert solution.value == pytest.approx(float(share), abs=1e-5)
    assert rational.value(cmdp, solution.policy.pi, -cmdp.g[0]) <= Fraction(bound) + Fraction(solution.tolerance[0])
    assert share - Fraction(solution.value) <= Fraction(solution.gap) < 1e-4


def test_ranges_are_those_of_all_policies_and_unreached_entries_do_not_count():
    rng = np.random.default_rng(3)
    for _ in range(30):
        cmdp = instance(rng)
        found = columns_of(cmdp).source.ranges
        for n, x in enumerate((cmdp.r, *cmdp.g)):
            low, high, size = rational.ranges(cmdp, x)
            for computed, exact in ((found.worst, low), (found.best, high), (found.magnitude, size)):
                assert abs(Fraction(float(computed[n])) - exact) <= Fraction(float(found.rounding[n]))


@pytest.mark.parametrize("N", [2, 5])
def test_the_exact_master_agrees_with_another_solver(N):
    rng = np.random.default_rng(N)
    for _ in range(10):
        v, w = rng.random(12), rng.random((12, N))
        rho = rng.dirichlet(np.ones(12)) @ w
        weights, lam = best_mixture(v, w, rho)
        other = linprog(-v, A_ub=-w.T, b_ub=-rho, A_eq=np.ones((1, 12)), b_eq=[1], method="highs")
        assert weights @ v == pytest.approx(-other.fun, abs=1e-9)
        assert (v + w @ lam).max() - lam @ rho == pytest.approx(-other.fun, abs=1e-9), "lam proves it"
        weights, y, t = farthest_mixture(w, rho, np.ones(N))
        assert (weights @ w - rho).min() == pytest.approx(t, abs=1e-12)
        assert (w @ y).max() - y @ rho == pytest.approx(t, abs=1e-12), "y proves it"


def test_the_exact_master_lowers_infeasible_thresholds_by_the_least_amount():
    w = np.array([[0.0, 1.0], [1.0, 0.0]])
    weights, _ = best_mixture(np.array([0.0, 1.0]), w, np.array([0.75, 0.75]))
    assert weights.tolist() == [0.5, 0.5]


def test_a_master_that_the_lp_solver_gives_up_on_is_solved_exactly(monkeypatch):
    cmdp = ck.envs.build("treatment")
    usual = ck.solve(cmdp)
    monkeypatch.setattr("cmdpkit.exact.master.run", lambda highs: "Unknown")
    exact = ck.solve(cmdp)
    assert exact.value == pytest.approx(usual.value, abs=1e-12)
    assert exact.shadow_prices == pytest.approx(usual.shadow_prices, abs=1e-9)


def test_a_policy_that_misses_a_bound_is_an_error_and_never_a_solution(monkeypatch):
    def loose(induction, drawn, rho, units):
        return undrawn(np.zeros_like(drawn.choice), drawn.p.shape[1])

    monkeypatch.setattr("cmdpkit.exact.sources.purify", loose)
    with pytest.raises(ck.CmdpkitError, match=r"misses cost ≤ 7.5 by 2.5, and 5e-10 would count as met"):
        ck.solve(unreachable(7.5))


def test_when_the_lp_solver_gives_up_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setattr("cmdpkit.exact.master.run", lambda highs: "Unknown")
    with pytest.raises(ck.CmdpkitError, match='method="columns" does not depend on it'):
        ck.solve(unreachable(7.5), "lp")
    monkeypatch.setattr(_Candidate, "good", lambda self, relative_gap=0.0: False)
    assert ck.solve(unreachable(7.5)).value == pytest.approx(5.0), "as a safety net it may fail"


def tied(H: int) -> ck.CMDP:
    """Four states; the bound is met by trading the same two actions at any step, so nearly all decisions are tied."""
    rng = np.random.default_rng(0)
    P, r, g = rng.dirichlet(np.ones(4), size=(4, 3)), rng.random((4, 3)), rng.random((1, 4, 3))
    cmdp = ck.CMDP(P, r, g, [0.0], horizon=H)
    pool = columns_of(cmdp)
    _, free, _ = pool.price(np.eye(1, 2)[0])
    by_itself = free.w[0] * pool.units[1] + pool.offsets[1]
    return cmdp.with_bounds(utility=float((by_itself + pool.source.ranges.best[1]) / 2))


def cpu_seconds(cmdp: ck.CMDP) -> tuple[float, ck.Solution]:
    began = time.process_time()
    solution = ck.solve(cmdp)
    return time.process_time() - began, solution


@pytest.mark.long
def test_the_time_of_a_solution_grows_no_faster_than_twice_the_horizon():
    ck.solve(tied(10))
    short, _ = min((cpu_seconds(tied(1000)) for _ in range(2)), key=lambda x: x[0])
    long, solution = cpu_seconds(tied(4000))
    assert long <= 8 * short
    assert len(solution.stochastic_decisions()) == 1 and solution.utilities[0] >= solution.cmdp.rho[0] - 1e-6


def test_a_long_queue_is_solved_at_a_vertex():
    solution = ck.solve(queue(400))
    (decision,) = solution.stochastic_decisions()
    assert len(decision.probabilities) == 2
    assert solution.utilities[0] == pytest.approx(800.0, abs=float(solution.tolerance[0]))
    assert solution.gap <= 1e-10 * abs(solution.value)
