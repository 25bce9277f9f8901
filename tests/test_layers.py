"""Data flows one way: a module imports only what stands before it. Read off the source, so nothing can be forgotten."""

import ast
from pathlib import Path

import cmdpkit

ROOT = Path(cmdpkit.__file__).parent
# Earlier may not import later. Modules of one row do not import each other.
ORDER = [
    {"kernel", "atomic", "compiled"},
    {"intervals", "certificate", "arguments"},
    {"constraints", "stream"},
    {"model"},
    {"functions"},
    {"policy"},
    {"columns", "occupancy_lp", "vertex"},
    {"solver"},
    {"diagnosis"},
    {"envs", "formats"},
    {"files", "policy_files"},
    {"sources"},
    {"simulate"},
    {"meter", "rollout"},
    {"planning"},
    {"learners"},
    {"record"},
    {"worlds"},
    {"baselines"},
    {"gym"},
    {"learning"},
    {"manifest"},
    {"store"},
    {"runs", "models"},
    {"wording"},
    {"published"},
    {"analyse"},
    {"experiment_errors", "jobs"},
    {"experiment", "pool"},
    {"cluster"},
    {"execute"},
    {"plot_style"},
    {"plot_boards"},
    {"plot", "report_data"},
    {"report", "paper_figures", "tensorboard"},
    {"reproduce"},
    {"policy_view"},
    {"show"},
    {"show_runs", "show_study", "answers", "progress"},
    {"terminal"},
    {"cli"},
    {"__main__"},
]
# Imported when called: a model offers its shapes, a study its pictures, without everybody loading them.
LATE = {("model", "functions"), ("model", "gym")} | {("analyse", x) for x in ("plot", "report", "tensorboard")}


def imported(path: Path) -> set[str]:
    """Modules of this package that a file imports, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "cmdpkit":
            parts = node.module.split(".")
            names = {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
            found |= {cmdpkit._MODULE_OF.get(name, name) for name in names} - {"__version__"}
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
