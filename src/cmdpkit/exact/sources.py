"""Models with a horizon: columns by backward induction, and policies with few stochastic decisions.

Columns are deterministic policies [H, S]. A mixture of them becomes one policy by `blend`, and an extreme point by
`purify`, the walk through the steps that docs/theory/exact.md describes in "Getting there". Of the actions of a
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
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.columns import Columns, Found, Parts, PolicyColumn, Pool, Units
from cmdpkit.exact.stationary import BRIDGE, Stationary
from cmdpkit.exact.stationary.problem import Arrays
from cmdpkit.exact.stationary.vertex import null_vector
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import call, compiled, readonly
from cmdpkit.model.decisions import Decisions, all_rows, of_rows, undrawn
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import FEASIBLE, NEGLIGIBLE, ROUNDOFF
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.operators.row_lists import lengths
from cmdpkit.operators.rows import push, row_of
from cmdpkit.operators.steps import NO_CHOICE, Steps, Threads, induction, occupy

MAX_ACTIONS = np.iinfo(np.int16).max  # actions are kept in 16 bits


class Induction:
    """Backward induction in a model with a horizon: which policy is best, and the totals of a policy.

    Column generation asks for thousands of inductions on one model. Its rows and signals are in the form of the
    operators already, so each of them is one call (`operators.steps`), on several threads where the model is large.
    """

    def __init__(self, cmdp: CMDP, threads: Threads = None) -> None:
        self.cmdp, self._allowed = cmdp, readonly(cmdp.compact.allowed)
        entries = cmdp.kernel.nonzeros // cmdp.kernel.T
        self.steps = Steps(cmdp.H, cmdp.S, entries, threads)
        self._work = cmdp.H * (entries + cmdp.S * (cmdp.A + cmdp.N))  # inner loops of a pass

    def best(self, objective: FloatArray) -> tuple[float, Choice, FloatArray]:
        """The largest expected total of `objective` [1 or H, S, A], the policy that has it, and its totals [1 + N]."""
        X = self._room(1 + self.cmdp.N)
        total, choice = self._induction(objective, X)
        return total, choice, self._from_start(X)

    def extremes(self, signal: FloatArray) -> tuple[float, float, Choice]:
        """The least and largest total of `signal` [1 or H, S, A], and the policy that has the latter."""
        best, choice = self._induction(signal, self._room(0))
        return -self._induction(-signal, self._room(0))[0], best, choice

    def _induction(self, objective: FloatArray, X: FloatArray) -> tuple[float, Choice]:
        """The largest total of an objective, and the policy that has it; X [2, S, n] gets its values of all signals."""
        V, choice = self._room(), np.zeros((self.cmdp.H, self.cmdp.S), dtype=np.int16)
        policy = undrawn(choice, self.cmdp.A)
        given = self.cmdp.rows, readonly(objective), self._allowed, self.cmdp.signals, policy
        work = self._work if X.shape[2] == 0 else 2 * self._work
        self.steps.backward(lambda *place: call(induction, work, *given, *place, V, X, np.zeros((0, 1, 1))))
        return float(self.cmdp.mu @ V[0]), choice

    def evaluate(self, policy: Decisions, action_values: FloatArray | None = None) -> FloatArray:
        """Expected reward and utilities [1 + N] of a policy.

        ``action_values`` [D, A, 1 + N] is filled with the totals from each stochastic decision on, for every action
        that it takes with a positive probability.
        """
        X = self._room(1 + self.cmdp.N)
        Q = np.zeros((0, 1, 1)) if action_values is None else action_values
        same = Decisions(np.array(policy.choice), *map(readonly, policy[1:]))  # of the type of `undrawn`
        given = self.cmdp.rows, self.cmdp.signals.r, self._allowed, self.cmdp.signals, same
        self.steps.backward(lambda *place: call(induction, self._work, *given, *place, NO_CHOICE, X, Q))
        return self._from_start(X)

    def _room(self, *signals: int) -> FloatArray:
        """Values of a step and of the one after it, in turn; 0 after the last step."""
        return np.zeros((2, self.cmdp.S, *signals))

    def _from_start(self, X: FloatArray) -> FloatArray:
        """Totals [n] from the start, given those from every state at the first step, X[0] [S, n]."""
        return np.array([self.cmdp.mu @ np.ascontiguousarray(x) for x in X[0].T])


def survey(backward: Induction) -> tuple[Units, list[Choice]]:
    """The units of a model, and for the reward and each utility a policy that collects the most of it.

    Two backward inductions per signal give the least and the largest expected total of any policy. Numbers in states
    that no policy reaches have no influence, and a large number that is reached with a small probability counts with
    that probability. The largest total of absolute values bounds the rounding error of every total that is computed; it
    takes two more if the signal has both signs.
    """
    cmdp = backward.cmdp
    found, extremes = [], []
    for x in (cmdp.compact.r, *cmdp.compact.g):
        worst, best, choice = backward.extremes(x)
        magnitude = best if x.min() >= 0 else -worst if x.max() <= 0 else backward.extremes(np.abs(x))[1]
        found.append((worst, best, magnitude))
        extremes.append(choice)
    worst_, best_, magnitude_ = np.array(found).T.copy()
    return Units(worst_, best_, operations(cmdp) * ROUNDOFF * magnitude_, magnitude_), extremes


def operations(cmdp: CMDP) -> int:
    """How many roundings a term of a total goes through at most.

    One product and one sum for each of a row's successors at every step, the sum over the actions of a stochastic
    decision (there are at most N of them), the start distribution, and the few that combine signals or change units.
    """
    width = int(lengths(cmdp.rows).max(initial=1))
    return cmdp.H * (width + 4) + int(np.count_nonzero(cmdp.mu)) + 4 * cmdp.N + 16


class Horizon:
    """The source of columns of a known model with a horizon, in units of what its policies can collect."""

    exact = True

    def __init__(self, cmdp: CMDP, ranges: Units | None = None, threads: Threads = None) -> None:
        if cmdp.A > MAX_ACTIONS:
            raise CmdpkitError(f"the model has {cmdp.A} actions, column generation takes at most {MAX_ACTIONS}")
        self.cmdp, self.N = cmdp, cmdp.N
        self.r, self.g = cmdp.compact.r, cmdp.compact.g
        self._objective = np.zeros((max(len(self.r), self.g.shape[1] if self.N else 1), cmdp.S, cmdp.A))
        self.induction = Induction(cmdp, threads)
        extremes: list[Choice] = []
        if ranges is None:
            ranges, extremes = survey(self.induction)
        self.ranges = ranges
        self.units, self.offsets = ranges.unit, ranges.worst
        self.noise = ranges.rounding / (2 * self.units)
        self.best = (ranges.best - ranges.worst)[1:] / self.units[1:] + self.noise[1:]
        self.first = []
        for k, choice in enumerate(extremes):  # the policies that collect the most of one signal are the first columns
            v, *w = (self.induction.evaluate(undrawn(choice, cmdp.A)) - self.offsets) / self.units
            weights = np.eye(1, 1 + self.N, k)[0]
            self.first.append(
                PolicyColumn(choice, float(v), np.array(w), weights, float(ranges.best[k] / self.units[k]))
            )

    def price(self, weights: FloatArray, slack: float) -> tuple[float, list[PolicyColumn]]:
        """The policy with the largest weights . (v, w), weights [1 + N], and that value."""
        per_unit = weights / self.units
        total, choice, values = self.greedy(per_unit)
        values = (values - self.offsets) / self.units
        column = PolicyColumn(choice, float(values[0]), values[1:], weights, total)
        return total - float(per_unit @ self.offsets), [column]

    def refine(self, column: PolicyColumn) -> PolicyColumn:
        """Values of backward induction are exact up to rounding."""
        return column

    def greedy(self, weights: FloatArray) -> tuple[float, Choice, FloatArray]:
        """The largest weights . (v, w) in the user's units, the policy that has it, and its v, w [1 + N]."""
        np.multiply(self.r, weights[0], out=self._objective)
        for n, x in enumerate(self.g):
            if weights[1 + n]:
                self._objective += weights[1 + n] * x
        return self.induction.best(self._objective)

    def policy(self, parts: Parts, proof: PolicyColumn, rho: FloatArray) -> Found:
        """An extreme point with the occupancy of a mixture, which meets rho (scaled); `proof` where it never goes."""
        shares = np.array([share for share, _ in parts])
        mixed = blend(self.cmdp, [column.choice for _, column in parts], shares, proof.choice)
        return self.purified(mixed, rho)

    def purified(self, mixed: Decisions, rho: FloatArray) -> Found:
        """An extreme point found from ``mixed``, with exact totals; rho [N] are scaled thresholds."""
        sparse = purify(self.induction, mixed, rho * self.units[1:] + self.offsets[1:], self.units[1:])
        totals = self.induction.evaluate(sparse)
        rounding = np.append(0.0, self.ranges.rounding[1:])
        return Found(policy_of(self.cmdp, sparse), totals, totals - rounding)


