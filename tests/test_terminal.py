"""The command as a process: its streams, its pipes, its interrupts, and what a terminal gets."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import Any

import pytest

import cmdpkit as ck

COMMAND = [sys.executable, "-m", "cmdpkit"]


def spawned(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False, **options)


def test_the_module_runs_as_the_command_and_knows_its_version() -> None:
    result = spawned("--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"cmdpkit {ck.__version__}\n", "")


def test_results_and_errors_go_to_their_own_streams_as_plain_text() -> None:
    result = spawned("check", "paper/synthetic:rho=3", env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": "40"})
    assert result.returncode == 3
    assert result.stderr.startswith("error: infeasible: utility ≥ 3 cannot be met")
    assert "Infeasible" in result.stdout
    assert "\x1b" not in result.stdout + result.stderr
    assert 60 < max(map(len, result.stdout.splitlines())) <= 100
    assert not re.search(r"[ \t]$", result.stdout, re.MULTILINE)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and signals of POSIX")
@pytest.mark.parametrize("arguments", [["envs"], ["solve", "paper/synthetic", "--json"], ["--help"]])
def test_a_closed_pipe_is_quiet(arguments: list[str]) -> None:
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode in (0, 1)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and signals of POSIX")
def test_an_interrupt_ends_with_130_and_without_a_traceback() -> None:
    command = [*COMMAND, "check", "random:S=60,H=15,A=4", "--separation"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "is valid" in process.stdout.readline()  # the first part is out, the long one runs
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "interrupted\n")


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals of POSIX")
@pytest.mark.parametrize(("no_colour", "expected"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_gets_its_width_and_colours_unless_it_wants_none(no_colour: dict[str, str], expected: bool) -> None:
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "60", **no_colour}
    output = on_a_terminal([*COMMAND, "solve", "paper/grid"], environment)
    assert bool(re.search(r"\x1b\[[\d;]*3\d", output)) == expected
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", output)
    assert "optimal value 5.00116" in plain
    assert max(len(line.rstrip()) for line in re.split(r"[\r\n]+", plain)) <= 60


def on_a_terminal(command: list[str], environment: dict[str, str]) -> str:
    """What a program writes to a pseudo-terminal."""
    import pty

    leader, follower = pty.openpty()
    with subprocess.Popen(command, stdout=follower, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(follower)
        chunks = []
        while True:
            try:
                chunk = os.read(leader, 65536)
            except OSError:  # Linux ends a terminal whose last writer has gone with an error
                break
            if not chunk:
                break
            chunks.append(chunk)
    os.close(leader)
    assert process.returncode == 0
    return b"".join(chunks).decode()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("sol", {"solve"}),
        ("solve paper/s", {"paper/synthetic"}),
        ("learn queue --algo opt-pess", {"opt-pess-lp", "opt-pess-primal-dual"}),
        ("solve queue --table l", {"latex"}),
        ("solve no-such-name", set()),
    ],
)
def test_a_shell_completes_verbs_environments_algorithms_and_choices(typed: str, offered: set[str]) -> None:
    """As the script that `cmdpkit --show-completion` prints for bash asks for it."""
    words = f"cmdpkit {typed}"
    asked = {"_CMDPKIT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    script = "import sys; from cmdpkit.cli import main; sys.argv = ['cmdpkit']; main()"
    result = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **asked},
    )  # fmt: skip
    assert (set(result.stdout.split()), result.stderr) == (offered, "")
