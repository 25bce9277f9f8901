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
from cmdpkit.cli import experiments as verbs
from cmdpkit.paper import experiments, lower_bound, reproduce
from cmdpkit.paper.claims import IDENTIFIED, claims_of
from cmdpkit.paper.experiments import ASSUMPTIONS, LENGTHS, PARTS, READ_AT, after_pruning, compared, paper_experiments
from cmdpkit.paper.lower_bound import measured
from cmdpkit.paper.reproduce import Reproduction, phases_of, reproduction
from cmdpkit.results.figures.style import SAVING
from cmdpkit.results.groups import groups
from cmdpkit.results.published import Row, headlines, in_order, published_tables
from cmdpkit.results.statistics import seed_mean
from cmdpkit.results.study import Study
from cmdpkit.running.active import checkpoints
from records import make_record

SPREAD = {0: 0.9, 1: 1.0, 2: 1.1}
REALISED = {0: -50.0, 1: 0.0, 2: -20.0}


def slope(env, regret, violation):
    """Records of all that reproduce runs of an experiment, whose curves have given values where they are to be read.

    At the end of a longer run they have twice those, and everywhere else nonsense, so that nothing can be interpolated.
    """
    cmdp = ck.load(env)
    optimum = ck.solve(cmdp)
    for experiment in paper_experiments(3, ("synthetic", "grid")):
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
            explanation = {"actions": {"to begin with": 630, "after usage": 200, "now": 151}, "tests": TESTS}
            yield replace(record, run=run, curves=curves, policy=optimum.policy, explanation=explanation)


# Two triples that are not part of the stochastic decision of the grid, one of them tested twice, and one that is.
TESTS = [{"step": h, "state": s, "action": a} for h, s, a in ((2, 0, 1), (2, 0, 1), (3, 6, 2), (1, 2, 2))]


def rows(env, regret, violation):
    return compared(groups(slope(env, regret, violation)))


def of(found, algo="pri (printed)"):
    return {row.quantity: row for row in found if row.algo == algo}


@pytest.mark.parametrize("env", ["paper/synthetic", "paper/grid"])
def test_every_published_figure_has_a_row(env):
    found = {(row.algo, row.quantity): row.published for row in rows(env, 1.0, 1.0)}
    grid = env == "paper/grid"
    for algo in ("pri (printed)", "cl-pri (practical)"):
        assert found.pop((algo, "regret")) == (1.69e5 if grid else 6.89e4)
        assert found.pop((algo, "violation")) == (-6.51e3 if grid else -8e4)
    assert found.pop(("cl-pri (practical)", "realised violation")) == (-6.51e3 if grid else -8e4)
    for algo in ("triple-q (practical)", "triple-q (authors)"):
        assert found.pop((algo, "regret")) == (3.19e6 if grid else 1.57e6)
        assert found.pop((algo, "violation")) == (-5.27e5 if grid else -4.17e5)
    if grid:
        assert found.pop(("pri (printed)", "regret at the end")) == 1.69e5
        assert found.pop(("pri (printed)", "violation at the end")) == -6.51e3
        assert found.pop(("triple-q (authors)", "regret at the end")) == 3.19e6
        assert found.pop(("triple-q (authors)", "violation at the end")) == -5.27e5
    assert {algo for algo, _ in found} == {"pri (printed)"}
    assert sorted(found.values()) == sorted([5, 0.499, 200, 151, 2, 1] if grid else [1.561, 2.016, 1.573, 0.059305, 1])


def test_curves_are_read_where_the_paper_read_them_and_the_interval_is_over_seeds():
    for row in rows("paper/synthetic", 7e4, -5e4):
        if row.quantity in ("regret", "violation"):
            value = 7e4 if row.quantity == "regret" else -5e4
            expected = seed_mean(value * np.array([0.9, 1.0, 1.1]))
            assert (row.measured.mean, row.measured.n) == (pytest.approx(value, rel=1e-6), 3)
            assert row.measured.low == pytest.approx(expected.low, rel=1e-6)
    ends = {row.quantity: row.measured.mean for row in rows("paper/grid", 7e4, -5e4) if row.quantity.endswith("end")}
    assert ends == {"regret at the end": pytest.approx(1.4e5), "violation at the end": pytest.approx(-1e5)}


