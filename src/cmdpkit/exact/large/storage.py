"""Where the states of a solve are: planes of the first coordinate on ranks, and files in a folder.

Each rank of an MPI communicator owns planes of the first coordinate. It stores them and those that its states read;
before a sweep, only the latter are exchanged. Largest values and counts are the only results that concern all ranks;
both are the same in any order of additions, so results do not depend on the number of ranks, to the last bit. Without a
communicator there is one rank, which is alone.

With a folder, a journal has the result of every call. A solve that is started again repeats its decisions, takes the
results of all calls in the journal from there, and goes on with the first call that is missing. Since the same calls
give the same bits, so does the whole solve. Files are written by ordinary writes and only then mapped, so that a full
disk is an error here and loses nothing.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.transitions import BoolArray, FloatArray

JOURNAL = "journal.jsonl"  # the calls and their results


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


@contextmanager
def safely(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Say what to do after an error of the disk, if there is a folder."""
    try:
        yield
    except (OSError, ValueError) as error:
        if folder is None or isinstance(error, CmdpkitError):
            raise
        raise CmdpkitError(
            f"folder {quoted(str(folder))}: {error}. Nothing that was kept is lost: free some space or repair the "
            "folder, and start the same solve again; it continues"
        ) from error


class Folder:
    """A folder for one solve; without a path, everything stays in memory and there is no journal."""

    def __init__(self, path: str | os.PathLike[str] | None, ranks: Ranks, S: int, head: dict[str, Any]) -> None:
        self.path, self.ranks, self.S = None if path is None else Path(path), ranks, S
        self.known: list[Any] = []  # calls of an earlier start that were not repeated yet, and their results
        if self.path is not None:
            self._open(self.path, head)
        self.calls = len(self.known)  # in the journal

    def _open(self, path: Path, head: dict[str, Any]) -> None:
        path.mkdir(parents=True, exist_ok=True)
        journal = path / JOURNAL
        lines = journal.read_text("utf-8").splitlines(keepends=True) if journal.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        if not whole and any(other != journal for other in path.iterdir()):
            raise CmdpkitError(f"folder {quoted(str(path))} holds other files; give a new or an empty one")
        found, *self.known = [json.loads(line) for line in whole] or [head]
        others = [what for what in head if found.get(what) != head[what]]
        if others:
            raise CmdpkitError(
                f"folder {quoted(str(path))} was begun with another {' and another '.join(others)}; give a new folder, "
                "or continue with what began it"
            )
        self.ranks.wait()
        if whole and self.ranks.rank == 0:  # a line that was being written when the solve ended is dropped
            os.truncate(journal, len("".join(whole).encode()))
        elif not whole:
            self._append(head)
        self.ranks.wait()

    def recall(self, call: list[Any]) -> dict[str, Any] | None:
        """The result of a call of an earlier start, if it is in the journal."""
        if not self.known:
            return None
        known, result = self.known.pop(0)
        if known != call:
            raise CmdpkitError(f"the journal in {quoted(str(self.path))} does not fit this solve; give a new folder")
        return dict(result)

    def tables(self) -> str:
        """The file of the tables after the last call in the journal; those of the one before it are kept as well."""
        return f"tables-{self.calls % 2}.bin"

    def record(self, call: list[Any], result: dict[str, Any], tables: NDArray[Any] | None) -> None:
        """Add a call to the journal, and keep the tables that the next call starts from."""
        self.calls += 1
        if tables is not None:
            self._write(self.tables(), tables)
        self._append([call, result])

    def kept(self, name: str, stored: NDArray[Any]) -> NDArray[Any]:
        """An array over the stored states, written to a file if there is a folder; see `mapped`."""
        self._write(name, stored)
        return stored if self.path is None else self.mapped(name, stored)

    def room(self, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Zeros, on rank 0 in a file if there is a folder; they are written before the file is mapped."""
        if self.path is None or self.ranks.rank > 0:
            return np.zeros(shape, dtype)
        with open(self.path / name, "wb") as file:
            for _ in range(shape[0]):
                file.write(np.zeros(shape[1:], dtype).data)
        return np.memmap(self.path / name, dtype, "r+", shape=shape)

    def mapped(self, name: str, stored: NDArray[Any]) -> NDArray[Any]:
        """What a file has for the stored states, in an array like the one given; it takes no memory on one rank."""
        assert self.path is not None
        whole = np.memmap(self.path / name, stored.dtype, "r", shape=(*stored.shape[:-1], self.S))
        return whole if self.ranks.comm is None else np.array(whole[..., self.ranks.stored])

    def _append(self, line: Any) -> None:
        if self.path is not None and self.ranks.rank == 0:
            with open(self.path / JOURNAL, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def _write(self, name: str, stored: NDArray[Any]) -> None:
        """Write the owned planes of an array [..., stored states] to a file that all ranks share."""
        if self.path is None:
            return
        if self.ranks.rank == 0:
            (self.path / name).touch()
        self.ranks.wait()
        with open(self.path / name, "r+b") as file:
            for k, row in enumerate(np.atleast_2d(self.ranks.own(stored))):
                file.seek((k * self.S + self.ranks.lo * self.ranks.inner) * row.itemsize)
                file.write(row.data)
            file.flush()
            os.fsync(file.fileno())
        self.ranks.wait()
