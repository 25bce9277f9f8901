"""Compilation is shown while it goes on, is never counted as work, and can be done in advance."""

import time
from types import SimpleNamespace

import cmdpkit as ck
from cmdpkit.exact.solver import Watch
from cmdpkit.model import showing
from cmdpkit.model.compiled import COMPILE_METER, CompileMeter, compiled, parts_of
from cmdpkit.model.showing import Field, StatusLines
from cmdpkit.operators import steps


def function(x):
    return x + 1


def test_compilation_is_counted_and_loading_from_disk_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    before, seconds = COMPILE_METER.functions, COMPILE_METER.seconds
    for _ in range(2):
        assert compiled(function)(1) == 2  # compiled at first, and loaded by the second one
    assert COMPILE_METER.functions == before + 1
    assert COMPILE_METER.seconds > seconds and not COMPILE_METER.active and COMPILE_METER.idle < 60


def begins(function):
    """What Numba tells when it begins to compile a function."""
    return SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=function), "args": ()})


def slow_compilation(meter: CompileMeter, seconds: float) -> None:
    meter.on_start(begins(function))
    meter.on_start(begins(function))  # a function that the first one calls
    time.sleep(seconds)
    meter.on_end(None)
    assert meter.active
    meter.on_end(None)


def test_seconds_of_compilation_do_not_count_as_seconds_of_a_solve_or_of_learning():
    began, watch = time.perf_counter(), Watch()
    slow_compilation(COMPILE_METER, 0.3)
    solve = watch.seconds
    passed = time.perf_counter() - began
    assert 0 <= solve <= passed - 0.29

    def compile_now(at):
        slow_compilation(COMPILE_METER, 0.3)

    began = time.perf_counter()
    record = ck.learn("paper/synthetic", "triple-q", episodes=1, progress=compile_now)
    assert record.seconds <= time.perf_counter() - began - 0.29


def test_the_first_row_says_for_how_long_and_that_something_is_compiled(monkeypatch):
    meter = CompileMeter()
    monkeypatch.setattr("cmdpkit.model.compiled.COMPILE_METER", meter)
    lines = StatusLines(lambda: [(Field("solve queue"),), (Field("more"),)])

    def first(width: int) -> str:
        return lines._drawn(width).plain.splitlines()[0]

    assert first(80) == "0:00  solve queue"
    meter.on_start(begins(steps.flow.plain))
    meter.on_start(begins(steps.occupy.plain))
    parts = len(parts_of(steps.flow.plain, ()))
    assert parts > 4
    assert first(80) == f"0:00  solve queue  compiling 2 of {parts}  (first time only)"
    assert first(38) == f"0:00  solve queue  compiling 2 of {parts}", "half of a narrow terminal has room for it"
    assert first(30) == "0:00  solve queue"
    meter.on_end(None)
    meter.on_end(None)
    assert first(80).endswith("(first time only)"), "the next compilation usually begins at once"
    meter._ended -= 2 * showing.SHORT_PAUSE
    assert first(80) == "0:00  solve queue"


def test_without_a_terminal_a_note_says_once_that_something_is_compiled_for_long(monkeypatch):
    meter = CompileMeter()
    monkeypatch.setattr("cmdpkit.model.compiled.COMPILE_METER", meter)
    monkeypatch.setattr(showing, "BETWEEN_LINES", 10.0)
    lines = StatusLines(lambda: [(Field("solve queue"),)])
    lines.before_note = 2.0
    now = lines._began
    meter.on_start(begins(function))
    assert lines.added(now + 1.0) == []
    meter._began -= lines.before_note
    assert lines.added(now + 3.0) == ["compiling, first time only: later commands load it from disk"]
    assert lines.added(now + 4.0) == []
    assert lines.added(now + 11.0) == ["0:11, solve queue, compiling 1 of 1, (first time only)"]
