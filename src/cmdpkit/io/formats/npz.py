"""Arrays and a JSON header in one npz file: the form for large models and policies. Nothing is ever unpickled."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.formats.source import Table

Arrays = dict[str, NDArray[Any]]
VERSION = 1


def write(file: BinaryIO, kind: str, header: Mapping[str, Any], arrays: Arrays) -> None:
    """Store arrays under their names and the header, which says what ``kind`` of thing this is."""
    text = json.dumps({"format": f"cmdpkit {kind}", "version": VERSION, **header}, ensure_ascii=False)
    try:
        np.savez(file, header=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]
    except UnicodeEncodeError as error:
        raise CmdpkitError(
            f"{quoted(text[error.start])} in a name is half a character, which UTF-8 cannot hold"
        ) from None


def read(path: Path, kind: str, dtypes: Mapping[str, str]) -> tuple[Table, Arrays]:
    """Header and arrays of a file of this kind, each array with the dtype it must have."""
    stored = _load(path)
    if "header" not in stored or stored["header"].dtype != np.uint8:
        raise CmdpkitError(f"{path}: not a file written by cmdpkit: it has no header")
    try:
        header = Table(json.loads(stored.pop("header").tobytes()))
    except (ValueError, TypeError, RecursionError) as error:
        raise CmdpkitError(f"{path}: the header is damaged: {error}") from None
    if header.pop("format", None) != f"cmdpkit {kind}":
        raise CmdpkitError(f"{path}: not a {kind} written by cmdpkit")
    version = header.pop("version", None)
    if version != VERSION:
        raise CmdpkitError(f"{path}: version {quoted(version)} of the format; this cmdpkit reads version {VERSION}")
    for name, dtype in dtypes.items():
        if name not in stored:
            raise CmdpkitError(f"{path}: array {quoted(name)} is missing")
        if stored[name].dtype != np.dtype(dtype):
            raise CmdpkitError(f"{path}: array {quoted(name)} has dtype {stored[name].dtype}, expected {dtype}")
    for name in stored:
        if name not in dtypes:
            raise CmdpkitError(f"{path}: unknown array {quoted(name)}; expected are {', '.join(dtypes)}")
    return header, stored


def _load(path: Path) -> Arrays:
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise CmdpkitError("the archive has no end")
            file.seek(0)
            with np.load(file, allow_pickle=False) as stored:
                return dict(stored)
    except OSError as error:
        raise CmdpkitError(f"cannot read {path}: {error.strerror or error}") from None
    except Exception as error:  # zipfile and numpy name no closed set of what damaged or foreign bytes make them raise
        raise CmdpkitError(f"{path}: not a complete npz file of plain arrays: {error}") from None
