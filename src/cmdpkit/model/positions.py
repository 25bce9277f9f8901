"""Where names stand in a list, found at once, also among millions of names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.transitions import IntArray
from cmdpkit.model.validate import Name, is_int, nearest


class Positions:
    """The positions of names, counted from 0; a name is found by itself or by its text, as files write it.

    >>> position = Positions("state", ("low", (1, 2)))
    >>> position((1, 2)), position("(1, 2)"), position.many(["low", "low"]).tolist()
    (1, 1, [0, 0])
    """

    def __init__(self, what: str, names: Sequence[Name]) -> None:
        self.what, self.names = what, names

    @cached_property
    def _by_name(self) -> dict[Any, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def _by_text(self) -> dict[str, int]:
        return {str(name): i for i, name in enumerate(self.names)}

    def __call__(self, name: Any) -> int:
        """The position of a name, or an error that suggests the nearest one."""
        if isinstance(self.names, range) and is_int(name) and name in self.names:
            return self.names.index(int(name))
        try:
            if (found := self._by_name.get(name)) is not None:
                return found
        except TypeError:  # not hashable, such as a list
            pass
        if (found := self._by_text.get(str(name))) is not None:
            return found
        raise CmdpkitError(f"unknown {self.what} {quoted(name)}{nearest(str(name), self._by_text)}")

    def many(self, names: Any) -> IntArray:
        """The positions of many names."""
        if isinstance(names, str) or not hasattr(names, "__len__"):
            raise CmdpkitError(f"{self.what}s is {quoted(names)}, expected a list or array of names")
        if isinstance(self.names, range):
            given = np.asarray(names)
            if given.dtype.kind in "iu" and given.ndim == 1:
                outside = given[(given < self.names.start) | (given >= self.names.stop)]
                if len(outside):
                    self(int(outside[0]))
                return given.astype(np.int64) - self.names.start
        listed = names.tolist() if isinstance(names, np.ndarray) else names
        try:
            return np.fromiter(map(self._by_name.__getitem__, listed), dtype=np.int64, count=len(listed))
        except (KeyError, TypeError):
            return np.array([self(name) for name in listed], dtype=np.int64)
