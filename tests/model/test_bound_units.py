"""A bound is given, shown and changed in one unit, the user's: twins of a model with the bound per step and in all."""

import io
import json

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import cmdpkit as ck
import gym_line
from cmdpkit.cli import app
from cmdpkit.results import diagnosis as show
from cmdpkit.results import diagnosis as tradeoff_text
from cmdpkit.results.diagnosis import range_table, tradeoff_table
from cmdpkit.results.solution import constraint_table

STEPS = 10


def printed(renderable):
    console = Console(width=100, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


CRITERIA = [({"horizon": STEPS}, 10.0), ({"discount": 0.9}, 10.0), ({"criterion": "average"}, 1.0)]
ALL = pytest.mark.parametrize(("criterion", "steps"), CRITERIA, ids=["horizon", "discount", "average"])


def server(bound, per_step, sense="at_most", **criterion):
    """A queue of up to four jobs; resting is what is wanted, and the backlog is bounded."""
    at = ck.at_most if sense == "at_most" else ck.at_least
    return ck.CMDP.from_function(
        start=0,
        **(criterion or {"horizon": STEPS}),
        actions=["serve", "rest"],
        step=lambda s, a: {max(s - 1, 0): 1.0} if a == "serve" else {min(s + 1, 4): 0.7, max(s - 1, 0): 0.3},
        reward=lambda s, a: float(a == ("rest" if sense == "at_most" else "serve")),
        constraints=[at("cost", bound, lambda s, a: float(s), per_step=per_step)],
    )


@ALL
@pytest.mark.parametrize("sense", ["at_most", "at_least"])
def test_a_bound_per_step_means_the_same_as_its_total_and_is_changed_in_its_own_unit(criterion, steps, sense):
    each, whole = server(0.5, True, sense, **criterion), server(0.5 * steps, False, sense, **criterion)
    assert (each.constraints[0].bound, each.constraints[0].bound_on_total) == (
        0.5,
        pytest.approx(0.5 * steps, rel=1e-14),
    )
    assert each.rho.tolist() == pytest.approx(whole.rho.tolist(), rel=1e-14)
    one, other = ck.solve(each), ck.solve(whole)
    assert (one.value, one.utilities[0]) == (pytest.approx(other.value), pytest.approx(other.utilities[0]))
    moved, moved_whole = each.with_bounds(cost=0.4), whole.with_bounds(cost=0.4 * steps)
    assert moved.rho[0] == pytest.approx(moved_whole.rho[0], rel=1e-14)
    assert moved.with_bounds(cost=0.5) == each
    assert each.with_totals({"cost": 0.4 * steps}).rho[0] == pytest.approx(moved.rho[0], rel=1e-14)


@ALL
def test_the_price_is_for_one_unit_of_the_bound_as_it_was_given(criterion, steps):
    each, whole = server(0.5, True, **criterion), server(0.5 * steps, False, **criterion)
    at, at_whole, d = ck.solve(each), ck.solve(whole), 1e-4
    gained = (ck.solve(each.with_bounds(cost=0.5 + d)).value - at.value) / d
    assert at.shadow_prices[0] == pytest.approx(gained, rel=1e-5)
    assert at.shadow_prices[0] == pytest.approx(steps * at_whole.shadow_prices[0], rel=1e-9)
    assert at.lam[0] == pytest.approx(at_whole.shadow_prices[0], rel=1e-9)


@ALL
def test_tradeoffs_and_diagnoses_are_in_the_unit_of_the_bound(criterion, steps):
    each, whole = server(0.5, True, **criterion), server(0.5 * steps, False, **criterion)
    for ends in ({}, {"low": -0.1, "high": 0.6}):
        curve = ck.tradeoff(each, "cost", 4, **ends)
        twin = ck.tradeoff(whole, "cost", 4, **{key: steps * x for key, x in ends.items()})
        np.testing.assert_allclose(steps * curve.bounds, twin.bounds, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(curve.values, twin.values, rtol=1e-9)
        np.testing.assert_allclose(curve.prices, steps * twin.prices, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(steps * curve.infeasible, twin.infeasible)
        rows = tradeoff_table(curve).data()
        assert [row["bound_total"] for row in rows] == pytest.approx(twin.bounds.tolist())
        assert "cost ≤ per step" in printed(tradeoff_text.tradeoff("server", curve))
    (one,), (other,) = (ck.diagnose(m, separation=False).ranges for m in (each, whole))
    assert (one.bound, one.per_step) == (0.5, True)
    for end in ("worst", "indifferent", "strictest", "best_alone"):
        assert steps * getattr(one, end) == pytest.approx(getattr(other, end), abs=1e-9)
    assert range_table([one]).data()[0]["per_step"] is True
    assert "cost ≤ 0.5 per step" in printed(show.diagnosis("server", each, ck.diagnose(each, separation=False)))


@ALL
def test_printed_bounds_name_the_unit_and_tables_show_both(criterion, steps):
    model = server(0.5, True, **criterion)
    assert repr(model).endswith("N=1: cost ≤ 0.5 per step)")
    assert repr(model.constraints[0]) == "Constraint(name='cost', sense='at_most', bound=0.5, per_step=True)"
    both = "≤ 5, 0.5 per step" if steps == 10 else "≤ 0.5 per step"
    found = ck.solve(model)
    assert f"  cost {both}" in str(model)
    assert both in str(found)
    assert ("Slack and price of cost are per step, as the bound is." in str(found)) == (steps == 10)
    compared = ck.compare_policies(model, {"rest": ck.Policy.of(model, lambda s: "rest")})
    assert f"cost {both}" in str(compared)
    assert "for 1 more per step" in str(ck.explain(model, 1, 2 if "horizon" in criterion else None))
    (row,) = constraint_table(found).data()
    assert (row["bound"], row["per_step"], row["bound_total"]) == (0.5, True, pytest.approx(0.5 * steps))
    assert row["slack"] == pytest.approx((row["bound_total"] - row["value"]) / steps)
    assert found.policy.with_model(model).made_for.bounds == ("cost ≤ 0.5 per step",)


@ALL
def test_infeasible_bounds_are_explained_in_their_unit(criterion, steps):
    model = server(0.5, True, **criterion)
    with pytest.raises(
        ck.Infeasible, match=r"cost ≤ -0.1 per step cannot be met, the best any policy reaches is 0 per"
    ):
        ck.solve(model.with_bounds(cost=-0.1))
    both = ck.CMDP(
        [[[1.0], [1.0]]],
        [[0.0, 0.0]],
        **criterion,
        constraints=[
            ck.at_least("left", 0.75, [[1.0, 0.0]], per_step=True),
            ck.at_least("right", 0.75, [[0.0, 1.0]], per_step=True),
        ],
    )
    clash = (
        r"left ≥ 0.75 per step and right ≥ 0.75 per step cannot hold together; .* left 0.5 per step, right 0.5 per step"
    )
    with pytest.raises(ck.Infeasible, match=clash):
        ck.solve(both)


@ALL
@pytest.mark.parametrize("suffix", [".toml", ".json", ".csv", ".npz"])
def test_files_hold_the_bound_in_its_unit(tmp_path, criterion, steps, suffix):
    model = server(0.5, True, **criterion).with_bounds(cost=0.3)
    path = ck.write_model(model, tmp_path / f"model{suffix}")
    back = ck.read_model(path)
    assert back == model
    assert (back.constraints[0].bound, back.constraints[0].per_step) == (0.3, True)
    assert back.with_bounds(cost=0.5) == server(0.5, True, **criterion)


def test_the_command_line_changes_and_prints_bounds_per_step(tmp_path):
    path = str(ck.write_model(server(0.5, True), tmp_path / "model.toml"))
    found = json.loads(CliRunner().invoke(app, ["solve", path, "--bound", "cost=0.3", "--json"]).output)
    assert found["constraints"][0]["bound"] == 0.3 and found["constraints"][0]["bound_total"] == pytest.approx(3.0)
    assert found["value"] == pytest.approx(ck.solve(server(3.0, False)).value)
    assert "≤ 3, 0.3 per step" in CliRunner().invoke(app, ["solve", path, "--bound", "cost=0.3"]).output
    curve = json.loads(CliRunner().invoke(app, ["tradeoff", path, "cost", "--points", "2", "--json"]).output)
    assert [point["bound"] for point in curve["points"]] == pytest.approx(
        (ck.tradeoff(server(5.0, False), "cost", 2).bounds / STEPS).tolist()
    )


def test_runs_and_their_records_keep_the_unit(tmp_path):
    model = server(0.5, True)
    run = ck.learn(model, "cl-pri", episodes=30, seed=1, bounds={"cost": 0.8})
    twin = ck.learn(server(5.0, False), "cl-pri", episodes=30, seed=1, bounds={"cost": 8.0})
    assert (run.curves["violation"] == twin.curves["violation"]).all()
    assert str(run.constraints[0]) == "cost ≤ 0.8 per step" and run.constraints[0].bound_on_total == 8.0
    ck.save_record(run, tmp_path)
    (back,) = ck.load_records(tmp_path)
    assert str(back.constraints[0]) == "cost ≤ 0.8 per step" and back.constraints[0].bound_on_total == 8.0
    study, study_of_twin = ck.Study((back,)), ck.Study((twin,))
    key = "policies_within_bounds"
    assert study.summary()[0].data()[0][key] == study_of_twin.summary()[0].data()[0][key]


def test_a_gymnasium_world_takes_bounds_per_step():
    each, whole = (
        ck.gym.GymWorld(gym_line.Line(), [bound], horizon=4, reward_range=(0.0, 1.0))
        for bound in (ck.at_most("cost", 0.5, per_step=True), ck.at_most("cost", 2.0))
    )
    assert each.rho.tolist() == whole.rho.tolist() == [-2.0]
    assert each.spec(5).rho.tolist() == whole.spec(5).rho.tolist()
    model = server(0.5, True)
    world = ck.gym.GymWorld(model.to_gym(), [ck.at_most("cost", 0.3, per_step=True)])
    assert world.cmdp is not None and world.cmdp.rho.tolist() == pytest.approx([-3.0])


def test_promises_from_logs_compare_totals_with_bounds_per_step():
    rng = np.random.default_rng(3)
    rows = [(k, h, "on", a, float(a == "work"), float(a == "work"), "on")
            for k in range(300) for h in (1, 2, 3, 4) for a in [("work", "wait")[rng.integers(2)]]]  # fmt: skip
    names = ["episode", "step", "state", "action", "reward", "noise", "next_state"]
    each, whole = (
        ck.from_log(rows, columns=names, horizon=4, constraints=[bound], stationary=True).solve()
        for bound in (ck.at_most("noise", 0.5, per_step=True), ck.at_most("noise", 2.0))
    )
    assert each.value == whole.value and each.policy == whole.policy
    assert "≤ 2, 0.5 per step" in str(each)


@ALL
def test_price_times_slack_is_what_giving_up_the_slack_of_a_bound_brings(criterion, steps):
    """Price and slack of the table are in one unit: a bound tightened by d per step loses about price times d."""
    model = server(0.5, True, **criterion)
    (row,) = constraint_table(ck.solve(model)).data()
    tighter = model.with_bounds(cost=0.5 - 1e-4)
    lost = ck.solve(model).value - ck.solve(tighter).value
    assert lost == pytest.approx(row["price"] * 1e-4, rel=1e-3)
    loose = model.with_bounds(cost=3.5)
    (row,) = constraint_table(ck.solve(loose)).data()
    assert row["slack"] == pytest.approx(3.5 - ck.solve(loose).utilities[0] / steps)


def test_a_comparison_without_a_horizon_says_that_it_lists_no_differences():
    model = server(0.5, True, criterion="average")
    compared = ck.compare_policies(model, {"rest": ck.Policy.of(model, lambda s: "rest")})
    assert "Without a horizon, differences are not listed" in str(compared)
