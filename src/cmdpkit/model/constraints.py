"""What a policy is judged by, and what it must keep to: the criterion, and constraints as users state them.

The criterion is the total over H steps, the discounted total, the long-run average, or the total until absorption.
`Scale` maps signals and totals to the unit interval and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted, shown
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.model.validate import Renamed, horizon_of, numbers, table

# -- criterion ---------------------------------------------------------------------------------------------------------

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
    if criterion not in ("average", "total"):
        raise CmdpkitError(
            f"criterion is {quoted(criterion)}, expected 'average' or 'total' (or give a horizon or a discount instead)"
        )
    return cast(Literal["average", "total"], criterion)


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


# -- constraints -------------------------------------------------------------------------------------------------------

Sense = Literal["at_least", "at_most"]
SENSES: dict[str, Sense] = {  # every way in which a sense may be written
    "at_least": "at_least",
    "at_most": "at_most",
    ">=": "at_least",
    "≥": "at_least",
    "<=": "at_most",
    "≤": "at_most",
}
LARGEST_BOUND = 1e200  # a larger one is taken for a mistake, unless the signal is as large


@dataclass(frozen=True, repr=False)
class Constraint:
    """A bound on an expected total: ``name`` stays at least (or at most) ``bound``.

    ``signal`` is what is added up: an array [S, A] or [H, S, A], or for `CMDP.from_function` a function of
    (state, action), to which ``h`` and ``s_next`` may be added. With ``per_step`` the bound is given per step. It is
    shown and changed per step too, and ``bound_on_total`` is what it means for the value by the model's criterion.

    ``range`` declares the smallest and the largest value that the signal can have in a single step. Promises from logs
    and learning in Gymnasium environments rest on it. A `CMDP` knows its signals: it checks that they lie in the
    declared range, and keeps no range.
    """

    name: str  # what the user calls the total
    sense: Sense  # "at_least" or "at_most"
    bound: float  # in the user's unit, which is per step if ``per_step``
    signal: Any = field(default=None, compare=False, repr=False)  # what is added up
    per_step: bool = False  # whether the bound is per step
    steps_in_value: float | None = field(default=None, compare=False)  # how many steps a value counts, from a model
    range: tuple[float, float] | None = field(default=None, compare=False)  # declared range of the signal

    total = Renamed("bound_on_total")
    steps = Renamed("steps_in_value")

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise CmdpkitError(
                f"a constraint's name must be a non-empty string, got {quoted(self.name)}; "
                "write at_most(name, bound, signal)"
            )
        if not isinstance(self.sense, str) or self.sense not in SENSES:
            raise CmdpkitError(
                f"constraint {quoted(self.name)}: sense is {quoted(self.sense)}, expected 'at_least' or 'at_most', "
                "which may be written '>=' and '<='"
            )
        object.__setattr__(self, "sense", SENSES[self.sense])
        try:
            if isinstance(self.bound, (str, bytes, bool)):
                raise TypeError
            object.__setattr__(self, "bound", float(self.bound))
        except (TypeError, ValueError, OverflowError):
            raise CmdpkitError(
                f"constraint {quoted(self.name)}: bound is {quoted(self.bound)}, expected a number"
            ) from None
        if not np.isfinite(self.bound):
            raise CmdpkitError(f"constraint {quoted(self.name)}: bound is {self.bound}, expected a finite number")
        if self.range is not None:
            object.__setattr__(self, "range", checked_range(self.name, self.range))

    def over(self, steps: float | None) -> Constraint:
        """The constraint of a model whose values count this many steps (None: they differ between runs)."""
        if not self.per_step:
            return self
        if steps is None:
            raise CmdpkitError(
                f"constraint {quoted(self.name)} is per step, but the criterion is 'total', where runs differ in "
                "length; give its bound for the total"
            )
        return replace(self, steps_in_value=steps)

    @property
    def scale(self) -> float:
        """How many units of the total one unit of the bound is: the steps of a bound per step, otherwise 1."""
        return (self.steps_in_value or 1.0) if self.per_step else 1.0

    @property
    def bound_on_total(self) -> float:
        """The bound on the value by the model's criterion; differs from ``bound`` where that is per step."""
        return self.bound * self.scale

    def without_range(self, ends: Iterable[FloatArray], allowed: BoolArray) -> Constraint:
        """The same constraint without its declared range, in which the signal has to lie where allowed.

        ``ends`` are its smallest and its largest values [T, S, A].
        """
        if self.range is None:
            return self
        low, high = self.range
        for signal in ends:
            outside = ((signal < low) | (signal > high)) & allowed
            if outside.any():
                x, place = np.broadcast_to(signal, outside.shape)[outside][0], np.argwhere(outside)[0].tolist()
                raise CmdpkitError(
                    f"signal of {quoted(self.name)} is {x:g} at [h, s, a] = {place}, outside of its declared range "
                    f"{low:g} to {high:g}; correct one of them"
                )
        return replace(self, range=None)

    def check_size(self, signal: FloatArray, steps: float) -> None:
        """Refuse a bound so far from every total of the signal [T, S, A] over these steps that differences overflow."""
        if abs(self.bound_on_total) <= LARGEST_BOUND:
            return
        largest = max(LARGEST_BOUND, 4 * steps * float(np.abs(signal).max()))
        if not abs(self.bound_on_total) <= largest:
            raise CmdpkitError(
                f"constraint {quoted(self.name)}: bound is {self.bound:g}{self.unit}, expected at most "
                f"{largest / self.scale:.3g} in size; leave a constraint out that is not to bind"
            )

    @property
    def sign(self) -> int:
        """+1 for "at least", -1 for "at most": sign * (what the user counts) is the utility."""
        return 1 if self.sense == "at_least" else -1

    @property
    def symbol(self) -> str:
        """The sign that is shown between the total and its bound."""
        return "≥" if self.sense == "at_least" else "≤"

    def __str__(self) -> str:
        return f"{shown(self.name)} {self.symbol} {self.bound:g}{self.unit}"

    @property
    def unit(self) -> str:
        """What is written after a number in the unit of the bound."""
        return " per step" if self.per_step else ""

    def __repr__(self) -> str:
        per_step = ", per_step=True" if self.per_step else ""
        return f"Constraint(name={self.name!r}, sense={self.sense!r}, bound={self.bound!r}{per_step})"


