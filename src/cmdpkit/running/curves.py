"""The curves of a run: at which episodes they are read, what is read there, and the table taken apart by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby

import numpy as np

from cmdpkit.learners import Learner
from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.record import Run, unit_of
from cmdpkit.running.worlds import World

ANYTIME_SPACING = 25  # in a run of unknown length, curves are read whenever it has grown by one part in this many


def readings_of(run: Run) -> Iterator[int]:
    """The episodes at which the curves of a run are read, in order; those of an anytime run never end."""
    if not run.anytime:
        yield from checkpoints(run.episodes, run.readings)
        return
    for k, _ in groupby(merge(_without_end(), sorted(run.readings))):
        yield k


def checkpoints(K: int, readings: Iterable[int] = ()) -> list[int]:
    """The episodes at which curves are read: 60 log-spaced ones, 200 evenly spaced ones, and those asked for."""
    early = np.geomspace(1, K, 60)
    return sorted({int(k) for k in np.concatenate((early, np.linspace(K / 200, K, 200)))} - {0} | {K, *readings})


def _without_end() -> Iterator[int]:
    k = 1
    while True:
        yield k
        k += max(1, k // ANYTIME_SPACING)


def row_of(world: World, learner: Learner) -> FloatArray:
    """One point of every curve, in the order in which `curves_of` takes them apart again."""
    tally = world.tally()
    kinds = [x for x in (tally.weak, tally.strong, tally.realised) if x is not None]
    numbers = [np.concatenate(([] if x.regret is None else [x.regret], x.violation)) for x in kinds]
    others = [] if tally.unsafe is None else [float(tally.unsafe)]
    others += [] if tally.gaps is None else [tally.gaps]
    return np.concatenate(([float(tally.episodes)], *numbers, others, _earned(world), _multipliers(world, learner)))


def _earned(world: World) -> FloatArray:
    """Realised reward and utilities in the user's sense if there is no model to measure regret with, else empty."""
    if world.cmdp is not None:
        return np.zeros(0)
    signs = np.array([1.0, *(c.sign for c in world.constraints)])
    earned: FloatArray = signs * world.tally().earned
    return earned


def _multipliers(world: World, learner: Learner) -> FloatArray:
    """The learner's current prices of the bounds, in the user's units; empty if it has none."""
    lam = learner.multipliers
    if lam is None:
        return np.zeros(0)
    reward, *utilities = (scale.span for scale in world.scales)
    prices: FloatArray = np.asarray(lam, dtype=float) * reward / np.array(utilities)
    return prices


def curves_of(world: World, rows: list[FloatArray]) -> dict[str, FloatArray]:
    """The curves by name: [C] at C episodes or steps, or [N, C] for violations, utilities and multipliers."""
    table = np.array(rows).T
    N = len(world.constraints)
    tally = world.tally()
    curves, i = {unit_of(world.criterion): table[0]}, 1
    for prefix, sums in (("", tally.weak), ("strong_", tally.strong), ("realised_", tally.realised)):
        if sums is None:
            continue
        if sums.regret is not None:
            curves[f"{prefix}regret"] = table[i]
            i += 1
        curves[f"{prefix}violation"] = table[i : i + N]
        i += N
    if tally.unsafe is not None:
        curves["unsafe_episodes"] = table[i]
        i += 1
    if tally.gaps is not None:
        curves["gaps_paid"] = table[i]
        i += 1
    if world.cmdp is None:
        curves["realised_reward"], curves["realised_utility"] = table[i], table[i + 1 : i + 1 + N]
        i += 1 + N
    if len(table) > i:
        curves["multiplier"] = table[i:]
    return curves
