"""How functions are compiled and given arrays, with the reasons in one place.

There is one decorator, `compiled`. A function that has it takes arrays, numbers and NamedTuples of them, and exists in
three forms (`Compiled`): the function as it is written; a part, which compiled functions see that call it; and a form
that Python calls. A `primitive` is a function with a body for every type of its first argument.

A compiled function allocates nothing: with ``_nrt=False`` Numba counts no references and refuses to compile an
allocation, and passing on a NamedTuple of arrays costs nothing (with reference counts, an episode loop over such tuples
runs several times slower). Division by zero gives infinity instead of raising. Indices are unsigned where speed
matters, because Numba then need not check for negative ones.

Compiled code is kept on disk (`code_on_disk`); an edit of whatever it is made of is noticed.

**What runs when Python calls**: compiling a function takes a third of a second, and a first command needs a dozen of
them. So there is one rule, for functions that are called by `call`: the interpreter runs a function until the work that
was asked of it adds up to `INTERPRETED_WORK` inner loops for every function that it is made of, unless compiled code is
on disk; types of the first argument count apart. Whatever work comes, this takes at most about twice the time of the
better choice. Both forms do the same operations on the same numbers in the same order, so results are equal to the bit.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Sequence
from functools import update_wrapper
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit as njit
from numba import typeof
from numba.core import event, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import cpu_target
from numba.core.typeconv.castgraph import Conversion
from numba.extending import overload, typeof_impl
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.code_on_disk import CodeOnDisk, parts_of

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
