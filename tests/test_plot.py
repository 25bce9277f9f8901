"""Figures draw what was computed: their lines, bands and arrows are read back and compared."""

from __future__ import annotations

import io
import sys
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

import cmdpkit as ck
from cmdpkit.results.figures import curves as plot
from cmdpkit.results.figures import policies as plot_boards
from cmdpkit.results.groups import curve, groups
from cmdpkit.results.study import Study
from records import make_record, study, two_bounds


@pytest.fixture(scope="module")
def grid():
    return study("paper/grid", 3)


@pytest.fixture(scope="module")
def two():
    return Study(tuple(study("two", 3, two_bounds())), {"two": two_bounds()})


def lines(axis, label):
    return [line for line in axis.get_lines() if line.get_label() == label]


def test_the_overview_has_a_row_a_problem_and_draws_means_bands_and_phases(grid, two):
    figure = plot.overview(groups([*grid, *two.records]))
    axes = np.array(figure.axes).reshape(2, 3)  # regret and two violations; the grid has one
    assert not axes[0, 2].axison and axes[1, 2].axison
    for group in groups(two.records):
        for axis, name, n in ((axes[1, 0], "regret", 0), (axes[1, 1], "violation", 0), (axes[1, 2], "violation", 1)):
            (line,) = lines(axis, group.label)
            expected = curve(group, name, n)
            np.testing.assert_array_equal(line.get_xydata(), np.array([expected.episode, expected.mean]).T)
            edges = np.concatenate([band.get_paths()[0].vertices[:, 1] for band in axis.collections])
            assert expected.low.min() >= edges.min() and np.isin(expected.high, edges).all()
    assert [text.get_text() for text in axes[0, 0].texts] == ["identification", "refinement"]
    assert axes[1, 2].get_ylabel() == "violation of rest ≥ 1"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["pri", "triple-q", "opt-cmdp"]


def test_colours_stay_with_the_algorithm_in_every_figure(grid, two):
    colours = {}
    for figure in (plot.regret(groups(grid)), plot.violation(groups(grid)), plot.multiplier(groups(grid))):
        for axis in figure.axes:
            for label in ("pri", "triple-q"):
                colours.setdefault(label, set()).add(lines(axis, label)[0].get_color())
    assert all(len(used) == 1 for used in colours.values()) and colours["pri"] != colours["triple-q"]


def test_scales_kinds_and_raw_curves_are_what_was_asked(grid, two):
    axis = plot.regret(groups(grid), kind="strong", scale="log", raw=True).axes[0]
    assert (axis.get_xscale(), axis.get_yscale(), axis.get_ylabel()) == ("log", "log", "strong regret")
    assert len(axis.get_lines()) >= 9 + 3  # a line a seed and three means
    assert plot.violation(groups(grid)).axes[0].get_yscale() == "symlog"
    assert plot.violation(groups(two.records), kind="realised", scale="linear").axes[0].get_yscale() == "linear"
    blind = [make_record("two", "pri", 0, two_bounds(), blind=True)]
    assert len(plot.violation(groups(blind), kind="realised").axes[0].collections) == 0  # one seed, no band
    with pytest.raises(ValueError, match=r"no run on two has a curve 'regret'; try kind='realised'"):
        plot.regret(groups(blind))
    with pytest.raises(ValueError, match="scale is 'loglog'"):
        plot.regret(groups(grid), scale="loglog")
    with pytest.raises(ValueError, match="scale is 'loglog'"):
        plot.multiplier(groups(grid), scale="loglog")
    with pytest.raises(ValueError, match="kind is 'wek'"):
        plot.regret(groups(grid), kind="wek")


def test_multipliers_stand_beside_the_exact_price(two):
    figure = two.plot("multiplier")
    prices = ck.solve(two_bounds()).shadow_prices
    for axis, price in zip(figure.axes, prices, strict=True):
        (exact,) = lines(axis, "exact price")
        assert set(exact.get_ydata()) == {price}
        assert lines(axis, "pri") and not lines(axis, "opt-cmdp")  # it has no multiplier
    unknown = Study(two.records).plot("multiplier")  # the model is not at hand
    assert not lines(unknown.axes[0], "exact price")
    with pytest.raises(ValueError, match="no run has a curve 'multiplier'"):
        plot.multiplier(groups([r for r in two.records if r.run.algo == "opt-cmdp"]))


