"""How totals spread over single episodes: a histogram of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmdpkit.results.figures.style import BLACK, CHANCE, COLOURS, canvas, legend_below, styled
from cmdpkit.results.statistics import bars_of
from cmdpkit.results.wording import label, number
from cmdpkit.simulate.distribution import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_BARS = 60  # totals of which each has its own bar


@styled
def totals(played: Simulation) -> Figure:
    """A histogram of every total, with its mean and, for a constraint, the bound on the mean."""
    figure, axes = canvas(1, len(played.totals))
    bounds = (None, *(c.total for c in played.cmdp.constraints))
    per = " per step" if played.cmdp.criterion.kind == "average" else ""
    for axis, (name, x), bound in zip(axes[0], played.totals.items(), bounds, strict=True):
        axis.hist(x, bins=bars_of(x, MOST_BARS)[0], weights=np.full(len(x), 1 / len(x)), color=COLOURS[0], alpha=0.75)
        axis.axvline(float(x.mean()), color=BLACK, linewidth=1.4, label="mean")
        if bound is not None:
            axis.axvline(bound, color=CHANCE, linestyle="--", linewidth=1.4, label="bound on the mean")
        axis.set_xlabel(f"{label(name)}{per}, mean {number(float(x.mean()))}")
    axes[0][0].set_ylabel("share of the episodes")
    legend_below(figure)
    return figure
