"""Records of earlier versions, converted to the present fields.

Schema 1 (version 0.1) kept changed bounds in the name of the environment, kept noise and the digest of the baseline
among the parameters, and did not record the code. `cl-pri` had a parameter `memory` once:
with "none" it is called `mf-pri` now, and so is `pri` with the preset `practical` of version 0.1.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from cmdpkit.learners.registry import current_name
from cmdpkit.records.record import Run

CHANGED_BOUND = re.compile(r" with (.+?) = (\S+)")


def key_of(table: dict[str, Any], schema: int) -> str:
    """The key under which a run was saved, by its schema."""
    if schema > 1:
        return Run(**table).key
    return hashlib.sha256(json.dumps(table, sort_keys=True).encode()).hexdigest()[:20]


def run_of(table: dict[str, Any], schema: int) -> Run:
    """The `Run` that was written with some schema."""
    params = dict(table["params"])
    if schema > 1:
        memory = params.pop("memory", None) if table["algo"] == "cl-pri" else None
        algo = table["algo"] if memory is None else current_name(table["algo"], table["preset"], memory)
        return Run(**{**table, "algo": algo, "params": params, "readings": tuple(table.get("readings", ()))})
    algo = current_name(table["algo"], table["preset"])
    env, bounds = split_bounds(table["env"])
    found = {"noise": params.pop("noise", "none"), "baseline": params.pop("baseline", "")}
    return Run(**{**table, "env": env, "algo": algo, "params": params}, bounds=bounds, **found)


def split_bounds(env: str) -> tuple[str, dict[str, float]]:
    """The environment in a name of schema 1, and the bounds that were changed.

    >>> split_bounds("paper/grid with cost = 0.3")
    ('paper/grid', {'cost': 0.3})
    >>> split_bounds("life with cats.json")
    ('life with cats.json', {})
    """
    source, _, _ = env.partition(" with ")
    found = CHANGED_BOUND.findall(env[len(source) :])
    if "".join(f" with {name} = {value}" for name, value in found) != env[len(source) :]:
        return env, {}
    try:
        return source, {name: float(value) for name, value in found}
    except ValueError:
        return env, {}
