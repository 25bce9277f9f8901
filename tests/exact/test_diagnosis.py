"""Trade-offs and diagnoses against finite differences, SciPy and exhaustive enumeration."""

import numpy as np
import oracle
import pytest
from scipy.optimize import linprog

import adversarial
import cmdpkit as ck
from cmdpkit.exact.diagnosis import MOST_SEPARATED, looked_at, reachable
from cmdpkit.exact.sources import columns_of
from instances import deterministic_values, synthetic, tiny, with_rho

pytestmark = pytest.mark.compiled


def test_a_tradeoff_is_the_optimum_at_every_bound_and_its_slope_is_the_price():
    cmdp = synthetic()
    curve = ck.tradeoff(cmdp, "utility", 9)
    assert curve.bounds[-1] == pytest.approx(2.0898392, abs=1e-6), "the strictest bound that can be met"
    for row in curve.rows():
        assert row["value"] == pytest.approx(oracle.optimum(synthetic(row["bound"] - 1e-9)).value, abs=1e-6)
    inner = [row["bound"] for row in curve.rows()[1:-1]]
    for bound in inner:
        lower, upper = (ck.solve(synthetic(bound + d)).value for d in (-1e-6, 1e-6))
        price = ck.solve(synthetic(bound)).shadow_prices[0]
        assert (lower - upper) / 2e-6 == pytest.approx(price, rel=1e-3)
    assert (np.diff(curve.values) <= 1e-12).all()
    assert (np.diff(curve.prices) >= -1e-9).all(), "the value is concave in the bound"


def test_a_tradeoff_reports_infeasible_bounds():
    curve = ck.tradeoff(synthetic(), "utility", 3, low=1.9, high=2.3)
    assert curve.bounds == pytest.approx([1.9])
    assert curve.infeasible == pytest.approx([2.1, 2.3])
    with pytest.raises(ValueError, match="unknown constraint 'utlity'; did you mean 'utility'"):
        ck.tradeoff(synthetic(), "utlity")


def test_a_tradeoff_of_a_cost_rises_with_the_budget():
    up = synthetic()
    down = ck.CMDP(up.P, up.r, mu=up.mu, constraints=[ck.at_most("cost", -2.0, -up.g[0])])
    curve = ck.tradeoff(down, "cost", 5)
    assert (np.diff(curve.bounds) > 0).all() and (np.diff(curve.values) > 0).all()
    assert curve.bounds[0] == pytest.approx(-2.0898392, abs=1e-6)


def test_the_diagnosis_of_the_papers_instance_has_the_known_numbers():
    d = ck.diagnose(synthetic())
    assert d.feasible and d.binding == ("utility",)
    assert d.slater_slack == pytest.approx(0.0898392, abs=1e-6)
    (span,) = d.ranges
    assert span.strictest == span.best_alone == pytest.approx(2.0898392, abs=1e-6)
    values = deterministic_values(synthetic())
    assert span.worst == pytest.approx(values[:, 1].min(), abs=1e-9)
    assert span.indifferent == pytest.approx(values[values[:, 0].argmax(), 1], abs=1e-6)
    loss = {(x.step, x.state, x.action): x.value_loss for x in d.separation}
    assert loss[1, 1, 2] == pytest.approx(0.0032, abs=5e-5)
    assert loss[3, 2, 1] == pytest.approx(0.0175, abs=5e-5)
    assert all(x >= 0.10 for key, x in loss.items() if key not in {(1, 1, 2), (3, 2, 1)})
    assert sum(np.isinf(x) for x in loss.values()) == 3


