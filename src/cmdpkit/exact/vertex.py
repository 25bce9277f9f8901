"""Policies with few stochastic decisions, and the way from any optimal policy to an extreme point.

`purify` is the walk through the steps that docs/theory/exact.md describes in "Getting there". Of the actions of a
stochastic decision, all but the first count as *extra*. A *direction* shifts probability between actions of some
decisions. It has an *effect* on the totals, which stays the same during the walk, and a *flow*: by how much it changes
the probability of being in each state at the current step. When a decision adds a direction that can be combined with
others to change no binding utility, the combination is followed until an action has probability 0. So there are never
more than N + 1 directions, and at the end as many extra actions as binding constraints.
"""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

import numpy as np

from cmdpkit.exact.induction import Choice, Draws, Induction
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import call, njit
from cmdpkit.model.decisions import of_rows
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.transitions import BoolArray, FloatArray

MIN_EFFECT = 1e-13  # a smaller change of the binding utilities, in scaled totals, counts as none
MAX_BINDING_SLACK = 1e-12  # a utility that exceeds its threshold by no more than this, in scaled totals, is binding


class SparsePolicy(NamedTuple):
    """A policy that takes action choice[h, s], except in D stochastic decisions."""

    choice: Choice  # [H, S], the action taken
    draws: Draws  # the stochastic decisions

    def policy(self, cmdp: CMDP) -> Policy:
        """The same policy for the user."""
        h = np.repeat(np.arange(cmdp.H), np.diff(self.draws.first))
        p = np.zeros((len(h), cmdp.A))
        for a, share in zip(self.draws.a.T, self.draws.p.T, strict=True):
            np.add.at(p, (np.arange(len(h)), a), share)
        return Policy.fitting(cmdp, of_rows(self.choice, np.stack((h, self.draws.s), axis=1), p), cmdp.H)


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
    draws = Draws(first, s[:D], np.take_along_axis(a[:D], order, 1), np.take_along_axis(p[:D], order, 1))
    return SparsePolicy(choice, draws)


def read_off(q: FloatArray, default: Choice) -> SparsePolicy:
    """The policy of an occupancy q [H, S, A]; default [H, S] where it never goes."""
    q = np.where(q > NEGLIGIBLE, q, 0.0)
    reach = q.sum(axis=-1)
    choice = np.where(reach > 0, q.argmax(axis=-1), default).astype(np.int16)
    h, s = (x.astype(np.int64) for x in np.nonzero((q > 0).sum(axis=-1) > 1))
    p = q[h, s] / reach[h, s, None]
    a = np.broadcast_to(np.arange(q.shape[2], dtype=np.int16), p.shape).copy()
    return SparsePolicy(choice, Draws(np.searchsorted(h, np.arange(len(q) + 1)).astype(np.int64), s, a, p))


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


class Slot(NamedTuple):
    """One of the actions among which the policy draws at step h in state s."""

    h: int  # the step, from 0
    s: int  # the state
    a: int  # the action


def purify(induction: Induction, sparse: SparsePolicy, rho: FloatArray, units: FloatArray) -> SparsePolicy:
    """An extreme point that still meets rho and whose value is no smaller; a policy that is one is returned as it is.

    rho [N] is in the user's units, and so are `units` [N], by which utilities are divided to make totals of order 1.
    """
    if not len(sparse.draws.s):
        return sparse
    cmdp, first = induction.cmdp, sparse.draws.first
    values = np.zeros((*sparse.draws.p.shape, 1 + cmdp.N))
    w = induction.evaluate(*sparse, values)[1:]
    values[..., 1:] /= units
    walk = _Walk(cmdp, sparse, values, (w - rho) / units)
    for h in range(int(np.flatnonzero(np.diff(first))[-1]) + 1):
        for row in range(first[h], first[h + 1]):
            walk.meet(h, row)
        walk.advance(h)
    found = walk.policy()
    missing = (rho - induction.evaluate(*found)[1:]) / units
    if missing.max(initial=0.0) > 0 and walk.correct(missing):  # correct what rounding has changed
        corrected = walk.policy()
        if ((rho - induction.evaluate(*corrected)[1:]) / units).max() < missing.max():
            return corrected
    return found


