"""Ctrl-C, by real signals to real processes: one is enough, it takes seconds, and nothing is lost or looks broken."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import cmdpkit as ck

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
LEARN = ("learn", "paper/synthetic", "--algo", "triple-q", "--seeds", "3", "--threads", "2", "--episodes")
ALLOWED = 3.0  # seconds of processor time between the signal and the end, and of waiting where nobody else computes
STARTS = 120.0  # seconds that a command may take to get to work on a busy machine


# A command that says when it is in charge: before that, Python itself is starting, and answers Ctrl-C in its own way.
IN_CHARGE = """
import sys
import cmdpkit.__main__ as command
real = command._open_streams
command._open_streams = lambda: (real(), print("in charge", flush=True))
"""


def started(*arguments, before="", **options):
    """The command, from the moment when it is in charge; ``before`` is code that it runs first."""
    script = f"{IN_CHARGE}{before}\nsys.argv[1:] = {list(arguments)!r}\ncommand.main()"
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    process = subprocess.Popen([sys.executable, "-c", script], **options)
    assert process.stdout.readline() == "in charge\n"
    return process


def wait_until(holds, process):
    until = time.monotonic() + STARTS
    while not holds():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "the command does not get to work"
        time.sleep(0.01)


def interrupt(process, allowed=ALLOWED):
    """Send one Ctrl-C; what was printed, after checking that the process ended in time and as it should."""
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < allowed
    assert process.returncode == 130, errors
    assert "Traceback" not in errors and "Exception" not in errors
    return output, errors


# Code that replaces the playing of episodes by a function, whose end is still to be written, that tells of it first.
PLAYING = """
import os, time
from cmdpkit.running.worlds import ModelWorld
play = ModelWorld.play
def told(*arguments):
    os.write(1, b"playing\\n")
"""


# Code that tells of every piece of a run when it has been played, by the name of the thread.
PLAYED = """
import os, threading
from cmdpkit.running.worlds import ModelWorld
play = ModelWorld.play
def told(*arguments):
    result = play(*arguments)
    os.write(1, f"{threading.current_thread().name}\\n".encode())
    return result
ModelWorld.play = told
"""


@pytest.mark.parametrize("deaf", [False, True], ids=["as from a terminal", "as from a script, in the background"])
def test_one_interrupt_ends_learn_in_time_and_all_runs_under_way_continue_from_there(tmp_path, deaf):
    """The runs would take minutes, and are saved every 5 s only: what is there was saved because of the interrupt."""
    ignore = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)} if deaf else {}
    process = started(*LEARN, "4e8", "--out", "my runs", before=PLAYED, cwd=tmp_path, **ignore)
    threads = set()
    while len(threads) < 2:  # each run has played a piece, so nothing is left to be compiled or loaded
        threads.add(process.stdout.readline())
    output, errors = interrupt(process)
    assert set(output.splitlines(keepends=True)) <= threads, "nothing is printed but what this test asked for"
    assert errors == (
        "interrupted: what is done is kept in my runs. Continue with\n"
        "  cmdpkit learn paper/synthetic --algo triple-q --seeds 3 --threads 2 --episodes 4e8 --out 'my runs'\n"
    )
    saved = list((tmp_path / "my runs").glob("*.run.npz"))
    assert len(saved) == 2, "two threads, two runs under way"
    for path in saved:
        with np.load(path) as arrays:
            assert 0 < arrays["done"] < 4e8


@pytest.mark.long
def test_a_run_that_was_interrupted_again_and_again_ends_with_the_same_bits(tmp_path):
    asked = (*LEARN[:4], "--episodes", "200_000_000", "--out", "out", "--json")
    imports = "import cmdpkit.experiments.backends, cmdpkit.cli.learning"  # so that most of the time is spent learning
    chance, interrupts = random.Random(2), 0
    for _ in range(2):
        process = started(*asked, before=imports, cwd=tmp_path)
        time.sleep(chance.uniform(0.2, 1.0))
        if process.poll() is not None:
            break
        interrupt(process, allowed=30.0)  # other tests look at the time; here it may be loading code on a busy machine
        interrupts += 1
    assert interrupts > 0
    process = started(*asked, cwd=tmp_path)
    _, errors = process.communicate(timeout=STARTS)
    assert process.returncode == 0, errors
    (found,) = ck.Study.load(tmp_path / "out").records
    whole = ck.learn("paper/synthetic", "triple-q", episodes=200_000_000)
    assert all(np.array_equal(whole.curves[name], found.curves[name]) for name in whole.curves)


def test_without_a_folder_it_is_said_that_nothing_is_kept():
    process = started(*LEARN, "4e8", before=f"{PLAYING}    return play(*arguments)\nModelWorld.play = told")
    assert process.stdout.readline() == "playing\n"
    _, errors = interrupt(process)
    assert errors == "interrupted: nothing is kept, as no folder was given with --out\n"


def test_a_thread_that_does_not_come_back_does_not_hold_up_the_end(tmp_path):
    """A learner that plans for minutes in one episode cannot be asked to stop."""
    process = started(
        *LEARN, "1e5", "--out", str(tmp_path / "out"), before=f"{PLAYING}    time.sleep(60)\nModelWorld.play = told"
    )
    assert process.stdout.readline() == "playing\n"
    _, errors = interrupt(process)
    assert errors.startswith("interrupted: what is done is kept in")


@pytest.mark.parametrize("executor", [pytest.param("serial", marks=pytest.mark.long), "processes"])
def test_one_interrupt_ends_bench_in_time_with_its_runs_saved(tmp_path, executor):
    (tmp_path / "bench.toml").write_text(
        'environments = ["paper/synthetic"]\nalgorithms = ["triple-q"]\nepisodes = 4e8\nseeds = 3\n'
    )
    asked = (
        "bench",
        "bench.toml",
        "--out",
        "out",
        "--executor",
        executor,
        *(["--workers", "1"][: 2 * (executor != "serial")]),
    )
    process = started(*asked, cwd=tmp_path)
    wait_until(lambda: bool(list(tmp_path.glob("out/models/*.npz"))), process)
    wait_until(lambda: bool(list(tmp_path.glob("out/*.run.npz"))), process)  # saved once by itself, after 5 s
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/*.run.npz")}
    time.sleep(0.3)
    _, errors = interrupt(process)
    assert "interrupted: what is done is kept in out. Continue with\n  cmdpkit bench bench.toml" in errors
    assert all(path.stat().st_mtime_ns > before[path] for path in before), "saved again because of the interrupt"


@pytest.mark.parametrize("arguments", [("solve", "paper/grid"), ("envs",), (*LEARN, "1e8"), ("bench", "nowhere.toml")])
def test_an_interrupt_during_the_start_is_one_line_and_exit_code_130(arguments):
    """At moments spread over the start."""
    chance, ends = random.Random(f"{arguments}"), []
    for _ in range(4):
        process = started(*arguments)
        time.sleep(chance.uniform(0.0, 0.6))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert "Traceback" not in errors and "Exception" not in errors
        ends.append(process.returncode)
        if process.returncode == 130:
            assert errors.startswith("interrupted") and errors.count("\n") == 1
    assert set(ends) <= {130, -signal.SIGINT, 0, 1} and 130 in ends, "0, 1 and the signal: it had ended before"


def test_an_interrupt_while_modules_are_imported_is_quiet():
    """The signal comes from inside an import, so there is no doubt about the moment."""
    script = """
