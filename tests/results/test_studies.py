"""Studies of many problems: choosing and naming runs, and one table for all of them.

The numbers are checked against hand computations, SciPy, and coverage of known populations.
"""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import cmdpkit as ck
from cmdpkit.cli import app
from cmdpkit.errors import CmdpkitError
from cmdpkit.results.report import render
from cmdpkit.results.study import parameters_of
from records import make_record, two_bounds

ENDS = {  # by environment and algorithm: the strong regret of every seed
    "easy": {"a": [10.0, 12.0, 14.0], "b": [30.0, 36.0, 42.0]},
    "hard": {"a": [400.0, 500.0, 600.0], "b": [100.0, 200.0, 300.0], "c": [7.0, 8.0, 9.0]},
}


def ended(env, algo, seed, end, missed=(-1.0, -1.0), **asked):
    """A record whose strong regret, and whose violation of either bound, ends at a given number."""
    record = make_record(env, algo, seed, two_bounds())
    curves = dict(record.curves)
    curves["strong_regret"] = np.linspace(0.0, end, len(curves["strong_regret"]))
    curves["violation"] = np.linspace(0.0, missed, len(curves["strong_regret"])).T
    return replace(record, run=replace(record.run, **asked), curves=curves)


@pytest.fixture(scope="module")
def many():
    return ck.Study(
        tuple(
            ended(env, algo, seed, end)
            for env, algos in ENDS.items()
            for algo, ends in algos.items()
            for seed, end in enumerate(ends)
        )
    )


# -- choosing and naming -----------------------------------------------------------------------------------------------


def test_only_chooses_in_the_order_given_by_any_name_of_an_algorithm_and_a_problem(many):
    assert [(g.run.env, g.label) for g in many.only(algos=["b", "a"], envs="hard").groups()] == [
        ("hard", "b"),
        ("hard", "a"),
    ]
    assert len(many.only(algos="c")) == 3 and len(many.only()) == len(many)
    named = many.with_labels({"a": "Alpha", "hard": "Hard one"})
    assert len(named.only(algos="Alpha")) == len(named.only(algos="a")) == 6
    assert len(named.only(envs="Hard one")) == len(named.only(envs="hard")) == 9
    with pytest.raises(CmdpkitError, match="no run is of algorithm 'd'; there are a, b, c"):
        many.only(algos=["a", "d"])
    swept = ck.Study(
        tuple(ended("queue:S=4", "a", 0, 1.0, params={"eta": eta}, bounds={"energy": 9.0}) for eta in (1, 2))
    )
    for env in ("queue", "queue:S=4", "queue:S=4 with energy = 9"):
        assert len(swept.only(envs=env)) == 2
    assert len(swept.only(algos="a (eta=2)")) == 1


def test_labels_are_in_tables_figures_and_report_and_nowhere_in_data(many):
    named = many.with_labels({"a": "Alpha <1>", "easy": "Easy & quick"})
    tables = named.summary()
    assert [table.title for table in tables] == ["Easy & quick", "hard"]
    assert r"Alpha \textless{}1\textgreater{}" in named.to_latex() and "Easy & quick" in str(named)
    assert [column.heading for column in named.grid().shown()] == ["problem", "Alpha <1>", "b", "c"]
    figure = named.plot("regret", kind="strong")
    assert figure.axes[0].get_title(loc="left") == "Easy & quick"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["Alpha <1>", "b", "c"]
    page = render(named)
    assert "Alpha &lt;1&gt;" in page and "Easy &amp; quick" in page and "Alpha <1>" not in page
    assert named.table() == many.table() and {row["algo"] for row in named.table()} == {"a", "b", "c"}


