"""Models and policies as npz files: plain arrays and a JSON header, read by NumPy with nothing unpickled.

A small archive can inflate to any size, so the sizes that its directory declares are limited before anything is read;
zipfile gives no more bytes of a member than that. Types and shapes are checked by the model or policy that is made of
the arrays, as if a user had given them.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.formats import document
from cmdpkit.io.formats.source import Located, LocatedTable, check_regular
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.outcomes import Outcomes
from cmdpkit.model.transitions import ARRAYS, Kernel
from cmdpkit.model.validate import Positions

ALWAYS_ALLOWED_BYTES = 16 << 20  # bytes that any file may inflate to
MAX_INFLATION = 50  # a larger file may inflate to this many times its own size

Arrays = dict[str, NDArray[Any]]


def read_arrays(path: Path) -> Arrays:
    """Every array of an npz file by its name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder, "some.npz"), a=np.zeros((2, 3)))
    ...     read_arrays(Path(folder, "some.npz"))["a"].shape
    (2, 3)
    """
    check_regular(path)
    with _damage(path), open(path, "rb") as raw, zipfile.ZipFile(raw) as archive:
        members = archive.infolist()
        size, total = path.stat().st_size, sum(member.file_size for member in members)
        if total > max(ALWAYS_ALLOWED_BYTES, MAX_INFLATION * size):
            raise CmdpkitError(
                f"{path}: the file has {size:,} bytes and would inflate to {total:,}, more than {MAX_INFLATION} times "
                "as much; if that is right, write it without compression"
            )
        arrays: Arrays = {}
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name in arrays:
                raise ValueError("an array is there twice")
            with archive.open(member) as stream:
                npy.read_magic(stream)
                shape, _, dtype = npy.read_array_header_1_0(stream)
                if math.prod(shape) * dtype.itemsize > member.file_size:  # NumPy would take the memory before it reads
                    raise ValueError(f"{quoted(member.filename)} of shape {shape} does not have the size it claims")
                stream.seek(0)
                arrays[name] = np.load(stream, allow_pickle=False)
        return arrays


@contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Turn all errors into one that names the file, because zipfile and numpy may raise anything for a damaged one."""
    try:
        yield
    except (CmdpkitError, MemoryError):
        raise
    except OSError as error:
        raise CmdpkitError(f"cannot read {path}: {error.strerror or error}") from None
    except Exception as error:
        raise CmdpkitError(f"{path}: not a complete npz file of plain arrays: {error}") from None


def check_names(path: Path, arrays: Arrays, names: Sequence[str]) -> None:
    """Refuse the arrays if one is missing or unknown; who makes something of them checks their types and shapes."""
    for name in (*arrays, *names):
        if name not in names:
            raise CmdpkitError(f"{path}: unknown array {quoted(name)}; expected are {', '.join(names)}")
        if name not in arrays:
            raise CmdpkitError(f"{path}: array {quoted(name)} is missing")


# -- Arrays and a JSON header in one npz file: the form for large models and policies.

VERSION = 1  # version of the file format


def write_npz(file: BinaryIO, kind: str, header: Mapping[str, Any], arrays: Arrays) -> None:
    """Write arrays under their names, with a header that says what ``kind`` of file this is."""
    text = json.dumps({"format": f"cmdpkit {kind}", "version": VERSION, **header}, ensure_ascii=False)
    np.savez(file, header=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]


def read_npz(path: Path, kind: str) -> tuple[Located, Arrays]:
    """Header and arrays of a file of this kind."""
    arrays = read_arrays(path)
    found = arrays.pop("header", None)
    if found is None or found.dtype != np.uint8:
        raise CmdpkitError(f"{path}: not a file written by cmdpkit: it has no header")
    try:
        header = LocatedTable(json.loads(found.tobytes()))
    except (ValueError, TypeError, RecursionError) as error:
        raise CmdpkitError(f"{path}: the header is damaged: {error}") from None
    if header.pop("format", None) != f"cmdpkit {kind}":
        raise CmdpkitError(f"{path}: not a {kind} written by cmdpkit")
    version = header.pop("version", None)
    if version != VERSION:
        raise CmdpkitError(f"{path}: version {quoted(version)} of the format; this cmdpkit reads version {VERSION}")
    return Located(path, "header", header), arrays


# -- Models as npz: the sparse rows of the kernel, and the other arrays, as they are in memory.


def write_npz_model(file: BinaryIO, cmdp: CMDP) -> None:
    """Store a model."""
    c = cmdp.compact
    header: dict[str, Any] = {
        **document.criterion_entry(cmdp),
        "states": document.names_entry(cmdp.states),
        "actions": document.names_entry(cmdp.action_names),
        "constraint": [document.constraint_entry(x) for x in cmdp.constraints],
    }
    header.update(document.exact_entry(cmdp))
    if cmdp.grid:
        header["grid"] = document.grid_table(cmdp.grid, cmdp.states)
    rows, drawn = cmdp.kernel, cmdp.outcomes
    signals: Arrays = {"r": c.r, "signals": cmdp.signs[:, None, None, None] * c.g}
    if drawn is not None:  # means are derived from outcomes
        header["outcomes"], rows, signals = True, drawn.entries, {"outcomes": drawn.signals}
    arrays: Arrays = dict(zip(ARRAYS, rows.arrays, strict=True))
    write_npz(file, "model", header, {**arrays, **signals, "actions": c.allowed, "mu": c.mu})


def read_npz_model(path: Path, *, renormalise: bool = False) -> CMDP:
    """A model that `write_npz_model` stored."""
    header, arrays = read_npz(path, "model")
    header.only(("states", "actions", "constraint"), (*document.KEYS, "grid", "exact", "outcomes"))
    judged = document.read_criterion(header)
    drawn = "outcomes" in header and header.at("outcomes").flag()
    check_names(path, arrays, (*ARRAYS, "actions", "mu", *(("outcomes",) if drawn else ("r", "signals"))))
    states, actions = header.at("states").names(), header.at("actions").names()
    S, A = len(states), len(actions)
    stored = [arrays[name] for name in ARRAYS]
    T = (stored[0].size - 1) // (S * A)
    rows = Kernel.owning(T, S, A, *stored)
    constraints = document.constraints_of(header)
    source: dict[str, Any] = {}
    if drawn:
        rows.check_rows()
        successors = rows.successors.astype(np.int64)
        source["P"] = Outcomes.from_entries((T, S, A), rows.rows, successors, rows.prob, arrays["outcomes"])
    else:
        source |= {"P": rows, "r": arrays["r"], "g": arrays["signals"]}
    return CMDP(
        **source,
        mu=arrays["mu"],
        **judged,
        actions=arrays["actions"],
        constraints=constraints,
        exact=document.exact_of(header, constraints),
        states=states,
        action_names=actions,
        renormalise=renormalise,
        grid=document.grid_of(header, Positions("state", states), A),
    )
