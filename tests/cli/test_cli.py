"""The command line: what it prints, where, with which exit code, and the contract of its JSON."""

import doctest
import json
import math
import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import cmdpkit as ck
from cmdpkit import cli, envs
from cmdpkit.io import policies as policy_files
from cmdpkit.results.showing import json_text

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "command-line.md"
VERBS = ("envs", "check", "solve", "tradeoff", "convert", "export", "algos", "learn",
         "bench", "show", "report", "estimate", "evaluate", "compare", "simulate", "explain")  # fmt: skip


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, list(arguments), prog_name="cmdpkit")


def answer(*arguments: str) -> Any:
    """The JSON a verb prints, and nothing else: neither NaN nor Infinity is JSON."""
    result = run(*arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, "")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(result.stdout, parse_constant=refuse)


# -- the contract of solve ---------------------------------------------------------------------------------------------


def test_solve_json_has_the_promised_keys_and_the_numbers_of_the_papers_synthetic_instance() -> None:
    found = answer("solve", "paper/synthetic")
    assert list(found) == [
        "env", "method", "value", "utilities", "shadow_prices", "gap", "ended", "constraints", "stochastic_decisions",
        "seconds",
    ]  # fmt: skip
    assert found["env"] == "paper/synthetic"
    assert found["value"] == pytest.approx(1.573063, abs=1e-6)
    assert found["utilities"] == [pytest.approx(2.0, abs=1e-9)]
    assert found["shadow_prices"] == [pytest.approx(0.739261, abs=1e-6)]
    assert 0 <= found["gap"] <= 1e-9
    (decision,) = found["stochastic_decisions"]
    assert decision == {
        "step": 1,
        "state": 1,
        "probabilities": {"2": pytest.approx(0.2738, abs=5e-5), "3": pytest.approx(0.7262, abs=5e-5)},
    }
    (constraint,) = found["constraints"]
    assert constraint == {
        "name": "utility",
        "sense": "at_least",
        "bound": 2.0,
        "per_step": False,
        "bound_total": 2.0,
        "value": found["utilities"][0],
        "slack": pytest.approx(0, abs=1e-9),
        "price": found["shadow_prices"][0],
        "binding": True,
    }
    assert found["seconds"] > 0


def test_solve_json_speaks_the_names_and_the_sense_of_the_papers_grid_world() -> None:
    found = answer("solve", "paper/grid")
    assert found["value"] == pytest.approx(5.001162, abs=1e-6)
    assert found["utilities"] == [pytest.approx(0.5, abs=1e-9)]
    assert found["shadow_prices"] == [pytest.approx(1.290569, abs=1e-6)]
    (decision,) = found["stochastic_decisions"]
    assert (decision["step"], decision["state"]) == (1, "r1c3")
    assert decision["probabilities"] == {"down": pytest.approx(0.5), "left": pytest.approx(0.5)}


def test_bounds_can_be_changed_one_by_one_whatever_their_names() -> None:
    found = answer("solve", "queue", "--bound", "energy=1e3", "--bound", "backlog=15")
    assert [(c["name"], c["bound"]) for c in found["constraints"]] == [("energy", 1000.0), ("backlog", 15.0)]
    assert [c["binding"] for c in found["constraints"]] == [False, True]
    (spaced,) = answer("solve", "streaming", "--bound", "fast link=4")["constraints"]
    assert (spaced["name"], spaced["bound"], spaced["slack"]) == ("fast link", 4.0, pytest.approx(0, abs=1e-9))


def test_slack_is_the_distance_to_the_bound_in_its_own_sense() -> None:
    loose = answer("solve", "paper/grid", "--bound", "cost=3")["constraints"][0]
    assert loose["slack"] == pytest.approx(3 - loose["value"])
    assert (loose["price"], loose["binding"]) == (0, False)
    loose = answer("solve", "paper/synthetic:rho=1")["constraints"][0]
    assert loose["slack"] == pytest.approx(loose["value"] - 1)


def test_numbers_that_are_not_finite_are_null_in_json() -> None:
    assert json.loads(json_text({"a": [math.inf, -math.inf, math.nan, 1.5], 2: True})) == {
        "a": [None, None, None, 1.5],
        "2": True,
    }


# -- the other verbs ---------------------------------------------------------------------------------------------------


def test_envs_lists_all_and_describes_one() -> None:
    text = run("envs").stdout
    assert [line.split()[0] for line in text.splitlines() if re.match(r"[a-z]", line)] == ["environment", *envs.names()]
    assert [each["name"] for each in answer("envs")] == envs.names()
    (one,) = answer("envs", "paper/lower-bound")
    assert one == {
        "name": "paper/lower-bound",
        "description": envs.describe("paper/lower-bound"),
        "parameters": {"p": 0.5, "H": 6},
    }
    assert re.search(r"seed +0\n", run("envs", "random").stdout)


