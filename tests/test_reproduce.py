"""The comparison with the paper: every published figure has its row, read where the paper read it, judged by rule."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import cmdpkit as ck
from cmdpkit import cli
from cmdpkit.cli.outcomes import reproduction
from cmdpkit.paper import reproduce
from cmdpkit.paper.phases import phases_of
from cmdpkit.paper.reproduce import ASSUMPTIONS, READ_AT, Reproduction, compared, paper_experiments
from cmdpkit.results.figures.saving import SAVING
from cmdpkit.results.published import Row, headlines, in_order, published_tables
from cmdpkit.results.statistics import seed_mean
from cmdpkit.results.study import Study, groups
from cmdpkit.running.curves import checkpoints
from records import make_record

SPREAD = {0: 0.9, 1: 1.0, 2: 1.1}
REALISED = {0: -50.0, 1: 0.0, 2: -20.0}


def slope(env, regret, violation):
    """Records of everything that reproduce runs, whose curves have given values where they are to be read.

    At the end of a longer run they have twice those, and everywhere else nonsense, so that nothing can be interpolated.
    """
    cmdp = ck.load(env)
    optimum = ck.solve(cmdp)
    for experiment in paper_experiments(3):
        for run in experiment.runs():
            if run.env != env:
                continue
            record = make_record(env, run.algo, run.seed, cmdp, episodes=run.episodes, optimum=optimum)
            episode = np.array(checkpoints(run.episodes, run.readings))
            k = np.full(len(episode), 1e9)
            k[-1] = 2.0
            k[episode == READ_AT[env]] = 1.0
            curves = {"episode": episode, "regret": regret * SPREAD[run.seed] * k}
            curves["violation"] = violation * SPREAD[run.seed] * k[None]
            curves["realised_violation"] = REALISED[run.seed] * k[None]
            actions = {"to begin with": 630, "after usage": 200, "now": 151}
            yield replace(record, run=run, curves=curves, policy=optimum.policy, explanation={"actions": actions})


def rows(env, regret, violation):
    return compared(groups(slope(env, regret, violation)))


@pytest.mark.parametrize("env", ["paper/synthetic", "paper/grid"])
def test_every_published_figure_has_a_row(env):
    found = {(row.algo, row.quantity): row.published for row in rows(env, 1.0, 1.0)}
    grid = env == "paper/grid"
    for algo in ("pri (paper)", "cl-pri (practical)"):
        assert found.pop((algo, "regret")) == (1.69e5 if grid else 6.89e4)
        assert found.pop((algo, "violation")) == (-6.51e3 if grid else -8e4)
    assert found.pop(("cl-pri (practical)", "realised violation")) == (-6.51e3 if grid else -8e4)
    for algo in ("triple-q (practical)", "triple-q (authors)"):
        assert found.pop((algo, "regret")) == (3.19e6 if grid else 1.57e6)
        assert found.pop((algo, "violation")) == (-5.27e5 if grid else -4.17e5)
    if grid:
        assert found.pop(("pri (paper)", "regret at the end")) == 1.69e5
        assert found.pop(("pri (paper)", "violation at the end")) == -6.51e3
    assert {algo for algo, _ in found} == {"pri (paper)"}
    assert sorted(found.values()) == sorted([5.0, 0.499, 200, 155, 2, 1] if grid else [1.561, 2.016, 1.573, 0.0593, 1])


def test_curves_are_read_where_the_paper_read_them_and_the_interval_is_over_seeds():
    found = rows("paper/synthetic", 7e4, -5e4)
    for row in found:
        if row.quantity in ("regret", "violation"):
            value = 7e4 if row.quantity == "regret" else -5e4
            expected = seed_mean(value * np.array([0.9, 1.0, 1.1]))
            assert (row.measured.mean, row.measured.n) == (pytest.approx(value, rel=1e-6), 3)
            assert row.measured.low == pytest.approx(expected.low, rel=1e-6)
    ends = {row.quantity: row.measured.mean for row in rows("paper/grid", 7e4, -5e4) if row.quantity.endswith("end")}
    assert ends == {"regret at the end": pytest.approx(1.4e5), "violation at the end": pytest.approx(-1e5)}


def test_only_the_printed_algorithm_on_the_printed_problem_counts_as_reproduced():
    found = [*rows("paper/synthetic", 6.9e4, -8e4), *rows("paper/grid", 1.69e5, -6.51e3)]
    kinds = {(row.env, row.quantity): row.kind for row in found if row.algo == "pri (paper)"}
    predicted = {key for key, kind in kinds.items() if kind == "predicted"}
    assert predicted == {("paper/synthetic", name) for name in ("regret", "violation", "optimum")}
    fitted = {row.published for row in found if row.kind == "fitted"}
    assert fitted == {1.561, 2.016, 0.0593, 1, 5.0, 0.499}, "1.561 and 0.0593 follow from 2.016, 5 from 0.499"
    assert all(kind != "predicted" for (env, _), kind in kinds.items() if env == "paper/grid")
    assert {row.kind for row in found if row.algo != "pri (paper)"} == {"ours"}
    assert sum(row.reproduced for row in found) == 3 < sum(row.verdict.same for row in found)
    said = headlines(found)
    assert said[0].startswith("Reproduced: 3 of 3 predicted figures (") and len(said) == 4
    # Those that equal cl-pri's; its realised violations, and regret and violation of both tunings of Triple-Q.
    assert said[3].startswith("Not counted, ours: 4 of 14 figures as published, 10 better (")
    worse = headlines([*rows("paper/synthetic", 2e5, -2e5), *rows("paper/grid", 1.0, 1.0)])
    assert worse[0].startswith("Reproduced: 1 of 3 predicted figures (")  # the optimum; a bound kept is not -8e4


def test_runs_in_which_seeds_make_no_difference_are_called_one_run(monkeypatch):
    for seed in range(3):
        monkeypatch.setitem(SPREAD, seed, 1.0)
        monkeypatch.setitem(REALISED, seed, -1.0)
    found = rows("paper/grid", 1e5, -1.0)
    assert all(row.deterministic and row.measured.n == 1 and row.measured.low is None for row in found)
    (realised,) = (row for row in found if row.quantity == "realised violation")
    assert realised.verdict.text == "kept in 1 of 1 run"
    for table in published_tables(found):
        column = [column.key for column in table.by_row()[0]].index("interval")
        assert {cells[column].text for cells in table.by_row()[1]} == {"one run (deterministic)"}
        assert all(row.to_dict()["interval"] is None and row.deterministic for row in table.rows)
    assert Row.of(json.loads(json.dumps(found[0].to_dict()))) == found[0]


def test_the_phases_add_up_to_the_whole_run_on_a_problem_without_chance():
    """The learner adds up what it has earned; the meter of the world computes expectations of policies."""
    pruning = {"runs": 1, "run_episodes": 2000, "compare": True, "compare_episodes": 2000, "use_min": 0.001}
    record = ck.learn("paper/grid", "pri", episodes=30_000, eps_rho=0.001, K=10_000, **pruning)
    found = phases_of(*groups([record]))
    assert [phase.name for phase in found] == [name for name, _ in record.phases] and len(found) == 4
    starts = [*(k for _, k in record.phases), 30_000]
    assert [phase.episodes.mean for phase in found] == np.diff(starts).tolist()
    assert sum(phase.regret.mean for phase in found) == pytest.approx(record.regret, abs=1e-6)
    assert sum(phase.violation.mean for phase in found) == pytest.approx(record.violation[0], abs=1e-6)
    read = ck.learn("paper/grid", "pri", episodes=30_000, eps_rho=0.001, K=10_000, readings=starts[1:], **pruning)
    at = np.isin(read.curves["episode"], starts)
    assert np.diff(read.curves["regret"][at], prepend=0.0) == pytest.approx([p.regret.mean for p in found], abs=1e-6)


@pytest.mark.parametrize(
    ("regret", "violation", "verdicts"),
    [
        (6.9e4, -8e4, ("as published", "as published")),
        (6.9e4, -2e4, ("as published", "bound kept")),
        (1.4e5, 10.0, ("worse: 203 %", "bound missed")),
        (3.4e4, -1.0, ("better: 49 %", "bound kept")),
        (5.0, 0.0, ("better: under 1 %", "bound kept")),
        (-5.0, 10.0, ("less: negative, bound missed", "bound missed")),
        (3.4e4, 10.0, ("less: 49 %, bound missed", "bound missed")),
        (6.9e4, 10.0, ("as published", "bound missed")),
    ],
)
def test_verdicts_follow_the_interval(regret, violation, verdicts):
    found = {
        row.quantity: row.verdict for row in rows("paper/synthetic", regret, violation) if row.algo == "pri (paper)"
    }
    assert (found["regret"].text, found["violation"].text) == verdicts
    assert found["regret"].agrees == verdicts[0].startswith(("as published", "better"))
    assert found["violation"].agrees == (verdicts[1] != "bound missed")


def test_a_regret_at_the_end_is_judged_beside_the_violation_at_the_end():
    """The bound is missed where the curves are read first, and kept at the end: the two regrets differ in verdict."""
    records = list(slope("paper/grid", 1e3, 1.0))
    for record in records:
        record.curves["violation"][0, -1] = -9.0 - record.run.seed
    found = {row.quantity: row.verdict for row in compared(groups(records)) if row.algo == "pri (paper)"}
    assert (found["regret"].text, found["regret at the end"].text) == ("less: under 1 %, bound missed", "better: 1 %")
    assert (found["violation"].text, found["violation at the end"].text) == ("bound missed", "bound kept")


def test_a_realised_violation_is_judged_run_by_run(monkeypatch):
    """The mean has no say: one run above zero is a bound missed, however far the others are below."""
    (kept,) = (row for row in rows("paper/grid", 1.0, 1.0) if row.quantity == "realised violation")
    assert kept.verdict == ("kept in 3 of 3 runs", True)
    assert kept.measured.mean == pytest.approx((-50 - 20) / 3)
    monkeypatch.setitem(REALISED, 1, 0.5)
    (missed,) = (row for row in rows("paper/grid", 1.0, 1.0) if row.quantity == "realised violation")
    assert missed.measured.mean < 0 and missed.verdict == ("kept in 2 of 3 runs", False)


def test_the_exact_figures_of_the_paper_are_those_of_the_instance():
    found = {row.quantity: row for row in rows("paper/synthetic", 1.0, 1.0) if row.algo == "pri (paper)"}
    assert found["optimum"].verdict.text == "as published"
    assert found["action 2 at (1, 1)"].measured.mean == pytest.approx(0.2738, abs=1e-4)
    assert found["action 2 at (1, 1)"].verdict.text == "differs by +0.21"


def test_every_row_says_what_it_assumes():
    for env, key in (("paper/synthetic", "start"), ("paper/grid", "board")):
        for row in rows(env, 1.0, 1.0):
            assert ASSUMPTIONS[key] in row.assumptions and set(row.assumptions) <= set(ASSUMPTIONS.values())
            assert (ASSUMPTIONS["ours"] in row.assumptions) == (row.algo == "cl-pri (practical)")
            assert (ASSUMPTIONS["constants"] in row.assumptions) == row.algo.startswith("triple-q")


def test_the_numbers_on_the_terminal_are_those_of_the_rows():
    """Four digits of the paper's and ours; the assumptions are numbered as they are met, and listed in that order."""
    found = [*rows("paper/synthetic", 7e4, -5e4), *rows("paper/grid", 1.0, 2.0)]
    done = Reproduction(tuple(found), (), Study(()), Path("report.html"), (Path("figures/a.png"),), "", 3, 1.0)
    out = Console(width=120, force_terminal=False)
    with out.capture() as captured:
        out.print(reproduction(done))
    lines = captured.get().splitlines()
    listed = [line.split(". ", 1) for line in lines if line[:1].isdigit() and ". " in line[:4]]
    numbers = {text[:40]: int(i) for i, text in listed}
    assert list(numbers.values()) == [1, 2, 3, 4, 5, 6, 7]
    places = [i for i, line in enumerate(lines) if line.startswith("  ")]
    shown = [lines[i] for i in places if lines[i].strip().split("  ")[0] in {row.quantity for row in found}]
    assert len(shown) == len(found) == 31
    for line, row in zip(shown, in_order(found), strict=True):
        cells = [cell for cell in line.strip().split("  ") if cell.strip()]
        published, measured = (float(cell.replace(",", "")) for cell in cells[1:3])
        assert published == pytest.approx(row.published, rel=5e-4)
        assert measured == pytest.approx(row.measured.mean, rel=5e-4, abs=1e-9)
        assert line.split()[-len(row.assumptions) :] == sorted(str(numbers[x[:40]]) for x in row.assumptions)
    assert "The report is report.html. The figures are in figures." in " ".join(lines)


