"""Arrays and a JSON header in one npz file: the form for large models and policies."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.formats.archive import Archive, Expected, opened
from cmdpkit.io.formats.source import Fields, Table

Arrays = dict[str, NDArray[Any]]
VERSION = 1  # of the form of the file


def write(file: BinaryIO, kind: str, header: Mapping[str, Any], arrays: Arrays) -> None:
    """Write arrays under their names, with a header that says what ``kind`` of file this is."""
    text = json.dumps({"format": f"cmdpkit {kind}", "version": VERSION, **header}, ensure_ascii=False)
    try:
        np.savez(file, header=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]
    except UnicodeEncodeError as error:
        half = quoted(text[error.start])
        raise CmdpkitError(f"{half} in a name is half a character, which UTF-8 cannot hold") from None


def read(
    path: Path, kind: str, layout: Callable[[Fields], Mapping[str, Expected]], *, mapped: Container[str] = ()
) -> tuple[Fields, Arrays]:
    """Header and arrays of a file of this kind; those called in ``mapped`` stay on disk and are read when used.

    ``layout`` checks the header and returns the type and shape of every array that it declares. Arrays are read only if
    all of them agree with this, so reading takes no more memory than the header declares.
    """
    with opened(path) as archive:
        header = Fields(path, "header", _header(archive, kind))
        expected = layout(header)
        archive.check(expected, ignored=("header",))
        return header, {name: archive.mapped(name) if name in mapped else archive.read(name) for name in expected}


def _header(archive: Archive, kind: str) -> Table:
    path = archive.path
    found = archive.members.get("header")
    if found is None or found.dtype != np.uint8:
        raise CmdpkitError(f"{path}: not a file written by cmdpkit: it has no header")
    try:
        header = Table(json.loads(archive.read("header").tobytes()))
    except CmdpkitError:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise CmdpkitError(f"{path}: the header is damaged: {error}") from None
    if header.pop("format", None) != f"cmdpkit {kind}":
        raise CmdpkitError(f"{path}: not a {kind} written by cmdpkit")
    version = header.pop("version", None)
    if version != VERSION:
        raise CmdpkitError(f"{path}: version {quoted(version)} of the format; this cmdpkit reads version {VERSION}")
    return header
