"""Arrays on their way into compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np

from cmdpkit.arguments import frozen


def readonly(x: Any) -> Any:
    """A contiguous read-only view: one array type for the compiled code, hence one compilation."""
    return frozen(np.ascontiguousarray(x).view())
