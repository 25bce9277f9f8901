"""Safe reading of npz files: names, types and sizes are checked before anything is inflated, and nothing is unpickled.

An npz file is a zip archive of arrays, each with a short header that gives its type and shape. A small file can claim
any size, or inflate to it. An `Archive` therefore reads the directory and the headers first, and refuses a file that
contradicts itself or inflates too much. The caller then compares names, types and shapes with what it expects, and only
the arrays that it asks for are read.
"""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError, quoted, shown

ALWAYS_ALLOWED_BYTES = 16 << 20  # bytes that any file may inflate to
MAX_INFLATION = 50  # a larger file may inflate to this many times its own size
MAX_HEADER = 10_000  # bytes of the header of an array
LOCAL_HEADER = 30  # bytes before the name of a member of a zip archive


class Member(NamedTuple):
    """What the header of an array says about it."""

    dtype: np.dtype[Any]  # type of its numbers
    shape: tuple[int, ...]  # length of each axis


class Expected(NamedTuple):
    """What an array has to be: its type, and for each axis the lengths it may have."""

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
        self.members: dict[str, Member] = {}
        total = 0
        for info in file.infolist():
            name = info.filename.removesuffix(".npy")
            if name == info.filename or name in self.members:
                raise CmdpkitError(f"{path}: {quoted(info.filename)} is no array, or is there twice")
            total += info.file_size
            self.members[name] = self._member(info)
        if total > inflation_limit(size):
            raise too_large(path, size, total)

    def _member(self, info: zipfile.ZipInfo) -> Member:
        """Type and shape of one array, which must agree to the byte with its size in the directory."""
        with self._file.open(info) as stream:
            version = npy.read_magic(stream)
            if version == (1, 0):
                shape, _, dtype = npy.read_array_header_1_0(stream, max_header_size=MAX_HEADER)
            elif version == (2, 0):
                shape, _, dtype = npy.read_array_header_2_0(stream, max_header_size=MAX_HEADER)
            else:
                raise ValueError(f"array {quoted(info.filename)} has an unknown version of the format")
            if dtype.hasobject:
                raise ValueError(f"{quoted(info.filename)}: Object arrays cannot be loaded, as that could run code")
            if min(shape, default=0) < 0 or stream.tell() + math.prod(shape) * dtype.itemsize != info.file_size:
                raise ValueError(f"array {quoted(info.filename)} of shape {shape} does not have the size it claims")
        return Member(dtype, shape)

    def read(self, name: str) -> NDArray[Any]:
        """Read one array, which takes exactly the memory that its header declares."""
        with _damage(self.path), self._file.open(f"{name}.npy") as stream:
            array: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
            return array

    def mapped(self, name: str) -> NDArray[Any]:
        """One array left on disk: the system reads the parts that are used, and may drop them from memory again.

        Its checksum is not compared, because that would mean to read all of it.
        """
        info = self._file.getinfo(f"{name}.npy")
        if info.compress_type != zipfile.ZIP_STORED:
            raise CmdpkitError(
                f"{self.path}: array {quoted(name)} is compressed, so it cannot stay on disk; read the model without "
                "mmap, or write it again with `cmdpkit convert`, which does not compress"
            )
        with _damage(self.path), self._file.open(info) as stream:
            version = npy.read_magic(stream)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, fortran, dtype = read(stream, max_header_size=MAX_HEADER)
            begin = self._content(info) + stream.tell()
            if 0 in shape:
                return np.zeros(shape, dtype)
            order: Any = "F" if fortran else "C"
            return np.asarray(np.memmap(self.path, dtype, "r", begin, shape, order))

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
