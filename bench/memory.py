"""What a learner keeps: model-free tables of H S A (1 + N) numbers against model-based counts of H S^2 A."""

from __future__ import annotations

from typing import Any

import numpy as np

from cmdpkit.learners import Spec, load

H, A, N = 5, 4, 2
MODEL_FREE, MODEL_BASED = ("triple-q", "cl-pri"), ("opt-cmdp", "opt-dual", "opt-pess-lp", "reload")


def state_bytes(algo: str, S: int) -> int:
    """Bytes of all arrays that a checkpoint holds."""
    spec = Spec(H, S, A, 100_000, np.ones(N), np.ones((H, S, A), dtype=bool))
    safe = {"baseline": np.full((H, S, A), 1 / A), "baseline_utility": np.full(N, 2.0)}
    told: dict[str, dict[str, Any]] = {"opt-dual": {"slack": 1.0}, "opt-pess-lp": safe}
    learner: Any = load(algo)(spec, **told.get(algo, {}))
    return sum(array.nbytes for array in learner.state().values())


def main() -> dict[str, float]:
    """Bytes at two sizes, per table entry, and how they grow when S doubles."""
    ratios = {}
    for algos, entry, what in ((MODEL_FREE, 8 * (1 + N), "H S A (1+N)"), (MODEL_BASED, 8 * 200, "H S^2 A")):
        for algo in algos:
            small, large = state_bytes(algo, 100), state_bytes(algo, 200)
            print(
                f"{algo:12s} S=200: {large / 1e6:8.3f} MB, {large / (H * 200 * A * entry):5.2f} numbers per {what}, "
                f"S 100 -> 200: x{large / small:.2f}",
                flush=True,
            )
            ratios[f"memory at S=200 over S=100, {algo}"] = large / small
    return ratios