def columns_of(
    cmdp: CMDP,
    band: float = FEASIBLE / 2,
    *,
    ranges: Units | None = None,
    threads: Threads = None,
    bridge: float = BRIDGE,
) -> Pool:
    """A pool for a model; ``band`` as in `Columns`, ``ranges`` (with a horizon) if known, ``bridge`` for averages."""
    if cmdp.criterion.has_horizon:
        return Columns(Horizon(cmdp, ranges, threads), band)
    c, criterion = cmdp.compact, cmdp.criterion
    model = (cmdp.rows, c.r[0], c.g[:, 0], c.mu, c.allowed[0], criterion.kind)
    source = Stationary(Arrays(*model, criterion.discount or 1.0, (cmdp.states, cmdp.action_names)), cmdp)
    source.bridge = bridge
    return Columns(source, band)


Choice = NDArray[np.int16]  # [H, S], action index; A <= 32767 is checked

MIN_EFFECT = 1e-13  # a smaller change of the binding utilities, in scaled totals, counts as none
MAX_BINDING_SLACK = 1e-12  # a utility that exceeds its threshold by no more than this, in scaled totals, is binding


def blend(cmdp: CMDP, choices: list[Choice], weights: FloatArray, default: Choice) -> Decisions:
    """The Markov policy with the occupancy of a mixture of deterministic policies; default where that never goes."""
    stacked = np.stack(choices)  # [C, H, S]
    differ = int((stacked != stacked[0]).any(axis=0).sum())
    choice, first = default.copy(), np.zeros(cmdp.H + 1, dtype=np.int64)
    s, p = np.zeros(differ, dtype=np.int32), np.zeros((differ, cmdp.A))
    d = np.zeros((2, len(choices), cmdp.S))
    d[0] = np.outer(weights, cmdp.mu)
    work = len(choices) * cmdp.H * (cmdp.kernel.nonzeros // cmdp.kernel.T // cmdp.A + cmdp.S)
    D = call(_blend, work, cmdp.rows, stacked, d, choice, first, s, p)
    return Decisions(choice, first, s[:D], p[:D])


@compiled
def _blend(rows, choices, d, choice, first, s_out, p_out):
    """Fill the arrays from `choice` on, and return the number of stochastic decisions; d[0] [C, S] is the start.

    The policy is made while masses are carried: with `steps.flow`, those of all policies would be kept for all steps.
    """
    C, H, S = choices.shape
    D = 0
    for h in range(H):
        first[h] = D
        now, then = d[h % 2], d[(h + 1) % 2]
        then[:] = 0.0
        for s in range(S):
            total, actions = 0.0, 0
            for c in range(C):
                if now[c, s] > 0.0:
                    a = choices[c, h, s]
                    actions += total == 0.0 or a != choice[h, s]
                    choice[h, s] = a
                    total += now[c, s]
                    push(rows, row_of(rows, h, s, a), now[c, s], then[c])
            if actions > 1:
                for c in range(C):
                    if now[c, s] > 0.0:
                        p_out[D, choices[c, h, s]] += now[c, s] / total
                for a in range(p_out.shape[1]):
                    if p_out[D, a] > p_out[D, choice[h, s]]:
                        choice[h, s] = a
                s_out[D] = s
                D += 1
    first[H] = D
    return D


def policy_of(cmdp: CMDP, decisions: Decisions) -> Policy:
    """The same policy for the user; decisions that rounding has made sure no longer draw."""
    h, s, p = all_rows(decisions, cmdp.H)
    return Policy.fitting(cmdp, of_rows(decisions.choice, np.stack((h, s), axis=1), p), cmdp.H)


def read_off(q: FloatArray, default: Choice) -> Decisions:
    """The policy of an occupancy q [H, S, A]; default [H, S] where it never goes."""
    q = np.where(q > NEGLIGIBLE, q, 0.0)
    reach = q.sum(axis=-1)
    choice = np.where(reach > 0, q.argmax(axis=-1), default).astype(np.int16)
    h, s = np.nonzero((q > 0).sum(axis=-1) > 1)
    first = np.searchsorted(h, np.arange(len(q) + 1)).astype(np.int64)
    return Decisions(choice, first, s.astype(np.int32), q[h, s] / reach[h, s, None])


class Slot(NamedTuple):
    """One of the actions among which the policy draws at step h in state s."""

    h: int  # the step, from 0
    s: int  # the state
    a: int  # the action


def purify(induction: Induction, policy: Decisions, rho: FloatArray, units: FloatArray) -> Decisions:
    """An extreme point that still meets rho and whose value is no smaller; a policy that is one is returned as it is.

    rho [N] is in the user's units, and so are `units` [N], by which utilities are divided to make totals of order 1.
    """
    if not len(policy.s):
        return policy
    cmdp, first = induction.cmdp, policy.first
    values = np.zeros((*policy.p.shape, 1 + cmdp.N))
    w = induction.evaluate(policy, values)[1:]
    values[..., 1:] /= units
    walk = _Walk(cmdp, policy, values, (w - rho) / units)
    for h in range(int(np.flatnonzero(np.diff(first))[-1]) + 1):
        for row in range(first[h], first[h + 1]):
            walk.meet(h, row)
        walk.advance(h)
    found = walk.policy()
    missing = (rho - induction.evaluate(found)[1:]) / units
    if missing.max(initial=0.0) > 0 and walk.correct(missing):  # correct what rounding has changed
        corrected = walk.policy()
        if ((rho - induction.evaluate(corrected)[1:]) / units).max() < missing.max():
            return corrected
    return found


class _Walk:
    """The decisions met so far that still draw, and the directions in which their probabilities can be shifted."""

    def __init__(self, cmdp: CMDP, policy: Decisions, values: FloatArray, slack: FloatArray) -> None:
        self.cmdp, self.given, self.slack = cmdp, policy, slack
        self.values = values  # [D, A, 1 + N], reward and scaled utilities from each decision on, by the action taken
        self.choice = policy.choice.copy()
        self.slots: list[Slot] = []  # every action that the decisions met so far draw
        self.mass = np.zeros(0)  # [slots], probability of being there and taking the action
        self.change = np.zeros((0, 0))  # [directions, slots], how a direction changes the masses
        self.effect = np.zeros((0, 1 + cmdp.N))  # [directions, 1 + N], how it changes reward and scaled utilities
        self.here = cmdp.mu.copy()  # [S], probability of being in each state at the current step
        self.flow = np.zeros((0, cmdp.S))  # [directions, S], how a direction changes it

    def meet(self, h: int, row: int) -> None:
        """Add a decision, given by its number: its actions become slots, and shifts between them directions."""
        s, used = int(self.given.s[row]), np.flatnonzero(self.given.p[row])
        shares = self.given.p[row, used]
        mine = [Slot(h, s, int(a)) for a in used]
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
        now = np.vstack((self.here, self.flow))
        then = np.zeros(now.shape)
        slots = [i for i, slot in enumerate(self.slots) if slot.h == h]
        states, row = np.unique(np.array([self.slots[i].s for i in slots], dtype=np.int32), return_inverse=True)
        actions, p = [self.slots[i].a for i in slots], np.zeros((len(states), self.cmdp.A))
        drawn = np.array([0, len(states)]), states
        now[:, states] = 1.0  # amounts take the place of probabilities: a flow may begin where there was no mass
        work = self.cmdp.kernel.nonzeros // self.cmdp.kernel.T // self.cmdp.A + self.cmdp.S
        for flow, amounts, out in zip(now, np.vstack((self.mass, self.change))[:, slots], then, strict=True):
            p[row, actions] = amounts
            policy = Decisions(self.choice[h : h + 1], *drawn, p)
            call(occupy, work, self.cmdp.rows, policy, self.cmdp.signals, h, flow, out, np.zeros(0))
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

    def policy(self) -> Decisions:
        """The policy after all shifts so far."""
        slots = sorted(zip(self.slots, self.mass.tolist(), strict=True))
        decisions = [list(group) for _, group in groupby(slots, key=lambda x: x[0][:2])]
        p = np.zeros((len(decisions), self.cmdp.A))
        for row, mine in zip(p, decisions, strict=True):
            row[[slot.a for slot, _ in mine]] = [mass for _, mass in mine]
        h, s = (np.array([mine[0][0][k] for mine in decisions], dtype=np.int32) for k in (0, 1))
        first = np.searchsorted(h, np.arange(self.cmdp.H + 1)).astype(np.int64)
        return Decisions(self.choice, first, s, p / p.sum(axis=1, keepdims=True))