def test_check_agrees_with_diagnose() -> None:
    found = answer("check", "paper/synthetic")
    truth = ck.diagnose(ck.load("paper/synthetic"))
    assert truth.solution is not None
    assert (found["feasible"], found["value"], found["binding"]) == (True, truth.solution.value, ["utility"])
    assert found["slater_slack"] == pytest.approx(truth.slater_slack)
    assert found["ranges"] == [pytest.approx(r._asdict()) for r in truth.ranges]
    assert len(found["separation"]) == len(truth.separation) == 10
    assert found["sigma_min"] == truth.sigma_min == min(row["sigma"] for row in found["separation"])
    assert [row["value_loss"] for row in found["separation"]].count(None) == 3  # infinite: nothing else meets the bound
    assert {tuple(row) for row in found["separation"]} == {
        ("step", "state", "action", "probability", "use", "value_loss", "sigma")
    }


def test_check_skips_the_separation_where_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(answer("check", "paper/synthetic")["separation"]) == 10
    assert len(answer("check", "treatment")["separation"]) == 20
    told = run("check", "treatment").stdout
    assert "Looked at: 20 of 165 actions in use, those drawn or taken most often" in told
    assert "(cmdpkit.diagnose(model, separation=True) looks at all)" in " ".join(told.split())
    monkeypatch.setattr("cmdpkit.exact.diagnosis.MOST_WORK", 9)
    assert answer("check", "paper/synthetic")["separation"] is None
    assert "what each is worth is slow: cmdpkit.diagnose(" in " ".join(run("check", "paper/synthetic").stdout.split())


def test_check_works_without_any_constraint() -> None:
    ck.write_model(ck.CMDP([[[1.0], [1.0]]], [[1.0, 0.0]], horizon=2), "free.toml")
    found = answer("check", "free.toml")
    assert (found["value"], found["slater_slack"], found["ranges"], found["constraints"]) == (2.0, None, [], [])
    assert "0 constraints" in run("check", "free.toml").stdout
    assert "optimal value 2\n" in run("solve", "free.toml").stdout


def test_tradeoff_agrees_with_the_optimum_at_every_bound() -> None:
    found = answer("tradeoff", "paper/grid", "cost", "--points", "5", "--low", "-0.5", "--high", "1.5")
    assert (found["constraint"], found["infeasible"]) == ("cost", [-0.5])
    assert [point["bound"] for point in found["points"]] == [0.0, 0.5, 1.0, 1.5]
    for point in found["points"]:
        truth = answer("solve", "paper/grid", "--bound", f"cost={point['bound']}")
        assert point["value"] == pytest.approx(truth["value"], abs=1e-9)
    assert len(answer("tradeoff", "paper/grid", "cost")["points"]) == 21


def test_a_model_survives_every_conversion_and_files_are_never_replaced_unasked() -> None:
    original = ck.load("treatment:H=3")
    sources = ["treatment:H=3", "a.toml", "b.json", "c.csv", "d.npz"]
    for source, target in pairwise(sources):
        assert run("convert", source, target).stdout == f"wrote {target}\n"
        assert ck.load(target) == original
    kept = Path("a.toml").read_bytes()
    refused = run("convert", "queue", "a.toml")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == "error: a.toml exists already; --force replaces it\n"
    assert Path("a.toml").read_bytes() == kept
    assert answer("convert", "queue", "a.toml", "--force") == {"wrote": "a.toml"}
    assert ck.load("a.toml") == ck.load("queue")


def test_a_policy_is_saved_exported_and_never_replaced_unasked() -> None:
    assert run("solve", "paper/synthetic", "--save-policy", "best.json").exit_code == 0
    truth = ck.solve(ck.load("paper/synthetic")).policy
    np.testing.assert_array_equal(ck.read_policy("best.json").pi, truth.pi)
    for to in cli.PolicyFormat:
        if to != "json":
            assert run("export", "best.json", f"best.{to}").stdout == f"wrote best.{to}\n"
    np.testing.assert_array_equal(ck.read_policy("best.csv").pi, truth.pi)
    assert run("export", "best.npz", "again.json").stdout == "wrote again.json\n"
    assert Path("again.json").read_bytes() == Path("best.json").read_bytes()
    for again in (["export", "best.json", "best.csv"], ["solve", "queue", "--save-policy", "best.json"]):
        refused = run(*again)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "exists already; --force replaces it" in refused.stderr
        assert run(*again, "--force").exit_code == 0


def test_the_formats_offered_for_policies_are_those_that_can_be_written() -> None:
    policy = ck.solve(ck.load("paper/lower-bound")).policy
    for suffix in cli.PolicyFormat:
        policy_files.write_policy(policy, f"p.{suffix}")
    with pytest.raises(ValueError, match=r"\.json, \.csv, \.npz, \.py") as refused:
        policy_files.write_policy(policy, "p.other")
    assert set(re.findall(r"\.(\w+),?", str(refused.value).partition("expected")[2])) == set(cli.PolicyFormat)


