"""Counts with plenty of room, and single steps counted by step, state and action."""

import numpy as np

from cmdpkit.estimate import counts as store
from cmdpkit.estimate.continuing import Seen
from cmdpkit.estimate.counts import Counts

ROOM = 10_000  # transitions


def no_counts(H: int, S: int, A: int, N: int, *, pooled: bool = False) -> Counts:
    """Counts before the first episode."""
    return store.with_room(store.new_counts(1 if pooled else H, S, A, 1 + N), ROOM)


def cell(counts: Counts, A: int, h: int, s: int, a: int) -> int:
    """The index of (step, state, action), or of (state, action) where all steps share their counts."""
    return (h % store.steps_of(counts, A) * len(counts.starts) + s) * A + a


def count_step(counts: Counts, A: int, h: int, s: int, a: int, signals: np.ndarray) -> None:
    """Action a was taken at (h, s) and earned signals [M]."""
    store.count_step(counts, cell(counts, A, h, s, a), np.reshape(signals, (1, -1)), 0)


def count_move(counts: Counts, A: int, h: int, s: int, a: int, s_next: int) -> None:
    """Action a at (h, s) led to s_next."""
    store.count_move(counts, cell(counts, A, h, s, a), s_next)


def counts_of(
    moves: np.ndarray, visits: np.ndarray, sums: np.ndarray, squares: np.ndarray, starts: np.ndarray
) -> Counts:
    """Counts from dense arrays: moves [T, S, A, S], visits [T, S, A], sums and squares [M, T, S, A], starts [S].

    Products of two different signals are not known and stay 0.
    """
    T, S, A = visits.shape
    M, rows = len(sums), moves.reshape(-1, S)
    cell, s_next = np.nonzero(rows)
    counts = store.with_transitions(store.new_counts(T, S, A, M), cell, s_next, rows[cell, s_next])
    counts.visits[...], counts.moves[...], counts.starts[...] = visits.ravel(), rows.sum(axis=1), starts
    diagonal = M + np.cumsum(np.arange(1, M + 1)) - 1
    counts.moments[:, :M], counts.moments[:, diagonal] = sums.reshape(M, -1).T, squares.reshape(M, -1).T
    return counts


def count_episode(counts: Counts, A: int, states: np.ndarray, actions: np.ndarray, signals: np.ndarray) -> None:
    """An episode with these states [H], actions [H] and signals [H, M]."""
    store.count_episode(counts, store.Episode(states, actions, signals, signals.sum(axis=0)), A)


def dense_moves(counts: Counts, A: int) -> np.ndarray:
    """[T, S, A, S]: how often each transition was seen."""
    S, (owner, states, times) = len(counts.starts), store.entries_of(counts)
    moves = np.zeros((len(counts.head), S), dtype=np.int64)
    moves[owner, states] = times
    return moves.reshape(-1, S, A, S)


def seen(spec, moves, sums=0.0, visits=None, starts=None, state: int = 0) -> Seen:
    """What an unbroken run has seen after these transitions [S, A, S], which earned sums [1+N, S, A]."""
    moves = np.asarray(moves)
    sums = np.zeros((1 + spec.N, spec.S, spec.A)) + sums
    visits = moves.sum(axis=2) if visits is None else visits
    starts = np.eye(1, spec.S, dtype=int)[0] if starts is None else np.asarray(starts)
    counts = counts_of(moves[None], visits[None], sums[:, None], sums[:, None] ** 2, starts)
    return Seen(counts, state, spec.allowed[0], spec.restart, spec.criterion)


def let_see(learner, moves, reward=0.0, state: int = 0) -> None:
    """Let a learner in a world without episodes have seen these transitions [S, A, S], which earned reward [S, A]."""
    spec, moves = learner.spec, np.asarray(moves)
    sums = np.zeros((1 + spec.N, 1, spec.S, spec.A))
    sums[0] = reward
    visits, starts = moves.sum(axis=2)[None], np.eye(1, spec.S, dtype=int)[0]
    learner.counts = counts_of(moves[None], visits, sums, sums**2, starts)
    learner.position.place[:] = state, -1
