"""Algorithms that learn a constrained MDP by acting in it.

The folder is the registry. The algorithm ``opt-dual`` is the file ``opt_dual.py``; one that takes several modules is a
folder, as ``triple-q`` is ``triple_q/`` with an ``__init__.py``. Either has a class ``Learner``, and the first line of
its docstring is what lists say about it. There is nothing else to edit. What begins with an underscore is no algorithm:
``_protocol.py`` says what a learner is, ``_model_based/`` is what those that plan in an estimated model share.

>>> "triple-q" in names()
True
>>> about("triple-q")
'Triple-Q: model-free learning with a virtual queue per constraint.'
"""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple, cast

from cmdpkit.learners._protocol import Episodic, Learner, Returns, Source, Spec, State, Stepwise
from cmdpkit.model.validate import index_of

__all__ = [
    "Episodic",
    "Facts",
    "Learner",
    "Returns",
    "Source",
    "Spec",
    "State",
    "Stepwise",
    "about",
    "facts",
    "load",
    "names",
]


def names() -> list[str]:
    """All algorithms, in alphabetical order."""
    return sorted(_sources())


def about(name: str) -> str:
    """What an algorithm is, in one line; its module is read, not imported."""
    tree = ast.parse(_sources()[_known(name)])
    return (ast.get_docstring(tree) or "").partition("\n")[0]


class Facts(NamedTuple):
    """What a reader wants to know before choosing an algorithm, from its module's docstring."""

    line: str  # what it is
    reference: str  # an arXiv number, or none
    guarantee: str
    needs: str


def facts(name: str) -> Facts:
    """Line, reference, guarantee and needs of an algorithm.

    >>> facts("triple-q").reference
    'arXiv 2106.01577'
    >>> facts("dope").needs
    'a safe policy `baseline` and its utilities `baseline_utility`'
    """
    tree = ast.parse(_sources()[_known(name)])
    text = " ".join((ast.get_docstring(tree) or "").split())
    patterns = (r"(arXiv [0-9]{4}[.][0-9]{5})", r".*Guarantee[^:]*: (.*?) Needs:", r"Needs: (.*?)[.] Output:")
    found = [re.search(pattern, text) for pattern in patterns]
    return Facts(about(name), *("" if match is None else match[1] for match in found))


def load(name: str) -> type[Learner]:
    """The class of the algorithm called `name`; an unknown name is answered with the nearest one.

    >>> load("triple-p")
    Traceback (most recent call last):
    cmdpkit.CmdpkitError: unknown algorithm 'triple-p'; did you mean 'triple-q'?
    """
    module = importlib.import_module(f"{__name__}.{_known(name).replace('-', '_')}")
    return cast("type[Learner]", module.Learner)


def _known(name: str) -> str:
    listed = names()
    return listed[index_of("algorithm", listed, name)]


@cache
def _sources() -> dict[str, str]:
    """Source text of every algorithm, by its name: files are read, nothing is imported."""
    found = {}
    for entry in files(__name__).iterdir():
        module = entry / "__init__.py" if entry.is_dir() else entry
        if not entry.name.startswith(("_", "registry")) and module.name.endswith(".py") and module.is_file():
            found[entry.name.removesuffix(".py").replace("_", "-")] = module.read_text(encoding="utf-8")
    return found
