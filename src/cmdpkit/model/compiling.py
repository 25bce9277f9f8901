"""Being told while Numba compiles something."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from numba.core import event


class _Listener(event.Listener):
    """Calls a function when the first of several compilations begins, and when the last has ended."""

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell, self._depth = tell, 0

    def on_start(self, event: event.Event) -> None:
        """A function is being compiled, perhaps because another one that is compiled calls it."""
        self._depth += 1
        if self._depth == 1:
            self._tell(True)

    def on_end(self, event: event.Event) -> None:
        """A function was compiled."""
        self._depth -= 1
        if self._depth == 0:
            self._tell(False)


@contextmanager
def told_of_compiling(tell: Callable[[bool], None]) -> Iterator[None]:
    """While the block runs, call ``tell(True)`` when something begins to be compiled and ``tell(False)`` after it.

    Functions that are loaded from disk are not compiled. All threads of this process count.
    """
    with event.install_listener("numba:compile", _Listener(tell)):
        yield
