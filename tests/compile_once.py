"""Workers of pytest that need the same compiled function at once: one compiles it, the others wait and load it.

Without this, all of them compile it, because a compiled function is only kept on disk when it is done. With an empty
cache, compiling takes a large part of the time of all tests.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher

with suppress(ImportError):  # there is none on Windows, where every worker compiles for itself
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCKS = Path(__file__).parent.parent / "build" / "compiling"  # one empty file per function and kind of arguments


@contextmanager
def only_process(what: str) -> Iterator[None]:
    """Keep other processes from compiling the same; the system unlocks it if the process dies."""
    with open(LOCKS / hashlib.sha256(what.encode()).hexdigest()[:32], "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def compile_once() -> None:
    """Let compilations of a function for the same kinds of arguments take turns in all processes that called this.

    Only functions that are kept on disk take turns, because only they can be loaded by other processes. Nobody waits
    forever: a function is locked before those that it calls, no function calls itself through others, and each has one
    name. (Functions that are made inside of others, around a user's functions, are not kept and share their names.)
    Numba's own lock, which threads wait for, comes before all of them.
    """
    if "fcntl" not in globals():
        return
    from cmdpkit.model.compiled import CodeOnDisk  # not before coverage has begun

    LOCKS.mkdir(parents=True, exist_ok=True)
    compile_here = Dispatcher.compile

    def compile_in_turn(self: Dispatcher, sig: Any) -> Any:
        function = self.py_func
        if not function.__module__.startswith("cmdpkit.") or not isinstance(self._cache, CodeOnDisk):
            return compile_here(self, sig)
        with global_compiler_lock, only_process(f"{function.__module__}.{function.__qualname__} {sig}"):
            return compile_here(self, sig)

    Dispatcher.compile = compile_in_turn
