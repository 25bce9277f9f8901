"""Models made of the counts of one unbroken run: their mean, a draw from those left plausible, or a box of kernels.

The mean has no transition that was not seen of the action itself. Smoothed for ever, it would let policies rely on
transitions that do not exist; never smoothed, it would not prepare them for what has been rare so far.

A world that begins again with probability e after each step is one whose kernel is (1 - e) P + e mu: a box is moved and
shrunk accordingly, and the programs over it know of nothing but long-run averages.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from cmdpkit.estimate.boxes import Box, box_of
from cmdpkit.estimate.counts import Counts, dense_moves, signal_squares, signals_of
from cmdpkit.exact.stationary.problem import Arrays
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.operators.row_lists import matrix_of, rows_of
from cmdpkit.simulate.random import Stream, generator

Model: TypeAlias = Arrays


class Seen(NamedTuple):
    """What was seen in one unbroken run so far, as dense arrays, and what was declared about the world."""

    visits: IntArray  # [S, A], how often an action was taken
    moves: IntArray  # [S, A, S], where it led to; a new start is not counted
    sums: FloatArray  # [1+N, S, A], signals added up
    squares: FloatArray  # [1+N, S, A], their squares added up
    starts: IntArray  # [S], how often the run began in a state
    state: int  # the present state
    allowed: BoolArray  # [S, A], actions that may be used
    restart: float  # probability of a new start after a step
    criterion: str  # "average" or "discounted"


def seen_in(counts: Counts, state: int, allowed: BoolArray, restart: float, criterion: str) -> Seen:
    """Dense arrays of counts that all steps share; the other arguments are fields of `Seen`."""
    S, A = allowed.shape
    M = signals_of(counts)
    sums, squares = (x.T.reshape(M, S, A).copy() for x in (counts.moments[:, :M], signal_squares(counts, M)))
    moves = dense_moves(counts, A)[0]
    return Seen(counts.visits.reshape(S, A), moves, sums, squares, counts.starts, state, allowed, restart, criterion)


def mean_model(seen: Seen) -> Model | None:
    """The model with the observed frequencies and means; only what was tried is allowed. None if nothing was tried.

    In a state in which nothing was tried yet everything is allowed, and leads to the states that are known.
    """
    return _mean(seen.moves.astype(float), means(seen), seen)


def proven_model(seen: Seen) -> Model | None:
    """The mean model in which no plan relies on luck.

    Of a state that was visited n times, actions that were tried fewer than sqrt(n) times count as the worst there are:
    they serve to get away where nothing else does. An action that was tried twice and stayed twice would otherwise
    count as one that stays for ever.
    """
    return cautious_model(seen, seldom=0)


def cautious_model(seen: Seen, seldom: int) -> Model | None:
    """The proven model, where an action tried fewer than `seldom` times may also lead where others of its state did."""
    others = np.where((seen.visits < seldom)[:, :, None], on_others(seen.moves), 0.0)
    rare = seen.visits**2 < seen.visits.sum(axis=1, keepdims=True)
    proven: FloatArray = np.where(rare, 0.0, means(seen))
    return _mean(seen.moves.astype(float) + others, proven, seen)


def _mean(weights: FloatArray, signals: FloatArray, seen: Seen) -> Model | None:
    """The model of these weights [S, A, S] and signals [1+N, S, A] where something was tried."""
    tried = np.asarray(seen.moves.any(axis=2))
    known = np.asarray(tried.any(axis=1))
    if not known.any():
        return None
    weights[~known] = known
    return _model(weights, signals, np.where(known[:, None], tried, seen.allowed), seen)


def hopeful_model(seen: Seen, rng: Stream, *, unsure: int) -> Model:
    """A draw in which every action leads only where some action of the same state has led.

    If actions that were rarely tried could lead everywhere, most of them would look bad: in a queue that is kept short,
    a jump to any other state is a loss. What the other actions have led to weighs as much as one observation.
    """
    return drawn_model(seen, rng, unsure=unsure, few=0, prior=1.0)


def drawn_model(seen: Seen, rng: Stream, *, unsure: int, few: int, prior: float) -> Model:
    """A draw from the posterior: transitions from Dirichlet distributions, signals the observed means.

    A pair that was tried fewer than `few` times may lead everywhere (`prior` is added to all of its counts). Any other
    pair may lead where some action has led to from the same state, and these next states share a weight of `prior`.
    Actions that were tried fewer than `unsure` times have the best signals there are, and so they are tried.
    """
    everywhere = (seen.visits < few)[:, :, None]
    shape = seen.moves + prior * np.where(everywhere, 1.0, on_others(seen.moves))
    hopes = np.where(seen.visits < unsure, 1.0, means(seen))
    return _model(gamma_weights(shape, prior, generator(rng)), hopes, seen.allowed, seen)


def with_patience(model: Model, seen: Seen, steps: float) -> Model:
    """The average-reward model with an effective horizon of `steps`, which starts where the run has been.

    In the long run it costs nothing to wait, so that a plan may take for ever to get to a promising place, or divide
    its time between places that it never leaves. With a new start from one of the states so far, after each step with
    probability 1 / `steps`, both cost what they cost in a run.
    """
    if model.kind != "average":
        return model
    been = seen.visits.sum(axis=1).astype(float)
    been[seen.state] += 1.0
    return model._replace(kind="discounted", discount=1.0 - 1.0 / steps, mu=been / been.sum())


def chain_of(model: Model, pi: FloatArray) -> Any:
    """Sparse transition matrix [S, S] of the policy pi [S, A]."""
    S, A = pi.shape
    P = matrix_of(model.rows, S)
    drawn = sparse.csr_array((pi.reshape(-1), (np.repeat(np.arange(S), A), np.arange(S * A))), shape=(S, S * A))
    chain = sparse.csr_array(drawn @ P)
    chain.sum_duplicates()
    return chain


def means(seen: Seen) -> FloatArray:
    """Mean signals [1+N, S, A]; 1 where nothing was seen."""
    return np.where(seen.visits > 0, seen.sums / np.maximum(seen.visits, 1), 1.0)


def _model(weights: FloatArray, signals: FloatArray, allowed: BoolArray, seen: Seen) -> Model:
    """The model with transitions in proportion to weights [S, A, S], from where the run is or begins again."""
    S, A = seen.visits.shape
    P = sparse.csr_array(weights.reshape(S * A, S))
    total = np.asarray(P.sum(axis=1)).reshape(-1)
    P = sparse.csr_array(sparse.diags_array(np.where(total > 0, 1.0 / np.maximum(total, 1e-300), 0.0)) @ P)
    if seen.criterion == "discounted":
        mu = seen.starts / seen.starts.sum()
    else:
        mu = np.eye(1, S, seen.state)[0]
    discount = 1.0 - seen.restart
    return Model(rows_of(P), signals[0], signals[1:], mu, allowed, seen.criterion, discount)


def frequencies(seen: Seen) -> FloatArray:
    """p [S, A, S], how often each transition followed; alike for all states where nothing was seen."""
    moved = seen.moves.sum(axis=2, keepdims=True)
    p: FloatArray = np.where(moved > 0, seen.moves / np.maximum(moved, 1), 1.0 / seen.moves.shape[2])
    return p


def may_lead(seen: Seen, few: int) -> BoolArray:
    """[S, A, S]: where a pair has led to; anywhere as long as it was tried fewer than `few` times."""
    led = seen.moves > 0
    may: BoolArray = led | (seen.visits < few)[:, :, None] | ~led.any(axis=2, keepdims=True)
    return may


def box_around(p: FloatArray, radius: FloatArray, seen: Seen, few: int) -> Box:
    """All kernels within radius [S, A, S] of p [S, A, S] that lead only where `may_lead` allows.

    The start of a box is the present state, which is known.
    """
    unseen = ~np.asarray(seen.moves.any(axis=2))[:, :, None]
    lo = np.where(unseen, 0.0, np.maximum(p - radius, 0.0))
    up = np.where(may_lead(seen, few), np.where(unseen, 1.0, np.minimum(p + radius, 1.0)), 0.0)
    if seen.restart:
        mu = seen.starts / seen.starts.sum()
        lo, up = ((1 - seen.restart) * side + seen.restart * mu for side in (lo, up))
    start = np.eye(1, len(seen.starts), seen.state)[0]
    return box_of(lo[None], up[None], start, start)


# -- Draws from what counts leave plausible. Rows are [..., S]; the last axis before it is that of actions.


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
