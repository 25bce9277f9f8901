"""The arrays of a model in the form that compiled code reads."""

from __future__ import annotations

from typing import Any, NamedTuple


class Compact(NamedTuple):
    """The arrays that compiled code reads.

    Each array has its own T, which is 1 if it does not depend on the step, and H otherwise: index it with h % T.
    """

    indptr: Any  # [T*S*A + 1], where each row of `Kernel` begins in the two arrays below
    successors: Any  # [nonzeros], possible next states
    prob: Any  # [nonzeros], their probabilities
    r: Any  # [T, S, A], reward
    g: Any  # [N, T, S, A], utilities
    allowed: Any  # [T, S, A], which actions exist
    mu: Any  # [S], start distribution
