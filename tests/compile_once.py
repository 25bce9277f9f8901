"""Workers of pytest that need the same compiled function at once: one compiles it, the others wait and load it.

Without this, all of them compile it, because a compiled function is only kept on disk when it is done. With an empty
cache, compiling takes a large part of the time of all tests.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

with suppress(ImportError):  # there is none on Windows, where every worker compiles for itself
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

held: set[str] = set()  # source files that this process has locked


@contextmanager
def only_process(path: str) -> Iterator[None]:
    """Keep other processes from compiling functions of a source file; the system unlocks it if the process dies."""
    if path in held:  # a function of this file that is called by another one of it
        yield
        return
    with open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        held.add(path)
        try:
            yield
        finally:
            held.discard(path)


def compile_once() -> None:
    """Let every compilation of this process take turns with those of other processes that called this function.

    Nobody waits for ever: a compiled function only calls functions of its own file and of files which this file
    imports, so the files are always locked in the order of imports. Numba's own lock, which threads wait for, comes
    before all of them.
    """
    if "fcntl" not in globals():
        return
    compile_here = Dispatcher.compile

    def compile_in_turn(self: Dispatcher, sig: Any) -> Any:
        if not self.py_func.__module__.startswith("cmdpkit."):
            return compile_here(self, sig)
        with global_compiler_lock, only_process(self.py_func.__code__.co_filename):
            return compile_here(self, sig)

    Dispatcher.compile = compile_in_turn
