"""How long a simulated run is where there is no horizon."""

from __future__ import annotations

import math

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import Policy
from cmdpkit.model.stationary import absorbing_states, chain_of
from cmdpkit.model.validate import is_int

LEFT_OUT = 1e-6  # weight of the steps that are not played, or probability that a run goes on
AVERAGED = 1_000  # steps of a run where averages count
MOST_STEPS = 10_000_000


def run_length(cmdp: CMDP, policy: Policy, steps: int | None = None) -> tuple[int, float]:
    """Steps of a run, which may be given where there is no horizon, and the weight of what comes after it."""
    if steps is not None and (not cmdp.criterion.stationary or not is_int(steps) or steps < 1):
        rule = "a whole number, at least 1" if cmdp.criterion.stationary else f"none: the model has {cmdp.H} steps"
        raise CmdpkitError(f"steps is {quoted(steps)}, expected {rule}")
    if not cmdp.criterion.stationary:
        return cmdp.H, 0.0
    if cmdp.criterion.kind == "average":
        return steps or AVERAGED, 0.0
    discount = cmdp.criterion.discount
    if discount is not None:
        length = steps or math.ceil(math.log(LEFT_OUT) / math.log(discount))
        if length > MOST_STEPS:
            raise CmdpkitError(
                f"a discount of {discount!r} needs runs of {length:,} steps, expected at most {MOST_STEPS:,}; say how "
                "long they may be, steps=..."
            )
        return length, discount**length
    return _until_absorbed(cmdp, policy, steps)


def _until_absorbed(cmdp: CMDP, policy: Policy, steps: int | None) -> tuple[int, float]:
    """How many steps it takes until hardly any run goes on, and the probability that one does."""
    P, going = chain_of(cmdp, policy.table(0)).T.tocsr(), ~absorbing_states(cmdp)
    d = np.array(cmdp.mu)
    for taken in range(steps or MOST_STEPS):
        left = float(d[going].sum())
        if steps is None and left <= LEFT_OUT:
            return max(taken, 1), left
        d = P @ d
    return steps or MOST_STEPS, float(d[going].sum())
