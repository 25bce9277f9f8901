"""Backward induction on a model with a horizon: which policy is best, and the totals of a policy.

Column generation asks for thousands of inductions on one model. Its rows and signals are in the form of the operators
already, so each of them is one call (`operators.steps`), on several threads where the model is large.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import call, readonly
from cmdpkit.model.decisions import Decisions, undrawn
from cmdpkit.model.transitions import FloatArray
from cmdpkit.operators.steps import Steps, Threads, evaluation, induction

Choice = NDArray[np.int16]  # [H, S], action index; A <= 32767 is checked


class Induction:
    """Backward induction in a model with a horizon."""

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
        given = self.cmdp.rows, self.cmdp.signals, Decisions(*map(readonly, policy))
        self.steps.backward(lambda *place: call(evaluation, self._work, *given, *place, X, Q))
        return self._from_start(X)

    def _room(self, *signals: int) -> FloatArray:
        """Values of a step and of the one after it, in turn; 0 after the last step."""
        return np.zeros((2, self.cmdp.S, *signals))

    def _from_start(self, X: FloatArray) -> FloatArray:
        """Totals [n] from the start, given those from every state at the first step, X[0] [S, n]."""
        return np.array([self.cmdp.mu @ np.ascontiguousarray(x) for x in X[0].T])
