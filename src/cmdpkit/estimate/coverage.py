"""What a log covers: which actions were never tried, and where the best policy of its model rests on few visits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.log import Log
from cmdpkit.exact.infeasible import Infeasible
from cmdpkit.exact.solver import solve_fully
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.evaluate import occupancy
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.validate import Name

FEW = 30  # visits; an average of fewer says little


class Untried(NamedTuple):
    """An action that was never tried in a state where decisions were recorded."""

    state: Name  # where nothing is known of the action
    action: Name  # that was never tried there
    visits: int  # of the state


class Thin(NamedTuple):
    """A decision of the best policy of the plug-in model that rests on few visits."""

    step: int | None  # from 1; None where all steps share their counts
    state: Name  # where the decision is made
    action: Name  # that the policy takes there
    visits: int  # times that the log has this action there
    uses: float  # how often the policy does it in an episode (without a horizon, in a step)


@dataclass(frozen=True, eq=False)
class Coverage:
    """How much of the problem a log covers."""

    transitions: int  # how many the log has
    episodes: int  # how many it has
    pairs: int  # (state, action), of states in which decisions were recorded
    tried: int  # of those
    untried: tuple[Untried, ...]  # the most visited states first; at most 20
    thin: tuple[Thin, ...]  # the most used ones first; at most 20
    on_few: float  # share of the best policy's decisions that rest on fewer than 30 visits
    feasible: bool  # whether some policy of the plug-in model meets the bounds


def coverage(log: Log, T: int, cmdp: CMDP, *, listed: int = 20) -> Coverage:
    """The coverage of a log with the plug-in model ``cmdp``; each list has at most `listed` places."""
    visits = log.visits(T)
    by_state = visits.sum(axis=0)
    known = ~log.terminal
    try:
        policy, feasible = solve_fully(cmdp).policy, True
    except Infeasible as infeasible:
        policy, feasible = infeasible.policy, False
    q = occupancy(cmdp, policy)
    uses = q if len(q) == T else q.sum(axis=0, keepdims=True)
    uses = np.where(known[:, None], uses, 0.0)
    few = (uses > NEGLIGIBLE) & (visits < FEW)
    missing = np.argwhere((by_state == 0) & known[:, None])
    missing = missing[np.argsort(-by_state.sum(axis=1)[missing[:, 0]], kind="stable")]
    places = np.argwhere(few)
    places = places[np.argsort(-uses[few], kind="stable")]
    return Coverage(
        transitions=len(log.s),
        episodes=log.episodes,
        pairs=int(known.sum()) * log.A,
        tried=int((by_state > 0).sum()),
        untried=tuple(
            Untried(log.states[s], log.action_names[a], int(by_state[s].sum())) for s, a in missing[:listed].tolist()
        ),
        thin=tuple(
            Thin(
                t + 1 if T > 1 else None,
                log.states[s],
                log.action_names[a],
                int(visits[t, s, a]),
                float(uses[t, s, a]),
            )
            for t, s, a in places[:listed].tolist()
        ),
        on_few=float(uses[few].sum() / max(float(uses.sum()), NEGLIGIBLE)),
        feasible=feasible,
    )
