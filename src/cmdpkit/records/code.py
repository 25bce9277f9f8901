"""The identity of code: a digest of the sources that decide what a learner, or a user's environment, does.

The digest is of the module that holds the class (and its base classes), and of every module that it imports, directly
or through others, as long as they belong together: modules of the same top-level package, or of the same folder if the
module stands alone. Of this package, all rooms before this one count (`COUNTED_ROOMS`): a learner plans with the
evaluation of the room `operators` as much as with code of its own. Comments, docstrings and layout do not
count, because they change no result. Neither do other packages, whose versions are in the record, and data files.

A record also names its origin: the versions of Python and packages and, in a Git checkout, the commit. These are for
readers only. Whatever cannot be found out is unknown, and never an error.
"""

from __future__ import annotations

import ast
import hashlib
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import cmdpkit

# The rooms of this package whose code decides the result of a learner: all that come before this one.
ROOMS = ("model", "operators", "exact", "envs", "io", "simulate", "estimate", "learners")
COUNTED_ROOMS = tuple(f"cmdpkit.{room}" for room in ROOMS)
INSTALL_FOLDERS = ("site-packages", "dist-packages")  # modules side by side in these do not belong together
DIGEST_LENGTH = 16  # hexadecimal digits

Coded = type | Callable[..., Any]


class _ModuleGroup(NamedTuple):
    """Modules that belong together: those in a folder, or those of some packages in it."""

    root: Path  # the folder
    packages: tuple[str, ...]  # names of the packages; empty if every module in the folder belongs to the group

    def find(self, module: str) -> Path | None:
        """The file of a module, or None if the module does not belong to this group."""
        if self.packages and not any(module == x or module.startswith(f"{x}.") for x in self.packages):
            return None
        path = self.root.joinpath(*module.split("."))
        return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


OURS = _ModuleGroup(Path(cmdpkit.__file__).resolve().parents[1], COUNTED_ROOMS)


@cache  # a file that is edited after its import is not what this process runs, so the first answer stays right
def code_digest(thing: Coded) -> str:
    """The identity of the code of a class or a function.

    >>> from cmdpkit import learners
    >>> one, two = (code_digest(learners.load(name)) for name in ("triple-q", "dual-q"))
    >>> len(one), one == two
    (16, False)
    """
    places = {part: _group_of(part) for part in _parts(thing)}
    without_file = [part for part, place in places.items() if place is None]
    return _digest_of([place for place in places.values() if place is not None], without_file)


def _digest_of(places: Iterable[tuple[_ModuleGroup, str]], without_file: Iterable[Coded]) -> str:
    """The digest of modules, all that they import, and classes and functions that are in no file."""
    groups, found = [OURS], dict[str, Path]()
    for group, module in places:
        groups.append(group)
        _collect(module, groups, found)
    digest = hashlib.sha256()
    for name, path in sorted(found.items()):
        digest.update(f"{name}\n{_meaning(path)}\n".encode())
    for part in without_file:
        digest.update(repr(_compiled(part)).encode())
    return digest.hexdigest()[:DIGEST_LENGTH]


def source_folder(thing: Coded) -> str | None:
    """The folder from which the module of a class or function is imported; None if it is not in a file."""
    group = _group_of(thing)
    return None if group is None else str(group[0].root)


def source_file(thing: Coded) -> Path | None:
    """The file in which a class or function is defined, if it is in a file."""
    file = getattr(sys.modules.get(thing.__module__), "__file__", None)
    if not file or not file.endswith(".py") or not Path(file).is_file():
        return None
    path = Path(file).resolve()
    return path if thing.__module__ != "__main__" or _defines(path, thing.__name__) else None


def _defines(path: Path, name: str) -> bool:
    """Whether a script defines a name; what is typed into an interpreter has `__main__` as its module as well."""
    return any(getattr(node, "name", None) == name for node in ast.walk(ast.parse(path.read_bytes())))


def _parts(thing: Coded) -> Iterator[Coded]:
    """The function itself, or the class and those of its base classes that belong to cmdpkit or to the same group."""
    own = _group_of(thing)
    for part in thing.__mro__ if isinstance(thing, type) else (thing,):
        group = _group_of(part)
        if part is thing or (group is not None and (group[1].startswith("cmdpkit.") or (own and group[0] == own[0]))):
            yield part


def _group_of(thing: Coded) -> tuple[_ModuleGroup, str] | None:
    """The module group of a class or function, and the name of its module; None if it is not in a file."""
    file = source_file(thing)
    if file is None:
        return None
    return _group_in(file, thing.__module__ if thing.__module__ != "__main__" else file.stem)