def test_kinds_say_what_a_figure_rests_on():
    """Regret, violation and policy of pri follow from a fitted tightening; only the optimum is exact."""
    found = [*rows("paper/synthetic", 6.9e4, -8e4), *rows("paper/grid", 1.69e5, -6.51e3)]
    kinds = {(row.env, row.algo, row.quantity): row.kind for row in found}
    assert {key for key, kind in kinds.items() if kind == "exact"} == {("paper/synthetic", "pri (printed)", "optimum")}
    predicted = {key for key, kind in kinds.items() if kind == "predicted"}
    assert predicted == {("paper/synthetic", "triple-q (authors)", name) for name in ("regret", "violation")}
    fitted = {name for (_, algo, name), kind in kinds.items() if kind == "fitted" and algo == "pri (printed)"}
    assert {"regret", "violation", "utility of the policy", "stochastic decisions"} < fitted and len(fitted) == 6
    assert {kind for (env, _, _), kind in kinds.items() if env == "paper/grid"} == {"reconstruction", "ours"}
    ours = {algo for (_, algo, _), kind in kinds.items() if kind == "ours"}
    assert ours == {"cl-pri (practical)", "triple-q (practical)"}
    assert all(row.verdict.agrees is None for row in found if row.kind == "ours")
    assert [line.split(":")[0] for line in headlines(found)] == ["Exact", "Predicted", "Fitted", "Reconstruction"]


def test_triples_that_were_checked_are_counted_once_and_without_the_needed_ones():
    found = of(rows("paper/grid", 1.0, 1.0))
    assert found["other triples checked"].measured.mean == 2 and found["other triples checked"].verdict.agrees
    assert found["actions left, printed as 155"].verdict.agrees, "6 x 5 x 5 + 1"


def test_runs_in_which_seeds_make_no_difference_are_called_one_run(monkeypatch):
    for seed in range(3):
        monkeypatch.setitem(SPREAD, seed, 1.0)
        monkeypatch.setitem(REALISED, seed, -1.0)
    found = rows("paper/grid", 1e5, -1.0)
    assert all(row.deterministic and row.measured.n == 1 and row.measured.low is None for row in found)
    assert of(found)["regret"].verdict.text == "differs: 59.2 %", "a run without chance is decided by itself"
    for table in published_tables(found):
        column = [column.key for column in table.by_row()[0]].index("interval")
        assert {cells[column].text for cells in table.by_row()[1]} == {"one run (deterministic)"}
        assert all(row.to_dict()["interval"] is None and row.deterministic for row in table.rows)
    assert Row.of(json.loads(json.dumps(found[0].to_dict()))) == found[0]


# -- claims ------------------------------------------------------------------------------------------------------------


def claims(env, regret, violation, times_triple_q=10.0):
    """The regret of Triple-Q is that many times as large as the one given."""
    found = []
    for record in slope(env, regret, violation):
        if record.run.algo == "triple-q":
            record = replace(record, curves={**record.curves, "regret": times_triple_q * record.curves["regret"]})
        found.append(record)
    return claims_of(groups(found), ())


@pytest.mark.parametrize("env", ["paper/synthetic", "paper/grid"])
@pytest.mark.parametrize(
    ("violation", "times", "fraction", "kept"),
    [(-3e4, 10.0, "holds", "holds"), (3e4, 0.1, "fails", "fails"), (-3e4, 1.2, "undecided", "holds")],
)
def test_regret_and_violation_are_judged_by_whole_intervals(env, violation, times, fraction, kept):
    """Seeds scatter by 10 %, so that intervals of three are 25 % wide to either side."""
    first, second, *_ = claims(env, 7e4, violation, times)
    assert "fraction" in first.text and (first.verdict.text, second.verdict.text) == (fraction, kept)
    assert second.text.startswith("The violation of PRI ends at or below zero")


def test_the_policy_is_held_against_all_nine_printed_decisions():
    """The records hold the optimum: the printed actions, another probability. One wrong action is noticed."""
    found = list(slope("paper/synthetic", 7e4, -1.0))
    close, draws, whole = claims_of(groups(found), ())[2:5]
    assert [claim.verdict.text for claim in (close, draws, whole)] == ["holds"] * 3
    assert "all nine in 3 of 3 runs; action 2 at (1, 1) 0.2738" in whole.measured
    wrong = []
    for record in found:
        pi = record.policy.pi.copy()
        pi[2, 2] = [0.0, 0.0, 1.0]
        wrong.append(replace(record, policy=ck.Policy(pi)) if record.run.seed == 1 else record)
    whole = claims_of(groups(wrong), ())[4]
    assert whole.verdict.text == "fails" and whole.measured.startswith("all nine in 2 of 3 runs")


