"""Models and policies as npz files. Names, types and sizes are checked before anything is inflated.

Nothing is unpickled. An npz file is a zip archive of arrays, each with a short header that gives its type and shape. A
small file can claim any size, or inflate to it. An `Archive` therefore reads the directory and the headers first, and
refuses a file that contradicts itself or inflates too much. The caller then compares names, types and shapes with what
it expects, and only the arrays that it asks for are read.
"""

from __future__ import annotations

import json
import math
import struct
import zipfile
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, quoted, shown
from cmdpkit.io.formats import document
from cmdpkit.io.formats.source import Fields, Index, LocatedTable
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.transitions import Kernel

ALWAYS_ALLOWED_BYTES = 16 << 20  # bytes that any file may inflate to
MAX_INFLATION = 50  # a larger file may inflate to this many times its own size
MAX_HEADER = 10_000  # bytes of the header of an array
LOCAL_HEADER = 30  # bytes before the name of a member of a zip archive


class NpzMember(NamedTuple):
    """Type, shape and place of an array, from its header."""

    dtype: np.dtype[Any]  # type of its numbers
    shape: tuple[int, ...]  # length of each axis
    fortran: bool  # whether its first axis is the one that varies fastest
    header: int  # bytes before its numbers


class Expected(NamedTuple):
    """The type that an array must have, and for each axis the lengths it may have."""

    dtype: str  # name of the type of its numbers
    shape: tuple[Container[int], ...]  # for each axis, the lengths that it may have


def inflation_limit(size: int) -> int:
    """The number of bytes that a file of a size may inflate to before it is taken for a bomb."""
    return max(ALWAYS_ALLOWED_BYTES, MAX_INFLATION * size)


def too_large(path: Path, size: int, total: int) -> CmdpkitError:
    """The error about a file that inflates to more than it may."""
    return CmdpkitError(
        f"{path}: the file has {size:,} bytes and would inflate to {total:,}, more than {MAX_INFLATION} times "
        "as much; if that is right, write it without compression"
    )


class Archive:
    """An open npz file whose headers are read and consistent; arrays are read when they are asked for."""

    def __init__(self, path: Path, file: zipfile.ZipFile, size: int) -> None:
        self.path, self._file = path, file
        self.members: dict[str, NpzMember] = {}
        total = 0
        for info in file.infolist():
            name = info.filename.removesuffix(".npy")
            if name == info.filename or name in self.members:
                raise CmdpkitError(f"{path}: {quoted(info.filename)} is no array, or is there twice")
            total += info.file_size
            self.members[name] = self._member(info)
        if total > inflation_limit(size):
            raise too_large(path, size, total)

    def _member(self, info: zipfile.ZipInfo) -> NpzMember:
        """Type and shape of one array, which must agree to the byte with its size in the directory."""
        with self._file.open(info) as stream:
            version = npy.read_magic(stream)
            if version == (1, 0):
                shape, fortran, dtype = npy.read_array_header_1_0(stream, max_header_size=MAX_HEADER)
            elif version == (2, 0):
                shape, fortran, dtype = npy.read_array_header_2_0(stream, max_header_size=MAX_HEADER)
            else:
                raise ValueError(f"array {quoted(info.filename)} has an unknown version of the format")
            if dtype.hasobject:
                raise ValueError(f"{quoted(info.filename)}: Object arrays cannot be loaded, as that could run code")
            if min(shape, default=0) < 0 or stream.tell() + math.prod(shape) * dtype.itemsize != info.file_size:
                raise ValueError(f"array {quoted(info.filename)} of shape {shape} does not have the size it claims")
            return NpzMember(dtype, shape, fortran, stream.tell())

    def read(self, name: str) -> NDArray[Any]:
        """Read one array, which takes exactly the memory that its header declares."""
        with _damage(self.path), self._file.open(f"{name}.npy") as stream:
            array: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
            return array

    def mapped(self, name: str) -> NDArray[Any]:
        """One array left on disk, read where it is used; its checksum, which needs all of it, is not compared."""
        info = self._file.getinfo(f"{name}.npy")
        if info.compress_type != zipfile.ZIP_STORED:
            raise CmdpkitError(
                f"{self.path}: array {quoted(name)} is compressed, so it cannot stay on disk; read the model without "
                "mmap, or write it again with `cmdpkit convert`, which does not compress"
            )
        dtype, shape, fortran, header = self.members[name]
        with _damage(self.path):
            if 0 in shape:
                return np.zeros(shape, dtype)
            begin = self._content(info) + header
            return np.asarray(np.memmap(self.path, dtype, "r", begin, shape, "F" if fortran else "C"))

    def _content(self, info: zipfile.ZipInfo) -> int:
        """Where the content of a member begins in the file: after its own header, whose length that header says."""
        with open(self.path, "rb") as file:
            file.seek(info.header_offset)
            header = file.read(LOCAL_HEADER)
        if len(header) < LOCAL_HEADER or header[:4] != b"PK\x03\x04":
            raise ValueError(f"{quoted(info.filename)} is not where the directory says")
        name, extra = struct.unpack("<HH", header[26:30])
        return info.header_offset + LOCAL_HEADER + int(name) + int(extra)

    def check(self, expected: Mapping[str, Expected], ignored: Container[str] = ()) -> None:
        """Refuse the file if an array is missing, unknown, or of another type or shape than expected."""
        for name in self.members:
            if name not in expected and name not in ignored:
                raise CmdpkitError(f"{self.path}: unknown array {quoted(name)}; expected are {', '.join(expected)}")
        for name, (dtype, lengths) in expected.items():
            if name not in self.members:
                raise CmdpkitError(f"{self.path}: array {quoted(name)} is missing")
            found = self.members[name]
            if found.dtype != np.dtype(dtype):
                raise CmdpkitError(f"{self.path}: array {quoted(name)} has dtype {found.dtype}, expected {dtype}")
            fits = len(found.shape) == len(lengths) and all(n in a for n, a in zip(found.shape, lengths, strict=True))
            if not fits:
                rule = " x ".join(_axis(a) for a in lengths)
                raise CmdpkitError(f"{self.path}: array {quoted(name)} has shape {found.shape}, expected {rule}")


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """An npz file, with its headers checked.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder, "some.npz"), a=np.zeros((2, 3)))
    ...     with opened(Path(folder, "some.npz")) as archive:
    ...         archive.check({"a": Expected("float64", ((2,), range(5)))})
    ...         archive.read("a").shape
    (2, 3)
    """
    with ExitStack() as stack:
        with _damage(path):
            file = stack.enter_context(open(path, "rb"))
            if not zipfile.is_zipfile(file):
                raise ValueError("the archive has no end")
            archive = Archive(path, zipfile.ZipFile(file), path.stat().st_size)
        yield archive


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


