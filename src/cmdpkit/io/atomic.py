"""Writing a file as a whole or not at all, and replacing an existing one only if the caller asks for it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from cmdpkit.errors import CmdpkitError, quoted


@contextmanager
def writing(path: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[BinaryIO]:
    """A binary file that appears at ``path``, complete and on disk, only when the block ends without an error.

    Until then it has a temporary name in the same folder. If a file exists already, it is kept and CmdpkitError is
    raised, unless ``overwrite`` is true; without it, only one of two writers can succeed. Failures of the disk raise
    CmdpkitError too.
    """
    path = Path(path)
    target = Path(os.path.realpath(path))  # through a symbolic link, the file it points at is written
    if os.path.lexists(target) and not overwrite:
        raise _exists(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            os.replace(temporary, target)
        else:
            _claim(temporary, target)
        _sync_folder(target.parent)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        missing = "" if target.parent.exists() else f"; make the folder {Path(path).parent} first"
        raise CmdpkitError(f"cannot write {path}: {error.strerror or error}{missing}") from None
    except UnicodeEncodeError as error:
        part = quoted(error.object[max(error.start - 20, 0) : error.end + 20])
        raise CmdpkitError(f"cannot write {path}: {part} contains half a character, which UTF-8 cannot hold") from None
    finally:
        with suppress(OSError):  # it has its final name by now, or was never made
            temporary.unlink()


def make_folder(path: str | os.PathLike[str]) -> Path:
    """Make a folder and those above it, as far as they are missing; raises CmdpkitError if that fails."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CmdpkitError(f"cannot make the folder {path}: {error.strerror or error}") from None
    return Path(path)


def write_text(path: str | os.PathLike[str], text: str, *, overwrite: bool = False) -> Path:
    """Write ``text`` to a file, in UTF-8, as `writing` does, and return its path.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = write_text(Path(folder.name, "note.txt"), "first")
    >>> write_text(path, "second")
    Traceback (most recent call last):
    cmdpkit.CmdpkitError: ...note.txt exists already; pass overwrite=True to replace it
    >>> path.read_text()
    'first'
    >>> folder.cleanup()
    """
    return write_pieces(path, [text], overwrite=overwrite)


def write_pieces(path: str | os.PathLike[str], pieces: Iterable[str], *, overwrite: bool = False) -> Path:
    """Write pieces of text one after the other, so that a large file is never in memory as a whole."""
    with writing(path, overwrite=overwrite) as file:
        for text in pieces:
            file.write(text.encode())
    return Path(path)


def _exists(path: Path) -> CmdpkitError:
    return CmdpkitError(f"{path} exists already; pass overwrite=True to replace it")


def _claim(temporary: Path, target: Path) -> None:
    """Give the file its final name, or raise FileExistsError if another writer has taken it meanwhile."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: reserve the name first
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.replace(temporary, target)


def _sync_folder(folder: Path) -> None:
    """Make sure that the new name survives a power cut, if the system can sync folders."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