def test_the_printed_policy_is_the_one_that_policies_are_held_against():
    assert [[len(actions) for actions in step] for step in IDENTIFIED] == [[2, 1, 1], [1, 1, 1], [1, 1, 1]]
    support = ck.solve(ck.load("paper/synthetic:rho=2.016")).policy.pi > 1e-9
    assert [[tuple(np.flatnonzero(row) + 1) for row in step] for step in support] == [list(step) for step in IDENTIFIED]


@pytest.mark.parametrize(("power", "verdict"), [(0.5, "holds"), (1.0, "fails"), (0.62, "undecided")])
def test_growth_is_fitted_over_runs_of_different_lengths(power, verdict):
    """Regret K^power exactly, but for 3 % between seeds, which change at the second length: b has a known interval."""
    cmdp = ck.load("paper/synthetic")
    optimum, found = ck.solve(cmdp), []
    for experiment in paper_experiments(3, ("growth", "cancellation")):
        for run in experiment.runs():
            record = make_record(run.env, run.algo, run.seed, cmdp, episodes=run.episodes, optimum=optimum)
            noise = 1 + 0.1 * (run.seed - 1) * (run.episodes == LENGTHS[-1])
            episode = np.array(checkpoints(run.episodes, run.readings))
            total = np.full(len(episode), run.episodes**power * noise)
            curves = {"episode": episode, "regret": total, "violation": total[None]}
            strong = np.where(episode == after_pruning(run.episodes), 1e7, 1e7 + total)  # what pruning adds is left out
            curves["strong_violation"] = strong[None]
            explanation = {"actions": {"now": 10, "after usage": 10}}
            found.append(replace(record, run=run, curves=curves, explanation=explanation))
    grown = [claim for claim in claims_of(groups(found), ()) if "grows like sqrt K" in claim.text]
    assert [claim.verdict.text for claim in grown] == [verdict]
    drawn = [claim for claim in claims_of(groups(found), ()) if "appendix G" in claim.text]
    assert [claim.verdict.text for claim in drawn] == [verdict] and f"exponent {power - 0.0007:.4g}" in drawn[
        0
    ].measured


def test_the_lower_bound_is_refuted_by_a_rule_and_holds_without_cancellation():
    found = measured(2, episodes=(1_000, 4_000))
    refuted, holds = claims_of((), found)
    assert (refuted.verdict.text, holds.verdict.text) == ("fails as stated", "holds")
    for row in found:
        if row.who == "rule":
            assert row.smallest >= -9 and row.largest <= 0
            assert row.strong.mean == pytest.approx(row.episodes * 5 / 3, rel=0.05), "5/9 of the episodes miss 3"
    too_large = [row._replace(largest=0.5) for row in found]
    assert claims_of((), too_large)[0].verdict.text == "undecided"


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


def test_the_exact_figures_of_the_paper_are_those_of_the_instance():
    found = of(rows("paper/synthetic", 1.0, 1.0))
    assert found["optimum"].verdict.text == "as published" and found["optimum"].measured.mean == pytest.approx(1.573063)
    assert found["action 2 at (1, 1)"].measured.mean == pytest.approx(0.2738, abs=1e-4)
    assert found["action 2 at (1, 1)"].verdict.text == "differs by +0.21"


def test_a_fixed_start_cannot_be_meant():
    """The argument in the assumption about the start: optima of the three possible initial states."""
    cmdp = ck.load("paper/synthetic")
    optima = [ck.solve(ck.CMDP(cmdp.P, cmdp.r, cmdp.g[0], 2.0, mu=s)).value for s in range(3)]
    assert [f"{v:.3f}" for v in optima] == ["1.480", "2.045", "1.232"]
    assert all(f"{v:.3f}" in ASSUMPTIONS["start"] for v in optima)


def test_every_row_says_what_it_assumes():
    for env, key in (("paper/synthetic", "start"), ("paper/grid", "board")):
        for row in rows(env, 1.0, 1.0):
            assert ASSUMPTIONS[key] in row.assumptions and set(row.assumptions) <= set(ASSUMPTIONS.values())
            assert (ASSUMPTIONS["ours"] in row.assumptions) == (row.algo == "cl-pri (practical)")
            assert (ASSUMPTIONS["constants"] in row.assumptions) == row.algo.startswith("triple-q")


