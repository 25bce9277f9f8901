"""The comparison with the paper: every published figure has its row, read where the paper read it, judged by rule."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import cmdpkit as ck
from cmdpkit import cli, reproduce
from cmdpkit.analyse import groups
from cmdpkit.intervals import estimate
from cmdpkit.reproduce import ASSUMPTIONS, READ_AT, compared, paper_experiments
from records import make_record

SPREAD = {0: 0.9, 1: 1.0, 2: 1.1}


def slope(env, regret, violation):
    """Records of everything that reproduce runs, whose curves are straight lines through given points."""
    cmdp = ck.load(env)
    optimum = ck.solve(cmdp)
    for experiment in paper_experiments(3):
        for run in experiment.runs():
            if run.env != env:
                continue
            record = make_record(env, run.algo, run.seed, cmdp, episodes=run.episodes, optimum=optimum)
            k = record.curves["episode"] / READ_AT[env] * SPREAD[run.seed]
            curves = record.curves | {"regret": regret * k, "violation": violation * k[None]}
            actions = {"to begin with": 630, "after usage": 200, "now": 151}
            yield replace(record, run=run, curves=curves, policy=optimum.policy, explanation={"actions": actions})


def rows(env, regret, violation):
    return compared(groups(slope(env, regret, violation)))


@pytest.mark.parametrize("env", ["paper/synthetic", "paper/grid"])
def test_every_published_figure_has_a_row(env):
    found = {(row.algo, row.quantity): row.published for row in rows(env, 1.0, 1.0)}
    grid = env == "paper/grid"
    for algo in ("pri (paper)", "pri (practical)"):
        assert found.pop((algo, "regret")) == (1.69e5 if grid else 6.89e4)
        assert found.pop((algo, "violation")) == (-6.51e3 if grid else -8e4)
    for algo in ("triple-q (practical)", "triple-q (authors)"):
        assert found.pop((algo, "regret")) == (3.19e6 if grid else 1.57e6)
        assert found.pop((algo, "violation")) == (-5.27e5 if grid else -4.17e5)
    assert {algo for algo, _ in found} == {"pri (paper)"}
    assert sorted(found.values()) == sorted([5.0, 0.499, 200, 155, 2, 1] if grid else [1.561, 2.016, 1.573, 0.0593, 1])


def test_curves_are_read_where_the_paper_read_them_and_the_interval_is_over_seeds():
    found = rows("paper/synthetic", 7e4, -5e4)
    for row in found:
        if row.quantity in ("regret", "violation"):
            value = 7e4 if row.quantity == "regret" else -5e4
            expected = estimate(value * np.array([0.9, 1.0, 1.1]))
            assert (row.measured.mean, row.measured.n) == (pytest.approx(value, rel=1e-6), 3)
            assert row.measured.low == pytest.approx(expected.low, rel=1e-6)


@pytest.mark.parametrize(
    ("regret", "violation", "verdicts"),
    [
        (6.9e4, -8e4, ("as published", "bound kept")),
        (1.4e5, 10.0, ("worse: 203 %", "bound missed")),
        (3.4e4, -1.0, ("better: 49 %", "bound kept")),
        (-5.0, 0.0, ("better: under 1 %", "bound kept")),
    ],
)
def test_verdicts_follow_the_interval(regret, violation, verdicts):
    found = {
        row.quantity: row.verdict for row in rows("paper/synthetic", regret, violation) if row.algo == "pri (paper)"
    }
    assert (found["regret"], found["violation"]) == verdicts


def test_a_violation_around_zero_is_not_judged():
    assert reproduce._violation_verdict(-1.0, estimate(np.array([-1.0, 2.0, 0.5])), 0.0) == "undecided"


def test_the_exact_figures_of_the_paper_are_those_of_the_instance():
    found = {row.quantity: row for row in rows("paper/synthetic", 1.0, 1.0) if row.algo == "pri (paper)"}
    assert found["optimum"].verdict == "as published"
    assert found["action 2 at (1, 1)"].measured.mean == pytest.approx(0.2738, abs=1e-4)
    assert found["action 2 at (1, 1)"].verdict == "differs by +0.21"


def test_every_row_says_what_it_assumes():
    for env, key in (("paper/synthetic", "start"), ("paper/grid", "board")):
        for row in rows(env, 1.0, 1.0):
            assert key in row.assumptions and set(row.assumptions) <= set(ASSUMPTIONS)
            assert row.to_dict()["assumptions"] == [ASSUMPTIONS[name] for name in row.assumptions]


def test_the_command_prints_the_table_writes_the_report_and_resumes(tmp_path, monkeypatch):
    """The published lengths divided by a thousand; the numbers mean nothing then, the way there is the same."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reproduce, "READ_AT", {env: k // 1000 for env, k in READ_AT.items()})
    whole = reproduce.Experiment.of

    def short(document, source):
        paper, *others = document["algorithms"]
        params = {"K": 5000, "run_episodes": 200, "compare_episodes": 200} if paper.get("params") else {}
        paper = {**paper, "episodes": paper["episodes"] // 1000, "params": {**paper.get("params", {}), **params}}
        return whole({**document, "algorithms": [paper, *others]}, source)

    monkeypatch.setattr(reproduce.Experiment, "of", short)
    arguments = ["reproduce", "paper", "--quick", "--executor", "serial"]
    text = CliRunner().invoke(cli.app, arguments)
    assert text.exit_code == 0, text.output
    for word in (
        "paper/synthetic",
        "paper/grid",
        "pri (paper)",
        "68,900",
        "169,000",
        "3 seeds",
        "3 seeds instead of 10",
    ):
        assert word in text.stdout, word
    assert "pri" in (tmp_path / "runs/paper/report.html").read_text()
    again = json.loads(CliRunner().invoke(cli.app, [*arguments, "--json"]).stdout)
    assert again["seeds"] == 3 and len(again["paper"]) == 27
    assert all(row["interval"] is None or row["interval"][0] <= row["measured"] for row in again["paper"])
