"""How totals spread over single episodes: a histogram of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmdpkit.results.figures.style import BLACK, CHANCE, COLOURS, canvas, legend_below, styled
from cmdpkit.results.wording import label, number
from cmdpkit.simulate.distribution import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 40  # bars of a histogram of many different totals
MOST_BARS = 60  # totals of which each has its own bar


@styled
def totals(played: Simulation) -> Figure:
    """A histogram of every total, with its mean and, for a constraint, the bound on the mean."""
    figure, axes = canvas(1, len(played.totals))
    bounds = (None, *(c.bound for c in played.cmdp.constraints))
    per = " per step" if played.cmdp.criterion.kind == "average" else ""
    for axis, (name, x), bound in zip(axes[0], played.totals.items(), bounds, strict=True):
        axis.hist(x, bins=_edges(x), weights=np.full(len(x), 1 / len(x)), color=COLOURS[0], alpha=0.75)
        axis.axvline(float(x.mean()), color=BLACK, linewidth=1.4, label="mean")
        if bound is not None:
            axis.axvline(bound, color=CHANCE, linestyle="--", linewidth=1.4, label="bound on the mean")
        axis.set_xlabel(f"{label(name)}{per}, mean {number(float(x.mean()))}")
    axes[0][0].set_ylabel("share of the episodes")
    legend_below(figure)
    return figure


def _edges(x: np.ndarray) -> np.ndarray:
    """Edges of the bars; where there are few totals, each has its own bar."""
    values = np.unique(np.round(x, 9))
    if 1 < len(values) <= MOST_BARS:
        half = float(np.diff(values).min()) / 2
        if (values[-1] - values[0]) / (2 * half) <= 4 * MOST_BARS:
            steps = np.arange(round((values[-1] - values[0]) / (2 * half)) + 2)
            return np.asarray(values[0] - half + 2 * half * steps)
    return np.asarray(np.histogram_bin_edges(x, BINS))