def checked_range(name: str, given: Any) -> tuple[float, float]:
    """The declared range of a signal: two finite numbers, the smaller one first."""
    try:
        low, high = (float(x) for x in given if not isinstance(x, (str, bytes, bool)))
        if np.isfinite([low, high]).all() and low < high:
            return low, high
    except (TypeError, ValueError, OverflowError):
        pass
    raise CmdpkitError(
        f"the range of {quoted(name)} is {quoted(given)}, expected the smallest and the largest value of a single "
        "step, such as range=(0, 1)"
    )


def at_least(
    name: str, bound: float, signal: Any = None, *, per_step: bool = False, range: tuple[float, float] | None = None
) -> Constraint:
    """A utility whose expected total must reach ``bound``, or ``bound`` per step.

    ``range`` declares the smallest and the largest value of the signal in a single step.

    >>> print(at_least("served", 3))
    served ≥ 3
    >>> print(at_least("served", 0.5, per_step=True))
    served ≥ 0.5 per step
    """
    return Constraint(name, "at_least", bound, signal, per_step, range=range)


def at_most(
    name: str, bound: float, signal: Any = None, *, per_step: bool = False, range: tuple[float, float] | None = None
) -> Constraint:
    """A cost whose expected total must not exceed ``bound``, or ``bound`` per step.

    ``range`` declares the smallest and the largest value of the signal in a single step.

    >>> print(at_most("backlog", 30))
    backlog ≤ 30
    """
    return Constraint(name, "at_most", bound, signal, per_step, range=range)


def listed(constraints: Any) -> tuple[Constraint, ...]:
    """Constraints as a tuple; raises CmdpkitError if one of them is something else."""
    if not isinstance(constraints, Iterable):
        raise CmdpkitError(f"constraints is {quoted(constraints)}, expected a list of at_least(...) and at_most(...)")
    made = tuple(constraints)
    for c in made:
        if not isinstance(c, Constraint):
            raise CmdpkitError(f"constraints must be at_least(...) or at_most(...), got {quoted(c)}")
    return made


