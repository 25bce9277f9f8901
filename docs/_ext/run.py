"""The directive ``run``: shell commands of a page, executed while the documentation is built.

The body is one command a line, each starting with ``cmdpkit``. The page shows ``$ cmdpkit ...`` and what it printed, on
either stream. A command that ends with another exit code than ``:exit:`` says (0 unless given) stops the build: an
example that no longer works cannot be published. Commands of one page share a scratch folder, empty at first, so a
later one can read the file an earlier one wrote.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

WIDTH = 100  # columns
SECONDS = 120  # a page's example that takes longer is no example


def transcript(command: str, folder: Path, expected: int = 0) -> str:
    """``$ command`` and its output, run in ``folder``; ValueError if it does not end with the exit code expected."""
    words = shlex.split(command)
    if not words or words[0] != "cmdpkit":
        raise ValueError(f"{command!r} does not start with 'cmdpkit'")
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "COLUMNS": str(WIDTH), "NO_COLOR": "1", "PYTHONUTF8": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=SECONDS,
    )
    if done.returncode != expected:
        raise ValueError(f"{command!r} ended with exit code {done.returncode}, expected {expected}:\n{done.stdout}")
    return f"$ {command}\n{done.stdout.rstrip()}".rstrip()


class Run(SphinxDirective):
    """One literal block for all commands of the body."""

    has_content = True
    option_spec = {"exit": directives.nonnegative_int}  # docutils reads the class attribute

    def run(self) -> list[nodes.Node]:
        folder = _folder(self.env, self.env.docname)
        folder.mkdir(parents=True, exist_ok=True)
        commands = [line.strip() for line in self.content if line.strip()]
        try:
            shown = [transcript(command, folder, self.options.get("exit", 0)) for command in commands]
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
    app.add_directive("run", Run)
    app.connect("source-read", _empty)
    app.connect("env-get-outdated", _outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
