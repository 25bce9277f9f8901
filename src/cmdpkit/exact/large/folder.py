"""What a solve keeps on disk: a journal of its calls, the policies found, and the tables that the next one starts from.

A solve that is started again repeats its decisions, takes the results of all calls in the journal from there, and goes
on with the first call that is missing. Since the same calls give the same bits, so does the whole solve. Files are
written by ordinary writes and only then mapped, so that a full disk is an error here and loses nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.exact.large.sweeps import Sweeps

JOURNAL = "journal.jsonl"


class Folder:
    """A folder for one solve; without a path, everything stays in memory and there is no journal."""

    def __init__(self, path: str | os.PathLike[str] | None, sweeps: Sweeps, gap: float) -> None:
        self.path, self.sweeps = None if path is None else Path(path), sweeps
        self.known: list[dict[str, Any]] = []  # calls of an earlier start that were not repeated yet
        self.calls = 0  # in the journal
        if self.path is not None:
            self._open(self.path, {"solve": digest_of(sweeps), "gap": gap})

    def _open(self, path: Path, head: dict[str, Any]) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
            journal = path / JOURNAL
            if not journal.exists():
                if any(path.iterdir()):
                    raise CmdpkitError(f"folder {quoted(str(path))} holds other files; give a new or an empty one")
                self.sweeps.ranks.wait()
                self._append(head)
            else:
                whole = [line for line in journal.read_text("utf-8").splitlines(keepends=True) if line.endswith("\n")]
                found, *self.known = [json.loads(line) for line in whole]
                if found != head:
                    raise CmdpkitError(
                        f"folder {quoted(str(path))} belongs to a solve of another model, other bounds or another gap; "
                        "give a new one, or the same arguments as before"
                    )
                self.sweeps.ranks.wait()
                if self.sweeps.ranks.rank == 0:  # a line that was being written when the solve ended is dropped
                    journal.write_text("".join(whole), "utf-8")
            self.sweeps.ranks.wait()
            self.calls = len(self.known)
        except (OSError, json.JSONDecodeError) as error:
            raise self._failed(error) from None

    def recall(self, call: dict[str, Any]) -> dict[str, Any] | None:
        """The result of a call of an earlier start, if it is in the journal."""
        if not self.known:
            return None
        result = self.known.pop(0)
        if any(result.get(key) != value for key, value in call.items()):
            raise CmdpkitError(f"the journal in {quoted(str(self.path))} does not fit this solve; give a new folder")
        return result

    def record(self, result: dict[str, Any], tables: NDArray[Any] | None = None) -> None:
        """Add a call to the journal, and keep the tables that the next call starts from."""
        if self.path is None:
            return
        if tables is not None:
            self.write(f"tables-{self.calls % 2}.bin", tables)
        try:
            self._append(result)
        except OSError as error:
            raise self._failed(error) from None
        self.calls += 1

    def _append(self, line: dict[str, Any]) -> None:
        if self.path is not None and self.sweeps.ranks.rank == 0:
            with open(self.path / JOURNAL, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())

    def write(self, name: str, stored: NDArray[Any]) -> None:
        """Write the owned planes of an array [..., stored states] to a file that all ranks share."""
        if self.path is None:
            return
        r, inner, S = self.sweeps.ranks, self.sweeps.inner, self.sweeps.S
        rows, path = stored.reshape(-1, stored.shape[-1]), self.path / name
        try:
            if r.rank == 0:
                path.touch()
            r.wait()
            with open(path, "r+b") as file:
                for k, row in enumerate(rows):
                    file.seek((k * S + r.lo * inner) * row.itemsize)
                    file.write(row[(r.lo - r.base) * inner : (r.hi - r.base) * inner].data)
                file.flush()
                os.fsync(file.fileno())
            r.wait()
        except OSError as error:
            raise self._failed(error) from None

    def read(self, name: str, into: NDArray[Any]) -> None:
        """Fill the stored planes of an array [..., stored states] from a file."""
        if self.path is None:
            return
        r, inner = self.sweeps.ranks, self.sweeps.inner
        rows = into.reshape(-1, into.shape[-1])
        try:
            whole = np.memmap(self.path / name, into.dtype, "r", shape=(len(rows), self.sweeps.S))
        except (OSError, ValueError) as error:
            raise self._failed(error) from None
        rows[:] = whole[:, r.base * inner : r.top * inner]

    def mapped(self, name: str, stored: NDArray[Any]) -> NDArray[Any]:
        """The same array from a file, if there is a folder and only one rank: it then takes no memory."""
        self.write(name, stored)
        if self.path is None or self.sweeps.ranks.comm is not None:
            return stored
        return np.memmap(self.path / name, stored.dtype, "r", shape=stored.shape)

    def _failed(self, error: Exception) -> CmdpkitError:
        return CmdpkitError(
            f"folder {quoted(str(self.path))}: {error}. Nothing that was kept is lost: free some space or repair the "
            "folder, and start the same solve again; it continues"
        )


def digest_of(sweeps: Sweeps) -> str:
    """What tells solves apart: sizes, bounds, criterion, and what the functions return for some hundred states."""
    model, form = sweeps.model, sweeps.form
    picked = np.unique(np.linspace(0, model.S - 1, 200).astype(np.int64)).tolist()
    parts: list[Any] = [repr(model), sorted(model.start.items()), [c.bound_on_total for c in model.constraints]]
    for s in picked:
        x = form.decode(s)
        for a in range(model.A):
            if form.allowed(x, a):
                outcomes = [form.step(x, a, e) for e in range(model.events)] if model.events else form.step(x, a)
                parts.append((outcomes, form.collect(x, a)))
    parts += [(part.to.tolist(), part.p.tolist()) for part in model.noise]
    parts.append([x.tolist() for x in sweeps.facts[:3]])
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
