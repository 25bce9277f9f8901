"""What users see: objects, which later rooms print, draw and act in; and the progress of long work.

A room imports only rooms before it. So methods such as ``__str__`` and ``plot`` call a `Task`, which is declared here
and chooses a function by the type of its first argument. The room that does the work registers its functions with the
task, and the ``__init__`` of the package says which module has to be imported for that.

Work that takes long is shown on stderr: lines that are rewritten on a terminal, and added every few seconds elsewhere
(`StatusLines`). A row is a sequence of fields. On a narrow terminal the least important fields are left out, and a bar
takes the room that is left. Before the first row stand the time since the beginning and, while Numba compiles, a note
that says so. This module imports nothing heavy, so that a command can show its first line before the rest of the
package is loaded.
"""

from __future__ import annotations

import importlib
import io
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from cmdpkit.errors import CmdpkitError, quoted

if TYPE_CHECKING:
    import gymnasium
    from matplotlib.figure import Figure
    from rich.console import RenderableType


T = TypeVar("T")

WIDTH = 100  # characters of a line where there is no terminal
LEAST_WIDTH = 40  # characters of a line, whatever the variable COLUMNS says
PAGE = '<pre style="white-space:pre; overflow-x:auto; line-height:1.25; font-family:monospace">{code}</pre>'


class Task(Generic[T]):
    """A function of objects of many types, which a later room provides.

    >>> double: Task[int] = Task("double")
    >>> double.register(int, lambda x: 2 * x)
    >>> double(4)
    8
    """

    def __init__(self, name: str) -> None:
        def unknown(thing: object, *_args: Any, **_options: Any) -> Any:
            raise TypeError(f"nothing is registered to {name} an object of type {type(thing).__name__}")

        self.module = ""  # imported before the first call: it registers the functions
        self._by_type = singledispatch(unknown)

    def register(self, kind: type, function: Callable[..., T]) -> None:
        """Use this function for objects of a type and of the types derived from it."""
        self._by_type.register(kind, function)

    def __call__(self, thing: object, *args: Any, **options: Any) -> T:
        """Do it."""
        if self.module:
            importlib.import_module(self.module)
        done: T = self._by_type(thing, *args, **options)
        return done


render: Task[RenderableType] = Task("print")
draw: Task[Figure] = Task("draw")
to_gym: Task[gymnasium.Env[Any, Any]] = Task("make a Gymnasium environment of")


def line_width() -> int:
    """Columns of a line: the variable COLUMNS, or the width of the terminal, or 100 where there is none."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return max(int(given), LEAST_WIDTH)
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout is not None and sys.stdout.isatty() else WIDTH


@dataclass(frozen=True)
class Grid:
    """How to draw a model whose states are cells of a board: used for pictures only, never for solving."""

    rows: int  # number of rows of the board
    columns: int  # number of columns
    cells: tuple[tuple[int, int], ...]  # (row, column) of every state
    marks: Mapping[int, str] = field(default_factory=dict)  # state index -> symbol, e.g. goal or obstacle
    arrows: tuple[str, ...] = ()  # symbol of every action

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", tuple((int(row), int(column)) for row, column in self.cells))
        for s, (row, column) in enumerate(self.cells):
            if not (0 <= row < self.rows and 0 <= column < self.columns):
                raise CmdpkitError(
                    f"grid cell of state index {s} is {(row, column)}, outside {self.rows} x {self.columns}"
                )

    def check(self, S: int, A: int) -> None:
        """Raise CmdpkitError unless this draws a model of S states and A actions."""
        if len(self.cells) != S:
            raise CmdpkitError(f"grid has {len(self.cells)} cells, expected one per state: {S}")
        if len(self.arrows) not in (0, A):
            raise CmdpkitError(f"grid has {len(self.arrows)} arrows, expected one per action: {A}")
        for s in self.marks:
            if s not in range(S):
                raise CmdpkitError(f"grid marks state index {quoted(s)}, expected 0..{S - 1}")


class Shown:
    """An object whose text, and whose picture in a notebook, are what the command line shows of it."""

    def __str__(self) -> str:
        """Plain text without colours, as wide as the terminal."""
        from rich.console import Console

        console = Console(width=line_width(), file=io.StringIO(), color_system=None)
        with console.capture() as captured:
            console.print(render(self))
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def _repr_html_(self) -> str:
        """A piece of HTML for notebooks; whatever comes from the user is escaped."""
        from rich.console import Console

        console = Console(width=WIDTH, file=io.StringIO(), record=True, force_jupyter=False)
        console.print(render(self))
        return console.export_html(inline_styles=True, code_format=PAGE)


# -- progress of long work ---------------------------------------------------------------------------------------------

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
