"""What some algorithms must be told before they begin: a policy that is known to be safe, and its utilities.

A user may give the policy, its utilities or both. If there is a model, whatever is missing is computed. If the user
gives neither, the policy that stays farthest from all bounds is taken.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.sources import columns_of
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.fits import check_policy
from cmdpkit.model.mixture import Mixture, markov
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import numbers
from cmdpkit.running.worlds import World


class Baseline(NamedTuple):
    """A safe policy in the learner's units."""

    pi: FloatArray | None  # [H, S, A]; None where only its utilities are known
    utility: FloatArray  # [N], its expected totals
    slack: float  # min_n (utility_n - rho_n)
    of: str  # where the policy comes from, in words for a note

    def digest(self) -> str:
        """A short digest of its numbers, which is part of the identity of a run."""
        parts = (b"" if self.pi is None else self.pi.tobytes(), self.utility.tobytes())
        return hashlib.sha256(b"|".join(parts)).hexdigest()[:12]


def known_safe(world: World, policy: Policy | None = None, utility: ArrayLike | None = None) -> Baseline:
    """The baseline of a world: the user's policy, its totals [N] in the user's units, or the model's safest policy."""
    of = "the policy that was given"
    if policy is None and utility is None:
        if world.cmdp is None:
            raise CmdpkitError(f"{world.name} has no model to find a safe policy in; give baseline=, baseline_utility=")
        policy, of = safest(world.cmdp), "the policy farthest from all bounds"
    if policy is not None:
        check_policy(policy)
    w = _utilities(world, policy, utility)
    spec = world.spec(1)
    signed = [c.sign * x for c, x in zip(world.constraints, w, strict=True)]
    unit = np.array([scale.total_to_unit(x, spec.H) for scale, x in zip(world.scales[1:], signed, strict=True)])
    pi = None if policy is None else world.table(policy)
    return Baseline(pi, unit, float((unit - spec.rho).min(initial=np.inf)), of)


def safest(cmdp: CMDP) -> Policy:
    """The policy that stays farthest from all bounds at once; with one bound, it maximises that utility."""
    if cmdp.N == 0:
        return Policy.uniform(cmdp)
    pool = columns_of(cmdp)
    spans = np.array([scale.span for scale in cmdp.utility_scales])
    _, weights, _ = pool.reach(pool.scaled(cmdp.rho), spans / pool.units[1:])
    parts = [(w, Policy.deterministic(c.choice, cmdp.A)) for w, c in zip(weights, pool.columns, strict=False) if w > 0]
    return markov(cmdp, Mixture(tuple(policy for _, policy in parts), np.array([w for w, _ in parts]) / weights.sum()))


def _utilities(world: World, policy: Policy | None, given: ArrayLike | None) -> FloatArray:
    """The totals [N] of the baseline, in the user's units and sense; refused unless all of them meet their bounds."""
    if given is not None:
        w = np.atleast_1d(numbers("baseline_utility", given))
        if w.shape != (len(world.constraints),):
            raise CmdpkitError(f"baseline_utility has shape {w.shape}, expected one number per constraint")
    else:
        exact = None if policy is None else world.values(policy)
        if exact is None:
            raise CmdpkitError(f"baseline_utility is missing: {world.name} has no model to compute the baseline's from")
        w = exact[0].w
    for c, x in zip(world.constraints, w, strict=True):
        if not c.sign * x > c.sign * c.total:
            raise CmdpkitError(
                f"the baseline's {c.name} is {x / c.scale:g}{c.unit}, expected strictly within the bound, {c}"
            )
    return w
