"""How functions are compiled and given arrays, with the reasons in one place.

There is one decorator, `compiled`. A function that has it takes arrays, numbers and NamedTuples of them, and exists in
three forms (`Compiled`): the function as it is written; a part, which compiled functions see that call it; and a form
that Python calls. A `primitive` is a function with a body for every type of its first argument.

A compiled function allocates nothing: with ``_nrt=False`` Numba counts no references and refuses to compile an
allocation, and passing on a NamedTuple of arrays costs nothing (with reference counts, an episode loop over such tuples
runs several times slower). Division by zero gives infinity instead of raising. Indices are unsigned where speed
matters, because Numba then need not check for negative ones.

Compiled code is kept on disk (`CodeOnDisk`). A file belongs to one function and the types of its arguments, and is
marked with what its code was made of (`ingredients`): the version of the package, and the instructions and constants of
all functions that are part of it. If one of them has changed, in whatever file, the code is compiled again and written
over the old one. Nothing is ever deleted, and nothing grows. The files are in `__pycache__` of the package, or in the
user's cache folder, or in the folder NUMBA_CACHE_DIR if that is set.

**What runs when Python calls**: compiling a function takes a third of a second, and a first command needs a dozen of
them. So there is one rule, for functions that are called by `call`: the interpreter runs a function until the work that
was asked of it adds up to `INTERPRETED_WORK` inner loops for every function that it is made of, unless compiled code is
on disk; types of the first argument count apart. Whatever work comes, this takes at most about twice the time of the
better choice. Both forms do the same operations on the same numbers in the same order, so results are equal to the bit.
"""

from __future__ import annotations

import hashlib
import math
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, update_wrapper
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import config, typeof
from numba import njit as njit
from numba.core import event, types
from numba.core.caching import IndexDataCacheFile, NullCache
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.registry import cpu_target
from numba.core.sigutils import normalize_signature
from numba.core.typeconv.castgraph import Conversion
from numba.extending import overload, typeof_impl
from numba.misc.appdirs import AppDirs
from numpy.typing import NDArray

from cmdpkit import __version__
from cmdpkit.errors import CmdpkitError

OPTIONS: Any = {"nogil": True, "error_model": "numpy", "_nrt": False, "no_cfunc_wrapper": True}
INTERPRETED_WORK = 30_000  # inner loops; they take the interpreter about half as long as compiling one function does


# -- parts of compiled functions --------------------------------------------------------------------------------------


class _NoMachineCode:
    """Takes the place of the machine code of a part."""

    @staticmethod
    def set_env(name: str, env: Any) -> None:
        """A part has no constants of its own that Python would have to hold."""


class _PartLibrary(JITCodeLibrary):
    """The code of a function that is only a part of others, before any optimisation.

    Numba would optimise it and make machine code of it, with all that it calls, and then do so again in every function
    that calls it. Leaving this out saves a fifth of all compilation, and what comes out is up to three times as fast.
    """

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """The caller does this."""

    def _finalize_final_module(self) -> None:
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()  # type: ignore[no-untyped-call]
        return 0  # there is none

    codegen = property(lambda self: _NoMachineCode)


class _PartCompiler(Compiler):
    """Compiles functions that are only parts of others, as far as their callers need it."""

    def define_pipelines(self) -> Any:
        if self.state.library is None:
            context, name = self.state.targetctx, self.state.func_id.func_qualname
            self.state.library = _PartLibrary(context.codegen(), name)  # type: ignore[no-untyped-call]
        return Compiler.define_pipelines(self)


PART_OPTIONS: Any = OPTIONS | {"pipeline_class": _PartCompiler, "no_cpython_wrapper": True}


# -- the decorators ---------------------------------------------------------------------------------------------------


