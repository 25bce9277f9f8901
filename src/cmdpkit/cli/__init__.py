"""The command line: each verb calls one public function and prints what it returns.

Results go to stdout, errors to stderr as one sentence. Exit codes: 0 done, 1 bad input, 2 usage, 3 infeasible.
"""

from __future__ import annotations

import sys

from cmdpkit.cli import exact, experiments, learning  # the verbs, in the order --help lists them
from cmdpkit.cli.app import Method, PolicyFormat, app

__all__ = ["Method", "PolicyFormat", "app", "exact", "experiments", "learning", "main"]


def main() -> None:
    """The command `cmdpkit`."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal without "≥" shows "?"
    app(prog_name="cmdpkit")
