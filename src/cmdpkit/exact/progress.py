"""What a long solve says on its way, and when it may end early."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from cmdpkit.errors import CmdpkitError, quoted

SECONDS_BETWEEN_LINES = 10.0  # where stderr is no terminal


class Round(NamedTuple):
    """How far a solve is, in the user's units."""

    number: int  # rounds so far, from 1; each finds one more policy
    value: float  # of the best policy within the bounds that is known
    gap: float  # proved: no policy within the bounds has a value above value + gap
    seconds: float  # since the solve began

    def __str__(self) -> str:
        return f"round {self.number}: value {self.value:.6g}, proved to within {self.gap:.2g}, {self.seconds:.1f} s"


Report = Callable[[Round], None]


class Watch:
    """Counts rounds, tells ``progress`` of each (True: in a line on stderr), and ends the search at a relative gap."""

    def __init__(self, gap: float | None = None, progress: Report | bool = False) -> None:
        if gap is not None and not (isinstance(gap, (int, float)) and 0 <= gap < math.inf):
            raise CmdpkitError(f"gap is {quoted(gap)}, expected a number of 0 or more, such as 0.001 for 0.1 %")
        if not (isinstance(progress, bool) or callable(progress)):
            raise CmdpkitError(f"progress is {quoted(progress)}, expected True or a function that takes a Round")
        self.began = time.perf_counter()
        self.gap = 0.0 if gap is None else float(gap)
        self._report = progress if callable(progress) else ProgressLine() if progress else None
        self._rounds = 0

    def enough(self, value: float, gap: float) -> bool:
        """Report one more round; whether the gap is as small as was asked for."""
        self._rounds += 1
        if self._report is not None:
            self._report(Round(self._rounds, value, gap, self.seconds))
        return gap <= self.gap * abs(value)

    @property
    def seconds(self) -> float:
        """How long the solve has taken so far."""
        return time.perf_counter() - self.began

    def close(self) -> None:
        """End the line on stderr, if there is one."""
        if isinstance(self._report, ProgressLine):
            self._report.close()


class ProgressLine:
    """Shows rounds on stderr: one line that is written anew on a terminal, and elsewhere a line every few seconds."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()
        self._told = time.monotonic()

    def __call__(self, at: Round) -> None:
        """Show a round."""
        if self.live:
            print(f"\r\x1b[K{at}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._told >= SECONDS_BETWEEN_LINES:
            self._told = time.monotonic()
            print(at, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clear the line on a terminal."""
        if self.live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
