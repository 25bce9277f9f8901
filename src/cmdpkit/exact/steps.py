"""Backward passes through the steps of a model, on several threads.

The values of a step depend on those of the next step only, so all states of one step can be computed at once. They are
divided into chunks; threads take chunks until none is left, and the next step begins when all are done. The work on a
state is the same whoever does it, and nothing is added up across states, so that results do not depend on the number
of threads, to the last bit. A model whose steps are small is one chunk, and then many steps are done in one call.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted

CHUNK_WORK = 200_000  # transitions in one chunk; compiled code takes a fraction of a millisecond for them
CALL_WORK = 20_000_000  # transitions in one call of compiled code; Ctrl-C is noticed between two calls

Threads = int | None  # how many threads to use; None stands for all cores that this process may use
# Called with (first, last, low, high): computes steps last .. first, in this order, of the states low .. high - 1.
StepWork = Callable[[int, int, int, int], None]


def thread_count(threads: Threads) -> int:
    """How many threads were asked for."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)) or threads < 1:
        raise CmdpkitError(f"threads is {quoted(threads)}, expected a whole number, at least 1")
    return int(threads)


class Steps:
    """The steps of a model with H steps, S states and so many transitions per step, divided into pieces of work."""

    def __init__(self, H: int, S: int, transitions: int, threads: Threads = None) -> None:
        chunks = max(1, min(S, transitions // CHUNK_WORK))
        edges = [S * i // chunks for i in range(chunks + 1)]
        self.chunks = list(pairwise(edges))
        block = max(1, CALL_WORK // max(1, transitions)) if chunks == 1 else 1  # steps in one call
        self.blocks = [(max(0, last - block + 1), last) for last in range(H - 1, -1, -block)]
        helpers = min(thread_count(threads), chunks) - 1
        self._executor = ThreadPoolExecutor(helpers) if helpers else None
        self._helpers = helpers

    def backward(self, work: StepWork) -> None:
        """Do the work for all steps, from the last to the first."""
        for first, last in self.blocks:
            if self._executor is None:
                _take(iter(self.chunks), work, first, last)
            else:
                self._together(self._executor, work, first, last)

    def _together(self, executor: ThreadPoolExecutor, work: StepWork, first: int, last: int) -> None:
        """Take chunks in this thread and in all helpers, and return when all chunks are done."""
        left = iter(self.chunks)
        futures = [executor.submit(_take, left, work, first, last) for _ in range(self._helpers)]
        try:
            _take(left, work, first, last)
        finally:
            wait(futures)  # also after Ctrl-C, because the helpers write to arrays of the caller
        for future in futures:
            future.result()


def _take(left: Iterator[tuple[int, int]], work: StepWork, first: int, last: int) -> None:
    """Work on one chunk after the other, until none is left; several threads may take from the same iterator."""
    for low, high in left:
        work(first, last, low, high)
