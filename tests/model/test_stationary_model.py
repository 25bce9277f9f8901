"""Models without a horizon: what they refuse, their policies, values, files and exports."""

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import cmdpkit as ck
from cmdpkit.cli import app
from cmdpkit.errors import CmdpkitError, RoundingWarning
from cmdpkit.model.policy import Policy
from cmdpkit.results.diagnosis import separation_table
from cmdpkit.results.figures import plans as boards
from cmdpkit.results.solution import constraint_table
from cmdpkit.simulate.simulator import Simulator

P = np.array([[[0.8, 0.2], [0.95, 0.05]], [[0.5, 0.5], [0.5, 0.5]]])
R = np.array([[0.0, -1.0], [-2.0, -2.0]])
UP = np.array([[1.0, 1.0], [0.0, 0.0]])


def machine(**criterion) -> ck.CMDP:
    bound = ck.at_least("up", 0.85, UP, per_step=True)
    return ck.CMDP(P, R, constraints=[bound], states=["up", "down"], action_names=["run", "care"], **criterion)


CRITERIA = [{"discount": 0.9}, {"criterion": "average"}]


@pytest.mark.parametrize("criterion", CRITERIA)
def test_there_is_no_horizon_to_mistake_for_one_step(criterion):
    cmdp = machine(**criterion)
    with pytest.raises(AttributeError, match="this model has no horizon: its criterion is"):
        _ = cmdp.H
    assert not hasattr(cmdp, "H")
    assert cmdp.n_steps == 1
    assert cmdp.r.shape == (1, 2, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"horizon": 3, "discount": 0.9}, "horizon = 3 and discount = 0.9 are given, expected exactly one"),
        ({"discount": 0.9, "criterion": "average"}, "expected exactly one of horizon, discount and criterion"),
        ({"discount": 1.0}, "discount is 1.0, expected a number above 0 and below 1"),
        ({"discount": 0}, "discount is 0, expected"),
        ({"discount": True}, "discount is True, expected"),
        ({"discount": "0.9"}, "discount is '0.9', expected"),
        ({"criterion": "mean"}, "criterion is 'mean', expected 'average' or 'total'"),
        ({"criterion": "total"}, "constraint 'up' is per step, but the criterion is 'total'"),
        ({}, "horizon is missing"),
    ],
)
def test_senseless_criteria_are_refused(arguments, message):
    with pytest.raises(CmdpkitError, match=message):
        machine(**arguments)


def test_what_depends_on_the_step_is_refused_without_a_horizon():
    with pytest.raises(CmdpkitError, match=r"r has 3 steps, but the criterion is average, where nothing may depend"):
        ck.CMDP(P, np.repeat(R[None], 3, axis=0), criterion="average")
    with pytest.raises(CmdpkitError, match=r"takes the step h, but the criterion is discount=0\.9"):
        ck.CMDP.from_function(
            start=0, discount=0.9, actions=["a"], step=lambda s, a: {s: 1.0}, reward=lambda s, a, h: float(h)
        )


def test_functions_explore_everything_that_can_be_reached():
    cmdp = ck.CMDP.from_function(
        start=0,
        criterion="average",
        actions=["up", "down"],
        step=lambda s, a: {min(s + 1, 30) if a == "up" else max(s - 1, 0): 1.0},
        reward=lambda s, a: float(s),
    )
    assert cmdp.S == 31
    assert ck.solve(cmdp).value == pytest.approx(30.0)


def test_bounds_per_step_keep_their_meaning_under_every_criterion():
    for criterion, steps in (({"horizon": 7}, 7), ({"discount": 0.9}, 10), ({"criterion": "average"}, 1)):
        cmdp = machine(**criterion)
        assert cmdp.rho[0] == pytest.approx(0.85 * steps, rel=1e-15)
    average = machine(criterion="average")
    assert average.with_criterion(discount=0.9) == machine(discount=0.9)
    assert average.with_criterion(horizon=7) == machine(horizon=7)
    moved = machine(discount=0.9).with_bounds(up=0.8)
    assert moved.with_criterion(criterion="average").rho[0] == pytest.approx(0.8)
    whole = ck.CMDP(P, R, constraints=[ck.at_least("up", 0.85, UP)], criterion="average")
    with pytest.raises(CmdpkitError, match="the bound of 'up' is on the whole value under the present criterion"):
        whole.with_criterion(discount=0.9)


def test_fingerprints_tell_criteria_and_discounts_apart():
    models = [machine(**c) for c in (*CRITERIA, {"discount": 0.91}, {"horizon": 1})]
    models.append(ck.CMDP(P, R, constraints=[ck.at_least("up", 0.85, UP)], states=["up", "down"],
                          action_names=["run", "care"], criterion="average"))  # fmt: skip
    assert len({m.fingerprint() for m in models}) == len(models)


