"""`algos` and `learn` from the shell."""

import inspect
import json
import re
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from cmdpkit import cli, envs, learners, solve
from cmdpkit.io.policies import write_policy
from cmdpkit.running.learning import learn, learn_many
from cmdpkit.running.request import RESERVED

LEARN = ("learn", "paper/synthetic", "--algo", "triple-q", "--episodes")


def run(*arguments):
    return CliRunner().invoke(cli.app, list(arguments), prog_name="cmdpkit")


def answer(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_every_algorithm_is_listed_with_a_line():
    listed = {entry["name"]: entry["description"] for entry in answer("algos")}
    assert list(listed) == learners.names() and all(listed.values())
    assert all(name in run("algos").stdout for name in listed)


def test_the_json_has_the_keys_of_the_contract():
    found = answer(*LEARN, "2e3", "--seeds", "2")
    assert {"env", "algo", "preset", "episodes", "optimum", "runs"} <= found.keys()
    assert (found["env"], found["algo"], found["preset"]) == ("paper/synthetic", "triple-q", "practical")
    assert found["episodes"] == 2000 and found["optimum"] == pytest.approx(1.573063, abs=1e-6)
    assert [one["seed"] for one in found["runs"]] == [0, 1]
    keys = {"seed", "regret", "violation", "strong_regret", "strong_violation", "policy_value", "policy_utilities"}
    keys |= {"stochastic_decisions", "certificate", "seconds", "realised_regret", "realised_violation"}
    for one in found["runs"]:
        assert keys <= one.keys()
        assert len(one["violation"]) == len(one["strong_violation"]) == len(one["policy_utilities"]) == 1
        for decision in one["stochastic_decisions"]:
            assert decision.keys() == {"step", "state", "probabilities"}
            assert decision["step"] in (1, 2, 3) and sum(decision["probabilities"].values()) == pytest.approx(1)


def test_seeds_bounds_and_settings_reach_the_learner():
    plain = answer(*LEARN, "500")["runs"][0]
    assert answer(*LEARN, "500", "--first-seed", "1")["runs"][0]["regret"] != plain["regret"]
    assert answer(*LEARN, "500", "--set", "eta=3")["params"] == {"eta": 3}
    assert answer(*LEARN, "500", "--bound", "utility=1.5")["optimum"] == pytest.approx(1.7810, abs=1e-3)
    noisy = answer(*LEARN, "500", "--noise", "bernoulli")["runs"][0]
    assert noisy["realised_regret"] != plain["realised_regret"]


def test_the_table_has_a_row_a_seed_and_their_mean():
    text = run(*LEARN, "2000", "--seeds", "3").stdout
    lines = text.splitlines()
    assert lines[0] == "triple-q (practical) on paper/synthetic: 2,000 episodes, 3 seeds"
    first = next(i for i, line in enumerate(lines) if line.startswith("───"))
    rows = [line.split() for line in lines[first + 1 : first + 6] if line.strip()]
    assert [row[0] for row in rows] == ["0", "1", "2", "mean"]
    regrets = [float(row[1].replace(",", "")) for row in rows]
    assert sum(regrets[:3]) / 3 == pytest.approx(regrets[3], rel=1e-3)
    assert "nan" not in text.lower()


def test_vacuous_constants_are_said_and_verbose_tells_the_story():
    text = run(*LEARN, "500", "--preset", "theory").stdout
    assert "note: " in text
    assert "triple-q (practical) on paper/synthetic, seed 0" in run(*LEARN, "500", "--verbose").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((*LEARN, "many"), 2, "'many' is not a number"),
        ((*LEARN, "10", "--verbose", "--json"), 2, "--verbose adds text, which JSON cannot hold"),
        ((*LEARN, "0.5"), 2, "0.5 is not a whole number"),
        ((*LEARN, "10", "--set", "eta"), 2, "'eta' is not NAME=VALUE"),
        ((*LEARN, "10", "--set", "eta=2", "--set", "eta=3"), 2, "'eta' is given twice"),
        ((*LEARN, "10", "--set", "etta=1"), 1, "etta"),
        (
            (*LEARN, "10", "--set", "seed=3"),
            1,
            "seed is not a parameter of an algorithm, but a setting of the whole run",
        ),
        ((*LEARN, "10", "--set", "progress=1"), 1, "progress is not a parameter of an algorithm"),
        ((*LEARN, "10", "--set", "baseline_utility=1"), 1, "baseline_utility is not a parameter of an algorithm"),
        ((*LEARN, "10", "--set", "spec=1"), 1, "spec is not a parameter of an algorithm"),
        (
            (*LEARN, "10", "--first-seed", str(2**63)),
            1,
            f"seed is {2**63}, expected a whole number from 0 to 2**63 - 1",
        ),
        ((*LEARN, "10", "--seeds", "2", "--first-seed", str(2**63 - 1)), 1, f"seed is {2**63}, expected"),
        (
            ("learn", "paper/synthetic", "--set", "delta=1e-300"),
            1,
            "delta is 1e-300, expected a probability of at least 1e-12 and below 1",
        ),
        ((*LEARN, "10", "--preset", "bold"), 1, "bold"),
        ((*LEARN, "10", "--bound", "utlity=1"), 1, "did you mean 'utility'"),
        (("learn", "paper/synthetic", "--algo", "tripleq"), 1, "did you mean 'triple-q'"),
        (("learn", "paper/syntetic", "--episodes", "10"), 1, "paper/synthetic"),
    ],
)
def test_bad_requests_are_one_sentence(arguments, code, message):
    result = run(*arguments)
    assert result.exit_code == code
    assert message in result.stderr and "Traceback" not in result.output