import builtins, os, signal
found = builtins.__import__
def importing(name, *rest):
    if name == "numba":
        os.kill(os.getpid(), signal.SIGINT)
    return found(name, *rest)
builtins.__import__ = importing
"""
    output, errors = started("solve", "paper/synthetic", before=script).communicate(timeout=STARTS)
    assert (output, errors) == ("", "interrupted\n")


def test_the_library_raises_keyboardinterrupt_and_leaves_no_thread_behind(tmp_path):
    script = (
        "import os, signal, threading, time\n"
        "from cmdpkit.running.learning import learn_many\n"
        "told = []\n"
        "def progress(at):\n"
        "    if not told:\n"
        "        told.append(at)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "try:\n"
        "    learn_many('paper/synthetic', 'triple-q', episodes=10**9, seeds=range(4), threads=2, progress=progress,\n"
        f"               out={str(tmp_path / 'out')!r})\n"
        "except KeyboardInterrupt:\n"
        "    print('raised', threading.active_count())\n"
    )
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=STARTS, check=False, env=environment
    )
    assert result.stderr == "" and result.stdout.startswith("raised ")
    assert 1 <= len(list((tmp_path / "out").glob("*.run.npz"))) <= 2


# The signal comes in the second round of the search, from the process to itself.
SECOND_ROUND = """
import os, signal
from cmdpkit.exact.solver import Watch
usual = Watch.enough
def enough(self, value, gap):
    done = usual(self, value, gap)
    if self.now.number == 2:
        os.kill(os.getpid(), signal.SIGINT)
    return done
Watch.enough = enough
"""


def test_an_interrupted_solve_shows_and_saves_the_best_policy_found_so_far(tmp_path):
    saved = tmp_path / "best.json"
    process = started("solve", "treatment", "--save-policy", str(saved), before=SECOND_ROUND)
    output, errors = process.communicate(timeout=STARTS)
    assert process.returncode == 130 and "Traceback" not in errors
    assert output.startswith("treatment: interrupted, the best value found is ")
    assert "The search was interrupted: no policy within the bounds is better by more than" in " ".join(output.split())
    cmdp = ck.load("treatment")
    best, kept = ck.solve(cmdp), ck.evaluate(cmdp, ck.read_policy(saved))
    assert kept.v < best.value - 0.01, "two rounds do not find the optimum"
    assert (kept.w <= np.array([c.bound for c in cmdp.constraints]) + best.tolerance).all()


def test_a_solve_that_is_interrupted_before_it_knows_a_policy_says_so():
    at_once = "import os, signal\nfrom cmdpkit.exact.columns import Columns\nusual = Columns.thresholds\n"
    at_once += "Columns.thresholds = lambda *x: (os.kill(os.getpid(), signal.SIGINT), usual(*x))[1]\n"
    process = started("solve", "treatment", before=at_once)
    output, errors = process.communicate(timeout=STARTS)
    assert process.returncode == 130
    assert (output, errors) == ("", "interrupted: no policy that meets all bounds had been found yet\n")
