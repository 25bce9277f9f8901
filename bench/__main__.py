"""`make bench`: every measurement, each as ratios within one run. `python -m bench solver` runs one of them.

Benches that return their ratios are compared with those of released versions in the end; `--save` adds them to the file
of the present version in bench/history/.
"""

import importlib
import pkgutil
import sys

import bench
import cmdpkit
from bench._history import comparison, save


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


main()
