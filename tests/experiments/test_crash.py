"""Nothing is lost: benches are killed at random moments, resumed, and end with the bits of an undisturbed one.

After every kill, every record that was finished is still there, to the byte, and whatever the killed process left
behind is not taken for a result. CMDPKIT_KILLS sets how often, and
CMDPKIT_CRASH_SEED moves the moments.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from cmdpkit.records import store
from cmdpkit.records.store import difference

KILLS = int(os.environ.get("CMDPKIT_KILLS", "4"))  # shared among the three executors
SEED = int(os.environ.get("CMDPKIT_CRASH_SEED", "0"))
RUNS = 8
PATIENCE = 120.0  # seconds that one command may take
TOML = """
environments = ["paper/synthetic", "paper/grid"]
algorithms = ["triple-q", "dual-q"]
episodes = 40_000
seeds = 2
"""
# Python reads this file when it starts, in workers too: runs are saved far more often than every five seconds.
EAGER = "import cmdpkit.running.playing\ncmdpkit.running.playing.SAVE_SECONDS = 0.02\n"


class Bench:
    """One experiment in a folder, run by the command line again and again."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.options = folder, options
        self.out = folder / "out"
        folder.mkdir()
        (folder / "bench.toml").write_text(TOML)
        (folder / "sitecustomize.py").write_text(EAGER)
        self.finished: dict[str, str] = {}

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "cmdpkit", "bench", "bench.toml", "--out", "out", "--json", *self.options]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.folder, env=self.env, stdout=pipe, stderr=pipe, text=True, preexec_fn=_listen
        )

    @property
    def env(self) -> dict[str, str]:
        places = [str(self.folder), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(place for place in places if place)}

    def wait_for_work(self, process: subprocess.Popen[str]) -> None:
        """Until a run is done or saved that was not there before, or the command ends."""
        before = self.state()
        until = time.monotonic() + PATIENCE
        while self.state() == before and process.poll() is None:
            assert time.monotonic() < until, "nothing happens"
            time.sleep(0.01)

    def state(self) -> set[tuple[str, int]]:
        with_times = set()
        for path in self.out.glob("*.*") if self.out.exists() else ():
            if "study.json" in path.name:  # written before the first run
                continue
            try:
                with_times.add((path.name, path.stat().st_mtime_ns))
            except FileNotFoundError:
                continue
        return with_times

    def check(self) -> int:
        """Finished records are all there, as they were; everything that looks like a record is one."""
        if not self.out.exists():
            return 0
        records = {record.run.key: record for record in store.load_records(self.out)}
        for key, digest in self.finished.items():
            assert key in records and self.digest(key) == digest, f"record {key} has changed"
        self.finished = {key: self.digest(key) for key in records}
        return len(records)

    def digest(self, key: str) -> str:
        files = [(self.out / f"{key}{suffix}").read_bytes() for suffix in (".record.npz", ".policy.json")]
        return hashlib.sha256(b"".join(files)).hexdigest()

    def assert_like(self, reference: Bench) -> None:
        ours, theirs = store.load_records(self.out), store.load_records(reference.out)
        assert [record.run for record in ours] == [record.run for record in theirs] and len(ours) == RUNS
        for a, b in zip(ours, theirs, strict=True):
            assert difference(a, b) is None
        assert not list(self.out.glob("*.run.npz")) and not list(self.out.glob("*.failed.json"))


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("undisturbed") / "bench", "--executor", "serial")
    process = bench.start()
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    return bench


def _listen() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell makes what it starts in the background deaf to Ctrl-C


