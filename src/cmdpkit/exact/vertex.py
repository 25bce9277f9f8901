"""From any optimal policy to an extreme point: as many extra actions as binding constraints, and no more.

This is the walk through the steps that docs/theory/exact.md describes in "Getting there". Of the actions of a
stochastic decision, all but the first count as *extra*. A *direction* shifts probability between actions of some
decisions. It has an *effect* on the totals, which stays the same during the walk, and a *flow*: by how much it changes
the probability of being in each state at the current step. There are never more than N + 1 directions: when another
decision adds one that can be combined with others to change no binding utility, the combination is followed until an
action has probability 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.exact.induction import Induction
from cmdpkit.exact.sparse_policy import SparsePolicy
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import call, njit
from cmdpkit.model.transitions import BoolArray, FloatArray

MIN_EFFECT = 1e-13  # a smaller change of the binding utilities, in scaled totals, counts as none
MAX_BINDING_SLACK = 1e-12  # a utility that exceeds its threshold by no more than this, in scaled totals, is binding


class Slot(NamedTuple):
    """One of the actions among which the policy draws at step h in state s."""

    h: int  # the step, from 0
    s: int  # the state
    a: int  # the action


def purify(induction: Induction, sparse: SparsePolicy, rho: FloatArray, units: FloatArray) -> SparsePolicy:
    """An extreme point that still meets rho and whose value is no smaller; a policy that is one is returned as it is.

    rho [N] is in the user's units, and so are `units` [N], by which utilities are divided to make totals of order 1.
    """
    if not len(sparse.s):
        return sparse
    cmdp = induction.cmdp
    values = np.zeros((*sparse.p.shape, 1 + cmdp.N))
    w = induction.evaluate(sparse.choice, sparse.draws, values)[1:]
    values[..., 1:] /= units
    walk = _Walk(cmdp, sparse, values, (w - rho) / units)
    last = int(np.flatnonzero(np.diff(sparse.first))[-1])
    for h in range(last + 1):
        for row in range(sparse.first[h], sparse.first[h + 1]):
            walk.meet(h, row)
        walk.advance(h)
    found = walk.policy()
    missing = (rho - _utilities(induction, found)) / units
    if missing.max(initial=0.0) > 0 and walk.correct(missing):  # correct what rounding has changed
        corrected = walk.policy()
        if ((rho - _utilities(induction, corrected)) / units).max() < missing.max():
            return corrected
    return found


def _utilities(induction: Induction, sparse: SparsePolicy) -> FloatArray:
    return induction.evaluate(sparse.choice, sparse.draws)[1:]


class _Walk:
    """The decisions met so far that still draw, and the directions in which their probabilities can be shifted."""

    def __init__(self, cmdp: CMDP, sparse: SparsePolicy, values: FloatArray, slack: FloatArray) -> None:
        self.cmdp, self.sparse, self.slack = cmdp, sparse, slack
        self.values = values  # [D, C, 1 + N], reward and scaled utilities from each decision on, by the action taken
        self.choice = sparse.choice.copy()
        self.slots: list[Slot] = []  # every action that the decisions met so far draw
        self.mass = np.zeros(0)  # [slots], probability of being there and taking the action
        self.change = np.zeros((0, 0))  # [directions, slots], how a direction changes the masses
        self.effect = np.zeros((0, 1 + cmdp.N))  # [directions, 1 + N], how it changes reward and scaled utilities
        self.flow = cmdp.mu[None].copy()  # [1 + directions, S], state probabilities, then their changes by direction

    def meet(self, h: int, row: int) -> None:
        """Add a decision, given as a row of `sparse`: its actions become slots, and shifts between them directions."""
        s, shares = int(self.sparse.s[row]), self.sparse.p[row]
        used = np.flatnonzero(shares)
        shares = shares[used]
        mine = [Slot(h, s, int(a)) for a in self.sparse.a[row, used]]
        values = dict(zip(mine, self.values[row, used], strict=True))
        if not self.flow[0, s] > 0:  # an earlier shift made this state unreachable: it takes one action
            expected = sum(p * values[slot] for p, slot in zip(shares, mine, strict=True))
            taken = values[Slot(h, s, int(self.choice[h, s]))]
            self.effect = self.effect + np.outer(self.flow[1:, s], taken - expected)
            return
        self.slots += mine
        self.mass = np.append(self.mass, self.flow[0, s] * shares)
        self.change = np.column_stack((self.change, np.outer(self.flow[1:, s], shares)))
        for slot in mine[1:]:
            if slot not in self.slots:  # it was dropped together with another one
                continue
            others = [x for x in mine[: mine.index(slot)] if x in self.slots]
            if not others:
                continue
            base = max(others, key=lambda x: self.mass[self.slots.index(x)])
            row_of = np.zeros(len(self.slots))
            row_of[self.slots.index(base)], row_of[self.slots.index(slot)] = -1.0, 1.0
            self.change = np.vstack((self.change, row_of))
            self.effect = np.vstack((self.effect, values[slot] - values[base]))
            self.flow = np.vstack((self.flow, np.zeros(self.cmdp.S)))
            self._reduce()

    def _row(self, slot: Slot) -> tuple[NDArray[np.int32], FloatArray]:
        kernel, (h, s, a) = self.cmdp.kernel, slot
        row = ((h % kernel.T) * self.cmdp.S + s) * self.cmdp.A + a
        span = slice(kernel.indptr[row], kernel.indptr[row + 1])
        return kernel.successors[span], kernel.prob[span]

    def _scales(self) -> FloatArray:
        """How far each direction can be followed, forwards as well as backwards, [directions]."""
        sizes = np.abs(self.change)
        scales: FloatArray = np.where(sizes > 0, self.mass / np.where(sizes > 0, sizes, 1.0), 1.0).min(axis=1)
        return scales

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
        self.flow[0] = np.maximum(self.flow[0] + shift @ self.flow[1:], 0.0)

    def _drop(self, dry: int) -> None:
        """Drop an action: combine the directions such that only one uses it, and remove that one."""
        use = self.change[:, dry]
        gone = int(np.abs(use).argmax())
        factors = use / use[gone]
        factors[gone] = 0.0
        self.change = self.change - np.outer(factors, self.change[gone])
        self.effect = self.effect - np.outer(factors, self.effect[gone])
        self.flow[1:] -= np.outer(factors, self.flow[1 + gone])
        self.change = np.delete(self.change, gone, axis=0)
        self.effect = np.delete(self.effect, gone, axis=0)
        self.flow = np.delete(self.flow, 1 + gone, axis=0)
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
        c = self.cmdp.compact
        then = np.zeros(self.flow.shape)
        for i, slot in enumerate(self.slots):
            if slot.h == h:
                successors, prob = self._row(slot)
                amounts = np.append(self.mass[i], self.change[:, i])
                then[:, successors] += np.outer(amounts, prob)
                self.flow[:, slot.s] = 0.0
        work = len(self.flow) * (len(c.prob) // self.cmdp.kernel.T // self.cmdp.A + self.cmdp.S)
        call(_carry, work, c.indptr, c.successors, c.prob, self.choice[h], h, self.cmdp.A, self.flow, then)
        self.flow = then

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
        places = sorted({slot[:2] for slot in self.slots})
        width = max((sum(slot[:2] == place for slot in self.slots) for place in places), default=1)
        a, p = np.zeros((len(places), width), dtype=np.int16), np.zeros((len(places), width))
        for i, place in enumerate(places):
            masses = zip(self.slots, self.mass.tolist(), strict=True)
            mine = sorted((slot.a, mass) for slot, mass in masses if slot[:2] == place)
            a[i, : len(mine)], p[i, : len(mine)] = zip(*mine, strict=True)
        h = np.array([place[0] for place in places], dtype=np.int64)
        s = np.array([place[1] for place in places], dtype=np.int64)
        first = np.searchsorted(h, np.arange(self.cmdp.H + 1)).astype(np.int64)
        return SparsePolicy(self.choice, first, s, a, p / p.sum(axis=1, keepdims=True))


def null_vector(effects: FloatArray, least: float) -> FloatArray | None:
    """A combination of the columns of effects [binding, directions] that is zero, or None if they are independent.

    Singular values of at most `least` count as zero.
    """
    rows, columns = effects.shape
    if rows == 0:
        first: FloatArray = np.eye(1, columns)[0]
        return first
    _, singular, right = np.linalg.svd(effects)
    rank = int((singular > least).sum())
    null: FloatArray = right[-1].astype(float)
    return None if rank == columns else null


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
