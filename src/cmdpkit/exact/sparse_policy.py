"""Policies that are deterministic nearly everywhere: one action per step and state, and few stochastic decisions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.exact.induction import Choice, Draws
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import call, njit
from cmdpkit.model.decisions import of_rows
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.transitions import FloatArray, IntArray


class SparsePolicy(NamedTuple):
    """A policy that takes action choice[h, s], except in D stochastic decisions."""

    choice: Choice  # [H, S], the action taken
    first: IntArray  # [H + 1], rows first[h] .. first[h+1] - 1 of the arrays below are the decisions of step h
    s: IntArray  # [D], the state of each decision, rising within a step
    a: NDArray[np.int16]  # [D, C], the actions of each decision, rising; those with probability 0 do not count
    p: FloatArray  # [D, C], the probabilities of these actions

    @property
    def draws(self) -> Draws:
        """The stochastic decisions."""
        return Draws(*self[1:])

    def policy(self, cmdp: CMDP) -> Policy:
        """The same policy for the user."""
        h = np.repeat(np.arange(cmdp.H), np.diff(self.first))
        p = np.zeros((len(h), cmdp.A))
        for a, share in zip(self.a.T, self.p.T, strict=True):
            np.add.at(p, (np.arange(len(h)), a), share)
        return Policy.fitting(cmdp, of_rows(self.choice, np.stack((h, self.s), axis=1), p), cmdp.H)


def blend(cmdp: CMDP, choices: list[Choice], weights: FloatArray, default: Choice) -> SparsePolicy:
    """The Markov policy with the occupancy of a mixture of deterministic policies; default where that never goes."""
    stacked = np.stack(choices)  # [C, H, S]
    differ = int((stacked != stacked[0]).any(axis=0).sum())
    C = len(choices)
    choice, first = default.copy(), np.zeros(cmdp.H + 1, dtype=np.int64)
    s, a = np.zeros(differ + 1, dtype=np.int64), np.zeros((differ + 1, C), dtype=np.int16)
    p = np.zeros((differ + 1, C))
    c = cmdp.compact
    work = C * cmdp.H * (len(c.prob) // cmdp.kernel.T // cmdp.A + cmdp.S)
    D = call(_blend, work, c.indptr, c.successors, c.prob, c.mu, stacked, weights, cmdp.A, choice, first, s, a, p)
    order = np.argsort(a[:D], axis=1)
    return SparsePolicy(choice, first, s[:D], np.take_along_axis(a[:D], order, 1), np.take_along_axis(p[:D], order, 1))


def read_off(q: FloatArray, default: Choice) -> SparsePolicy:
    """The policy of an occupancy q [H, S, A]; default [H, S] where it never goes."""
    q = np.where(q > NEGLIGIBLE, q, 0.0)
    reach = q.sum(axis=-1)
    choice = np.where(reach > 0, q.argmax(axis=-1), default).astype(np.int16)
    h, s = np.nonzero((q > 0).sum(axis=-1) > 1)
    first = np.searchsorted(h, np.arange(len(q) + 1)).astype(np.int64)
    p = q[h, s] / reach[h, s, None]
    return SparsePolicy(choice, first, s, np.broadcast_to(np.arange(q.shape[2], dtype=np.int16), p.shape).copy(), p)


@njit(cache=True, nogil=True)
def _blend(indptr, successors, prob, mu, choices, weights, A, choice, first, s_out, a_out, p_out):
    """Fill the arrays from `choice` on, and return the number of stochastic decisions."""
    C, H, S = choices.shape
    T = (len(indptr) - 1) // (S * A)
    d = np.zeros((2, C, S))
    for c in range(C):  # state by state: an operation on whole arrays takes three seconds to compile
        for s in range(S):
            d[0, c, s] = weights[c] * mu[s]
    D = 0
    for h in range(H):
        first[h] = D
        now, then = d[h % 2], d[(h + 1) % 2]
        then[:] = 0.0
        for s in range(S):
            used = 0
            for c in range(C):
                mass = now[c, s]
                if mass <= 0.0:
                    continue
                a = int(choices[c, h, s])
                j = 0
                while j < used and a_out[D, j] != a:
                    j += 1
                if j == used:
                    a_out[D, j], p_out[D, j] = a, 0.0
                    used += 1
                p_out[D, j] += mass
                row = ((h % T) * S + s) * A + a
                for i in range(indptr[row], indptr[row + 1]):
                    then[c, successors[i]] += mass * prob[i]
            if used == 0:
                continue
            total, most = 0.0, 0
            for j in range(used):
                total += p_out[D, j]
                if p_out[D, j] > p_out[D, most]:
                    most = j
            choice[h, s] = a_out[D, most]
            if used > 1:
                for j in range(used):
                    p_out[D, j] /= total
                for j in range(used, C):
                    a_out[D, j], p_out[D, j] = a_out[D, 0], 0.0
                s_out[D] = s
                D += 1
    first[H] = D
    return D
