"""Which compiled functions did the tests never run with bounds checking? `make bounds` asks at its end.

    python tests/unchecked.py build/numba-bounds

Compiled code is kept in files of a cache folder, which was empty before the tests, and a file names all functions that
its code is made of. A function that none of them names was not compiled with bounds checking: some test that calls it
needs the mark `compiled`.
"""

import ast
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "cmdpkit"


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and line of every compiled function of a module."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            decorators = {ast.unparse(x).partition("(")[0] for x in node.decorator_list}
            if decorators & {"compiled", "njit"}:
                yield node.name, node.lineno


def unchecked(cache: Path, source: Path = SOURCE) -> list[str]:
    """The compiled functions below `source` that are part of no code in the cache, as "path:line name"."""
    checked = {name for path in cache.rglob("*.nbc") for name in pickle.loads(path.read_bytes())[0]}
    found = []
    for path in sorted(source.rglob("*.py")):
        inside = path.relative_to(source.parent).with_suffix("").parts
        module = ".".join(inside[:-1] if inside[-1] == "__init__" else inside)
        missing = [x for x in functions(path) if f"{module}.{x[0]}" not in checked]
        found += [f"{path.relative_to(source)}:{line} {name}" for name, line in missing]
    return found


if __name__ == "__main__":
    found = unchecked(Path(sys.argv[1]))
    if found:
        sys.exit("no test runs these compiled functions with bounds checking:\n  " + "\n  ".join(found))