def test_fingerprints_of_models_with_a_horizon_are_those_of_version_0_1():
    known = "ba4a7c"  # computed with version 0.1
    assert ck.load("paper/synthetic").fingerprint()[:6] == known


def test_stationary_policies_and_models_with_steps_refuse_each_other():
    finite, average = machine(horizon=3), machine(criterion="average")
    stationary = Policy.stationary([[1.0, 0.0], [0.5, 0.5]], ["up", "down"], ["run", "care"])
    with pytest.raises(CmdpkitError, match="the policy is stationary, but the model is judged by totals over 3 steps"):
        ck.evaluate(finite, stationary)
    with pytest.raises(CmdpkitError, match="the policy is for 3 steps, but the model is judged by long-run averages"):
        ck.evaluate(average, Policy.uniform(finite))
    assert ck.evaluate(finite, stationary.repeated(3)).v == pytest.approx(
        -2 * (0.2 + (0.8 * 0.2 + 0.2 * 0.5)), rel=1e-12
    )
    with pytest.raises(AttributeError, match="no horizon"):
        _ = stationary.horizon
    with pytest.raises(CmdpkitError, match="step is 1, but the policy is stationary"):
        stationary.probabilities(1, "up")
    assert stationary.act(state="up", rng=np.random.default_rng(0)) == "run"
    assert [d.step for d in stationary.stochastic_decisions()] == [None]


def test_values_of_a_policy_by_hand():
    """Running only: up 5/7 of the time; discounted from "up", 1 / (1 - g) solves two linear equations."""
    run = [[1.0, 0.0], [1.0, 0.0]]
    average = machine(criterion="average")
    values = ck.evaluate(average, Policy.of(average, run))
    assert values.v == pytest.approx(-4 / 7) and values.w[0] == pytest.approx(5 / 7)
    cmdp = machine(discount=0.9)
    up = (1 - 0.45) / ((1 - 0.72) * (1 - 0.45) - 0.18 * 0.45)  # expected discounted steps up
    assert ck.evaluate(cmdp, Policy.of(cmdp, run)).w[0] == pytest.approx(up, rel=1e-13)


def test_totals_count_until_absorption():
    """A coin is thrown until heads, at most with effort: the fair way takes 2 throws, the sure way 1 at a cost."""
    P = np.zeros((2, 2, 2))
    P[0, 0], P[0, 1], P[1] = [0.5, 0.5], [0.0, 1.0], [[0.0, 1.0]] * 2
    r = np.array([[-1.0, -1.0], [0.0, 0.0]])
    cost = np.array([[0.0, 1.0], [0.0, 0.0]])
    cmdp = ck.CMDP(P, r, constraints=[ck.at_most("effort", 0.5, cost)], criterion="total")
    found = ck.solve(cmdp)
    assert found.value == pytest.approx(-1.5, abs=1e-12)
    assert found.shadow_prices[0] == pytest.approx(1.0)
    assert found.utilities[0] == pytest.approx(0.5)
    assert found.occupancy[0].sum() == pytest.approx(1.5)
    np.testing.assert_allclose(found.bias[0], [-1.5, 0.0], atol=1e-12)
    P[0, 0] = [1.0, 0.0]
    assert ck.solve(ck.CMDP(P, r, criterion="total")).value == pytest.approx(-1.0), "to stay costs without end"
    r[0, 0] = 1.0
    with pytest.raises(CmdpkitError, match="can stay forever in state 1 with action 1"):
        ck.solve(ck.CMDP(P, r, criterion="total"))


def test_mixtures_and_policies_are_turned_into_each_other_where_that_is_true():
    cmdp = machine(discount=0.9)
    found = ck.solve(cmdp)
    parts = found.mixture
    assert len(parts.policies) == 2
    back = ck.markov(cmdp, parts)
    np.testing.assert_allclose(ck.occupancy(cmdp, back), found.occupancy, atol=1e-12)
    with pytest.raises(CmdpkitError, match="under the criterion 'average'"):
        ck.decompose(machine(criterion="average"), ck.solve(machine(criterion="average")).policy)


def test_the_exported_controller_takes_a_state_only(tmp_path):
    policy = ck.solve(ck.load("machine-two")).policy
    path = ck.write_policy(policy, tmp_path / "controller.py")
    assert "step" not in path.read_text().lower().replace("steps", "")
    run = subprocess.run([sys.executable, str(path), "down"], capture_output=True, text=True, check=True)
    assert run.stdout == "repair\n"
    drawn = {
        subprocess.run([sys.executable, str(path), "up"], capture_output=True, text=True, check=True).stdout.strip()
        for _ in range(3)
    }
    assert drawn <= {"run", "care"}
    assert subprocess.run([sys.executable, str(path), "1", "up"], capture_output=True).returncode == 2


