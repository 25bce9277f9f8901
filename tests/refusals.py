"""Files that are refused before memory is taken for them."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import cmdpkit as ck
from cmdpkit.io.formats.npz import ALWAYS_ALLOWED_BYTES

MEGABYTE = 1 << 20
PLENTY = ALWAYS_ALLOWED_BYTES + 4 * MEGABYTE  # what reading a small file may take


def refused(path: Path, message: str, read: Any = ck.read_model) -> None:
    """Check that a file is refused with this message, and that hardly any memory was taken for it."""
    tracemalloc.start()
    try:
        with pytest.raises(ck.CmdpkitError, match=message):
            read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < PLENTY, f"{peak / MEGABYTE:.0f} MB were taken"
