"""Figures draw what was computed: their lines, bands and arrows are read back and compared."""

import io
import sys
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

import cmdpkit as ck
from cmdpkit.results import figures as plot
from cmdpkit.results.figures import plans as plot_boards
from cmdpkit.results.figures.style import CHANCE, COLOURS
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


def test_the_overview_has_a_row_a_problem_and_draws_means_and_bands(grid, two):
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


def test_scales_and_kinds_are_those_asked_for(grid, two):
    axis = plot.regret(groups(grid), kind="strong", scale="log").axes[0]
    assert (axis.get_xscale(), axis.get_yscale(), axis.get_ylabel()) == ("log", "log", "strong regret")
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


def test_multipliers_are_drawn_with_the_exact_price(two):
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


def test_the_price_curve_is_the_tradeoff():
    expected = ck.tradeoff(two_bounds(), "rest", 5)
    value, price = expected.plot().axes
    np.testing.assert_allclose(value.get_lines()[0].get_xydata(), np.array([expected.bounds, expected.values]).T)
    np.testing.assert_allclose(price.get_lines()[0].get_ydata(), expected.prices)
    (bound,) = lines(value, "the bound ≥ 1")
    assert list(bound.get_xdata()) == [1.0, 1.0]


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


@pytest.mark.parametrize("name", ["overview", "regret", "violation", "multiplier", "policy"])
def test_every_figure_renders_without_a_window_and_without_warnings(name, grid, tmp_path):
    figure = Study(tuple(grid)).plot(name)
    assert isinstance(figure, Figure)
    for suffix in ("png", "pdf", "svg") if name in ("overview", "policy") else ("png",):  # one of each kind
        figure.savefig(tmp_path / f"figure.{suffix}", dpi=100)
        assert (tmp_path / f"figure.{suffix}").stat().st_size > 5000
    assert "matplotlib.pyplot" not in sys.modules


def test_what_cannot_be_drawn_is_explained(grid, two, monkeypatch):
    study_ = Study(tuple(grid))
    with pytest.raises(ValueError, match="there is no figure 'regrets'; there are overview, regret"):
        study_.plot("regrets")
    with pytest.raises(ValueError, match="no run is of algorithm 'conrl'"):
        study_.only("conrl").plot("policy")
    with pytest.raises(ValueError, match=r"there is no step 7, expected 1\.\.6"):
        study_.plot("policy", steps=[7])
    with pytest.raises(ValueError, match="the model has no grid to draw on"):
        two.plot("policy")
    with pytest.raises(ValueError, match="the model of two is not at hand"):
        Study(two.records).plot("policy")
    changed = two_bounds().with_bounds(rest=0.5)  # a model of that name, but another one
    with pytest.raises(ValueError, match="the model of two is not at hand"):
        Study(two.records, {"two": changed}).plot("policy")
    with pytest.raises(ValueError, match="there is no finished run to draw"):
        Study(()).plot("regret")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match=r"figures need matplotlib.*pip install 'cmdpkit\[plot\]'"):
        study_.plot("regret")


# -- sizes, order, labels ----------------------------------------------------------------------------------------------


def texts_of(figure):
    """Every visible text with its box in pixels; of the marks of an axis only those within it."""
    figure.draw_without_rendering()
    for axis in (axis for axis in figure.axes if axis.axison):
        for ticks, side in ((axis.get_xticklabels(), 0), (axis.get_yticklabels(), 1)):
            low, high = axis.get_window_extent().get_points()[:, side]
            boxes = [(t.get_text(), t.get_window_extent()) for t in ticks if t.get_text()]
            yield from ((text, b) for text, b in boxes if low - 1 <= sum(b.get_points()[:, side]) / 2 <= high + 1)
        titles = (axis.title, axis._left_title, axis.xaxis.label, axis.yaxis.label, *axis.texts)
        yield from ((t.get_text(), t.get_window_extent()) for t in titles if t.get_text())
    yield from ((t.get_text(), t.get_window_extent()) for x in figure.legends for t in x.get_texts())


def crowded(figure):
    """Pairs of texts that overlap, texts that leave the figure, and labels or legends inside a panel."""
    found = list(texts_of(figure))
    assert len(found) >= 10
    pairs = [(a, b) for i, (a, x) in enumerate(found) for b, y in found[:i] if x.padded(-0.5).overlaps(y.padded(-0.5))]
    out = [t for t, x in found if x.x0 < -1 or x.y0 < -1 or x.x1 > figure.bbox.x1 + 1 or x.y1 > figure.bbox.y1 + 1]
    outside = [(t, x) for t, x in found if t not in {text.get_text() for axis in figure.axes for text in axis.texts}]
    inside = [
        t for axis in figure.axes if axis.axison for t, x in outside if x.padded(-1).overlaps(axis.get_window_extent())
    ]
    return pairs + out + inside


