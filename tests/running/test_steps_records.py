"""Runs without episodes in experiments, tables, reports and when they are stopped: everything says steps."""

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import cmdpkit as ck
from cmdpkit import cli
from cmdpkit.estimate.intervals import batch_intervals
from cmdpkit.experiments.experiment import Experiment
from cmdpkit.records.store import difference
from cmdpkit.results.report import render

TOML = """
steps = {steps}
seeds = 2
environments = ["machine-two"]
algorithms = ["cmdp-psrl", {{name = "cl-pri", steps = 600}}]
"""


def written(tmp_path, text):
    path = tmp_path / "machines.toml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return ck.bench(["machine-two"], ["cmdp-psrl"], steps=400, seeds=2, executor="serial")


# -- experiments -------------------------------------------------------------------------------------------------------


def test_an_experiment_in_steps_asks_for_the_runs_that_learn_makes(tmp_path):
    runs = Experiment.load(written(tmp_path, TOML.format(steps="4e2"))).runs()
    assert [(run.algo, run.length, run.unit, run.seed) for run in runs] == [
        ("cmdp-psrl", 400, "step", 0),
        ("cmdp-psrl", 400, "step", 1),
        ("cl-pri", 600, "step", 0),
        ("cl-pri", 600, "step", 1),
    ]
    assert runs[1].key == ck.learn("machine-two", "cmdp-psrl", steps=400, seed=1).run.key


def test_other_processes_do_runs_by_steps_to_the_same_bits_and_only_once(tmp_path, study):
    path = written(tmp_path, TOML.format(steps=400).replace(', {name = "cl-pri", steps = 600}', ""))
    answer = [CliRunner().invoke(cli.app, ["bench", str(path), "--out", str(tmp_path / "runs")]) for _ in range(2)]
    assert [x.exit_code for x in answer] == [0, 0], answer[0].output
    assert "2 done now" in answer[0].output and "0 done now, 2 before" in answer[1].output
    kept = ck.load_records(tmp_path / "runs")
    for one in study.records:
        (other,) = (record for record in kept if record.run.key == one.run.key)
        assert difference(one, other) is None


def test_problems_with_and_without_a_horizon_share_an_experiment_each_in_its_own_unit():
    both = Experiment.of(
        {"name": "both", "environments": ["queue", "machine-two"], "algorithms": ["cl-pri"], "episodes": 7, "steps": 9}
    )
    assert {(run.env, run.length, run.unit) for run in both.runs()} == {
        ("queue", 7, "episode"),
        ("machine-two", 9, "step"),
    }


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"environments": ["machine-two"], "episodes": 5}, "machines: episodes is given, but no environment has a hor"),
        ({"environments": ["queue"], "steps": 5}, "machines: steps is given, but every environment has a horizon"),
        (
            {"environments": ["queue", "machine-two"], "episodes": 5},
            "machines: machine-two has no horizon: give steps, the length of its runs",
        ),
        ({"environments": ["queue", "machine-two"], "steps": 5}, "machines: queue has a horizon: give episodes, the"),
        (
            {"environments": ["machine-two"], "steps": 5, "algorithms": ["triple-q"]},
            "machines: triple-q cannot learn machine-two, which is judged by long-run averages .* take one of .*cl-pri",
        ),
    ],
)
def test_what_does_not_fit_the_problems_is_refused_by_name(asked, said):
    with pytest.raises(ck.CmdpkitError, match=said):
        Experiment.of({"name": "machines", "algorithms": ["cl-pri"], **asked}).runs()


# -- what people read --------------------------------------------------------------------------------------------------


def test_tables_and_pages_about_runs_without_episodes_never_say_episode(study, tmp_path):
    (row, *_) = study.table()
    assert row["steps"] == 400 and "episodes" not in row and row["gaps_paid"] > 0
    text = CliRunner().invoke(cli.app, ["learn", "machine-two", "--steps", "300", "--algo", "cmdp-psrl", "-v"]).output
    assert "300 steps, 1 seed" in text and "gaps paid" in text
    meanings = [c.meaning for table in study.summary() for c in table.columns if c.key != "unsafe_episodes"]
    for told in (text, study.to_markdown(), study.to_latex(), *meanings):
        assert "episode" not in told
    page = render(study)
    facts = page[: page.index('<script type="application/json"')]
    assert "no horizon, 2 states" in facts and "long-run averages" in facts and "step None" not in page
    assert "steps=400" in facts


