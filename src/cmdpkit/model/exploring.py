"""What is said while a large model is explored."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from cmdpkit.errors import CmdpkitError, quoted

EVERY = 0.5  # seconds between two reports


class Explored(NamedTuple):
    """How far the exploration of a model has come."""

    states: int  # met so far
    asked: int  # those whose actions were asked about
    transitions: int  # found so far


class Reporter:
    """Calls the user's function, or writes a line to standard error, at most twice a second and once at the end."""

    def __init__(self, progress: bool | Callable[[Explored], object] | None) -> None:
        if not (progress is None or isinstance(progress, bool) or callable(progress)):
            raise CmdpkitError(
                f"progress is {quoted(progress)}, expected True, False or a function of what was explored"
            )
        self.tell = _written if progress is True else progress or None
        self.next = time.monotonic() + EVERY
        self.said = False

    def __call__(self, so_far: Explored, *, last: bool = False) -> None:
        """Report, if it is time to, or if this is the end of something that was reported before."""
        if self.tell is not None and (time.monotonic() >= self.next or (last and self.said)):
            self.tell(so_far)
            self.next, self.said = time.monotonic() + EVERY, True
            if last and self.tell is _written:
                sys.stderr.write("\n")


def _written(so_far: Explored) -> None:
    waiting = so_far.states - so_far.asked
    text = f"explored {so_far.asked:,} states and {so_far.transitions:,} transitions, {waiting:,} states to go"
    sys.stderr.write(f"\r{text:<78}")
    sys.stderr.flush()
