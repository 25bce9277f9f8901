"""The rows that show how far runs are: what fits, when an estimate is made, and what is counted."""

import subprocess
import sys

import numpy as np
import pytest

from cmdpkit.cli.progress import MOST_ROWS, RunWatch
from cmdpkit.model.showing import fit
from cmdpkit.records.record import Run
from cmdpkit.running.active import Progress
from cmdpkit.simulate.meter import Sums, Tally


def at(done: int, seconds: float, *, episodes: int = 1000, seed: int = 3) -> Progress:
    sums = Sums(1234.5, np.array([-12.3, 0.5]))
    run = Run("queue", "cl-pri", episodes, seed, "practical")
    return Progress(run, done, "exploring", Tally(done, sums, None, sums, None), seconds, lambda: None)


def rows(watch: RunWatch, width: int) -> list[str]:
    return watch._drawn(width).plain.splitlines()


def watched(*reports: Progress, total: int = 2) -> RunWatch:
    watch = RunWatch("learn queue with cl-pri", total, name=lambda run: f"seed {run.seed}")
    for report in reports:
        watch.report(report)
    return watch


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 140, 200])
def test_no_row_is_wider_than_the_terminal_and_what_matters_most_stays(width):
    watch = watched(at(100, 1.0), at(450, 4.5))
    first, second = rows(watch, width)
    assert max(map(len, (first, second))) < max(width, 32)  # the title of the first row is never left out
    assert second.startswith("seed 3") and " 45 %" in second
    least = {" 0:05 left": 30, "regret 1,230": 40, "exploring": 60, "━": 80, "violation -12.3  0.5": 100, "100/s": 100}
    assert [text in second for text in least] == [width >= columns for columns in least.values()]


def test_a_wide_terminal_has_room_for_everything_and_the_bar_ends_at_its_greatest_width():
    (second,) = rows(watched(at(100, 1.0), at(500, 5.0)), 300)[1:]
    assert second.count("━") == second.count("─") == 12
    for text in ("exploring", "50 %", "0:05 left", "regret 1,230", "violation -12.3", "100/s"):
        assert text in second


def left(*reports: Progress) -> float | None:
    return next(iter(watched(*reports).under_way.values())).left


def test_there_is_no_estimate_before_enough_was_seen_of_the_run():
    assert left(at(1, 0.001)) is None
    assert left(at(900, 1.9)) is None, "less than two seconds of learning"
    assert left(at(1, 5.0)) is None, "less than a fiftieth of the run"
    assert left(at(1, 21.0)) is not None, "a run of hours has an estimate after 20 seconds"
    assert left(at(500, 5.0, episodes=0)) is None, "nobody knows how long an anytime run will be"


def test_an_estimate_is_made_from_the_present_speed_and_not_from_a_slow_beginning():
    slow = [at(k, float(k)) for k in range(1, 21)]  # one episode a second
    fast = [at(20 + 100 * k, 20.0 + k) for k in range(1, 6)]  # then a hundred
    assert left(*slow) == pytest.approx(980.0)
    assert left(*slow, *fast) == pytest.approx(480 / ((520 - 18) / (25 - 18))), "the last quarter of the time counts"
    later = [at(520 + 10 * k, 25.0 + 0.1 * k) for k in range(1, 40)]
    assert left(*slow, *fast, *later) == pytest.approx(90 / ((910 - 120) / (28.9 - 21)))


def test_runs_that_end_leave_their_row_and_are_counted_once():
    watch = watched(at(500, 5.0, seed=1), at(500, 5.0, seed=2), at(1000, 9.0, seed=1), at(990, 8.9, seed=1))
    first, *others = rows(watch, 100)
    assert first.endswith("1 of 2 runs done") and [row[:6] for row in others] == ["seed 2"]
    watch.ended(at(1000, 9.0, seed=1).run, None)
    watch.ended(at(1000, 9.0, seed=2).run, "no memory")
    assert rows(watch, 100)[0].endswith("1 of 2 runs done, 1 failed")


def test_of_many_runs_only_some_have_a_row(capsys):
    watch = watched(*(at(500, 5.0, seed=seed) for seed in range(MOST_ROWS + 3)), total=50)
    assert len(rows(watch, 100)) == 1 + MOST_ROWS + 1 and rows(watch, 100)[-1] == "and 3 more"
    for seed in range(3):
        watch.ended(at(500, 5.0, seed=seed).run, "no memory")
    assert capsys.readouterr().err == "failed: seed 0: no memory\n", "the same reason is shown once"


def test_quiet_is_quiet(capsys):
    with RunWatch("learn", 2, quiet=True) as watch:
        watch.report(at(500, 5.0))
        watch.ended(at(500, 5.0).run, "no memory")
    assert capsys.readouterr().err == ""


def test_names_of_wide_letters_count_twice():
    from cmdpkit.model.showing import Field

    assert fit((Field("待ち行列"), Field("50 %", 1)), 14) == "待ち行列  50 %"
    assert fit((Field("待ち行列"), Field("50 %", 1)), 13) == "待ち行列"


def test_the_first_row_needs_nothing_that_takes_long_to_import():
    code = (
        "import sys\nfrom cmdpkit.cli.progress import RunWatch\nRunWatch('learn queue')._drawn(80)\n"
        "print([name for name in ('numba', 'numpy', 'scipy', 'highspy') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
