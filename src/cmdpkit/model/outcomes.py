"""What single steps bring: next state, reward and signals, drawn together.

The optimum, and every expected total, depend on a reward only through its mean for state and action. What a single
episode brings depends on more. A model that was given rewards by next state, or by `outcome`, keeps them here, sparse,
beside its rows, and whatever plays single episodes draws from them. Transitions and means are derived.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray, Kernel, checked_entries
from cmdpkit.model.validate import frozen, nearest, numbers


@dataclass(frozen=True, eq=False)
class Outcomes:
    """All outcomes of every state and action, with their probabilities; build it with `from_entries`.

    >>> spins = Outcomes.from_entries((1, 1, 1), [0, 0], [0, 0], [0.9, 0.1], [[0.0], [5.0]])  # 5 with 10 %
    >>> spins.means().tolist(), spins.kernel().prob.tolist()
    ([[[[0.5]]]], [1.0])
    """

    entries: Kernel  # one entry per outcome; unlike in a model's own kernel, a row may have a next state several times
    signals: FloatArray  # [outcomes, 1 + N], reward and what the constraints count, in the user's units and sense

    @classmethod
    def from_entries(
        cls, shape: tuple[int, int, int], rows: IntArray, successors: IntArray, prob: FloatArray, signals: Any
    ) -> Outcomes:
        """Outcomes in any order; equal ones are added up, and those of probability 0 left out.

        Parameters
        ----------
        shape : (T, S, A), with T = 1 if nothing depends on the step, and T = H otherwise
        rows : [outcomes], (t * S + s) * A + a of step t, state s and action a
        successors, prob : [outcomes], next state and probability
        signals : [outcomes, 1 + N], the reward and what each constraint counts
        """
        rows, successors = checked_entries(shape, rows, successors)
        prob, signals = numbers("probabilities of outcomes", prob), numbers("signals of outcomes", signals) + 0.0
        if signals.ndim != 2 or not signals.shape[1] or {rows.shape, successors.shape, prob.shape} != {(len(signals),)}:
            sizes = ", ".join(str(x.shape) for x in (rows, successors, prob, signals))
            raise CmdpkitError(
                f"outcomes have rows, next states, probabilities and signals of shapes {sizes}; expected (n,) three "
                "times and (n, 1 + N), a reward and N signals for each of n outcomes"
            )
        order = np.lexsort((*signals.T[::-1], successors, rows))
        rows, successors, prob, signals = rows[order], successors[order], prob[order], signals[order]
        first = np.ones(len(rows), dtype=bool)
        again = (rows[1:] == rows[:-1]) & (successors[1:] == successors[:-1])
        first[1:] = ~(again & (signals[1:] == signals[:-1]).all(axis=1))
        if len(rows):
            prob = np.add.reduceat(prob, np.flatnonzero(first))
        kept = np.flatnonzero(first)[prob != 0]
        return cls(Kernel.in_order(shape, rows[kept], successors[kept], prob[prob != 0]), frozen(signals[kept]))

    @property
    def T(self) -> int:
        """Steps with outcomes of their own: 1, or H."""
        return self.entries.T

    def kernel(self) -> Kernel:
        """The transitions."""
        e = self.entries
        return Kernel.from_entries(e.shape, e.rows, e.successors.astype(np.int64), e.prob).once()

    def means(self) -> FloatArray:
        """The mean of every signal, [1 + N, 1 or H, S, A]; 0 where there is no outcome."""
        low, high = self.extremes()
        made = np.zeros((self.signals.shape[1], low[0].size))
        filled, starts = self.entries.filled()
        if len(filled):
            with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # a model refuses what is not finite
                weights = np.add.reduceat(self.entries.prob, starts)
                for mean, x in zip(made, self.signals.T, strict=True):
                    mean[filled] = np.add.reduceat(self.entries.prob * x, starts) / weights
        made = np.clip(made.reshape(low.shape), low, high)  # no rounding where all outcomes are the same
        return made[:, :1] if (made == made[:, :1]).all() else made

    def extremes(self) -> tuple[FloatArray, FloatArray]:
        """The smallest and the largest value of every signal, [1 + N, T, S, A] each; 0 where there is no outcome."""
        made = np.zeros((2, self.signals.shape[1], len(self.entries.lengths)))
        filled, starts = self.entries.filled()
        if len(filled):
            made[0][:, filled] = np.minimum.reduceat(self.signals, starts).T
            made[1][:, filled] = np.maximum.reduceat(self.signals, starts).T
        low, high = made.reshape(2, -1, *self.entries.shape)
        return low, high

    def varying(self) -> BoolArray:
        """Which signals are not decided by step, state and action, [1 + N]."""
        low, high = self.extremes()
        return np.asarray((low != high).any(axis=(1, 2, 3)))

    def masked(self, allowed: BoolArray) -> Outcomes:
        """The outcomes of the allowed actions [1 or H, S, A]."""
        rows = self.entries.masked(allowed)
        if rows is self.entries:
            return self
        kept = (rows.lengths > 0)[self.entries.rows]
        return Outcomes(rows, frozen(self.signals[kept]))

    def corrected(self) -> Outcomes:
        """The same with rows that do not sum to 1 divided by their sum."""
        e, sums = self.entries, self.entries.sums().reshape(-1)
        off = np.abs(sums - 1) > ROW_SUM_TOLERANCE
        if not off[e.rows].any():
            return self
        return Outcomes(e.with_prob(e.prob / np.where(off, sums, 1.0)[e.rows]), self.signals)


def exactly_known(exact: Any, names: Sequence[str]) -> tuple[str, ...]:
    """The signals that are declared to be what a step brings, and not only its mean: True, or their names."""
    if exact is True or exact is False:
        return tuple(names) if exact else ()
    if isinstance(exact, str) or not isinstance(exact, Iterable):
        raise CmdpkitError(f"exact is {quoted(exact)}, expected True, or a list of names: {', '.join(names)}")
    listed = list(exact)
    for name in listed:
        if not isinstance(name, str) or name not in names:
            raise CmdpkitError(f"exact names {quoted(name)}{nearest(str(name), names)}")
    return tuple(name for name in names if name in listed)