def test_the_command_line_prints_one_row_per_state():
    done = CliRunner().invoke(app, ["solve", "power-queue"])
    assert done.exit_code == 0
    out = done.output
    assert "-0.410332" in out and "randomises in one state" in out
    rows = [line.split()[0] for line in out.splitlines() if line.rstrip().endswith("%") and line.split()[0].isdigit()]
    assert rows == [str(n) for n in range(21)]


def test_json_says_what_the_criterion_is():
    answer = json.loads(CliRunner().invoke(app, ["solve", "power-queue:discount=0.95", "--json"]).output)
    assert answer["criterion"] == "discounted" and answer["discount"] == 0.95
    assert answer["value_per_step"] == pytest.approx(answer["value"] / 20)
    assert answer["attained"] is True
    assert [d["step"] for d in answer["stochastic_decisions"]] == [None]


def test_bridges_are_for_averages_only():
    with pytest.raises(CmdpkitError, match=r"bridge is 0\.1, but the model has a horizon"):
        ck.solve(machine(horizon=3), bridge=0.1)
    with pytest.raises(CmdpkitError, match=r"bridge is 0\.1, but the criterion is discount=0\.9"):
        ck.solve(machine(discount=0.9), bridge=0.1)
    with pytest.raises(CmdpkitError, match="bridge is 2, expected a share of time"):
        ck.solve(ck.load("two-rooms"), bridge=2)


def test_what_needs_episodes_refuses_models_without_a_horizon():
    cmdp = machine(criterion="average")
    refused = "has no horizon and so no episodes: give steps="
    for algo in ck.learners.names():
        with pytest.raises(CmdpkitError, match=refused):
            ck.learn(cmdp, algo, episodes=10)
        if algo not in ck.learners.names_for("average"):
            with pytest.raises(CmdpkitError, match=f"{algo} cannot learn model, .* take one of c"):
                ck.learn(cmdp, algo, steps=10)
    with pytest.raises(CmdpkitError, match="simulating episodes needs a horizon"):
        Simulator.of(cmdp)
    answer = CliRunner().invoke(app, ["learn", "power-queue", "--episodes", "10"])
    assert answer.exit_code == 1
    assert refused in " ".join(answer.stderr.split())
    with pytest.raises(CmdpkitError, match="a Gymnasium environment of this package needs a horizon"):
        cmdp.to_gym()


def test_the_command_line_changes_the_criterion_where_bounds_are_per_step():
    answer = json.loads(CliRunner().invoke(app, ["solve", "power-queue", "--discount", "0.95", "--json"]).output)
    assert answer["value_per_step"] == pytest.approx(-0.245195487291, abs=1e-9)
    refused = CliRunner().invoke(app, ["solve", "queue", "--average"])
    assert refused.exit_code != 0
    both = CliRunner().invoke(app, ["solve", "power-queue", "--average", "--discount", "0.9"])
    assert both.exit_code == 2


def test_a_bound_binds_only_if_it_costs_something_whatever_the_units():
    for scale in (1e-6, 1.0, 1e6):
        for bound, binds in ((0.85, True), (0.5, False)):  # running always is up 5/7 of the time
            signal = ck.at_least("up", scale * bound, scale * UP, per_step=True)
            found = ck.solve(ck.CMDP(P, R, constraints=[signal], criterion="average"))
            assert found.binds.tolist() == [binds]
            assert found.utilities[0] >= scale * bound - found.tolerance[0]
            assert found.tolerance[0] == pytest.approx(1e-10 * scale * (10 / 11 - 5 / 7), rel=1e-2)


def test_tables_show_bounds_in_the_unit_given_and_no_steps():
    found = ck.solve(machine(discount=0.9))
    (row,) = constraint_table(found).data()
    assert (row["bound"], row["per_step"], row["bound_total"]) == (0.85, True, pytest.approx(8.5))
    separated = separation_table(ck.diagnose(machine(discount=0.9)).separation)
    assert "step" not in [column.key for column in separated.shown()]
    assert {row["step"] for row in separated.data()} == {None}


def test_without_a_horizon_one_board_shows_the_whole_policy():
    cmdp = ck.load("mud-grid")
    policy = ck.solve(cmdp).policy
    assert [axis.get_title() for axis in boards.policy_boards(cmdp, policy).axes] == ["every step"]
    with pytest.raises(CmdpkitError, match="choosing steps to draw needs a horizon"):
        boards.policy_boards(cmdp, policy, steps=[1])


def test_ends_of_a_tradeoff_must_be_finite():
    with pytest.raises(CmdpkitError, match="'up': bound is -inf, expected a finite number"):
        ck.tradeoff(machine(criterion="average"), "up", 3, low=-np.inf, high=1.0)


def test_another_criterion_keeps_the_notes_about_the_input():
    rows = (P + np.array([1e-6, 0.0])).astype(np.float32)
    with pytest.warns(RoundingWarning):
        rounded = ck.CMDP(rows, R, criterion="average")
    assert len(rounded.notes) == 1
    assert rounded.with_criterion(horizon=3).notes == rounded.notes
