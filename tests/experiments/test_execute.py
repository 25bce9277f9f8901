"""Whoever does the runs, and however often it is asked: the same records, nothing twice, failures recorded."""

import errno
import json
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cmdpkit as ck
from cmdpkit import cli
from cmdpkit.experiments import backends as jobs
from cmdpkit.experiments.execute import bench
from cmdpkit.records import store
from cmdpkit.records.store import difference
from cmdpkit.results.study import load_models
from cmdpkit.running import worlds
from cmdpkit.running.learning import learn_many

SMALL = {"episodes": 2000, "seeds": 3}


class Seen:
    """An observer that remembers."""

    def __init__(self):
        self.begun, self.standings, self.ends = [], [], []

    def begin(self, total, done):
        self.begun.append((total, done))

    def report(self, at):
        self.standings.append(at)

    def ended(self, run, reason):
        self.ends.append((run.algo, run.seed, reason))


BOTH = (["paper/synthetic", "paper/grid"], ["triple-q", "dual-q"])


@pytest.fixture(scope="module")
def reference():
    return bench(*BOTH, **SMALL, executor="serial")


def grid(out=None, **asked):
    """Triple-Q in the grid, in this process."""
    return bench(["paper/grid"], ["triple-q"], **{**SMALL, "out": out, "executor": "serial", **asked})


def assert_same(one, two):
    assert [r.run for r in one.records] == [r.run for r in two.records]
    for a, b in zip(one.records, two.records, strict=True):
        assert difference(a, b) is None
        assert all(a.curves[name].tobytes() == b.curves[name].tobytes() for name in a.curves)


@pytest.mark.parametrize("executor", ["serial", "processes", "dask"])
def test_every_executor_gives_the_same_bits(reference, tmp_path, executor):
    seen = Seen()
    study = bench(*BOTH, **SMALL, out=tmp_path, executor=executor, observer=seen)
    assert_same(study, reference)
    assert seen.begun == [(12, 0)] and len(seen.ends) == 12 and {reason for *_, reason in seen.ends} == {None}
    names = {path.name for path in tmp_path.iterdir() if path.is_file()} - {"study.json"}
    assert names == {f"{r.run.key}{x}" for r in study.records for x in (".record.npz", ".policy.json")}
    for r in study.records:
        assert ck.read_policy(tmp_path / f"{r.run.key}.policy.json") == r.policy


def test_a_loaded_study_is_in_the_order_of_the_experiment(tmp_path):
    """Neither alphabetical nor that of the keys; runs of the last experiment stand before those of earlier ones."""
    short = {"episodes": 20, "seeds": 2, "executor": "serial"}
    first = bench(["queue", "paper/grid"], ["triple-q", "dual-q"], **short, out=tmp_path / "a")
    assert [r.run for r in ck.Study.load(tmp_path / "a").records] == [r.run for r in first.records]
    assert [r.run for r in ck.Study.load(tmp_path).records] == [r.run for r in first.records]
    more = bench(["queue"], ["opt-dual", "triple-q"], **short, out=tmp_path / "a")
    loaded = [(g.run.env, g.run.algo) for g in ck.Study.load(tmp_path / "a").groups()]
    earlier = [("queue", "dual-q"), ("paper/grid", "triple-q"), ("paper/grid", "dual-q")]
    assert loaded == [("queue", "opt-dual"), ("queue", "triple-q"), *earlier]
    queue = ck.Study.load(tmp_path / "a").only(envs="queue").records
    assert [r.run for r in queue][:4] == [r.run for r in more.records]


def test_learn_and_bench_share_their_records(reference, tmp_path):
    learn_many("paper/synthetic", "triple-q", episodes=2000, seeds=range(3), out=tmp_path)
    seen = Seen()
    study = bench(["paper/synthetic"], ["triple-q"], **SMALL, out=tmp_path, executor="serial", observer=seen)
    assert seen.begun == [(3, 3)] and seen.ends == []
    assert_same(study, bench(["paper/synthetic"], ["triple-q"], **SMALL, executor="serial"))


