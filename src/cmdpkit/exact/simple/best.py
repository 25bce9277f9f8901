"""The simplest good candidate so far."""

from __future__ import annotations

from cmdpkit.exact.simple.judge import Candidate, Judge
from cmdpkit.exact.simple.shape import Shape


class Best:
    """The simplest good candidate so far."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.candidate: Candidate = judge.filled(judge.optimum)
        self.shape: Shape = judge.shape_of(judge.optimum)
        if not judge.good(self.candidate):  # rounding
            self.candidate = judge.optimum

    def offer(self, candidate: Candidate) -> bool:
        """Keep a candidate if it is good and simpler; of two that are as simple, the one with the larger value."""
        if not self.judge.good(candidate):
            return False
        shape = self.judge.shape_of(candidate)
        better = (*shape, -candidate.totals[0]) < (*self.shape, -self.candidate.totals[0])
        if better:
            self.candidate, self.shape = candidate, shape
        return better
