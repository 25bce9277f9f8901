"""Signs of life for long runs: a live table on a terminal, now and then a plain line elsewhere. All of it on stderr."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from cmdpkit.records.record import Run
from cmdpkit.results.text.wording import duration, label, number
from cmdpkit.running.learning import Progress

LINE_SECONDS = 10.0  # between two plain lines of one run
MEASURABLE = 0.05  # seconds of learning from which on a rate means something


class _Board:
    """Bars that stand on a terminal, if there is one and nobody asked for quiet, while the context is open."""

    def __init__(self, quiet: bool, *columns: ProgressColumn) -> None:
        self.quiet = quiet
        self.live = sys.stderr.isatty() and not quiet
        self.lock = threading.Lock()
        self.bars = Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)

    def __enter__(self) -> Self:
        if self.live:
            self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.bars.stop()


class Watch(_Board):
    """Shows where every run stands; call it with each report. Use it as a context manager."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(
            quiet,
            SpinnerColumn(),
            TextColumn("seed {task.fields[seed]}  {task.fields[phase]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[rate]}/s  regret {task.fields[regret]}  "),
            TextColumn("violation {task.fields[violation]}"),
        )
        self.tasks: dict[str, Any] = {}
        self.spoke: dict[str, float] = {}

    def __call__(self, at: Progress) -> None:
        """Take in where one run stands."""
        if self.quiet:
            return
        with self.lock:
            (self._draw if self.live else self._say)(at)

    def _draw(self, at: Progress) -> None:
        if at.run.key not in self.tasks:
            self.tasks[at.run.key] = self.bars.add_task("", total=at.run.episodes, seed=at.run.seed, **_figures(at))  # type: ignore[arg-type]
        self.bars.update(self.tasks[at.run.key], completed=at.done, **_figures(at))  # type: ignore[arg-type]

    def _say(self, at: Progress) -> None:
        now = time.monotonic()
        if now - self.spoke.setdefault(at.run.key, now) < LINE_SECONDS:
            return
        self.spoke[at.run.key] = now
        figures = _figures(at)
        left = at.seconds / at.done * (at.run.episodes - at.done)
        print(
            f"seed {at.run.seed}: {figures['phase']}, {at.done:,} of {at.run.episodes:,} episodes, "
            f"{figures['rate']}/s, regret {figures['regret']}, violation {figures['violation']}, {duration(left)} left",
            file=sys.stderr,
            flush=True,
        )


def _figures(at: Progress) -> dict[str, str]:
    sums = at.tally.weak or at.tally.realised
    return {
        "phase": at.phase,
        "rate": f"{at.done / at.seconds:,.0f}" if at.seconds > MEASURABLE else "…",
        "regret": "-" if sums.regret is None else number(sums.regret),
        "violation": " ".join(number(float(x)) for x in sums.violation) or "-",
    }


class Overview(_Board):
    """Shows where an experiment stands: all of its runs, those under way, and at once what fails. A context manager."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(
            quiet,
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[figures]}"),
        )
        self.total = self.done = self.failed = 0
        self.reasons: set[str] = set()
        self.rows: dict[str, Any] = {}
        self.gone: set[str] = set()  # runs that ended; a report of one may still be on its way
        self.began = self.spoke = time.monotonic()

    def begin(self, total: int, done: int) -> None:
        """Take in how many runs there are, and how many were done before."""
        self.total, self.done = total, done
        if self.live:
            self.rows[""] = self.bars.add_task("runs", total=total, completed=done, figures=self._count())

    def report(self, at: Progress) -> None:
        """Take in where one run stands."""
        with self.lock:
            if at.run.key in self.gone:
                return
            if self.live:
                if at.run.key not in self.rows:
                    self.rows[at.run.key] = self.bars.add_task(_name(at.run), total=at.run.episodes, figures="")
                figures = _figures(at)
                said = f"{figures['phase']}, {figures['rate']}/s, regret {figures['regret']}"
                self.bars.update(self.rows[at.run.key], completed=at.done, figures=said)
            else:
                self._say(f"{_name(at.run)}: {at.phase}, {at.done:,} of {at.run.episodes:,} episodes")

    def ended(self, run: Run, reason: str | None) -> None:
        """Take in that a run is done, or failed; the same reason is told once."""
        with self.lock:
            self.done += reason is None
            self.failed += reason is not None
            self.gone.add(run.key)
            if self.live:
                if run.key in self.rows:
                    self.bars.remove_task(self.rows.pop(run.key))
                self.bars.update(self.rows[""], completed=self.done + self.failed, figures=self._count())
            if reason is not None and reason not in self.reasons and not self.quiet:
                self.reasons.add(reason)
                self.bars.console.print(f"failed: {_name(run)}: {reason}", markup=False, highlight=False)
            self._say("")

    def _count(self) -> str:
        return f"{self.done:,} of {self.total:,} done" + (f", {self.failed:,} failed" if self.failed else "")

    def _say(self, news: str) -> None:
        now = time.monotonic()
        if self.quiet or self.live or now - self.spoke < LINE_SECONDS:
            return
        self.spoke = now
        print(f"{self._count()} after {duration(now - self.began)}" + (f"; {news}" if news else ""), file=sys.stderr)


def _name(run: Run) -> str:
    return f"{label(run.problem)}  {run.algo} ({run.preset})  seed {run.seed}"