class Compiled:
    """A function in three forms: as it is written, as compiled functions see it, and as Python calls it."""

    def __init__(self, function: FunctionType, inline: bool) -> None:
        self.plain = function  # as it is written
        self.entry: Any = njit(function, **OPTIONS)  # takes its arguments from Python's objects, and is kept on disk
        self.entry._cache = CodeOnDisk(function)
        self.part: Any = njit(function, forceinline=inline, **PART_OPTIONS)  # Python cannot call it
        self._left: dict[type, int] = {}  # inner loops that the interpreter may run, by the type of the first argument
        update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        """A call from Python, or from a function that the interpreter runs."""
        return (self.plain if _HERE.interprets else self.entry)(*args)

    def interpret(self, *args: Any) -> Any:
        """A call that the interpreter runs, with all that the function calls."""
        before, _HERE.interprets = _HERE.interprets, True
        try:
            return self.plain(*args)
        finally:
            _HERE.interprets = before

    def is_interpreted(self, work: int, args: Sequence[Any]) -> bool:
        """Whether `call` lets the interpreter run a call; its work adds to what was asked of the function before."""
        form = type(args[0])
        if form not in self._left:
            kinds = tuple(map(typeof, args))
            price = INTERPRETED_WORK * len(parts_of(self.plain, kinds))
            self._left[form] = 0 if self.entry._cache.holds(kinds) else price
        self._left[form] -= max(1, work)
        return self._left[form] >= 0


@typeof_impl.register(Compiled)
def _type_of_part(function: Compiled, context: Any) -> types.Dispatcher:
    return types.Dispatcher(function.part)


def compiled(function: Any = None, *, inline: bool = False) -> Any:
    """Decorate a function of arrays, numbers and NamedTuples of them that allocates nothing.

    Its code is copied to where compiled functions call it with ``inline=True``, which is for small functions in inner
    loops.
    """
    return Compiled(function, inline) if function is not None else lambda given: Compiled(given, inline)


class _Here(threading.local):
    interprets = False  # whether this thread runs a function in the interpreter, with all that it calls


_HERE = _Here()


def call(function: Compiled, work: int, *args: Any) -> Any:
    """Call a compiled function whose work is about this number of inner loops; small work is interpreted."""
    return (function.interpret if function.is_interpreted(work, args) else function)(*args)


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

    @overload(dispatch, jit_options=PART_OPTIONS | {"forceinline": True}, strict=False)
    def chosen(*args: Any) -> Any:
        return body_for(getattr(args[0], "instance_class", object))

    dispatch.of, dispatch.bodies = of, bodies  # type: ignore[attr-defined]
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


def typed_for(
    name: str, function: Any, arguments: tuple[Any, ...], result: Any, expected: str, *, boundscheck: bool
) -> Any:
    """A user's function, compiled for arguments and a result like these; refused if its result is of another kind."""
    options: Any = {"nogil": True, "error_model": "numpy", "boundscheck": boundscheck}
    plain = getattr(function, "py_func", function)
    made = function if plain is not function and not boundscheck else njit(**options)(plain)
    kinds, wanted = tuple(typeof(x) for x in arguments), typeof(result)
    try:
        made.compile(kinds)
    except Exception as error:  # of Numba, which has many kinds
        told = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()
        lines = [line.strip() for line in told if line.strip() and not line.startswith("Failed in")] or [repr(error)]
        reason = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
        place = re.findall(r'File "([^"]+)", line (\d+)', "\n".join(told))
        code = made.py_func.__code__
        file, line = place[-1] if place else (code.co_filename, code.co_firstlineno)
        raise CmdpkitError(
            f"{name} does not compile: {reason} (line {line} of {file}). Use numbers, tuples and NumPy arrays, and "
            "decorate functions that it calls with numba.njit"
        ) from None
    kind = made.overloads[kinds].signature.return_type
    loss = cpu_target.typing_context.can_convert(kind, wanted)
    if loss is None or loss > Conversion.safe:
        code = made.py_func.__code__
        raise CmdpkitError(
            f"{name} returns {kind}, expected {expected} (line {code.co_firstlineno} of {code.co_filename})"
        )
    forms = lambda x: made(x), lambda x, a: made(x, a), lambda x, a, e: made(x, a, e)
    return njit(wanted(*kinds), **options)(forms[len(kinds) - 1])


