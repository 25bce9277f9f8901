"""Which class an algorithm is: a name of the folder, "package.module:Class", a name that a package offers, or a class.

A package offers learners by entry points of the group ``cmdpkit.learners``; the names of our own come first.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, cast

from cmdpkit import learners
from cmdpkit.errors import CmdpkitError
from cmdpkit.io.references import is_reference, referenced

GROUP = "cmdpkit.learners"


def resolve(algo: Any) -> type[learners.Learner]:
    """The class of an algorithm.

    >>> resolve("triple-q") is resolve("cmdpkit.learners.triple_q:Learner")
    True
    """
    if isinstance(algo, type):
        return cast("type[learners.Learner]", algo)
    if not isinstance(algo, str):
        raise CmdpkitError(f"algo is {algo!r}, expected the name of an algorithm, 'module:Class' or a class")
    if algo in learners.names():
        return learners.load(algo)
    for offered in entry_points(group=GROUP, name=algo):
        return cast("type[learners.Learner]", offered.load())
    if not is_reference(algo):
        return learners.load(algo)  # which says what is near
    found = referenced(algo, "algorithm")
    if not isinstance(found, type):
        raise CmdpkitError(f"{algo!r} is a {type(found).__name__}, expected a class, the learner")
    return cast("type[learners.Learner]", found)


def name_of(kind: type) -> str:
    """What a record calls a class: the name of the folder, or "package.module:Class".

    >>> name_of(resolve("opt-dual"))
    'opt-dual'
    """
    prefix = f"{learners.__name__}."
    name = kind.__module__.removeprefix(prefix).replace("_", "-")
    if kind.__module__.startswith(prefix) and name in learners.names():
        return name
    return f"{kind.__module__}:{kind.__qualname__}"


def current_name(algo: str, preset: str) -> str:
    """The name today of an algorithm in a record of version 0.1."""
    return algo