# -- stopping, continuing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cl-pri", "cmdp-psrl"])
def test_a_run_that_is_continued_by_steps_is_the_run_that_was_longer_from_the_start(name, tmp_path):
    long = ck.learn("machine-two", name, stop=1300, seed=3)
    begun = ck.learn("machine-two", name, stop=700, seed=3)
    assert begun.run.unit == "step" and begun.run.length == 700 and begun.curves["step"][-1] == 700
    longer = ck.continue_run(begun, steps=600)
    assert difference(longer, long) is None and longer.run.key == long.run.key
    ck.save_record(begun, tmp_path)
    assert difference(ck.continue_run(ck.load_record(tmp_path, begun.run.key), stop=1300), long) is None


def test_a_stopped_run_in_a_folder_goes_on_by_more_steps(tmp_path):
    asked = ["learn", "machine-two", "--algo", "cmdp-psrl", "--out", str(tmp_path)]
    for words, steps in ((["--stop", "200"], 200), (["--more", "150"], 350)):
        done = CliRunner().invoke(cli.app, [*asked, *words])
        assert done.exit_code == 0 and f"{steps} steps, 1 seed" in done.output


def test_what_cannot_be_stopped_or_continued_is_refused_by_name():
    begun = ck.learn("machine-two", "cmdp-psrl", stop=50)
    planned = ck.learn("machine-two", "cmdp-psrl", steps=50)
    for stop in ("certified", "gap=0.1"):
        with pytest.raises(ck.CmdpkitError, match=f"stop is '{stop}', which needs a certificate .* has no episodes"):
            ck.learn("machine-two", "cl-pri", stop=stop)
    with pytest.raises(ck.CmdpkitError, match="neither of steps and stop is given; give steps="):
        ck.learn("machine-two", "cl-pri")
    with pytest.raises(ck.CmdpkitError, match="machine-two has no horizon and so no episodes: give steps="):
        ck.continue_run(begun, episodes=5)
    with pytest.raises(ck.CmdpkitError, match=r"planned for 50 steps and has ended; .* stop= instead of steps="):
        ck.continue_run(planned, steps=5)
    with pytest.raises(ck.CmdpkitError, match="steps is 0, expected a whole number, at least 1"):
        ck.continue_run(begun, steps=0)


# -- the certificate ---------------------------------------------------------------------------------------------------


def test_intervals_of_blocks_are_those_of_student_shared_between_all_signals():
    means = np.random.default_rng(0).uniform(0.3, 0.7, (25, 3))
    found = batch_intervals(means, 5000, 0.06)
    assert found.level == 0.94 and found.episodes == 5000 and found.approximate
    for x, (low, high) in zip(means.T, found.intervals, strict=True):
        expected = stats.t.interval(0.98, 24, x.mean(), x.std(ddof=1) / 5)
        assert (low, high) == pytest.approx(expected, abs=1e-9)
    assert batch_intervals(means[:4], 5000, 0.06) is None


@pytest.mark.parametrize("discount", [None, 0.9])
def test_the_certificate_of_a_run_is_about_the_policy_handed_over_in_the_users_units(discount, tmp_path):
    machine = ck.load("machine-two")
    cmdp = machine if discount is None else machine.with_criterion(discount=discount)
    run = ck.learn(cmdp, "cl-pri", steps=20_000, seed=1)
    found = run.certificate
    # The last tenth has 14 blocks of isqrt(20,000) = 141 steps, of which every other one tests the policy.
    assert found.approximate and found.episodes == 7 * 141 and found.level == 0.95
    values = (run.policy_value, *run.policy_utilities)
    for (low, high), exact in zip((found.value, *found.utilities), values, strict=True):
        assert low < high
        # An interval misses with probability 0.05 at most, and by more than its own width with less than 1e-4.
        assert low - (high - low) < exact < high + (high - low)
    ck.save_record(run, tmp_path)
    kept = ck.load_record(tmp_path, run.run.key)
    assert kept.certificate == found and kept.policy.is_stationary
    assert any("the certificate is approximate" in note for note in run.notes)


def test_a_run_that_is_too_short_to_test_its_policy_says_so():
    run = ck.learn("machine-two", "cl-pri", steps=9_000, seed=1)
    assert run.certificate is None
    assert any("there is no certificate" in note and "at least 10,000 steps" in note for note in run.notes)
