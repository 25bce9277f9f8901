"""`make bench`: every measurement, each as ratios within one run. `python -m bench solver` runs one of them.

Benches that return their ratios are compared with those of released versions in the end; `--save` adds them to the file
of the present version in bench/history/. Ratios and not times: both halves of a ratio are measured in one run on one
machine, so that figures of different machines and years can be compared. A file holds the value of every pass, because
their spread is the noise.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Mapping
from pathlib import Path

import bench
import cmdpkit

FOLDER = Path(__file__).parent / "history"

Ratios = Mapping[str, float]  # what a bench returns: "what over what, where" -> its value
Passes = dict[str, list[float]]


def read(version: str) -> Passes:
    """All passes of a version; nothing where none was saved."""
    path = FOLDER / f"{version}.json"
    return json.loads(path.read_text(encoding="utf-8"))["ratios"] if path.exists() else {}


def save(version: str, measured: Ratios) -> Path:
    """Add one pass to the file of a version."""
    path = FOLDER / f"{version}.json"
    source = f"python -m bench --save, at version {version}"
    document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"version": version, "source": source}
    ratios = read(version)
    for name, value in measured.items():
        ratios.setdefault(name, []).append(float(f"{value:.4g}"))
    path.write_text(json.dumps({**document, "ratios": ratios}, indent=2) + "\n", encoding="utf-8")
    return path


def comparison(measured: Ratios) -> str:
    """One line per ratio: this pass, and the smallest and largest of every version that has it, oldest first."""
    versions = sorted((path.stem for path in FOLDER.glob("*.json")), key=_numbers)
    known = {version: read(version) for version in versions}
    lines = []
    for name, value in measured.items():
        before = [f"{version}: {_span(known[version][name])}" for version in versions if name in known[version]]
        lines.append(f"{name}: {value:.4g}" + (f"  [{', '.join(before)}]" if before else "  [new]"))
    return "\n".join(lines)


def _span(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _numbers(version: str) -> list[int]:
    """Sorts 0.10.0 after 0.9.0."""
    return [int(part) for part in version.split(".") if part.isdigit()]


def main() -> None:
    there = sorted(m.name for m in pkgutil.iter_modules(bench.__path__) if not m.name.startswith("_"))
    asked = [name for name in sys.argv[1:] if name != "--save"]
    for name in asked:
        if name not in there:
            sys.exit(f"no bench called {name!r}; there are {', '.join(there)}")
    ratios: dict[str, float] = {}
    for name in asked or there:
        print(f"\n== {name} ==", flush=True)
        ratios |= importlib.import_module(f"bench.{name}").main() or {}
    if ratios:
        print(f"\n== this pass, and released versions ==\n{comparison(ratios)}")
    if "--save" in sys.argv:
        print(f"\nadded to {save(cmdpkit.__version__, ratios)}")


if __name__ == "__main__":
    main()
