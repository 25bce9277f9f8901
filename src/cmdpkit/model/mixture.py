"""Mixtures of policies, turned into one Markov policy and back.

A mixture has the same values as the Markov policy that is computed from its occupancy (Lemma 2 of arXiv 2309.15395).
`markov` turns a mixture into such a policy, and `decompose` turns a policy into a mixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.decisions import of_rows, of_steps
from cmdpkit.model.evaluate import occupancy, reach
from cmdpkit.model.fits import check_fits, check_model
from cmdpkit.model.passes import one_step
from cmdpkit.model.policy import NEGLIGIBLE, Policy
from cmdpkit.model.transitions import ROW_SUM_TOLERANCE, FloatArray
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


def markov(cmdp: CMDP, mixture: Mixture) -> Policy:
    """The Markov policy that has the occupancy of a mixture, and therefore its values (Lemma 2).

    Where the mixture never goes, the first policy's decision is kept. Long-run averages are refused: there a mixture
    may divide its time between classes of states that no single policy visits in the same proportion.
    """
    check_model(cmdp)
    if not isinstance(mixture, Mixture):
        raise CmdpkitError(f"mixture is a {type(mixture).__name__}, expected a Mixture: Mixture(policies, weights)")
    _refuse_average(cmdp)
    if cmdp.criterion.stationary:
        return from_occupancy(cmdp, occupancy(cmdp, mixture), mixture.policies[0].pi)
    return Policy.fitting(cmdp, of_steps(_by_step(cmdp, mixture)), cmdp.H)


def from_occupancy(cmdp: CMDP, q: FloatArray, default: FloatArray) -> Policy:
    """pi[h, s, a] = q[h, s, a] / sum_a q[h, s, a], and default[h, s] where (h, s) is not reached."""
    return Policy.of(cmdp, _conditional(q, default))


def _by_step(cmdp: CMDP, mixture: Mixture) -> Iterator[FloatArray]:
    """The probabilities [S, A] of the mixture's Markov policy, one step after the other."""
    for policy in mixture.policies:
        check_fits(cmdp, policy)
    shares = [cmdp.mu] * len(mixture.policies)
    for h in range(cmdp.H):
        q = np.zeros((cmdp.S, cmdp.A))
        for weight, policy, d in zip(mixture.weights, mixture.policies, shares, strict=True):
            q += weight * (d[:, None] * policy.table(h))
        shares = [one_step(cmdp, policy, h, d) for policy, d in zip(mixture.policies, shares, strict=True)]
        yield _conditional(q, mixture.policies[0].table(h))


def _conditional(q: FloatArray, default: FloatArray) -> FloatArray:
    """q[..., a] / sum_a q[..., a] for an occupancy q [..., A], and the default where that is not reached."""
    q = np.where(q > NEGLIGIBLE, q, 0.0)
    reached = q.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        table: FloatArray = np.where(reached > 0, q / reached, default)
    return table


def decompose(cmdp: CMDP, policy: Policy) -> Mixture:
    """Deterministic policies whose mixture has the policy's occupancy: the converse of Lemma 2.

    This is a greedy method. It takes the most used action everywhere, subtracts as much of that policy as the occupancy
    contains, and continues with the rest, which is again the occupancy of some policy. Each round uses up one action.
    If the policy uses E more actions than it has decisions, this gives at most E + 1 policies, where the product
    formula would give up to 2^E.
    """
    check_fits(cmdp, policy)
    _refuse_average(cmdp)
    H = policy.shape[0]
    where, p = policy.rows
    drawn = where[:, 0], where[:, 1]
    here = reach(cmdp, policy)
    rest = here.copy()  # [H, S], what is left of the decisions that take one action,
    rest_drawn = here[drawn][:, None] * p  # [m, A], and of those that draw
    choice, fallback = policy.choice.copy(), policy.choice[drawn]
    left = 1.0
    policies: list[Policy] = []
    weights: list[float] = []
    while left > NEGLIGIBLE:
        used = (rest_drawn > NEGLIGIBLE * left).any(axis=1)
        choice[drawn] = np.where(used, rest_drawn.argmax(axis=1), fallback)
        part = Policy.fitting(cmdp, of_rows(choice, where[:0], p[:0]), H)
        rest[drawn] = rest_drawn[np.arange(len(where)), choice[drawn]]
        q = reach(cmdp, part)
        reached = q > NEGLIGIBLE
        share = min(left, float((rest[reached] / q[reached]).min()))
        if share <= NEGLIGIBLE:  # the rest is due to rounding
            break
        policies.append(part)
        weights.append(share)
        rest = np.maximum(rest - share * q, 0.0)
        rest_drawn[np.arange(len(where)), choice[drawn]] = rest[drawn]
        left -= share
    return Mixture(tuple(policies), np.array(weights) / sum(weights))


def _refuse_average(cmdp: CMDP) -> None:
    if cmdp.criterion.kind == "average":
        raise CmdpkitError(
            "mixtures and single policies cannot be turned into each other under the criterion 'average': a mixture "
            "may settle in several classes of states, a single policy in its own proportions; evaluate takes both"
        )