def shorten(monkeypatch, folder):
    """The published lengths divided by four thousand; the numbers mean nothing then, the way there is the same."""
    monkeypatch.chdir(folder)
    monkeypatch.setitem(SAVING, "savefig.dpi", 60)
    monkeypatch.setattr(reproduce, "READ_AT", {env: k // 4000 for env, k in READ_AT.items()})
    whole = reproduce.Experiment.of

    def short(document, source):
        paper, *others = document["algorithms"]
        params = {"K": 1250, "run_episodes": 50, "compare_episodes": 50} if paper.get("params") else {}
        paper = {**paper, "episodes": paper["episodes"] // 4000, "params": {**paper.get("params", {}), **params}}
        return whole({**document, "algorithms": [paper, *others]}, source)

    monkeypatch.setattr(reproduce.Experiment, "of", short)


@pytest.fixture
def shortened(tmp_path, monkeypatch):
    shorten(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def first_time(tmp_path_factory):
    """What the command printed in an empty folder, and the folder with what it has written."""
    folder = tmp_path_factory.mktemp("reproduced")
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch, folder)
        return CliRunner().invoke(cli.app, COMMAND), folder


COMMAND = ["reproduce", "paper", "--quick", "--executor", "serial"]
FIGURES = {
    *(f"paper-{env}-{what}.png" for env in ("synthetic", "grid") for what in ("regret-violation", "multiplier")),
    *(f"paper-{env}-regret-violation-log.png" for env in ("synthetic", "grid")),
    *(f"paper-grid-policy-{whose}.png" for whose in ("optimum", "pri-paper", "cl-pri-practical")),
}


def test_the_command_prints_the_table_writes_report_and_figures_and_resumes(first_time, shortened, tmp_path):
    text, written = first_time
    assert text.exit_code == 0, text.output
    shutil.copytree(written / "runs", tmp_path / "runs")
    for word in (
        "paper/synthetic",
        "paper/grid",
        "pri (paper)",
        "68,900",
        "169,000",
        "3 seeds",
        "3 seeds instead of 10",
        "runs/paper/figures",
    ):
        assert word in text.stdout, word
    folder = tmp_path / "runs/paper/figures"
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(first) == FIGURES
    assert all(data.startswith(b"\x89PNG") and len(data) > 3_000 for data in first.values())
    (folder / "mine.png").write_bytes(b"mine")
    (folder / "paper-grid-multiplier.png").write_bytes(b"old")
    again = json.loads(CliRunner().invoke(cli.app, [*COMMAND, "--json"]).stdout)
    assert again["seeds"] == 3 and len(again["paper"]) == 31
    assert again["headlines"][0].startswith("Reproduced: ") and "pruning by usage" in again["phases"][0].values()
    assert " ".join(again["headlines"][0].split()) in " ".join(text.stdout.split())
    assert all(row["interval"] is None or row["interval"][0] <= row["measured"] for row in again["paper"])
    assert {str(Path("runs/paper/figures", name)) for name in FIGURES} == set(again["figures"])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first | {"mine.png": b"mine"}
    page = (tmp_path / "runs/paper/report.html").read_text(encoding="utf-8")
    for row in again["paper"]:
        assert f'data-value="{row["published"]}"' in page and f'data-value="{row["measured"]}"' in page


def test_without_matplotlib_everything_else_is_done(first_time, shortened, tmp_path, monkeypatch):
    _, written = first_time
    shutil.copytree(written / "runs", tmp_path / "runs", ignore=shutil.ignore_patterns("figures", "report.html"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = CliRunner().invoke(cli.app, [*COMMAND, "--json"])
    assert found.exit_code == 0, found.output
    assert "figures need matplotlib, which is not installed: pip install 'cmdpkit[plot]'" in found.stderr
    answer = json.loads(found.stdout)
    assert len(answer["paper"]) == 31 and answer["figures"] == []
    assert not (tmp_path / "runs/paper/figures").exists()
    assert "Published and measured" in (tmp_path / "runs/paper/report.html").read_text(encoding="utf-8")