def test_the_numbers_on_the_terminal_are_those_of_the_rows():
    """Four digits of the paper's and ours; the assumptions are numbered as they are met, and listed in that order."""
    found = [*rows("paper/synthetic", 7e4, -5e4), *rows("paper/grid", 1.0, 2.0)]
    report, figures = Path("report.html"), (Path("figures/a.png"),)
    done = Reproduction(("synthetic",), (), tuple(found), (), (), (), Study(()), report, figures, "", 3, 1.0)
    out = Console(width=120, force_terminal=False)
    with out.capture() as captured:
        out.print(reproduction(done))
    lines = captured.get().splitlines()
    listed = [line.split(". ", 1) for line in lines if line[:1].isdigit() and ". " in line[:4]]
    numbers = {text[:40]: int(i) for i, text in listed}
    assert list(numbers.values()) == [1, 2, 3, 4, 5, 6, 7]
    places = [i for i, line in enumerate(lines) if line.startswith("  ")]
    shown = [lines[i] for i in places if lines[i].strip().split("  ")[0] in {row.quantity for row in found}]
    assert len(shown) == len(found) == 33
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
    for env, k in READ_AT.items():
        monkeypatch.setitem(experiments.READ_AT, env, k // 4000)
    monkeypatch.setattr(experiments, "TABLE1_EPISODES", 100)
    monkeypatch.setattr(lower_bound, "EPISODES", (100, 200))
    monkeypatch.setattr(reproduce, "measured", lambda seeds: measured(seeds, (100, 200)))
    whole = experiments.Experiment.of

    def short(document, source):
        made = []
        for algo in document["algorithms"]:
            if isinstance(algo, dict) and algo.get("episodes", 0) > 10_000:
                params = dict(algo.get("params", {}))
                params |= {"K": 1250, "run_episodes": 50, "compare_episodes": 50} if "K" in params else {}
                episodes = algo["episodes"] // 4000
                readings = [k for k in algo.get("readings", []) if k <= episodes]
                algo = {**algo, "episodes": episodes, "params": params, "readings": readings}
            made.append(algo)
        return whole({**document, "algorithms": made}, source)

    monkeypatch.setattr(experiments.Experiment, "of", short)


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


def test_the_command_line_knows_every_part():
    assert [part.value for part in verbs.PaperPart] == list(PARTS)


COMMAND = ["reproduce", "paper", "--quick", "--executor", "serial"]
FIGURES = {
    *(f"paper-{env}-{what}.png" for env in ("synthetic", "grid") for what in ("regret-violation", "multiplier")),
    *(f"paper-{env}-regret-violation-log.png" for env in ("synthetic", "grid")),
    *(f"paper-grid-policy-{whose}.png" for whose in ("optimum", "pri-printed", "cl-pri-practical")),
}


@pytest.mark.long
def test_the_command_prints_the_table_writes_report_and_figures_and_resumes(first_time, shortened, tmp_path):
    text, written = first_time
    assert text.exit_code == 0, text.output
    shutil.copytree(written / "runs", tmp_path / "runs")
    for word in (
        "paper/synthetic",
        "paper/grid",
        "pri (printed)",
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
    assert again["seeds"] == 3 and len(again["paper"]) == 33
    assert again["headlines"][0].startswith("Exact: ") and "pruning by usage" in again["phases"][0].values()
    assert {claim["env"] for claim in again["claims"]} == {"paper/synthetic", "paper/grid", "paper/lower-bound"}
    assert len(again["departures"]) > 30 and len(again["lower_bound"]) == 4
    assert "Claims of the paper: paper/grid" in text.stdout and "--what departures" in text.stdout
    assert " ".join(again["headlines"][0].split()) in " ".join(text.stdout.split())
    assert all(row["interval"] is None or row["interval"][0] <= row["measured"] for row in again["paper"])
    assert {str(Path("runs/paper/figures", name)) for name in FIGURES} == set(again["figures"])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first | {"mine.png": b"mine"}
    page = (tmp_path / "runs/paper/report.html").read_text(encoding="utf-8")
    for row in again["paper"]:
        assert f'data-value="{row["published"]}"' in page and f'data-value="{row["measured"]}"' in page


@pytest.mark.long
def test_without_matplotlib_everything_else_is_done(first_time, shortened, tmp_path, monkeypatch):
    _, written = first_time
    shutil.copytree(written / "runs", tmp_path / "runs", ignore=shutil.ignore_patterns("figures", "report.html"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = CliRunner().invoke(cli.app, [*COMMAND, "--json"])
    assert found.exit_code == 0, found.output
    assert "figures need matplotlib, which is not installed: pip install 'cmdpkit[plot]'" in found.stderr
    answer = json.loads(found.stdout)
    assert len(answer["paper"]) == 33 and answer["figures"] == []
    assert not (tmp_path / "runs/paper/figures").exists()
    assert "Published and measured" in (tmp_path / "runs/paper/report.html").read_text(encoding="utf-8")
