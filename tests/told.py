"""What some algorithms must be told: the policy of a model that exceeds all bounds by the most, and by how much."""

from __future__ import annotations

from typing import Any

import numpy as np

import cmdpkit as ck
from cmdpkit.learners import Spec, resolve
from cmdpkit.learners._planning.confidence import point
from cmdpkit.learners._planning.extended import plan

MODEL_BASED = (
    "conrl",
    "dope",
    "opdop",
    "opsrl",
    "opt-cmdp",
    "opt-cmdp-bonus",
    "opt-dual",
    "opt-pess-lp",
    "opt-pess-primal-dual",
    "opt-primal-dual",
    "reload",
)
SAFE = ("dope", "opsrl", "opt-pess-lp")
PLANNERS = ("conrl", "opt-cmdp", "opt-cmdp-bonus")


def told(cmdp: ck.CMDP) -> dict[str, Any]:
    """baseline [H, S, A], baseline_utility [N] and slack, in unit scale."""
    spec = Spec.of(cmdp, K=1)
    g = np.array([scale.to_unit(x) for scale, x in zip(cmdp.utility_scales, cmdp.g, strict=True)]).reshape(cmdp.g.shape)
    bounds = np.full(cmdp.N, float(cmdp.H + 1))  # out of reach: the plan misses them least, all by the same amount
    found = plan(point(cmdp.P, cmdp.mu), np.zeros(cmdp.r.shape), g, spec.rho + bounds, cmdp.actions, cmdp.H)
    slack = float((found.utilities - spec.rho).min()) if cmdp.N else None
    return {"baseline": found.pi, "baseline_utility": found.utilities, "slack": slack}


def make(algo: str, cmdp: ck.CMDP, K: int, preset: str = "practical", **changes: Any) -> Any:
    """The algorithm for a model, told what it needs."""
    kind = resolve(algo)
    given = {name: x for name, x in told(cmdp).items() if name in kind.needs}
    return kind(Spec.of(cmdp, K), preset=preset, **{**given, **changes})
