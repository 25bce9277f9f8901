"""The identity of code: a digest of the sources that decide what a learner, or a user's environment, does.

The digest is of the module that holds the class (and its base classes), and of every module that it imports, directly
or through others, as long as they belong together: modules of the same top-level package, or of the same folder if the
module stands alone. Of this package the rooms in `OWN` count. Comments, docstrings and layout do not count, as they
change no result; neither do other packages (their versions are in the record) and data files.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import cmdpkit

OWN = ("cmdpkit.learners", "cmdpkit.simulate", "cmdpkit.exact")  # what decides the result of a learner of ours
INSTALLED = ("site-packages", "dist-packages")  # folders in which neighbours do not belong together
DIGITS = 16

Coded = type | Callable[..., Any]


class _Home(NamedTuple):
    """Modules that belong together: those in a folder, or those of some packages in it."""

    root: Path
    packages: tuple[str, ...]  # empty: every module in the folder

    def find(self, module: str) -> Path | None:
        """The file of a module that belongs here."""
        if self.packages and not any(module == x or module.startswith(f"{x}.") for x in self.packages):
            return None
        path = self.root.joinpath(*module.split("."))
        return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache  # as it is when first asked for: a file that is edited later is not what this process has imported
def code_digest(thing: Coded) -> str:
    """The identity of the code of a class or a function.

    >>> from cmdpkit import learners
    >>> one, two = (code_digest(learners.load(name)) for name in ("triple-q", "dual-q"))
    >>> len(one), one == two
    (16, False)
    """
    homes = [_Home(Path(cmdpkit.__file__).resolve().parents[1], OWN)]
    found: dict[str, Path] = {}
    bare = []
    for part in _parts(thing):
        home = _home(part)
        if home is None:
            bare.append(part)
        else:
            homes.append(home[0])
            _collect(home[1], homes, found)
    digest = hashlib.sha256()
    for name, path in sorted(found.items()):
        digest.update(f"{name}\n{_meaning(path)}\n".encode())
    for part in bare:
        digest.update(repr(_compiled(part)).encode())
    return digest.hexdigest()[:DIGITS]


def source_folder(thing: Coded) -> str | None:
    """The folder from which the module of a class or function is imported; None if it is not in a file."""
    home = _home(thing)
    return None if home is None else str(home[0].root)


def source_file(thing: Coded) -> Path | None:
    """The file in which a class or function is defined, if it is in a file."""
    file = getattr(sys.modules.get(thing.__module__), "__file__", None)
    if not file or not file.endswith(".py") or not Path(file).is_file():
        return None
    path = Path(file).resolve()
    return path if thing.__module__ != "__main__" or _defines(path, thing.__name__) else None


def _defines(path: Path, name: str) -> bool:
    """Whether a script defines a name. What is typed into an interpreter belongs to the script that runs it, too."""
    return any(getattr(node, "name", None) == name for node in ast.walk(_tree(path)))


def _parts(thing: Coded) -> Iterator[Coded]:
    """A class and its base classes of this package or of the same package or folder; or the function itself."""
    own = _home(thing)
    for part in thing.__mro__ if isinstance(thing, type) else (thing,):
        home = _home(part)
        if part is thing or (home is not None and (home[1].startswith("cmdpkit.") or (own and home[0] == own[0]))):
            yield part


def _home(thing: Coded) -> tuple[_Home, str] | None:
    """Where a class or function belongs, and the name of its module there; None if it is not in a file."""
    file = source_file(thing)
    if file is None:
        return None
    module = thing.__module__ if thing.__module__ != "__main__" else file.stem
    root = file.parents[module.count(".") + (file.name == "__init__.py")]
    top = module.partition(".")[0]
    if top == "cmdpkit":
        return _Home(root, OWN), module
    alone = module == top and file.name != "__init__.py" and root.name not in INSTALLED
    return _Home(root, () if alone else (top,)), module


def _collect(module: str, homes: list[_Home], found: dict[str, Path]) -> None:
    """Add a module, and what it imports, to the files that count."""
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = None if name in found else next((x for x in (home.find(name) for home in homes) if x is not None), None)
        if path is not None:
            found[name] = path
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            waiting += _imports(_tree(path), package)


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """Names of modules that a module may import, at any depth of its code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _tree(path: Path) -> ast.Module:
    return _parsed(path, path.stat().st_mtime_ns)


def _meaning(path: Path) -> str:
    """Digest of the code in a file without comments, docstrings and layout."""
    return _digested(path, path.stat().st_mtime_ns)


@cache
def _parsed(path: Path, _changed: int) -> ast.Module:
    return ast.parse(path.read_bytes())


@cache
def _digested(path: Path, changed: int) -> str:
    return hashlib.sha256(repr(_plain(_parsed(path, changed))).encode()).hexdigest()


def _plain(node: Any) -> Any:
    """Syntax as nested tuples, the same for every version of Python."""
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
        return type(node).__name__, *((name, _plain(_undocumented(name, value))) for name, value in fields)
    return [_plain(x) for x in node] if isinstance(node, list) else repr(node)


def _undocumented(name: str, value: Any) -> Any:
    """The statements of a body without those that are only a text."""
    if name != "body" or not isinstance(value, list):
        return value
    return [x for x in value if not (isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant))]


def _compiled(thing: Coded) -> list[Any]:
    """What Python made of a class or function that is in no file, as in a notebook: all that is left to look at."""
    members = {"": thing} if isinstance(thing, FunctionType) else vars(thing)
    functions = {name: getattr(x, "__func__", x) for name, x in members.items()}
    return [(name, _instructions(x.__code__)) for name, x in functions.items() if isinstance(x, FunctionType)]


def _instructions(code: CodeType) -> tuple[Any, ...]:
    constants = [_instructions(x) if isinstance(x, CodeType) else repr(x) for x in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, constants
