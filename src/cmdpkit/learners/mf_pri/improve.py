"""What samples of MF-PRI say: effects of actions and their errors, the next policy, and the one to return.

A record of samples is n, then M = 1+N sums, then the lower triangle of products x_m x_n (n <= m), row by row; records
may fade, so n need not be whole. Around the policies played so far, totals are linear in the action probabilities p of
each reached decision (h, s):

    v(p) = v_base + sum_{h,s} reach(h,s) sum_a p(a|h,s) (Q(h,s,a) - Q(h,s,base)),     w_n(p) likewise with C_n.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.estimate.model import worth
from cmdpkit.exact.highs import INFINITY, answer, configured, program, run
from cmdpkit.learners.mf_pri.play import Samples
from cmdpkit.model.tolerances import LP_TOLERANCE
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray


def means(records: FloatArray, M: int) -> FloatArray:
    """[..., M], zero where there is no sample."""
    return records[..., 1 : 1 + M] / np.maximum(records[..., :1], 1.0)


def covariance(records: FloatArray, M: int) -> FloatArray:
    """[..., M, M], of each record."""
    lower = np.zeros((*records.shape[:-1], M, M))
    rows, columns = np.tril_indices(M)
    lower[..., rows, columns] = records[..., 1 + M :] / np.maximum(records[..., :1], 1.0)
    lower[..., columns, rows] = lower[..., rows, columns]
    mean = means(records, M)
    return lower - mean[..., :, None] * mean[..., None, :]


class Measured(NamedTuple):
    """What the samples say about totals around the policies that were played."""

    n: float  # episodes of these policies without deviations
    played: FloatArray  # [H, S, A]: their average
    reach: FloatArray  # [H, S]: probability of getting there
    base: IntArray  # [H, S]: actions that effects are measured against
    at_base: FloatArray  # [M]: totals if every decision took its base action
    effect: FloatArray  # [H, S, A, M]: what an action brings more than the base action
    error: FloatArray  # [H, S, A, M, M]: squared errors of row means, and their products
    noise: FloatArray  # [M, M]: covariance of an episode's totals
    ok: BoolArray  # [H, S, A]: enough samples to say anything

    def totals(self, p: FloatArray) -> FloatArray:
        """[M]: value and utilities of a policy p [H, S, A]."""
        found: FloatArray = self.at_base + np.einsum("hs,hsa,hsam->m", self.reach, p, self.effect)
        return found

    def errors(self, p: FloatArray) -> FloatArray:
        """[N]: standard errors of the utilities of p: of what was played, and of the effects of what is changed."""
        changed = (self.reach[..., None] * (p - self.played)) ** 2
        own = np.einsum("hsa,hsamm->m", changed, self.error)
        found: FloatArray = np.sqrt(np.maximum(np.diag(self.noise) / self.n + own, 1e-24))
        return found[1:]

    @property
    def spread(self) -> FloatArray:
        """[N]: standard deviations of an episode's utilities."""
        found: FloatArray = np.sqrt(np.maximum(np.diag(self.noise)[1:], 0.0))
        return found

    def worse(self, lam: FloatArray, doubt: float) -> BoolArray:
        """[H, S, A]: actions that lose at prices lam [N], by more than `doubt` standard errors."""
        advantage, error = self.advantage(lam)
        return self.ok & (advantage + doubt * error < 0)

    def advantage(self, lam: FloatArray) -> tuple[FloatArray, FloatArray]:
        """[H, S, A] each: what actions gain at prices lam [N], and the standard error of that."""
        c, b = np.append(1.0, lam), self.base[..., None]
        square = np.einsum("m,hsamn,n->hsa", c, self.error, c)
        return self.effect @ c, np.sqrt(np.maximum(square + np.take_along_axis(square, b, -1), 0.0))


def view(samples: Samples, played: FloatArray, pi: FloatArray, pseudo: float, least: float) -> Measured:
    """The view from the samples, with the sum of the policies played and the present policy, both [H, S, A].

    Few samples say little about their variance, so the average of the step is mixed in with the weight of `pseudo`
    samples, and so that samples that are all the same do not count as exact, one sample of the largest variance there
    can be is added to all samples of the step.
    """
    (H, S, A), M, start = pi.shape, samples.M, samples.start
    n = max(float(start[0]), 1.0)
    rows, mean, base = samples.rows.reshape(H, S, A, -1), played / n, pi.argmax(axis=-1)
    X, spread, count = means(rows, M), covariance(rows, M), rows[..., 0, None, None]
    largest = np.arange(H, 0, -1.0)[:, None, None] ** 2 / 4 * np.eye(M)
    pooled = ((spread * count).sum(axis=(1, 2)) + largest) / (count.sum(axis=(1, 2)) + 1)
    error = (spread * count + pseudo * pooled[:, None, None]) / (count + pseudo) / np.maximum(count, 1.0)
    effect = X - np.take_along_axis(X, base[..., None, None], 2)
    reach = (samples.visits / n).reshape(H, S)
    at_base = means(start, M) - np.einsum("hs,hsa,hsam->m", reach, mean, effect)
    enough = rows[..., 0] >= least
    ok = enough & np.take_along_axis(enough, base[..., None], -1)
    return Measured(n, mean, reach, base, at_base, effect, error, covariance(start, M), ok)


class Allocation(NamedTuple):
    """What the linear program says."""

    p: FloatArray  # [H, S, A]; base actions where there was nothing to decide
    lam: FloatArray  # [N]: prices
    short: FloatArray  # [N]: what is missing to the target