# -- progress of compilation ------------------------------------------------------------------------------------------


class CompileMeter(event.Listener):
    """Counts what this process compiles, and for how long; a lock of Numba lets one thread compile at a time."""

    def __init__(self) -> None:
        self.functions = 0  # whose compilation has begun
        self.begun = self.parts = 0  # of the function that Python called: how many have begun, and how many there are
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
            function, kinds = event.data["dispatcher"].py_func, tuple(event.data["args"])
            self.begun, self.parts = 0, len(parts_of(function, kinds))
        self._depth += 1
        self.functions += 1
        self.begun += 1

    def on_end(self, event: event.Event) -> None:
        """A function was compiled."""
        self._depth -= 1
        if self._depth == 0:
            self._ended = time.perf_counter()
            self._done += self._ended - self._began


COMPILE_METER = CompileMeter()
event.register("numba:compile", COMPILE_METER)


# -- Compiled code on disk ---------------------------------------------------------------------------------------------

PACKAGE = Path(__file__).parents[1]
CODE = "code"  # under which name a file of Numba holds the only code in it, with the names of the functions it is of


class CodeOnDisk(NullCache):
    """What Numba asks for compiled code of a function: files for the types of its arguments, marked with `ingredients`.

    Numba's own cache marks code with the file of the function alone, keeps what it can never load again (code for a
    function of the user is made in every process), and lets two processes write one file for different types.
    """

    def __init__(self, function: FunctionType) -> None:
        self._function = function

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Compiled code for a signature; None if it has to be compiled."""
        target_context.refresh()
        file = self._file(normalize_signature(sig)[0])
        if file is None:
            return None
        try:
            found = file.load(CODE)
            return None if found is None else CompileResult._rebuild(target_context, *found[1])
        except Exception:  # a damaged file, which is written again
            with suppress(OSError):
                file.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code, unless it holds addresses of this process."""
        kinds = normalize_signature(sig)[0]
        file = self._file(kinds)
        if file is not None and not data.library.has_dynamic_globals:
            parts = parts_of(self._function, kinds)
            with suppress(OSError):  # no space is left, or the folder is gone: this process has the code in memory
                file.save(CODE, (parts, data._reduce()))

    def holds(self, kinds: tuple[Any, ...]) -> bool:
        """Whether there is compiled code for arguments of these types."""
        file = self._file(kinds)
        try:
            return file is not None and bool(file._load_index())
        except Exception:  # a damaged file
            return False

    def _file(self, kinds: tuple[Any, ...]) -> Any:
        """The file for arguments of these types; None if there is no folder, or a function of the user among them."""
        folder = cache_folder()
        if folder is None or any(isinstance(kind, types.Dispatcher) for kind in _all_types(kinds)):
            return None
        made_of = ingredients(self._function, kinds)
        parts = [cell.cell_contents for cell in self._function.__closure__ or ()]
        key = (
            [_told(part) for part in parts if hasattr(part, "plain")],
            [str(kind) for kind in kinds],
            cpu_target.target_context.codegen().magic_tuple(),
            config.BOUNDSCHECK,  # type: ignore[attr-defined]
            config.OPT,  # type: ignore[attr-defined]
        )
        name = f"{self._function.__module__}.{self._function.__qualname__}".replace("<locals>.", "")
        python = f"py{sys.version_info.major}{sys.version_info.minor}"
        return IndexDataCacheFile(str(folder), f"{name}-{_digest(key)}.{python}", _digest((__version__, made_of)))


def _digest(thing: Any) -> str:
    return hashlib.sha256(repr(thing).encode()).hexdigest()[:16]


