"""What a command passes through: its functions in the order of their first calls, and how many modules they touch.

python -m bench._walk solve paper/synthetic
python -m bench._walk learn paper/synthetic --episodes 2000
python -m bench._walk bench FILE.toml --out FOLDER --executor serial

The path from the command to the first call of a learner's `run` is printed too, one line per frame.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

from typer.testing import CliRunner

from cmdpkit.cli import app

DEPTH = 7  # frames of this package below the command that are printed


class Walk:
    """Functions of this package in the order of their first calls."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}  # function -> depth among frames of this package
        self.modules: set[str] = set()
        self.to_run: list[str] = []  # frames from the command to a learner's `run`

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Called by the interpreter for every event of a thread."""
        name = frame.f_globals.get("__name__", "")
        if event != "call" or not name.startswith("cmdpkit.") or frame.f_code.co_name.startswith("<"):
            return
        self.modules.add(name)
        function = f"{name.removeprefix('cmdpkit.')}.{frame.f_code.co_qualname}"
        if function not in self.seen:
            path = _path(frame)
            self.seen[function] = len(path)
            if frame.f_code.co_name == "run" and name.startswith("cmdpkit.learners.") and not self.to_run:
                self.to_run = path


def _path(frame: FrameType | None) -> list[str]:
    """The frames of this package that lead to one, the outermost first."""
    found = []
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("cmdpkit."):
            found.append(f"{name.removeprefix('cmdpkit.')}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return found[::-1]


def main() -> None:
    """Run the command and print its walk."""
    walk = Walk()
    threading.setprofile(walk)
    sys.setprofile(walk)
    result = CliRunner().invoke(app, sys.argv[1:])
    sys.setprofile(None)
    threading.setprofile(None)
    print(f"exit code {result.exit_code}; {len(walk.modules)} modules, {len(walk.seen)} functions")
    for function, depth in walk.seen.items():
        if depth <= DEPTH and not function.rpartition(".")[2].startswith("_"):
            print(f"{'  ' * depth}{function}")
    if walk.to_run:
        print(f"\n{len(walk.to_run)} frames to a learner's run:", *walk.to_run, sep="\n  ")


if __name__ == "__main__":
    main()
