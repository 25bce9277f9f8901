"""Which compiled functions did the tests never run with bounds checking? `make bounds` asks at its end.

    python tests/unchecked.py build/numba-bounds

Numba keeps every function that it compiles in a file of its cache folder, named after module, function and line. A
function without such a file, or with one that is older than its source, was not compiled with bounds checking: some
test that calls it needs the mark `compiled`. Functions decorated with `embedded`, `internal` or `inlined` need no
file, as they are parts of those that call them.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "cmdpkit"
KEPT = {"compiled", "njit"}  # decorators of functions that have files in the cache


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and first line of every compiled function of a module."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            decorators = {ast.unparse(x).partition("(")[0]: x.lineno for x in node.decorator_list}
            if KEPT & decorators.keys():
                yield node.name, min(decorators.values())


def unchecked(cache: Path, source: Path = SOURCE) -> list[str]:
    """The compiled functions below `source` that are not in the cache, as "path:line name"."""
    kept = {path.name.partition(".py3")[0]: path.stat().st_mtime for path in cache.rglob("*.nbi")}
    return [
        f"{path.relative_to(source)}:{line} {name}"
        for path in sorted(source.rglob("*.py"))
        for name, line in functions(path)
        if kept.get(f"{path.stem}.{name}-{line}", 0.0) < path.stat().st_mtime
    ]


if __name__ == "__main__":
    found = unchecked(Path(sys.argv[1]))
    if found:
        sys.exit("no test runs these compiled functions with bounds checking:\n  " + "\n  ".join(found))
