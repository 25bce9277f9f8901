"""Numbers that remember with how many decimals they were written, so that rounding can be told from a mistake."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from cmdpkit.model.transitions import ROW_SUM_TOLERANCE


class Written(float):
    """A number with the text it was read from.

    >>> Written("0.330").decimals, Written("2.5e-3").decimals, Written("1e3").decimals
    (3, 4, 0)
    """

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def decimals(self) -> int:
        """Digits after the point."""
        exponent = Decimal(self.text).as_tuple().exponent
        return max(0, -exponent) if isinstance(exponent, int) else 0


def rule_of(tolerance: float) -> str:
    """The rule for a sum of probabilities, for messages."""
    more = f" (or off by less than {tolerance:.3g}, as rounding explains)" if tolerance > ROW_SUM_TOLERANCE else ""
    return f"expected 1 within {ROW_SUM_TOLERANCE:g}{more}"


def tolerance_of(values: Iterable[Any]) -> float:
    """How far from 1 the sum of probabilities may be, if each was rounded to the decimals of the most precise one.

    That is less than half a unit in the last place for each of them. Zeros and whole numbers count as exact, and so do
    numbers that were not read from text.

    >>> [round(tolerance_of(map(Written, row)), 6) for row in (["0.33"] * 3, ["0.5", "0.4"], ["1", "0"])]
    [0.015, 0.1, 0.0]
    """
    decimals = [x.decimals for x in values if isinstance(x, Written) and x != 0.0 and x.decimals > 0]
    if not decimals:
        return ROW_SUM_TOLERANCE
    just_below = 1 - 1e-9  # a row that misses by the whole of it was not rounded to the nearest
    return max(ROW_SUM_TOLERANCE, just_below * len(decimals) * 0.5 * 10.0 ** -max(decimals))
