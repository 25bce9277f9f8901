"""Where columns come from: with a horizon, deterministic policies [H, S] that are priced by backward induction."""

from __future__ import annotations

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.columns import Columns, Found, Parts, PolicyColumn, Pool, Units
from cmdpkit.exact.stationary.problem import Arrays
from cmdpkit.exact.stationary.sources import BRIDGE, Stationary
from cmdpkit.exact.vertex import Choice, blend, policy_of, purify
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import call, readonly
from cmdpkit.model.decisions import Decisions, undrawn
from cmdpkit.model.tolerances import FEASIBLE, ROUNDOFF
from cmdpkit.model.transitions import FloatArray
from cmdpkit.operators.row_lists import lengths
from cmdpkit.operators.steps import NO_CHOICE, Steps, Threads, induction

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