@pytest.mark.parametrize("seed", range(10))
def test_separation_equals_the_definition_over_all_deterministic_policies(seed):
    rng = np.random.default_rng(seed)
    cmdp = tiny(rng, 1 + seed % 3, ties=False)
    values = deterministic_values(cmdp)
    cmdp = with_rho(cmdp, rng.dirichlet(np.full(len(values), 0.3)) @ values[:, 1:] - 1e-3)
    v_star = ck.solve(cmdp).value
    for row in ck.diagnose(cmdp, separation=True).separation[:6]:
        mask = cmdp.actions.copy()
        mask[row.step - 1, row.state - 1, row.action - 1] = False
        if not mask[row.step - 1, row.state - 1].any():
            assert np.isinf(row.value_loss) and np.isinf(row.sigma)
            continue
        rest = deterministic_values(cmdp.restrict(mask))
        one = np.ones((1, len(rest)))
        best = linprog(-rest[:, 0], A_ub=-rest[:, 1:].T, b_ub=-cmdp.rho, A_eq=one, b_eq=[1], method="highs")
        assert row.value_loss == pytest.approx(v_star + best.fun if best.status == 0 else np.inf, abs=1e-7)
        # sigma = min t with sum alpha (v, w) >= (v*, rho) - t
        target = np.concatenate(([v_star], cmdp.rho))
        shortfall = linprog(
            np.append(np.zeros(len(rest)), 1.0),
            A_ub=np.hstack((-rest.T, -np.ones((len(target), 1)))),
            b_ub=-target,
            A_eq=np.append(one, [[0.0]], axis=1),
            b_eq=[1],
            bounds=[(0, None)] * len(rest) + [(None, None)],
            method="highs",
        )
        assert row.sigma == pytest.approx(max(0.0, shortfall.fun), abs=1e-7)


@pytest.mark.parametrize(("p", "H"), [(0.5, 6), (0.9, 11), (0.0, 4)])
def test_sigma_min_of_the_lower_bound_is_the_closed_form(p, H):
    """(H - 1) min{1 - 2 / (3 (1 + p)), 1/3}: v alone earns nothing, u alone lacks all of the utility.

    Later choices make no difference; the sigma of these is 0, and they do not count.
    """
    found = ck.diagnose(ck.load("paper/lower-bound", p=p, H=H), separation=True)
    assert found.sigma_min == pytest.approx((H - 1) * min(1 - 2 / (3 * (1 + p)), 1 / 3), abs=1e-9)
    assert min(row.sigma for row in found.separation) == pytest.approx(0.0, abs=1e-9)
    assert {(row.step, row.action): row.use for row in found.separation}[1, "v"] == pytest.approx(2 / (3 * (1 + p)))
    free = ck.diagnose(ck.CMDP([[[1.0], [1.0]]], r=[[1.0, 1.0]], horizon=2), separation=True)
    assert free.sigma_min is None


def test_by_default_the_actions_that_matter_most_are_looked_at():
    """Drawn actions first, then those taken most often; actions without an alternative never."""
    cmdp = ck.load("treatment")
    every = {x[:3]: x for x in ck.diagnose(cmdp, separation=True).separation}
    some = ck.diagnose(cmdp)
    assert len(some.separation) == MOST_SEPARATED < len(every) == some.solution.used
    assert all(every[x[:3]] == x for x in some.separation), "the numbers are the same as if all were looked at"
    q = {
        (h + 1, cmdp.states[s], cmdp.action_names[a]): some.solution.occupancy[h, s, a]
        for h, s, a in np.argwhere(some.solution.occupancy > 1e-12)
    }
    drawn = {(d.step, d.state) for d in some.solution.stochastic_decisions()}
    seen = {x[:3] for x in some.separation}
    assert {key for key in every if key[:2] in drawn} <= seen and len(drawn) == 2
    rest = [key for key in every if key[:2] not in drawn and np.isfinite(every[key].sigma)]
    best = sorted(rest, key=lambda key: -q[key])[: MOST_SEPARATED - sum(key[:2] in drawn for key in seen)]
    assert {key for key in seen if key[:2] not in drawn} == set(best)
    assert [len(ck.diagnose(cmdp, separation=n).separation) for n in (False, 0, 3)] == [0, 0, 3]


def test_the_default_takes_a_few_solves_and_not_thousands(monkeypatch):
    cmdp = ck.load("queue:H=300")
    found = ck.diagnose(cmdp)
    assert found.solution.used > 500 and len(found.separation) == MOST_SEPARATED
    monkeypatch.setattr("cmdpkit.exact.diagnosis.MOST_WORK", 100)
    assert ck.diagnose(cmdp).separation == () and looked_at(found.solution, True) == found.solution.used


def test_without_a_horizon_the_default_is_the_same_choice():
    cmdp = ck.load("power-queue:discount=0.95")
    some, every = (ck.diagnose(cmdp, separation=n).separation for n in (4, True))
    assert len(some) == 4 < len(every) and set(some) <= set(every)


