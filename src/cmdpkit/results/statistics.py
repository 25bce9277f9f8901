"""Intervals and tests over a handful of independent numbers, one per seed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy.special import stdtrit

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.transitions import FloatArray

LEVEL = 0.95  # confidence level of intervals, unless the caller says otherwise
MOST_EXACT_FLIPS = 14  # largest number of seeds for which all sign flips are counted
RANDOM_FLIPS = 20_000  # number of random flips for more seeds

MOST_UNITS = 100_000  # between the smallest and the largest value of a histogram
OFF_UNIT = 1e-3  # units by which a value may miss a multiple


@dataclass(frozen=True)
class SeedMean:
    """A mean over seeds with its interval; numbers or arrays. With one seed there is no interval."""

    mean: Any  # over the seeds
    low: Any  # lower end of the interval, or None
    high: Any  # upper end of the interval, or None
    n: int  # number of seeds


def seed_mean(values: FloatArray, level: float = LEVEL) -> SeedMean:
    """Mean over the first axis with Student's interval.

    >>> seed_mean(np.array([1.0, 2.0, 3.0]))
    SeedMean(mean=2.0, low=-0.484..., high=4.484..., n=3)
    >>> seed_mean(np.array([1.0]))
    SeedMean(mean=1.0, low=None, high=None, n=1)
    """
    if not 0 < level < 1:
        raise CmdpkitError(f"level is {level}, expected a number between 0 and 1")
    values = np.asarray(values, dtype=float)
    n = len(values)
    mean = values.mean(axis=0)
    if n < 2:
        return SeedMean(_number(mean), None, None, n)
    half = float(stdtrit(n - 1, (1 + level) / 2)) * values.std(axis=0, ddof=1) / math.sqrt(n)
    return SeedMean(_number(mean), _number(mean - half), _number(mean + half), n)


def _number(x: Any) -> Any:
    return float(x) if np.ndim(x) == 0 else x


def sign_flip_p(differences: FloatArray) -> float:
    """Two-sided p of "the differences are symmetric about 0": the share of sign flips with as large a mean.

    Exact up to 14 differences, from 20,000 random flips beyond (the observed signs count as one of them).

    >>> sign_flip_p(np.array([1.0, 2.0, 3.0, 4.0]))
    0.125
    """
    d = np.asarray(differences, dtype=float)
    if len(d) <= MOST_EXACT_FLIPS:
        signs = np.array(list(product((1.0, -1.0), repeat=len(d))))
    else:
        signs = np.random.default_rng(0).choice((1.0, -1.0), size=(RANDOM_FLIPS, len(d)))
        signs[0] = 1.0
    means = np.abs(signs @ d)
    return float(np.mean(means >= abs(d.sum()) * (1 - 1e-12)))


def bars_of(x: FloatArray, most: int) -> tuple[FloatArray, float]:
    """Edges of the bars of a histogram, and the unit of which the values are multiples, 0 if there is none.

    Where values are counted in units, every bar holds the same number of possible values, and edges lie between them.

    >>> bars_of(np.array([0.0, 1.0, 3.0]), 12)
    (array([-0.5,  0.5,  1.5,  2.5,  3.5]), 1.0)
    """
    values = np.unique(np.round(x, 9))
    unit = float(np.diff(values).min()) if len(values) > 1 else 0.0
    count = round((values[-1] - values[0]) / unit) + 1 if unit else 1
    places = (values - values[0]) / unit if unit else values
    if not unit or count > MOST_UNITS or np.abs(places - np.rint(places)).max() > OFF_UNIT:
        return np.asarray(np.histogram_bin_edges(x, most)), 0.0
    together = math.ceil(count / most)
    edges = values[0] - unit / 2 + unit * together * np.arange(math.ceil(count / together) + 1)
    return np.asarray(edges), unit
