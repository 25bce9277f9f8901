"""Constrained Markov decision processes: solve them exactly, learn them online, hand over one policy.

Names are imported on first use, so that ``cmdpkit --help`` answers at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOME = {
    "CMDP": "model",
    "Constraint": "constraints",
    "Grid": "model",
    "Scale": "model",
    "at_least": "constraints",
    "at_most": "constraints",
    "Kernel": "kernel",
}

if TYPE_CHECKING:
    from cmdpkit.constraints import Constraint, at_least, at_most
    from cmdpkit.kernel import Kernel
    from cmdpkit.model import CMDP, Grid, Scale

__all__ = ["CMDP", "Constraint", "Grid", "Kernel", "Scale", "__version__", "at_least", "at_most"]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(importlib.import_module(f"cmdpkit.{_HOME[name]}"), name)
    raise AttributeError(f"module 'cmdpkit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
