"""A policy as a map: states downwards, steps to the right, one colour per action."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.solver import Solution
from cmdpkit.model.decisions import all_rows
from cmdpkit.model.policy import NEGLIGIBLE, Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.results.figures.boards import policy_boards
from cmdpkit.results.figures.style import BLACK, COLOURS, GREY, canvas, legend_below, styled
from cmdpkit.results.wording import label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_CELLS = 2_000_000  # of a map; a larger one would be grey dust
MOST_NAMES = 40  # states that are named at the side; of more, every so many


def solution_map(found: Solution) -> Figure:
    """The policy of a solution where it goes: boards on a grid, otherwise a map."""
    if not isinstance(found.policy, Policy):
        raise CmdpkitError("the optimum is a draw among several policies; plot each of sol.policy.policies instead")
    if found.cmdp.grid is not None:
        return policy_boards(found.cmdp, found.policy)
    return policy_map(found.policy, found.occupancy.sum(axis=-1))


@styled
def policy_map(policy: Policy, reach: FloatArray | None = None) -> Figure:
    """The most probable action at every step in every state; a dot marks stochastic decisions.

    With ``reach``, the probability [H, S] of being in a state at a step, places that are never reached stay white.
    """
    from matplotlib.colors import ListedColormap

    H, S, A = policy.shape
    if H * S > MOST_CELLS:
        raise CmdpkitError(
            f"a map of {H:,} steps and {S:,} states is too large to read; draw a part of it, or write the policy to a "
            "file with cmdpkit.write_policy"
        )
    action = np.broadcast_to(policy.decisions.choice, (H, S)).astype(float).T
    h, s, p = all_rows(policy.decisions, H)
    several = (p > NEGLIGIBLE).sum(axis=-1) > 1
    draws = np.zeros((S, H), dtype=bool)
    draws[s[several], h[several]] = True
    if reach is not None:
        action[reach.T <= NEGLIGIBLE] = np.nan
        draws &= reach.T > NEGLIGIBLE
    used = np.unique(action[~np.isnan(action)]).astype(int)
    colours = [COLOURS[a % len(COLOURS)] for a in range(A)]
    figure, axes = canvas(1, 1, (min(3 + 0.22 * H, 12.0), min(1.5 + 0.22 * S, 12.0)))
    axis = axes[0][0]
    axis.imshow(action, aspect="auto", cmap=ListedColormap(colours), vmin=-0.5, vmax=A - 0.5, interpolation="nearest")
    for state, step in np.argwhere(draws):
        axis.plot(step, state, "o", markersize=5, markerfacecolor="white", markeredgecolor=BLACK)
    _name_axes(axis, policy)
    for a in used:  # lines without points, for the legend
        axis.plot([], [], "s", markersize=8, color=colours[a], label=label(policy.action_names[a]))
    if draws.any():
        axis.plot([], [], "o", markerfacecolor="white", markeredgecolor=BLACK, linestyle="none", label="draws")
    legend_below(figure)
    return figure


def _name_axes(axis: Axes, policy: Policy) -> None:
    """Steps below, counted from 1, and as many names of states as there is room for."""
    H, S, _ = policy.shape
    axis.grid(False)
    every = -(-S // MOST_NAMES)
    axis.set_yticks(range(0, S, every), [label(policy.states[s]) for s in range(0, S, every)])
    axis.set_ylabel("state", color=GREY)
    if policy.is_stationary:
        axis.set_xticks([])
        return
    stride = -(-H // 12)
    axis.set_xticks(range(0, H, stride), [str(h + 1) for h in range(0, H, stride)])
    axis.set_xlabel("step", color=GREY)
