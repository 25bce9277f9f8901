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
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.operators.chain_systems import (
    DAMPING,
    FULL,
    Elimination,
    band_order,
    refined_flow,
    refined_values,
    settle,
    sparse_rows,
)
from cmdpkit.operators.row_lists import matrix_of

DIRECT_AT_ONCE = 2e7  # work S b^2 of an elimination (b is the bandwidth) below which sweeps are not worth trying
DIRECT_AT_ALL = 5e9  # work beyond which elimination is not tried
MOST_BAND = 5e7  # entries S b of the band beyond which elimination is not tried
SWEEPS = 2_000  # sweeps before another method is tried
LAST_SWEEPS = 200_000  # sweeps after which pricing gives up


def factor_work(P: Any) -> float:
    """Estimated work S b^2 of an elimination with bandwidth b; 0 for few states, inf if the band exceeds the memory."""
    S = P.shape[0]
    if S <= FULL:
        return 0.0
    band = band_order(P)[1] + 1
    return float(S) * band**2 if S * band <= MOST_BAND else np.inf


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
    """Linear systems of one chain; `bordered` chains keep their mass (gamma = 1 stands for no discount).

    P [S, S] is a SciPy sparse matrix. With `bordered`, rows sum to 1 by definition, and the diagonal is not read where
    elimination is used; for gamma = 1 the chain has one recurrent class, of which `pivot` is a state. Without it, the
    chain loses mass, gamma is 1, and `exits` [S] are the probabilities of leaving; they should be added up from the
    transitions that leave, because 1 minus the sum of a row, which is used without them, is rounded to 1e-16. `work` is
    the cost of elimination, as `factor_work` estimates it; 0 asks for elimination at once.
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
        self.P, self.gamma, self.bordered, self.pivot = sparse.csr_array(P), gamma, bordered, pivot
        self.S: int = self.P.shape[0]
        if exits is None and not bordered:
            exits = np.maximum(1.0 - np.asarray(self.P.sum(axis=1)).reshape(-1), 0.0)
        self.exits = exits
        self.work = factor_work(self.P) if work is None else work
        self._elimination: Elimination | None = None
        if self.work < DIRECT_AT_ONCE:
            self._eliminate()

    def values(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Constants c [K] and relative values h [S, K] of signals x [S, K]; c is 0 where the chain loses mass."""
        if self._elimination is None:
            found = [self._sweep(row, np.zeros(self.S), flows=False) for row in x.T]
            if all(h is not None for h in found):
                h = np.array(found).T
                if not self.bordered:
                    return np.zeros(x.shape[1]), h
                change = x + self.gamma * (self.P @ h) - h
                return (change.max(axis=0) + change.min(axis=0)) / 2, h - h[self.pivot]
            if self.work >= DIRECT_AT_ALL:
                return self._refined_values(x)
            self._eliminate()
        if not self.bordered:
            return np.zeros(x.shape[1]), self._system.values(x)
        # Between two visits of the pivot: c is the signal of a cycle divided by its length. Signals are counted from
        # that of the pivot, so that they may vary as little as they like.
        shifted = x - x[self.pivot]
        both = self._system.values(np.column_stack((shifted, np.ones(self.S)))[self._others])
        a, length = both[:, :-1], both[:, -1]
        c = self.gamma * (self._leave @ a) / (1 + self.gamma * (self._leave @ length))
        h = np.zeros(x.shape)
        h[self._others] = a - np.outer(length, c)
        return x[self.pivot] + c, h

    def flow(self, inflow: FloatArray, mass: float = 0.0) -> FloatArray:
        """d [S] with d = gamma P^T d + inflow [S], and with total `mass` where the chain is bordered."""
        if self._elimination is None:
            start = np.full(self.S, mass / self.S) if self.gamma == 1 else mass * inflow / (1 - self.gamma)
            found = self._sweep(inflow, start if self.bordered else inflow.copy(), flows=True)
            if found is not None:
                return found
            if self.work >= DIRECT_AT_ALL:
                return refined_flow(*self._between(), inflow, mass if self.bordered and self.gamma == 1 else None)
            self._eliminate()
        if not self.bordered:
            return self._system.flow(inflow)
        both = self._system.flow(np.column_stack((inflow[self._others], self.gamma * self._leave)))
        first, again = both[:, 0], both[:, 1]  # visits before the pivot, and between two visits of it
        if self.gamma < 1 and (inflow >= 0).all():  # nothing is subtracted
            arrive = float(inflow[self.pivot] + self.gamma * (self._arrive @ first))
            visits = arrive / ((1 - self.gamma) * (1 + again.sum()))
        else:
            visits = (mass - first.sum()) / (1 + again.sum())
        d = np.empty(self.S)
        d[self.pivot], d[self._others] = visits, first + visits * again
        return d

    @property
    def _system(self) -> Elimination:
        assert self._elimination is not None
        return self._elimination

    def _eliminate(self) -> None:
        """Prepare elimination; where the chain keeps its mass, of the chain that ends at its pivot."""
        if not self.bordered:
            assert self.exits is not None
            self._elimination = Elimination(self.P, self.exits)
            return
        self._others = np.delete(np.arange(self.S), self.pivot)
        self._leave = self.P[[self.pivot]].toarray()[0][self._others]
        self._arrive = self.P[:, [self.pivot]].toarray()[:, 0][self._others]
        inside = self.P[self._others][:, self._others]
        self._elimination = Elimination(self.gamma * inside, (1 - self.gamma) + self.gamma * self._arrive)

    def _sweep(self, x: FloatArray, y: FloatArray, *, flows: bool) -> FloatArray | None:
        """The limit of y <- x + gamma P y (P^T if `flows`), in place; None where another method is the better way."""
        tau = DAMPING if self.bordered and self.gamma == 1 else 1.0
        relative = self.bordered and not flows
        P, change = sparse_rows(self.P), np.empty(self.S)
        settled = settle(P, readonly(x), self.gamma, tau, flows, relative, self.pivot, SWEEPS, y, change)
        return y if settled else None

    def _between(self) -> tuple[Any, FloatArray]:
        """Transitions between different states, times gamma, and exits [S]."""
        between = sparse.csr_array(self.gamma * (self.P - sparse.diags_array(self.P.diagonal())))
        return between, np.full(self.S, 1 - self.gamma) if self.exits is None else self.exits

    def _refined_values(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """As `values`, by a Krylov method."""
        between, exits = self._between()
        found = [refined_values(between, exits, row, self.pivot if self.bordered else None) for row in x.T]
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
