"""How functions are compiled and given arrays, with the reasons in one place.

A compiled function takes arrays, numbers and NamedTuples of them. It allocates nothing, and it cannot, because with
``_nrt=False`` Numba counts no references and refuses to compile an allocation. For this reason, passing on a NamedTuple
of arrays costs nothing (with reference counts, an episode loop over such tuples runs several times slower). Division
by zero gives infinity instead of raising. Indices are unsigned where speed matters, because Numba then need not check
for negative ones.

What is compiled is kept beside the source or in the user's cache folder. Where neither can be written (a read-only
installation, a user without a home folder), it is kept in a temporary folder as long as the process lives.

Numba's cache of a function does not notice when a function it calls has changed in *another* file: after an edit,
delete ``__pycache__``.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import config
from numba import njit as njit
from numba.extending import register_jitable
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError


def _probe() -> None:
    """A function to try out whether Numba finds a folder for compiled code."""


def _find_cache() -> None:
    """Make sure that Numba finds a folder for compiled code, because it refuses to compile if there is none."""
    try:
        njit(cache=True)(_probe)
        return
    except RuntimeError:  # "no locator available"
        pass
    try:
        folder = tempfile.mkdtemp(prefix="cmdpkit-")  # readable for this user only: what is in it is executed
    except OSError as error:
        raise CmdpkitError(
            f"there is no writable folder for compiled code ({error}); set NUMBA_CACHE_DIR to one"
        ) from None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["NUMBA_CACHE_DIR"] = folder  # for processes that this one starts
    config.CACHE_DIR = folder  # type: ignore[attr-defined]  # for this one, where Numba has read it already
    print(
        "note: compiled code cannot be kept, as neither the folder of cmdpkit nor your cache folder can be written; "
        "every command compiles anew. Set NUMBA_CACHE_DIR to a folder of your own to keep it.",
        file=sys.stderr,
    )


_find_cache()
compiled = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)  # type: ignore[call-overload]
inlined = njit(cache=True, nogil=True, error_model="numpy", _nrt=False, forceinline=True)  # type: ignore[call-overload]
# For functions that only compiled functions call. Numba then compiles no second form of them for calls from Python,
# which takes as long as the first one. Python can call them too, and runs them uncompiled.
embedded: Any = register_jitable(nogil=True, error_model="numpy", _nrt=False, forceinline=True)
# The same for functions that are too large to be inlined where they are called.
internal: Any = register_jitable(nogil=True, error_model="numpy", _nrt=False)

ZERO, ONE = np.uint64(0), np.uint64(1)


def per_signal(values: Sequence[float]) -> tuple[float, ...] | NDArray[np.float64]:
    """Constants of reward and utilities, [1+N], for compiled code that loops over them.

    With one constraint they are a tuple. Its length is known when compiling, so loops over signals are unrolled, which
    makes learners up to 1.7 times as fast. With more constraints this gains nothing, and every number of them would
    have to be compiled anew, so all other models share one form, with an array.
    """
    given = tuple(float(x) for x in values)
    return given if len(given) == 2 else readonly(given)


def readonly(x: Any) -> Any:
    """A contiguous read-only view. Compiled code then sees one type of array, and is compiled only once."""
    view = np.ascontiguousarray(x).view()
    view.flags.writeable = False
    return view
