"""Compiled code on disk, which knows what it is made of.

A file belongs to one function and the types of its arguments, and is marked with what its code was made of
(`ingredients`): the version of the package, and the instructions and constants of all functions that are part of it. If
one of them has changed, in whatever file, the code is compiled again and written over the old one. Nothing is ever
deleted, and nothing grows.

The files are in `__pycache__` of the package, or in the user's cache folder, or in the folder NUMBA_CACHE_DIR if that
is set. Where nothing can be written (a read-only installation, a user without a home folder), nothing is kept.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba import config
from numba.core import types
from numba.core.caching import IndexDataCacheFile, NullCache
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target
from numba.core.sigutils import normalize_signature
from numba.misc.appdirs import AppDirs

from cmdpkit import __version__

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