def _group_in(file: Path, module: str) -> tuple[_ModuleGroup, str]:
    """The module group of a module in a file, and the name of the module."""
    root = file.parents[module.count(".") + (file.name == "__init__.py")]
    top = module.partition(".")[0]
    if top == "cmdpkit":
        return _ModuleGroup(root, COUNTED_ROOMS), module
    alone = module == top and file.name != "__init__.py" and root.name not in INSTALL_FOLDERS
    return _ModuleGroup(root, () if alone else (top,)), module


def _collect(module: str, groups: list[_ModuleGroup], found: dict[str, Path]) -> None:
    """Add a module and its imports to the files that count."""
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = None if name in found else next(filter(None, (group.find(name) for group in groups)), None)
        if path is not None:
            found[name] = path
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            parents = accumulate(name.split(".")[:-1], "{}.{}".format)  # importing a module runs those first
            waiting += [*parents, *_imported(path, path.stat().st_mtime_ns, package)]


def _imported(path: Path, changed: int, package: str) -> tuple[str, ...]:
    """Names of modules that a module may import, at any depth of its code."""
    found: list[str] = []
    for node in _read(path, changed)[1]:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        else:
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(found)


def _meaning(path: Path) -> str:
    """Digest of the code in a file without comments, docstrings and layout."""
    return _read(path, path.stat().st_mtime_ns)[0]


@cache
def _read(path: Path, changed: int) -> tuple[str, list[ast.Import | ast.ImportFrom]]:
    """The digest of a file, and its imports."""
    words: list[str] = []
    imports: list[ast.Import | ast.ImportFrom] = []
    _write(ast.parse(path.read_bytes()), words, imports)  # the tree is not kept: it is large
    return hashlib.sha256(" ".join(words).encode(errors="surrogatepass")).hexdigest(), imports


def _write(node: ast.AST, out: list[str], imports: list[ast.Import | ast.ImportFrom]) -> None:
    """Append syntax as words, the same for every version of Python, without statements that are only a constant."""
    out.append(type(node).__name__)
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        imports.append(node)
    for name in node._fields:
        value = getattr(node, name, None)
        if value is None or value == []:
            continue
        out.append(name)
        for x in value if isinstance(value, list) else (value,):
            if not isinstance(x, ast.AST):
                out.append(repr(x))
            elif not (name == "body" and isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant)):
                _write(x, out, imports)
        out.append(";")


def _compiled(thing: Coded) -> list[Any]:
    """The compiled functions of a class or function that is in no file, as in a notebook, where there is no source."""
    from cmdpkit.model.compiled import instructions  # with it comes Numba

    members = {"": thing} if isinstance(thing, FunctionType) else vars(thing)
    functions = {name: getattr(x, "__func__", x) for name, x in members.items()}
    return [(name, instructions(x.__code__)) for name, x in functions.items() if isinstance(x, FunctionType)]


# -- Where a result comes from: the versions of Python and packages and, in a Git checkout, the commit.

PACKAGES = ("numpy", "numba", "highspy")
UNKNOWN = "unknown"  # version of a package that does not tell it
GIT_SECONDS = 10.0  # how long an answer of Git is waited for


@dataclass(frozen=True)
class Checkout:
    """The state of the Git checkout that holds the code of a learner."""

    commit: str  # digest of the commit
    clean: bool  # whether all files under version control are as in the commit


@cache
def versions() -> Mapping[str, str]:
    """Versions of Python and packages, looked up once per process, because reading them takes milliseconds."""
    ours = {"python": platform.python_version(), "cmdpkit": cmdpkit.__version__}
    return ours | {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str:
    """The version in the metadata of a package; without metadata, that which the imported package itself tells."""
    try:
        found = version(package)
    except Exception:  # not installed as a package, or its metadata are damaged, in whatever way
        found = None
    return str(found or getattr(sys.modules.get(package), "__version__", UNKNOWN))


def checkout_of(thing: Coded) -> Checkout | None:
    """The checkout that holds the code of a class; None if it is not under version control or Git is not installed."""
    try:
        file = source_file(thing)
    except (OSError, SyntaxError, ValueError, RecursionError):  # a script that was edited or moved while it runs
        return None
    return None if file is None else _checkout(file)


@cache
def _checkout(file: Path) -> Checkout | None:
    """The checkout of a file, asked for only once per process, because later changes are not what this process runs."""
    if _git(file.parent, "ls-files", "--error-unmatch", "--", file.name) is None:
        return None
    commit = _git(file.parent, "rev-parse", "HEAD")
    changes = _git(file.parent, "status", "--porcelain", "--untracked-files=no")
    return None if commit is None or changes is None else Checkout(commit, not changes)


def _git(folder: Path, *words: str) -> str | None:
    """The answer of Git, or None if it fails."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
