"""Between the user's units and the unit interval that learners work in."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cmdpkit.model.transitions import BoolArray, FloatArray


class Scale(NamedTuple):
    """An affine map between a per-step signal in the user's units and the unit interval learners work in."""

    low: float  # the smallest value of the signal, which becomes 0
    span: float  # the largest minus the smallest value

    def to_unit(self, x: Any) -> Any:
        """Per-step signal -> [0, 1]."""
        return (x - self.low) / self.span

    def total_to_unit(self, total: Any, H: int) -> Any:
        """A total over H steps, from the user's units."""
        return (total - H * self.low) / self.span

    def total_from_unit(self, total: Any, H: float) -> Any:
        """A total over H steps, or over steps whose weights add up to H, back to the user's units."""
        return total * self.span + H * self.low


def scale_of(x: FloatArray, allowed: BoolArray) -> Scale:
    """The scale of a signal [1 or H, S, A] over the actions that exist; the identity if it lies in [0, 1]."""
    shape = np.broadcast_shapes(x.shape, allowed.shape)
    values = np.broadcast_to(x, shape)[np.broadcast_to(allowed, shape)]
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 1:
        return Scale(0.0, 1.0)
    return Scale(low, high - low if high > low else 1.0)
