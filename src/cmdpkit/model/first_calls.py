"""Small work before anything is compiled: the same functions, run by the Python interpreter.

To compile a function takes a third of a second, and a first command needs a dozen of them, for work that the
interpreter does in milliseconds where the model is small. So `call` lets the interpreter run a function as long as the
work is small, no compiled form exists yet, in this process or on disk, and the function has not taken long by now.
Both forms do the same operations on the same numbers in the same order, so results are equal to the bit.

This is for functions whose work is known when they are called. Loops over episodes are always compiled.
"""

from __future__ import annotations

import builtins
import os
import time
from functools import cache
from types import FunctionType
from typing import Any

from numba.core.dispatcher import Dispatcher

MOST_WORK = 100_000  # inner loops of a call that the interpreter may run, each of which takes about a microsecond
INTERPRETED_SECONDS = 0.3  # of one function in one process; after that it is compiled

_spent: dict[Any, float] = {}  # seconds that the interpreter has taken for a function


def call(function: Any, work: int, *args: Any) -> Any:
    """Call a compiled function with work that is about so many inner loops."""
    if not _is_interpreted(function, work):
        return function(*args)
    began = time.perf_counter()
    result = _interpreted(function)(*args)
    _spent[function] = _spent.get(function, 0.0) + time.perf_counter() - began
    return result


def _is_interpreted(function: Any, work: int) -> bool:
    if work > MOST_WORK or not isinstance(function, Dispatcher) or function.signatures:
        return False  # with NUMBA_DISABLE_JIT it is a plain function
    return _spent.get(function, 0.0) < INTERPRETED_SECONDS and not _is_kept(function)


@cache
def _is_kept(function: Any) -> bool:
    """Whether a compiled form of the function is on disk, from where it is loaded in milliseconds."""
    return os.path.exists(function._cache._cache_file._index_path)


@cache
def _interpreted(function: Any) -> Any:
    """The function in plain Python, and with it all compiled functions that it calls."""
    plain: FunctionType = getattr(function, "py_func", function)
    names = {name for name in plain.__code__.co_names if name in plain.__globals__}
    scope: dict[str, Any] = {name: plain.__globals__[name] for name in names}
    for name, x in scope.items():
        if isinstance(x, Dispatcher) or (isinstance(x, FunctionType) and x.__module__.startswith("cmdpkit.")):
            scope[name] = _interpreted(x)
    scope["__builtins__"] = builtins
    return FunctionType(plain.__code__, scope, plain.__name__, plain.__defaults__, plain.__closure__)
