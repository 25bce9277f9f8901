"""What a policy is worth where there is no model to compute it from: fresh episodes of it, and an interval."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.record import Evaluation
from cmdpkit.running.worlds import World
from cmdpkit.simulate.random import stream

EPISODES = 1000  # of the final policy, beside those of the run
LEVEL = 0.95  # of every interval
STREAM = 1  # tells the random numbers of an evaluation from those of its run


def evaluated(world: World, pi: FloatArray, seed: int) -> Evaluation:
    """Play a policy for `EPISODES` episodes that are not part of the learning, with random numbers of their own."""
    totals = world.sample(pi, stream(seed, STREAM), EPISODES)  # [1+N, n]
    means = totals.mean(axis=1)
    half = NormalDist().inv_cdf((1 + LEVEL) / 2) * totals.std(axis=1, ddof=1) / np.sqrt(EPISODES)
    value, *utilities = (float(x) for x in means)
    first, *others = ((float(m - x), float(m + x)) for m, x in zip(means, half, strict=True))
    return Evaluation(EPISODES, LEVEL, value, first, tuple(utilities), tuple(others))
