"""Long runs: their progress on stderr, as bars or as a plain line every few seconds, and how an experiment ended."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from cmdpkit.model.compiled import told_of_compiling
from cmdpkit.records.record import Run
from cmdpkit.results.tables import EMPTY_LINE, QUIET
from cmdpkit.results.wording import counted, duration, label, number
from cmdpkit.running.active import Progress
from cmdpkit.running.request import outlook

if TYPE_CHECKING:
    from cmdpkit.experiments.execute import Outcome
    from cmdpkit.results.study import Study

SECONDS_BETWEEN_LINES = 10.0  # between two lines about a run, where there is no terminal
COMPILING = "compiling, first time only"  # shown in place of a phase
MIN_MEASURED = 0.05  # seconds of learning before a rate is shown


class _ProgressBars:
    """Bars that are shown while the context is open, if stderr is a terminal and quiet was not asked for."""

    def __init__(self, quiet: bool, *columns: ProgressColumn) -> None:
        self.quiet = quiet
        self.live = sys.stderr.isatty() and not quiet
        self.lock = threading.Lock()
        self.compiling = ExitStack()
        self.began_compiling, self.said_compiling = 0.0, False
        self.bars = Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)

    def __enter__(self) -> Self:
        if not self.quiet:
            self.compiling.enter_context(told_of_compiling(self._tell_compiling))
        if self.live:
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.compiling.close()
        if self.live:
            self.bars.stop()

    def _tell_compiling(self, begins: bool) -> None:
        """Say that what takes so long is compiled once: on a terminal at once, elsewhere if it goes on for a while."""
        now = time.monotonic()
        self.began_compiling = self.began_compiling or now
        if begins and self.live:
            for task in self.bars.task_ids:
                self.bars.update(task, phase=COMPILING, rate="…", figures=COMPILING)
        if begins and not self.said_compiling:
            self.said_compiling = self.live or now - self.began_compiling > SECONDS_BETWEEN_LINES
            if self.said_compiling:
                self.bars.console.print(f"{COMPILING}: later commands load it from disk", markup=False, highlight=False)


class RunWatch(_ProgressBars):
    """Shows how far every run is; call it with each report. Use it as a context manager."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(
            quiet,
            SpinnerColumn(),
            TextColumn("seed {task.fields[seed]}  {task.fields[phase]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[share]}  {task.fields[rate]}/s  regret {task.fields[regret]}  "),
            TextColumn("violation {task.fields[violation]}{task.fields[outlook]}"),
        )
        self.tasks: dict[str, Any] = {}
        self.spoke: dict[str, float] = {}

    def __call__(self, at: Progress) -> None:
        """Show how far one run is."""
        if self.quiet:
            return
        with self.lock:
            (self._draw if self.live else self._say)(at)

    def _draw(self, at: Progress) -> None:
        if at.run.key not in self.tasks:
            total = at.run.episodes or None  # which is not known where a rule ends the run
            self.tasks[at.run.key] = self.bars.add_task("", total=total, seed=at.run.seed, **_figures(at))  # type: ignore[arg-type]
        self.bars.update(self.tasks[at.run.key], completed=at.done, **_figures(at))  # type: ignore[arg-type]

    def _say(self, at: Progress) -> None:
        now = time.monotonic()
        if now - self.spoke.setdefault(at.run.key, now) < SECONDS_BETWEEN_LINES:
            return
        self.spoke[at.run.key] = now
        figures = _figures(at)
        left = at.seconds / at.done * (at.run.episodes - at.done)
        total, ahead = (f" of {at.run.episodes:,}", f", {duration(left)} left") if at.run.episodes else ("", "")
        print(
            f"seed {at.run.seed}: {figures['phase']}, {at.done:,}{total} {at.run.unit}s, {figures['rate']}/s, "
            f"regret {figures['regret']}, violation {figures['violation']}{ahead}{figures['outlook']}",
            file=sys.stderr,
            flush=True,
        )


def _figures(at: Progress) -> dict[str, str]:
    sums = at.tally.weak or at.tally.realised
    return {
        "phase": at.phase,
        "share": f"{100 * at.done / at.run.episodes:>3.0f} %" if at.run.episodes else f"{at.done:,} {at.run.unit}s",
        "rate": f"{at.done / at.seconds:,.0f}" if at.seconds > MIN_MEASURED else "…",
        "regret": "-" if sums.regret is None else number(sums.regret),
        "violation": " ".join(number(float(x)) for x in sums.violation) or "-",
        "outlook": f"; {outlook(at)}" if at.goal is not None else "",
    }


class Overview(_ProgressBars):
    """Shows how far an experiment is: all of its runs, those under way, and each failure at once. A context manager."""

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
        self.gone: set[str] = set()  # keys of runs that ended; a late report of one of them is passed over
        self.began = self.spoke = time.monotonic()

    def begin(self, total: int, done: int) -> None:
        """Begin with the number of all runs, and of those that were done before."""
        self.total, self.done = total, done
        if self.live:
            self.rows[""] = self.bars.add_task("runs", total=total, completed=done, figures=self._count())

    def report(self, at: Progress) -> None:
        """Show how far one run is."""
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
                self._say(f"{_name(at.run)}: {at.phase}, {at.done:,} of {at.run.episodes:,} {at.run.unit}s")

    def ended(self, run: Run, reason: str | None) -> None:
        """Count a run that is done, or that failed for a reason; the same reason is shown once."""
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
        if self.quiet or self.live or now - self.spoke < SECONDS_BETWEEN_LINES:
            return
        self.spoke = now
        print(f"{self._count()} after {duration(now - self.began)}" + (f"; {news}" if news else ""), file=sys.stderr)


def _name(run: Run) -> str:
    return f"{label(run.problem)}  {run.algo} ({run.preset})  seed {run.seed}"


def outcome(name: str, done: Outcome, study: Study) -> RenderableType:
    """The outcome of an experiment."""
    from cmdpkit.results.study import failures_text, tables_of  # which a single run does without

    made = len(done.runs) - done.skipped - len(done.failed)
    headline = Text.assemble((label(name), "bold"), f": {counted(len(done.runs), 'run')}, {made:,} done now")
    headline.append(f", {done.skipped:,} before" if done.skipped else "")
    headline.append(f", {len(done.failed):,} failed" if done.failed else "", style="red")
    failures = failures_text(done.failed.values())
    ended = Text(f"{duration(done.seconds)}. Records are in {done.folder}.", style=QUIET)
    return Group(headline, *tables_of(study), EMPTY_LINE, *failures, ended)
