"""Which lines of the package the tests reach, before Python 3.12, without following the program line by line.

From 3.12 on the interpreter tells coverage what it reaches, which costs next to nothing. Before, coverage has to trace
everything that runs, all libraries included, which makes the tests take nearly half as long again. So here every
statement of the package notes its own line when it is reached: when a module is imported, `__reached__[12] = 1` is put
before the statement of line 12. Coverage is given these lines at the end, and reports on them as if it had traced them.
A handler or case that was tried in vain counts as not reached.

Compiled functions are left as they are, and processes that tests start know nothing of this, as with coverage itself.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

import pytest
from coverage import Coverage

COMPILED = {"compiled", "inlined", "embedded", "njit"}  # decorators of functions that run as machine code
PACKAGE = "cmdpkit"


class Notes(ast.NodeTransformer):
    """Puts a note before every statement."""

    def __init__(self) -> None:
        self.waiting: list[int] = []  # lines before which nothing may stand; they are noted with the next statement

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        decorators = {ast.unparse(x).partition("(")[0] for x in node.decorator_list}
        return node if decorators & COMPILED else self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):  # a lambda has a body too, which is no list
                if isinstance(node, ast.ExceptHandler):
                    self.waiting.append(node.lineno)
                elif isinstance(node, ast.match_case):
                    self.waiting.append(node.pattern.lineno)
                setattr(node, field, [x for statement in statements for x in self._noted(statement)])
        return node

    def _noted(self, statement: ast.AST) -> Iterator[ast.AST]:
        """The notes of a statement, and the statement with notes inside of it."""
        if isinstance(statement, ast.stmt) and not _is_constant(statement):  # docstrings have to stay first
            self.waiting += [statement.lineno, *(x.lineno for x in getattr(statement, "decorator_list", ()))]
            if not (isinstance(statement, ast.ImportFrom) and statement.module == "__future__"):
                yield from (_note(line, statement) for line in self.waiting)
                self.waiting = []
        yield self.visit(statement)


def _is_constant(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _note(line: int, statement: ast.stmt) -> ast.stmt:
    """A statement that notes a line; in tracebacks it stands where the statement does that it belongs to."""
    where = {"lineno": statement.lineno, "col_offset": statement.col_offset}
    lines = ast.Name("__reached__", ast.Load(), **where)
    target = ast.Subscript(lines, ast.Constant(line, **where), ast.Store(), **where)
    return ast.Assign([target], ast.Constant(1, **where), **where)


class NotingLoader(SourceFileLoader):
    """Imports a module with notes before its statements. Nothing is kept on disk."""

    reached: dict[str, bytearray] = {}  # noqa: RUF012  # by file: 1 for every line that was reached

    def get_code(self, fullname: str) -> CodeType:
        tree = Notes().visit(ast.parse(self.get_data(self.path)))
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        lines = self.get_data(self.path).count(b"\n") + 2
        module.__dict__["__reached__"] = self.reached.setdefault(self.path, bytearray(lines))
        super().exec_module(module)


class NotingFinder(MetaPathFinder):
    """Gives the modules of the package to `NotingLoader`."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name.partition(".")[0] == PACKAGE else None
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = NotingLoader(name, spec.loader.path)
        return spec


class ReachedLines:
    """A plugin of pytest that takes the place of coverage's tracer; everything else is left to pytest-cov."""

    def __init__(self) -> None:
        assert PACKAGE not in sys.modules, "lines of modules that were imported before cannot be noted"
        sys.meta_path.insert(0, NotingFinder())

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        self.coverage = Coverage.current()
        while running := Coverage.current():  # workers of pytest-xdist have two
            running.stop()
        assert sys.gettrace() is None, "something still follows the program line by line"

    @pytest.hookimpl(wrapper=True, trylast=True)  # inside of what pytest-cov does: it saves and reports afterwards
    def pytest_runtestloop(self) -> Iterator[None]:
        result = yield
        found = {file: [line for line, x in enumerate(lines) if x] for file, lines in NotingLoader.reached.items()}
        self.coverage.get_data().add_lines(found)
        return result
