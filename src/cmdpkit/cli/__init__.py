"""The command line: each verb calls one public function and prints what it returns.

Results go to stdout, errors to stderr as one sentence. Exit codes: 0 done, 1 bad input, 2 usage, 3 infeasible, 130
interrupted. The command itself begins in `cmdpkit.__main__`.
"""

from __future__ import annotations

from cmdpkit.__main__ import main  # launchers that were installed with version 0.1 look for it here
from cmdpkit.cli import exact, learning, policies  # the verbs, in the order --help lists them
from cmdpkit.cli.shared import PolicyFormat, app

__all__ = ["PolicyFormat", "app", "exact", "learning", "main", "policies"]