# -- what goes wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("solve paper/sinthetic", "no such file and no such environment; did you mean 'paper/synthetic'?"),
        ("check kueue", "did you mean 'queue'?"),
        ("solve zzz", "`cmdpkit envs` lists the environments"),
        ("solve modle.toml", "did you mean 'model.toml'?"),
        ("envs qeue", "unknown environment 'qeue'; did you mean 'queue'?"),
        ("solve random:S=0", "S is 0, expected a whole number at least 1"),
        ("solve random:size=3", "environment 'random' has no parameter 'size'"),
        ("solve random:S", "expected parameter=value"),
        ("solve queue --bound energi=3", "unknown constraint 'energi'"),
        ("solve queue --bound energy=nan", "bound is nan, expected a finite number"),
        ("tradeoff queue energi", "unknown constraint 'energi'; did you mean 'energy'?"),
        ("tradeoff queue energy --low nan", "expected a finite number"),
        ("solve model.toml", "model.toml"),
        ("solve folder.toml", "folder.toml"),
        ("convert queue model.xls", "unknown suffix '.xls'"),
        ("convert queue nowhere/model.toml", "nowhere/model.toml"),
        ("export missing.json policy.csv", "missing.json"),
        ("export policy.md policy.csv", "policy.md: .md is not read or written; write .csv"),
    ],
)
def test_bad_input_is_one_sentence_on_stderr_and_exit_code_1(arguments: str, message: str) -> None:
    Path("model.toml").write_text("[model\n")
    Path("folder.toml").mkdir()
    Path("policy.md").write_text("| step |\n")
    result = run(*shlex.split(arguments))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        "slove queue",
        "solve",
        "solve queue extra",
        "solve queue --gap much",
        "solve queue --bound energy",
        "solve queue --bound energy=3 --bound energy=4",
        "solve queue --bound energy=much",
        "solve queue --save-policy policy.xls",
        "tradeoff queue",
        "tradeoff queue energy --points 0",
        "convert queue",
        "export policy.json",
        "export policy.json policy.xls",
        "export policy.json --to csv",
        "report runs --out report.pdf",
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_how_to_get_help(arguments: str) -> None:
    result = run(*shlex.split(arguments))
    assert (result.exit_code, result.stdout) == (2, "")
    error, usage = result.stderr.splitlines()
    assert error.startswith("error: ")
    assert re.fullmatch(r"usage: (cmdpkit\b.*) \[OPTIONS\].*; `\1 -h` explains it", usage)


@pytest.mark.parametrize("json_wanted", [[], ["--json"]])
def test_an_infeasible_problem_is_exit_code_3_with_the_explanation(json_wanted: list[str]) -> None:
    solved = run("solve", "paper/synthetic:rho=3", *json_wanted)
    assert (solved.exit_code, solved.stdout) == (3, "")
    best = ck.diagnose(ck.load("paper/synthetic")).ranges[0].strictest
    why = f"error: infeasible: utility ≥ 3 cannot be met, the best any policy reaches is {best:.6g}\n"
    assert solved.stderr == why
    checked = run("check", "paper/synthetic:rho=3", *json_wanted)
    assert (checked.exit_code, checked.stderr) == (3, why)
    if json_wanted:
        found = json.loads(checked.stdout)
        assert (found["feasible"], found["conflict"], found["value"]) == (False, ["utility"], None)
        assert found["slater_slack"] == pytest.approx(best - 3)
    else:
        assert "Infeasible" in checked.stdout


# -- help --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_an_example(verb: str) -> None:
    result = run(verb, "--help")
    assert result.exit_code == 0
    assert f"Usage: cmdpkit {verb}" in result.stdout
    assert f"\n    cmdpkit {verb} " in result.stdout
    assert "--json" in result.stdout
    assert result.stdout == run(verb, "-h").stdout


def test_the_list_of_verbs_is_complete_and_not_cut_short() -> None:
    text = run("--help").stdout
    listed = re.search(r"Commands:\n(.*?)\n\n", text, re.DOTALL)
    assert listed is not None
    assert [line.split()[0] for line in listed[1].splitlines()] == list(VERBS)
    assert "..." not in listed[1]


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; from cmdpkit.cli import app; app(['solve', '--help'], standalone_mode=False); "
        "sys.exit(', '.join({'numpy', 'numba', 'highspy', 'rich', 'cmdpkit.model.cmdp'} & set(sys.modules)) or None)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "Usage" in result.stdout


# -- the guide ---------------------------------------------------------------------------------------------------------


def test_the_guide_shows_what_the_commands_print() -> None:
    blocks = re.findall(r"```console\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    examples = [example for block in blocks for example in re.split(r"^\$ cmdpkit ", block, flags=re.MULTILINE)[1:]]
    assert len(examples) >= 10
    for example in examples:
        arguments, _, expected = example.partition("\n")
        result = run(*shlex.split(arguments))
        shown = result.stdout + result.stderr
        assert doctest.OutputChecker().check_output(expected, shown, doctest.ELLIPSIS), f"cmdpkit {arguments}\n{shown}"
    elsewhere = {"bench", "show", "report"}  # in the guide to experiments
    elsewhere |= {"estimate", "evaluate", "compare", "simulate", "explain"}  # in the guides to logs and to policies
    assert {example.split()[0] for example in examples} >= set(VERBS[1:]) - elsewhere
