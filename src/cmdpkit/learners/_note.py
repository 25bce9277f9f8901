"""What learners have to say about bounds, as data, and the sentences for it.

A learner knows neither names nor units. So it returns a `Note` with its figures in unit scale, and `told` puts it into
the words, names and units of the user (`cmdpkit.running.playing`). What has no units is a plain text from the start.

The internals of a learner have types too, which the same room puts into names and units.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cmdpkit.model.transitions import FloatArray, IntArray

IMPOSSIBLE = ": the bound may be impossible, or there are too few episodes to learn to meet it"
POSSIBLE = ": the bound can be met, as the optimum does, but not by what was learned in so many episodes"


class Wording(NamedTuple):
    """The sentence for a kind of note."""

    text: str  # may contain {constraint}, {by}, {price} and {figure}
    doubtful: bool = False  # whether to add the suspicion that the bound cannot be met, unless it is known that it can
    patience: bool = False  # whether it puts a miss down to the length of the run; left unsaid if the world has changed


WORDING = {
    "no plan": Wording("in no model that the data allow does a policy meet all bounds", doubtful=True),
    "no plan for a bound": Wording(
        "in the model that the counts suggest no policy meets all bounds: the best compromise misses {constraint} by "
        "{by} per episode",
        doubtful=True,
    ),
    "not cleared": Wording(
        "the returned policy may miss {constraint} by up to {by}: clearing it by the whole margin for the policy's "
        "own error was out of reach or cost too much, and more episodes would narrow that margin"
    ),
    "missed": Wording("{constraint} is missed by {by} per episode, at a price of {price} per unit", doubtful=True),
    "missed on average": Wording(
        "{constraint} is missed by {by} per episode on average over {figure} episodes, at a price of {price} per unit",
        doubtful=True,
    ),
    "exploration not repaid": Wording(
        "{constraint} was missed by {by} per episode in what was realised: the episodes did not suffice to repay what "
        "exploration had cost; more episodes would repay it",
        patience=True,
    ),
    "too dear to repay": Wording(
        "{constraint} was missed by {by} per episode in what was realised, and this was not repaid: every unit would "
        "have cost {price} of reward, which is more than the parameter repay_price allows; raise it to have debts "
        "repaid"
    ),
    "repaid dearly": Wording(
        "repaying the shortfall on {constraint} costs {price} of reward per unit; a lower repay_price "
        "would leave it unpaid"
    ),
    "price at its limit": Wording("the price of {constraint} is at its limit lam_max = {figure:g}", doubtful=True),
    "pruned too far": Wording("the policies left by pruning miss {constraint} by {by} per episode", doubtful=True),
}


class Note(NamedTuple):
    """A finding of a learner about a bound, in unit scale; as a text it counts constraints from 1.

    >>> str(Note("missed", 0, by=0.25, price=2.0))
    'constraint 1 is missed by 0.25 (unit scale) per episode, at a price of 2 (unit scale) per unit: the bound may ...'
    >>> Note("missed", 0, by=0.25).told("falls ≤ 3", by=7.5, price=1.2, possible=None)
    'falls ≤ 3 is missed by 7.5 per episode, at a price of 1.2 per unit'
    """

    kind: str  # which sentence of WORDING it is
    constraint: int | None = None  # index of the constraint, or None where the sentence is about all of them
    by: float = 0.0  # the shortfall per episode
    price: float = 0.0  # reward per unit of the constraint
    figure: float = 0.0  # one more number, without a unit

    def __str__(self) -> str:
        name = "a constraint" if self.constraint is None else f"constraint {self.constraint + 1}"
        return self._filled(name, f"{self.by:.3g} (unit scale)", f"{self.price:.3g} (unit scale)", possible=False)

    @property
    def patience(self) -> bool:
        """Whether the note puts a miss down to the length of the run."""
        return WORDING[self.kind].patience

    def told(self, constraint: str, by: float = 0.0, price: float = 0.0, *, possible: bool | None) -> str:
        """The sentence with the name of the constraint and figures in the user's units.

        ``possible`` says whether the bound is known to be possible; None leaves the suspicion unsaid.
        """
        return self._filled(constraint, f"{by:.3g}", f"{price:.3g}", possible)

    def _filled(self, constraint: str, by: str, price: str, possible: bool | None) -> str:
        wording = WORDING[self.kind]
        said = wording.text.format(constraint=constraint, by=by, price=price, figure=self.figure)
        return said + ("" if not wording.doubtful or possible is None else POSSIBLE if possible else IMPOSSIBLE)


def notes_above(kind: str, by: FloatArray, least: float, prices: FloatArray | None = None) -> list[Note]:
    """A note for every bound whose figure, by [N], is above a limit, with prices [N] if there are any."""
    found = np.flatnonzero(by > least)
    return [Note(kind, int(n), by=float(by[n]), price=0.0 if prices is None else float(prices[n])) for n in found]


# -- Types in the internals of a learner.


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
