"""Work that takes long, shown on stderr: lines that are rewritten on a terminal, and added every few seconds elsewhere.

A row is a sequence of fields. On a narrow terminal the least important fields are left out, and a bar takes the room
that is left. Before the first row stand the time since the beginning and, while Numba compiles, a note that says so.
This module imports nothing heavy, so that a command can show its first line before the rest of the package is loaded.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

from cmdpkit.errors import CmdpkitError, quoted

BETWEEN_LINES = 10.0  # seconds between two reports where stderr is no terminal
SHORT_PAUSE = 1.0  # seconds between two compilations that are shown as one
PER_SECOND = 8  # how often lines are rewritten on a terminal
LEAST_BAR, WIDEST_BAR = 8, 24  # characters
GAP = "  "  # between two fields
COMPILING = "compiling, first time only: later commands load it from disk"


class Field(NamedTuple):
    """A piece of a row."""

    text: str  # what it says; empty for a bar
    rank: int = 0  # on a narrow terminal, fields of the highest rank are left out first; those of rank 0 stay
    share: float | None = None  # the filled part of a bar


Row = Sequence[Field]


class StatusLines:
    """Shows rows while its context is open, and asks for them again and again; ``rows`` may be called in any thread."""

    before_note = BETWEEN_LINES  # seconds of compilation before a note about it where stderr is no terminal

    def __init__(self, rows: Callable[[], Sequence[Row]], *, quiet: bool = False) -> None:
        self.rows, self.quiet = rows, quiet
        self._began = time.monotonic()
        self._spoke, self._noted = self._began, False
        self._compiled = 0.0 if (meter := _meter()) is None else meter.seconds  # before these rows were shown
        self._ended = threading.Event()
        self._live: Any = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Show the rows from now on."""
        if self.quiet:
            return
        from rich.console import Console
        from rich.live import Live

        if sys.stderr.isatty():
            console = Console(stderr=True, markup=False, highlight=False, emoji=False)
            self._live = Live(
                console=console,
                get_renderable=lambda: self._drawn(console.width),
                refresh_per_second=PER_SECOND,
                transient=True,
                redirect_stdout=False,
            )
            self._live.start(refresh=True)
        else:
            threading.Thread(target=self._speak, daemon=True).start()

    def stop(self) -> None:
        """Remove the rows from the terminal."""
        self._ended.set()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if self.quiet:
            return
        if self._live is not None:
            self._live.console.print(text, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def _drawn(self, width: int) -> Any:
        from rich.text import Text

        lines = [fit(row, width - 1) for row in self._all(time.monotonic())]
        return Text("\n".join(lines), no_wrap=True, overflow="ellipsis")

    def _all(self, now: float) -> list[Row]:
        """The rows, the first of which begins with the time and ends with a note about compilation."""
        meter = _meter()
        compiling = meter is not None and meter.idle < SHORT_PAUSE
        note = []
        if compiling:  # Numba may add functions of its own
            done, parts = meter.begun, max(meter.begun, meter.parts)
            note = [Field(f"compiling {done} of {parts}", 1), Field("(first time only)", 2)]
        first, *others = self.rows() or [()]
        return [(Field(clock(now - self._began)), *first, *note), *others]

    def _speak(self) -> None:
        while not self._ended.wait(1.0):
            for line in self.added(time.monotonic()):
                print(line, file=sys.stderr, flush=True)

    def added(self, now: float) -> list[str]:
        """The lines to add at a time where stderr is no terminal."""
        meter, lines = _meter(), []
        if not self._noted and meter is not None and meter.seconds - self._compiled > self.before_note:
            self._noted = True
            lines.append(COMPILING)
        if now - self._spoke >= BETWEEN_LINES:
            self._spoke = now
            lines += [", ".join(field.text.strip() for field in row if field.text.strip()) for row in self._all(now)]
        return lines


class ProgressLine:
    """Hands reports to the user's function, or shows the latest one on stderr if ``progress`` is True.

    There is at most one report in ``every`` seconds, and a last one if there was one before.
    """

    def __init__(self, progress: bool | Callable[[Any], object] | None, takes: str, every: float = 0.0) -> None:
        if not (progress is None or isinstance(progress, bool) or callable(progress)):
            raise CmdpkitError(f"progress is {quoted(progress)}, expected True or a function that takes {takes}")
        self._progress, self._latest = progress, ""
        self._every, self._next = every, time.monotonic() + every
        self._lines: StatusLines | None = None

    def tell(self, report: object, *, last: bool = False) -> None:
        """Report how far the work is, if it is time to, or at the end."""
        if time.monotonic() < self._next and not (last and self._latest):
            return
        self._next = time.monotonic() + self._every
        self._latest = str(report)
        if callable(self._progress):
            self._progress(report)
        elif self._progress and self._lines is None:
            self._lines = StatusLines(lambda: [(Field(self._latest),)])
            self._lines.start()

    def close(self) -> None:
        """End the line on stderr, if there is one."""
        if self._lines is not None:
            self._lines.stop()


def _meter() -> Any:
    """The `CompileMeter` of this process, once it is loaded."""
    return getattr(sys.modules.get("cmdpkit.model.compiled"), "COMPILE_METER", None)


def clock(seconds: float) -> str:
    """A time as a clock shows it.

    >>> clock(9.7), clock(3725.0)
    ('0:09', '1:02:05')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def fit(row: Row, width: int) -> str:
    """The fields of a row that there is room for, from left to right.

    >>> row = (Field("seed 3"), Field("exploring", 2), Field("", 3, share=0.5), Field("50 %", 1))
    >>> [fit(row, width) for width in (12, 23, 40)]
    ['seed 3  50 %', 'seed 3  exploring  50 %', 'seed 3  exploring  ━━━━━━━━───────  50 %']
    """
    from rich.cells import cell_len

    def size(field: Field) -> int:
        return cell_len(field.text) if field.share is None else LEAST_BAR

    kept = [field for field in row if field.text or field.share is not None]
    spare = width - sum(map(size, kept)) - len(GAP) * (len(kept) - 1)
    while spare < 0 and (least := max(kept, key=lambda field: field.rank)).rank:
        kept.remove(least)
        spare += size(least) + len(GAP)
    bar = min(LEAST_BAR + max(spare, 0), WIDEST_BAR)
    return GAP.join(_bar(field.share, bar) if field.share is not None else field.text for field in kept)


def _bar(share: float, width: int) -> str:
    filled = round(width * min(max(share, 0.0), 1.0))
    return "━" * filled + "─" * (width - filled)
