"""Models made of the counts of one unbroken run: their mean, a draw from those left plausible, or a box of kernels.

A model is made of *weights* (`counts.kernel_of`): how much each next state of a row counts, as a sparse list. These are
the numbers of transitions, to which guesses may be added, or draws from a posterior. Row (t * S + s) * A + a is that of
step t, state s and action a; learners with a horizon draw from weights too.

The mean has no transition that was not seen of the action itself. Smoothed forever, it would let policies rely on
transitions that do not exist; never smoothed, it would not prepare them for what has been rare so far.

A world that begins again with probability e after each step is one whose kernel is (1 - e) P + e mu: a box is moved and
shrunk accordingly, and the programs over it know of nothing but long-run averages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from cmdpkit.estimate.boxes import Box, box_of
from cmdpkit.estimate.counts import Counts, entries_of, kernel_of, signal_means, start_of
from cmdpkit.exact.stationary.problem import Arrays
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray, Rows
from cmdpkit.operators.row_lists import matrix_of
from cmdpkit.simulate.random import Stream, generator

Model: TypeAlias = Arrays


class Seen(NamedTuple):
    """What was seen in one unbroken run so far, and what was declared about the world."""

    counts: Counts  # all steps share them
    state: int  # the present state
    allowed: BoolArray  # [S, A], actions that may be used
    restart: float  # probability of a new start after a step, which is not counted as a move
    criterion: str  # "average" or "discounted"

    @property
    def visits(self) -> IntArray:
        """[S, A], how often an action was taken."""
        return self.counts.visits.reshape(self.allowed.shape)

    @property
    def means(self) -> FloatArray:
        """[1+N, S, A], mean signals; 0 where nothing was seen."""
        return signal_means(self.counts).T.reshape(-1, *self.allowed.shape)


def mean_model(seen: Seen) -> Model | None:
    """The model with the observed frequencies and means; only what was tried is allowed. None if nothing was tried.

    In a state in which nothing was tried yet everything is allowed, and leads to the states that are known.
    """
    return _mean(observed(seen.counts), hopeful_means(seen), seen)


def proven_model(seen: Seen) -> Model | None:
    """The mean model in which no plan relies on luck.

    Of a state that was visited n times, actions that were tried fewer than sqrt(n) times count as the worst there are:
    they serve to get away where nothing else does. An action that was tried twice and stayed twice would otherwise
    count as one that stays forever.
    """
    return cautious_model(seen, seldom=0)


def cautious_model(seen: Seen, seldom: int) -> Model | None:
    """The proven model, where an action tried fewer than `seldom` times may also lead where others of its state did."""
    (S, A), moves = seen.allowed.shape, observed(seen.counts)
    others = shared(moves, np.flatnonzero(seen.visits < seldom), S, A, 1.0)
    rare = seen.visits**2 < seen.visits.sum(axis=1, keepdims=True)
    return _mean(added(S, moves, others), np.where(rare, 0.0, hopeful_means(seen)), seen)


def _mean(weights: RowWeights, signals: FloatArray, seen: Seen) -> Model | None:
    """The model of these weights and signals [1+N, S, A] where something was tried."""
    S, A = seen.allowed.shape
    tried: BoolArray = seen.counts.moves.reshape(S, A) > 0
    known = np.asarray(tried.any(axis=1))
    if not known.any():
        return None
    rows, states = np.flatnonzero(np.repeat(~known, A)), np.flatnonzero(known)
    unknown = np.repeat(rows, len(states)), np.tile(states, len(rows)), np.ones(len(rows) * len(states))
    return _model(added(S, weights, unknown), signals, np.where(known[:, None], tried, seen.allowed), seen)


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
    (S, A), moves, young = seen.allowed.shape, observed(seen.counts), (seen.visits < few).ravel()
    guesses = everywhere(np.flatnonzero(young), S, prior), shared(moves, np.flatnonzero(~young), S, A, prior)
    hopes = np.where(seen.visits < unsure, 1.0, hopeful_means(seen))
    weights = gamma_drawn(added(S, moves, *guesses), S * A, S, prior, generator(rng))
    return _model(weights, hopes, seen.allowed, seen)


def with_patience(model: Model, seen: Seen, steps: float) -> Model:
    """The average-reward model with an effective horizon of `steps`, which starts where the run has been.

    In the long run it costs nothing to wait, so that a plan may take forever to get to a promising place, or divide
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


def hopeful_means(seen: Seen) -> FloatArray:
    """Mean signals [1+N, S, A]; 1 where nothing was seen."""
    return np.where(seen.visits > 0, seen.means, 1.0)


def _model(weights: RowWeights, signals: FloatArray, allowed: BoolArray, seen: Seen) -> Model:
    """The model with transitions in proportion to weights, from where the run is or begins again."""
    S, A = seen.allowed.shape
    mu = start_of(seen.counts.starts) if seen.criterion == "discounted" else np.eye(1, S, seen.state)[0]
    rows = Rows.of(*kernel_of((1, S, A), *weights).arrays, S, A)
    return Model(rows, signals[0], signals[1:], mu, allowed, seen.criterion, 1.0 - seen.restart)


