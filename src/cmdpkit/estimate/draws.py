"""Draws from what counts leave plausible: Dirichlet rows of transitions, Beta means of signals.

Rows are [..., S]; the axes before it are whatever is counted apart, of which the last is that of actions.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.model.transitions import FloatArray, IntArray


def on_others(moves: IntArray) -> FloatArray:
    """[..., 1, S]: a weight of 1, shared by the states to which some action has led from a state."""
    led = moves.any(axis=-2, keepdims=True)
    shared: FloatArray = led / np.maximum(led.sum(axis=-1, keepdims=True), 1)
    return shared


def gamma_weights(shape: FloatArray, prior: float, draw: np.random.Generator) -> FloatArray:
    """Weights drawn from Gamma distributions, which become Dirichlet ones when rows are divided by their sums.

    A row of zeros says nothing, so that every state has the weight `prior` in it.
    """
    shape[~shape.any(axis=-1)] = prior
    weights = np.zeros(shape.shape)
    weights[shape > 0] = draw.standard_gamma(shape[shape > 0])
    lost = ~weights.any(axis=-1)  # all draws were rounded to 0, which small parameters can do
    weights[lost] = shape[lost]
    return weights


def drawn_rows(shape: FloatArray, prior: float, draw: np.random.Generator) -> FloatArray:
    """Distributions [..., S] drawn from Dirichlet distributions with these parameters; `gamma_weights` has the rest."""
    weights = gamma_weights(shape, prior, draw)
    rows: FloatArray = weights / weights.sum(axis=-1, keepdims=True)
    return rows


def drawn_signals(means: FloatArray, n: FloatArray, draw: np.random.Generator) -> FloatArray:
    """Means in [0, 1], drawn from Beta(1 + n mean, 1 + n (1 - mean)).

    >>> draw = np.random.default_rng(1)
    >>> drawn_signals(np.array([0.25]), np.array([1e12]), draw).round(4)  # with much data, the mean itself
    array([0.25])
    """
    good = np.clip(n * means, 0.0, n)
    drawn: FloatArray = draw.beta(1.0 + good, 1.0 + (n - good))
    return drawn