def _all_types(kinds: Iterable[Any]) -> Iterator[Any]:
    """Types of arguments, and of what is in the tuples among them."""
    for kind in kinds:
        yield kind
        yield from _all_types(getattr(kind, "types", ()))


def ingredients(function: FunctionType, kinds: tuple[Any, ...] = ()) -> list[tuple[str, str, Any]]:
    """What compiled code of a function is made of, with names: instructions, constants, and fields of NamedTuples.

    All functions that it refers to count. Of a primitive, those bodies count that are for types of arguments, or for
    NamedTuples that the code names.
    """
    found: dict[int, tuple[str, str, Any]] = {}
    tuples = {getattr(kind, "instance_class", tuple) for kind in _all_types(kinds)} - {tuple}
    waiting: list[Any] = [function, *tuples]
    primitives: list[dict[type, Any]] = []  # the bodies of each
    while waiting:
        thing = waiting.pop()
        thing = getattr(thing, "plain", getattr(thing, "py_func", thing))  # of functions that are compiled
        if id(thing) not in found and isinstance(thing, type) and hasattr(thing, "_fields"):
            found[id(thing)] = "tuple", _told(thing), thing._fields
            tuples.add(thing)
        elif id(thing) not in found and hasattr(thing, "bodies"):
            found[id(thing)] = "primitive", _told(thing), None
            primitives.append(thing.bodies)
        elif id(thing) not in found and isinstance(thing, FunctionType):
            named = dict(_named(thing))
            told = sorted((name, _told(x)) for name, x in named.items())
            found[id(thing)] = "function", _told(thing), (instructions(thing.__code__), told)
            waiting += named.values()
        if not waiting:
            bodies = [body for one in primitives for kind, body in one.items() if kind in tuples or kind is object]
            waiting = [body for body in bodies if id(body) not in found]
    return sorted(found.values(), key=repr)


def parts_of(function: FunctionType, kinds: tuple[Any, ...]) -> list[str]:
    """Names of the functions that compiled code of a function is made of; itself is one of them."""
    return [name for kind, name, _ in ingredients(function, kinds) if kind == "function"]


def _named(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function refers to by name that is neither its own nor of Python itself."""
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        waiting += [x for x in code.co_consts if isinstance(x, CodeType)]
        yield from ((name, function.__globals__[name]) for name in code.co_names if name in function.__globals__)
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    yield from zip(function.__code__.co_freevars, cells, strict=True)


def _told(thing: Any) -> Any:
    """A function, class or module by its name, and a constant by its value."""
    if isinstance(thing, ModuleType):
        if thing.__name__.startswith("cmdpkit."):
            raise TypeError(f"compiled code names the module {thing.__name__}: import functions by their own names")
        return thing.__name__
    if hasattr(thing, "__qualname__"):
        return f"{thing.__module__}.{thing.__qualname__}"
    return thing.tobytes() if isinstance(thing, np.ndarray) else repr(thing)


def instructions(code: CodeType) -> tuple[Any, ...]:
    """What a function does, without its name, layout and comments."""
    constants = [instructions(x) if isinstance(x, CodeType) else repr(x) for x in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, constants


def cache_folder() -> Path | None:
    """The folder of this installation for compiled code: the first one that can be written, if there is any."""
    return _writable_folder(config.CACHE_DIR)  # type: ignore[attr-defined]


@cache
def _writable_folder(asked: str) -> Path | None:
    here = f"cmdpkit-{_digest(str(PACKAGE))}"  # no other installation writes there
    for folder in (
        *([Path(asked) / here] if asked else []),
        PACKAGE / "__pycache__",
        Path(AppDirs(appname="cmdpkit", appauthor=False).user_cache_dir) / here,
    ):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close()
            return folder
        except OSError:
            pass
    print(
        "note: compiled code cannot be kept, as neither the folder of cmdpkit nor your cache folder can be written; "
        "every process compiles again. Set NUMBA_CACHE_DIR to a folder of your own to keep it.",
        file=sys.stderr,
    )
    return None
