"""What some algorithms must be told about the problem: a safe policy, its utilities, or by how much bounds can be met.

All of this is in unit scale and is checked here. A learner cannot find it out by itself: it is given by the user, or
computed from the model in `cmdpkit.running.request`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.learners import Spec
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import UTILITY_EXCESS
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import numbers


def slack_of(spec: Spec, slack: float | None) -> float:
    """Slater's constant: by how much some policy exceeds all thresholds at once; infinite without constraints."""
    if spec.N == 0:
        return np.inf
    if slack is None:
        raise CmdpkitError(
            "slack is missing: by how much a policy can exceed all bounds at once (an episode, unit scale)"
        )
    if not 0 < slack <= spec.H + UTILITY_EXCESS:
        raise CmdpkitError(f"slack is {slack!r}, expected more than 0 and at most H = {spec.H}")
    return float(slack)


def utilities_of(spec: Spec, baseline_utility: Any) -> FloatArray:
    """Utilities [N] of a policy that is strictly safe."""
    if spec.N == 0:
        return np.zeros(0)
    if baseline_utility is None:
        raise CmdpkitError("baseline_utility is missing: the utilities [N] of a safe policy (an episode, unit scale)")
    w = np.atleast_1d(numbers("baseline_utility", baseline_utility))
    if w.shape != spec.rho.shape:
        raise CmdpkitError(f"baseline_utility has shape {w.shape}, expected {spec.rho.shape}")
    for n, (x, rho) in enumerate(zip(w, spec.rho, strict=True)):
        if not rho < x <= spec.H + UTILITY_EXCESS:
            raise CmdpkitError(f"baseline_utility[{n}] is {x}, expected more than rho = {rho} and at most H = {spec.H}")
    return w


def policy_of(spec: Spec, baseline: Any) -> FloatArray:
    """A safe policy pi [H, S, A]."""
    if baseline is None:
        raise CmdpkitError("baseline is missing: a policy pi [H, S, A] that is known to be safe")
    pi = Policy(baseline).pi
    if pi.shape != spec.allowed.shape:
        raise CmdpkitError(f"baseline has shape {pi.shape}, expected {spec.allowed.shape}")
    outside = np.argwhere((pi > 0) & ~spec.allowed)
    if len(outside):
        h, s, a = (int(i) for i in outside[0])
        raise CmdpkitError(f"baseline[h={h}, s={s}, a={a}] is {pi[h, s, a]}, expected 0: the action is not allowed")
    return pi
