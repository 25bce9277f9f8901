"""Where the regret and violation of the published algorithm arise: what each of its phases has added to them.

The figures are of what was realised, from the learner's own sums of rewards and utilities in each phase. On the paper's
grid nothing is random, so there they are the exact ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cmdpkit.records.record import RunRecord
from cmdpkit.results.groups import Group
from cmdpkit.results.statistics import SeedMean, seed_mean
from cmdpkit.results.study import model_of
from cmdpkit.results.tables import Column, Table, with_ends, with_interval


class Phase(NamedTuple):
    """What one phase of a group of runs has added, over the seeds that differ."""

    name: str  # of the phase
    episodes: SeedMean  # how long it took
    regret: SeedMean  # what it added to the regret
    violation: SeedMean  # what it added to the violation of the first constraint


def phases_of(group: Group) -> list[Phase]:
    """The phases in their order; one that a run did without has added nothing there."""
    added = [_added(record) for record in group.samples]
    names = dict.fromkeys(name for run in added for name in run)
    found = []
    for name in names:
        figures = np.array([run.get(name, (0.0, 0.0, 0.0)) for run in added])
        found.append(Phase(name, *(seed_mean(column) for column in figures.T)))
    return found


def _added(record: RunRecord) -> dict[str, tuple[float, float, float]]:
    """Episodes, regret and violation of every phase of a run, from what the learner says that it has earned."""
    cmdp = model_of(record.run)
    if cmdp is None or record.optimum is None:
        return {}
    H, bound = cmdp.H, record.constraints[0].sign * record.constraints[0].total
    found = {}
    for earned in record.explanation["returns"]:
        n = earned["episodes"]
        reward = earned["reward"] * cmdp.reward_scale.span + n * H * cmdp.reward_scale.low
        utility = earned["utilities"][0] * cmdp.utility_scales[0].span + n * H * cmdp.utility_scales[0].low
        found[earned["phase"]] = (float(n), n * record.optimum - reward, n * bound - utility)
    return found


def phase_table(phases: Sequence[Phase]) -> Table[Phase]:
    """One row per phase."""
    columns: list[Column[Phase]] = [
        Column("phase", "phase", "What the algorithm was doing.", lambda p: p.name),
        _figure("episodes", "How long it took.", lambda p: p.episodes),
        _figure("regret", "What it added to the regret.", lambda p: p.regret),
        _figure("violation", "What it added to the violation.", lambda p: p.violation),
    ]
    return Table("pri (paper) on paper/grid, by phase", tuple(columns), tuple(phases))


def _figure(key: str, meaning: str, get: Callable[[Phase], SeedMean]) -> Column[Phase]:
    return Column(key, key, meaning, get, with_interval(6), "right", data=with_ends)
