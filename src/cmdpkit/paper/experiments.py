"""The runs behind the paper's claims, by part: what `cmdpkit reproduce paper --what PART` runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cmdpkit.experiments.experiment import Experiment
from cmdpkit.paper.table1 import TABLE1, TABLE1_EPISODES

SYNTHETIC, GRID = "paper/synthetic", "paper/grid"
READ_AT = {SYNTHETIC: 8_000_000, GRID: 5_800_000}  # episodes after which regret and violation are compared
LENGTHS = (150_000, 1_500_000, 15_000_000)  # runs of different length, from which growth is fitted
THEORY_EPISODES = 2_100_000  # of preset theory: its K is a third of them

# Parts that need runs, in the order in which they are shown; "lower-bound" and "departures" need none.
RUNS = ("synthetic", "grid", "growth", "cancellation", "theory", "table1")
PARTS = (*RUNS, "lower-bound", "departures")


def paper_experiments(seeds: int, parts: Sequence[str] = RUNS) -> tuple[Experiment, ...]:
    """One experiment per part that needs runs; the first two are also files, experiments/paper-*.toml.

    >>> [len(experiment.runs()) for experiment in paper_experiments(10)]
    [40, 40, 30, 30, 10, 190]
    """
    makers = {
        "synthetic": _synthetic,
        "grid": _grid,
        "growth": lambda: (SYNTHETIC, [_pri(episodes) for episodes in LENGTHS]),
        "cancellation": lambda: (SYNTHETIC, [_pri(episodes, params={"draw_each": True}) for episodes in LENGTHS]),
        "theory": lambda: (SYNTHETIC, [{"name": "pri", "preset": "theory", "episodes": THEORY_EPISODES}]),
        "table1": _table1,
    }
    made = []
    for part in RUNS:
        if part in parts:
            env, algorithms = makers[part]()
            document = {"environments": [env], "algorithms": algorithms, "episodes": READ_AT[env], "seeds": seeds}
            made.append(Experiment.of({"name": f"paper-{part}", **document}, "reproduce"))
    return tuple(made)


def _pri(episodes: int, **more: Any) -> dict[str, Any]:
    """Preset paper, read after pruning; the longest run, of the synthetic experiment, also where the paper read it."""
    readings = [after_pruning(episodes), *([READ_AT[SYNTHETIC]] if episodes > READ_AT[SYNTHETIC] else [])]
    return {"name": "pri", "preset": "paper", "episodes": episodes, "readings": readings, **more}


def after_pruning(episodes: int) -> int:
    """Episodes of a run with preset paper before its refinement: the run that estimates the slack, and ten others.

    >>> after_pruning(15_000_000)
    1030000
    """
    return episodes // 500 + 10 * (episodes // 150)


def _synthetic() -> tuple[str, list[Any]]:
    return SYNTHETIC, [_pri(LENGTHS[-1]), "cl-pri", {"name": "triple-q", "preset": ["practical", "authors"]}]


def _grid() -> tuple[str, list[Any]]:
    """PRI has a run of 200,000 episodes, comparisons, and 5,000,000 twice; Triple-Q has as many episodes as PRI."""
    pruning = {"runs": 1, "run_episodes": 200_000, "compare": True, "compare_episodes": 200_000}
    whole = {"episodes": 10_800_000, "readings": [READ_AT[GRID]]}
    pri = {"name": "pri", "preset": "paper", **whole, "params": {**pruning, "K": 5_000_000, "eps_rho": 0.001}}
    return GRID, [pri, "cl-pri", {"name": "triple-q", "preset": ["practical", "authors"], **whole}]


def _table1() -> tuple[str, list[Any]]:
    return SYNTHETIC, [
        {"name": row.algo, "preset": list(row.presets), "episodes": TABLE1_EPISODES} for row in TABLE1 if row.algo
    ]
