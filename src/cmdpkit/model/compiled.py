"""How kernels are compiled and handed arrays, so that the reasons stand in one place.

A kernel is a plain function of arrays, numbers and NamedTuples of them. It allocates nothing, and here it cannot: with
``_nrt=False`` Numba counts no references and refuses to compile an allocation. That is what makes handing on a
NamedTuple of arrays free (with reference counts, an episode loop over such tuples runs several times slower). Division
by zero gives infinity instead of raising. Indices are unsigned where speed matters, because Numba then need not check
for negative ones.

Numba's cache of a function does not notice when a function it calls has changed in *another* file: after an edit,
delete ``__pycache__``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

compiled = njit(cache=True, nogil=True, error_model="numpy", _nrt=False)  # type: ignore[call-overload]
inlined = njit(cache=True, nogil=True, error_model="numpy", _nrt=False, forceinline=True)  # type: ignore[call-overload]

ZERO, ONE = np.uint64(0), np.uint64(1)


def readonly(x: Any) -> Any:
    """A contiguous read-only view: one array type for the compiled code, hence one compilation."""
    view = np.ascontiguousarray(x).view()
    view.flags.writeable = False
    return view
