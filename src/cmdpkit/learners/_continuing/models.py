"""Models made of counts: their mean, or a draw from those that the counts leave plausible.

The mean has no transition that was not seen. A draw has them as far as another action of the state has shown them, and
everywhere as long as an action was tried only a few times. A smoothed mean would let
policies rely on transitions that do not exist.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from cmdpkit.exact.stationary.problem import Arrays as Model
from cmdpkit.learners._continuing.counting import Counts
from cmdpkit.learners.spec import Spec
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.simulate.random import Stream, generator

__all__ = ["Model", "drawn_model", "mean_model", "means"]


def mean_model(counts: Counts, spec: Spec) -> Model | None:
    """The model with the observed frequencies and means; only what was tried is allowed. None if nothing was tried.

    In a state in which nothing was tried yet everything is allowed, and leads to the states that are known.
    """
    tried = counts.moves.any(axis=2)
    known = tried.any(axis=1)
    if not known.any():
        return None
    weights = counts.moves.astype(float)
    weights[~known] = known
    allowed = np.where(known[:, None], tried, spec.allowed[0])
    return _model(weights, means(counts), allowed, counts, spec)


def drawn_model(counts: Counts, spec: Spec, rng: Stream, *, few: int, prior: float) -> Model:
    """A draw from the posterior: transitions from Dirichlet distributions, signals the observed means.

    A pair that was tried fewer than `few` times may lead everywhere (`prior` is added to all of its counts), and all
    its signals are 1, the best there is. Any other pair may lead where some action has led to from the same state:
    what was never seen of one action, but of another, stays possible, and the weight `prior` in all is shared by these.
    """
    generous = counts.visits < few
    seen = counts.moves.any(axis=1, keepdims=True)  # [S, 1, S]
    shared = prior * seen / np.maximum(seen.sum(axis=2, keepdims=True), 1)
    shape = counts.moves + np.where(generous[:, :, None], prior, shared)
    untold = ~shape.any(axis=2)  # tried often enough, but always followed by a new start
    shape[untold] = prior
    weights = np.zeros(shape.shape)
    weights[shape > 0] = generator(rng).standard_gamma(shape[shape > 0])
    lost = ~weights.any(axis=2)  # all draws were rounded to 0, which small parameters can do
    weights[lost] = shape[lost]
    signals = np.where(generous, 1.0, means(counts))
    return _model(weights, signals, spec.allowed[0], counts, spec)


def means(counts: Counts) -> FloatArray:
    """Mean signals [1+N, S, A]; 1 where nothing was seen."""
    return np.where(counts.visits > 0, counts.sums / np.maximum(counts.visits, 1), 1.0)


def _model(weights: FloatArray, signals: FloatArray, allowed: BoolArray, counts: Counts, spec: Spec) -> Model:
    """The model with transitions in proportion to weights [S, A, S], from where the run is or begins anew."""
    S, A = spec.S, spec.A
    P = sparse.csr_array(weights.reshape(S * A, S))
    total = np.asarray(P.sum(axis=1)).reshape(-1)
    P = sparse.csr_array(sparse.diags_array(np.where(total > 0, 1.0 / np.maximum(total, 1e-300), 0.0)) @ P)
    if spec.criterion == "discounted":
        mu = counts.starts / counts.starts.sum()
    else:
        mu = np.eye(1, S, int(counts.place[0]))[0]
    discount = 1.0 - spec.restart
    return Model(P.indptr, P.indices, P.data, signals[0], signals[1:], mu, allowed, spec.criterion, discount)
