"""Curves of regret, violation and multipliers, with what `cmdpkit.results.groups` computes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.solver import solve_fully
from cmdpkit.model.cmdp import CMDP
from cmdpkit.results.figures import style
from cmdpkit.results.figures.style import Size, bend, legend_below, panels, styled, thousands
from cmdpkit.results.groups import Group, Kind, curve, curve_name
from cmdpkit.results.study import model_of
from cmdpkit.results.study_tables import by_problem, sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

Scale = Literal["linear", "log", "symlog"]
Groups = Sequence[Group]
STRIP, MOST_STRIPS = 9.0, 4  # height of a strip of phases in points, and how many there are at most
LOGARITHMIC_SPAN = 20  # largest by smallest value of a parameter from which on its axis is logarithmic


# -- regret and violation ----------------------------------------------------------------------------------------------


def _figure_of(*what: str, usual: Scale) -> Callable[..., Figure]:
    """A figure with a panel for each of these curves, and for a violation one for each constraint.

    Its ``kind`` is weak, strong or realised, ``raw`` adds a thin line per seed, and ``phases`` is True, False or the
    only algorithm whose phases are shown.
    """

    @styled
    def drawn(
        found: Groups,
        *,
        kind: Kind = "weak",
        scale: Scale = usual,
        raw: bool = False,
        phases: bool | str = True,
        size: Size = None,
        ax: Any = None,
    ) -> Figure:
        _check_scale(scale)
        problems = list(by_problem(found).values())
        if isinstance(phases, str) and not any(phases in (x.label, x.algo, x.run.algo) for x in found):
            known = ", ".join(dict.fromkeys(group.label for group in found))
            raise CmdpkitError(f"phases is {phases!r}, expected True, False or an algorithm; there are {known}")
        bounds = [len(mine[0].records[0].constraints) for mine in problems]
        subjects = [[(x, n) for x in what for n in range(N if x == "violation" else 1)] for N in bounds]
        figure, axes = panels([len(x) for x in subjects], size, ax)
        colours = _looks(group.label for group in found)
        names: list[Strip] = []
        for row, mine, asked in zip(axes, problems, subjects, strict=True):
            for axis, (subject, n) in zip(row, asked, strict=True):
                name = curve_name(subject, kind)
                shown = [group for group in mine if group.can_draw(name)]
                if not shown:
                    advice = "name readings= when learning" if name == "certified_gap" else "try kind='realised'"
                    raise CmdpkitError(f"no run on {mine[0].problem} has a curve {name!r}; {advice}")
                for group in shown:
                    _band(axis, group, name, n, colours[group.label], raw, scale)
                _dress(axis, shown, subject, n, kind, scale)
                strips, named = _strips(axis, shown, colours, phases)
                names += named
                if axis is row[0]:
                    axis.set_title(mine[0].problem, loc="left", fontweight="bold", pad=4 + STRIP * strips)
        legend_below(figure, ax)
        _drop_crowded(figure, names)
        return figure

    return drawn


# Means over seeds with 95 % bands, one row per environment.
overview = _figure_of("regret", "violation", usual="linear")  # side by side, as in the paper
regret = _figure_of("regret", usual="linear")
violation = _figure_of("violation", usual="symlog")  # below 0 a bound is met with something to spare
certified_gap = _figure_of("certified_gap", usual="log")  # how far the policy was below the optimum at most, as proved


def _band(axis: Axes, group: Group, name: str, n: int, look: Mapping[str, Any], raw: bool, scale: Scale) -> None:
    """The mean with its band, and a thin line per seed if these differ; on a log axis only what is positive."""
    line = curve(group, name, n)
    mean = np.where(line.mean > 0, line.mean, np.nan) if scale == "log" else line.mean
    axis.plot(line.episode, mean, label=group.label, zorder=3, **look)
    if line.low is not None and line.high is not None and (line.high > line.low).any():
        low = np.maximum(line.low, np.finfo(float).tiny) if scale == "log" else line.low
        axis.fill_between(line.episode, low, line.high, where=np.isfinite(mean), color=look["color"], alpha=0.18,
                          linewidth=0)  # fmt: skip
    if raw and np.ptp(line.raw, axis=0).any():
        axis.plot(line.episode, line.raw.T, color=look["color"], alpha=0.35, linewidth=0.6, zorder=2)


def _dress(axis: Axes, shown: Sequence[Group], subject: str, n: int, kind: Kind, scale: Scale) -> None:
    """Scales, labels and zero line."""
    constraint = shown[0].records[0].constraints[n] if subject == "violation" else None
    words = {"weak": "", "strong": "strong ", "realised": "realised "}[kind]
    style.name_upright(axis, f"{words}{subject.replace('_', ' ')}" + (f" of {constraint}" if constraint else ""))
    axis.set_xlabel(shown[0].run.unit)
    if scale == "linear":
        thousands(axis.xaxis)
        thousands(axis.yaxis)
    else:
        axis.set_xscale("log")
        bend(axis) if scale == "symlog" else axis.set_yscale("log")
        axis.autoscale_view()  # the margins were those of a linear axis
    if scale == "log":  # bands that reach down to 0 end at the axis
        positive = np.concatenate(
            [np.ravel(line.get_ydata())[np.ravel(line.get_ydata()) > 0] for line in axis.get_lines()]
        )
        axis.set_ylim(0.8 * positive.min(), 1.25 * positive.max()) if len(positive) else None
    else:
        axis.axhline(0, color=style.GREY, linewidth=0.8, zorder=1)


# -- phases ------------------------------------------------------------------------------------------------------------


class Strip(NamedTuple):
    """The name of a phase and the part of a strip that it stands on."""

    axis: Axes
    text: Text
    start: float  # of the phase, on the axis of episodes
    end: float


def _strips(
    axis: Axes, shown: Sequence[Group], looks: Mapping[str, Any], phases: bool | str
) -> tuple[int, list[Strip]]:
    """Phases of the first seed as strips above the panel, in the colour of their algorithm: how many, and the names.

    ``phases`` is False, the name of an algorithm, or True for all algorithms if these are not too many.
    """
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    chosen = [group for group in shown if len(group.records[0].phases) > 1]
    if isinstance(phases, str):
        chosen = [group for group in chosen if phases in (group.label, group.algo, group.run.algo)]
    if not phases or len(chosen) > MOST_STRIPS:
        return 0, []
    low, high = axis.get_xlim()
    axis.set_xlim(low, high)
    names = []
    for i, group in enumerate(reversed(chosen)):
        height = 2 + STRIP * (i + 0.5)  # points above the panel
        place = axis.get_xaxis_transform() + ScaledTranslation(0, height / 72, axis.figure.dpi_scale_trans)
        starts = [min(max(float(start), low), high) for _, start in group.records[0].phases]
        ends = [*starts[1:], min(float(group.run.length), high)]
        for k, ((name, _), start, end) in enumerate(zip(group.records[0].phases, starts, ends, strict=True)):
            if end > start:
                colour, faint = looks[group.label]["color"], 0.3 if k % 2 else 0.5
                strip = Line2D([start, end], [1, 1], transform=place, color=colour, alpha=faint, linewidth=STRIP - 1.5,
                               solid_capstyle="butt", clip_on=False, label="_phase")  # fmt: skip
                axis.add_artist(strip)
                middle = math.sqrt(start * end) if axis.get_xscale() == "log" else (start + end) / 2
                look: Any = {"ha": "center", "va": "center_baseline", "fontsize": STRIP - 3, "annotation_clip": False}
                text = axis.annotate(name, (middle, 1), (0, height), ("data", "axes fraction"), "offset points", **look)
                names.append(Strip(axis, text, start, end))
    return len(chosen), names


def _drop_crowded(figure: Figure, names: Sequence[Strip]) -> None:
    """Remove the names of phases that are wider than their part of the strip, once the layout is known."""
    if names:
        figure.draw_without_rendering()
    for axis, text, start, end in names:
        left, right = (axis.transData.transform((x, axis.get_ylim()[1]))[0] for x in (start, end))
        if text.get_window_extent().width > right - left - 2:
            text.remove()


# -- prices ------------------------------------------------------------------------------------------------------------


@styled
def multiplier(
    found: Groups,
    *,
    models: Mapping[str, CMDP] | None = None,
    scale: Scale = "linear",
    raw: bool = False,
    size: Size = None,
    ax: Any = None,
) -> Figure:
    """The multipliers of the learners that have one, against the exact shadow price where the model is known.

    Prices have a linear scale, or a symmetric logarithmic one where a large price would flatten the others; with any
    ``scale`` but "linear", the axis of the episodes is logarithmic.
    """
    _check_scale(scale)
    problems = list(by_problem(group for group in found if group.has("multiplier")).values())
    if not problems:
        raise CmdpkitError("no run has a curve 'multiplier': none of its algorithms puts prices on the constraints")
    figure, axes = panels([len(mine[0].records[0].constraints) for mine in problems], size, ax)
    colours = _looks(group.label for group in found)
    for row, mine in zip(axes, problems, strict=True):
        cmdp = model_of(mine[0].run, models)
        prices = None if cmdp is None else solve_fully(cmdp).lam
        for n, (axis, constraint) in enumerate(zip(row, mine[0].records[0].constraints, strict=True)):
            for group in mine:
                _band(axis, group, "multiplier", n, colours[group.label], raw, "linear")
            if style.flattens([curve(group, "multiplier", n).mean for group in mine]):
                bend(axis)
                axis.set_ylim(bottom=0)
            if prices is not None:
                axis.axhline(prices[n], color=style.BLACK, linestyle="--", linewidth=1.2, label="exact price", zorder=4)
            style.name_upright(axis, f"price of {constraint}")
            axis.set_xlabel(mine[0].run.unit)
            axis.set_xscale("log") if scale != "linear" else thousands(axis.xaxis)
            axis.set_title(mine[0].problem, loc="left", fontweight="bold") if n == 0 else None
    legend_below(figure, ax)
    return figure


# -- parameters --------------------------------------------------------------------------------------------------------


@styled
def parameter_sweep(
    found: Groups,
    parameter: str,
    metric: str = "strong_regret",
    n: int | None = None,
    *,
    size: Size = None,
    ax: Any = None,
) -> Figure:
    """A metric against a parameter, one panel per problem: means over seeds with their 95 % intervals.

    Where the values are positive and span a factor of 20 or more, their axis is logarithmic; texts stand side by side.
    """
    swept = sweep(found, parameter, metric, n)
    problems = list(dict.fromkeys(problem for problem, _ in swept.lines))
    figure, (axes,) = panels([len(problems)], size, ax)
    looks = _looks(label for _, label in swept.lines)
    numeric = not any(isinstance(x, (str, bool)) for x in swept.values)
    place = {x: float(x) if numeric else float(i) for i, x in enumerate(swept.values)}
    for axis, problem in zip(axes, problems, strict=True):
        for (where, label), line in swept.lines.items():
            if where == problem:
                at = [x for x in swept.values if x in line]
                mean = np.array([line[x].mean for x in at])
                ends = np.array([(0.0, 0.0) if line[x].low is None else (line[x].low, line[x].high) for x in at])
                known = np.array([line[x].low is not None for x in at])[:, None]
                error = np.where(known, np.abs(ends - mean[:, None]), 0.0).T
                axis.errorbar([place[x] for x in at], mean, error, marker="o", capsize=3, label=label, **looks[label])
        axis.set_xlabel(swept.parameter)
        axis.set_title(problem, loc="left", fontweight="bold")
        if not numeric:
            axis.set_xticks(list(place.values()), [str(x) for x in swept.values])
        elif min(place.values()) > 0 and max(place.values()) >= LOGARITHMIC_SPAN * min(place.values()):
            axis.set_xscale("log")
        thousands(axis.yaxis)
    axes[0].set_ylabel(metric.replace("_", " "))
    legend_below(figure, ax)
    return figure


# -- shared ------------------------------------------------------------------------------------------------------------


def _check_scale(scale: str) -> None:
    if scale not in ("linear", "log", "symlog"):
        raise CmdpkitError(f"scale is {scale!r}, expected 'linear', 'log' or 'symlog'")


def _looks(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour and line style of each label, alike in all panels; the line style changes when the colours run out."""
    n = len(style.COLOURS)
    return {
        x: {"color": style.COLOURS[i % n], "linestyle": style.LINES[i // n % len(style.LINES)]}
        for i, x in enumerate(dict.fromkeys(labels))
    }
