"""States divided among processes: each rank of an MPI communicator owns planes of the first coordinate.

A rank stores the planes that it owns and those that its states read. Before a sweep, only the latter are exchanged.
Largest values and counts are the only results that concern all ranks; both are the same in any order of additions, so
results do not depend on the number of ranks, to the last bit. Without a communicator there is one rank, which is alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.transitions import BoolArray, FloatArray


class Ranks:
    """The ranks of a solve; ``comm`` is a communicator of mpi4py, or None."""

    def __init__(self, comm: Any, space: tuple[int, ...]) -> None:
        self.comm: Any = comm if comm is not None and comm.size > 1 else None
        self.size, self.rank = (1, 0) if self.comm is None else (int(comm.size), int(comm.rank))
        planes, self.inner = space[0], math.prod(space[1:])
        if planes < self.size:
            raise CmdpkitError(
                f"{self.size} ranks share the {planes} places of the first coordinate; use at most {planes} ranks, or "
                "put a larger coordinate first"
            )
        edges = [planes * i // self.size for i in range(self.size + 1)]
        self.owner = np.repeat(np.arange(self.size), np.diff(edges))  # [planes]
        self.lo, self.hi = edges[self.rank], edges[self.rank + 1]  # the planes that are owned here
        self.base, self.top = self.lo, self.hi  # those that are stored: the hull of owned and read ones
        self.plans: list[Any] = []  # planes to send and to receive, with their numbers per rank

    @property
    def stored(self) -> slice:
        """The states that are stored here."""
        return slice(self.base * self.inner, self.top * self.inner)

    def connect(self, *reads: BoolArray) -> None:
        """Store all planes that are read, given as masks [planes], and find out who sends what for each mask."""
        if self.comm is None:
            return
        needed = np.flatnonzero(np.any(reads, axis=0))
        self.base, self.top = min(self.lo, int(needed[0])), max(self.hi, int(needed[-1]) + 1)
        for mask in reads:
            every = np.empty((self.size, len(mask)), dtype=bool)
            self.comm.Allgather(np.ascontiguousarray(mask), every)
            every[self.owner, np.arange(len(mask))] = False  # nobody sends to itself
            reader, send = np.nonzero(every[:, self.lo : self.hi])
            receive = np.flatnonzero(every[self.rank])
            counts = [np.bincount(x, minlength=self.size) for x in (reader, self.owner[receive])]
            self.plans.append((send + self.lo, receive, *counts))

    def exchange(self, plan: int, tables: FloatArray) -> None:
        """Fill the planes of tables [K, stored] that other ranks own and that are read here."""
        if self.comm is None:
            return
        send, receive, sent, received = self.plans[plan]
        for table in tables:
            planes = table.reshape(-1, self.inner)
            found = np.empty((len(receive), self.inner))
            self.comm.Alltoallv((planes[send - self.base], sent * self.inner), (found, received * self.inner))
            planes[receive - self.base] = found

    def largest(self, values: FloatArray) -> FloatArray:
        """The largest of each value over all ranks."""
        if self.comm is None:
            return values
        from mpi4py import MPI

        found = np.empty_like(values)
        self.comm.Allreduce(np.ascontiguousarray(values), found, MPI.MAX)
        return found

    def total(self, count: int) -> int:
        """The sum of a whole number over all ranks."""
        return count if self.comm is None else int(self.comm.allreduce(count))

    def shared(self, given: Any = None) -> Any:
        """What rank 0 gives, on all ranks."""
        return given if self.comm is None else self.comm.bcast(given)

    def own(self, stored: NDArray[Any]) -> NDArray[Any]:
        """The owned planes of an array over the stored planes."""
        return stored[..., (self.lo - self.base) * self.inner : (self.hi - self.base) * self.inner]

    def gathered(self, stored: NDArray[Any]) -> Any:
        """An array over the stored planes of all ranks as one array over all planes, on rank 0."""
        if self.comm is None:
            return stored
        parts = self.comm.gather(np.ascontiguousarray(self.own(stored)))
        return np.concatenate(parts) if self.rank == 0 else None

    def wait(self) -> None:
        """Wait for all ranks."""
        if self.comm is not None:
            self.comm.Barrier()
