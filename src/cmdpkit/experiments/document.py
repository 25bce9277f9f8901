"""From the tables of an experiment, in TOML or in Python, to checked values.

A `Node` is one value of the document with its path, such as ``algorithms[1].params``, and its line if it is known, so
that an error names the file, the line, the key, the value and the rule. All mistakes are told at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, NoReturn, TypeVar

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.formats.source import LocatedTable, Mistakes
from cmdpkit.learners.registry import check_name
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.validate import MAX_EPISODES, MAX_SEED, is_int, nearest
from cmdpkit.running.request import check_parameters

MAX_RUNS = 1_000_000  # of an experiment; a larger number is taken for a mistake

Read = TypeVar("Read")
Pair = tuple[float, float]
Settings = dict[str, list[Any]]  # by name, the values that are tried


@dataclass(frozen=True)
class Node:
    """One value of a document, and where it stands."""

    source: str  # the file, or what else messages begin with
    path: str  # such as algorithms[1].params; empty for the whole document
    value: Any
    line: int | None  # line of the innermost key on the way to it, as far as lines are known
    mistakes: Mistakes  # all mistakes of the document

    def fail(self, message: str) -> NoReturn:
        """Raise CmdpkitError("file:line: message")."""
        raise CmdpkitError(f"{self.source}{'' if self.line is None else f':{self.line}'}: {message}")

    def expect(self, true: bool, rule: str) -> None:
        """Raise CmdpkitError("file:line: key is value, expected rule") unless something is true."""
        if not true:
            self.fail(f"{self.path} is {quoted(self.value)}, expected {rule}")

    def check(self, call: Callable[[Any], Read]) -> Read:
        """The result of a function of the value; an error that it raises is told with the place."""
        try:
            return call(self.value)
        except ValueError as error:
            self.fail(f"{self.path}: {error}")

    def key(self, name: str) -> Node:
        """The value under a key of this table."""
        line, path = self.line, f"{self.path}.{name}" if self.path else name
        if isinstance(self.value, LocatedTable):
            line = self.value.lines.get(name) or (self.value.line if self.path else None) or line
        return Node(self.source, path, self.value[name], line, self.mistakes)

    def entries(self, rule: str = "a list with at least 1 item") -> list[Node]:
        """The values of this list, which must not be empty."""
        value = self.value
        self.expect(isinstance(value, Iterable) and not isinstance(value, (str, Mapping)), rule)
        nodes = [Node(self.source, f"{self.path}[{i}]", x, self._line(x), self.mistakes) for i, x in enumerate(value)]
        self.expect(bool(nodes), rule)
        return nodes

    def _line(self, inner: Any) -> int | None:
        return (inner.line if isinstance(inner, LocatedTable) else None) or self.line

    def fields(self, readers: Mapping[str, Callable[[Node], Any]], required: Sequence[str] = ()) -> dict[str, Any]:
        """The values of this table, each read by the reader of its key; keys whose value is None are left out.

        Mistakes are kept for later, so that all of them are told.
        """
        found = {}
        given = {name: x for name, x in self.value.items() if x is not None}
        for name in given:
            node = self.key(name)
            with self.mistakes.noting():
                if name not in readers:
                    node.fail(f"{node.path}: unknown key{nearest(name, readers)}")
                found[name] = readers[name](node)
        for name in required:
            if name not in given:
                path = f"{self.path}.{name}" if self.path else name
                with self.mistakes.noting():
                    self.fail(f"{path} is missing")
        return found


# -- readers of single values ------------------------------------------------------------------------------------------


def of_type(kind: type | UnionType, rule: str) -> Callable[[Node], Any]:
    """A reader of values of a type."""

    def read(node: Node) -> Any:
        node.expect(isinstance(node.value, kind), rule)
        return node.value

    return read


text = of_type(str, "text")
flag = of_type(bool, "true or false")
model = of_type(str | CMDP, "an environment, a file or a model")


def folder_name(node: Node) -> str:
    """A text that can be the name of a folder."""
    node.expect(isinstance(node.value, str) and bool(re.fullmatch(r"\w[\w.-]*", node.value)), "letters, digits, . _ -")
    return str(node.value)


def whole(low: int, high: int) -> Callable[[Node], int]:
    """A reader of whole numbers from low to high; a float will do if it is whole, because TOML reads 8e6 as a float."""

    def read(node: Node) -> int:
        value = _whole_if_float(node.value)
        node.expect(is_int(value) and low <= value <= high, f"a whole number from {low} to {high:,}")
        return int(value)

    return read


def _whole_if_float(x: Any) -> Any:
    return int(x) if isinstance(x, float) and x.is_integer() else x


length = whole(1, MAX_EPISODES)  # episodes or steps


def one_of(*choices: str) -> Callable[[Node], str]:
    """A reader of one of several words."""

    def read(node: Node) -> str:
        node.expect(node.value in choices, " or ".join(map(repr, choices)))
        return str(node.value)

    return read


def seeds(node: Node) -> list[int]:
    """A list of seeds, or how many there are, counted from 0."""
    many = _whole_if_float(node.value)
    if is_int(many):
        if not 1 <= many <= MAX_RUNS:
            limit = "at least 1 seed" if many < 1 else f"at most {MAX_RUNS:,}"
            node.fail(f"{node.path}: {quoted(many)} seeds are asked for, expected {limit}")
        return list(range(many))
    return [whole(0, MAX_SEED)(entry) for entry in node.entries("a list of seeds, or how many there are")]


def lengths(node: Node) -> list[int]:
    """A list of episodes or steps, which may be empty."""
    return [length(entry) for entry in node.entries()] if node.value else []


def presets(node: Node) -> list[str]:
    """One name of a preset, or a list of them."""
    if isinstance(node.value, str):
        return [node.value]
    return [text(entry) for entry in node.entries("the name of a preset, or a list of names")]


def settings(node: Node) -> Settings:
    """A table whose values are single settings or lists of them, as lists."""
    node.expect(isinstance(node.value, Mapping), "a table")
    found = {name: x if isinstance(x, list) else [x] for name, x in node.value.items()}
    for name, values in found.items():
        for x in values:
            if not isinstance(x, (bool, int, float, str)):
                wanted = "a number, a text, true, false, or a list of those"
                node.fail(f"{node.path}: {name} is {quoted(x)}, expected {wanted}")
        if not values:
            node.fail(f"{node.path}: {name} is an empty list, expected at least one setting")
    return found


def parameters(node: Node) -> Settings:
    """Settings of an algorithm, none of which has the name of a setting of the whole run."""
    found = settings(node)
    node.check(lambda _: check_parameters(found))
    return found


def pair(node: Node) -> Pair:
    """The smallest and the largest value of a range."""
    value = node.value
    numbers = isinstance(value, Sequence) and all(isinstance(x, (int, float)) for x in value)
    node.expect(numbers and len(value) == 2, "a pair of numbers, the smallest and the largest value")
    return float(value[0]), float(value[1])


def pairs(node: Node) -> tuple[Pair, ...]:
    """One range per constraint."""
    return tuple(pair(entry) for entry in node.entries("a list of pairs")) if node.value else ()


def constraints(node: Node) -> tuple[Constraint, ...]:
    """Constraints, or tables with name, sense and bound; none is possible."""
    keys = ("name", "sense", "bound")

    def made(value: Any) -> Constraint:
        if isinstance(value, Constraint):
            return value
        if not isinstance(value, Mapping) or set(value) != set(keys):
            raise CmdpkitError(f"{quoted(value)} is no constraint, expected a table with the keys {', '.join(keys)}")
        return Constraint(*(value[key] for key in keys))

    return tuple(entry.check(made) for entry in node.entries("a list of constraints")) if node.value else ()


def algorithm(node: Node) -> str | type:
    """A class, or a name that an algorithm can have; whether there is such a class shows when the experiment is run."""
    found: str | type = of_type(str | type, "the name of an algorithm, or its class")(node)
    if isinstance(found, str):
        node.check(check_name)
    return found
