"""Types in what a learner explains about its run, which `cmdpkit.running` puts into the user's names and units."""

from __future__ import annotations

from typing import Any

import numpy as np

from cmdpkit.model.transitions import FloatArray, IntArray


class StateIndex(int):
    """The number of a state, from 0; a user reads its name."""


class ActionIndex(int):
    """The number of an action, from 0; a user reads its name."""


class UnitTotals(list[float]):
    """One total per constraint in unit scale; a user reads them in the units of the bounds."""


def decisions(
    reach: FloatArray, pi: FloatArray, visits: FloatArray | IntArray, *, least: float = 1e-3, shown: int = 5
) -> dict[str, list[dict[str, Any]]]:
    """The stochastic decisions of pi, and the actions in use that were taken most rarely, at most `shown` of these.

    States that fewer than a share `least` of the episodes reach [H, S] are left out; steps count from 1. Where all
    steps share their counts visits [T, S, A], a pair is named once.
    """
    reached, (T, *_) = reach > least, visits.shape

    def place(h: int, s: int, a: int, of_step: bool = True) -> dict[str, Any]:
        return ({"step": h + 1} if of_step else {}) | {"state": StateIndex(s), "action": ActionIndex(a)}

    drawn = [
        place(h, s, a) | {"probability": float(pi[h, s, a])}
        for h, s in np.argwhere(((pi > 0).sum(axis=-1) > 1) & reached).tolist()
        for a in np.flatnonzero(pi[h, s]).tolist()
    ]
    used, rarest = (pi > 0) & reached[..., None], dict[tuple[int, ...], dict[str, Any]]()
    times = np.broadcast_to(visits, pi.shape)
    for h, s, a in np.argwhere(used)[np.argsort(times[used], kind="stable")].tolist():
        rarest.setdefault((h % T, s, a), place(h, s, a, T > 1) | {"times tried": int(times[h, s, a])})
        if len(rarest) == shown:
            break
    return {"stochastic decisions": drawn, "actions in use that were tried least": list(rarest.values())}
