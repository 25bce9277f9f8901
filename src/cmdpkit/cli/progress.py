"""Progress of one long task or of many runs on stderr, as rows of `cmdpkit.model.showing`.

Nothing heavy is imported at the top, so that a command shows its first line before everything else is loaded.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from cmdpkit.model.showing import Field, Row, StatusLines, clock

if TYPE_CHECKING:
    from cmdpkit.records.record import Run
    from cmdpkit.running.active import Progress

MOST_ROWS = 12  # runs that are shown at once
# An estimate of the time left needs this many seconds of learning, and either a share of the run or more seconds.
ESTIMATED_AFTER, ESTIMATED_SHARE, ESTIMATED_ANYWAY = 2.0, 0.02, 20.0
MEASURED_AFTER = 0.05  # seconds of learning before a rate is shown
RECENT = 0.25  # share of the seconds of a run from which its present rate is read


class Busy(StatusLines):
    """One task: its name and the time it has taken."""

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        super().__init__(lambda: [(Field(what), Field(self.news, 1))], quiet=quiet)
        self.news = ""

    def update(self, news: object) -> None:
        """Show what is known by now."""
        self.news = str(news)


class RunWatch(StatusLines):
    """Many runs: how many are done, one row for each that is under way, and each failure at once."""

    before_note = 2.0  # a first run compiles for long

    def __init__(
        self, title: str, total: int = 1, *, name: Callable[[Run], str] | None = None, quiet: bool = False
    ) -> None:
        super().__init__(self._rows, quiet=quiet)
        self.title, self.total, self.done, self.failed = title, total, 0, 0
        self.name = name or _name  # what a run is called
        self.reasons: set[str] = set()
        self.gone: set[str] = set()  # keys of runs that ended; a late report of one of them is passed over
        self.under_way: dict[str, _History] = {}
        self.lock = threading.Lock()

    def begin(self, total: int, done: int) -> None:
        """Begin with the number of all runs, and of those that were done before."""
        self.total, self.done = total, done

    def report(self, at: Progress) -> None:
        """Note how far one run is."""
        with self.lock:
            if at.run.key not in self.gone:
                self.under_way.setdefault(at.run.key, _History()).add(at)
        if at.done == at.run.length:
            self.ended(at.run, None)

    def ended(self, run: Run, reason: str | None) -> None:
        """Count a run that is done, or that failed for a reason; the same reason is shown once."""
        with self.lock:
            if run.key in self.gone:
                return
            self.gone.add(run.key)
            self.under_way.pop(run.key, None)
            self.done += reason is None
            self.failed += reason is not None
            is_news = reason is not None and reason not in self.reasons
            self.reasons |= {reason} if reason is not None else set()
        if is_news:
            self.say(f"failed: {self.name(run)}: {reason}")

    def _rows(self) -> list[Row]:
        with self.lock:
            shown = list(self.under_way.values())
            rows = [_row(self.name(history.latest.run), history) for history in shown[:MOST_ROWS]]
            more = len(shown) - len(rows)
        counts = f"{self.done:,} of {self.total:,} runs done" + (f", {self.failed:,} failed" if self.failed else "")
        head = (Field(self.title), Field(counts if self.total > 1 else "", 3))
        return [head, *rows, *([(Field(f"and {more:,} more"),)] if more > 0 else [])]


class _Reading(NamedTuple):
    """How far a run was at some time."""

    seconds: float  # of learning
    done: int  # episodes or steps


class _History:
    """The latest report of a run, and some earlier ones, from which its present rate is read."""

    def __init__(self) -> None:
        self.readings: deque[_Reading] = deque([_Reading(0.0, 0)])
        self.latest: Progress

    def add(self, at: Progress) -> None:
        self.latest = at
        self.readings.append(_Reading(at.seconds, at.done))
        while len(self.readings) > 2 and self.readings[1].seconds <= at.seconds * (1 - RECENT):
            self.readings.popleft()

    @property
    def rate(self) -> float | None:
        """Episodes or steps in a second of learning, lately; None before it is known."""
        first, last = self.readings[0], self.readings[-1]
        if last.seconds < MEASURED_AFTER or last.seconds == first.seconds:
            return None
        return (last.done - first.done) / (last.seconds - first.seconds)

    @property
    def left(self) -> float | None:
        """Seconds that the run will still take; None before that can be told."""
        at, rate = self.latest, self.rate
        if not at.run.length or not rate or at.seconds < ESTIMATED_AFTER:
            return None
        if at.done < ESTIMATED_SHARE * at.run.length and at.seconds < ESTIMATED_ANYWAY:
            return None
        return (at.run.length - at.done) / rate


def _row(name: str, history: _History) -> Row:
    from cmdpkit.results.wording import compact
    from cmdpkit.running.request import outlook

    at = history.latest
    sums = at.tally.weak or at.tally.realised
    rate, left, known = history.rate, history.left, at.run.length > 0
    share = at.done / at.run.length if known else None
    regret = "" if sums.regret is None else f"regret {compact(sums.regret, 3):<5}"
    violation = " ".join(f"{compact(float(x), 3):<6}" for x in sums.violation)
    return (
        Field(name),
        Field(f"{at.phase:<13}", 3),
        *([] if share is None else [Field("", 4, share)]),
        Field(f"{compact(at.done, 3)} {at.run.unit}s" if share is None else f"{100 * share:3.0f} %"),
        Field("" if not known else " " * 10 if left is None else f"{clock(left):>5} left", 1),
        Field(regret, 2),
        Field(violation and f"violation {violation}", 5),
        Field("" if rate is None else f"{compact(rate, 3):>5}/s", 6),
        Field(outlook(at), 7),
    )


def _name(run: Run) -> str:
    from cmdpkit.results.wording import label

    return f"{label(run.problem)}  {run.algo} ({run.preset})  seed {run.seed}"
