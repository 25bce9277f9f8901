"""What a long solve reports on its way, and when it may end early."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.compiled import COMPILE_METER
from cmdpkit.model.progress import Field, StatusLines


class Round(NamedTuple):
    """How far a solve is, in the user's units."""

    number: int  # rounds so far, from 1; each finds one more policy
    value: float  # of the best policy within the bounds that is known
    gap: float  # proved: no policy within the bounds has a value above value + gap
    seconds: float  # since the solve began, without those of compilation

    def __str__(self) -> str:
        return f"round {self.number}: value {self.value:.6g}, proved to within {self.gap:.2g}, {self.seconds:.1f} s"


Report = Callable[[Round], None]


class Watch:
    """Counts rounds, reports each to ``progress`` (True: on stderr), and ends the search at a relative gap."""

    def __init__(self, gap: float | None = None, progress: Report | bool = False) -> None:
        if gap is not None and not (isinstance(gap, (int, float)) and 0 <= gap < math.inf):
            raise CmdpkitError(f"gap is {quoted(gap)}, expected a number of 0 or more, such as 0.001 for 0.1 %")
        if not (isinstance(progress, bool) or callable(progress)):
            raise CmdpkitError(f"progress is {quoted(progress)}, expected True or a function that takes a Round")
        self.gap = 0.0 if gap is None else float(gap)
        self._began, self._compiled = time.perf_counter(), COMPILE_METER.seconds
        self._progress = progress
        self._rounds, self._latest = 0, ""
        self._lines: StatusLines | None = None

    def enough(self, value: float, gap: float) -> bool:
        """Report one more round; whether the gap is as small as was asked for."""
        self._rounds += 1
        self.tell(Round(self._rounds, value, gap, self.seconds))
        return gap <= self.gap * abs(value)

    def tell(self, at: Any) -> None:
        """Report how far the solve is: to the user's function, or on stderr."""
        self._latest = str(at)
        if callable(self._progress):
            self._progress(at)
        elif self._progress and self._lines is None:
            self._lines = StatusLines(lambda: [(Field(self._latest),)])
            self._lines.start()

    @property
    def seconds(self) -> float:
        """How long the solve has taken so far, without the time of compilation."""
        return time.perf_counter() - self._began - (COMPILE_METER.seconds - self._compiled)

    def close(self) -> None:
        """End the line on stderr, if there is one."""
        if self._lines is not None:
            self._lines.stop()
