"""What a solve keeps on disk, so that one that was killed continues.

With a folder, a journal has the result of every call. A solve that is started again repeats its decisions, takes the
results of all calls in the journal from there, and goes on with the first call that is missing. Since the same calls
give the same bits, so does the whole solve. Files are written by ordinary writes and only then mapped, so that a full
disk is an error here and loses nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit import __version__
from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.exact.large.sweeps import Sweeps
from cmdpkit.model.user_functions import outcomes

JOURNAL = "journal.jsonl"  # the calls and their results
LOOKED_AT = 200  # states whose outcomes tell models apart


class Folder:
    """A folder for one solve; without a path, everything stays in memory and there is no journal."""

    def __init__(self, path: str | os.PathLike[str] | None, sweeps: Sweeps, gap: float) -> None:
        self.path, self.ranks, self.S = None if path is None else Path(path), sweeps.ranks, sweeps.model.S
        self.known: list[Any] = []  # calls of an earlier start that were not repeated yet, and their results
        self.calls = 0  # in the journal
        if self.path is not None:
            with self._safely():
                self._open(self.path, {"cmdpkit": __version__, "solve": digest_of(sweeps), "gap": gap})

    def _open(self, path: Path, head: dict[str, Any]) -> None:
        path.mkdir(parents=True, exist_ok=True)
        journal = path / JOURNAL
        lines = journal.read_text("utf-8").splitlines(keepends=True) if journal.exists() else []
        whole = [line for line in lines if line.endswith("\n")]
        if not whole and any(other != journal for other in path.iterdir()):
            raise CmdpkitError(f"folder {quoted(str(path))} holds other files; give a new or an empty one")
        found, *self.known = [json.loads(line) for line in whole] or [head]
        if found.get("cmdpkit") != head["cmdpkit"]:
            begun = f"with cmdpkit {found['cmdpkit']}" if "cmdpkit" in found else "with an earlier version of cmdpkit"
            raise CmdpkitError(
                f"folder {quoted(str(path))} was begun {begun}, and this is {head['cmdpkit']}, which may round "
                "differently: continue with the version that began it, or give a new folder"
            )
        if found != head:
            raise CmdpkitError(
                f"folder {quoted(str(path))} belongs to a solve of another model, other bounds or another gap; give a "
                "new one, or the same arguments as before"
            )
        self.calls = len(self.known)
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
        if self.path is None:
            return
        self.calls += 1
        with self._safely():
            if tables is not None:
                self._write(self.path / self.tables(), tables)
            self._append([call, result])

    def kept(self, name: str, stored: NDArray[Any]) -> NDArray[Any]:
        """An array over the stored states, written to a file if there is a folder; see `mapped`."""
        if self.path is None:
            return stored
        with self._safely():
            self._write(self.path / name, stored)
        return self.mapped(name, stored)

    def room(self, name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Zeros, in a file if there is a folder; they are written before the file is mapped."""
        if self.path is None:
            return np.zeros(shape, dtype)
        with self._safely():
            with open(self.path / name, "wb") as file:
                for _ in range(shape[0]):
                    file.write(np.zeros(shape[1:], dtype).data)
            return np.memmap(self.path / name, dtype, "r+", shape=shape)

    def mapped(self, name: str, stored: NDArray[Any]) -> NDArray[Any]:
        """What a file has for the stored states, in an array like the one given; it takes no memory on one rank."""
        assert self.path is not None
        with self._safely():
            whole = np.memmap(self.path / name, stored.dtype, "r", shape=(*stored.shape[:-1], self.S))
        return whole if self.ranks.comm is None else np.array(whole[..., self.ranks.stored])

    def _append(self, line: Any) -> None:
        if self.path is not None and self.ranks.rank == 0:
            with open(self.path / JOURNAL, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def _write(self, path: Path, stored: NDArray[Any]) -> None:
        """Write the owned planes of an array [..., stored states] to a file that all ranks share."""
        if self.ranks.rank == 0:
            path.touch()
        self.ranks.wait()
        with open(path, "r+b") as file:
            for k, row in enumerate(np.atleast_2d(self.ranks.own(stored))):
                file.seek((k * self.S + self.ranks.lo * self.ranks.inner) * row.itemsize)
                file.write(row.data)
            file.flush()
            os.fsync(file.fileno())
        self.ranks.wait()

    @contextmanager
    def _safely(self) -> Iterator[None]:
        """Say what to do after an error of the disk."""
        try:
            yield
        except CmdpkitError:
            raise
        except (OSError, ValueError) as error:
            raise CmdpkitError(
                f"folder {quoted(str(self.path))}: {error}. Nothing that was kept is lost: free some space or repair "
                "the folder, and start the same solve again; it continues"
            ) from None


def digest_of(sweeps: Sweeps) -> str:
    """A digest of a solve: sizes, bounds, criterion, and outcomes of the functions in some hundred states."""
    model = sweeps.model
    picked = np.unique(np.linspace(0, model.S - 1, LOOKED_AT).astype(np.int64)).tolist()
    parts: list[Any] = [repr(model), sorted(model.start.items()), [c.bound_on_total for c in model.constraints]]
    for s in picked:
        parts += [(a, own.tolist(), moves) for a, own, moves in outcomes(model, model.state(s))]
    parts += [(part.to.tolist(), part.p.tolist()) for part in model.noise]
    parts.append([x.tolist() for x in sweeps.facts[:3]])
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
