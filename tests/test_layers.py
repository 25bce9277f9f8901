"""Data flows one way: a module imports only what stands before it. Read off the source, so nothing can be forgotten."""

import ast
from pathlib import Path

import cmdpkit

ROOT = Path(cmdpkit.__file__).parent
# Earlier may not import later. Modules of one row do not import each other.
ORDER = [
    {"kernel", "atomic"},
    {"arguments"},
    {"constraints"},
    {"model"},
    {"functions"},
    {"policy"},
    {"columns", "occupancy_lp", "vertex"},
    {"solver"},
    {"diagnosis"},
    {"envs", "formats"},
    {"files", "policy_files"},
    {"sources"},
    {"wording"},
    {"policy_view"},
    {"show"},
    {"answers"},
    {"terminal"},
    {"cli"},
    {"__main__"},
]
LATE = {("model", "functions")}  # CMDP.from_function, imported when called


def imported(path: Path) -> set[str]:
    """Modules of this package that a file imports, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "cmdpkit":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("cmdpkit.")}
    return found


def test_every_module_has_its_place_and_imports_only_earlier_ones():
    rank = {module: i for i, row in enumerate(ORDER) for module in row}
    for path in sorted(ROOT.rglob("*.py")):
        module = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if module == "__init__":
            continue
        assert module in rank, f"{module} has no place in the order"
        for other in imported(path) - {module}:
            if (module, other) not in LATE:
                assert rank[other] < rank[module], f"{module} imports {other}, which comes later"
