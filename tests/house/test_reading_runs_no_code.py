"""Reading a file never runs code, as SECURITY.md promises: here every text in every file names a module that tells.

The module `planted` stands in the current folder, on Python's path and beside every file. It leaves a trace when it is
imported. A reader that takes a name from a file for something to import is caught by this, wherever the name stands.
"""

import dataclasses
import sys

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.experiments.experiment import Experiment
from cmdpkit.records.record import Run
from cmdpkit.records.store import load_failures, load_record, save_failure, save_record
from cmdpkit.results.study import Study, load_settings, save_order
from cmdpkit.running.active import asked_of, read_saved, write_saved
from records import make_record

NAME = "planted:Any"  # what every text in the files is


@pytest.fixture(autouse=True)
def planted(tmp_path, monkeypatch):
    (tmp_path / "planted.py").write_text("open('trace', 'w').close()\nraise SystemError('planted was imported')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = list(sys.path)
    yield tmp_path
    assert not (tmp_path / "trace").exists() and "planted" not in sys.modules
    assert sys.path == before, "reading a file must not change where Python looks for modules"


def model() -> ck.CMDP:
    return ck.CMDP.from_function(
        states=[NAME, "planted:make"],
        actions=[NAME, "planted"],
        start=NAME,
        horizon=2,
        step=lambda s, a: {NAME: 0.5, "planted:make": 0.5},
        reward=lambda s, a: float(a == NAME),
        constraints=[ck.at_most(NAME, 2.0, lambda s, a: float(s == NAME))],
    )


@pytest.mark.parametrize("suffix", [".toml", ".json", ".csv", ".npz"])
def test_models(suffix):
    assert ck.read_model(ck.write_model(model(), f"model{suffix}")) == model()
    assert ck.load(f"model{suffix}") == model()


def test_models_of_other_programs():
    written = ck.write_explicit(ck.CMDP([[[1.0]]], [[1.0]], discount=0.9), "model.tra")
    assert ck.read_explicit(written, reward="reward", discount=0.9).S == 1


@pytest.mark.parametrize("suffix", [".json", ".csv", ".npz"])
def test_policies(suffix):
    policy = ck.solve(model()).policy
    assert np.array_equal(ck.read_policy(ck.write_policy(policy, f"plan{suffix}"), model()).pi, policy.pi)


def test_a_policy_that_is_a_program_is_refused_unread(planted):
    (planted / "plan.py").write_text("import planted\n")
    with pytest.raises(ValueError, match=r"plan\.py"):
        ck.read_policy("plan.py")


def test_logs(planted):
    head = "episode,step,state,action,reward,cost,next_state\n"
    (planted / "log.csv").write_text(head + "".join(f"{k},1,{NAME},{NAME},1,0,{NAME}\n" for k in range(4)))
    ck.from_log("log.csv", horizon=1, constraints=[ck.at_most("cost", 1)])


def test_records_studies_reports_and_failures(planted):
    record = make_record("paper/synthetic", "triple-q", 0)
    run = dataclasses.replace(record.run, env="planted:make", algo=NAME, preset=NAME)
    record = dataclasses.replace(record, run=run, notes=(NAME,), phases=((NAME, 0),), internals={NAME: NAME})
    save_record(record, "runs")
    save_failure(dataclasses.replace(run, seed=7), NAME, "runs")
    save_order("runs", [], NAME)
    assert load_record("runs", run.key).run == run and load_settings("runs").title == NAME
    assert len(load_failures("runs")) == 1
    study = Study.load("runs")
    assert NAME in study.to_html(planted / "report.html").read_text()
    study.plot("regret")


def test_environments_of_other_packages_are_not_built_for_a_record(monkeypatch):
    def build():
        raise SystemError("the environment of another package was built")

    monkeypatch.setattr("cmdpkit.envs._offered", lambda: {"theirs": type("Entry", (), {"load": lambda self: build})()})
    record = make_record("paper/synthetic", "triple-q", 0)
    record = dataclasses.replace(record, run=dataclasses.replace(record.run, env="theirs"))
    save_record(record, "runs")
    Study.load("runs").to_html("report.html")


def test_saved_runs(planted):
    run = Run("planted:make", NAME, 10, 0, NAME)
    arrays = {"run": np.array(asked_of(run)), "rng": np.zeros(4, np.uint64), "done": np.array(1), NAME: np.array(NAME)}
    arrays |= {"seconds": np.array(0.0), "curve/length": np.zeros(1)}
    write_saved(planted / "run.npz", arrays)
    assert str(read_saved(planted / "run.npz", run)[NAME]) == NAME


EXPERIMENT = (
    'episodes = 5\nenvironments = ["planted:make"]\n[[algorithms]]\nname = "planted:Any"\npreset = "planted:Any"\n'
)


def test_experiments(planted):
    (planted / "study.toml").write_text(EXPERIMENT)
    experiment = Experiment.load("study.toml")
    assert (experiment.environments[0].model, experiment.algorithms[0].name) == ("planted:make", NAME)


def test_experiments_with_mistakes(planted):
    (planted / "study.toml").write_text(EXPERIMENT + "noise = 3\n")
    with pytest.raises(ValueError, match=r"study\.toml"):
        Experiment.load("study.toml")


def test_an_experiment_that_is_run_does_import_what_it_names(planted, monkeypatch):
    """The other side of the promise: without this the tests above would pass if names were never resolved at all."""
    folder = planted / "beside"
    folder.mkdir()
    (folder / "beside_it.py").write_text(
        "from cmdpkit.learners.triple_q import TripleQ as Mine\nraise OSError('ran')\n"
    )
    text = EXPERIMENT.replace("planted:make", "paper/synthetic").replace("planted:Any", "beside_it:Mine")
    (folder / "study.toml").write_text(text)
    experiment = Experiment.load(folder / "study.toml")
    with monkeypatch.context() as own:
        own.setattr(sys, "path", list(sys.path))
        with pytest.raises(OSError, match="ran"):
            experiment.runs()
        assert str(folder) in sys.path


def test_a_class_that_does_not_exist_is_named_with_its_place_when_the_experiment_is_run(planted, monkeypatch):
    (planted / "quiet.py").write_text("from cmdpkit.learners.triple_q import TripleQ\n")
    (planted / "study.toml").write_text(EXPERIMENT.replace("planted:Any", "quiet:TripleP"))
    with monkeypatch.context() as own:
        own.setattr(sys, "path", list(sys.path))
        with pytest.raises(ValueError, match=r"study: algorithms\[0\]\.name: .*'TripleP'; did you mean 'TripleQ'"):
            Experiment.load("study.toml").runs()
