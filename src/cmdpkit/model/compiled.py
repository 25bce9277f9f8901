"""How functions are compiled and given arrays, with the reasons in one place.

A compiled function takes arrays, numbers and NamedTuples of them. It allocates nothing: with ``_nrt=False`` Numba
counts no references and refuses to compile an allocation, and passing on a NamedTuple of arrays costs nothing (with
reference counts, an episode loop over such tuples runs several times slower). Division by zero gives infinity instead
of raising. Indices are unsigned where speed matters, because Numba then need not check for negative ones.

Compiled code is kept in `__pycache__` next to the source or in the user's cache folder. Where neither can be written (a
read-only installation, a user without a home folder), it is kept in a temporary folder as long as the process lives.

Numba's cache of a function does not notice when a function it calls has changed in *another* file: after an edit,
delete ``__pycache__``. It also fails to load what was compiled when a module had another name. So whenever the version
or the list of modules has changed, as after an upgrade, everything that was compiled before is deleted.

Compiling a function takes a third of a second, and a first command needs a dozen of them. So `call` lets the
interpreter run a function as long as its work is small, no compiled form exists yet, in this process or on disk, and it
has not taken long so far. Both forms do the same operations on the same numbers in the same order, so results are equal
to the bit. Loops over episodes, whose work is not known when they are called, are always compiled.
"""

from __future__ import annotations

import atexit
import builtins
import hashlib
import math
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache, update_wrapper
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from numba import config, typeof
from numba import njit as njit
from numba.core import event, types
from numba.core.dispatcher import Dispatcher
from numba.core.errors import NumbaError
from numba.extending import overload, typeof_impl
from numpy.typing import NDArray

from cmdpkit import __version__
from cmdpkit.errors import CmdpkitError, quoted


def _probe() -> None:
    """A function to try out whether Numba finds a folder for compiled code."""


def _find_cache() -> None:
    """Make sure that Numba finds a folder for compiled code, because it refuses to compile if there is none."""
    try:
        njit(cache=True)(_probe)
        return
    except RuntimeError:  # "no locator available"
        pass
    try:
        folder = tempfile.mkdtemp(prefix="cmdpkit-")  # readable for this user only: what is in it is executed
    except OSError as error:
        raise CmdpkitError(
            f"there is no writable folder for compiled code ({error}); set NUMBA_CACHE_DIR to one"
        ) from None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = folder  # for processes that this one starts
    config.CACHE_DIR = folder  # type: ignore[attr-defined]  # for this one, where Numba has read it already
    print(
        "note: compiled code cannot be kept, as neither the folder of cmdpkit nor your cache folder can be written; "
        "every command compiles anew. Set NUMBA_CACHE_DIR to a folder of your own to keep it.",
        file=sys.stderr,
    )


def forget_stale_code(package: Path, stamp: str) -> None:
    """Delete the compiled code next to the sources of a package unless it was compiled for this stamp."""
    note = package / "__pycache__" / "compiled-for.txt"
    try:
        if note.is_file() and note.read_text(encoding="utf-8") == stamp:
            return
        for kept in package.rglob("__pycache__/*.nb[ci]"):
            kept.unlink(missing_ok=True)
        note.parent.mkdir(exist_ok=True)
        note.write_text(stamp, encoding="utf-8")
    except OSError:  # an installation that cannot be written holds no stale code of ours
        pass


def _stamp(package: Path) -> str:
    """Version and modules of a package, as a short text."""
    folders = ((folder, files) for folder, _, files in os.walk(package))
    modules = sorted(os.path.join(folder, name) for folder, files in folders for name in files if name.endswith(".py"))
    return hashlib.sha256("\n".join([__version__, *modules]).encode()).hexdigest()[:16]


PACKAGE = Path(__file__).parents[1]
forget_stale_code(PACKAGE, _stamp(PACKAGE))
_find_cache()
compiled = njit(cache=True, nogil=True, error_model="numpy", _nrt=False, no_cfunc_wrapper=True)  # type: ignore[call-overload]


# How functions are compiled that Python never calls.
WITHIN: Any = {"nogil": True, "error_model": "numpy", "_nrt": False}


class CompiledPart:
    """A function as compiled functions see it: compiled with them, and without a form that Python could call.

    Compiling that form takes as long as the function itself, because it takes all arrays of all tuples from Python.
    Python calls `entry` instead.
    """

    def __init__(self, function: FunctionType, entry: Any, forceinline: bool) -> None:
        options = WITHIN | {"forceinline": forceinline}
        self.within = njit(**options, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)  # type: ignore[call-overload]
        self.py_func, self.entry = function, entry
        update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        """A call from Python."""
        return self.entry(*args)


@typeof_impl.register(CompiledPart)
def _type_of_part(part: CompiledPart, context: Any) -> types.Dispatcher:
    return types.Dispatcher(part.within)


def embedded(function: Any) -> Any:
    """For functions that only compiled functions call, inlined there. Python can call them too, and interprets them."""
    return CompiledPart(function, function, forceinline=True)


def internal(function: Any) -> Any:
    """As `embedded`, for functions that are too large to be inlined where they are called."""
    return CompiledPart(function, function, forceinline=False)


def inlined(function: Any) -> Any:
    """As `embedded`, for functions that Python calls too; these calls run a compiled form of their own."""
    return CompiledPart(function, compiled(function), forceinline=True)


