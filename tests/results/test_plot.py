"""Figures draw what was computed: their lines, bands and arrows are read back and compared."""

import io
import re
import shutil
import sys
from dataclasses import replace
from itertools import pairwise

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

import cmdpkit as ck
from cmdpkit.results import figures as plot
from cmdpkit.results.figures import plans as plot_boards
from cmdpkit.results.figures.style import CHANCE, COLOURS, save
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
    assert [text.get_text() for text in axes[0, 0].texts] == ["pruning", "identification", "refinement"]
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


def test_scales_kinds_and_raw_curves_are_those_asked_for(grid, two):
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


def test_the_price_curve_is_the_tradeoff(two):
    expected = ck.tradeoff(two_bounds(), "rest", 5)
    policies = {group.label: group.records[0].policy for group in groups(two.records)}
    value, price = expected.plot(policies=policies).axes
    np.testing.assert_allclose(value.get_lines()[0].get_xydata(), np.array([expected.bounds, expected.values]).T)
    np.testing.assert_allclose(price.get_lines()[0].get_ydata(), expected.prices)
    best = ck.solve(two_bounds())
    bound = two_bounds().constraints[1].bound
    (now,), (dear,) = lines(value, "optimum"), lines(price, "optimum")
    np.testing.assert_allclose([*now.get_xydata()[0], dear.get_ydata()[0]], [bound, best.value, best.shadow_prices[1]])
    for name, policy in policies.items():
        (dot,) = lines(value, name)
        worth = ck.evaluate(two_bounds(), policy)
        np.testing.assert_allclose(dot.get_xydata()[0], [worth.w[1], worth.v])


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


@pytest.mark.parametrize("name", ["overview", "regret", "violation", "multiplier", "policy", "occupancy"])
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
    with pytest.raises(ValueError, match=r"the figure 'price' was removed: ck\.tradeoff"):
        two.plot("price")
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
    """Four algorithms with three seeds each, three of them with phases."""
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
def test_nothing_overlaps_in_the_other_figures(size, two):
    queue = ck.load("queue")
    played = ck.simulate_policy(queue, ck.Policy.uniform(queue), 500)
    compared = ck.compare_policies(queue, {"as today": ck.Policy.uniform(queue)})
    curve = ck.tradeoff(two_bounds(), "rest", 5).plot(size=size)
    drawn = [two.plot("multiplier", size=size), curve, played.plot(size=size)]
    drawn += [compared.plot(size=size), ck.solve(queue).plot("course", signal="energy", size=size)]
    assert [crowded(figure) for figure in drawn] == [[]] * 5
    assert {figure.get_figwidth() for figure in drawn} == {size}


@pytest.mark.parametrize("size", [3.3, 7])
def test_nothing_overlaps_in_curves_maps_and_sweeps(size, grid):
    """The other kinds: curves one at a time, a sweep, the map of a policy and a trade-off."""
    named = Study(tuple(grid))
    drawn = [named.plot("regret", size=size), named.plot("violation", size=size)]
    swept = [
        make_record("queue", "triple-q", seed, params={"eta": eta}) for eta in (1.0, 2.0, 40.0) for seed in range(3)
    ]
    drawn.append(Study(tuple(swept)).plot("sweep", parameter="eta", size=size))
    queue = ck.load("queue")
    drawn += [ck.solve(queue).plot(size=size), ck.tradeoff(queue, "energy").plot(size=size)]
    assert [crowded(figure) for figure in drawn] == [[]] * 5


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
@pytest.mark.parametrize("kind", ["policy", "occupancy"])
def test_nothing_overlaps_on_boards_and_letters_and_arrows_stay_in_their_cells(kind, name, size):
    cmdp = ck.load(name)
    figure = ck.solve(cmdp).plot(kind, size=size)
    assert figure.get_figwidth() == size and crowded(figure) == []
    steps = range(1, cmdp.n_steps + 1)
    assert leaving_their_cells(figure, cmdp.grid.columns, {"every step", *(f"step {h}" for h in steps)}) == []


def log_of(S, A, per_pair):
    """A log of S states and A actions that has every pair (s, a) with a + s even ``per_pair`` times."""
    pairs = [(s, a) for s in range(S) for a in range(A) if (s + a) % 2 == 0] * per_pair
    names = ("quiet", "crowded", "overflowing")
    states = [names[s] if len(names) >= S else s for s, _ in pairs]
    n = len(pairs)
    return {
        "episode": list(range(n)),
        "step": [1] * n,
        "state": states,
        "action": [a for _, a in pairs],
        "reward": [0.0] * n,
    }


