"""An estimate of what a policy is worth where there is no model to compute it from, by fresh episodes."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from cmdpkit.model.transitions import FloatArray
from cmdpkit.records.record import Evaluation
from cmdpkit.running.worlds import World
from cmdpkit.simulate.random import stream

EVALUATION_EPISODES = 1000  # of the final policy, in addition to those of the run
CONFIDENCE_LEVEL = 0.95  # of every interval
EVALUATION_STREAM = 1  # key of the stream, which makes its random numbers independent of those of the run


def evaluated(world: World, pi: FloatArray, seed: int) -> Evaluation:
    """Play a policy for `EVALUATION_EPISODES` episodes that are not part of the learning."""
    totals = world.sample(pi, stream(seed, EVALUATION_STREAM), EVALUATION_EPISODES)  # [1+N, n]
    means = totals.mean(axis=1)
    half = NormalDist().inv_cdf((1 + CONFIDENCE_LEVEL) / 2) * totals.std(axis=1, ddof=1) / np.sqrt(EVALUATION_EPISODES)
    value, *utilities = (float(x) for x in means)
    first, *others = ((float(m - x), float(m + x)) for m, x in zip(means, half, strict=True))
    return Evaluation(EVALUATION_EPISODES, CONFIDENCE_LEVEL, value, first, tuple(utilities), tuple(others))
