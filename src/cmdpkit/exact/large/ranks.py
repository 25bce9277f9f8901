"""States divided among processes: each rank of an MPI communicator owns planes of the first coordinate.

A rank stores the planes that it owns and those that its states read. Before a sweep, only the latter are exchanged.
Largest values and counts are the only results that concern all ranks; both are the same in any order of additions, so
results do not depend on the number of ranks, to the last bit. Without a communicator there is one rank, which is alone.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.transitions import BoolArray, FloatArray


class Ranks:
    """The ranks of a solve; ``comm`` is a communicator of mpi4py, or None."""

    def __init__(self, comm: Any, planes: int) -> None:
        self.comm: Any = comm if comm is not None and comm.size > 1 else None
        self.size: int
        self.rank: int
        self.size, self.rank = (1, 0) if self.comm is None else (comm.size, comm.rank)
        if planes < self.size:
            raise CmdpkitError(
                f"{self.size} ranks share the {planes} places of the first coordinate; use at most {planes} ranks, or "
                "put a larger coordinate first"
            )
        edges = [planes * i // self.size for i in range(self.size + 1)]
        self.owned = list(pairwise(edges))  # first plane and the one after the last, of every rank
        self.lo, self.hi = self.owned[self.rank]
        self.base, self.top = self.lo, self.hi  # planes stored here: the hull of owned and read ones

    def connect(self, *reads: BoolArray) -> list[list[tuple[int, BoolArray, BoolArray]]]:
        """Store all planes that are read, given as masks [planes]; who sends what for each mask, see `exchange`."""
        needed = np.flatnonzero(np.any(reads, axis=0))
        if self.comm is None:
            return [[] for _ in reads]
        self.base, self.top = min(self.lo, int(needed[0])), max(self.hi, int(needed[-1]) + 1)
        plans = []
        for mask in reads:
            every = np.empty((self.size, len(mask)), dtype=bool)
            self.comm.Allgather(np.ascontiguousarray(mask), every)
            plan = []
            for other, (lo, hi) in enumerate(self.owned):
                mine, theirs = np.zeros_like(mask), np.zeros_like(mask)
                mine[lo:hi] = mask[lo:hi]
                theirs[self.lo : self.hi] = every[other, self.lo : self.hi]
                if other != self.rank and (mine.any() or theirs.any()):
                    plan.append((other, mine, theirs))  # planes to receive from it, and to send to it
            plans.append(plan)
        return plans

    def exchange(self, plan: list[tuple[int, BoolArray, BoolArray]], tables: FloatArray) -> None:
        """Fill the planes of tables [K, stored] that other ranks own."""
        inner = tables.shape[1] // (self.top - self.base)
        requests = []
        for other, receive, send in plan:
            for table in tables:
                for mask, begin in ((receive, self.comm.Irecv), (send, self.comm.Isend)):
                    for first, last in _runs(mask):
                        part = table[(first - self.base) * inner : (last - self.base) * inner]
                        requests.append(begin(part, other))
        for request in requests:
            request.Wait()

    def largest(self, values: FloatArray) -> FloatArray:
        """The largest of each value over all ranks."""
        return values if self.comm is None else self._reduced(values, "MAX")

    def total(self, count: int) -> int:
        """The sum of a whole number over all ranks."""
        return count if self.comm is None else int(self._reduced(np.array([count]), "SUM")[0])

    def _reduced(self, values: NDArray[Any], operation: str) -> NDArray[Any]:
        from mpi4py import MPI

        found = np.empty_like(values)
        self.comm.Allreduce(np.ascontiguousarray(values), found, getattr(MPI, operation))
        return found

    def share(self, numbers: FloatArray) -> FloatArray:
        """The numbers of rank 0, on all ranks; every rank gives an array of that size."""
        if self.comm is not None:
            self.comm.Bcast(numbers, 0)
        return numbers

    def gathered(self, stored: NDArray[Any], inner: int) -> NDArray[Any]:
        """An array over the stored planes of all ranks as one array over all planes, on rank 0."""
        own = np.ascontiguousarray(stored[(self.lo - self.base) * inner : (self.hi - self.base) * inner])
        if self.comm is None:
            return own
        if self.rank:
            self.comm.Send(own, 0)
            return own
        parts = [own]
        for other, (lo, hi) in enumerate(self.owned[1:], 1):
            parts.append(np.empty((hi - lo) * inner, own.dtype))
            self.comm.Recv(parts[-1], other)
        return np.concatenate(parts)

    def wait(self) -> None:
        """Wait for all ranks."""
        if self.comm is not None:
            self.comm.Barrier()


def _runs(mask: BoolArray) -> list[tuple[int, int]]:
    """First and last plus one of each longest sequence of planes in a mask."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]
