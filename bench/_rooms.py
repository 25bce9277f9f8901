"""How large the house is: modules and lines of every room, and of the tests.

python -m bench._rooms            the working tree
python -m bench._rooms COMMIT     and next to it an earlier commit
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "src/cmdpkit/"


def room_of(path: str) -> str:
    """The room that a file belongs to; modules beside the rooms are counted together."""
    if path.startswith("tests/"):
        return "tests"
    room, _, rest = path.removeprefix(PACKAGE).partition("/")
    return room if rest else "(top)"


def sizes(commit: str | None) -> dict[str, tuple[int, int]]:
    """(modules, lines) of every room, in the working tree or in a commit."""
    listing = (
        ["git", "ls-files", "-co", "--exclude-standard"]
        if commit is None
        else ["git", "ls-tree", "-r", "--name-only", commit]
    )
    paths = [path for path in _git(*listing[1:]).splitlines() if path.endswith(".py")]
    modules, lines = Counter[str](), Counter[str]()
    for path in paths:
        if path.startswith((PACKAGE, "tests/")) and (commit is not None or (ROOT / path).exists()):
            text = (ROOT / path).read_text(encoding="utf-8") if commit is None else _git("show", f"{commit}:{path}")
            modules[room_of(path)] += 1
            lines[room_of(path)] += len(text.splitlines())
    return {room: (modules[room], lines[room]) for room in sorted(modules)}


def _git(*words: str) -> str:
    return subprocess.check_output(["git", *words], cwd=ROOT, text=True)


def main() -> None:
    """Print the table."""
    now = sizes(None)
    columns = [now] if len(sys.argv) < 2 else [sizes(sys.argv[1]), now]
    rooms = sorted(set().union(*columns) - {"tests"})
    totals = [tuple(sum(found[room][i] for room in rooms if room in found) for i in (0, 1)) for found in columns]
    print("room".ljust(14) + "".join("modules".rjust(9) + "lines".rjust(9) for _ in columns))
    for room in [*rooms, "src", "tests"]:
        cells = [
            total if room == "src" else found.get(room, (0, 0)) for found, total in zip(columns, totals, strict=True)
        ]
        print(room.ljust(14) + "".join(f"{n:9,}{m:9,}" for n, m in cells))


if __name__ == "__main__":
    main()
