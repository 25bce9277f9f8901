"""Models made of counts: their mean, or a draw from those that the counts leave plausible.

The mean has no transition that was not seen of the action itself, and in the proven model no plan relies on actions
that were tried only a few times. In the cautious model an action that was tried seldom may also lead where other
actions of the same state have led: a mean that is smoothed for ever would let policies rely on transitions that do not
exist, and one that is never smoothed would not prepare them for what has been rare so far.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from cmdpkit.exact.stationary.problem import Arrays as Model
from cmdpkit.learners._continuing.counting import Counts
from cmdpkit.learners.spec import Spec
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.simulate.random import Stream, generator

SELDOM = 100  # tries up to which an action may lead, in the cautious model, where others of the same state have led
UNSURE = 5  # tries up to which the signals of an action count as 1, the best there is, in drawn models

__all__ = [
    "Model",
    "cautious_model",
    "chain_of",
    "drawn_model",
    "hopeful_model",
    "mean_model",
    "means",
    "proven_model",
    "with_patience",
]


def mean_model(counts: Counts, spec: Spec) -> Model | None:
    """The model with the observed frequencies and means; only what was tried is allowed. None if nothing was tried.

    In a state in which nothing was tried yet everything is allowed, and leads to the states that are known.
    """
    return _mean(counts.moves.astype(float), means(counts), counts, spec)


def proven_model(counts: Counts, spec: Spec) -> Model | None:
    """The mean model in which no plan relies on luck.

    Of a state that was visited n times, actions that were tried fewer than sqrt(n) times count as the worst there are:
    they serve to get away where nothing else does. An action that was tried twice and stayed twice would otherwise
    count as one that stays for ever.
    """
    return _mean(counts.moves.astype(float), _proven(counts), counts, spec)


def cautious_model(counts: Counts, spec: Spec) -> Model | None:
    """The proven model prepared for surprises: an action that was tried seldom may lead where others have led.

    These others are actions of the same state.
    """
    weights = counts.moves + np.where((counts.visits < SELDOM)[:, :, None], _others(counts), 0.0)
    return _mean(weights, _proven(counts), counts, spec)


def _proven(counts: Counts) -> FloatArray:
    """Mean signals [1+N, S, A]; 0 for actions that were tried fewer than sqrt(n) times in a state with n visits."""
    rare = counts.visits**2 < counts.visits.sum(axis=1, keepdims=True)
    proven: FloatArray = np.where(rare, 0.0, means(counts))
    return proven


def _mean(weights: FloatArray, signals: FloatArray, counts: Counts, spec: Spec) -> Model | None:
    """The model of these weights [S, A, S] and signals [1+N, S, A] where something was tried."""
    tried = counts.moves.any(axis=2)
    known = tried.any(axis=1)
    if not known.any():
        return None
    weights[~known] = known
    allowed = np.where(known[:, None], tried, spec.allowed[0])
    return _model(weights, signals, allowed, counts, spec)


def hopeful_model(counts: Counts, spec: Spec, rng: Stream, prior: float) -> Model:
    """A draw in which every action leads where some action of the same state has led, with the weight `prior` in all.

    Actions that were tried fewer than UNSURE times have the best signals there are, and so they are tried. If they
    could lead everywhere, as in `drawn_model`, most of them would look bad instead: in a queue that is kept short, a
    jump to any other state is a loss.
    """
    shape = counts.moves + prior * _others(counts)
    return _model(_drawn(shape, prior, rng), _hopes(counts), spec.allowed[0], counts, spec)


def drawn_model(counts: Counts, spec: Spec, rng: Stream, *, few: int, prior: float) -> Model:
    """A draw from the posterior: transitions from Dirichlet distributions, signals the observed means.

    A pair that was tried fewer than `few` times may lead everywhere (`prior` is added to all of its counts). Any other
    pair may lead where some action has led to from the same state: what was never seen of one action, but of another,
    stays possible, and the weight `prior` in all is shared by these.
    """
    everywhere = (counts.visits < few)[:, :, None]
    shape = counts.moves + prior * np.where(everywhere, 1.0, _others(counts))
    return _model(_drawn(shape, prior, rng), _hopes(counts), spec.allowed[0], counts, spec)


def _others(counts: Counts) -> FloatArray:
    """[S, 1, S]: a weight of 1, shared by the states to which some action has led from a state."""
    seen = counts.moves.any(axis=1, keepdims=True)
    shared: FloatArray = seen / np.maximum(seen.sum(axis=2, keepdims=True), 1)
    return shared


def _drawn(shape: FloatArray, prior: float, rng: Stream) -> FloatArray:
    """Weights [S, A, S] drawn from Gamma distributions, which become Dirichlet ones when they are divided by sums."""
    shape[~shape.any(axis=2)] = prior  # nothing but new starts has followed
    weights = np.zeros(shape.shape)
    weights[shape > 0] = generator(rng).standard_gamma(shape[shape > 0])
    lost = ~weights.any(axis=2)  # all draws were rounded to 0, which small parameters can do
    weights[lost] = shape[lost]
    return weights


def _hopes(counts: Counts) -> FloatArray:
    """Mean signals [1+N, S, A]; 1 as long as an action was tried only a few times."""
    hopes: FloatArray = np.where(counts.visits < UNSURE, 1.0, means(counts))
    return hopes


def with_patience(model: Model, counts: Counts, steps: float) -> Model:
    """A model for long-run averages that waits about so many `steps` for what may come, from where the run has been.

    In the long run it costs nothing to wait, so that a plan may go to a promising place by a way that takes for ever,
    or divide its time between places that it never leaves. With a new start, like one of the steps so far, after each
    step with probability 1 / `steps`, both cost what they cost in a run. The value of a policy under which states are
    as frequent as in the run so far does not change.
    """
    if model.kind != "average":
        return model
    been = counts.visits.sum(axis=1).astype(float)
    been[int(counts.place[0])] += 1.0
    return model._replace(kind="discounted", discount=1.0 - 1.0 / steps, mu=been / been.sum())


def chain_of(model: Model, pi: FloatArray) -> Any:
    """Sparse transition matrix [S, S] of the policy pi [S, A]."""
    S, A = pi.shape
    P = sparse.csr_array((model.prob, model.successors, model.indptr), shape=(S * A, S))
    drawn = sparse.csr_array((pi.reshape(-1), (np.repeat(np.arange(S), A), np.arange(S * A))), shape=(S, S * A))
    chain = sparse.csr_array(drawn @ P)
    chain.sum_duplicates()
    return chain


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