class _Walk:
    """The decisions met so far that still draw, and the directions in which their probabilities can be shifted."""

    def __init__(self, cmdp: CMDP, sparse: SparsePolicy, values: FloatArray, slack: FloatArray) -> None:
        self.cmdp, self.draws, self.slack = cmdp, sparse.draws, slack
        self.values = values  # [D, C, 1 + N], reward and scaled utilities from each decision on, by the action taken
        self.choice = sparse.choice.copy()
        self.slots: list[Slot] = []  # every action that the decisions met so far draw
        self.mass = np.zeros(0)  # [slots], probability of being there and taking the action
        self.change = np.zeros((0, 0))  # [directions, slots], how a direction changes the masses
        self.effect = np.zeros((0, 1 + cmdp.N))  # [directions, 1 + N], how it changes reward and scaled utilities
        self.here = cmdp.mu.copy()  # [S], probability of being in each state at the current step
        self.flow = np.zeros((0, cmdp.S))  # [directions, S], how a direction changes it

    def meet(self, h: int, row: int) -> None:
        """Add a decision, given as a row of `draws`: its actions become slots, and shifts between them directions."""
        s, shares = int(self.draws.s[row]), self.draws.p[row]
        used = np.flatnonzero(shares)
        shares = shares[used]
        mine = [Slot(h, s, int(a)) for a in self.draws.a[row, used]]
        values = dict(zip(mine, self.values[row, used], strict=True))
        if not self.here[s] > 0:  # an earlier shift made this state unreachable: it takes one action
            expected = sum(p * values[slot] for p, slot in zip(shares, mine, strict=True))
            taken = values[Slot(h, s, int(self.choice[h, s]))]
            self.effect = self.effect + np.outer(self.flow[:, s], taken - expected)
            return
        self.slots += mine
        self.mass = np.append(self.mass, self.here[s] * shares)
        self.change = np.column_stack((self.change, np.outer(self.flow[:, s], shares)))
        for i, slot in enumerate(mine):
            others = [x for x in mine[:i] if x in self.slots]
            if slot not in self.slots or not others:  # some are dropped together with another one
                continue
            base = max(others, key=lambda x: self.mass[self.slots.index(x)])
            row_of = np.zeros(len(self.slots))
            row_of[self.slots.index(base)], row_of[self.slots.index(slot)] = -1.0, 1.0
            self.change = np.vstack((self.change, row_of))
            self.effect = np.vstack((self.effect, values[slot] - values[base]))
            self.flow = np.vstack((self.flow, np.zeros(self.cmdp.S)))
            self._reduce()

    def _scales(self) -> FloatArray:
        """How far each direction can be followed, forwards as well as backwards, [directions]."""
        sizes = np.abs(self.change)
        return np.asarray(np.where(sizes > 0, self.mass / np.where(sizes > 0, sizes, 1.0), 1.0).min(axis=1))

    def _reduce(self) -> None:
        """Follow shifts that do not change the binding utilities, until no such shift is left."""
        while len(self.effect):
            dry = np.flatnonzero((self.mass <= 0) & self.change.any(axis=0))
            if len(dry):
                self._drop(int(dry[0]))
                continue
            scales = self._scales()
            binding = self.slack <= MAX_BINDING_SLACK
            shift = null_vector((self.effect[:, 1:] * scales[:, None]).T[binding], MIN_EFFECT)
            if shift is None:
                return
            self._follow(self._orient(shift * scales, binding), binding)

    def _orient(self, shift: FloatArray, binding: BoolArray) -> FloatArray:
        """The shift or its opposite: the one that gains reward, unless that would change a binding utility.

        A tiny change of a utility per unit of shift becomes a large one over a long way. The shorter way is taken then.
        """
        if shift @ self.effect[:, 0] < 0:
            shift = -shift
        drift = float(np.abs(shift @ self.effect[:, 1:])[binding].max(initial=0.0))
        there, back = self._lengths(shift).min(), self._lengths(-shift).min()
        return shift if there * drift <= 2 * MIN_EFFECT or there <= back else -shift

    def _lengths(self, shift: FloatArray) -> FloatArray:
        """How far a shift can be followed until the probability of each action is 0, [slots]."""
        change = shift @ self.change
        return np.where(change < 0, self.mass / np.where(change < 0, -change, 1.0), np.inf)

    def _follow(self, shift: FloatArray, binding: BoolArray) -> None:
        """Follow a shift until the probability of an action is 0, or until another utility becomes binding."""
        lengths, drift = self._lengths(shift), shift @ self.effect[:, 1:]
        sinking = ~binding & (drift < 0)
        limits = np.where(sinking, self.slack / np.where(sinking, -drift, 1.0), np.inf)
        length = float(lengths.min())
        if limits.min(initial=np.inf) < length:
            self._move(float(limits.min()) * shift)
            self.slack[limits.argmin()] = 0.0
        else:
            self._move(length * shift)
            self._drop(int(lengths.argmin()))

    def _move(self, shift: FloatArray) -> None:
        self.mass = np.maximum(self.mass + shift @ self.change, 0.0)
        self.slack = self.slack + shift @ self.effect[:, 1:]
        self.here = np.maximum(self.here + shift @ self.flow, 0.0)

    def _drop(self, dry: int) -> None:
        """Drop an action: combine the directions such that only one uses it, and remove that one."""
        use = self.change[:, dry]
        gone = int(np.abs(use).argmax())
        factors = use / use[gone]
        factors[gone] = 0.0
        self.change, self.effect, self.flow = (
            np.delete(x - np.outer(factors, x[gone]), gone, axis=0) for x in (self.change, self.effect, self.flow)
        )
        self._forget(dry)

    def _forget(self, i: int) -> None:
        """Remove a slot; a decision with only one slot left no longer draws."""
        h, s, _ = self.slots.pop(i)
        self.mass = np.delete(self.mass, i)
        self.change = np.delete(self.change, i, axis=1)
        rest = [j for j, slot in enumerate(self.slots) if slot[:2] == (h, s)]
        if len(rest) == 1:
            self.choice[h, s] = self.slots[rest[0]].a
            self._forget(rest[0])

    def advance(self, h: int) -> None:
        """Carry all flows from step h to the next."""
        if h + 1 == self.cmdp.H:
            return
        c, kernel = self.cmdp.compact, self.cmdp.kernel
        now = np.vstack((self.here, self.flow))
        then = np.zeros(now.shape)
        for i, slot in enumerate(self.slots):
            if slot.h == h:
                row = ((h % kernel.T) * self.cmdp.S + slot.s) * self.cmdp.A + slot.a
                span = slice(kernel.indptr[row], kernel.indptr[row + 1])
                amounts = np.append(self.mass[i], self.change[:, i])
                then[:, kernel.successors[span]] += np.outer(amounts, kernel.prob[span])
                now[:, slot.s] = 0.0
        work = len(now) * (len(c.prob) // kernel.T // self.cmdp.A + self.cmdp.S)
        call(_carry, work, c.indptr, c.successors, c.prob, self.choice[h], h, self.cmdp.A, now, then)
        self.here, self.flow = then[0], then[1:]

    def correct(self, missing: FloatArray) -> bool:
        """Shift the masses such that the binding utilities gain `missing` [N] (scaled); False if that is impossible."""
        binding = self.slack <= MAX_BINDING_SLACK
        if not len(self.effect) or not binding.any():
            return False
        scales = self._scales()
        effects = (self.effect[:, 1:] * scales[:, None]).T[binding]
        shift = scales * np.linalg.lstsq(effects, missing[binding], rcond=None)[0]
        mass = self.mass + shift @ self.change
        if not (mass > 0).all():
            return False
        self.mass = mass
        return True

    def policy(self) -> SparsePolicy:
        """The policy after all shifts so far."""
        slots = sorted(zip(self.slots, self.mass.tolist(), strict=True))
        decisions = [list(group) for _, group in groupby(slots, key=lambda x: x[0][:2])]
        width = max(map(len, decisions), default=1)
        a, p = np.zeros((len(decisions), width), dtype=np.int16), np.zeros((len(decisions), width))
        for i, mine in enumerate(decisions):
            a[i, : len(mine)], p[i, : len(mine)] = [slot.a for slot, _ in mine], [mass for _, mass in mine]
        h, s = (np.array([mine[0][0][k] for mine in decisions], dtype=np.int64) for k in (0, 1))
        first = np.searchsorted(h, np.arange(self.cmdp.H + 1)).astype(np.int64)
        return SparsePolicy(self.choice, Draws(first, s, a, p / p.sum(axis=1, keepdims=True)))


def null_vector(effects: FloatArray, least: float) -> FloatArray | None:
    """A combination of the columns of effects [binding, directions] that is zero up to `least`, if there is one."""
    rows, columns = effects.shape
    if rows == 0:
        return np.asarray(np.eye(1, columns)[0])
    _, singular, right = np.linalg.svd(effects)
    return None if int((singular > least).sum()) == columns else np.asarray(right[-1], dtype=float)


@njit(cache=True, nogil=True)
def _carry(indptr, successors, prob, choice, h, A, flow, then):
    """Add to `then` where flow [rows, S] goes when every state takes its choice."""
    rows, S = flow.shape
    T = (len(indptr) - 1) // (S * A)
    for i in range(rows):
        for s in range(S):
            mass = flow[i, s]
            if mass != 0.0:
                row = ((h % T) * S + s) * A + int(choice[s])
                for k in range(indptr[row], indptr[row + 1]):
                    then[i, successors[k]] += mass * prob[k]
