"""Where a result comes from: the versions of Python and packages and, in a Git checkout, the commit.

These are for readers of a record only. Whatever cannot be found out is unknown, and never an error.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import cmdpkit
from cmdpkit.records.code import Coded, source_file

PACKAGES = ("numpy", "numba", "highspy")
UNKNOWN = "unknown"  # version of a package that does not tell it
GIT_SECONDS = 10.0  # how long an answer of Git is waited for


@dataclass(frozen=True)
class Checkout:
    """The state of the Git checkout that holds the code of a learner."""

    commit: str  # digest of the commit
    clean: bool  # whether all files under version control are as in the commit


@cache
def versions() -> Mapping[str, str]:
    """Versions of Python and packages, looked up once per process, because reading them takes milliseconds."""
    ours = {"python": platform.python_version(), "cmdpkit": cmdpkit.__version__}
    return ours | {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str:
    """The version in the metadata of a package; without metadata, that which the imported package itself tells."""
    try:
        found = version(package)
    except Exception:  # not installed as a package, or its metadata are damaged, in whatever way
        found = None
    return str(found or getattr(sys.modules.get(package), "__version__", UNKNOWN))


def checkout_of(thing: Coded) -> Checkout | None:
    """The checkout that holds the code of a class; None if it is not under version control or Git is not installed."""
    try:
        file = source_file(thing)
    except (OSError, SyntaxError, ValueError, RecursionError):  # a script that was edited or moved while it runs
        return None
    return None if file is None else _checkout(file)


@cache
def _checkout(file: Path) -> Checkout | None:
    """The checkout of a file, asked for only once per process, because later changes are not what this process runs."""
    if _git(file.parent, "ls-files", "--error-unmatch", "--", file.name) is None:
        return None
    commit = _git(file.parent, "rev-parse", "HEAD")
    changes = _git(file.parent, "status", "--porcelain", "--untracked-files=no")
    return None if commit is None or changes is None else Checkout(commit, not changes)


def _git(folder: Path, *words: str) -> str | None:
    """The answer of Git, or None if it fails."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