def test_finished_runs_are_skipped_and_added_ones_are_done(tmp_path):
    grid(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "study.json"}
    seen = Seen()
    both = ["dual-q", "triple-q"]
    study = bench(["paper/grid"], both, episodes=2000, seeds=4, out=tmp_path, executor="serial", observer=seen)
    assert seen.begun == [(8, 3)]
    assert sorted(seen.ends) == sorted([("triple-q", 3, None), *(("dual-q", s, None) for s in range(4))])
    assert len(study) == 8 and all(path.read_bytes() == content for path, content in before.items())


def test_an_unfinished_run_continues_where_it_was_saved(tmp_path, monkeypatch, reference):
    monkeypatch.setattr("cmdpkit.running.playing.SAVE_SECONDS", 0.0)

    class Stopper(Seen):
        def report(self, at):
            if at.done > 1200:
                raise KeyboardInterrupt

    asked = {"episodes": 2000, "seeds": 1, "out": tmp_path, "executor": "serial"}
    with pytest.raises(KeyboardInterrupt):
        bench(["paper/synthetic"], ["triple-q"], **asked, observer=Stopper())
    (saved,) = tmp_path.glob("*.run.npz")
    assert not list(tmp_path.glob("*.record.npz"))
    seen = Seen()
    study = bench(["paper/synthetic"], ["triple-q"], **asked, observer=seen)
    first = [at.done for at in seen.standings if at.run.key == saved.name.partition(".")[0]]
    assert first[0] > 1200 and not saved.exists()
    assert difference(study.records[0], reference.records[0]) is None


def test_a_run_that_fails_is_recorded_does_not_stop_the_rest_and_is_tried_again(tmp_path, monkeypatch):
    asked = (["paper/grid"], ["triple-q", {"name": "triple-q", "params": {"eta": -1.0}}])
    study = bench(*asked, **SMALL, out=tmp_path, executor="processes")
    assert len(study) == 3 and [f.run.seed for f in study.failures] == [0, 1, 2]
    assert {f.reason for f in study.failures} == {"eta is -1.0, expected more than 0"}

    def bug(*args, **kwargs):
        raise ZeroDivisionError("by nothing")

    seen = Seen()
    with monkeypatch.context() as patched:
        patched.setattr("cmdpkit.running.playing.play", bug)
        again = bench(*asked, **SMALL, out=tmp_path, executor="serial", observer=seen)
    assert seen.begun == [(6, 3)] and len(seen.ends) == 3
    assert all(f.reason.startswith("ZeroDivisionError: by nothing (test_execute.py:") for f in again.failures)


def test_a_failure_is_forgotten_when_the_run_succeeds(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("cmdpkit.running.playing.play", lambda *a, **k: 1 / 0)
        assert len(grid(tmp_path, episodes=100, seeds=1).failures) == 1
    study = grid(tmp_path, episodes=100, seeds=1)
    assert len(study) == 1 and not study.failures and not store.load_failures(tmp_path)


def test_models_of_your_own_travel_to_other_processes_and_are_kept(tmp_path):
    cmdp = ck.CMDP([[[0.5, 0.5]] * 2, [[1.0, 0.0]] * 2], [[0, 1], [2, 0.5]], horizon=3)
    study = bench({"mine": cmdp}, ["triple-q"], **SMALL, out=tmp_path, executor="processes", workers=1)
    assert {r.run.env for r in study.records} == {"mine"} and study.models == {cmdp.fingerprint(): cmdp}
    assert load_models(tmp_path.parent, study.records) == {cmdp.fingerprint(): cmdp}


def test_an_optimum_is_found_once_per_process_and_environment(tmp_path, monkeypatch):
    jobs._model_world.cache_clear()
    counted = []
    solve = worlds.solve_fully
    monkeypatch.setattr(worlds, "solve_fully", lambda cmdp: (counted.append(1), solve(cmdp))[1])
    bench(*BOTH, **SMALL, out=tmp_path, executor="serial")
    assert len(counted) == 2
    learn_many("paper/synthetic", "triple-q", episodes=2000, seeds=range(3), out=tmp_path)
    assert len(counted) == 2, "finished runs need no optimum"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"executor": "threads"}, "executor is 'threads', expected one of serial, processes, dask"),
        ({"executor": "serial", "workers": 2}, "workers is for the executor processes or dask, not for serial"),
        ({"executor": "processes", "address": "tcp://a:1"}, "address is for the executor dask, not for processes"),
        ({"workers": 0}, "workers is 0, expected at least 1"),
        ({"executor": "dask", "address": "tcp://127.0.0.1:9"}, "no dask scheduler answers at tcp://127.0.0.1:9"),
    ],
)
def test_an_executor_that_cannot_be_is_refused(options, said, monkeypatch):
    monkeypatch.setattr("cmdpkit.experiments.backends.CONNECT_TIMEOUT", "1s")
    with pytest.raises(ValueError, match=said):
        bench(["paper/grid"], ["triple-q"], **SMALL, **options)


