"""Markov chains: recurrent classes, long-run shares of time, expected visits and relative values.

A stationary policy turns a model into a chain with transition matrix P [S, S]. Three kinds of linear systems say what
the chain does, and all of them are solved here.

* *Shares of time.* d = gamma P^T d + inflow with a given total mass. With inflow (1 - gamma) mu and mass 1 this is the
  normalised discounted occupancy; with gamma = 1, inflow 0 and a single recurrent class it is the long-run share.
* *Relative values.* h = x - c + gamma P h with h zero at one state. The value of x from the start mu is
  c + (1 - gamma) mu . h, and since constants are split off, nothing grows when gamma comes near 1.
* *Expected visits* of a chain that is absorbed: d = P^T d + mu, where rows of P may sum to less than 1.

Systems are solved by elimination, by repeated multiplication where elimination would fill up (random graphs with
thousands of states), and where that takes too long by a Krylov method (see `chain_systems`).

The occupancy q[s, a] of a stationary policy is the discounted share of time (the shares of step t weigh (1 - discount)
discount^t), the long-run share of time from the start, or for totals the expected number of visits before absorption.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import readonly
from cmdpkit.model.tolerances import NEARLY_SETTLED, SETTLED
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.operators.chain_systems import (
    DAMPING,
    FULL,
    NOTHING,
    Elimination,
    band_order,
    refined_flow,
    refined_values,
)
from cmdpkit.operators.row_lists import Entries, matrix_of, rows_of
from cmdpkit.operators.steps import sweeps

DIRECT_AT_ONCE = 2e7  # work S b^2 of an elimination (b is the bandwidth) below which sweeps are not worth trying
DIRECT_AT_ALL = 5e9  # work beyond which elimination is not tried
MOST_BAND = 5e7  # entries S b of the band beyond which elimination is not tried
SWEEPS = 2_000  # sweeps before another method is tried
BLOCK = 25  # sweeps between two looks at the rounding


def closed_classes(P: Any) -> list[IntArray]:
    """The recurrent classes of a chain: strongly connected sets of states that no transition leaves."""
    count, label = connected_components(P, directed=True, connection="strong")
    if count == 1:
        return [np.arange(P.shape[0])]
    entries = P.tocoo()
    left = np.zeros(count, dtype=bool)
    left[label[entries.coords[0]][label[entries.coords[0]] != label[entries.coords[1]]]] = True
    order = np.argsort(label, kind="stable")
    bounds = np.searchsorted(label[order], np.arange(count + 1))
    return [order[bounds[c] : bounds[c + 1]] for c in range(count) if not left[c]]


class Chain:
    """Linear systems of one chain; `bordered` chains lose the same in all states, or nothing.

    gamma P [S, S] are transitions, as a SciPy sparse matrix, and `exits` [S] what they lose. A chain that is not
    bordered has gamma 1. Its exits should be added up from the transitions that leave, because 1 minus the sum of a
    row, which is used without them, is rounded to 1e-16. One that is bordered loses 1 - gamma, up to the same rounding.
    Where it loses nothing, it has one recurrent class, of which `pivot` is a state. Rows and exits sum to 1 by
    definition, and the diagonal is not read where elimination is used. `work` is what elimination costs, S b^2 with the
    bandwidth b; 0 asks for it at once.
    """

    def __init__(
        self,
        P: Any,
        gamma: float = 1.0,
        *,
        bordered: bool = True,
        pivot: int = 0,
        exits: FloatArray | None = None,
        work: float | None = None,
    ) -> None:
        P = P.tocsr()
        S: int = P.shape[0]
        if exits is None:
            exits = np.full(S, 1 - gamma) if bordered else np.maximum(1.0 - np.asarray(P.sum(axis=1)).reshape(-1), 0.0)
        self.P, self.S = P if gamma == 1 else gamma * P, S
        self.bordered, self.pivot, self.exits = bordered, pivot, exits
        self.loss = float(exits[0]) if bordered else 0.0
        self._elimination: Elimination | None = None
        self._order, self.width = band_order(P)
        if work is None:
            work = float(S) * (self.width + 1) ** 2 if S * (self.width + 1) <= MOST_BAND else np.inf
        self.work = 0.0 if S <= FULL else work
        if self.work < DIRECT_AT_ONCE:
            self._eliminate()

    def values(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Constants c [K] and relative values h [S, K] of signals x [S, K]; c is 0 where the chain loses mass."""
        if self._elimination is None:
            swept = self._sweep(self.P, x, np.zeros(x.shape), relative=self.bordered)
            if swept is not None:
                level, h = swept
                return (level, h - h[self.pivot]) if self.bordered else (np.zeros(x.shape[1]), h)
            if self.work >= DIRECT_AT_ALL:
                return self._refined_values(x)
        system, h = self._system, np.zeros(x.shape)
        if not self.bordered:
            h[system.order] = system.values(x[system.order])
            return np.zeros(x.shape[1]), h
        # Between two visits of the pivot: c is the signal of a cycle divided by its length. Signals are counted from
        # that of the pivot, so that they may vary as little as they like.
        shifted = (x - x[self.pivot])[system.order]
        c = (self._again @ shifted) / self.cycle
        h[system.order] = system.values(shifted - c)
        return x[self.pivot] + c, h

    def flow(self, inflow: FloatArray, mass: float = 0.0) -> FloatArray:
        """d [S] with d = P^T d + inflow [S], and with total `mass` where the chain is bordered."""
        if self._elimination is None:
            start = np.full(self.S, mass / self.S) if not self.loss else mass * inflow / self.loss
            start = start if self.bordered else inflow
            swept = self._sweep(self.P.T, inflow[:, None], start[:, None].copy(), relative=False)
            if swept is not None:
                return swept[1][:, 0]
            if self.work >= DIRECT_AT_ALL:
                lasting = self.bordered and not self.loss
                return refined_flow(self._between(), self.exits, inflow, mass if lasting else None)
        system, d = self._system, np.empty(self.S)
        first = system.flow(inflow[system.order])
        if not self.bordered:
            d[system.order] = first
            return d
        again = self._again
        if self.loss and (inflow >= 0).all():  # nothing is subtracted
            arrive = float(inflow[self.pivot] + self._arrive @ first)
            visits = arrive / (self.loss * (1 + again.sum()))
        else:
            visits = (mass - first.sum()) / (1 + again.sum())
        d[self.pivot], d[system.order] = visits, first + visits * again
        return d

    @property
    def cycle(self) -> float:
        """Expected number of steps between two visits of the pivot, or until mass is lost; bordered chains only."""
        return 1 + float(self._again.sum())

    @property
    def most_visited(self) -> int:
        """The state that is visited most in that time."""
        return int(self._system.order[self._again.argmax()]) if self._again.max(initial=0.0) > 1 else self.pivot

    @property
    def _system(self) -> Elimination:
        self._eliminate()
        assert self._elimination is not None
        return self._elimination

    def _eliminate(self) -> None:
        """Prepare elimination; of a bordered chain, as if it ended at its pivot."""
        if self._elimination is not None:
            return
        row, to, prob = np.repeat(np.arange(self.S), np.diff(self.P.indptr)), self.P.indices, self.P.data
        order, exits = self._order, self.exits
        if self.bordered:
            order = order[order != self.pivot]
            at, into = row == self.pivot, to == self.pivot
            leave = np.bincount(to[at], prob[at], self.S)[order]
            arrive = np.bincount(row[into], prob[into], self.S)
            self._arrive, exits = arrive[order], exits + arrive
        self._elimination = system = Elimination(Entries(row, to, prob), exits, order, self.width)
        if self.bordered:
            self._again = system.flow(leave)  # visits between two visits of the pivot

    def _sweep(self, P: Any, x: FloatArray, Y: FloatArray, *, relative: bool) -> tuple[FloatArray, FloatArray] | None:
        """Level [K] and limit of Y <- x + P Y [S, K]; None where another method is the better way.

        It ends when the residual is as small as rounding, or close to that and no longer shrinking.
        """
        K, damped = x.shape[1], self.bordered and not self.loss
        rows, x, Z = rows_of(P), readonly(x), np.empty(Y.shape)
        low, high, widths = np.zeros(K), np.zeros(K), np.zeros(BLOCK)
        done, smallest, top = 0, np.inf, float(np.abs(x).max(initial=0.0))
        while done < SWEEPS:
            sizes = np.abs(Y)
            scale = float(sizes.max() if relative or not self.bordered else sizes.mean()) + top
            given = rows, x, Y, Z, DAMPING if damped else 1.0, relative, NOTHING, NOTHING, SETTLED * scale
            count = sweeps(*given, widths, low, high)
            done, width = done + count, float(widths[count - 1])
            if count % 2:
                Y, Z = Z, Y
            if width <= SETTLED * scale or (widths.min() >= 0.9 * smallest and width <= NEARLY_SETTLED * scale):
                return (low + high) / 2, Y
            smallest = min(smallest, float(widths.min()))
        return None

    def _between(self) -> Any:
        """Transitions between different states."""
        return sparse.csr_array(self.P - sparse.diags_array(self.P.diagonal()))

    def _refined_values(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """As `values`, by a Krylov method."""
        pivot = self.pivot if self.bordered else None
        found = [refined_values(self._between(), self.exits, row, pivot) for row in x.T]
        constants, h = np.array([c for c, _ in found]), np.array([h for _, h in found]).T
        return (constants, h - h[self.pivot]) if self.bordered else (np.zeros(x.shape[1]), h + constants)


def within(P: Any, members: IntArray) -> Any:
    """The transitions [members, members] between some states of a chain."""
    return P if len(members) == P.shape[0] else P[members][:, members]


def long_run_shares(P: Any, mu: FloatArray) -> tuple[FloatArray, list[tuple[IntArray, float]]]:
    """Share of time [S] in each state from the start mu, and (class, probability of absorption into it) pairs."""
    S = P.shape[0]
    classes = closed_classes(P)
    recurrent = np.zeros(S, dtype=bool)
    for members in classes:
        recurrent[members] = True
    outside = np.flatnonzero(~recurrent)
    entered = np.array(mu, dtype=float)
    if len(outside) and mu[outside].any():
        entered = entered + P[outside].T @ np.maximum(_visits_before(P, recurrent, mu), 0.0)
    shares = np.zeros(S)
    found = []
    for members in classes:
        mass = float(entered[members].sum())
        if mass <= 0:
            continue
        inside = within(P, members)
        shares[members] = mass * np.maximum(Chain(inside).flow(np.zeros(len(members)), 1.0), 0.0)
        found.append((members, mass))
    return shares, found


def _visits_before(P: Any, recurrent: BoolArray, mu: FloatArray) -> FloatArray:
    """Expected visits of the states that are not recurrent, in their order, when the chain starts from mu [S]."""
    outside = np.flatnonzero(~recurrent)
    part = P[outside]
    exits = np.asarray(part[:, np.flatnonzero(recurrent)].sum(axis=1)).reshape(-1)
    return Chain(part[:, outside], bordered=False, exits=exits).flow(mu[outside])


# -- stationary policies ----------------------------------------------------------------------------------------------


def stationary_occupancy(cmdp: CMDP, pi: FloatArray) -> FloatArray:
    """q [S, A] of the policy pi [S, A]."""
    P = chain_of(cmdp, pi)
    discount = cmdp.criterion.discount
    if cmdp.criterion.kind == "average":
        d = long_run_shares(P, cmdp.mu)[0]
    elif discount is not None:
        d = Chain(P, discount).flow((1 - discount) * cmdp.mu, 1.0)
    else:
        d = _visits(cmdp, P)
    q: FloatArray = np.maximum(d, 0.0)[:, None] * pi
    return q


def stationary_values(cmdp: CMDP, pi: FloatArray) -> tuple[float, FloatArray]:
    """v and the utilities w [N] (not the user's sense) of pi [S, A], in the criterion's own unit."""
    q = stationary_occupancy(cmdp, pi)
    steps = cmdp.criterion.steps_in_value or 1.0
    w = np.array([float((q * x[0]).sum()) * steps for x in cmdp.compact.g])
    return float((q * cmdp.compact.r[0]).sum()) * steps, w


def relative_values(
    cmdp: CMDP, pi: FloatArray, x: FloatArray, stand_in: float | None = None
) -> tuple[FloatArray, FloatArray]:
    """Means per step c [K] and relative values h [S, K] of a chain: h = x - c + gamma P h for signals x [S, K].

    h is what it is worth to be in a state while pi [S, A] is followed, and zero at one recurrent state; for totals, c
    is 0 and h are the totals. Averages are refused where the policy has several recurrent classes, unless a discount is
    given to ``stand_in``.
    """
    P = chain_of(cmdp, pi)
    if cmdp.criterion.kind == "total":
        going, chain = _before_absorption(cmdp, P)
        h = np.zeros(x.shape)
        h[going] = chain.values(x[going])[1]
        return np.zeros(x.shape[1]), h
    pivot = _recurrent_state(P) if cmdp.criterion.kind == "average" and stand_in is None else 0
    return Chain(P, stand_in or cmdp.criterion.discount or 1.0, pivot=pivot).values(x)


def flow_of(cmdp: CMDP, pi: FloatArray, inflow: FloatArray) -> FloatArray:
    """d [S] with d = inflow + gamma P^T d for the chain of pi [S, A]; for averages the one whose sum is 0."""
    P, gamma = chain_of(cmdp, pi), cmdp.criterion.discount
    if cmdp.criterion.kind == "total":
        d = np.zeros(cmdp.S)
        going, chain = _before_absorption(cmdp, P)
        d[going] = chain.flow(inflow[going])
        return d
    if gamma is None:
        return Chain(P, pivot=_recurrent_state(P)).flow(inflow)
    return Chain(P, gamma).flow(inflow, float(inflow.sum()) / (1 - gamma))


def _before_absorption(cmdp: CMDP, P: sparse.csr_array) -> tuple[IntArray, Chain]:
    """The states in which a total is not complete yet, and the chain among them."""
    absorbed = absorbing_states(cmdp)
    going = np.flatnonzero(~absorbed)
    part = P[going]
    exits = np.asarray(part[:, np.flatnonzero(absorbed)].sum(axis=1)).reshape(-1)
    return going, Chain(part[:, going], bordered=False, exits=exits)


def _recurrent_state(P: sparse.csr_array) -> int:
    """A state of the only recurrent class; CmdpkitError if there are several classes."""
    classes = closed_classes(P)
    if len(classes) > 1:
        raise CmdpkitError(f"the policy has {len(classes)} recurrent classes, so its relative values are not unique")
    return int(classes[0][0])


def stationary_action_values(
    cmdp: CMDP, pi: FloatArray, signals: FloatArray, stand_in: float | None = None
) -> FloatArray:
    """[K, S, A]: what signals [K, S, A] add up to if an action is taken once and pi [S, A] is followed afterwards.

    Discounted totals, and totals until absorption; for averages, what is gained in all on a run that starts by pi.
    """
    c, h = relative_values(cmdp, pi, np.array([(pi * signal).sum(axis=1) for signal in signals]).T, stand_in)
    gamma = stand_in or cmdp.criterion.discount or 1.0
    if cmdp.criterion.kind == "discounted":
        h, c = h + c / (1 - gamma), np.zeros_like(c)
    rows = matrix_of(cmdp.rows, cmdp.S)
    ahead = np.array([(rows @ each).reshape(cmdp.S, cmdp.A) for each in h.T])
    values: FloatArray = signals - c[:, None, None] + gamma * ahead
    if cmdp.criterion.kind == "average":
        values -= h.T[:, :, None]
    return values


def chain_of(cmdp: CMDP, pi: FloatArray) -> sparse.csr_array:
    """Transition matrix [S, S] of the policy pi [S, A], its rows divided by their sums."""
    S, A, rows = cmdp.S, cmdp.A, matrix_of(cmdp.rows, cmdp.S)
    s, a = np.nonzero(pi)
    drawn = sparse.csr_array((pi[s, a], (s, s * A + a)), shape=(S, S * A))
    P = sparse.csr_array(drawn @ rows)
    P.sum_duplicates()
    return sparse.csr_array(sparse.diags_array(1.0 / np.asarray(P.sum(axis=1)).reshape(-1)) @ P)


def absorbing_states(cmdp: CMDP) -> BoolArray:
    """[S]: states whose every action stays there and signals nothing: a total is complete there."""
    kernel, c = cmdp.kernel, cmdp.compact
    row = kernel.rows
    leaves = np.zeros(cmdp.S * cmdp.A, dtype=bool)
    leaves[row[kernel.successors != row // cmdp.A]] = True
    busy = leaves.reshape(cmdp.S, cmdp.A) | (c.r[0] != 0) | (c.g[:, 0] != 0).any(axis=0)
    quiet: BoolArray = ~(busy & c.allowed[0]).any(axis=1)
    return quiet


def _visits(cmdp: CMDP, P: sparse.csr_array) -> FloatArray:
    """Expected visits [S] before absorption; CmdpkitError if the policy need not be absorbed."""
    absorbed = absorbing_states(cmdp)
    _, classes = long_run_shares(P, cmdp.mu)
    for members, mass in classes:
        if not absorbed[members].any() and mass > 0:
            raise CmdpkitError(
                f"this policy stays forever in state {cmdp.states[int(members[0])]!r} with probability {mass:.6g}, so "
                "its total is not finite; choose another policy, or a discount instead of the criterion 'total'"
            )
    recurrent = np.zeros(cmdp.S, dtype=bool)
    for members in closed_classes(P):
        recurrent[members] = True
    d = np.zeros(cmdp.S)
    if not recurrent.all():
        d[~recurrent] = _visits_before(P, recurrent, cmdp.mu)
    return d
