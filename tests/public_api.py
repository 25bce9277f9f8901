"""The parameters of the public API that can hold an array, found by looking: names, methods and their annotations."""

import inspect
import re
import types
from collections.abc import Iterator
from typing import Any

import cmdpkit as ck

# An annotation with one of these words, or no annotation, may stand for an array.
MAY_HOLD_ARRAY = re.compile(r"\b(Any|ArrayLike|\w*Array|NDArray|Sequence|Iterable|Name|tuple|list)\b")
NOT_DATA = re.compile(r"Callable\[[^]]*\][^|]*|\bPathLike\b|Sequence\[str\]|tuple\[str, \.\.\.\]|type\[\w+\]")


def functions() -> Iterator[tuple[str, Any]]:
    """Every public function, constructor and method of the package, with the name by which it is called."""
    for name in ck.__all__:
        thing = getattr(ck, name)
        if isinstance(thing, types.ModuleType):
            for part in getattr(thing, "__all__", None) or _own(thing):
                yield from _functions(f"{name}.{part}", getattr(thing, part))
        else:
            yield from _functions(name, thing)


def array_parameters() -> set[str]:
    """``function(parameter)`` for every parameter whose annotation does not rule an array out."""
    found = set()
    for name, function in functions():
        for parameter in list(inspect.signature(function).parameters.values()):
            annotation = "Any" if parameter.annotation is parameter.empty else str(parameter.annotation)
            is_self = parameter.name in ("self", "cls") and parameter.annotation is parameter.empty
            if not is_self and MAY_HOLD_ARRAY.search(NOT_DATA.sub("", annotation)):
                found.add(f"{name}({parameter.name})")
    return found


def _own(module: types.ModuleType) -> list[str]:
    """The public names that a module without ``__all__`` defines itself."""
    return [
        x
        for x in dir(module)
        if not x.startswith("_") and str(getattr(getattr(module, x), "__module__", "")).startswith(module.__name__)
    ]


def _functions(name: str, thing: Any) -> Iterator[tuple[str, Any]]:
    if inspect.isfunction(thing):
        yield name, thing
    if not inspect.isclass(thing):
        return
    if inspect.isfunction(thing.__init__) or not issubclass(thing, Exception):
        yield name, thing
    for part in dir(thing):
        method = inspect.getattr_static(thing, part)
        method = method.__func__ if isinstance(method, (classmethod, staticmethod)) else method
        if not part.startswith("_") and inspect.isfunction(method) and method.__module__.startswith("cmdpkit"):
            yield f"{name}.{part}", method
