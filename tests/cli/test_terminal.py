"""The command as a process: its streams, its pipes, its interrupts, and what a terminal gets."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import cmdpkit as ck
from cmdpkit.cli import main

COMMAND = [sys.executable, "-m", "cmdpkit"]


def spawned(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False, **options)


def test_the_module_runs_as_the_command_and_knows_its_version() -> None:
    result = spawned("--version")
    assert (result.returncode, result.stdout, result.stderr) == (0, f"cmdpkit {ck.__version__}\n", "")


def test_results_and_errors_go_to_their_own_streams_as_plain_text() -> None:
    result = spawned("check", "paper/synthetic:rho=3", env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": "70"})
    assert result.returncode == 3
    assert result.stderr.startswith("error: infeasible: utility ≥ 3 cannot be met")
    assert "Infeasible" in result.stdout
    assert "\x1b" not in result.stdout + result.stderr
    assert 60 < max(map(len, result.stdout.splitlines())) <= 70
    assert not re.search(r"[ \t]$", result.stdout, re.MULTILINE)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and signals of POSIX")
@pytest.mark.parametrize("arguments", [["solve", "paper/synthetic", "--json"], ["--help"]])
def test_a_closed_pipe_is_quiet(arguments: list[str]) -> None:
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode in (0, 1)


@cache  # several tests compare with the same undisturbed command
def in_a_shell(arguments: str) -> subprocess.CompletedProcess[str]:
    command = f'"{sys.executable}" -m cmdpkit {arguments}'
    return subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of POSIX")
@pytest.mark.parametrize(
    ("arguments", "code", "closed"),
    [
        ("envs", 0, ">&-"),
        ("solve nowhere.toml", 1, ">&-"),
        ("envs", 0, "2>&-"),
        ("solve nowhere.toml", 1, "2>&-"),
        ("--help", 0, ">&- 2>&-"),
        ("solve nowhere.toml", 1, "<&- >&- 2>&-"),
    ],
)
def test_closed_streams_change_neither_the_exit_code_nor_what_the_others_get(
    arguments: str, code: int, closed: str
) -> None:
    plain, without = in_a_shell(arguments), in_a_shell(f"{arguments} {closed}")
    assert plain.returncode == without.returncode == code
    assert without.stdout == ("" if " >&-" in f" {closed}" else plain.stdout)
    assert without.stderr == ("" if "2>&-" in closed else plain.stderr)


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of POSIX")
def test_what_compiled_libraries_print_does_not_end_up_in_a_file_where_stdout_is_closed(tmp_path: Path) -> None:
    """A file that is opened gets the lowest free number, and that of standard output is not to be free."""
    code = "import sys; sys.argv[1:] = ['--version']; import cmdpkit.__main__ as m; m._open_streams()"
    check = "file = open('opened', 'w'); sys.exit(file.fileno())"
    command = [sys.executable, "-c", f"{code}; {check}"]
    result = subprocess.run(f"{shlex.join(command)} <&- >&- 2>&-", shell=True, cwd=tmp_path, timeout=120, check=False)
    assert result.returncode > 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("arguments", ["--help", "solve paper/synthetic --json"])
def test_a_full_disk_behind_stdout_is_an_error_in_one_line(arguments: str) -> None:
    command = f'"{sys.executable}" -m cmdpkit {arguments} > /dev/full'
    result = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 1
    assert re.fullmatch(r"error: .*No space left on device\n", result.stderr)


def test_where_compiled_code_cannot_be_kept_the_command_says_so_and_works(tmp_path: Path) -> None:
    """A file stands where each cache folder would be made, and the home is no folder: not even root can write there."""
    package = tmp_path / "installed" / "cmdpkit"
    shutil.copytree(Path(ck.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (package, *(path for path in package.rglob("*") if path.is_dir())):
        (folder / "__pycache__").touch()
    (tmp_path / "tmp").mkdir()
    hidden = ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"HOME": os.devnull, "PYTHONPATH": str(package.parent), "TMPDIR": str(tmp_path / "tmp")}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
    result = spawned("solve", "paper/synthetic", "--json", env=environment)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["value"] == pytest.approx(1.5730628631)
    assert result.stderr.startswith("note: compiled code cannot be kept") and result.stderr.count("note:") == 1
    assert not list((tmp_path / "tmp").iterdir()), "nothing is left behind"


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and signals of POSIX")
def test_an_interrupt_ends_with_130_and_without_a_traceback() -> None:
    command = [*COMMAND, "check", "random:S=60,H=15,A=4"]
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
        ("show runs --table l", {"latex"}),
        ("solve no-such-name", set()),
    ],
)
def test_a_shell_completes_verbs_environments_algorithms_and_choices(
    typed: str, offered: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the script that `cmdpkit --show-completion` prints for bash asks for it."""
    words = f"cmdpkit {typed}"
    asked = {"_CMDPKIT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["cmdpkit"])
    with pytest.raises(SystemExit) as end:
        main()
    told = capsys.readouterr()
    assert (end.value.code or 0, set(told.out.split()), told.err) == (0, offered, "")