def test_every_argument_of_a_run_is_reserved_and_no_parameter_of_an_algorithm_is():
    """Whatever `learn` or a learner's constructor takes by name could not be told from a parameter of that name."""
    taken = {*inspect.signature(learn).parameters, *inspect.signature(learn_many).parameters}
    assert taken - {"params"} <= RESERVED
    for name in learners.names_for("horizon"):
        with pytest.raises(ValueError, match="unknown parameter") as caught:
            learn("paper/synthetic", name, episodes=10, no_such_thing=1)
        known = set(re.findall(r"\w+", str(caught.value).partition("there are")[2]))
        assert not known & RESERVED, name


def test_an_impossible_bound_is_said_not_hidden():
    found = answer(*LEARN, "500", "--bound", "utility=2.5")
    assert found["optimum"] is None
    assert any("cannot be met" in note for note in found["runs"][0]["notes"])


def test_a_killed_command_continues_and_a_finished_one_is_not_repeated(tmp_path):
    command = [sys.executable, "-m", "cmdpkit", *LEARN, "4e8", "--out", str(tmp_path / "a"), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 90
    while not list((tmp_path).glob("a/*.run.npz")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (saved,) = (tmp_path / "a").glob("*.run.npz")
    assert saved.stat().st_size > 0 and not list((tmp_path / "a").glob("*.record.npz"))
    first = answer(*LEARN, "3000", "--out", str(tmp_path / "b"))
    kept = {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    assert sorted(name.split(".", 1)[1] for name in kept) == ["policy.json", "record.npz"]
    assert answer(*LEARN, "3000", "--out", str(tmp_path / "b")) == first, "read back, its seconds included"
    assert kept == {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}


NEEDY = ("dope", "opdop", "opsrl", "opt-dual", "opt-pess-lp", "opt-pess-primal-dual", "opt-primal-dual")


def test_every_algorithm_names_its_guarantee_needs_and_source():
    for entry in answer("algos"):
        ours = entry["name"] in ("cl-pri", "dual-q", "mf-pri", "pac", "ps-cmdp")
        assert entry["reference"].startswith("our own, after arXiv " if ours else ("arXiv ", "doi ")), entry["name"]
        assert entry["guarantee"] and entry["presets"], entry["name"]
        assert bool(entry["needs"]) == (entry["name"] in NEEDY), entry["name"]


def test_a_baseline_file_is_the_policy_that_a_safe_algorithm_begins_with(tmp_path):
    safe = solve(envs.build("paper/synthetic").with_bounds(utility=2.05))
    file = write_policy(safe.policy, tmp_path / "safe.json")
    asked = ("learn", "paper/synthetic", "--algo", "dope", "--preset", "theory", "--episodes", "200")
    run = answer(*asked, "--baseline", str(file))["runs"][0]
    assert run["policy_value"] == pytest.approx(safe.value, abs=1e-9)
    assert run["unsafe_episodes"] == 0


def test_a_run_that_was_stopped_by_a_rule_is_continued_in_its_folder(tmp_path):
    learn_here = ("learn", "paper/synthetic", "--out", str(tmp_path))
    begun = answer(*learn_here, "--stop", "400", "--seeds", "2")
    assert [one["episodes"] for one in begun["runs"]] == [400, 400]
    longer = answer(*learn_here, "--more", "300", "--seeds", "2")
    assert [one["episodes"] for one in longer["runs"]] == [700, 700]
    fresh = answer("learn", "paper/synthetic", "--stop", "7e2")["runs"][0]
    fresh.pop("seconds")
    assert fresh.items() <= longer["runs"][0].items()
    assert "no run of cl-pri on queue" in run("learn", "queue", "--out", str(tmp_path), "--more", "10").output
    both = run("learn", "queue", "--stop", "60s", "--episodes", "10")
    assert both.exit_code == 2 and "only one of --episodes and --stop" in both.output


def test_seed_is_another_name_of_first_seed():
    one, other = (
        answer("learn", "paper/synthetic", "--episodes", "200", name, "7") for name in ("--seed", "--first-seed")
    )
    assert [x["seed"] for x in one["runs"]] == [x["seed"] for x in other["runs"]] == [7]


@pytest.mark.parametrize(("option", "value"), [("--constraint", "energy<=20"), ("--horizon", "5")])
def test_options_of_gymnasium_environments_are_refused_for_a_model(option, value):
    found = run("learn", "queue", "--episodes", "10", option, value)
    assert found.exit_code == 1
    assert "queue: it is a model, which has constraints and a horizon of its own: change its bounds" in found.stderr