def test_the_label_of_an_algorithm_keeps_what_tells_its_groups_apart():
    study = ck.Study(tuple(ended("e", "a", 0, 1.0, params={"eta": eta}) for eta in (1.0, 2.0)))
    assert [g.label for g in study.with_labels({"a": "A"}).groups()] == ["A (eta=1.0)", "A (eta=2.0)"]
    assert [g.label for g in study.with_labels({"a": "A", "a (eta=2.0)": "best"}).groups()] == ["A (eta=1.0)", "best"]
    with pytest.raises(CmdpkitError, match="two groups on e would be called 'A'"):
        study.with_labels({"a (eta=1.0)": "A"}).with_labels({"a (eta=2.0)": "A"})
    with pytest.raises(CmdpkitError, match="nothing called 'b'"):
        study.with_labels({"b": "B"})
    with pytest.raises(CmdpkitError, match="the label of 'a' is ''"):
        study.with_labels({"a": ""})


# -- one table for all problems ----------------------------------------------------------------------------------------


def test_a_grid_has_the_means_of_the_records_and_marks_the_smallest(many):
    grid = many.grid("strong_regret")
    data = {row["problem"]: row for row in grid.data()}
    for env, algos in ENDS.items():
        for algo, ends in algos.items():
            low, high = stats.t.interval(0.95, 2, np.mean(ends), stats.sem(ends))
            found = [data[env][key] for key in (algo, f"{algo}_low", f"{algo}_high")]
            assert found == pytest.approx([np.mean(ends), low, high])
    assert data["easy"]["c"] is None
    assert grid.to_latex().splitlines()[4:8] == [
        r"\midrule",
        r"easy & \textbf{\boldmath 12 $\pm$ 5} & 36 $\pm$ 15 & -- \\",
        r"hard & 500 $\pm$ 250 & 200 $\pm$ 250 & \textbf{\boldmath 8 $\pm$ 2.5} \\",
        r"\bottomrule",
    ]
    assert "| easy | **12 ± 5** | 36 ± 15 | – |" in grid.to_markdown()
    best = many.grid("policy_value").rows[1]  # a value is the better the larger it is
    assert best.best == tuple(k for k, x in best.means.items() if x.mean == max(y.mean for y in best.means.values()))
    with pytest.raises(CmdpkitError, match=r"no run has the metric 'speed'; there are .*strong_regret.*policy_gap"):
        many.grid("speed")


def test_the_best_mean_is_marked_and_a_dagger_says_that_a_bound_is_missed_beyond_noise():
    """c has least regret and misses its second bound by 0.5 +- 19 over two seeds, which is noise; d by 1 +- 0."""
    ends = {"a": (9.0, [(-1, 0), (-1, 0)]), "b": (5.0, [(-2, 3), (-2, -3)]), "c": (1.0, [(-9, 2), (-9, -1)])}
    records = [ended("e", algo, s, x + s, missed=m[s]) for algo, (x, m) in ends.items() for s in range(2)]
    study = ck.Study(tuple(records))
    grid = study.grid("strong_regret")
    assert grid.rows[0].best == ("c",) and grid.rows[0].missed == () and grid.title == "strong regret; bold: best mean"
    assert "**1.5" in grid.to_markdown() and "†" not in grid.to_markdown()
    assert study.only(algos="c").grid().rows[0].best == ()
    two = ck.Study(
        tuple(r for r in records if r.run.algo == "c") + tuple(ended("e", "d", s, 0.5, missed=(1, 1)) for s in range(2))
    )
    grid = two.grid("strong_regret")
    assert (grid.rows[0].best, grid.rows[0].missed) == (("d",), ("d",)) and "d_low" in grid.data()[0]
    caption = "strong regret; bold: best mean; †: misses a bound, the interval of its violation is above 0"
    assert grid.title == caption and "**0.5† ± 0**" in grid.to_markdown()
    assert r"\textbf{\boldmath 0.5$^\dagger$ $\pm$ 0}" in grid.to_latex()
    assert grid.to_latex().startswith(f"% {caption}; needs")
    assert two.grid("seconds").rows[0].missed == (), "time rewards no violation"


def test_of_values_the_final_policies_are_marked_that_miss_a_bound():
    good, bad = (make_record("e", algo, 0, two_bounds()) for algo in ("good", "bad"))
    inside = tuple(c.bound_on_total + c.sign for c in good.constraints)
    outside = tuple(c.bound_on_total - c.sign for c in good.constraints)
    good = replace(good, policy_value=1.0, policy_utilities=inside)
    bad = replace(bad, policy_value=2.0, policy_utilities=outside)
    row = ck.Study((good, bad)).grid("policy_value").rows[0]
    assert (row.best, row.missed) == (("bad",), ("bad",)), "one run: its own figure counts"


