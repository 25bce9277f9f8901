"""`make bench`: every measurement, each as ratios within one run. `python -m bench solver` runs one of them."""

import importlib
import pkgutil
import sys

import bench


def main() -> None:
    there = sorted(m.name for m in pkgutil.iter_modules(bench.__path__) if not m.name.startswith("_"))
    asked = sys.argv[1:] or there
    for name in asked:
        if name not in there:
            sys.exit(f"no bench called {name!r}; there are {', '.join(there)}")
    for name in asked:
        print(f"\n== {name} ==", flush=True)
        importlib.import_module(f"bench.{name}").main()


main()