def test_a_script_without_a_main_guard_is_not_run_again_by_its_workers(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import cmdpkit.experiments.execute
        print("begun")
        study = cmdpkit.experiments.execute.bench(["paper/grid"], ["triple-q"], episodes=100, seeds=2, workers=2)
        print(len(study))
        """)
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert (done.stdout.split(), done.stderr) == (["begun", "2"], "")


# -- the disk ----------------------------------------------------------------------------------------------------------


def test_two_benches_at_once_share_a_folder(tmp_path, reference):
    studies = {}

    def go(name):
        studies[name] = bench(*BOTH, **SMALL, out=tmp_path, executor="serial")

    threads = [threading.Thread(target=go, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(3):
        assert_same(studies[i], reference)
    assert not list(tmp_path.glob("*.run.npz")) and not list(tmp_path.glob(".*.tmp"))


@pytest.mark.parametrize("executor", ["serial", "processes"])
def test_a_full_disk_ends_the_bench_and_keeps_finished_runs(tmp_path, executor):
    """RLIMIT_FSIZE makes every write beyond so many bytes fail as a full disk does, in the workers too."""
    code = textwrap.dedent(f"""
        import resource, signal, sys
        from cmdpkit.experiments.execute import bench
        bench(["paper/grid"], ["triple-q"], episodes=1000, seeds=2, out={str(tmp_path)!r}, executor="serial")
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        bench(["paper/grid"], ["triple-q"], episodes=1000, seeds=4, out={str(tmp_path)!r}, executor={executor!r})
        """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "CmdpkitError: cannot write" in last and "File too large" in last
    assert f"2 of 4 runs are finished and kept in {tmp_path}; the same command continues" in last
    assert len(store.load_records(tmp_path)) == 2 and not store.load_failures(tmp_path)
    assert len(grid(tmp_path, episodes=1000, seeds=4)) == 4


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_no_space_or_a_read_only_disk_is_said_and_nothing_is_lost(tmp_path, monkeypatch, code):
    grid(tmp_path, episodes=1000, seeds=1)

    def refuse(handle):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr("cmdpkit.io.atomic.os.fsync", refuse)
        with pytest.raises(ValueError, match=rf"cannot write .*: {os.strerror(code)}. 1 of 2 runs are finished"):
            grid(tmp_path, episodes=1000, seeds=2)
        seen = Seen()  # what is done needs no writing
        grid(tmp_path, episodes=1000, seeds=1, observer=seen)
    assert seen.ends == [] and not list(tmp_path.glob(".*.tmp"))
    assert len(grid(tmp_path, episodes=1000, seeds=2)) == 2


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"cannot make the folder .*file/runs"):
        grid(tmp_path / "file" / "runs")


def test_a_damaged_record_is_named_and_kept(tmp_path):
    study = grid(tmp_path)
    path = tmp_path / f"{study.records[1].run.key}.record.npz"
    path.write_bytes(path.read_bytes()[:-20])
    spoiled = path.read_bytes()
    with pytest.raises(ValueError, match=f"{path.name}: not a complete npz file .*; delete it and run again"):
        grid(tmp_path)
    assert path.read_bytes() == spoiled
    path.unlink()
    assert_same(grid(tmp_path), study)


def test_a_damaged_saved_state_fails_its_run_alone_and_says_what_to_delete(tmp_path):
    runs = grid().records
    saved = tmp_path / f"{runs[1].run.key}.run.npz"
    saved.write_bytes(b"half of it")
    study = grid(tmp_path)
    assert len(study) == 2
    (failure,) = study.failures
    assert str(saved) in failure.reason and "delete it" in failure.reason


def test_a_model_file_that_was_changed_is_not_taken_for_the_model(tmp_path):
    grid(tmp_path, episodes=100, seeds=1)
    (kept,) = (tmp_path / "models").iterdir()
    ck.write_model(ck.load("paper/synthetic"), kept, overwrite=True)
    study = grid(tmp_path, episodes=100, seeds=2, executor="processes", workers=1)
    assert len(study) == 1 and "is not the model of this run any more" in study.failures[0].reason


# -- the command -------------------------------------------------------------------------------------------------------

TOML = """
environments = ["paper/grid"]
algorithms = ["triple-q", "dual-q"]
episodes = 500
seeds = 2
"""


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(x) for x in arguments], prog_name="cmdpkit")


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.toml"
    path.write_text(TOML)
    return path


def test_bench_runs_skips_and_answers_in_json(experiment):
    first = run("bench", experiment, "--executor", "serial")
    assert first.exit_code == 0 and "small: 4 runs, 4 done now" in first.stdout and "paper/grid" in first.stdout
    second = run("bench", experiment, "--json")
    assert second.stderr == ""
    found = json.loads(second.stdout)
    assert (found["name"], found["runs"], found["done"], found["skipped"], found["failed"]) == ("small", 4, 0, 4, [])
    assert found["out"] == "runs/small" and [row["algo"] for row in found["table"]] == ["triple-q", "dual-q"]
    assert len(store.load_records(Path("runs/small"))) == 4


def test_bench_ends_with_1_if_a_run_failed_and_says_why_once(experiment):
    experiment.write_text(TOML.replace('"dual-q"', '{name = "triple-q", params = {eta = -1}}'))
    result = run("bench", experiment, "--executor", "serial")
    assert result.exit_code == 1 and "2 runs failed: eta is -1" in result.stdout
    assert result.stderr.count("eta is -1") == 1


def test_report_writes_one_file_and_replaces_only_its_own(experiment):
    run("bench", experiment, "--executor", "serial")
    assert run("report", "runs/small").exit_code == 0
    assert run("report", "runs/small").exit_code == 0
    assert "paper/grid" in Path("runs/small/report.html").read_text()
    Path("mine.html").write_text("mine")
    refused = run("report", "runs/small", "--out", "mine.html")
    assert refused.exit_code == 1 and "exists already" in refused.stderr and Path("mine.html").read_text() == "mine"
    assert run("report", "runs/small", "--out", "mine.html", "--force").exit_code == 0
    assert run("report", "nowhere").exit_code == 1


def test_progress_from_another_process_is_what_the_run_measured():
    """Everything that a report holds arrives, through text, as it was sent."""
    seen = []
    record = ck.learn("paper/synthetic", "triple-q", episodes=3000, seed=2, progress=seen.append)
    at = seen[-1]
    found = jobs.unpacked(json.loads(json.dumps(jobs.packed(at))), {record.run.key: record.run})
    assert found._replace(certificate=None, tally=None) == at._replace(certificate=None, tally=None)
    for one, other in zip(at.tally, found.tally, strict=True):
        assert repr(one) == repr(other)
    assert at.tally.strong.regret > 0 and at.tally.unsafe > 0


def test_runs_of_this_process_are_given_the_model_and_read_no_file(monkeypatch):
    monkeypatch.setattr(jobs, "read_model", lambda path: pytest.fail(f"{path} was read"))
    assert len(grid(seeds=2).records) == 2
