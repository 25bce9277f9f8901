"""Data flows one way: a room imports only rooms that stand before it. Read off the source, so nothing is forgotten."""

import ast
from pathlib import Path

import pytest

import cmdpkit
from rooms import ORDER

ROOT = Path(cmdpkit.__file__).parent
# The public names, what starts the command, and the contract tests: they may import everything, and no room imports
# them.
OUTSIDE = {"__init__", "__main__", "testing"}


def imported(path: Path) -> set[str]:
    """Rooms of this package that a file imports, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "cmdpkit":
            assert node.level == 0
            parts = node.module.split(".")
            names = {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names} - {"__version__"}
            found |= {[*cmdpkit._HOME.get(name, "cmdpkit").split("."), name][1] for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("cmdpkit.")}
    return found


def test_every_room_has_its_place_and_imports_only_earlier_ones():
    rank = {room: i for i, room in enumerate(ORDER)}
    for path in sorted(ROOT.rglob("*.py")):
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if room in OUTSIDE:
            continue
        assert room in rank, f"{room} has no place in the order"
        for other in imported(path) - {room} - OUTSIDE:
            assert rank[other] < rank[room], f"{path} imports {other}, which comes later"


def test_the_house_stays_small():
    entries = [path for path in ROOT.iterdir() if path.name != "__pycache__"]
    assert len(entries) <= 19
    assert len(ORDER) <= 15  # one module and fourteen rooms


def test_a_class_name_has_one_owner():
    owners: dict[str, list[str]] = {}
    for path in ROOT.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                owners.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in owners.items() if len(found) > 1} == {}


# Numbers at the top of a module of learners that are no choice of ours; every other number is a field of parameters, an
# argument or a tolerance.
ALLOWED = {
    "NEVER": "a number of visits or steps that no run reaches",
    "NOT_YET": "stands for the first episode of a phase that has not begun",
    "DRAWN": "stands for the number of a policy that is drawn in every episode",
    "NOTHING": "the neutral element of addition, -0.0",
    "UNSEEN": "part of the definition of a plan's error",
}


def is_number(node: ast.expr) -> bool:
    """Whether an expression consists of numbers alone: 3, -1, 2**62, (0.5, 1), {"a": 0.1}."""
    leaves = [x for x in ast.walk(node) if isinstance(x, ast.Constant | ast.Name | ast.Call | ast.Attribute)]
    values = [x.value for x in leaves if isinstance(x, ast.Constant) and not isinstance(x.value, str)]
    return bool(values) and all(isinstance(x, ast.Constant) for x in leaves) and isinstance(values[0], int | float)


def test_no_number_of_a_learner_is_hidden_at_the_top_of_a_module():
    found = {}
    for path in (ROOT / "learners").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(target, ast.Name) and node.value is not None and is_number(node.value):
                found[target.id] = str(path.relative_to(ROOT))
    assert set(found) == set(ALLOWED), {name: path for name, path in found.items() if name not in ALLOWED}


def decorator(node: ast.expr) -> str:
    """`njit` of ``@njit(cache=True)``, and `of` of ``@expect.of(Rows)``."""
    function = node.func if isinstance(node, ast.Call) else node
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def test_every_function_that_is_not_compiled_says_its_types():
    """mypy does not demand them in the rooms that hold compiled functions, which have none."""
    compiled = {"compiled", "njit", "primitive", "of"}
    untyped = []
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and not compiled & {decorator(x) for x in node.decorator_list}:
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                bare = [x.arg for x in arguments if x.annotation is None and x.arg not in ("self", "cls")]
                if bare or node.returns is None:
                    untyped.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert not untyped


@pytest.mark.parametrize(
    ("words", "homes"),
    [("import highspy", ["exact/master.py"]), ("numba import", ["model/compiled.py"])],
)
def test_other_solvers_and_compilers_are_set_up_in_one_place(words, homes):
    """`model/compiled.py`, for example, says with which options functions are compiled."""
    users = [path for path in ROOT.rglob("*.py") if words in path.read_text(encoding="utf-8")]
    assert sorted(users) == [ROOT / home for home in homes]
