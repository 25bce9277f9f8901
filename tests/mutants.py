"""JSON documents in which one entry is something else or missing, for tests of readers."""

import copy
from collections.abc import Iterator
from typing import Any

BAD = (None, -5, "x", float("nan"), [1, 2, 3], [[1]], {"a": 1}, True)
FIRST = 3  # entries of a list that are changed


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every entry of a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:FIRST]) if isinstance(value, list) else ()
    for key, x in inner:
        yield (*path, key)
        yield from _places(x, (*path, key))


def mutants(document: Any) -> Iterator[Any]:
    """The document with each of its entries replaced by each of the bad values, and without it."""
    for *path, last in list(_places(document)):
        for bad in (*BAD, KeyError):
            changed = copy.deepcopy(document)
            table = changed
            for key in path:
                table = table[key]
            if bad is KeyError:
                del table[last]
            else:
                table[last] = bad
            yield changed