def signal_names(constraints: Iterable[Constraint]) -> list[str]:
    """What signals are called: "reward", and the names of the constraints, of which one may be called reward too."""
    return ["reward", *("reward (constraint)" if c.name == "reward" else c.name for c in constraints)]


def read_constraints(
    g: Any, rho: Any, constraints: Iterable[Constraint] | None, shape: tuple[int, ...]
) -> tuple[tuple[Constraint, ...], list[FloatArray]]:
    """Constraints without signals, and their signals [1 or H, S, A], from g and rho, from constraints, or from both."""
    if constraints is None:
        if (g is None) != (rho is None):
            raise CmdpkitError("g is given without rho" if rho is None else "rho is given without g")
        if g is None:
            return (), []
        rho = numbers("rho", rho)
        if rho.ndim > 1:
            raise CmdpkitError(f"rho has shape {rho.shape}, expected one bound or one per signal")
        if rho.ndim == 0:
            g, rho = [g], [rho]
        names = ["utility"] if len(rho) == 1 else [f"utility {n + 1}" for n in range(len(rho))]
        made = tuple(at_least(name, bound) for name, bound in zip(names, rho, strict=True))
    else:
        made = listed(constraints)
        if rho is not None:
            raise CmdpkitError("give bounds either in rho or in constraints, not in both")
        if g is None:
            g = [c.signal for c in made]
    if not isinstance(g, (Sequence, np.ndarray)) or (isinstance(g, np.ndarray) and g.ndim == 0):
        raise CmdpkitError(f"g is {quoted(g)}, expected one signal per bound")
    if len(g) != len(made):
        raise CmdpkitError(f"g has {len(g)} signals for {len(made)} bounds")
    seen: set[str] = set()
    for c, signal in zip(made, g, strict=True):
        if c.name in seen:
            raise CmdpkitError(f"two constraints are called {quoted(c.name)}; their names must differ")
        seen.add(c.name)
        if signal is None or callable(signal):
            raise CmdpkitError(
                f"constraint {quoted(c.name)} needs a signal array (S, A) or (H, S, A); give it as the third argument, "
                f"{c.sense}({c.name!r}, {c.bound:g}, signal)"
            )
    signals = [table(f"signal of {quoted(c.name)}", x) for c, x in zip(made, g, strict=True)]
    for c, x in zip(made, signals, strict=True):
        if x.shape[-2:] != shape[-2:]:
            raise CmdpkitError(
                f"signal of {quoted(c.name)} has shape {x.shape}, expected {shape[-2:]} or (H, *{shape[-2:]})"
            )
    return tuple(replace(c, signal=None) for c in made), signals


# -- units ------------------------------------------------------------------------------------------------------------


class Scale(NamedTuple):
    """An affine map between a per-step signal in the user's units and the unit interval learners work in."""

    low: float  # the smallest value of the signal, which becomes 0
    span: float  # the largest minus the smallest value

    def to_unit(self, x: Any) -> Any:
        """Per-step signal -> [0, 1]."""
        return (x - self.low) / self.span

    def total_to_unit(self, total: Any, H: int) -> Any:
        """A total over H steps, from the user's units."""
        return (total - H * self.low) / self.span

    def total_from_unit(self, total: Any, H: float) -> Any:
        """A total over H steps, or over steps whose weights add up to H, back to the user's units."""
        return total * self.span + H * self.low


def scale_of(allowed: BoolArray, *signals: FloatArray) -> Scale:
    """The scale of signals [1 or H, S, A] over the actions that exist; the identity if they lie in [0, 1]."""
    shape = np.broadcast_shapes(allowed.shape, *(x.shape for x in signals))
    values = [np.broadcast_to(x, shape)[np.broadcast_to(allowed, shape)] for x in signals]
    low, high = min(float(x.min()) for x in values), max(float(x.max()) for x in values)
    if low >= 0 and high <= 1:
        return Scale(0.0, 1.0)
    return Scale(low, high - low if high > low else 1.0)
