"""What a request may not say: parameters with names of settings of the whole run, and readings outside of the run."""

from __future__ import annotations

from collections.abc import Iterable

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.validate import is_int

# These are settings of `learn`, of experiment files or of the command line, or facts that the world tells an algorithm.
# fmt: off
RESERVED = frozenset({
    "algo", "baseline", "baseline_utility", "bound", "bounds", "checkpoint", "constraints", "env", "episodes",
    "first_seed", "kind", "model", "noise", "out", "preset", "progress", "readings", "renormalise", "seed", "seeds",
    "slack", "spec", "threads",
})
# fmt: on


def check_parameters(names: Iterable[str]) -> None:
    """Refuse parameters with a reserved name."""
    for name in names:
        if name in RESERVED:
            raise CmdpkitError(
                f"{name} is not a parameter of an algorithm, but a setting of the whole run; give it beside the "
                "parameters, not among them"
            )


def check_readings(readings: Iterable[int], episodes: int) -> None:
    """Refuse readings of the curves at something else than an episode of the run."""
    for k in readings:
        if not is_int(k) or not 1 <= k <= episodes:
            raise CmdpkitError(
                f"readings has {k!r}: curves can be read after 1 to {episodes:,} episodes, the length of the run; give "
                "whole numbers in this range"
            )
