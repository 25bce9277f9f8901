"""The directive ``run``: shell commands of a page, executed while the documentation is built.

The body is one command a line, each starting with ``cmdpkit``. The page shows ``$ cmdpkit ...`` and what it printed, on
either stream. A command that ends with another exit code than ``:exit:`` says (0 unless given) stops the build: an
example that no longer works cannot be published. Commands of one page share a scratch folder, empty at first, so a
later one can read the file an earlier one wrote.
"""

from __future__ import annotations

import importlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from cmdpkit.__main__ import main

WIDTH = 100  # columns
SECONDS = 120  # a page's example that takes longer is no example
WARM = [  # what most commands import
    "cmdpkit.cli.shared",
    "cmdpkit.exact.solver",
    "cmdpkit.exact.diagnosis",
    "cmdpkit.results.solution",
    "cmdpkit.running.learning",
]


def transcript(command: str, folder: Path, expected: int = 0, *, fork: bool = False) -> str:
    """``$ command`` and its output, run in ``folder``; ValueError if it does not end with the exit code expected.

    With ``fork`` the command runs in a copy of this process, which has imported everything already: most of the time
    that an example takes is that of importing.
    """
    words = shlex.split(command)
    if not words or words[0] != "cmdpkit":
        raise ValueError(f"{command!r} does not start with 'cmdpkit'")
    setting = {**os.environ, "COLUMNS": str(WIDTH), "NO_COLOR": "1", "PYTHONUTF8": "1"}
    code, shown = _forked(words, folder, setting) if fork else _started(words, folder, setting)
    if code != expected:
        raise ValueError(f"{command!r} ended with exit code {code}, expected {expected}:\n{shown}")
    return f"$ {command}\n{shown.rstrip()}".rstrip()


def _started(words: list[str], folder: Path, setting: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of a command that is run by a new process."""
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=setting,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=SECONDS,
    )
    return done.returncode, done.stdout


def _forked(words: list[str], folder: Path, setting: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of a command that is run by a copy of this process."""
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if not child:
            _become(words, folder, setting, file.fileno())
        _, status = os.waitpid(child, 0)
        file.seek(0)
        return os.waitstatus_to_exitcode(status), file.read().decode("utf-8")


def _become(words: list[str], folder: Path, setting: dict[str, str], output: int) -> NoReturn:
    """Run the command in this process, and end the process with its exit code."""
    code = 1
    try:
        signal.alarm(SECONDS)  # ends the process, whatever it is doing
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115  # as long as the process lives
        sys.stdout = sys.stderr = open(1, "w", encoding="utf-8")  # noqa: SIM115
        os.chdir(folder)
        os.environ.update(setting)
        sys.argv = words
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


class Run(SphinxDirective):
    """One literal block for all commands of the body."""

    has_content = True
    option_spec = {"exit": directives.nonnegative_int}  # docutils reads the class attribute

    def run(self) -> list[nodes.Node]:
        folder = _folder(self.env, self.env.docname)
        folder.mkdir(parents=True, exist_ok=True)
        commands = [line.strip() for line in self.content if line.strip()]
        try:
            expected, fork = self.options.get("exit", 0), hasattr(os, "fork")
            shown = [transcript(command, folder, expected, fork=fork) for command in commands]
        except (ValueError, subprocess.TimeoutExpired) as error:
            raise ExtensionError(f"{self.get_location()}: {error}") from None
        text = "\n\n".join(shown)
        block = nodes.literal_block(text, text, language="text", classes=["run"])
        self.set_source_info(block)
        return [block]


def _folder(env: BuildEnvironment, docname: str) -> Path:
    return Path(env.doctreedir, "run", docname.replace("/", "+"))


def _empty(app: Sphinx, docname: str, _source: list[str]) -> None:
    """A page that is read again starts with an empty folder."""
    shutil.rmtree(_folder(app.env, docname), ignore_errors=True)


def _outdated(_app: Sphinx, env: BuildEnvironment, *_changes: set[str]) -> Iterable[str]:
    """Pages with commands are always read again: what they show depends on the package, not on the page alone."""
    return [name for name in env.found_docs if "{run}" in env.doc2path(name).read_text(encoding="utf-8")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    for module in WARM:
        importlib.import_module(module)
    app.add_directive("run", Run)
    app.connect("source-read", _empty)
    app.connect("env-get-outdated", _outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
