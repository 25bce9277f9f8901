"""Ready-made problems, each an exact model.

The folder is the registry: a file ``envs/paper/grid.py`` with a function ``build`` *is* the environment ``paper/grid``,
and lists show the first line of its docstring. There is nothing else to edit. Other packages offer environments by
entry points of the group ``cmdpkit.envs``: functions that return a CMDP or a Gymnasium environment. If they use one of
the names of this package, the environment of this package is taken.

What enters: a name and parameters, all of which have defaults. What leaves: a `CMDP`, a new one at every call. An
environment is data and has no state; `simulate` and `running` make worlds of it in which learners can act. Other rooms
may import the functions of this module; `running` also reads the tables of Gymnasium's environments with `gym`.

>>> [name for name in names() if name.startswith("paper/")]
['paper/grid', 'paper/lower-bound', 'paper/synthetic']
>>> build("paper/lower-bound", p=0.5, H=4)
CMDP(H=4, S=4, A=2, N=1: utility ≥ 1)
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, cast

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.validate import index_of

if TYPE_CHECKING:
    from cmdpkit.model.cmdp import CMDP

ENTRY_POINT_GROUP = "cmdpkit.envs"

Parameter = bool | int | float | str


def names() -> list[str]:
    """All environments, in alphabetical order; those that other packages offer come last."""
    return [*sorted(_sources()), *sorted(_offered())]


def is_built_in(name: str) -> bool:
    """Whether an environment comes with this package; to build any other runs the code of another package.

    >>> is_built_in("paper/grid"), is_built_in("mine:make")
    (True, False)
    """
    return name in _sources()


def describe(name: str) -> str:
    """What an environment is, in one line; a module of this package is read for that, but not imported.

    >>> describe("paper/lower-bound")
    'The lower-bound instance: one early choice between reward and utility, between two problems hard to tell apart.'
    """
    if _known(name) not in _sources():
        return (inspect.getdoc(builder(name)) or "").partition("\n")[0]
    tree = ast.parse(_sources()[name].read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def parameters(name: str) -> dict[str, object]:
    """The parameters of an environment and their defaults.

    >>> parameters("paper/lower-bound")
    {'p': 0.5, 'H': 6}
    """
    return {p.name: p.default for p in inspect.signature(builder(name)).parameters.values()}


def build(name: str, /, **params: object) -> CMDP:
    """The environment called ``name``, with some of its parameters changed."""
    function = builder(name)
    has = parameters(name)
    for given in params:
        if given not in has:
            listed = ", ".join(f"{p}={quoted(default)}" for p, default in has.items())
            raise CmdpkitError(
                f"environment {quoted(name)} has no parameter {quoted(given)}; its parameters are {listed}"
            )
    return function(**params)


def builder(name: str) -> Callable[..., CMDP]:
    """The function that makes an environment."""
    if _known(name) in _offered():
        return cast("Callable[..., CMDP]", _offered()[name].load())
    module = name.replace("/", ".").replace("-", "_")
    return cast("Callable[..., CMDP]", importlib.import_module(f"{__name__}.{module}").build)


def parse(text: str) -> tuple[str, dict[str, Parameter]]:
    """An environment and parameters as written on a command line: ``name`` or ``name:parameter=value,...``.

    >>> parse("random:S=10,slack=0.1,stationary=true,rewards=bernoulli")
    ('random', {'S': 10, 'slack': 0.1, 'stationary': True, 'rewards': 'bernoulli'})
    """
    name, colon, listed = text.partition(":")
    params: dict[str, Parameter] = {}
    for item in listed.split(",") if colon else ():
        key, equals, value = (part.strip() for part in item.partition("="))
        if not (key and equals and value):
            raise CmdpkitError(f"{quoted(text)}: expected parameter=value after the colon, got {quoted(item)}")
        if key in params:
            raise CmdpkitError(f"{quoted(text)}: parameter {quoted(key)} is given twice")
        params[key] = plain_value(value)
    return name.strip(), params


def plain_value(text: str) -> Parameter:
    """A text as the value that it stands for: a whole number, a number, a truth value (true, false) or a string."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


@cache
def _sources() -> dict[str, Traversable]:
    return dict(_found(files(__name__), ""))


def _found(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    """(name, file) of every environment under a folder; files that begin with an underscore are none."""
    for entry in folder.iterdir():
        if entry.name.startswith(("_", ".")):
            continue
        if entry.is_dir():
            yield from _found(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".py"):
            yield prefix + entry.name.removesuffix(".py").replace("_", "-"), entry


def _known(name: str) -> str:
    listed = names()
    return listed[index_of("environment", listed, name)]


@cache
def _offered() -> dict[str, EntryPoint]:
    """The environments that other packages offer, by name."""
    return {found.name: found for found in entry_points(group=ENTRY_POINT_GROUP) if found.name not in _sources()}
