"""The model behind a record: records carry what analysis needs, but a board or a price curve needs the model."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cmdpkit.io.loading import load
from cmdpkit.model.cmdp import CMDP
from cmdpkit.records.record import Run

CHANGED = re.compile(r" with (.+?) = (\S+)")


def source_of(env: str) -> tuple[str, dict[str, float]]:
    """What to load, and the bounds that were changed afterwards.

    >>> source_of("paper/grid with cost = 0.3")
    ('paper/grid', {'cost': 0.3})
    """
    source, _, _ = env.partition(" with ")
    changed = env[len(source) :]
    found = CHANGED.findall(changed)
    if "".join(f" with {name} = {value}" for name, value in found) != changed:
        return env, {}
    try:
        return source, {name: float(value) for name, value in found}
    except ValueError:
        return env, {}


def model_of(run: Run, models: Mapping[str, CMDP] | None = None) -> CMDP | None:
    """The model a run was made on: one that is given, or loaded by its name; None unless it is certainly the same."""
    if not run.fingerprint:
        return None
    cmdp = (models or {}).get(run.env)
    if cmdp is None:
        source, bounds = source_of(run.env)
        try:
            cmdp = load(source).with_bounds(**bounds)
        except (ValueError, OSError):  # a file that moved, a name made up for a model in memory
            return None
    return cmdp if cmdp.fingerprint() == run.fingerprint else None