def test_of_several_bounds_the_largest_violation_counts_unless_one_is_chosen(many):
    records = [r for r in many.records if (r.run.env, r.run.algo) == ("hard", "a")]
    ends = np.array([r.final("violation") for r in records])
    assert ends.shape == (3, 2)
    row = many.grid("violation").data()[1]
    assert row["a"] == pytest.approx(ends.max(axis=1).mean())
    assert many.grid("violation", n=1).data()[1]["a"] == pytest.approx(ends[:, 1].mean())
    assert many.grid("violation").title == "violation, largest of all bounds; bold: best mean"
    assert many.grid("violation", n=1).title == "violation of rest; bold: best mean"


# -- parameters --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swept():
    """Three eta under two bounds, with the strong regret 100 * eta + bound + seed, and an algorithm without eta."""
    records = [
        ended("queue", "triple-q", seed, 100 * eta + bound + seed, params={"eta": eta}, bounds={"energy": bound})
        for eta in (16.0, 2.0, 4.0)
        for bound in (20.0, 16.0)
        for seed in range(2)
    ]
    return ck.Study((*records, *(ended("queue", "b", seed, 5.0, bounds={"energy": 16.0}) for seed in range(2))))


def test_parameters_are_columns_of_a_data_frame(swept):
    pytest.importorskip("pandas")
    frame = swept.to_pandas()
    last = frame.groupby("run").last()
    known = last[last["algo"] == "triple-q"]
    assert (known["strong_regret"] == 100 * known["algo.eta"] + known["bound.energy"] + known["seed"]).all()
    assert all(math.isnan(x) for x in last[last["algo"] == "b"]["algo.eta"])
    assert parameters_of(ck.Run("queue:S=5,load=0.5", "a", 7, 0, "paper")) == {"env.S": 5, "env.load": 0.5}


# -- the command line --------------------------------------------------------------------------------------------------


def test_show_prints_what_the_study_has(many, tmp_path):
    for record in many.records:
        ck.save_record(record, tmp_path)

    def shown(*words):
        return CliRunner().invoke(app, ["show", str(tmp_path), *words], prog_name="cmdpkit")

    loaded = ck.Study.load(tmp_path)
    assert json.loads(shown("--json").stdout)["table"] == loaded.table()
    options = ["--algo", "a", "--algo", "b", "--grid"]
    found = json.loads(shown(*options, "--json").stdout)
    two = loaded.only(algos=["a", "b"])
    assert found["grid"] == two.grid().data()
    text = shown(*options).stdout
    assert "12 ± 5" in text
    assert shown("--grid", "--table", "latex").stdout == loaded.grid().to_latex()
    assert shown("--table", "latex").stdout == loaded.to_latex()
    assert shown("--table", "markdown").stdout == loaded.to_markdown()
    assert shown().stdout.startswith("Study of 15 runs")
    refused = shown("--grid", "--metric", "speed")
    assert refused.exit_code == 1 and "no run has the metric 'speed'" in refused.stderr
    page = CliRunner().invoke(app, ["report", str(tmp_path), "--algo", "c"])
    assert page.exit_code == 0 and "15 runs" not in page.stdout and (tmp_path / "report.html").exists()


def test_names_that_were_removed_say_what_to_do_without_them():
    for thing, name, told in (
        (ck.Study, "comparison", r"Study\.comparison was removed: .*scipy\.stats"),
        (ck.Study(()), "sweep", r"Study\.sweep was removed: study\.to_pandas\(\)"),
        (ck, "compare", r"cmdpkit\.compare was removed: .*scipy\.stats"),
        (ck.gym, "probe", r"cmdpkit\.gym\.probe was removed: the guide to Gymnasium"),
    ):
        with pytest.raises(AttributeError, match=told):
            getattr(thing, name)
    with pytest.raises(AttributeError, match="there is no 'nothing' here"):
        _ = ck.gym.nothing
