"""Which algorithms there are, and how a name becomes a class.

The folder is the registry: the algorithm ``opt-dual`` is the file ``opt_dual.py``, and ``triple-q`` is the folder
``triple_q/``. Each defines one `Learner` with a title, or one for each kind of problem: ``cl-pri`` is one class for
problems with a horizon and another for problems without. Other packages add algorithms by an entry point in the group
``cmdpkit.learners``, and a class that is not registered anywhere is named ``package.module:Class``.
"""

from __future__ import annotations

import importlib
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from typing import NamedTuple

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.loading import is_reference, referenced
from cmdpkit.learners.contract import Learner
from cmdpkit.model.validate import index_of

FOLDER = "cmdpkit.learners"
GROUP = "cmdpkit.learners"  # of entry points
SHARED = ("contract", "params", "registry")  # modules of the folder that are not algorithms


class Facts(NamedTuple):
    """What a reader wants to know before choosing an algorithm: the class attributes of its learner."""

    title: str  # what it is, in one line
    paper: str  # where it is from
    source: str  # what its constants were taken from
    guarantee: str  # what is proved about it
    needs: tuple[str, ...]  # what it needs to know in addition to its spec
    presets: tuple[str, ...]  # names of its presets; the first is the default
    criteria: tuple[str, ...]  # kinds of problems that it can learn


@cache
def _listed() -> tuple[str, ...]:
    entries = [entry.name.removesuffix(".py") for entry in files(FOLDER).iterdir()]
    modules = {name for name in entries if not name.startswith("_") and "." not in name and name not in SHARED}
    return tuple(sorted(name.replace("_", "-") for name in modules))


def names() -> list[str]:
    """Names of the algorithms that come with the package, in alphabetical order.

    >>> "triple-q" in names()
    True
    """
    return list(_listed())


def names_for(criterion: str) -> list[str]:
    """Names of the algorithms that come with the package and can learn "horizon", "average" or "discounted" problems.

    >>> "cl-pri" in names_for("average"), "triple-q" in names_for("average")
    (True, False)
    """
    return [name for name in names() if criterion in facts(name).criteria]


def installed() -> list[str]:
    """Names of the algorithms that other installed packages have registered, in alphabetical order."""
    return sorted(set(_entries()) - set(names()))


def facts(algo: str | type[Learner]) -> Facts:
    """What is said about an algorithm.

    >>> facts("triple-q").paper, facts("dope").needs
    ('arXiv 2106.01577', ('baseline', 'baseline_utility'))
    """
    kind = resolve(algo)
    criteria = tuple(criterion for form in _forms(kind) for criterion in form.criteria)
    return Facts(kind.title, kind.paper, kind.source, kind.guarantee, kind.needs, tuple(kind.presets), criteria)


def resolve(algo: str | type[Learner], criterion: str | None = None) -> type[Learner]:
    """The class of an algorithm: by its name, as "package.module:Class", or a class itself.

    Where an algorithm has a class for each kind of problem, `criterion` chooses between them; without it, the class for
    problems with a horizon is returned.

    Modules are looked for in the current directory too, as with ``python -m``. An unknown name is answered with the
    nearest one.

    >>> resolve("triple-q").title
    'Triple-Q: model-free learning with a virtual queue per constraint.'
    >>> resolve("cl-pri").__name__, resolve("cl-pri", "average").__name__
    ('ClosedLoopPRI', 'ContinuingPRI')
    >>> resolve("triple-p")
    Traceback (most recent call last):
    cmdpkit.CmdpkitError: unknown algorithm 'triple-p'; did you mean 'triple-q'?
    """
    kind = _named(algo)
    return next((form for form in _forms(kind) if criterion in form.criteria), kind)


def _named(algo: str | type[Learner]) -> type[Learner]:
    """The class of an algorithm, or the first of its classes."""
    if isinstance(algo, type):
        return _learner(algo, algo.__qualname__)
    if not isinstance(algo, str):
        raise CmdpkitError(f"algo is {algo!r}, expected the name of an algorithm, 'module:Class' or a class")
    check_name(algo)
    if algo in names():
        return _own(algo)[0]
    if ":" in algo:
        return _learner(referenced(algo, "algorithm"), algo)
    entry = _entries()[algo]
    return _learner(entry.load(), entry.value)


load = resolve


def check_name(algo: str) -> None:
    """Refuse a text that no algorithm can have as its name. Nothing is imported, so this is safe for what a file says.

    Whether "package.module:Class" exists is found out by `resolve`, which runs the code of that module.

    >>> check_name("triple-q"), check_name("not_there:Mine")
    (None, None)
    >>> check_name("not there:Mine")
    Traceback (most recent call last):
    cmdpkit.CmdpkitError: algorithm 'not there:Mine', expected package.module:Class
    """
    if ":" in algo and not is_reference(algo):
        raise CmdpkitError(f"algorithm {quoted(algo)}, expected package.module:Class")
    if ":" not in algo and algo not in names() and algo not in _entries():
        index_of("algorithm", [*names(), *installed()], algo)


def name_of(kind: type[Learner]) -> str:
    """What an algorithm is called: a name of `names`, or "package.module:Class".

    >>> name_of(resolve("triple-q"))
    'triple-q'
    """
    name = kind.__module__.removeprefix(f"{FOLDER}.").partition(".")[0].replace("_", "-")
    return name if name in names() else f"{kind.__module__}:{kind.__qualname__}"


def _own(name: str) -> tuple[type[Learner], ...]:
    """The learners with a title that a module or folder of the package defines, that for episodes first."""
    module = importlib.import_module(f"{FOLDER}.{name.replace('-', '_')}")
    classes = [x for x in vars(module).values() if isinstance(x, type) and issubclass(x, Learner)]
    found = [x for x in classes if "title" in vars(x) and f"{x.__module__}.".startswith(f"{module.__name__}.")]
    criteria = [criterion for kind in found for criterion in kind.criteria]
    if not found or len(criteria) > len(set(criteria)):
        raise RuntimeError(f"{module.__name__} defines {len(found)} learners with a title, expected one per criterion")
    return tuple(sorted(found, key=lambda kind: "horizon" not in kind.criteria))


def _forms(kind: type[Learner]) -> tuple[type[Learner], ...]:
    """The classes of the algorithm that a class belongs to, one for each kind of problem."""
    name = name_of(kind)
    return _own(name) if name in names() else (kind,)


def _learner(found: object, text: str) -> type[Learner]:
    """The class itself, if it is a learner that can be made."""
    if not isinstance(found, type) or not issubclass(found, Learner):
        raise CmdpkitError(f"algorithm {text!r} is not a class that inherits from cmdpkit.Learner")
    missing = sorted(found.missing())
    if missing and "__new__" not in vars(found):  # a class with one may stand for several variants
        raise CmdpkitError(f"algorithm {text!r} does not define {', '.join(missing)}, which every learner must")
    return found


def _entries() -> dict[str, EntryPoint]:
    """Entry points of other packages by name."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}