@pytest.mark.parametrize("size", [3.3, 7])
def test_nothing_overlaps_in_maps_of_logs_and_what_was_never_tried_is_white(size):
    for S, A, per_pair in ((3, 4, 1000), (60, 26, 1), (12, 26, 300)):
        figure = ck.from_log(log_of(S, A, per_pair), horizon=1).plot(size=size)
        assert crowded(figure) == [], (S, A)
        image = figure.axes[0].images[0]
        shades = image.cmap(image.norm(image.get_array()))[..., :3].min(axis=-1)
        tried = ~np.ma.getmaskarray(image.get_array())
        assert tried.any() and (shades[tried] < 0.95).all()  # visibly darker than a pair without a record
        assert figure.axes[0].get_facecolor()[:3] == (1.0, 1.0, 1.0)
        lines_of_cells = [x for x in figure.axes[0].get_xgridlines() if x.get_visible()]
        minor = [t.gridline for t in figure.axes[0].xaxis.get_minor_ticks() if t.gridline.get_visible()]
        counts = [t for t in figure.axes[0].texts if t.get_text()]
        assert not lines_of_cells and bool(minor) == bool(counts)  # lines only where cells have their counts


@pytest.mark.parametrize("kind", ["overview", "violation"])
def test_a_height_that_is_too_small_for_the_panels_is_refused_with_the_least_one(kind, two):
    with pytest.raises(ValueError, match=r"rows? of panels need a height of ([\d.]+) inches or more") as refused:
        two.plot(kind, size=(3.3, 2.2))
    least = float(re.search(r"height of ([\d.]+)", str(refused.value))[1])
    figure = two.plot(kind, size=(3.3, least))
    figure.draw_without_rendering()  # a warning of matplotlib would be an error here
    assert figure.get_figheight() == pytest.approx(least)


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
    for option in ("algos", "labels", "env", "algo"):
        with pytest.raises(ValueError, match=rf"'{option}' of figures was removed: study.only\(algos=..., envs=...\)"):
            whole.plot("policy", **{option: "pri"})
    with pytest.raises(ValueError, match="this figure has no option 'ax'; it has steps, size"):
        whole.plot("policy", ax=1)
    for size in (0, -3, "wide", (3, 4, 5)):
        with pytest.raises(ValueError, match=r"expected a width in inches such as 3\.3"):
            whole.plot("regret", size=size)


def test_phases_are_strips_in_the_colour_of_their_algorithm_above_the_panel(grid):
    whole = Study(tuple(grid))

    def strips(figure):
        return [x for x in figure.axes[0].artists or figure.axes[0].get_children() if x.get_clip_on() is False and
                x in figure.axes[0].get_lines()]  # fmt: skip

    figure = whole.plot("regret", phases="pri")
    axis = figure.axes[0]
    phases = next(r for r in grid if r.run.algo == "pri").phases
    drawn = strips(figure)
    assert [x.get_xdata()[0] for x in drawn] == [max(float(start), axis.get_xlim()[0]) for _, start in phases]
    assert {x.get_color() for x in drawn} == {lines(axis, "pri")[0].get_color()}
    figure.draw_without_rendering()
    assert all(x.get_window_extent().y0 >= axis.get_window_extent().y1 for x in drawn)
    assert strips(whole.plot("regret", phases=False)) == []
    with pytest.raises(ValueError, match="phases is 'prx', expected True, False or an algorithm"):
        whole.plot("regret", phases="prx")


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
    axis = plot.regret(groups(records), kind="strong", raw=True, phases=False).axes[0]
    drawn = [line for line in axis.get_lines() if len(line.get_xdata()) > 2]
    assert len(drawn) == 1 and len(axis.collections) == 0


# -- plans and logs ----------------------------------------------------------------------------------------------------


def test_a_single_large_price_does_not_flatten_the_others():
    cmdp = ck.load("queue")
    found = ck.tradeoff(cmdp, "energy", 8)
    assert found.plot().axes[1].get_yscale() == "linear"
    dear = replace(found, prices=np.where(np.arange(len(found.prices)) == 0, 1e3, found.prices))
    value, price = dear.plot(policies={"uniform": ck.Policy.uniform(cmdp)}).axes
    assert (value.get_yscale(), price.get_yscale()) == ("linear", "symlog")
    uniform = ck.evaluate(cmdp, ck.Policy.uniform(cmdp))
    np.testing.assert_allclose(lines(value, "uniform")[0].get_xydata(), [[uniform.w[0], uniform.v]])


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


