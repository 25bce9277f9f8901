"""Saved runs: all arrays of an unfinished run in one file, which is written as a whole and read only if it is intact.

The file is an npz archive without compression. A checksum over the names, types, shapes and bytes of all its members
reveals damage and edits. It does not protect against intent, because anybody who can write the file can also compute
the checksum. Therefore `check_saved` also checks everything that a run relies on.
"""

from __future__ import annotations

import hashlib
import math
import zipfile
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.io.atomic import make_folder, writing

Arrays = dict[str, NDArray[Any]]

SAVED_FORMAT = 3  # of saved runs; a file of another format is refused
# Members that every saved run has, with the kind of their type and the number of their axes.
MEMBERS = {"key": ("U", 0), "rng": ("u", 1), "done": ("i", 0), "seconds": ("f", 0), "rows": ("f", None)}
# What zipfile and numpy may raise for a file that is not a sound archive.
_PLAIN_ERRORS = (OSError, ValueError, EOFError, KeyError, TypeError, RuntimeError, MemoryError)
UNREADABLE = (*_PLAIN_ERRORS, zipfile.BadZipFile, zlib.error)


def write_saved(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write the arrays of a run to a file, with a checksum; a file that exists is replaced as a whole."""
    undefined = np.array([name for name, x in arrays.items() if _has_nan(x)], dtype=str)
    members = {**arrays, "format": np.array(SAVED_FORMAT), "undefined": undefined}
    make_folder(path.parent)
    with writing(path, overwrite=True) as file:
        np.savez(file, **members, checksum=np.array(_checksum(members)))  # type: ignore[arg-type]


def read_saved(path: Path, key: str) -> Arrays:
    """The arrays of the run with this key; raises CmdpkitError if the file is damaged, edited or of another run."""
    try:
        arrays = _members(path)
    except UNREADABLE as error:
        raise CmdpkitError(f"{path} is not a readable saved run ({error}); delete it to start again") from None
    if not {"format", "checksum", *MEMBERS} <= arrays.keys():
        raise CmdpkitError(f"{path} is not a saved run; choose another checkpoint, or delete it")
    if arrays["format"].tolist() != SAVED_FORMAT or arrays["key"].tolist() != key:
        raise CmdpkitError(f"{path} belongs to another run or version; choose another checkpoint, or delete it")
    if arrays.pop("checksum").tolist() != _checksum(arrays):
        raise CmdpkitError(f"{path} is damaged or was edited (its checksum does not fit); delete it to start again")
    _check_numbers(path, arrays)
    return arrays


def check_saved(
    path: Path | str,
    arrays: Mapping[str, NDArray[Any]],
    stops: list[int],
    width: int,
    fresh: Mapping[str, NDArray[Any]],
    growing: Collection[str] = (),
) -> None:
    """Refuse a saved run that contradicts itself or the run that is to be continued.

    ``stops`` lists the episodes at which curves are read, up to the last of the run (of a run of unknown length, up to
    the first that it has not reached), and ``width`` is how many numbers are read at each. ``fresh`` holds the arrays
    of random stream and world before the first episode; a saved run has arrays of the same types and shapes, but those
    called ``growing`` may have any length. The arrays of the learner are checked by the learner itself.
    """
    done, rows = int(arrays["done"]), arrays["rows"]
    if not 0 <= done <= stops[-1]:
        raise _contradicts(path, f"it has done {done} episodes of {stops[-1]}")
    if rows.size and rows.shape != (len(rows), width):
        raise _contradicts(path, f"its curves have shape {rows.shape}, expected {width} columns")
    expected = [k for k in stops if k <= done]
    if len(rows) != len(expected) or (len(rows) and rows[:, 0].tolist() != expected):
        raise _contradicts(path, f"its curves are not read at the episodes expected up to {done}")
    for name, x in fresh.items():
        if name not in arrays:
            raise _contradicts(path, f"{name} is missing")
        found = arrays[name]
        axes = slice(1, None) if name in growing and found.ndim == x.ndim else slice(None)
        if (found.dtype, found.shape[axes]) != (x.dtype, x.shape[axes]):
            described = f"{found.dtype} {found.shape}, expected {x.dtype} {x.shape}"
            raise _contradicts(path, f"{name} is an array {described}")


def _members(path: Path) -> Arrays:
    """Every array of an npz archive. A compressed one was not written here, and may be far larger than its file."""
    with path.open("rb") as file:
        with zipfile.ZipFile(file) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("it is compressed")
        file.seek(0)
        with np.load(file, allow_pickle=False) as saved:
            return {name: np.asarray(x) for name, x in saved.items()}


def _check_numbers(path: Path, arrays: Arrays) -> None:
    """Refuse members of other types than a run saves, and numbers that no run can have."""
    for name, (kind, axes) in MEMBERS.items():
        if arrays[name].dtype.kind != kind or (axes is not None and arrays[name].ndim != axes):
            raise _contradicts(path, f"{name} is an array {arrays[name].dtype} {arrays[name].shape}")
    if not (math.isfinite(arrays["seconds"]) and arrays["seconds"] >= 0):
        raise _contradicts(path, f"it has taken {float(arrays['seconds'])} seconds")
    known = set(arrays.get("undefined", np.array([])).tolist())
    for name, x in arrays.items():
        if _has_nan(x) and (name not in known or name == "rows"):
            raise _contradicts(path, f"{name} holds numbers that are not defined (NaN)")


def _has_nan(x: NDArray[Any]) -> bool:
    return x.dtype.kind == "f" and bool(np.isnan(x).any())


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        x = np.asarray(arrays[name])
        digest.update(repr((name, x.dtype.str, x.shape)).encode())
        digest.update(np.ascontiguousarray(x).tobytes())
    return digest.hexdigest()


def _contradicts(path: Path | str, what: str) -> CmdpkitError:
    return CmdpkitError(f"{path} contradicts itself or this run: {what}; delete it to start again")