@pytest.mark.parametrize("seed", range(6))
def test_slater_slack_agrees_with_scipy_in_the_users_units(seed):
    rng = np.random.default_rng(seed)
    cmdp = tiny(rng, 3, ties=False)
    scales = np.array([1.0, 100.0, 0.01])[:, None, None, None]
    units = ck.CMDP(cmdp.P, cmdp.r, cmdp.g * scales, np.array([0.1, 5.0, 0.0]), cmdp.mu, actions=cmdp.actions)
    assert columns_of(units).slack(units.rho) == pytest.approx(oracle.slater_slack(units), abs=1e-7)


def test_without_constraints_the_slack_is_infinite():
    cmdp = synthetic()
    assert ck.diagnose(ck.CMDP(cmdp.P, cmdp.r), separation=False).slater_slack == np.inf


def test_an_infeasible_problem_is_diagnosed_not_raised():
    d = ck.diagnose(synthetic(2.2))
    assert not d.feasible and d.binding == () and d.separation == ()
    assert d.slater_slack == pytest.approx(2.0898392 - 2.2, abs=1e-6)
    assert "cannot be met" in str(d.infeasible)


def test_reachable_pairs_are_those_some_policy_visits():
    rng = np.random.default_rng(1)
    for _ in range(20):
        cmdp = tiny(rng, 1, ties=True)
        q = ck.occupancy(cmdp, ck.Policy.uniform(cmdp))
        assert (reachable(cmdp) == (q.sum(axis=-1) > 0)).all()


def crowded(steps_or_criterion, **bounds):
    """One state and three actions; left, right and idle shares of the steps are bounded."""
    shares = {"left": [[1.0, 0.0, 0.0]], "right": [[0.0, 1.0, 0.0]], "idle": [[0.0, 0.0, 1.0]]}
    constraints = [ck.at_least(name, bound, shares[name], per_step=True) for name, bound in bounds.items()]
    return ck.CMDP([[[1.0], [1.0], [1.0]]], [[1.0, 0.0, 0.0]], constraints=constraints, **steps_or_criterion)


@pytest.mark.parametrize("criterion", [{"horizon": 4}, {"discount": 0.75}, {"criterion": "average"}])
def test_an_infeasible_problem_says_how_far_each_bound_alone_must_move(criterion):
    with pytest.raises(ck.Infeasible) as caught:
        ck.solve(crowded(criterion, left=0.5, right=0.75, idle=0.125))
    moves = caught.value.relax
    expected = {"left": 0.125, "right": 0.375, "idle": -0.25}  # what the other two leave of all steps
    for name, share in expected.items():
        move = moves[name]
        if share < 0:  # left and right alone do not fit
            assert move is None
            continue
        assert move.bound == pytest.approx(share, abs=1e-7) and move.bound <= share
        assert move.by == pytest.approx(0.375, abs=1e-7)
        assert move.at_least <= 0.375 <= move.by and move.at_least == pytest.approx(0.375, abs=1e-6)
        moved = caught.value.cmdp.with_bounds(**{name: move.bound})
        assert ck.solve(moved).value == pytest.approx(move.solution.value)
        with pytest.raises(ck.Infeasible):
            ck.solve(caught.value.cmdp.with_bounds(**{name: share + 1e-6}))


def test_a_bound_that_cannot_be_met_at_all_is_the_only_one_that_can_be_moved():
    with pytest.raises(ck.Infeasible) as caught:
        ck.solve(crowded({"horizon": 4}, left=1.5, right=0.25))
    assert caught.value.relax["left"].bound == pytest.approx(0.75, abs=1e-8)
    assert caught.value.relax["right"] is None


def test_the_relaxation_of_hostile_problems_is_feasible_and_nothing_much_stricter_is():
    moves = 0
    for seed in range(60):
        cmdp = adversarial.instance(np.random.default_rng(seed))
        try:
            ck.solve(cmdp)
            continue
        except ck.Infeasible as error:
            infeasible = error
        for name, move in infeasible.relax.items():
            c, n = cmdp.constraints[cmdp.constraint_index(name)], cmdp.constraint_index(name)
            if move is not None:
                moves += 1
                stricter = move.bound + c.sign * 20 * move.solution.tolerance[n]
                with pytest.raises(ck.Infeasible):
                    ck.solve(cmdp.with_bounds(**{name: stricter}))
    assert moves > 1
