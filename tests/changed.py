"""Which test files concern what differs from the last commit? `make check` asks.

    python tests/changed.py

A test file is printed if it differs itself, or if it names a module that differs or one of that module's folder. Pages
and docstrings that differ are printed too, because their examples are tests. The order of rooms is always checked.
"""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
ALWAYS = {"tests/house/test_layers.py", "tests/house/test_names.py"}


def changed() -> list[str]:
    """Files that differ from the last commit or are not tracked, as paths from the root; deleted ones are left out."""
    commands = ["git diff --name-only HEAD", "git ls-files --others --exclude-standard"]
    lines = [subprocess.check_output(command.split(), cwd=ROOT, text=True).splitlines() for command in commands]
    return sorted({path for found in lines for path in found if (ROOT / path).exists()})


def concerned(paths: list[str], texts: dict[str, str]) -> set[str]:
    """The test files to run for these paths; ``texts`` has the source of every test file by its path."""
    found = set(ALWAYS)
    for path in paths:
        if path in texts or (path.endswith(".md") and path.startswith(("docs/", "README"))):
            found.add(path)
        elif path.startswith("src/") and path.endswith(".py"):
            found.add(path)
            module = path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            folder = module.rpartition(".")[0]
            names = [module, folder] if folder.count(".") > 1 else [module]
            found |= {test for test, text in texts.items() if any(name in text for name in names)}
        elif path.startswith("tests/") and path.endswith(".py"):  # a part that tests share
            name = Path(path).stem
            found |= {test for test, text in texts.items() if f"from {name} import" in text or f"import {name}" in text}
    return found


if __name__ == "__main__":
    tests = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in ROOT.glob("tests/*/test_*.py")}
    print(*sorted(concerned(changed(), tests)))
