"""Counts with plenty of room, and single steps counted by step, state and action."""

import numpy as np

from cmdpkit.estimate import counts as store
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
