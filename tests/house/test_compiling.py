"""Users are told while something is compiled, and can have everything compiled in advance."""

import io
import json
import os
import subprocess
import sys

import pytest
from rich.console import Console
from typer.testing import CliRunner

from cmdpkit.cli import app, progress
from cmdpkit.model.compiled import compiled, told_of_compiling


def function(x):
    return x + 1


def test_compiling_is_told_once_and_loading_from_disk_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    told = []
    with told_of_compiling(told.append):
        for _ in range(2):
            assert compiled(function)(1) == 2  # compiled at first, and loaded by the second one
        assert told == [True, False]
    compiled(function)(1.0)
    assert told == [True, False], "nobody listens any more"


@pytest.mark.parametrize("live", [True, False])
def test_the_progress_says_so_on_a_terminal_at_once_and_elsewhere_after_a_while(live, monkeypatch, tmp_path):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    clock = iter(range(1, 10_000, 7))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    out = io.StringIO()
    watch = progress.RunWatch()
    watch.live = False
    watch.bars.live.console = Console(file=out, width=100)
    with watch:
        watch.live = live
        watch._tell_compiling(True)
        assert ("compiling, first time only" in out.getvalue()) == live
        watch._tell_compiling(False)
        watch._tell_compiling(True)
        watch.live = False
    assert out.getvalue().count("compiling, first time only") == 1
    assert "later commands load it from disk" in out.getvalue()


def test_a_run_that_is_shown_is_compiling_until_its_next_report():
    watch = progress.RunWatch()
    task = watch.bars.add_task("", seed=1, phase="exploring", share="2 %", rate="3", regret="-", violation="-")
    watch.live = watch.said_compiling = True
    watch._tell_compiling(True)
    assert watch.bars.tasks[task].fields["phase"] == "compiling, first time only"
    assert watch.bars.tasks[task].fields["rate"] == "…"


def test_an_unknown_algorithm_is_named():
    done = CliRunner().invoke(app, ["compile", "--algo", "triple-p"])
    assert done.exit_code == 1 and "did you mean 'triple-q'?" in done.stderr


@pytest.mark.long
def test_after_compile_no_command_compiles_anything(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}

    def run(*words):
        command = [sys.executable, "-m", "cmdpkit", *words, "--json"]
        return json.loads(subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout)

    def kept():
        return {path.name for path in tmp_path.rglob("*.nbc")}

    assert len(run("compile", "--algo", "triple-q")["compiled"]) == 6
    before = kept()
    assert len(before) > 20
    for words in (("solve", "queue"), ("learn", "paper/grid", "--algo", "triple-q", "--episodes", "50")):
        run(*words)
    assert kept() == before
