"""A model from its name: an environment, an environment with parameters, a file, or a function of the user."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cmdpkit import envs
from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.validate import nearest


def load(source: str | os.PathLike[str], /, *, renormalise: bool = False, mmap: bool = False, **params: object) -> CMDP:
    """The model that ``source`` names.

    Parameters
    ----------
    source : an environment ("queue"), one with parameters ("random:S=10,seed=4"), the path of a model file, or a
        function of your own that returns a CMDP, "package.module:function" or "package.module:function:n=3". An
        environment is preferred to a file of the same name, which is "./queue".
    renormalise : for files, divide every row of probabilities by its sum
    mmap : for .npz files, leave the transitions on disk, see `read_model`
    params : parameters of the environment or function

    >>> load("paper/lower-bound:p=0.25", H=4)
    CMDP(H=4, S=4, A=2, N=1: utility ≥ 1)
    """
    made = build(source, renormalise=renormalise, mmap=mmap, **params)
    if not isinstance(made, CMDP):
        raise CmdpkitError(
            f"{os.fspath(source)!r} makes a {type(made).__name__}, not a CMDP: there is no model to solve or check. "
            "`cmdpkit learn`, `cmdpkit bench` and cmdpkit.learn can learn in a Gymnasium environment; `cmdpkit solve` "
            "and `cmdpkit tradeoff` take a model by functions, and its arrays() is a CMDP"
        )
    return made


def build(source: str | os.PathLike[str], /, *, renormalise: bool = False, mmap: bool = False, **params: object) -> Any:
    """The same as `load`, except that a user's function may return something other than a CMDP."""
    text = os.fspath(source)
    found = parsed(text)
    if found is not None:
        if renormalise or mmap:
            raise CmdpkitError(f"{quoted(text)} is not a file: {'mmap' if mmap else 'renormalise'} is for model files")
        name, written = found
        for again in params.keys() & written.keys():
            raise CmdpkitError(f"parameter {again!r} is given twice, also in {text!r}")
        if name in envs.names():
            return envs.build(name, **written, **params)
        return _called(name, builder_of(name), {**written, **params})
    if not os.path.lexists(text):
        raise CmdpkitError(f"{quoted(text)}: no such file and no such environment; {_hint(text)}")
    if params:
        raise CmdpkitError(f"{quoted(text)} is a file: it takes no parameters, got {', '.join(params)}")
    if text.endswith(".py"):
        return _in_file(Path(text))
    from cmdpkit.io.models import read_model

    return read_model(text, renormalise=renormalise, mmap=mmap)


def _in_file(path: Path) -> Any:
    """What a user's Python file calls ``model``: a model, or a function without parameters that makes one."""
    look_in(str(path.parent.resolve()))
    scope = runpy.run_path(str(path), run_name=path.stem)
    if "model" not in scope:
        raise CmdpkitError(
            f"{quoted(str(path))} has no 'model', expected a model of that name, or a function that makes one"
        )
    found = scope["model"]
    return found() if inspect.isfunction(found) else found


def parsed(text: str) -> tuple[str, dict[str, envs.Parameter]] | None:
    """The environment or function that a text names, and its parameters; None if it is neither.

    >>> parsed("queue:S=3"), parsed("mine:make"), parsed("mine:make:n=3"), parsed("queue.toml")
    (('queue', {'S': 3}), ('mine:make', {}), ('mine:make', {'n': 3}), None)
    """
    head, colon, rest = text.partition(":")
    if head.strip() in envs.names():
        return envs.parse(text)
    name, again, listed = rest.partition(":")
    if not colon or not is_reference(f"{head}:{name}"):
        return None
    return f"{head}:{name}", envs.parse(f"x:{listed}")[1] if again else {}


def builder_of(source: str) -> Callable[..., Any]:
    """The function that makes an environment."""
    found = parsed(source)
    if found is not None and found[0] in envs.names():
        return envs.builder(found[0])
    made = referenced(source if found is None else found[0], "environment")
    if not callable(made):
        raise CmdpkitError(f"environment {source!r} is a {type(made).__name__}, expected a function that makes one")
    return made


def _called(name: str, function: Callable[..., Any], params: dict[str, Any]) -> Any:
    """The result of the function; parameters that it does not take, or that are missing, are refused by name."""
    try:
        inspect.signature(function).bind(**params)
    except TypeError as error:
        raise CmdpkitError(f"environment {name!r}: {error}; it is called as {inspect.signature(function)}") from None
    return function(**params)


def _hint(text: str) -> str:
    """The end of an error message: the most similar environment or file, or where to look."""
    from cmdpkit.io.models import SUFFIXES

    folder = Path(text).parent
    files = [str(path) for path in folder.iterdir() if path.suffix.lower() in SUFFIXES] if folder.is_dir() else []
    near = difflib.get_close_matches(text.partition(":")[0], [*envs.names(), *files], 1)
    return f"did you mean {quoted(near[0])}?" if near else "`cmdpkit envs` lists the environments"


# -- Classes and functions of the user, given as "package.module:name" on a command line or in a file.

REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_reference(text: str) -> bool:
    """Whether a text has the form "package.module:name".

    >>> is_reference("my_package.learners:Mine"), is_reference("queue:S=3"), is_reference("./mine.py")
    (True, False, False)
    """
    return REFERENCE.fullmatch(text) is not None


def referenced(text: str, what: str) -> object:
    """Import the module of "package.module:name" and return the object with that name.

    Modules are searched for on Python's path, and then in the current folder. ``what`` says in messages what was
    expected.

    >>> referenced("math:sqrt", "function")(9.0)
    3.0
    """
    module, _, name = text.partition(":")
    look_in(os.getcwd())
    try:
        found: object = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the user's module imports something that does not exist; the traceback says where
        raise CmdpkitError(
            f"{what} {text!r}: there is no module {error.name!r} in the current folder, {os.getcwd()}, or where "
            "Python looks; go to its folder, install its package, or set PYTHONPATH"
        ) from None
    for part in name.split("."):
        if not hasattr(found, part):
            public = [x for x in vars(found) if not x.startswith("_")]
            raise CmdpkitError(f"{what} {text!r}: the module {module!r} has no {name!r}{nearest(part, public)}")
        found = getattr(found, part)
    return found


def look_in(folder: str) -> None:
    """Add a folder to the end of Python's path, so that its modules hide no others."""
    if folder not in sys.path and not (folder == os.getcwd() and "" in sys.path):
        importlib.invalidate_caches()
        sys.path.append(folder)
