"""What samples of MF-PRI say: effects of actions and their errors, and the next policy.

A record of n samples x [M], M = 1+N, is the sum of (1, x) (1, x)^T; that of whole episodes fades, so that n need not be
whole. Around the policies played so far, totals are linear in the action probabilities p of each reached decision
(h, s):

    v(p) = v_base + sum_{h,s} reach(h,s) sum_a p(a|h,s) (Q(h,s,a) - Q(h,s,base)),     w_n(p) likewise with C_n.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.exact.highs import INFINITY, answer, configured, program, run
from cmdpkit.learners.mf_pri.play import Samples
from cmdpkit.model.tolerances import LP_TOLERANCE
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray


def means(records: FloatArray) -> FloatArray:
    """[..., M], zero where there is no sample."""
    return records[..., 0, 1:] / np.maximum(records[..., 0, :1], 1.0)


def covariance(records: FloatArray) -> FloatArray:
    """[..., M, M], of each record."""
    mean = means(records)
    return records[..., 1:, 1:] / np.maximum(records[..., :1, :1], 1.0) - mean[..., :, None] * mean[..., None, :]


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
    rows, start, n = samples.rows, samples.start, max(float(samples.start[0, 0]), 1.0)
    mean, base = played / n, pi.argmax(axis=-1)
    X, spread, count = means(rows), covariance(rows), rows[..., :1, :1]
    largest = np.arange(len(pi), 0, -1.0)[:, None, None] ** 2 / 4 * np.eye(X.shape[-1])
    pooled = ((spread * count).sum(axis=(1, 2)) + largest) / (count.sum(axis=(1, 2)) + 1)
    error = (spread * count + pseudo * pooled[:, None, None]) / (count + pseudo) / np.maximum(count, 1.0)
    effect = X - np.take_along_axis(X, base[..., None, None], 2)
    reach = samples.visits / n
    at_base = means(start) - np.einsum("hs,hsa,hsam->m", reach, mean, effect)
    enough = rows[..., 0, 0] >= least
    ok = enough & np.take_along_axis(enough, base[..., None], -1)
    return Measured(n, mean, reach, base, at_base, effect, error, covariance(start), ok)


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
