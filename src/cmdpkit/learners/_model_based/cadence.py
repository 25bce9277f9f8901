"""When a new plan is due.

Every episode, as most papers do; whenever the visits of some (step, state, action) have doubled since the last plan,
the customary rule, under which guarantees keep their order; or by need. In a large model something is always seen for
the first or second time, so that doubling asks for a plan after almost every episode in the beginning. Mostly that is
irrelevant for the plan. By need, a plan is made when the present one would be noticeably surer of itself. With q its
expected visits of every cell in an episode, in the estimated model, and n the visits a cell had,

    error = sum over cells of q / sqrt(n),    2 in place of 1 / sqrt(n) where nothing was seen,

is proportional to the error of the plan's prediction. A plan is due when counting has brought the error down by the
share `progress`, and at the latest when the number of episodes has doubled.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.boxes import Known, visits
from cmdpkit.estimate.counts import Counts
from cmdpkit.model.compiled import compiled
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

CADENCES = ("need", "doubling", "episode")
NEED, DOUBLING = (CADENCES.index(name) for name in ("need", "doubling"))
UNSEEN = 2.0  # takes the place of 1 / sqrt(n) where nothing was seen, as in the definition above


class Cadence(NamedTuple):
    """When a plan is due: the last one, and what was seen since."""

    planned: IntArray  # [T, S, A]: visits at the time of the plan
    noted: IntArray  # [T, S, A]: visits that `error` takes into account
    reach: FloatArray  # [T, S, A]: visits that an episode of the plan is expected to make
    error: FloatArray  # [2]: the error of the plan when it was made, and by now
    episodes: IntArray  # [2]: episodes before the plan, and since
    due: BoolArray  # [1]: whether a plan is due
    kind: int  # the place of its name in CADENCES
    progress: float  # by need: the share by which the error of the plan must have fallen


def new_cadence(T: int, S: int, A: int, name: str, progress: float = 0.0) -> Cadence:
    """Before the first plan, which is due. T is 1 where all steps share their counts, else H."""
    return Cadence(
        planned=np.zeros((T, S, A), dtype=np.int64),
        noted=np.zeros((T, S, A), dtype=np.int64),
        reach=np.zeros((T, S, A)),
        error=np.zeros(2),
        episodes=np.zeros(2, dtype=np.int64),
        due=np.ones(1, dtype=np.bool_),
        kind=CADENCES.index(name),
        progress=float(progress),
    )


def mark_planned(cadence: Cadence, counts: Counts, model: Known, pi: FloatArray) -> None:
    """The plan pi [H, S, A] was made from these counts, which suggest `model`."""
    visited, q = counts.visits.reshape(cadence.planned.shape), visits(model, pi)
    cadence.reach[...] = q.reshape(-1, *cadence.reach.shape).sum(axis=0)
    cadence.planned[...], cadence.noted[...] = visited, visited
    cadence.error[...] = (cadence.reach * error_of(visited)).sum()
    cadence.episodes[...] = counts.starts.sum(), 0
    cadence.due[0] = False


def error_of(n: IntArray) -> FloatArray:
    """1 / sqrt(n) for every number of visits, `UNSEEN` where nothing was seen."""
    return np.where(n == 0, UNSEEN, 1.0 / np.sqrt(np.maximum(n, 1)))


@compiled
def note_episode(cadence, visits, path, actions):
    """Decide whether a plan is due after an episode through the states `path` [H] with `actions` [H].

    Visits [T * S * A] are those of the counts.
    """
    cadence.episodes[1] += 1
    kind = cadence.kind
    if kind != NEED and kind != DOUBLING:
        cadence.due[0] = True
        return
    T, S, A = cadence.planned.shape
    for h in range(len(path)):
        t, s, a = h % T, path[h], actions[h]
        n = visits[(t * S + s) * A + a]
        if kind == DOUBLING and n >= 2 * cadence.planned[t, s, a]:
            cadence.due[0] = True
        noted = cadence.noted[t, s, a]
        before = UNSEEN if noted == 0 else 1.0 / math.sqrt(noted)
        cadence.error[1] -= cadence.reach[t, s, a] * (before - 1.0 / math.sqrt(n))
        cadence.noted[t, s, a] = n
    if kind == NEED and cadence.error[1] <= (1.0 - cadence.progress) * cadence.error[0]:
        cadence.due[0] = True
    if kind == NEED and cadence.episodes[1] >= max(cadence.episodes[0], 1):
        cadence.due[0] = True
