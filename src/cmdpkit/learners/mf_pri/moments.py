"""Moments of vector samples, and what they say about every action: the evidence MF-PRI decides on.

A record is n, then M = 1+N sums, then the lower triangle of products x_m x_n (n <= m), row by row; records may fade, so
n need not be whole. Weights c = (1, lam) turn a sample into a number: its value at prices lam.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.learners.mf_pri.play import Samples
from cmdpkit.learners.mf_pri.settings import ModelFreeParams
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

MIN_PRICE = 1e-9  # a price below this is none


def record_size(M: int) -> int:
    """Length of a record of samples [M]."""
    return 1 + M + M * (M + 1) // 2


def means(records: FloatArray, M: int) -> FloatArray:
    """[..., M], zero where there is no sample."""
    found: FloatArray = records[..., 1 : 1 + M] / np.maximum(records[..., :1], 1.0)
    return found


def covariance(record: FloatArray, M: int) -> FloatArray:
    """[M, M], of one record."""
    lower = np.zeros((M, M))
    lower[np.tril_indices(M)] = record[1 + M :] / max(record[0], 1.0)
    mean = means(record, M)
    return lower + np.tril(lower, -1).T - np.outer(mean, mean)


def spread(records: FloatArray, c: FloatArray) -> FloatArray:
    """Variance of c . x, [...]."""
    M = len(c)
    rows, columns = np.tril_indices(M)
    pairs = np.where(rows == columns, 1.0, 2.0) * c[rows] * c[columns]
    second = records[..., 1 + M :] @ pairs / np.maximum(records[..., 0], 1.0)
    return np.maximum(second - (means(records, M) @ c) ** 2, 0.0)


def pooled_variance(records: FloatArray, M: int) -> FloatArray:
    """[H, M]: variance of each entry of the samples of a step, averaged over records [H, S, :] by their samples."""
    counts = records[..., :1]
    squares = records[..., 1 + M :][..., [m * (m + 3) // 2 for m in range(M)]]  # the diagonal of the lower triangle
    variances = np.maximum(squares / np.maximum(counts, 1.0) - means(records, M) ** 2, 0.0)
    pooled: FloatArray = (variances * counts).sum(axis=1) / np.maximum(counts.sum(axis=1), 1.0)
    return pooled


class Evidence(NamedTuple):
    """What the rows say at prices lam, each [H, S, A]."""

    advantage: FloatArray  # of the action over the base action
    own: FloatArray  # its standard error at fixed lam
    se: FloatArray  # its standard error with that of lam
    ok: BoolArray  # enough samples to say anything


def evidence(samples: Samples, base: IntArray, extra: BoolArray, lam: FloatArray, p: ModelFreeParams) -> Evidence:
    """Advantages at prices lam over the base actions [H, S], with their standard errors.

    The prices have errors of their own: lam is fixed by the indifference between base and extra actions (`extra`
    [H, S, A]) in the stochastic decisions, so the error of those rows enters every other advantage, by the weights that
    write its effect on the utilities as a combination of theirs.
    """
    H, S = base.shape
    M = 1 + len(lam)
    c, b = np.append(1.0, lam), base[..., None]
    rows = samples.rows.reshape(H, S, -1, samples.rows.shape[-1])
    counts, X = rows[..., 0], means(rows, M)
    var = _squared_error(rows, c, p)
    own = var + np.take_along_axis(var, b, -1) + 2 * _ahead_error(samples.values.reshape(H, S, -1), c)[:, None, None]
    total, active, fixing = own.copy(), lam > MIN_PRICE, [tuple(i) for i in np.argwhere(extra)]
    if fixing and active.any():
        effect = (X - np.take_along_axis(X, b[..., None], 2))[..., 1:][..., active]
        fixed = np.array([effect[i] for i in fixing])
        weights = np.clip(effect @ np.linalg.pinv(fixed, rcond=1e-3), -5.0, 5.0)
        for j, i in enumerate(fixing):
            total += weights[..., j] ** 2 * own[i]
    ok = (counts >= p.least_samples) & (np.take_along_axis(counts, b, -1) >= p.least_samples)
    priced = X @ c
    return Evidence(priced - np.take_along_axis(priced, b, -1), np.sqrt(own), np.sqrt(total), ok)


def _squared_error(rows: FloatArray, c: FloatArray, p: ModelFreeParams) -> FloatArray:
    """Of each row's mean of c . x: few samples say little about their variance, so more is mixed in.

    This is the variance of all samples of the step and, so that samples that are all the same do not count as exact, a
    small part of the largest variance that there could be.
    """
    counts, var = rows[..., 0], spread(rows, c)
    pooled = (var * counts).sum(axis=(1, 2)) / np.maximum(counts.sum(axis=(1, 2)), 1.0)
    largest = (c.sum() * np.arange(len(rows), 0, -1.0)) ** 2 / 4
    mixed_in = p.pooled * pooled + p.pooled_range * largest
    mixed = (var * counts + mixed_in[:, None, None]) / (counts + p.pooled)
    squared: FloatArray = mixed / np.maximum(counts, 1.0)
    return squared


def utility_errors(samples: Samples, shape: tuple[int, ...], p: ModelFreeParams) -> FloatArray:
    """[H, S, A, N]: squared error of each row's mean of each utility, for rows of `shape` [H, S, A, 1+N]."""
    H, S, A, M = shape
    rows, found = samples.rows.reshape(H, S, A, -1), np.zeros((H, S, A, M - 1))
    for n in range(M - 1):
        found[..., n] = _squared_error(rows, np.eye(M)[1 + n], p)
    return found


def _ahead_error(values: FloatArray, c: FloatArray) -> FloatArray:
    """[H]: squared error that the values of the next step bring into a row."""
    counts = values[..., 0]
    seen = np.maximum(counts.sum(axis=1), 1.0)
    pooled = (spread(values, c) * counts).sum(axis=1) / seen
    return np.append((pooled / seen)[1:], 0.0)
