"""Toy environments of Gymnasium, each with a cost, as exact models that are read from their transition tables.

The table `unwrapped.P` lists, for every state and action, (probability, next state, reward, terminated). An `Outcome`
says what a transition earns and costs. A state that an episode ends in becomes absorbing, with reward and cost 0 from
then on: over a fixed horizon that is the same as ending.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.outcomes import Outcomes
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

Outcome = Callable[[int, int, int, float], tuple[float, float]]  # (s, a, s_next, reward) -> reward, cost


class GymTable(NamedTuple):
    """All transitions of a table; each array has one entry per transition."""

    s: IntArray  # state
    a: IntArray  # action
    s_next: IntArray  # next state
    p: FloatArray  # probability
    reward: FloatArray  # what the transition earns
    cost: FloatArray  # what it costs
    over: BoolArray  # whether the episode ends

    @classmethod
    def of(cls, P: Mapping[int, Mapping[int, Sequence[Any]]], outcome: Outcome) -> GymTable:
        """The transitions of `unwrapped.P`."""
        rows = [
            (s, a, s_next, p, *outcome(s, a, int(s_next), float(reward)), over)
            for s, actions in P.items()
            for a, row in actions.items()
            for p, s_next, reward, over in row
        ]
        s, a, s_next, p, reward, cost, over = (np.array(column) for column in zip(*rows, strict=True))
        return cls(s, a, s_next, p, reward, cost, over)

    def model(self, start: FloatArray, H: int, constraint: Constraint, **names: Any) -> CMDP:
        """The CMDP of these transitions over H steps, with the cost as the constraint's signal."""
        S, A = len(start), int(self.a.max()) + 1
        ends = self._ends(start)
        lives = ~ends[self.s]
        rows = (self.s * A + self.a)[lives]
        loops = (np.flatnonzero(ends)[:, None] * A + np.arange(A)).ravel()
        outcomes = Outcomes.from_entries(
            (1, S, A),
            np.concatenate((rows, loops)),
            np.concatenate((self.s_next[lives], loops // A)),
            np.concatenate((self.p[lives], np.ones(len(loops)))),
            np.concatenate((np.stack((self.reward, self.cost), axis=-1)[lives], np.zeros((len(loops), 2)))),
        )
        return CMDP(outcomes, mu=start, horizon=H, constraints=[constraint], exact=True, **names)

    def _ends(self, start: FloatArray) -> BoolArray:
        """In which states an episode may end, [S]; raises CmdpkitError if it may also go on from one of them."""
        going = start > 0
        while True:
            onward = np.unique(self.s_next[going[self.s] & ~self.over])
            if going[onward].all():
                break
            going[onward] = True
        ends = np.zeros(len(start), dtype=bool)
        ends[self.s_next[going[self.s] & self.over]] = True
        if (going & ends).any():
            s = int(np.flatnonzero(going & ends)[0])
            raise CmdpkitError(f"an episode may end in state {s} and may go on from there: it cannot be absorbing")
        return ends
