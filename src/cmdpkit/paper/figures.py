"""The figures of the paper, drawn from runs made here, as PNG files with fixed names."""

from __future__ import annotations

from pathlib import Path

from cmdpkit.exact.solver import solve_fully
from cmdpkit.io.atomic import make_folder
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import Policy
from cmdpkit.results.figures.curves import multiplier, overview
from cmdpkit.results.figures.policies import policy_boards
from cmdpkit.results.figures.style import save
from cmdpkit.results.groups import Group
from cmdpkit.results.study import Study, model_of

DRAWN_ALGORITHMS = ("pri", "cl-pri")  # whose policies are drawn beside the optimum


def write_figures(study: Study, folder: Path) -> tuple[Path, ...]:
    """Draw regret and violation of every problem, multipliers, and policies on a grid; returns the paths of the files.

    Files of these names are replaced, others in the folder stay as they are.
    """
    by_env: dict[str, list[Group]] = {}
    for group in study.groups():
        by_env.setdefault(group.run.env, []).append(group)
    make_folder(folder)
    return tuple(path for env, found in by_env.items() for path in _of_problem(study, folder, env, found))


def _of_problem(study: Study, folder: Path, env: str, found: list[Group]) -> list[Path]:
    name = env.replace("/", "-")
    records = [record for group in found for record in group.records]
    written = [
        save(overview(records), folder / f"{name}-regret-violation.png"),
        save(overview(records, scale="symlog"), folder / f"{name}-regret-violation-log.png"),
    ]
    if any("multiplier" in record.curves for record in records):
        drawn = multiplier(records, models=study.models, scale="log")
        written.append(save(drawn, folder / f"{name}-multiplier.png"))
    cmdp = model_of(found[0].run, study.models)
    if cmdp is not None and cmdp.grid is not None:
        written.append(_board(cmdp, solve_fully(cmdp).policy, "the optimum", folder / f"{name}-policy-optimum.png"))
        for group in found:
            algo, preset = group.run.algo, group.run.preset
            if algo in DRAWN_ALGORITHMS:
                title = f"{algo} ({preset}), seed {group.run.seed}"
                path = folder / f"{name}-policy-{algo}-{preset}.png"
                written.append(_board(cmdp, group.records[0].policy, title, path))
    return written


def _board(cmdp: CMDP, policy: Policy, title: str, path: Path) -> Path:
    figure = policy_boards(cmdp, policy)
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=10)
    return save(figure, path)
