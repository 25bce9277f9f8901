"""When a run of unknown length stops: after so many episodes, steps or seconds, or when its certificate says enough.

Seconds are looked at several times a second. All other rules are looked at only where curves are read, so that the same
request stops at the same episode or step on every machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.validate import check_length, is_int
from cmdpkit.running.active import Progress

SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}  # units of time
TIME = re.compile(rf"([0-9.]+(?:e[0-9]+)?) ?({'|'.join(SECONDS)})")
WIDTH = re.compile(r"width ?= ?([0-9.]+(?:e[+-]?[0-9]+)?)")
EXPECTED = 'a number of episodes or steps, a time such as "60s" or "2h", "certified", "width=0.1", or a function'

Asked = int | str | Callable[[Progress], bool]  # what a user may give as stop=


@dataclass(frozen=True)
class Stop:
    """When to stop; exactly one of the three is given."""

    episodes: int | None = None  # after so many episodes (or steps, without episodes) of the whole run
    seconds: float | None = None  # after so many seconds of learning
    rule: Callable[[Progress], bool] | None = None  # when this returns True
    certified: bool = False  # whether a policy is wanted that its certificate can call safe
    proved: bool = False  # whether the rule needs a certificate that holds whenever the run is stopped


def stop_of(asked: Asked) -> Stop:
    """The rule that a user asks for; see `cmdpkit.learn`."""
    if callable(asked):
        return Stop(rule=asked)
    if not isinstance(asked, str):
        if not is_int(asked) or asked < 1:
            raise CmdpkitError(f"stop is {asked!r}, expected {EXPECTED}; a number must be whole and at least 1")
        return Stop(episodes=check_length("stop", asked))
    text = asked.strip()
    if text == "certified":
        return Stop(rule=is_certified, certified=True, proved=True)
    time, width = TIME.fullmatch(text), WIDTH.fullmatch(text)
    if time is not None:
        return Stop(seconds=_positive(asked, time[1]) * SECONDS[time[2]])
    if width is not None:
        return Stop(rule=narrower_than(_positive(asked, width[1])), proved=True)
    episodes = _number(text)
    if episodes is None or not episodes.is_integer() or episodes < 1:
        raise CmdpkitError(f"stop is {asked!r}, expected {EXPECTED}")
    return Stop(episodes=check_length("stop", int(episodes)))


def is_certified(at: Progress) -> bool:
    """Whether the certificate of the policy says that every bound is kept."""
    found = at.certificate()
    return found is not None and len(found.safe) > 0 and all(x is True for x in found.safe)


def narrower_than(width: float) -> Callable[[Progress], bool]:
    """A rule that stops when no interval of the certificate is wider than this, each in its own units."""

    def narrow(at: Progress) -> bool:
        found = at.certificate()
        return found is not None and all(high - low <= width for low, high in (found.value, *found.utilities))

    return narrow


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _positive(asked: str, text: str) -> float:
    number = _number(text)
    if number is None or number <= 0:
        raise CmdpkitError(f"stop is {asked!r}, expected {EXPECTED}, with a number above 0")
    return number
