"""The estimated model of a learner that counts, in the user's units: `RunRecord.belief`."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.counts import Counts, estimated
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint, Scale
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import BoolArray

OVER = "(episode over)"  # the state in which a learner waits where episodes may end early


class Counted(NamedTuple):
    """The counts of a run, and what turns them into a model."""

    counts: Counts  # in unit scale
    allowed: BoolArray  # [H, S, A]: actions that the learner could use
    scales: tuple[Scale, ...]  # [1 + N]: of reward and utilities


def belief_of(counted: Counted, constraints: tuple[Constraint, ...], policy: Policy) -> CMDP:
    """The model of the observed frequencies and means, with these bounds and with the names of this policy.

    Actions that were never taken are left out wherever another one was taken.
    """
    counts, allowed, scales = counted
    H, S, A = allowed.shape
    found = estimated(counts, A)
    tried = allowed & np.broadcast_to(counts.visits.reshape(found.kernel.shape) > 0, allowed.shape)
    seen = np.asarray(tried.any(axis=-1, keepdims=True))
    signed = [
        replace(c, signal=c.sign * (found.signals[1 + n] * scale.span + scale.low), steps_in_value=None, range=None)
        for n, (c, scale) in enumerate(zip(constraints, scales[1:], strict=True))
    ]
    return CMDP(
        found.kernel,
        found.signals[0] * scales[0].span + scales[0].low,
        mu=found.mu,
        horizon=H,
        actions=np.where(seen, tried, allowed),
        constraints=signed,
        states=[*policy.states, *[OVER] * (S - len(policy.states))],
        action_names=policy.action_names,
        renormalise=True,
    )
