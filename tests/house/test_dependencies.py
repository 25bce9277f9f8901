"""Whatever is imported is declared, and what is declared and needed to run stands in the core or in its extra."""

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(requirements):
    """Distributions named by requirements, those of our own extras included."""
    names = set()
    for requirement in requirements:
        name, extras = re.match(r"([\w.-]+)(?:\[([\w,]+)\])?", requirement).groups()
        if name == "cmdpkit":
            names |= declared([r for extra in extras.split(",") for r in PROJECT["optional-dependencies"][extra]])
        else:
            names.add(canonical(name))
    return names


CORE = declared(PROJECT["dependencies"])
EXTRAS = {extra: declared(given) for extra, given in PROJECT["optional-dependencies"].items()}


def imported(folder):
    """Top-level packages that the files of a folder import, at any depth, with one file that does."""
    found = {}
    own = {path.stem for path in (ROOT / folder).rglob("*.py")}
    if folder == "bench":  # runs some of the problems of the tests
        own |= {path.stem for path in (ROOT / "tests" / "oracles").glob("*.py")}
    own |= {
        "cmdpkit",
        "bench",
        "reproduction",
        "mine",
        "posterior",
        "watch",
        "mylab",
    }  # the last four are learners of the documentation
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module]
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("import_module", "importorskip"):
                names = [x.value for x in node.args[:1] if isinstance(x, ast.Constant)]
            for name in names:
                top = name.partition(".")[0]
                if top not in sys.stdlib_module_names and top not in own:
                    found.setdefault(top, path)
    return found


owners_of_packages = cache(packages_distributions)  # it takes seconds


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("src", CORE | EXTRAS["plot"] | EXTRAS["report"] | EXTRAS["dask"] | EXTRAS["frames"] | EXTRAS["mpi"]),
        ("tests", CORE | EXTRAS["test"] | EXTRAS["docs"]),
        ("bench", CORE | EXTRAS["plot"] | {"quantecon", "stormpy"}),  # what we are measured against
        ("reproduction", CORE),
        ("docs", CORE | EXTRAS["docs"]),
    ],
)
def test_every_imported_package_is_declared(folder, allowed):
    distributions = owners_of_packages()
    for package, path in imported(folder).items():
        owners = {canonical(name) for name in distributions.get(package, [package])}
        assert owners & allowed, f"{path} imports {package}, which pyproject.toml does not declare for {folder}"


def test_the_packages_of_an_extra_are_imported_only_when_called():
    late = {"matplotlib", "jinja2", "distributed", "pandas", "pyarrow", "mpi4py"}
    lazily = ROOT / "src" / "cmdpkit" / "results" / "figures" / "saving.py"  # is itself imported only when called
    for path in set((ROOT / "src").rglob("*.py")) - {lazily}:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            assert not {name.partition(".")[0] for name in names} & late, path


def test_every_declared_package_is_pinned_for_the_tests():
    pinned = {canonical(line.partition("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert CORE | EXTRAS["dev"] <= pinned