def four(env, cmdp=None, episodes=1_000_000):
    """Four algorithms with three seeds each."""
    return [make_record(env, algo, seed, cmdp, episodes=episodes) for algo in ("cl-pri", "mf-pri", "pri", "triple-q")
            for seed in range(3)]  # fmt: skip


@pytest.mark.parametrize("size", [3.3, 7])
@pytest.mark.parametrize("scale", ["linear", "log", "symlog"])
def test_nothing_overlaps_in_an_overview_of_four_algorithms(size, scale):
    both = Study((*four("paper/grid"), *four("two", two_bounds())), {"two": two_bounds()})
    kind = "strong" if scale == "log" else "weak"
    figure = both.with_labels({"pri": "PRI (as published)"}).plot("overview", size=size, scale=scale, kind=kind)
    assert figure.get_figwidth() == size and crowded(figure) == []
    panels_side_by_side = len({round(axis.get_position().x0, 2) for axis in figure.axes})
    assert panels_side_by_side == (1 if size == 3.3 else 3)


@pytest.mark.parametrize("size", [3.3, 7])
def test_nothing_overlaps_in_the_other_figures(size, grid, two):
    queue, named = ck.load("queue"), Study(tuple(grid))
    drawn = [named.plot("regret", size=size), named.plot("violation", size=size), two.plot("multiplier", size=size)]
    drawn += [ck.tradeoff(two_bounds(), "rest", 5).plot(size=size), ck.tradeoff(queue, "energy").plot(size=size)]
    drawn += [ck.simulate_policy(queue, ck.Policy.uniform(queue), 500).plot(size=size)]
    drawn += [ck.compare_policies(queue, {"as today": ck.Policy.uniform(queue)}).plot(size=size)]
    drawn += [ck.solve(queue).plot(size=size)]
    assert [crowded(figure) for figure in drawn] == [[]] * 8
    assert {figure.get_figwidth() for figure in drawn} == {size}


def leaving_their_cells(figure, columns, titled):
    """Texts and arrows of boards that are not within one cell, by the middle of what is drawn."""
    figure.draw_without_rendering()
    out = []
    for axis in [axis for axis in figure.axes if axis.get_title() in titled]:
        cell = axis.transData.transform((1, 0))[0] - axis.transData.transform((0, 0))[0]
        for text in axis.texts:
            box = text.get_window_extent() if text.get_text() else text.arrow_patch.get_window_extent()
            low, high = sorted(axis.transData.inverted().transform(box.get_points())[:, 1])
            left, right = axis.transData.inverted().transform(box.get_points())[:, 0]
            column, row = round((left + right) / 2), round((low + high) / 2)
            edge = 0.5 + 1.5 / cell  # a pixel and a half for the line around the cell
            if max(column - left, right - column, row - low, high - row) > edge or not 0 <= column < columns:
                out.append((axis.get_title(), text.get_text(), (left, right, low, high)))
    return out


@pytest.mark.parametrize("size", [3.3, 7])
@pytest.mark.parametrize("name", ["paper/grid", "mud-grid", "gym/frozen-lake"])
def test_nothing_overlaps_on_boards_and_letters_and_arrows_stay_in_their_cells(name, size):
    cmdp = ck.load(name)
    figure = ck.solve(cmdp).plot(size=size)
    assert figure.get_figwidth() == size and crowded(figure) == []
    steps = range(1, cmdp.n_steps + 1)
    assert leaving_their_cells(figure, cmdp.grid.columns, {"every step", *(f"step {h}" for h in steps)}) == []


def test_algorithms_are_drawn_in_the_order_given_under_the_names_given(grid):
    order = ["opt-cmdp", "pri"]
    figure = Study(tuple(grid)).only(order).with_labels({"opt-cmdp": "Optimism", "pri": "PRI"}).plot("regret")
    drawn = [line.get_label() for line in figure.axes[0].get_lines() if not line.get_label().startswith("_")]
    assert drawn == ["Optimism", "PRI"] == [text.get_text() for text in figure.legends[0].get_texts()]
    (line,) = lines(figure.axes[0], "Optimism")
    group = next(g for g in groups(grid) if g.label == "opt-cmdp")
    np.testing.assert_array_equal(line.get_ydata(), curve(group, "regret").mean)
    assert line.get_color() == COLOURS[0]  # the first colour belongs to the first algorithm
    whole = Study(tuple(grid))
    with pytest.raises(ValueError, match="this figure has no option 'ax'; it has steps, size"):
        whole.plot("policy", ax=1)
    for size in (0, -3, "wide", (3, 4, 5)):
        with pytest.raises(ValueError, match=r"expected a width in inches such as 3\.3"):
            whole.plot("regret", size=size)


