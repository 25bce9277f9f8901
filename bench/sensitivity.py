"""How much the reproduction of PRI's experiments depends on what the paper does not say about pruning.

`python -m bench sensitivity` runs `pri` on both problems as `make reproduce` does, and again with ties of the
base learner broken at random, with random actions as in the public code of Triple-Q, with both, and with the usage
threshold halved and doubled. Every figure is the range over the seeds; regret and violation are read after the episodes
at which they are compared with the paper's. Each variant and problem takes about a minute of one core.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np
from reproduction.runs import READ_AT, planned

import cmdpkit as ck
from cmdpkit.learners import Spec
from cmdpkit.learners.pri.presets import printed_preset, published
from cmdpkit.learners.triple_q import TripleQ

SEEDS = 3
HEAD = "| variant | actions after usage | after comparison | policies | regret | violation | reward | utility or cost |"


class RandomTies(TripleQ):
    """The base learner of the reproduction, which breaks ties at random when a frame begins."""

    habits: ClassVar[dict[str, Any]] = {"random_ties": True}

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec, **published(spec), **self.habits)


class RandomActions(RandomTies):
    """It takes random actions: all of them at first, fading by 5 % every 20 episodes, and 3 % forever."""

    habits: ClassVar[dict[str, Any]] = {"explore": 0.03, "explore_start": 1.0, "explore_decay": 0.95 ** (1 / 20)}


class Both(RandomTies):
    """It does both."""

    habits: ClassVar[dict[str, Any]] = RandomTies.habits | RandomActions.habits


def variants(threshold: float) -> dict[str, dict[str, float | str]]:
    """What is changed, by name; `threshold` is the usage threshold of the reproduction."""
    return {
        "as reproduced": {},
        "ties broken at random": {"base": "bench.sensitivity:RandomTies"},
        "3 % random actions": {"base": "bench.sensitivity:RandomActions"},
        "both": {"base": "bench.sensitivity:Both"},
        f"usage threshold halved, {threshold / 2:.0%}": {"use_min": threshold / 2},
        f"usage threshold doubled, {threshold * 2:.0%}": {"use_min": threshold * 2},
    }


def main() -> None:
    """Print one Markdown table per problem."""
    for part in ("synthetic", "grid"):
        asked = [run for run in planned(part, SEEDS).runs() if run.algo == "pri"]
        env = asked[0].env
        print(f"\n{env}, after {READ_AT[env]:,} episodes, {SEEDS} seeds\n\n{HEAD}\n|{'---|' * 8}", flush=True)
        threshold = printed_preset(Spec.of(ck.load(env), asked[0].episodes)).use_min
        for name, changes in variants(threshold).items():
            print(f"| {name} | {' | '.join(ranges(learned(run, changes) for run in asked))} |", flush=True)


def learned(run: ck.Run, changes: dict[str, float | str]) -> ck.RunRecord:
    """The run with some parameters changed."""
    params = {**run.params, **changes}
    return ck.learn(run.env, "pri", episodes=run.episodes, seed=run.seed, readings=run.readings, **params)


def ranges(records: Iterable[ck.RunRecord]) -> list[str]:
    """The smallest and the largest of every figure, as text."""
    figures = np.array([[measure(record) for measure in MEASURES] for record in records])
    return [_range(low, high) for low, high in zip(figures.min(axis=0), figures.max(axis=0), strict=True)]


def _range(low: float, high: float) -> str:
    texts = [f"{x:,.0f}" if abs(x) >= 100 or x == round(x) else f"{x:.4f}" for x in (low, high)]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def _read(name: str) -> Callable[[ck.RunRecord], float]:
    """A curve after the episodes at which it is compared with the paper's."""

    def measure(record: ck.RunRecord) -> float:
        at = record.curves["episode"] == READ_AT[record.run.env]
        return float(np.atleast_2d(record.curves[name])[0, at][0])

    return measure


MEASURES: tuple[Callable[[ck.RunRecord], float], ...] = (
    lambda record: record.internals["actions"]["after usage"],
    lambda record: record.internals["actions"]["now"],
    lambda record: len(record.internals["policies"]),
    _read("regret"),
    _read("violation"),
    lambda record: float(record.policy_value or 0.0),
    lambda record: float(np.asarray(record.policy_utilities)[0]),
)
