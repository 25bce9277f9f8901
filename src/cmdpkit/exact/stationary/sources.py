"""Where columns come from: for given weights of reward and utilities, a best policy, its values, and a bound.

A column is a policy with its start values and the occupancy that gives them. For long-run averages it is one recurrent
class and not a whole policy: the best policy may have several classes, each of which is as good as the others and may
be mixed with them in any proportion.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from cmdpkit.exact.stationary.components import Rows
from cmdpkit.exact.stationary.pricing import Recurrent, Transient
from cmdpkit.model.chains import Chain, closed_classes, within
from cmdpkit.model.transitions import FloatArray, IntArray


class Column(NamedTuple):
    """A deterministic policy or a recurrent class of one, with its values in scaled units."""

    v: float
    w: FloatArray  # [N]
    rows: IntArray  # the rows it takes, at most one per state
    q: FloatArray  # occupancy of these rows
    weights: FloatArray  # [1 + N], of reward and utilities in the objective for which it is best
    plan: Any = None  # how to reach the classes, where there are several end components

    def differences(self, other: Column) -> int:
        """Number of rows that this column takes and the other does not."""
        return len(np.setdiff1d(self.rows, other.rows, assume_unique=True))


class Source(Protocol):
    """What column generation needs to know of a problem."""

    X: FloatArray  # [1 + N, R], scaled reward and utilities

    def price(self, weights: FloatArray, slack: float = 0.0) -> tuple[float, list[Column]]:
        """An upper bound on weights . (v, w) over all policies, and columns within about `slack` of it."""


def _column(X: FloatArray, rows: IntArray, q: FloatArray, weights: FloatArray) -> Column:
    values = X[:, rows] @ q
    return Column(float(values[0]), values[1:], rows, q, weights)


def class_columns(
    P: Any, X: FloatArray, choice: IntArray, weights: FloatArray, work: float | None = None
) -> list[Column]:
    """One column per recurrent class of the chain P [S, S] of a choice of rows [S], the best for `weights` first."""
    columns = []
    for members in closed_classes(P):
        chain = Chain(within(P, members), work=work)
        q = np.maximum(chain.flow(np.zeros(len(members)), 1.0), 0.0)
        columns.append(_column(X, choice[members], q / q.sum(), weights))
    columns.sort(key=lambda c: -float(weights @ np.append(c.v, c.w)))
    return columns


class Discounted:
    """Normalised discounted values from the start mu."""

    def __init__(self, rows: Rows, X: FloatArray, gamma: float, mu: FloatArray) -> None:
        self.rows, self.X, self.gamma, self.mu = rows, X, gamma, mu
        self.engine = Recurrent(rows, gamma, mu)

    def price(self, weights: FloatArray, slack: float = 0.0) -> tuple[float, list[Column]]:
        """One column: the occupancy of the best policy."""
        upper, choice = self.engine.best(weights @ self.X, float(np.abs(weights).sum()), slack)
        chain = Chain(self.rows.P[choice], self.gamma, work=self.engine.chain_work)
        q = np.maximum(chain.flow((1 - self.gamma) * self.mu, 1.0), 0.0)
        return upper, [_column(self.X, choice, q / q.sum(), weights)]


class Total:
    """Totals until absorption from the start mu."""

    def __init__(self, rows: Rows, X: FloatArray, mu: FloatArray) -> None:
        self.rows, self.X, self.mu = rows, X, mu
        self.engine = Transient(rows, mu)

    def price(self, weights: FloatArray, slack: float = 0.0) -> tuple[float, list[Column]]:
        """One column: the expected visits under the best policy."""
        upper, choice = self.engine.best(weights @ self.X, float(np.abs(weights).sum()), slack)
        chain = Chain(self.rows.P[choice], bordered=False, work=self.engine.chain_work)
        return upper, [_column(self.X, choice, np.maximum(chain.flow(self.mu), 0.0), weights)]


class Average:
    """Long-run averages in one end component."""

    def __init__(self, rows: Rows, X: FloatArray) -> None:
        self.rows, self.X = rows, X
        self.engine = Recurrent(rows, 1.0, np.zeros(rows.S))

    def price(self, weights: FloatArray, slack: float = 0.0) -> tuple[float, list[Column]]:
        """One column per recurrent class of the best policy, the best of them first."""
        o = weights @ self.X
        upper, choice = self.engine.best(o, float(np.abs(weights).sum()), slack)
        return upper, class_columns(self.rows.P[choice], self.X, choice, weights, self.engine.chain_work)