# The radius of probabilities [E] in rows [E].
Radius: TypeAlias = Callable[[FloatArray, IntArray], FloatArray]


def box_around(seen: Seen, radius: Radius, few: int, H: int = 1) -> Box:
    """All kernels of H steps within a radius of the frequencies.

    An action that was tried `few` times leads only where it has led to; one that was never tried may lead anywhere. The
    start is the present state, which is known.
    """
    (S, A), (row, to, times) = seen.allowed.shape, observed(seen.counts)
    moved, every = seen.counts.moves, np.arange(seen.allowed.size)
    p = times / moved[row]
    lo, up = np.maximum(p - radius(p, row), 0.0), np.minimum(p + radius(p, row), 1.0)
    free = np.where(seen.visits.ravel() < few, np.minimum(radius(np.zeros(len(every)), every), 1.0), 0.0)
    unseen = np.where(moved > 0, free, 1.0)
    if seen.restart:
        mu = start_of(seen.counts.starts)
        again = np.setdiff1d((every[:, None] * S + np.flatnonzero(mu)).ravel(), row * S + to)
        row, to = np.append(row, again // S), np.append(to, again % S)
        lo, up = np.append(lo, np.zeros(len(again))), np.append(up, unseen[again // S])
        lo, up = ((1 - seen.restart) * side + seen.restart * mu[to] for side in (lo, up))
        order, unseen = np.lexsort((to, row)), (1 - seen.restart) * unseen
        row, to, lo, up = row[order], to[order], lo[order], up[order]
    start = np.eye(1, S, seen.state)
    return box_of((H, S, A), row, to, np.stack((lo, up)), unseen, np.repeat(start, 2, axis=0))


def drawn_signals(means: FloatArray, n: FloatArray, draw: np.random.Generator) -> FloatArray:
    """Means in [0, 1], drawn from Beta(1 + n mean, 1 + n (1 - mean)).

    >>> draw = np.random.default_rng(1)
    >>> drawn_signals(np.array([0.25]), np.array([1e12]), draw).round(4)  # with much data, the mean itself
    array([0.25])
    """
    good = np.clip(n * means, 0.0, n)
    drawn: FloatArray = draw.beta(1.0 + good, 1.0 + (n - good))
    return drawn


# -- Transition weights -----------------------------------------------------------------------------------------------


class RowWeights(NamedTuple):
    """Positive weights, sorted by row and next state, each of which occurs once."""

    row: IntArray  # [E]
    to: IntArray  # [E], the next state
    weight: FloatArray  # [E]


def observed(counts: Counts) -> RowWeights:
    """How often each transition was seen."""
    return added(len(counts.starts), entries_of(counts))


def added(S: int, *parts: tuple[IntArray, IntArray, FloatArray | IntArray]) -> RowWeights:
    """The sum of lists (row, next state, weight), each in any order, for S states."""
    rows, states, weights = (np.concatenate(x) for x in zip(*parts, strict=True))
    keys, place = np.unique(rows * S + states, return_inverse=True)
    total: FloatArray = np.bincount(place, weights, len(keys)).astype(float)
    there = total > 0
    return RowWeights(keys[there] // S, keys[there] % S, total[there])


def everywhere(rows: IntArray, S: int, weight: float) -> RowWeights:
    """These rows, in rising order, with the same weight on all states."""
    return RowWeights(np.repeat(rows, S), np.tile(np.arange(S), len(rows)), np.full(len(rows) * S, float(weight)))


def shared(seen: RowWeights, rows: IntArray, S: int, A: int, weight: float) -> RowWeights:
    """These rows with a weight shared by all states to which some action has led from the same state and step."""
    pairs = np.unique(seen.row // A * S + seen.to)
    first = np.searchsorted(pairs // S, np.arange(rows.max(initial=0) // A + 2))
    place, length = rows // A, np.diff(first)[rows // A]
    at = np.arange(int(length.sum())) + np.repeat(first[place] - (np.cumsum(length) - length), length)
    return RowWeights(np.repeat(rows, length), pairs[at] % S, np.repeat(weight * (1.0 / np.maximum(length, 1)), length))


def gamma_drawn(shape: RowWeights, R: int, S: int, prior: float, draw: np.random.Generator) -> RowWeights:
    """RowWeights drawn from Gamma distributions, which become Dirichlet ones when rows are divided by their sums.

    A row without weights says nothing, so that every state has the weight `prior` in it.
    """
    silent = np.flatnonzero(np.bincount(shape.row, minlength=R) == 0)
    shape = added(S, shape, everywhere(silent, S, prior))
    drawn = draw.standard_gamma(shape.weight)
    lost = np.bincount(shape.row, drawn, R)[shape.row] == 0.0  # all draws were rounded to 0, which small shapes can do
    return shape._replace(weight=np.where(lost, shape.weight, drawn))
