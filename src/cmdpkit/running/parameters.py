"""Names that no parameter of an algorithm may have, because they ask for something else about a run."""

from __future__ import annotations

from collections.abc import Iterable

from cmdpkit.errors import CmdpkitError

# What `learn`, an experiment file or the command line call by these names, or an algorithm is told by the world.
RESERVED = frozenset(
    {
        "algo",
        "baseline",
        "baseline_utility",
        "bound",
        "bounds",
        "checkpoint",
        "constraints",
        "env",
        "episodes",
        "first_seed",
        "kind",
        "model",
        "noise",
        "out",
        "preset",
        "progress",
        "renormalise",
        "seed",
        "seeds",
        "slack",
        "spec",
        "threads",
    }
)


def check_parameters(names: Iterable[str]) -> None:
    """Refuse parameters with a reserved name."""
    for name in names:
        if name in RESERVED:
            raise CmdpkitError(
                f"{name} is not a parameter of an algorithm, but a setting of the whole run; give it beside the "
                "parameters, not among them"
            )
