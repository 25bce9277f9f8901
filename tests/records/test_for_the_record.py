"""Nothing that is only for the reader of a record may end a run: versions, commits, internals, evaluations."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.learners.triple_q import TripleQ
from cmdpkit.records import code
from cmdpkit.records.store import difference, load_record, save_record
from cmdpkit.running.gym import GymWorld
from cmdpkit.testing import CHECKS, Case, ContractBroken
from gym_line import Line


@pytest.fixture
def looked_up_again():
    code.versions.cache_clear()
    yield
    code.versions.cache_clear()


@pytest.mark.usefixtures("looked_up_again")
@pytest.mark.parametrize("error", [PackageNotFoundError("numpy"), OSError("no such disk"), KeyError("Version")])
def test_a_run_from_a_source_tree_without_package_metadata_is_kept(monkeypatch, tmp_path, error):
    def version(package):
        raise error

    monkeypatch.setattr(code, "version", version)
    record = ck.learn("paper/synthetic", "triple-q", episodes=3)
    assert record.versions["cmdpkit"] == ck.__version__ and record.versions["numpy"] == np.__version__
    monkeypatch.delitem(sys.modules, "highspy", raising=False)
    code.versions.cache_clear()
    assert code.versions()["highspy"] == "unknown"
    save_record(record, tmp_path)
    assert load_record(tmp_path, record.run.key).versions == record.versions


@pytest.mark.usefixtures("looked_up_again")
def test_metadata_without_a_version_are_as_good_as_none(monkeypatch):
    monkeypatch.setattr(code, "version", lambda package: None)
    assert code.versions()["numba"] == sys.modules["numba"].__version__


@pytest.mark.parametrize(
    "error", [PermissionError("git"), subprocess.TimeoutExpired("git", 10), ValueError("null byte")]
)
def test_a_git_that_cannot_be_asked_is_no_commit(monkeypatch, tmp_path, error):
    def run(*words, **options):
        raise error

    monkeypatch.setattr(subprocess, "run", run)
    assert code._checkout.__wrapped__(tmp_path / "mine.py") is None


def test_a_script_that_is_edited_while_it_runs_keeps_its_result(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import cmdpkit as ck\n"
        "from cmdpkit.learners.triple_q import TripleQ\n"
        "class Mine(TripleQ):\n"
        "    title = 'Mine'\n"
        "def edit(progress):\n"
        "    open(__file__, 'w').write('def half a sentence')\n"
        "print(ck.learn('paper/synthetic', Mine, episodes=3, progress=edit).run.episodes)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("3\n", 0), done.stderr


def fail(self):
    raise ZeroDivisionError("three of none")


@pytest.mark.parametrize(
    ("method", "answer", "missing"),
    [
        ("internals", fail, "description of internals"),
        ("internals", lambda self: {"mean": float("nan")}, "description of internals"),
        ("internals", lambda self: {"what": object()}, "description of internals"),
        ("phases", fail, "list of phases"),
        ("phases", lambda self: ["learning"], "list of phases"),
        ("warnings", fail, "notes of the learner"),
        ("certificate", fail, "certificate"),
    ],
)
def test_a_learner_that_cannot_describe_itself_loses_the_description_and_not_the_run(tmp_path, method, answer, missing):
    Mine = type("Mine", (TripleQ,), {"title": "Mine", method: answer})
    Sound = type("Mine", (TripleQ,), {"title": "Mine"})
    seen = []
    record = ck.learn("paper/synthetic", Mine, episodes=50, seed=3, progress=lambda at: seen.append(at.phase))
    sound = ck.learn("paper/synthetic", Sound, episodes=50, seed=3)
    assert np.array_equal(record.curves["regret"], sound.curves["regret"]) and seen
    assert np.array_equal(record.policy.pi, sound.policy.pi)
    [said] = [note for note in record.notes if f"the record has no {missing}" in note]
    assert "Error" in said and "complete" in said
    with pytest.raises(ContractBroken, match=f"the record has no {missing}"):
        CHECKS["its_internals_fit_into_a_record"](Case(Mine, ck.load("paper/synthetic"), episodes=5))
    save_record(record, tmp_path)
    assert difference(load_record(tmp_path, record.run.key), record) is None


def test_the_old_names_with_explain_are_refused_with_the_new_ones():
    record = ck.learn("paper/synthetic", "triple-q", episodes=5)
    learner = TripleQ(ck.learners.Spec.of(ck.load("paper/synthetic"), K=5))
    renamed = {
        ("explain", record): "internals_text",
        ("explanation", record): "internals",
        ("explain", learner): "internals",
    }
    for (old, thing), new in renamed.items():
        with pytest.raises(AttributeError, match=rf"\.{old} is now called {new}$"):
            getattr(thing, old)


class Breaks(Line):
    """A line that fails after a number of episodes, as a simulator may that leaks memory."""

    begun = 0

    def reset(self, *, seed=None, options=None):
        self.begun += 1
        if self.begun > 30:
            raise MemoryError("the simulator is full")
        return super().reset(seed=seed, options=options)


def test_an_environment_that_fails_in_the_evaluation_after_the_run_does_not_lose_the_run():
    world = GymWorld(Breaks(), [ck.at_most("cost", 1.0)], horizon=3, reward_range=(0, 1), cost_ranges=[(0, 1)])
    record = ck.learn(world, "triple-q", episodes=20)
    assert record.run.episodes == 20 and record.evaluation is None
    assert any("the record has no evaluation" in note and "the simulator is full" in note for note in record.notes)
