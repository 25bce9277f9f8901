"""The command `cmdpkit`, also as `python -m cmdpkit`.

This module imports almost nothing, so that two things are settled before anything else can fail: the command has
standard streams that work, and Ctrl-C ends it without a traceback while everything else is still being imported.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from cmdpkit.errors import INTERRUPTED

if TYPE_CHECKING:
    from types import FrameType


def main() -> None:
    """Run the command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may have told us to ignore Ctrl-C
        signal.signal(signal.SIGINT, _interrupted)
    _open_streams()
    gc.set_threshold(100_000)  # imports and compilation make many objects that live on; searching them takes time
    from cmdpkit.cli import app

    try:
        app(prog_name="cmdpkit")
    except SystemExit as end:
        _leave(end.code if isinstance(end.code, int) else int(end.code is not None))
    except OSError as error:  # help or a complaint about usage could not be written
        os.write(2, f"error: {error}\n".encode())
        _leave(1)


def _open_streams() -> None:
    """Replace standard streams that the caller has closed, and let none fail on a character that it cannot show.

    A closed stream would be None in Python, and the first file to be opened would take its number: what compiled
    libraries print would then end up in that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115  # as long as the process lives
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal without "≥" shows "?"


def _interrupted(number: int, frame: FrameType | None) -> None:
    """The answer to Ctrl-C while there is nothing to save: end at once, whatever is being imported or computed."""
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def _leave(code: int) -> NoReturn:
    """End the process. After an interrupt, threads that are still busy are not waited for."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        os._exit(code or 1)  # standard output is gone, so nothing can be reported any more
    if code == INTERRUPTED:
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
