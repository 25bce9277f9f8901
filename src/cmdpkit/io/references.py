"""Classes and functions of the user, given as "package.module:name" on a command line or in a file."""

from __future__ import annotations

import importlib
import os
import re
import sys

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.validate import nearest

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