def spawned(pid: int) -> list[psutil.Process]:
    """The worker processes of a process that are alive; any of them may end while we look."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children():
            with suppress(psutil.NoSuchProcess):  # gone, or a zombie
                found += [child] if "spawn_main" in " ".join(child.cmdline()) else []
    return found


def hit(process: subprocess.Popen[str], moments: random.Random, worker: bool) -> bool:
    """Kill the command, or one of its workers, a moment from now; False if it came to its end before."""
    try:
        process.wait(moments.expovariate(4.0))
        return False
    except subprocess.TimeoutExpired:
        workers = spawned(process.pid)
        victim = moments.choice(workers).pid if worker and workers else process.pid
        with suppress(ProcessLookupError):  # it came to its end just now
            os.kill(victim, signal.SIGKILL)
        return True


def torment(bench: Bench, kills: int, moments: random.Random, workers: bool) -> int:
    """Kill and resume so many times at most, then let it come to its end; how many kills it took."""
    done = 0
    while done < kills:
        process = bench.start()
        bench.wait_for_work(process)
        done += hit(process, moments, workers and moments.random() < 0.5)
        ended(process)
        if bench.check() == RUNS:
            break
    process = bench.start()
    _, errors = ended(process)
    assert process.returncode == 0, errors
    assert bench.check() == RUNS
    return done


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=PATIENCE)
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("executor", "share"), [("serial", 0.4), pytest.param("processes", 0.4, marks=pytest.mark.long)]
)
def test_a_bench_killed_at_random_moments_ends_as_an_undisturbed_one(tmp_path, reference, executor, share):
    moments = random.Random(f"{SEED} {executor}")
    left, rounds = max(round(KILLS * share), 1), 0
    while left > 0:
        bench = Bench(tmp_path / f"round{rounds}", "--executor", executor)
        took = torment(bench, left, moments, workers=executor == "processes")
        bench.assert_like(reference)
        left, rounds = left - took, rounds + 1
    assert rounds > 0


def test_workers_end_when_the_command_is_killed(tmp_path):
    bench = Bench(tmp_path / "bench", "--executor", "processes", "--workers", "2")
    process = bench.start()
    bench.wait_for_work(process)
    family = psutil.Process(process.pid).children(recursive=True)
    assert spawned(process.pid)
    process.kill()
    ended(process)
    gone, alive = psutil.wait_procs(family, timeout=20)
    assert gone and not alive


def test_ctrl_c_leaves_a_state_to_resume_and_says_how(tmp_path, reference):
    bench = Bench(tmp_path / "bench", "--executor", "processes")
    process = bench.start()
    bench.wait_for_work(process)
    process.send_signal(signal.SIGINT)
    output, errors = ended(process)
    assert process.returncode in (130, -signal.SIGINT) and output == ""
    assert "interrupted: what is done is kept in out. Continue with\n  cmdpkit bench bench.toml --out out" in errors
    assert bench.check() < RUNS
    bench.options = ("--executor", "serial")
    assert ended(bench.start()) and bench.check() == RUNS
    bench.assert_like(reference)


def test_two_commands_at_once_share_the_work_and_one_record_wins(tmp_path, reference):
    bench = Bench(tmp_path / "bench", "--executor", "serial")
    processes = [bench.start(), bench.start()]
    for process in processes:
        _, errors = ended(process)
        assert process.returncode == 0, errors
    bench.assert_like(reference)


# -- dask --------------------------------------------------------------------------------------------------------------


class Cluster:
    """A scheduler and two workers started from the shell, on loopback."""

    def __init__(self, env: dict[str, str], folder: Path) -> None:
        self.log = (folder / "cluster.log").open("a")
        self.env = env
        address = folder / f"scheduler-{time.monotonic_ns()}.json"
        place = ("--scheduler-file", str(address), "--no-dashboard")
        self.scheduler = self.spawn("scheduler", "--host", "127.0.0.1", "--port", "0", *place)
        self.workers = [
            self.spawn("worker", "--nworkers", "1", "--nthreads", "1", "--host", "127.0.0.1", *place) for _ in range(2)
        ]
        until = time.monotonic() + PATIENCE
        while not (found := re.search(r'"address": "(tcp://[^"]+)"', address.read_text() if address.exists() else "")):
            assert time.monotonic() < until, "no scheduler"
            time.sleep(0.05)
        self.address = found[1]

    def spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *arguments]
        return subprocess.Popen(command, env=self.env, stdout=self.log, stderr=self.log)

    def working(self) -> list[psutil.Process]:
        """The processes that do the work, one below each worker command."""
        return [process for worker in self.workers for process in spawned(worker.pid)]

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.kill()
            process.wait()
            for child in family:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        self.log.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


@pytest.mark.long
def test_dask_from_the_shell_survives_a_worker_and_resumes_after_its_scheduler(tmp_path, reference):
    """Each round starts a cluster; in it a worker is killed, and in all but the last also the scheduler."""
    moments = random.Random(f"{SEED} dask")
    rounds = max(round(KILLS * 0.2), 2) // 2
    bench = Bench(tmp_path / "bench", "--executor", "dask", "--address", "")
    for i in range(rounds + 1):
        with Cluster(bench.env, bench.folder) as cluster:
            bench.options = (*bench.options[:-1], cluster.address)
            process = bench.start()
            bench.wait_for_work(process)
            if i < rounds:
                time.sleep(moments.expovariate(8.0))
                moments.choice(cluster.working()).kill()
                time.sleep(moments.expovariate(8.0))
                cluster.scheduler.kill()
            _, errors = ended(process)
            done = bench.check()
            if done == RUNS and i < rounds:  # faster than the blow: once more, from nothing
                bench.assert_like(reference)
                bench = Bench(tmp_path / f"bench{i}", *bench.options)
            elif i < rounds:
                assert process.returncode == 1
                assert f"lost the dask scheduler at {cluster.address}. " in errors
                assert re.search(
                    rf"\d+ of {RUNS} runs are finished and kept in out; the same command continues", errors
                )
    assert process.returncode == 0, errors
    bench.assert_like(reference)