def test_figures_are_drawn_into_axes_of_the_caller(two):
    mine = Figure()
    axes = mine.subplots(3)
    assert two.plot("overview", ax=axes) is mine and all(axis.get_lines() for axis in axes)
    with pytest.raises(ValueError, match="ax has 1 axes, but this figure has 3 panels"):
        two.plot("overview", ax=axes[0])


def test_bands_stay_positive_where_the_quantity_is_and_equal_seeds_are_one_line(grid):
    """Three seeds of 1, 2 and 30 have an interval that reaches below 0, which a strong regret cannot."""
    records = [make_record("paper/grid", "pri", seed) for seed in range(3)]
    for record, factor in zip(records, (1.0, 2.0, 30.0), strict=True):
        record.curves["strong_regret"] = factor * record.curves["episode"].astype(float)
    for scale in ("linear", "log"):
        axis = plot.regret(groups(records), kind="strong", scale=scale).axes[0]
        edges = np.concatenate([band.get_paths()[0].vertices[:, 1] for band in axis.collections])
        assert edges.min() >= 0 and edges.max() > 30 * records[0].run.episodes
    assert axis.get_ylim()[0] > 0.1 * np.nanmin(lines(axis, "pri")[0].get_ydata())  # the band does not stretch it
    for record in records:
        record.curves["strong_regret"] = record.curves["episode"].astype(float)
    axis = plot.regret(groups(records), kind="strong").axes[0]
    drawn = [line for line in axis.get_lines() if len(line.get_xdata()) > 2]
    assert len(drawn) == 1 and len(axis.collections) == 0


# -- plans and logs ----------------------------------------------------------------------------------------------------


def test_bars_of_a_comparison_are_the_totals_and_those_that_break_a_bound_are_orange():
    cmdp = ck.load("queue")
    found = ck.compare_policies(cmdp, {"uniform": ck.Policy.uniform(cmdp)})
    axes = found.plot().axes
    worth, best = found.policies[0], found.optimum
    expected = [[worth.value, best.value], *np.array([worth.utilities, best.utilities]).T.tolist()]
    for axis, lengths in zip(axes, expected, strict=True):
        np.testing.assert_allclose([bar.get_width() for bar in axis.patches], lengths)
    bounds = [axis.get_lines()[0].get_xdata()[0] for axis in axes[1:]]
    assert bounds == [c.bound_on_total for c in cmdp.constraints]
    broken = [[bar.get_facecolor() == to_rgba(CHANCE) for bar in axis.patches] for axis in axes]
    assert broken == [[False, False], [False, False], [True, False]] and worth.met == (True, False)


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

    Only one word is left in the figure, as every font takes seconds to write in PostScript.
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


def map_of(names):
    """The map of a policy in which state s takes action s, over two steps; and the look of every action in it."""
    A = len(names)
    table = np.eye(A)
    policy = ck.Policy(np.stack([table, table]), tuple(f"s{s}" for s in range(A)), tuple(names))
    figure = plot_boards.policy_map(policy)
    figure.canvas.draw()
    shown = figure.axes[0].images[0]
    colours = shown.to_rgba(np.arange(A, dtype=float))
    patches = {patch.get_label(): patch for patch in figure.axes[0].patches}
    return colours, patches


def test_no_two_actions_of_a_policy_map_look_alike():
    for names in ([f"order {n}" for n in range(12)], [f"tool {x}" for x in "abcdefghijklmnopqrst"], ["a", "b"]):
        colours, patches = map_of(names)
        assert len({patch.get_facecolor() for patch in patches.values()}) == len(names), names
        assert [tuple(np.round(c, 3)) for c in colours] == [
            tuple(np.round(patches[name].get_facecolor(), 3)) for name in names
        ]


def test_numbered_actions_have_colours_in_their_order():
    colours, _ = map_of([f"order {n}" for n in range(12)])
    grey = colours[:, :3] @ [0.299, 0.587, 0.114]
    assert (np.diff(grey) > 0).all()