def test_a_multiplier_keeps_the_name_its_algorithm_has_among_all_runs():
    """One preset of two has a multiplier: its line is not called after the algorithm alone."""
    silent = make_record("paper/grid", "pri", 0, preset="paper")
    del silent.curves["multiplier"]
    records = [silent, make_record("paper/grid", "pri", 0, preset="practical")]
    (axis,) = plot.multiplier(groups(records)).axes
    assert [line.get_label() for line in axis.get_lines()] == ["pri (practical)", "exact price"]
    assert (
        lines(axis, "pri (practical)")[0].get_color()
        == lines(plot.regret(groups(records)).axes[0], "pri (practical)")[0].get_color()
    )


@pytest.mark.parametrize("top", [556_000.0, 1e6, 0.02])
def test_marks_of_an_axis_do_not_run_into_each_other(top):
    """In pixels, between the boxes of neighbouring labels, on linear and on symmetric log axes."""
    records = [make_record("paper/grid", "pri", 0, episodes=15_000_000)]
    k = records[0].curves["episode"]
    records[0].curves["regret"] = top * np.cos(np.log(k)) * k / k[-1]
    for scale in ("linear", "symlog"):
        figure = plot.regret(groups(records), scale=scale)
        figure.draw_without_rendering()
        axis = figure.axes[0]
        for ticks, side in ((axis.get_xticklabels(), 0), (axis.get_yticklabels(), 1)):
            boxes = sorted(tuple(t.get_window_extent().get_points()[:, side]) for t in ticks if t.get_text())
            low, high = axis.get_window_extent().get_points()[:, side]
            boxes = [box for box in boxes if low - 1 <= sum(box) / 2 <= high + 1]
            assert len(boxes) >= 3
            assert all(first[1] < second[0] for first, second in pairwise(boxes)), (scale, side, boxes)


def test_the_price_curve_is_the_tradeoff(two):
    value, price = two.plot("price", constraint="rest", points=5).axes
    expected = ck.tradeoff(two_bounds(), "rest", 5)
    np.testing.assert_allclose(value.get_lines()[0].get_xydata(), np.array([expected.bounds, expected.values]).T)
    np.testing.assert_allclose(price.get_lines()[0].get_ydata(), expected.prices)


def test_policy_boards_show_reached_decisions_and_tint_those_left_to_chance():
    cmdp = ck.load("paper/grid")
    best = ck.solve(cmdp)
    figure = plot_boards.policy_boards(cmdp, best.policy, steps=[1, 2])
    assert [axis.get_title() for axis in figure.axes] == ["step 1", "step 2"]
    tinted = [
        [p.get_xy() for p in axis.patches if p.get_edgecolor()[0] > 0.8 and p.get_zorder() == 2] for axis in figure.axes
    ]
    row, column = cmdp.grid.cells[cmdp.state_index("r1c3")]
    assert tinted == [[(column - 0.5, row - 0.5)], []]
    first, second = figure.axes
    assert any("50 %" in text.get_text() for text in first.texts)
    reached = (ck.occupancy(cmdp, best.policy)[1].sum(axis=-1) > 1e-12).sum()
    assert len([text for text in second.texts if getattr(text, "arrow_patch", None)]) == reached == 2


def test_occupancy_maps_show_the_probabilities():
    cmdp = ck.load("paper/grid")
    policy = ck.Policy.uniform(cmdp)
    figure = plot_boards.occupancy_maps(cmdp, policy, steps=[3])
    heat = figure.axes[0].images[0].get_array()
    reach = ck.occupancy(cmdp, policy)[2].sum(axis=-1)
    for s, (row, column) in enumerate(cmdp.grid.cells):
        assert heat[row, column] == pytest.approx(reach[s], rel=1e-15)