def best(seen: Measured, target: FloatArray, high: FloatArray, live: BoolArray, fee: FloatArray) -> Allocation:
    """The best policy on the actions `live` [H, S, A] that reaches the target [N] as far as no price exceeds high [N].

    Coming into use costs fee [H, S, A] per unit of reach. The answer is a vertex: at most N actions are in use beyond
    one per decision.
    """
    reach, base = seen.reach, seen.base
    p = np.eye(live.shape[-1])[base]
    live = live | (p > 0)
    decided = (reach > 0) & (live.sum(axis=-1) > 1)
    h, s, a = np.nonzero(live & decided[..., None])
    gap = target - seen.at_base[1:]
    if not len(h):
        return Allocation(p, np.where(gap > 0, high, 0.0), np.maximum(gap, 0.0))
    effect = reach[h, s, None] * seen.effect[h, s, a]
    decision = np.cumsum(decided.ravel()).reshape(decided.shape)[h, s] - 1
    cost = reach[h, s] * fee[h, s, a] - effect[:, 0]
    q, lam, short = allocate(cost, effect[:, 1:], decision, gap, high)
    p[h, s, a] = np.where(q < LP_TOLERANCE, 0.0, q)
    return Allocation(p / p.sum(axis=-1, keepdims=True), lam, short)


def greedy(seen: Measured, lam: FloatArray, live: BoolArray) -> FloatArray:
    """[M]: totals of the policy that takes the best live action at prices lam [N] everywhere."""
    worth = np.where(live, seen.effect @ np.append(1.0, lam), -np.inf)
    taken = worth.argmax(axis=-1)
    return seen.totals(np.eye(live.shape[-1])[np.where(np.isfinite(worth.max(axis=-1)), taken, seen.base)])


def handed_over(
    seen: Measured, rho: FloatArray, extra: FloatArray, live: BoolArray, fee: FloatArray, missed: float, price: float
) -> FloatArray:
    """Among the best policies [H, S, A] for the bounds plus -1, -1/2, 0, ... 6 standard errors, the worthiest one.

    What it is worth is said at `estimate.model.worth`. The margin comes on top of `extra` [N].
    """
    high, values = np.full(len(rho), price), np.where(live, seen.effect[..., 0], 0.0)
    penalty = missed * float((seen.reach * (values.max(axis=-1) - values.min(axis=-1))).sum())
    unit = seen.errors(best(seen, rho, high, live, fee).p)
    margins = np.arange(-1.0, 6.5, 0.5) if len(rho) else np.zeros(1)
    policies = [best(seen, rho + extra + t * unit, high, live, fee).p for t in margins]

    def worth_of(p: FloatArray) -> float:
        totals = seen.totals(p)
        return worth(totals[0], (totals[1:] - rho - extra) / seen.errors(p), penalty)

    return max(policies, key=worth_of)


def fade(records: FloatArray, most: FloatArray) -> None:
    """Let records [n, :] weigh no more than `most` [n] samples each."""
    records *= np.minimum(1.0, most / np.maximum(records[:, 0], 1e-12))[:, None]


def worth_keeping(values: FloatArray, moved: FloatArray) -> tuple[FloatArray, FloatArray]:
    """[H] each: samples of rows and of values that are worth keeping when decisions have moved values [H, S, M].

    Rows of earlier steps, and values of these steps and earlier ones, saw another continuation. They keep as many
    samples as make their standard error as large as that change. So a small change costs little, and an action that
    looked bad only because of what followed is in question again. `values` are the records of values [H, S, :].
    """
    M, counts = moved.shape[-1], values[..., 0, None]
    square = np.maximum(np.diagonal(covariance(values, M), axis1=-2, axis2=-1), 0.0)
    variance = (square * counts).sum(axis=1) / np.maximum(counts.sum(axis=1), 1.0)
    drift = np.flip(np.cumsum(np.flip((moved**2).max(axis=1), 0), axis=0), 0)  # [H, M]: of this step and later ones
    later = np.append(drift[1:], np.zeros((1, M)), axis=0)
    rows, own = (np.where(x > 0, variance / np.maximum(x, 1e-300), np.inf).min(axis=-1) for x in (later, drift))
    return rows, own


# -- A small linear program: probabilities at a few decisions that come as near as possible to a wanted effect.


def allocate(
    cost: FloatArray, effect: FloatArray, decision: IntArray, gap: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Minimise cost . q + high . short, where each decision's q sum to 1, and effects plus short reach the gap.

    cost and decision [m], effect [m, N]: variables in order of their decisions. Returns q, the prices and short.
    """
    m, N = effect.shape
    n = int(decision[-1]) + 1
    own = np.column_stack((decision, np.broadcast_to(n + np.arange(N), (m, N))))
    start = np.concatenate(((1 + N) * np.arange(m), (1 + N) * m + np.arange(2 * N + 1)))
    index = np.concatenate((own.ravel(), n + np.arange(N), n + np.arange(N)))
    value = np.concatenate((np.column_stack((np.ones(m), effect)).ravel(), np.ones(N), -np.ones(N)))
    equal = np.concatenate((np.ones(n), gap))
    limits = np.zeros(m + 2 * N), np.full(m + 2 * N, INFINITY)
    highs = configured()
    highs.passModel(program(np.concatenate((cost, high, np.zeros(N))), limits, (equal, equal), (start, index, value)))
    ended = run(highs)
    if ended != "optimal":
        raise RuntimeError(f"the master LP ended as {ended}")
    found, duals = answer(highs)
    return found[:m], np.clip(duals[n:], 0.0, high), np.maximum(found[m : m + N], 0.0)
