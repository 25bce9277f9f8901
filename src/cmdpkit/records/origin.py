"""Where a result comes from: versions of what it was computed with and, in a Git checkout, the commit."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from cmdpkit.records.code import Coded, source_file

PACKAGES = ("cmdpkit", "numpy", "numba", "highspy")
GIT_SECONDS = 10.0  # a Git that takes longer is not waited for


@dataclass(frozen=True)
class Checkout:
    """The state of the Git checkout that holds the code of a learner."""

    commit: str
    clean: bool  # no file under version control differs from the commit


@cache
def versions() -> Mapping[str, str]:
    """What a result is obtained with; looked up once per process, as reading package metadata takes milliseconds."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


def checkout_of(thing: Coded) -> Checkout | None:
    """The checkout that a class is kept in; None if its file is not under version control, or Git is not there."""
    file = source_file(thing)
    return None if file is None else _checkout(file)


@cache
def _checkout(file: Path) -> Checkout | None:
    """Asked once per file and process: what was imported then is what runs."""
    if _git(file.parent, "ls-files", "--error-unmatch", "--", file.name) is None:
        return None
    commit = _git(file.parent, "rev-parse", "HEAD")
    changes = _git(file.parent, "status", "--porcelain", "--untracked-files=no")
    return None if commit is None or changes is None else Checkout(commit, not changes)


def _git(folder: Path, *words: str) -> str | None:
    """What Git answers, or None if it cannot."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
