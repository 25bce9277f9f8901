"""Figures of studies, policies and trade-offs, drawn with matplotlib; here they are found by name and by type.

A study or a policy enters, a `matplotlib.figure.Figure` leaves; ``figure.savefig("name.pdf")`` writes it. No window is
opened, pyplot is not imported and matplotlib's global settings stay as they are. This module draws the curves of
studies, `plans` draws prices, comparisons, totals, and policies as boards and maps, and `style` holds the look and how
figures are sized and saved. Other rooms may import all of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.comparison import PolicyComparison
from cmdpkit.exact.diagnosis import Tradeoff
from cmdpkit.exact.solution import Solution
from cmdpkit.exact.solver import solve_fully
from cmdpkit.model import showing
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import Policy
from cmdpkit.results.figures import plans, style
from cmdpkit.results.figures.style import Size, bend, legend_below, panels, styled, thousands
from cmdpkit.results.groups import Group, Kind, curve, curve_name
from cmdpkit.results.runs import by_problem
from cmdpkit.results.study import Study, model_of
from cmdpkit.simulate.distribution import Simulation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Scale = Literal["linear", "log", "symlog"]
Groups = Sequence[Group]


# -- regret and violation ----------------------------------------------------------------------------------------------


def _figure_of(*what: str, usual: Scale) -> Callable[..., Figure]:
    """A figure with a panel for each of these curves, and for a violation one for each constraint.

    Its ``kind`` is weak, strong or realised.
    """

    @styled
    def drawn(
        found: Groups,
        *,
        kind: Kind = "weak",
        scale: Scale = usual,
        size: Size = None,
        ax: Any = None,
    ) -> Figure:
        _check_scale(scale)
        problems = list(by_problem(found).values())
        bounds = [len(mine[0].records[0].constraints) for mine in problems]
        subjects = [[(x, n) for x in what for n in range(N if x == "violation" else 1)] for N in bounds]
        figure, axes = panels([len(x) for x in subjects], size, ax)
        colours = _looks(group.label for group in found)
        for row, mine, asked in zip(axes, problems, subjects, strict=True):
            for axis, (subject, n) in zip(row, asked, strict=True):
                name = curve_name(subject, kind)
                shown = [group for group in mine if group.can_draw(name)]
                if not shown:
                    advice = "name readings= when learning" if name == "certified_gap" else "try kind='realised'"
                    raise CmdpkitError(f"no run on {mine[0].problem} has a curve {name!r}; {advice}")
                for group in shown:
                    _band(axis, group, name, n, colours[group.label], scale)
                _dress(axis, shown, subject, n, kind, scale)
            row[0].set_title(mine[0].problem, loc="left", fontweight="bold")
        legend_below(figure, ax)
        return figure

    return drawn


# Means over seeds with 95 % bands, one row per environment.
overview = _figure_of("regret", "violation", usual="linear")  # side by side, as in the paper
regret = _figure_of("regret", usual="linear")
violation = _figure_of("violation", usual="symlog")  # below 0 a bound is met with something to spare
certified_gap = _figure_of("certified_gap", usual="log")  # how far the policy was below the optimum at most, as proved


def _band(axis: Axes, group: Group, name: str, n: int, look: Mapping[str, Any], scale: Scale) -> None:
    """The mean with its band; on a log axis only what is positive."""
    line = curve(group, name, n)
    mean = np.where(line.mean > 0, line.mean, np.nan) if scale == "log" else line.mean
    axis.plot(line.episode, mean, label=group.label, zorder=3, **look)
    if line.low is not None and line.high is not None and (line.high > line.low).any():
        low = np.maximum(line.low, np.finfo(float).tiny) if scale == "log" else line.low
        axis.fill_between(line.episode, low, line.high, where=np.isfinite(mean), color=look["color"], alpha=0.18,
                          linewidth=0)  # fmt: skip


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


# -- prices ------------------------------------------------------------------------------------------------------------


@styled
def multiplier(
    found: Groups,
    *,
    models: Mapping[str, CMDP] | None = None,
    scale: Scale = "linear",
    size: Size = None,
    ax: Any = None,
) -> Figure:
    """The multipliers of the learners that have one, against the exact shadow price where the model is known.

    With any ``scale`` but "linear", the axis of the episodes is logarithmic, and with "symlog" that of the prices too.
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
                _band(axis, group, "multiplier", n, colours[group.label], "linear")
            if scale == "symlog":
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


def draw(study: Study, name: str, **options: Any) -> Figure:
    """The figure called ``name`` of a study, with its options."""
    drawn: Mapping[str, Callable[..., Figure]] = {
        "overview": overview,
        "regret": regret,
        "violation": violation,
        "certified_gap": certified_gap,
        "multiplier": partial(multiplier, models=study.models),
        "policy": plans.policy_boards,
    }
    if name not in drawn:
        raise CmdpkitError(f"there is no figure {name!r}; there are {', '.join(drawn)}")
    if not study.records:
        raise CmdpkitError("there is no finished run to draw")
    if name != "policy":
        return drawn[name](study.groups(), **options)
    first = study.records[0]
    cmdp = model_of(first.run, study.models)
    if cmdp is None:
        raise CmdpkitError(
            f"the model of {first.run.env} is not at hand; pass it: Study(records, models={{name: cmdp}})"
        )
    return drawn[name](cmdp, first.policy, **options)


showing.draw.register(Policy, plans.policy_map)
showing.draw.register(Solution, plans.solution_map)
showing.draw.register(Tradeoff, plans.price_curve)
showing.draw.register(Simulation, plans.totals)
showing.draw.register(PolicyComparison, plans.comparison_bars)
showing.draw.register(Study, draw)
