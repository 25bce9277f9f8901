"""From the tables of an experiment, in TOML or in Python, to checked values.

Every reader takes a `Located` value, so that an error names the file, the line, the key, the value and the rule. All
mistakes are told at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Any

from cmdpkit.errors import quoted
from cmdpkit.io.formats.source import Located, Mistakes
from cmdpkit.learners.registry import check_name
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.validate import MAX_EPISODES, MAX_SEED, is_int, nearest
from cmdpkit.running.request import check_parameters

MAX_RUNS = 1_000_000  # of an experiment; a larger number is taken for a mistake

Settings = dict[str, list[Any]]  # by name, the values that are tried


def read_fields(
    table: Located, readers: Mapping[str, Callable[[Located], Any]], required: Sequence[str], mistakes: Mistakes
) -> dict[str, Any]:
    """The values of a table, each read by the reader of its key; keys whose value is None are left out.

    Mistakes are kept for later, so that all of them are told.
    """
    found = {}
    given = [name for name, x in table.value.items() if x is not None]
    for name in given:
        with mistakes.noting():
            if name not in readers:
                table.fail(f"unknown key {quoted(name)}{nearest(name, readers)}", name)
            found[name] = readers[name](table.at(name))
    for name in required:
        if name not in given:
            with mistakes.noting():
                table.fail(f"{quoted(name)} is missing")
    return found


# -- readers of single values ------------------------------------------------------------------------------------------


def of_type(kind: type | UnionType, rule: str) -> Callable[[Located], Any]:
    """A reader of values of a type."""

    def read(node: Located) -> Any:
        node.expect(isinstance(node.value, kind), rule)
        return node.value

    return read


model = of_type(str | CMDP, "an environment, a file or a model")


def folder_name(node: Located) -> str:
    """A text that can be the name of a folder."""
    node.expect(isinstance(node.value, str) and bool(re.fullmatch(r"\w[\w.-]*", node.value)), "letters, digits, . _ -")
    return str(node.value)


def whole(low: int, high: int) -> Callable[[Located], int]:
    """A reader of whole numbers from low to high; a float will do if it is whole, because TOML reads 8e6 as a float."""

    def read(node: Located) -> int:
        value = _whole_if_float(node.value)
        node.expect(is_int(value) and low <= value <= high, f"a whole number from {low} to {high:,}")
        return int(value)

    return read


def _whole_if_float(x: Any) -> Any:
    return int(x) if isinstance(x, float) and x.is_integer() else x


length = whole(1, MAX_EPISODES)  # episodes or steps


def one_of(*choices: str) -> Callable[[Located], str]:
    """A reader of one of several words."""

    def read(node: Located) -> str:
        node.expect(node.value in choices, " or ".join(map(repr, choices)))
        return str(node.value)

    return read


def seeds(node: Located) -> tuple[int, ...]:
    """A list of seeds, or how many there are, counted from 0."""
    many = _whole_if_float(node.value)
    if is_int(many):
        if not 1 <= many <= MAX_RUNS:
            limit = "at least 1 seed" if many < 1 else f"at most {MAX_RUNS:,}"
            node.fail(f"{quoted(many)} seeds are asked for, expected {limit}")
        return tuple(range(many))
    return tuple(whole(0, MAX_SEED)(entry) for entry in node.entries("a list of seeds, or how many there are"))


def lengths(node: Located) -> list[int]:
    """A list of episodes or steps, which may be empty."""
    return [length(entry) for entry in node.entries()] if node.value else []


def presets(node: Located) -> list[str]:
    """One name of a preset, or a list of them."""
    if isinstance(node.value, str):
        return [node.value]
    return [entry.text() for entry in node.entries("the name of a preset, or a list of names")]


def settings(node: Located) -> Settings:
    """A table whose values are single settings or lists of them, as lists."""
    node.expect(isinstance(node.value, Mapping), "a table")
    found = {name: x if isinstance(x, list) else [x] for name, x in node.value.items()}
    for name, values in found.items():
        for x in values:
            if not isinstance(x, (bool, int, float, str)):
                wanted = "a number, a text, true, false, or a list of those"
                node.fail(f"{name} is {quoted(x)}, expected {wanted}")
        if not values:
            node.fail(f"{name} is an empty list, expected at least one setting")
    return found


def parameters(node: Located) -> Settings:
    """Settings of an algorithm, none of which has the name of a setting of the whole run."""
    found = settings(node)
    with node.locating():
        check_parameters(found)
    return found


def algorithm(node: Located) -> str | type:
    """A class, or a name that an algorithm can have; whether there is such a class shows when the experiment is run."""
    found: str | type = of_type(str | type, "the name of an algorithm, or its class")(node)
    if isinstance(found, str):
        with node.locating():
            check_name(found)
    return found
