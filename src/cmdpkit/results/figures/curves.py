"""Curves of regret, violation and prices, with what `cmdpkit.results.groups` computes of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.solver import solve_fully
from cmdpkit.exact.tradeoff import Tradeoff
from cmdpkit.model.cmdp import CMDP
from cmdpkit.results.figures.style import BLACK, COLOURS, GREY, LINES, canvas, legend_below, styled, thousands
from cmdpkit.results.groups import Group, Kind, curve, curve_name, sweep
from cmdpkit.results.study import model_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Scale = Literal["linear", "log", "symlog"]
Groups = Sequence[Group]
LOGARITHMIC_SPAN = 20  # largest by smallest value of a parameter from which on its axis is logarithmic


# -- regret and violation ----------------------------------------------------------------------------------------------


@styled
def overview(found: Groups, *, kind: Kind = "weak", scale: Scale = "linear", raw: bool = False) -> Figure:
    """Regret and violation side by side, one row per environment: means over seeds with 95 % bands, as in the paper."""
    return _panels(found, ("regret", "violation"), kind, scale, raw)


@styled
def regret(found: Groups, *, kind: Kind = "weak", scale: Scale = "linear", raw: bool = False) -> Figure:
    """Regret against episodes. ``kind`` is weak, strong or realised; ``raw`` adds a thin line per seed."""
    return _panels(found, ("regret",), kind, scale, raw)


@styled
def violation(found: Groups, *, kind: Kind = "weak", scale: Scale = "symlog", raw: bool = False) -> Figure:
    """Violation of every constraint against episodes; below 0 a bound is met with something to spare."""
    return _panels(found, ("violation",), kind, scale, raw)


@styled
def certified_gap(found: Groups, *, scale: Scale = "log", raw: bool = False) -> Figure:
    """How far the policy to hand over was below the optimum at most, as the counts proved it, against episodes."""
    return _panels(found, ("certified_gap",), "weak", scale, raw)


def _panels(found: Groups, what: Sequence[str], kind: Kind, scale: Scale, raw: bool) -> Figure:
    """One row per environment, with one panel for the regret and one for each constraint."""
    _check_scale(scale)
    by_env = _by_env(found)
    columns = [_panels_of(mine, what) for mine in by_env.values()]
    figure, axes = canvas(len(by_env), max(map(len, columns)))
    colours = _colours(found)
    for row, (env, mine), panels in zip(axes, by_env.items(), columns, strict=True):
        for axis, (subject, n) in zip(row, panels, strict=False):
            name = curve_name(subject, kind)
            shown = [group for group in mine if group.has(name)]
            if not shown:
                raise CmdpkitError(f"no run on {env} has a curve {name!r}; try kind='realised'")
            for group in shown:
                _band(axis, group, name, n, colours[group.label], raw)
            _dress(axis, shown, subject, n, kind, scale)
            axis.set_title(env, loc="left", fontweight="bold") if axis is row[0] else None
        for axis in row[len(panels) :]:
            axis.set_axis_off()
    legend_below(figure)
    return figure


def _panels_of(found: Sequence[Group], what: Sequence[str]) -> list[tuple[str, int]]:
    N = len(found[0].records[0].constraints)
    return [(subject, n) for subject in what for n in range(N if subject == "violation" else 1)]


def _band(axis: Axes, group: Group, name: str, n: int, look: Mapping[str, Any], raw: bool) -> None:
    line = curve(group, name, n)
    axis.plot(line.episode, line.mean, label=group.label, zorder=3, **look)
    if line.low is not None and line.high is not None:
        axis.fill_between(line.episode, line.low, line.high, color=look["color"], alpha=0.18, linewidth=0)
    if raw:
        axis.plot(line.episode, line.raw.T, color=look["color"], alpha=0.35, linewidth=0.6, zorder=2)


def _dress(axis: Axes, shown: Sequence[Group], subject: str, n: int, kind: Kind, scale: Scale) -> None:
    """Scales, labels, zero line and phase boundaries."""
    constraint = shown[0].records[0].constraints[n] if subject == "violation" else None
    words = {"weak": "", "strong": "strong ", "realised": "realised "}[kind]
    axis.set_ylabel(f"{words}{subject.replace('_', ' ')}" + (f" of {constraint}" if constraint else ""))
    axis.set_xlabel(shown[0].run.unit)
    if scale != "linear":
        axis.set_xscale("log")
        axis.set_yscale("symlog", linthresh=_threshold(axis)) if scale == "symlog" else axis.set_yscale("log")
        axis.autoscale_view()  # the margins were those of a linear axis
    else:
        thousands(axis.xaxis)
    if scale != "log":
        axis.axhline(0, color=GREY, linewidth=0.8, zorder=1)
        if scale == "linear":
            thousands(axis.yaxis)
    _boundaries(axis, shown)


def _threshold(axis: Axes) -> float:
    """Where a symmetric logarithmic axis becomes linear: at a power of ten near a thousandth of the largest value.

    At any other place the last mark of the logarithmic part would run into the mark of 0.
    """
    top = max(float(np.abs(axis.get_ylim()).max()), 1e-6)
    return float(10.0 ** math.ceil(math.log10(top * 1e-3))) * (1 + 1e-9)


def _boundaries(axis: Axes, shown: Sequence[Group]) -> None:
    """Dotted lines where the phases of the first seed begin, if exactly one algorithm of the panel has phases."""
    phased = [group for group in shown if len(group.records[0].phases) > 1]
    if len(phased) != 1:
        return
    low = axis.get_xlim()[0]
    for name, start in phased[0].records[0].phases[1:]:
        if start > low:
            axis.axvline(start, color=GREY, linewidth=0.9, linestyle=":", zorder=1)
            across = axis.transAxes.inverted().transform(axis.transData.transform((start, 0)))[0]
            axis.annotate(
                name,
                (start, 0.02),
                xycoords=("data", "axes fraction"),
                rotation=90,
                ha="left" if across < 0.08 else "right",  # so that it does not cover the numbers of the axis
                va="bottom",
                fontsize=7,
                color=GREY,
                zorder=0,  # under the curves
            )


# -- prices ------------------------------------------------------------------------------------------------------------


@styled
def multiplier(
    found: Groups, *, models: Mapping[str, CMDP] | None = None, scale: Scale = "linear", raw: bool = False
) -> Figure:
    """The multipliers of the learners that have one, against the exact shadow price where the model is known.

    Prices are drawn on a linear scale; with any other ``scale``, the axis of the episodes is logarithmic.
    """
    _check_scale(scale)
    by_env = _by_env([group for group in found if group.has("multiplier")])
    if not by_env:
        raise CmdpkitError("no run has a curve 'multiplier': none of its algorithms puts prices on the constraints")
    figure, axes = canvas(len(by_env), max(len(g[0].records[0].constraints) for g in by_env.values()))
    colours = _colours(found)
    for row, (env, mine) in zip(axes, by_env.items(), strict=True):
        cmdp = model_of(mine[0].run, models)
        prices = None if cmdp is None else solve_fully(cmdp).lam
        constraints = mine[0].records[0].constraints
        for n, (axis, constraint) in enumerate(zip(row, constraints, strict=False)):
            for group in mine:
                _band(axis, group, "multiplier", n, colours[group.label], raw)
            if prices is not None:
                axis.axhline(prices[n], color=BLACK, linestyle="--", linewidth=1.2, label="exact price", zorder=4)
            axis.set_ylabel(f"price of {constraint}")
            axis.set_xlabel(mine[0].run.unit)
            axis.set_xscale("log") if scale != "linear" else thousands(axis.xaxis)
            axis.set_title(env, loc="left", fontweight="bold") if n == 0 else None
        for axis in row[len(constraints) :]:
            axis.set_axis_off()
    legend_below(figure)
    return figure


@styled
def price_curve(found: Tradeoff, bound: float | None = None, title: str = "") -> Figure:
    """The best value for every bound, and its slope, the price; ``bound`` marks the one the model asks for."""
    figure, axes = canvas(1, 2)
    value, price = axes[0]
    value.plot(found.bounds, found.values, color=COLOURS[0], marker="o", markersize=3)
    value.set_ylabel("optimal value")
    price.step(found.bounds, found.prices, color=COLOURS[1], where="mid")
    price.set_ylabel("price of the bound")
    for axis in (value, price):
        axis.set_xlabel(f"bound on {found.name}")
        if bound is not None:
            axis.axvline(bound, color=GREY, linestyle=":", linewidth=1.2)
            axis.annotate(" the bound", (bound, 0.03), xycoords=("data", "axes fraction"), fontsize=7, color=GREY)
    value.set_title(title, loc="left", fontweight="bold")
    return figure


# -- parameters --------------------------------------------------------------------------------------------------------


@styled
def parameter_sweep(found: Groups, parameter: str, metric: str = "strong_regret", n: int | None = None) -> Figure:
    """A metric against a parameter, one panel per problem: means over seeds with their 95 % intervals.

    Where the values are positive and span a factor of 20 or more, their axis is logarithmic; texts stand side by side.
    """
    swept = sweep(found, parameter, metric, n)
    problems = list(dict.fromkeys(problem for problem, _ in swept.lines))
    figure, axes = canvas(1, len(problems))
    looks = _looks(label for _, label in swept.lines)
    numeric = not any(isinstance(x, (str, bool)) for x in swept.values)
    place = {x: float(x) if numeric else float(i) for i, x in enumerate(swept.values)}
    for axis, problem in zip(axes[0], problems, strict=True):
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
    axes[0][0].set_ylabel(metric.replace("_", " "))
    legend_below(figure)
    return figure


# -- shared ------------------------------------------------------------------------------------------------------------


def _check_scale(scale: str) -> None:
    if scale not in ("linear", "log", "symlog"):
        raise CmdpkitError(f"scale is {scale!r}, expected 'linear', 'log' or 'symlog'")


def _by_env(found: Groups) -> dict[str, list[Group]]:
    together: dict[str, list[Group]] = {}
    for group in found:
        together.setdefault(group.problem, []).append(group)
    return together


def _colours(found: Groups) -> dict[str, dict[str, Any]]:
    return _looks(group.label for group in found)


def _looks(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour and line style of each label, alike in all panels; the line style changes when the colours run out."""
    n = len(COLOURS)
    return {
        x: {"color": COLOURS[i % n], "linestyle": LINES[i // n % len(LINES)]}
        for i, x in enumerate(dict.fromkeys(labels))
    }