def primitive(function: Any) -> Any:
    """A function with a body for every type of its first argument, a NamedTuple, like `functools.singledispatch`.

    ``@function.of(Kind)`` registers the body for a type, and ``@function.of(object)`` the one for all other types. The
    body is chosen while compiling, and inlined. With Numba's own inlining (``inline="always"``) the operators are not
    faster, and compiling takes 1.7 times as long.
    """
    bodies: dict[type, Any] = {}

    def dispatch(*args: Any) -> Any:  # for the interpreter
        return body_for(type(args[0]))(*args)

    def body_for(kind: type) -> Any:
        if kind not in bodies and object not in bodies:
            raise TypeError(f"{function.__name__} has no body for {kind.__name__}")
        return bodies[kind if kind in bodies else object]

    def of(kind: type) -> Any:
        return lambda body: bodies.setdefault(kind, body)

    @overload(dispatch, jit_options=WITHIN | {"forceinline": True}, strict=False)
    def chosen(*args: Any) -> Any:
        return body_for(getattr(args[0], "instance_class", object))

    dispatch.of = of  # type: ignore[attr-defined]
    return update_wrapper(dispatch, function)


ZERO, ONE, TWO = np.uint64(0), np.uint64(1), np.uint64(2)


def per_signal(values: Sequence[float]) -> tuple[float, ...] | NDArray[np.float64]:
    """Constants of reward and utilities, [1+N], for compiled code that loops over them.

    With one constraint they are a tuple. Its length is known when compiling, so loops over signals are unrolled, which
    makes learners up to 1.7 times as fast. With more constraints this gains nothing, and every number of them would
    have to be compiled again, so all other models share one form, with an array.
    """
    given = tuple(float(x) for x in values)
    return given if len(given) == 2 else readonly(given)


def readonly(x: Any) -> Any:
    """A contiguous read-only view. Compiled code then sees one type of array, and is compiled only once."""
    view = np.ascontiguousarray(x).view()
    view.flags.writeable = False
    return view


# -- functions of the user --------------------------------------------------------------------------------------------


def typed_for(name: str, function: Any, arguments: tuple[Any, ...], expected: str, fits: Callable[[Any], bool]) -> Any:
    """A user's function, compiled for arguments of these types; refused unless the type of its result ``fits``."""
    if not callable(function):
        raise CmdpkitError(f"{name} is {quoted(function)}, expected a function")
    made = function if isinstance(function, Dispatcher) else njit(nogil=True, error_model="numpy")(function)
    kinds = tuple(typeof(x) for x in arguments)
    try:
        made.compile(kinds)
    except NumbaError as error:
        told = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
        lines = [line.strip() for line in told if line.strip() and not line.startswith("Failed in")]
        reason = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
        place = re.findall(r'File "([^"]+)", line (\d+)', "\n".join(told))
        code = made.py_func.__code__
        file, line = place[-1] if place else (code.co_filename, code.co_firstlineno)
        raise CmdpkitError(
            f"{name} does not compile: {reason} (line {line} of {file}). Use numbers, tuples and NumPy arrays, and "
            "decorate functions that it calls with numba.njit"
        ) from None
    kind = made.overloads[kinds].signature.return_type  # type: ignore[attr-defined]
    if not fits(kind):
        code = made.py_func.__code__
        raise CmdpkitError(
            f"{name} returns {kind}, expected {expected} (line {code.co_firstlineno} of {code.co_filename})"
        )
    return made


# -- progress of compilation ------------------------------------------------------------------------------------------


class CompileMeter(event.Listener):
    """Counts what this process compiles, and for how long; a lock of Numba lets one thread compile at a time."""

    def __init__(self) -> None:
        self.functions = 0  # whose compilation has begun
        self._depth = 0  # of functions that are compiled because another one calls them
        self._done = self._began = self._ended = 0.0

    @property
    def active(self) -> bool:
        """Whether something is being compiled now."""
        return self._depth > 0

    @property
    def idle(self) -> float:
        """Seconds since something was compiled; infinite if nothing was."""
        return 0.0 if self.active else time.perf_counter() - self._ended if self.functions else math.inf

    @property
    def seconds(self) -> float:
        """How long any thread has compiled so far; a time that is measured without it leaves out compilation."""
        return self._done + (time.perf_counter() - self._began if self.active else 0.0)

    def on_start(self, event: event.Event) -> None:
        """A function is being compiled."""
        if self._depth == 0:
            self._began = time.perf_counter()
        self._depth += 1
        self.functions += 1

    def on_end(self, event: event.Event) -> None:
        """A function was compiled."""
        self._depth -= 1
        if self._depth == 0:
            self._ended = time.perf_counter()
            self._done += self._ended - self._began


COMPILE_METER = CompileMeter()
event.register("numba:compile", COMPILE_METER)


# -- the interpreter for small work -----------------------------------------------------------------------------------

MOST_WORK = 100_000  # inner loops of a call that the interpreter may run, each of which takes about a microsecond
INTERPRETED_SECONDS = 0.1  # of CPU time for one function in one process; after that it is compiled

_spent: dict[Any, float] = {}  # seconds that the interpreter has taken for a function


def call(function: Any, work: int, *args: Any) -> Any:
    """Call a compiled function whose work is about this number of inner loops."""
    if not _is_interpreted(function, work):
        return function(*args)
    began = time.thread_time()
    result = _interpreted(function)(*args)
    _spent[function] = _spent.get(function, 0.0) + time.thread_time() - began
    return result


def _is_interpreted(function: Any, work: int) -> bool:
    if work > MOST_WORK or not isinstance(function, Dispatcher) or function.overloads:  # `signatures` hashes all types
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
        if isinstance(x, (Dispatcher, CompiledPart)) or (
            isinstance(x, FunctionType) and x.__module__.startswith("cmdpkit.")
        ):
            scope[name] = _interpreted(x)
    scope["__builtins__"] = builtins
    return FunctionType(plain.__code__, scope, plain.__name__, plain.__defaults__, plain.__closure__)
