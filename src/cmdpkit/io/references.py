"""Classes and functions in a user's own package, named "package.module:name" on a command line or in a file."""

from __future__ import annotations

import importlib
import os
import re
import sys

from cmdpkit.errors import CmdpkitError

REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_reference(text: str) -> bool:
    """Whether a text has the form "package.module:name".

    >>> is_reference("my_package.learners:Mine"), is_reference("queue:S=3"), is_reference("./mine.py")
    (True, False, False)
    """
    return REFERENCE.fullmatch(text) is not None


def referenced(text: str, what: str) -> object:
    """The object that "package.module:name" names; its module is imported.

    Modules are looked for where Python looks, and then in the current folder. ``what`` says in messages what was
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
            raise  # a module of the user's imports something that is not there: the traceback says where
        raise CmdpkitError(
            f"{what} {text!r}: there is no module {error.name!r} in the current folder, {os.getcwd()}, or where "
            "Python looks; go to its folder, install its package, or set PYTHONPATH"
        ) from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise CmdpkitError(f"{what} {text!r}: the module {module!r} has no {name!r}")
        found = getattr(found, part)
    return found


def look_in(folder: str) -> None:
    """Let Python look for modules in a folder too, after all others, so that it hides none of them."""
    if folder not in sys.path and not (folder == os.getcwd() and "" in sys.path):
        importlib.invalidate_caches()
        sys.path.append(folder)
