"""Warnings about bounds and amounts of utilities, with their figures, so that they can be told in the user's units."""

from __future__ import annotations

IMPOSSIBLE = ": the bound may be impossible, or there are too few episodes to learn to meet it"
POSSIBLE = ": the bound can be met, as the optimum does, but not by what was learned in so many episodes"


class BoundWarning(str):
    """A sentence of a learner about a bound, which keeps its figures.

    The ``template`` may contain ``{constraint}``, ``{by}`` (a shortfall per episode) and ``{price}``. A learner knows
    neither names nor units: read as a plain text, the sentence counts constraints from 1 and speaks in unit scale.
    With ``doubtful`` it ends with the suspicion that the bound cannot be met, unless it is known that it can. With
    ``patience`` it says that a longer run would have done better, which is left unsaid if the world changed meanwhile.

    >>> BoundWarning("{constraint} is short by {by}", 0, by=0.25)
    'constraint 1 is short by 0.25 (unit scale): the bound may be impossible, or there are too few episodes ...'
    >>> BoundWarning("{constraint} is short by {by}", 0, by=0.25).told("falls ≤ 3", by=7.5, possible=False)[:27]
    'falls ≤ 3 is short by 7.5: '
    """

    template: str  # the sentence, with placeholders
    constraint: int | None  # index of the constraint, or None where the sentence is about all of them
    by: float  # the shortfall per episode, in unit scale
    price: float  # the price of the constraint, in unit scale
    doubtful: bool  # whether to add the suspicion that the bound cannot be met
    patience: bool  # whether it puts a miss down to the length of the run

    def __new__(
        cls,
        template: str,
        constraint: int | None = None,
        *,
        by: float = 0.0,
        price: float = 0.0,
        doubtful: bool = True,
        patience: bool = False,
    ) -> BoundWarning:
        """The sentence in unit scale."""
        name = "a constraint" if constraint is None else f"constraint {constraint + 1}"
        said = template.format(constraint=name, by=f"{by:.3g} (unit scale)", price=f"{price:.3g} (unit scale)")
        self = super().__new__(cls, said + (IMPOSSIBLE if doubtful else ""))
        self.template, self.constraint, self.by, self.price = template, constraint, by, price
        self.doubtful, self.patience = doubtful, patience
        return self

    def told(self, constraint: str, by: float = 0.0, price: float = 0.0, *, possible: bool | None) -> str:
        """The sentence with the name of the constraint and figures in the user's units.

        ``possible`` says whether the bound is known to be possible; None leaves the suspicion unsaid.
        """
        said = self.template.format(constraint=constraint, by=f"{by:.3g}", price=f"{price:.3g}")
        return said + ("" if not self.doubtful or possible is None else POSSIBLE if possible else IMPOSSIBLE)


class UtilityAmount(float):
    """A part of a utility's total in a learner's explanation, which keeps its constraint.

    A learner knows no units: read as a plain number, it is in unit scale. Records give it in the user's units.
    """

    constraint: int  # index of the constraint

    def __new__(cls, amount: float, constraint: int) -> UtilityAmount:
        """The amount in unit scale."""
        self = super().__new__(cls, amount)
        self.constraint = constraint
        return self
