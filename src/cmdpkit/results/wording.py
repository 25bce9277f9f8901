"""Names and numbers as people read them: six significant digits, aligned columns, percentages, ranges of steps."""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from cmdpkit.errors import shown
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.policy import Decision
from cmdpkit.model.validate import Name, written_name

MOST_LISTED = 1_000  # names in a list of JSON
FIRST_SHORTENED = 1e4  # from here on `compact` counts in thousands

label = shown  # a name that cannot disturb a terminal


def titled(what: str, name: Name) -> str:
    """A name that stands in a sentence.

    >>> titled("state", 3), titled("state", "empty")
    ('state 3', 'empty')
    """
    return f"{what} {name}" if isinstance(name, int) else label(name)


def counted(n: int, noun: str) -> str:
    """How many there are.

    >>> counted(1, "state"), counted(1200, "state")
    ('1 state', '1,200 states')
    """
    return f"{n:,} {noun}{'s' * (n != 1)}"


def number(x: float) -> str:
    """Six significant digits.

    >>> number(1.5730628631), number(-0.0), number(math.inf)
    ('1.57306', '0', '∞')
    """
    return f"{x + 0.0:.6g}" if math.isfinite(x) else "∞" if x > 0 else "-∞"


def rounded_off(x: float, direction: int) -> str:
    """Six significant digits, rounded up (direction 1) or down (-1) unless the difference is due to rounding.

    >>> rounded_off(2 / 3, -1), rounded_off(2 / 3, 1), rounded_off(-2 / 3, -1), rounded_off(0.5 - 1e-11, -1)
    ('0.666666', '0.666667', '-0.666667', '0.5')
    """
    nearest = f"{x:.6g}"
    if abs(float(nearest) - x) <= 1e-9 * abs(x):
        return nearest
    rounding = decimal.ROUND_CEILING if direction > 0 else decimal.ROUND_FLOOR
    return f"{decimal.Context(6, rounding).create_decimal(x):.6g}".removesuffix(".0")


def bounded(c: Constraint) -> str:
    """The bound of a constraint, without its name: on the value, and per step where it was given so.

    >>> from cmdpkit.model.constraints import at_most
    >>> bounded(at_most("cost", 3)), bounded(at_most("cost", 1.05, per_step=True).over(52.0))
    ('≤ 3', '≤ 54.6, 1.05 per step')
    """
    total = f"{number(c.bound_on_total)}, " if c.scale != 1 else ""
    return f"{c.symbol} {total}{number(c.bound)}{c.unit}"


def short(x: float, digits: int = 4) -> str:
    """A few significant digits, thousands apart.

    >>> short(1234567.0), short(-62.4251), short(0.01234, 3), short(-0.0)
    ('1,235,000', '-62.43', '0.0123', '0')
    """
    rounded = float(f"{x:.{digits}g}") + 0.0
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:.{digits}g}"


def compact(x: float, digits: int) -> str:
    """A few significant digits, thousands and millions by their letter, for rows of many numbers.

    >>> [compact(x, 3) for x in (0.01234, 271.8, -62420.0, 1234567.0)]
    ['0.0123', '272', '-62.4k', '1.23M']
    """
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= max(unit, FIRST_SHORTENED):
            return short(x / unit, digits) + letter
    return short(x, digits)


def aligned(xs: Iterable[float]) -> list[str]:
    """The numbers of one column: the largest has six significant digits, all have the same number of decimals.

    >>> aligned([5.646447, 4.355878, 0.5])
    ['5.64645', '4.35588', '0.50000']
    >>> aligned([6.0, 20.0, math.inf])
    ['6', '20', '∞']
    """
    xs = [float(x) for x in xs]
    finite = [x for x in xs if math.isfinite(x)]
    top = max(map(abs, finite), default=0.0)
    if not 1e-5 <= top < 1e9:
        return [number(x) for x in xs]
    decimals = max(0, 5 - math.floor(math.log10(top)))
    while decimals and all(round(x, decimals) == round(x, decimals - 1) for x in finite):
        decimals -= 1
    return [f"{round(x, decimals) + 0.0:.{decimals}f}" if math.isfinite(x) else number(x) for x in xs]


def percent(p: float) -> str:
    """A probability with four digits; what is not certain is never shown as 100 %.

    >>> percent(0.27382), percent(0.5), percent(0.999999999)
    ('27.38 %', '50 %', '> 99.99 %')
    """
    text = f"{100 * p:.4g}"
    return "> 99.99 %" if text == "100" and p < 1 else f"{text} %"


def odds(probabilities: Mapping[Name, float]) -> str:
    """What a stochastic decision draws from.

    >>> odds({"up": 0.25, "down": 0.75})
    '25 % up, 75 % down'
    """
    return ", ".join(f"{percent(p)} {titled('action', a)}" for a, p in probabilities.items())


def drawn(decision: Decision) -> str:
    """A stochastic decision: where it is, and what it draws from; without a horizon there is no step.

    >>> drawn(Decision(2, "low", {"up": 0.25, "down": 0.75}))
    'step 2, low: 25 % up, 75 % down'
    """
    step = "" if decision.step is None else f"step {decision.step}, "
    return f"{step}{titled('state', decision.state)}: {odds(decision.probabilities)}"


def sizes(cmdp: CMDP) -> list[str]:
    """How many states, actions and constraints a model has."""
    found = [counted(n, noun) for n, noun in ((cmdp.S, "state"), (cmdp.A, "action"), (cmdp.N, "constraint"))]
    if not cmdp.compact.allowed.all():
        found[1] += " (not all of them everywhere)"
    return found


def listed(names: Sequence[Name]) -> list[str | int]:
    """Names for JSON, at most 1,000 of them."""
    return [written_name(name) for name in names[:MOST_LISTED]]


def ranges(steps: Iterable[int]) -> str:
    """Ascending numbers, neighbours joined.

    >>> ranges([1, 2, 3, 5, 7, 8])
    '1–3, 5, 7–8'
    """
    runs = [[x for _, x in run] for _, run in groupby(enumerate(steps), key=lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def duration(seconds: float) -> str:
    """A time a person can judge.

    >>> duration(0.0056), duration(3.549)
    ('6 ms', '3.5 s')
    """
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
