"""How large the house is: modules and four kinds of lines of every room, the tests and the benches.

python -m bench._rooms            the working tree
python -m bench._rooms COMMIT     and next to it an earlier commit

A line of code is a line that is not only a docstring, a comment or blank.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "src/cmdpkit/"
BESIDE = ("tests", "bench", "reproduction")  # folders beside the package, which are counted whole
BLANK = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


class Size(NamedTuple):
    """Modules, and lines of four kinds, which add up to all lines."""

    modules: int = 0
    code: int = 0
    docstrings: int = 0
    comments: int = 0
    blanks: int = 0

    def plus(self, other: Size) -> Size:
        return Size(*(mine + more for mine, more in zip(self, other, strict=True)))


def size_of(text: str) -> Size:
    """The lines of one module."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node
        ):
            docstrings |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in BLANK:
            code |= set(range(token.start[0], token.end[0] + 1))
    lines = text.splitlines()
    blanks = sum(not line.strip() for k, line in enumerate(lines, 1) if k not in code | docstrings)
    comments = len(lines) - len(code | docstrings) - blanks
    return Size(1, len(code - docstrings), len(docstrings), comments, blanks)


def room_of(path: str) -> str | None:
    """The room that a file belongs to; modules beside the rooms are counted together."""
    if path.startswith(tuple(f"{folder}/" for folder in BESIDE)):
        return path.partition("/")[0]
    if not path.startswith(PACKAGE):
        return None
    room, _, rest = path.removeprefix(PACKAGE).partition("/")
    return room if rest else "(top)"


def sizes(commit: str | None) -> dict[str, Size]:
    """The size of every room, in the working tree or in a commit."""
    listing = ["ls-files", "-co", "--exclude-standard"] if commit is None else ["ls-tree", "-r", "--name-only", commit]
    rooms: dict[str, Size] = defaultdict(Size)
    for path in _git(*listing).splitlines():
        room = room_of(path) if path.endswith(".py") else None
        if room is not None and (commit is not None or (ROOT / path).exists()):
            text = (ROOT / path).read_text(encoding="utf-8") if commit is None else _git("show", f"{commit}:{path}")
            rooms[room] = rooms[room].plus(size_of(text))
    return rooms


def _git(*words: str) -> str:
    return subprocess.check_output(["git", *words], cwd=ROOT, text=True)


def main() -> None:
    """Print the table."""
    columns = [sizes(None)] if len(sys.argv) < 2 else [sizes(sys.argv[1]), sizes(None)]
    rooms = sorted(set().union(*columns) - set(BESIDE))
    for column in columns:
        column["src"] = Size(*map(sum, zip(*(column[room] for room in rooms), strict=True)))
    heads = ("modules", "code", "docs", "comments", "blanks")
    print("".ljust(14) + "".join(title.rjust(10) for _ in columns for title in heads))
    for room in [*rooms, "src", *BESIDE]:
        print(room.ljust(14) + "".join(f"{number:10,}" for column in columns for number in column[room]))


if __name__ == "__main__":
    main()
