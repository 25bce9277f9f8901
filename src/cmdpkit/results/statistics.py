"""Intervals and tests over a handful of independent numbers, one per seed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
from scipy.special import stdtr, stdtrit

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.transitions import FloatArray

LEVEL = 0.95  # of all intervals, unless the caller says otherwise
RESAMPLES = 2000  # of a bootstrap
MOST_EXACT_FLIPS = 14  # up to so many seeds all sign flips are counted
RANDOM_FLIPS = 20_000  # beyond that, so many random ones

Method = Literal["t", "bootstrap"]

MOST_UNITS = 100_000  # between the smallest and the largest value of a histogram
OFF_UNIT = 1e-3  # units by which a value may miss a multiple


@dataclass(frozen=True)
class SeedMean:
    """A mean over seeds with its interval; numbers or arrays. With one seed there is no interval."""

    mean: Any  # over the seeds
    low: Any  # lower end of the interval, or None
    high: Any  # upper end of the interval, or None
    n: int  # number of seeds


def seed_mean(values: FloatArray, *, method: Method = "t", level: float = LEVEL, seed: int = 0) -> SeedMean:
    """Mean over the first axis with an interval: Student's t, or percentiles of a seeded bootstrap over seeds.

    >>> seed_mean(np.array([1.0, 2.0, 3.0]))
    SeedMean(mean=2.0, low=-0.484..., high=4.484..., n=3)
    >>> seed_mean(np.array([1.0]))
    SeedMean(mean=1.0, low=None, high=None, n=1)
    """
    if method not in ("t", "bootstrap"):
        raise CmdpkitError(f"method is {method!r}, expected 't' or 'bootstrap'")
    if not 0 < level < 1:
        raise CmdpkitError(f"level is {level}, expected a number between 0 and 1")
    values = np.asarray(values, dtype=float)
    n = len(values)
    mean = values.mean(axis=0)
    if n < 2:
        return SeedMean(_number(mean), None, None, n)
    if method == "t":
        half = float(stdtrit(n - 1, (1 + level) / 2)) * values.std(axis=0, ddof=1) / math.sqrt(n)
        return SeedMean(_number(mean), _number(mean - half), _number(mean + half), n)
    weights = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=RESAMPLES) / n
    low, high = np.quantile(np.tensordot(weights, values, 1), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return SeedMean(_number(mean), _number(low), _number(high), n)


def _number(x: Any) -> Any:
    return float(x) if np.ndim(x) == 0 else x


def sign_flip_p(differences: FloatArray, seed: int = 0) -> float:
    """Two-sided p of "the differences are symmetric about 0": the share of sign flips with as large a mean.

    Exact up to 14 differences, from 20,000 random flips beyond (the observed signs count as one of them).

    >>> sign_flip_p(np.array([1.0, 2.0, 3.0, 4.0]))
    0.125
    """
    d = np.asarray(differences, dtype=float)
    if len(d) <= MOST_EXACT_FLIPS:
        signs = np.array(list(product((1.0, -1.0), repeat=len(d))))
    else:
        signs = np.random.default_rng(seed).choice((1.0, -1.0), size=(RANDOM_FLIPS, len(d)))
        signs[0] = 1.0
    means = np.abs(signs @ d)
    return float(np.mean(means >= abs(d.sum()) * (1 - 1e-12)))


def t_p(differences: FloatArray) -> float:
    """Two-sided p of "the mean is 0" by the paired t test.

    >>> round(t_p(np.array([1.0, 2.0, 3.0])), 4)
    0.0742
    """
    d = np.asarray(differences, dtype=float)
    spread = d.std(ddof=1)
    if spread == 0:
        return 1.0 if d[0] == 0 else 0.0
    return float(2 * stdtr(len(d) - 1, -abs(d.mean()) / spread * math.sqrt(len(d))))


def bars_of(x: FloatArray, most: int) -> tuple[FloatArray, float]:
    """Edges of at most so many bars of a histogram, and the unit of which the values are multiples, 0 if there is none.

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