@pytest.mark.parametrize("name", ["overview", "regret", "violation", "multiplier", "price", "policy", "occupancy"])
def test_every_figure_renders_without_a_window_and_without_warnings(name, grid, tmp_path):
    figure = Study(tuple(grid)).plot(name)
    assert isinstance(figure, Figure)
    for suffix in (
        ("png", "pdf", "svg") if name in ("overview", "policy", "occupancy") else ("png",)
    ):  # one of each kind
        figure.savefig(tmp_path / f"figure.{suffix}", dpi=100)
        assert (tmp_path / f"figure.{suffix}").stat().st_size > 5000
    assert "matplotlib.pyplot" not in sys.modules


def test_what_cannot_be_drawn_is_explained(grid, two, monkeypatch):
    study_ = Study(tuple(grid))
    with pytest.raises(ValueError, match="there is no figure 'regrets'; there are overview, regret"):
        study_.plot("regrets")
    with pytest.raises(ValueError, match="there is no run of conrl"):
        study_.plot("policy", algo="conrl")
    with pytest.raises(ValueError, match=r"there is no step 7, expected 1\.\.6"):
        study_.plot("policy", steps=[7])
    with pytest.raises(ValueError, match="the model has no grid to draw on"):
        two.plot("policy")
    with pytest.raises(ValueError, match="the model of two is not at hand"):
        Study(two.records).plot("price")
    changed = two_bounds().with_bounds(rest=0.5)  # a model of that name, but another one
    with pytest.raises(ValueError, match="the model of two is not at hand"):
        Study(two.records, {"two": changed}).plot("price")
    with pytest.raises(ValueError, match="there is no finished run to draw"):
        Study(()).plot("regret")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match=r"figures need matplotlib.*pip install 'cmdpkit\[plot\]'"):
        study_.plot("regret")


# -- fonts -------------------------------------------------------------------------------------------------------------


def saved_in_every_way(figure, folder):
    """Bytes of PDF and PostScript files, by the way in which they were written; each way has one kind of PostScript."""
    found = {}
    for suffix in ("pdf", "eps"):
        figure.savefig(folder / f"a.{suffix}")
        found[f"path {suffix}"] = (folder / f"a.{suffix}").read_bytes()
    for way, write in (("stream", figure.savefig), ("canvas", figure.canvas.print_figure)):
        for suffix in ("pdf", "ps") if way == "canvas" else ("pdf",):
            written = io.BytesIO()
            write(written, format=suffix)
            found[f"{way} {suffix}"] = written.getvalue()
    return found


def test_fonts_are_embedded_as_truetype_however_a_figure_is_saved_and_settings_stay(grid, tmp_path):
    """A PDF names its kinds of fonts in clear text, PostScript defines them; type 3 is matplotlib's own default.

    Only one word is left in the figure, as every font takes seconds to write in PostScript. The next test writes all.
    """
    figure = plot.regret(groups(grid))
    figure.clear()
    figure.text(0.5, 0.5, "regret")
    before = {name: matplotlib.rcParams[name] for name in ("pdf.fonttype", "ps.fonttype", "savefig.dpi")}
    assert before["pdf.fonttype"] == before["ps.fonttype"] == 3
    for way, data in saved_in_every_way(figure, tmp_path).items():
        if way.endswith("pdf"):
            assert b"/FontFile2" in data and b"/Type3" not in data, way
        else:
            assert b"/FontType 42 def" in data and b"/FontType 3 def" not in data, way
    assert {name: matplotlib.rcParams[name] for name in before} == before


def test_the_pages_of_a_pdf_document_have_the_fonts_of_the_whole_document(grid, tmp_path):
    """Fonts of a document are embedded when it is closed; pages written with other settings could not be read."""
    for fonttype, there, absent in ((3, b"/Type3", b"/FontFile2"), (42, b"/FontFile2", b"/Type3")):
        with matplotlib.rc_context({"pdf.fonttype": fonttype}), PdfPages(tmp_path / "pages.pdf") as pages:
            pages.savefig(plot.regret(groups(grid)))
        data = (tmp_path / "pages.pdf").read_bytes()
        assert there in data and absent not in data


def test_text_of_an_svg_stays_text(grid, tmp_path):
    plot.regret(groups(grid)).savefig(tmp_path / "a.svg")
    assert ">regret<" in (tmp_path / "a.svg").read_text(encoding="utf-8")
