"""What objects print and draw: the text of the command line, safe HTML, and figures that show the right action."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import cmdpkit as ck
from cmdpkit.cli import app
from cmdpkit.errors import remedy


def chain(**more: object) -> ck.CMDP:
    """Two states; working earns and wears, so at most a wear of 1.5 in three steps makes the second action draw."""
    return ck.CMDP(
        np.full((2, 2, 2), 0.5),
        r=[[1, 0], [1, 0]],
        horizon=3,
        constraints=[ck.at_most("wear", 1.5, [[1, 0], [1, 0]])],
        **{"states": ["day", "night"], "action_names": ["work", "rest"], **more},
    )


def test_a_printed_solution_is_what_the_command_line_shows(tmp_path):
    path = ck.write_model(chain(), tmp_path / "m.toml")
    shown = CliRunner().invoke(app, ["solve", str(path)], env={"COLUMNS": "100"}).stdout
    printed = str(ck.solve(chain()))
    without_name_and_time = [
        [line for line in text.splitlines()[1:] if not line.startswith("Proved")] for text in (shown, printed)
    ]
    assert without_name_and_time[0] == without_name_and_time[1]
    assert "Solution: optimal value 1.5" in printed


def test_a_printed_model_names_sizes_bounds_and_start():
    text = str(chain())
    assert "3 steps, 2 states, 2 actions, 1 constraint" in text
    assert "wear ≤ 1.5" in text and "It starts in day (100 %)." in text
    assert repr(chain()) == "CMDP(H=3, S=2, A=2, N=1: wear ≤ 1.5)"


def test_a_printed_policy_lists_every_decision_and_joins_equal_steps():
    policy = ck.Policy([[[1, 0], [0.25, 0.75]]] * 2 + [[[0, 1], [0, 1]]], ("day", "night"), ("work", "rest"))
    lines = str(policy).splitlines()
    assert lines[0] == "Policy for 3 steps, 2 states, 2 actions."
    assert lines[4:] == [
        "day     work (steps 1–2), rest (step 3)",
        "night   25 % work / 75 % rest (steps 1–2), rest (step 3)",
    ]


def test_a_large_policy_is_not_printed():
    policy = ck.Policy(np.ones((1, 5000, 1)))
    assert "too large to print" in str(policy) and len(str(policy)) < 200


@pytest.mark.parametrize("thing", ["model", "policy", "solution"])
def test_html_escapes_what_comes_from_the_user(thing):
    cmdp = chain(states=["<script>alert(1)</script>", "night"])
    shown = {"model": cmdp, "policy": ck.solve(cmdp).policy, "solution": ck.solve(cmdp)}[thing]
    made = shown._repr_html_()
    assert made.startswith("<pre") and "<script" not in made and "&lt;script&gt;" in made


def test_records_and_studies_print_their_tables():
    record = ck.learn(chain(), "triple-q", episodes=20)
    assert "triple-q (practical)" in str(record) and "regret" in str(record)
    assert str(ck.Study((record,))).startswith("Study of 1 run\n")


def test_the_map_of_a_policy_has_the_colour_of_each_action_and_marks_what_draws():
    pytest.importorskip("matplotlib")
    policy = ck.Policy([[[1, 0], [0.25, 0.75]], [[0, 1], [1, 0]]], ("day", "night"), ("work", "rest"))
    (axis,) = policy.plot().axes
    assert axis.images[0].get_array().tolist() == [[0.0, 1.0], [1.0, 0.0]]  # [state, step]
    dots = [line.get_xydata().tolist() for line in axis.lines if line.get_label().startswith("_")]
    assert dots == [[[0.0, 1.0]]]  # step 1, state "night"
    names = {text.get_text() for text in axis.figure.legends[0].get_texts()}
    assert names == {"work", "rest", "randomises"}


def test_a_solution_without_a_grid_leaves_places_white_that_are_never_reached():
    pytest.importorskip("matplotlib")
    cmdp = ck.CMDP([[[1.0, 0.0]], [[0.0, 1.0]]], r=[[1.0], [0.0]], horizon=2)
    array = ck.solve(cmdp).plot().axes[0].images[0].get_array()
    assert array.mask.tolist() == [[False, False], [True, True]]


def test_an_illegible_map_is_refused():
    pytest.importorskip("matplotlib")
    with pytest.raises(ck.CmdpkitError, match="too large to read"):
        ck.Policy(np.ones((3, 1_000_000, 1))).plot()


def test_the_trade_off_is_drawn_to_a_file_that_is_not_replaced(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "curve.png"
    model = str(ck.write_model(chain(), tmp_path / "m.toml"))
    arguments = ["tradeoff", model, "wear", "--points", "3", "--plot", str(path)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code == 1 and "exists already; --force replaces it" in again.stderr


def test_what_verbs_and_logs_find_prints_as_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # so that names are short, and no line is broken
    cmdp = chain()
    model = str(ck.write_model(cmdp, "m.toml"))
    rule = ck.Policy.of(cmdp, {"day": "work", "night": "rest"})
    plan = str(ck.write_policy(rule, "rule.csv"))
    log = Path("log.csv")
    rows = [f"{k},{h},day,{a},{int(a == 'work')},{int(a == 'work')},day" for k in range(200) for h in (1, 2)
            for a in ["work" if (k + h) % 3 else "rest"]]  # fmt: skip
    log.write_text("\n".join(["episode,step,state,action,reward,wear,next_state", *rows]) + "\n", encoding="utf-8")
    estimate = ck.from_log(log, horizon=2, constraints=[ck.at_most("wear", 1.8)])
    things = {
        ("compare", model, plan): ck.compare_policies(cmdp, {"rule": rule}),
        ("explain", model, "day", "--step", "2"): ck.explain(cmdp, "day", 2),
        ("simulate", model, "--policy", plan, "--episodes", "500"): ck.simulate_policy(cmdp, rule, 500),
        ("estimate", str(log), "--horizon", "2", "--constraint", "wear<=1.8"): estimate,
    }
    for command, thing in things.items():
        told = CliRunner().invoke(app, list(command), env={"COLUMNS": "100"}).stdout.splitlines()
        first = command[0] in ("simulate", "estimate")  # whose first line begins with the name of the model or log
        printed = str(thing).splitlines()[first:]
        assert len(printed) > 1 and [line.rstrip() for line in told][first : first + len(printed)] == printed
        assert thing._repr_html_().startswith("<pre")
    assert "With 95 % confidence, the policy meets the bounds" in str(estimate.solve())


@pytest.mark.parametrize("command", [["simulate", "queue"], ["tradeoff", "queue", "energy"]], ids=" ".join)
def test_a_figure_that_cannot_be_written_is_refused_before_anything_is_done(command):
    told = CliRunner().invoke(app, [*command, "--plot", "x.txt"])
    assert told.exit_code == 2 and "must end in .png, .pdf or .svg" in told.stderr


def test_trade_offs_and_diagnoses_print_as_the_commands_show_them():
    model = ck.load("paper/grid")
    curve = ck.tradeoff(model, "cost", 4)
    wide = {"COLUMNS": "100"}
    shell = CliRunner().invoke(app, ["tradeoff", "paper/grid", "cost", "--points", "4"], env=wide).output
    assert str(curve).splitlines()[1:] == [line.rstrip() for line in shell.splitlines()][1:]
    assert str(curve).startswith("Trade-off: the best value for every bound on cost")
    found = str(ck.diagnose(model))
    check = [line.rstrip() for line in CliRunner().invoke(app, ["check", "paper/grid"], env=wide).output.splitlines()]
    for line in found.splitlines()[1:]:
        if "separation" not in line:  # a hint, which the command gives otherwise
            assert line in check, line
    infeasible = str(ck.diagnose(model.with_bounds(cost=-1)))
    assert "Infeasible: every policy misses" in infeasible and "cost ≤ -1 cannot be met" in infeasible


def test_hints_name_calls_in_python_and_options_in_the_shell():
    model = ck.load("queue")
    python = str(ck.diagnose(model, separation=False))
    assert "cmdpkit.diagnose(model, separation=True)" in " ".join(python.split())
    large = ck.load("random:S=60,A=3,H=4")
    assert "cmdpkit.write_policy(solution, file)" in str(ck.solve(large))
    shell = CliRunner().invoke(app, ["solve", "random:S=60,A=3,H=4"]).output
    assert "--save-policy FILE" in shell and "write_policy" not in shell
    assert remedy("call()", "--option") == "call()"  # and Python is spoken again afterwards
