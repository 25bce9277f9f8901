"""A draw among policies at the start of an episode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import frozen, numbers


@dataclass(frozen=True, eq=False)
class Mixture:
    """Policy m is drawn with probability weights[m] at the start of an episode and followed until its end."""

    policies: tuple[Policy, ...]  # [M], what is drawn from
    weights: FloatArray  # [M], a distribution

    def __post_init__(self) -> None:
        weights = numbers("weights", self.weights)
        if weights.shape != (len(self.policies),) or not len(self.policies):
            raise CmdpkitError(
                f"weights has shape {weights.shape}, expected ({len(self.policies)},): one for each policy"
            )
        if not np.isfinite(weights).all() or weights.min() < 0 or abs(weights.sum() - 1) > ROW_SUM_TOLERANCE:
            raise CmdpkitError(f"weights is {weights.tolist()}, expected probabilities that sum to 1")
        object.__setattr__(self, "weights", frozen(weights))
