"""Figures published elsewhere beside those measured here, and the rules by which each pair is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from cmdpkit.model.transitions import FloatArray
from cmdpkit.results.statistics import Estimate, estimate
from cmdpkit.results.wording import counted

NEGLIGIBLE_DIFFERENCE = 0.05  # of a regret, relative to the published one

Kind = Literal["regret", "violation", "realised violation", "value", "count"]


class Verdict(NamedTuple):
    """What is said of a pair of figures, and whether the measured one is as published or better."""

    text: str
    agrees: bool


@dataclass(frozen=True)
class Row:
    """One figure: what was published, what came out, and on which assumptions."""

    env: str
    algo: str  # with its preset
    quantity: str
    published: float
    measured: Estimate
    verdict: Verdict
    assumptions: tuple[str, ...]  # sentences

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Row:
        """The inverse of `to_dict`."""
        low, high = table["interval"] or (None, None)
        return cls(
            env=table["env"],
            algo=table["algo"],
            quantity=table["quantity"],
            published=table["published"],
            measured=Estimate(table["measured"], low, high, table["seeds"]),
            verdict=Verdict(table["verdict"], table["agrees"]),
            assumptions=tuple(table["assumptions"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "env": self.env,
            "algo": self.algo,
            "quantity": self.quantity,
            "published": self.published,
            "measured": self.measured.mean,
            "interval": None if self.measured.low is None else [self.measured.low, self.measured.high],
            "seeds": self.measured.n,
            "verdict": self.verdict.text,
            "agrees": self.verdict.agrees,
            "assumptions": list(self.assumptions),
        }


def numbered(rows: Iterable[Row]) -> dict[str, int]:
    """The assumptions of all rows and their numbers, from 1, in the order in which a reader meets them."""
    return {text: i for i, text in enumerate(dict.fromkeys(x for row in rows for x in row.assumptions), 1)}


# -- verdicts ----------------------------------------------------------------------------------------------------------

AS_PUBLISHED = Verdict("as published", True)


def judged(kind: Kind, published: float, values: FloatArray, digits: float) -> Verdict:
    """The verdict on what the runs gave ([seeds]); ``digits`` is half a unit of the last digit that was published."""
    return _RULES[kind](published, values, digits)


def _regret(published: float, values: FloatArray, digits: float) -> Verdict:
    measured = estimate(values)
    share = measured.mean / published
    if _covers(measured, published, digits) or abs(share - 1) <= NEGLIGIBLE_DIFFERENCE:
        return AS_PUBLISHED
    percent = "under 1 %" if share < 0.01 else f"{100 * share:.0f} %"
    return Verdict(f"better: {percent}", True) if share < 1 else Verdict(f"worse: {percent}", False)


def _violation(_published: float, values: FloatArray, _digits: float) -> Verdict:
    measured = estimate(values)
    low, high = (measured.mean, measured.mean) if measured.low is None else (measured.low, measured.high)
    if high <= 0:
        return Verdict("bound kept", True)
    return Verdict("bound missed" if low > 0 else "undecided", False)


def _realised(_published: float, values: FloatArray, _digits: float) -> Verdict:
    """What was realised is certain, so there is no interval: every run has kept the bound or missed it."""
    kept = int((values <= 0).sum())
    return Verdict(f"kept in {kept} of {counted(len(values), 'run')}", kept == len(values))


def _value(published: float, values: FloatArray, digits: float) -> Verdict:
    measured = estimate(values)
    if abs(measured.mean - published) <= digits:
        return AS_PUBLISHED
    if _covers(measured, published, digits):
        return Verdict("as published (interval)", True)
    return Verdict(f"differs by {measured.mean - published:+.2g}", False)


def _count(published: float, values: FloatArray, _digits: float) -> Verdict:
    difference = float(values.mean()) - published
    return AS_PUBLISHED if difference == 0 else Verdict(f"differs by {difference:+.4g}", False)


def _covers(measured: Estimate, published: float, digits: float) -> bool:
    if measured.low is None:
        return bool(abs(measured.mean - published) <= digits)
    return bool(measured.low - digits <= published <= measured.high + digits)


_RULES: dict[Kind, Callable[[float, FloatArray, float], Verdict]] = {
    "regret": _regret,
    "violation": _violation,
    "realised violation": _realised,
    "value": _value,
    "count": _count,
}
