"""What a policy is judged by: totals over H steps, discounted totals, long-run averages, totals until absorption."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.validate import Renamed, horizon_of

Kind = Literal["finite", "discounted", "average", "total"]


@dataclass(frozen=True)
class Criterion:
    """How rewards and signals of single steps become the value of a policy.

    "finite": the expected total over `horizon` steps. "discounted": the expected sum of discount^t times the signal of
    step t = 0, 1, ... "average": the long-run mean per step. "total": the expected total until absorption.
    """

    kind: Kind  # which of the four it is
    horizon: int | None = None  # number of steps, of "finite"
    discount: float | None = None  # weight of a step relative to the one before, of "discounted"

    stationary = Renamed("not has_horizon")
    steps = Renamed("steps_in_value")

    @property
    def has_horizon(self) -> bool:
        """Whether values count a given number of steps; otherwise one decision per state is enough."""
        return self.kind == "finite"

    @property
    def steps_in_value(self) -> float | None:
        """How many steps a value counts: a bound per step is multiplied by it. None for totals, where it varies."""
        if self.kind == "finite":
            return float(self.horizon or 0)
        if self.kind == "discounted":
            return 1.0 / (1.0 - float(self.discount or 0.0))
        return 1.0 if self.kind == "average" else None

    @property
    def in_words(self) -> str:
        """What values are, for a sentence."""
        words = {"finite": "totals over {0.horizon} steps", "discounted": "totals discounted by {0.discount:g}"}
        words |= {"average": "long-run averages", "total": "totals until absorption"}
        return words[self.kind].format(self)

    def __str__(self) -> str:
        if self.kind == "finite":
            return f"H={self.horizon}"
        return f"discount={self.discount:g}" if self.kind == "discounted" else self.kind


def criterion_of(horizon: Any, discount: Any, criterion: Any, lengths: Mapping[str, int]) -> Criterion:
    """The one criterion that is given; `lengths` are the steps that each array of the model tells apart."""
    given = {"horizon": horizon, "discount": discount, "criterion": criterion}
    named = [f"{key} = {quoted(x)}" for key, x in given.items() if x is not None]
    if len(named) > 1:
        raise CmdpkitError(
            f"{' and '.join(named)} are given, expected exactly one of horizon, discount and criterion; leave the "
            "others out"
        )
    if discount is not None:
        judged = Criterion("discounted", None, checked_discount(discount))
    elif criterion is not None:
        judged = Criterion(checked_name(criterion))
    else:
        return Criterion("finite", horizon_of(horizon, **lengths))
    for what, steps in lengths.items():
        if steps != 1:
            raise CmdpkitError(
                f"{what} has {steps} steps, but the criterion is {judged}, where nothing may depend on the step; make "
                "the step a part of the state, or give a horizon"
            )
    return judged


def checked_name(criterion: Any) -> Literal["average", "total"]:
    """The name of a criterion that needs no number."""
    if criterion == "average":
        return "average"
    if criterion == "total":
        return "total"
    raise CmdpkitError(
        f"criterion is {quoted(criterion)}, expected 'average' or 'total' (or give a horizon or a discount instead)"
    )


def checked_discount(discount: Any) -> float:
    """The discount as a number strictly between 0 and 1."""
    try:
        number = float("nan") if isinstance(discount, (bool, str, bytes)) else float(discount)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0.0 < number < 1.0:
        raise CmdpkitError(
            f"discount is {quoted(discount)}, expected a number above 0 and below 1 "
            "(criterion='average' for no discount)"
        )
    return number