def test_a_course_is_drawn_with_its_range_and_several_fit_into_one_panel():
    cmdp = ck.load("queue")
    course = ck.time_course(cmdp, ck.Policy.uniform(cmdp), "backlog")
    mine = Figure()
    axis = mine.subplots()
    course.plot(ax=axis, name="uniform")
    ck.time_course(cmdp, ck.solve(cmdp).policy, "backlog").plot(ax=axis, name="optimum")
    (first,), (second,) = lines(axis, "uniform"), lines(axis, "optimum")
    np.testing.assert_array_equal(first.get_ydata(), course.mean)
    assert first.get_color() != second.get_color() and axis.get_ylabel() == "backlog"
    edges = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert edges.max() == course.high.max() and edges.min() == course.low.min()


def test_the_map_of_a_log_has_the_counts_of_its_pairs():
    log = {"episode": [1, 1, 2, 2], "step": [1, 2, 1, 2], "state": ["a", "b", "a", "a"], "action": ["x", "y", "x", "y"],
           "reward": [1.0, 0.0, 1.0, 0.0]}  # fmt: skip
    estimate = ck.from_log(log, horizon=2)
    figure = estimate.plot()
    counts = np.ma.filled(figure.axes[0].images[0].get_array(), 0)
    np.testing.assert_array_equal(counts, [[2, 1], [0, 1]])
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["a", "b"]
    assert [t.get_text() for t in figure.axes[0].texts] == ["2", "1", "0", "1"]


# -- fonts -------------------------------------------------------------------------------------------------------------


def test_a_saved_overview_has_truetype_fonts_only(tmp_path):
    """As `pdffonts` reads it: every font of the file is of the type CIDFontType2 or TrueType."""
    path = save(plot.overview(groups(four("paper/grid")), size=3.3), tmp_path / "overview.pdf")
    kinds = set(
        re.findall(rb"/Type /Font\s.*?/Subtype /(\w+)|/Subtype /(\w+)[^>]*?/Type /Font\b", path.read_bytes(), re.S)
    )
    assert {kind for pair in kinds for kind in pair if kind} <= {b"Type0", b"CIDFontType2", b"TrueType"} and kinds
    if shutil.which(matplotlib.rcParams["pgf.texsystem"]) is None:
        with pytest.raises(ValueError, match="a PGF file needs xelatex to measure its texts"):
            save(plot.regret(groups(four("paper/grid"))), tmp_path / "a.pgf")


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
        looks = {(patch.get_facecolor(), patch.get_hatch() or "") for patch in patches.values()}
        assert len(looks) == len(names), names
        assert [tuple(np.round(c, 3)) for c in colours] == [
            tuple(np.round(patches[name].get_facecolor(), 3)) for name in names
        ]


def test_areas_of_two_actions_of_one_colour_differ_in_the_picture():
    """The legend told them apart and the map did not: no hatching was drawn."""
    A = 20
    policy = ck.Policy(np.eye(A)[None], list(range(A)), [f"tool {x}" for x in "abcdefghijklmnopqrst"])
    figure = plot_boards.policy_map(policy, size=(4, 12))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    picture, axis = np.asarray(canvas.buffer_rgba())[..., :3].astype(float), figure.axes[0]
    spread = []  # of the pixels of every area, which is 0 where they all have one colour
    for a in range(A):
        (left, low), (right, high) = axis.transData.transform([(-0.3, a + 0.3), (0.3, a - 0.3)]).astype(int)
        spread.append(picture[len(picture) - high : len(picture) - low, left:right].std(axis=(0, 1)).max())
    colours = 7  # of all figures; later actions have one of these again
    assert max(spread[:colours]) == 0.0 and min(spread[colours:]) > 10.0


def test_numbered_actions_have_colours_in_their_order():
    colours, patches = map_of([f"order {n}" for n in range(12)])
    grey = colours[:, :3] @ [0.299, 0.587, 0.114]
    assert (np.diff(grey) > 0).all()
    assert not any(patch.get_hatch() for patch in patches.values())


def test_more_actions_than_can_be_told_apart_are_refused():
    with pytest.raises(ck.CmdpkitError, match="29 actions cannot be told apart in one map"):
        map_of([f"{x} tool" for x in "abcdefghijklmnopqrstuvwxyzABC"])
