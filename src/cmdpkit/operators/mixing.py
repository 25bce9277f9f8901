"""Mixtures turned into one Markov policy of the same occupancy and values (`markov`), and back (`decompose`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.decisions import of_rows, of_steps
from cmdpkit.model.fits import check_fits, check_model
from cmdpkit.model.policy import Mixture, Policy
from cmdpkit.model.tolerances import ROUNDOFF, SMALLEST_OCCUPANCY, SMALLEST_WEIGHT, TOTALS_AGREE, USED_UP
from cmdpkit.model.transitions import FloatArray
from cmdpkit.operators.policies import evaluate, occupancy, one_step, reach


def markov(cmdp: CMDP, mixture: Mixture) -> Policy:
    """The Markov policy that has the occupancy of a mixture, and therefore its values (Lemma 2 of arXiv 2309.15395).

    Where the mixture never goes, the first policy's decision is kept. Long-run averages are refused: there a mixture
    may divide its time between classes of states that no single policy visits in the same proportion.
    """
    check_model(cmdp)
    if not isinstance(mixture, Mixture):
        raise CmdpkitError(f"mixture is a {type(mixture).__name__}, expected a Mixture: Mixture(policies, weights)")
    _refuse_average(cmdp)
    if not cmdp.criterion.has_horizon:
        return from_occupancy(cmdp, occupancy(cmdp, mixture), mixture.policies[0].pi)
    return Policy.fitting(cmdp, of_steps(_by_step(cmdp, mixture)), cmdp.H)


def from_occupancy(cmdp: CMDP, q: FloatArray, default: FloatArray) -> Policy:
    """pi[h, s, a] = q[h, s, a] / sum_a q[h, s, a], and default[h, s] where (h, s) is not reached."""
    return Policy.of(cmdp, conditional(q, default))


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
        yield conditional(q, mixture.policies[0].table(h))


def conditional(q: FloatArray, default: FloatArray) -> FloatArray:
    """q[..., a] / sum_a q[..., a] of an occupancy q [..., A], however small, and the default where it is zero."""
    q = np.where(q > SMALLEST_OCCUPANCY, q, 0.0)
    reached = q.sum(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        table: FloatArray = np.where(reached > 0, q / reached, default)
    return table


def decompose(cmdp: CMDP, policy: Policy) -> Mixture:
    """Deterministic policies whose mixture has the policy's occupancy: the converse of Lemma 2.

    This is a greedy method. It takes the most used action everywhere, subtracts as much of that policy as the occupancy
    contains, and continues with the rest, which is again the occupancy of some policy. Each round uses up one action.
    If the policy uses E more actions than it has decisions, this gives at most E + 1 policies, where the product
    formula would give up to 2^E. The expected totals of the mixture are compared with those of the policy before it
    is returned.

    >>> import cmdpkit as ck
    >>> cmdp = ck.CMDP([[[1.0], [1.0]]], r=[[1.0, 0.0]], horizon=2)
    >>> mixture = decompose(cmdp, ck.Policy([[[0.25, 0.75]], [[0.0, 1.0]]]))
    >>> mixture.weights.tolist(), [part.choice[:, 0].tolist() for part in mixture.policies]
    ([0.75, 0.25], [[1, 1], [0, 1]])
    """
    check_fits(cmdp, policy)
    _refuse_average(cmdp)
    where, p = policy.rows
    drawn = where[:, 0], where[:, 1]
    # Only decisions that draw limit the share of a part: everything else follows from them by the flow of occupancy.
    whole = reach(cmdp, policy)[drawn][:, None] * p  # [m, A], occupancy of their actions
    rest = whole.copy()
    choice, fallback = policy.choice.copy(), policy.choice[drawn]
    rows, left = np.arange(len(where)), 1.0
    policies: list[Policy] = []
    weights: list[float] = []
    while True:
        rest[rest <= USED_UP * whole] = 0.0
        choice[drawn] = np.where(rest.any(axis=1), rest.argmax(axis=1), fallback)
        part = Policy.fitting(cmdp, of_rows(choice, where[:0], p[:0]), policy.shape[0])
        policies.append(part)
        deterministic = np.count_nonzero(rest) <= np.count_nonzero(rest.any(axis=1))
        if deterministic or left <= SMALLEST_WEIGHT:
            weights.append(left)
            break
        q = reach(cmdp, part)[drawn]
        taken = rest[rows, choice[drawn]]
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where((taken > 0) & (q > 0), taken / q, np.inf)
        share = min(left, float(shares.min()))
        weights.append(share)
        left -= share
        rest[rows, choice[drawn]] = np.where(shares <= share, 0.0, np.maximum(taken - share * q, 0.0))
        if left <= 0.0:
            break
    mixture = Mixture(tuple(policies), np.array(weights))
    _check_totals(cmdp, policy, mixture)
    return mixture


def _check_totals(cmdp: CMDP, policy: Policy, mixture: Mixture) -> None:
    """Raise CmdpkitError unless a mixture has the expected totals of a policy, up to rounding."""
    parts = np.array([_totals(cmdp, part) for part in (policy, *mixture.policies)])
    size = cmdp.reformulated(r=np.abs(cmdp.compact.r), g=np.abs(cmdp.compact.g))
    magnitude = np.abs(np.array([_totals(size, part) for part in (policy, *mixture.policies)])).max(axis=0)
    missed = np.abs(mixture.weights @ parts[1:] - parts[0])
    terms = (cmdp.criterion.horizon or cmdp.S) * (int(cmdp.kernel.lengths.max(initial=1)) + 4)
    allowed = TOTALS_AGREE * np.ptp(parts, axis=0) + 2 * terms * ROUNDOFF * magnitude
    n = int((missed - allowed).argmax())
    if missed[n] > allowed[n]:
        name = "the reward" if n == 0 else quoted(cmdp.constraints[n - 1].name)
        raise CmdpkitError(
            f"the policy cannot be written as a mixture in double precision: the total of {name} would be wrong by "
            f"{missed[n]:.3g}, and {allowed[n]:.3g} is rounding; bring large and small signals and probabilities "
            "closer together"
        )


def _totals(cmdp: CMDP, policy: Policy) -> FloatArray:
    values = evaluate(cmdp, policy)
    return np.append(values.v, values.w)


def _refuse_average(cmdp: CMDP) -> None:
    if cmdp.criterion.kind == "average":
        raise CmdpkitError(
            "mixtures and single policies cannot be turned into each other under the criterion 'average': a mixture "
            "may settle in several classes of states, a single policy in its own proportions; evaluate takes both"
        )
