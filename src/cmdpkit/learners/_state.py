"""What a learner has learned, as arrays by name: copied for a checkpoint, and put back."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.learners._protocol import State


def copies(arrays: State) -> dict[str, NDArray[Any]]:
    """The arrays as they are now, whatever happens to them later."""
    return {name: array.copy() for name, array in arrays.items()}


def put_back(arrays: State, state: State) -> None:
    """Fill the arrays from a state of the same names, shapes and types; another is refused before anything changes."""
    for name, array in arrays.items():
        if name not in state or state[name].shape != array.shape:
            shape = state[name].shape if name in state else "missing"
            raise CmdpkitError(f"state[{name!r}] has shape {shape}, expected {array.shape}")
        if state[name].dtype != array.dtype:
            raise CmdpkitError(f"state[{name!r}] holds {state[name].dtype}, expected {array.dtype}")
    for name, array in arrays.items():
        array[...] = state[name]