def _axis(lengths: Container[int]) -> str:
    if isinstance(lengths, range):
        return f"{lengths.start}..{lengths.stop - 1}"
    return " or ".join(map(shown, dict.fromkeys(lengths))) if isinstance(lengths, tuple) else str(lengths)


# -- Arrays and a JSON header in one npz file: the form for large models and policies.

Arrays = dict[str, NDArray[Any]]
VERSION = 1  # version of the file format


def write_npz(file: BinaryIO, kind: str, header: Mapping[str, Any], arrays: Arrays) -> None:
    """Write arrays under their names, with a header that says what ``kind`` of file this is."""
    text = json.dumps({"format": f"cmdpkit {kind}", "version": VERSION, **header}, ensure_ascii=False)
    try:
        np.savez(file, header=np.frombuffer(text.encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]
    except UnicodeEncodeError as error:
        half = quoted(text[error.start])
        raise CmdpkitError(f"{half} in a name is half a character, which UTF-8 cannot hold") from None


def read_npz(
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


def _header(archive: Archive, kind: str) -> LocatedTable:
    path = archive.path
    found = archive.members.get("header")
    if found is None or found.dtype != np.uint8:
        raise CmdpkitError(f"{path}: not a file written by cmdpkit: it has no header")
    text = archive.read("header").tobytes()
    try:
        header = LocatedTable(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise CmdpkitError(f"{path}: the header is damaged: {error}") from None
    if header.pop("format", None) != f"cmdpkit {kind}":
        raise CmdpkitError(f"{path}: not a {kind} written by cmdpkit")
    version = header.pop("version", None)
    if version != VERSION:
        raise CmdpkitError(f"{path}: version {quoted(version)} of the format; this cmdpkit reads version {VERSION}")
    return header


# -- Models as npz: the sparse rows of the kernel and the other arrays, as they are held in memory.

MAPPED = ("indptr", "successors", "prob")  # arrays that can stay on disk; a model makes its own tables from the others


def write_npz_model(file: BinaryIO, cmdp: CMDP) -> None:
    """Store a model."""
    c = cmdp.compact
    header: dict[str, Any] = {
        **document.criterion_entry(cmdp),
        "states": document.names_entry(cmdp.states),
        "actions": document.names_entry(cmdp.action_names),
        "constraint": [document.constraint_entry(x) for x in cmdp.constraints],
    }
    if cmdp.grid:
        header["grid"] = document.grid_table(cmdp.grid, cmdp.states)
    signals = cmdp.signs[:, None, None, None] * c.g
    arrays = {"r": c.r, "signals": signals, "actions": c.allowed, "mu": c.mu}
    write_npz(file, "model", header, {"indptr": c.indptr, "successors": c.successors, "prob": c.prob, **arrays})


def read_npz_model(path: Path, *, renormalise: bool = False, mmap: bool = False) -> CMDP:
    """A model that `write_npz_model` stored; with ``mmap`` its transitions stay on disk."""
    header, arrays = read_npz(path, "model", _layout, mapped=MAPPED if mmap else ())
    states, actions = header.names("states"), header.names("actions")
    S, A = len(states), len(actions)
    T = (arrays["indptr"].size - 1) // (S * A)
    return CMDP(
        Kernel.owning(T, S, A, arrays["indptr"], arrays["successors"], arrays["prob"]),
        arrays["r"],
        arrays["signals"],
        mu=arrays["mu"],
        **document.read_criterion(header),
        actions=arrays["actions"],
        constraints=document.constraints_of(header),
        states=states,
        action_names=actions,
        renormalise=renormalise,
        grid=document.grid_of(header, Index("state", states), A),
    )


def _layout(header: Fields) -> dict[str, Expected]:
    """The arrays of the model that a header declares, with every length an axis may have."""
    header.only(("states", "actions", "constraint"), (*document.KEYS, "grid"))
    H = document.read_criterion(header).get("horizon", 1)
    S, A, N = len(header.names("states")), len(header.names("actions")), len(document.constraints_of(header))
    steps = (1, H)  # an array that does not depend on the step is stored once
    entries = range(H * S * A * S + 1)
    return {
        "indptr": Expected("int64", ((S * A + 1, H * S * A + 1),)),
        "successors": Expected("int32", (entries,)),
        "prob": Expected("float64", (entries,)),
        "r": Expected("float64", (steps, (S,), (A,))),
        "signals": Expected("float64", ((N,), steps, (S,), (A,))),  # in the user's sense
        "actions": Expected("bool", (steps, (S,), (A,))),
        "mu": Expected("float64", ((S,),)),
    }
