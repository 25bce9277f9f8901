"""PRI: prune, refine and identify one policy, as published.

"Model-Free, Regret-Optimal Best Policy Identification in Online CMDPs" (arXiv 2309.15395). A base learner is run again
and again to find which actions an optimum needs. Then the few deterministic policies that are left are mixed, and at
last the mixture is written as one Markov policy with at most N stochastic decisions. Output: that policy.
Memory O(H S A (1 + N)), and O(H S) for each of the policies. Our own algorithm for the same purpose is `cl_pri`.

Refinement works on the problem with tightened thresholds rho + eps_rho. The phases are in `prune` and `refine`, whose
docstrings list the departures from the paper; constants and schedules are in `presets`. The preset "printed" is the
published synthetic experiment: refinement and identification as printed, after pruning by long base runs of Triple-Q
whose settings are ours, because the paper does not print them. Its pruning is not tightened.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners import Learner, Source, Spec, State
from cmdpkit.learners._note import Note
from cmdpkit.learners.pri.presets import PRIParams, notes, printed_preset, theory_preset
from cmdpkit.learners.pri.prune import COUNT, SUM, Pruning, add_up, empty_tally, told, with_prefix, without_prefix
from cmdpkit.learners.pri.refine import Refinement, policies_in
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import Stream

PHASES = ("pruning by usage", "pruning by comparison", "refinement", "identification")
NOT_YET = -1  # in place of the first episode of a phase that has not begun


class PRI(Learner):
    """The published algorithm at work; keyword arguments change single parameters of the preset.

    >>> from cmdpkit import envs
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/synthetic")
    >>> learner = PRI(Spec.of(cmdp, K=1_500_000))
    >>> _ = learner.run(Source.of(cmdp), stream(1), 1_500_000)
    >>> learner.phases()
    (('pruning by usage', 0), ('refinement', 100000), ('identification', 799732))
    """

    title = "PRI: prune, refine and identify one policy, with at most as many stochastic decisions as constraints."
    guarantee = (
        "as published, if the optimum is well separated, with preset theory and for K beyond any that can be run: "
        "regret of order H sqrt(K), zero weak violation, and one policy within order 1/sqrt(K) of the optimum"
    )
    paper = "arXiv 2309.15395"
    source = "text"
    presets = {"printed": printed_preset, "theory": theory_preset}

    changing: ClassVar[tuple[str, ...]] = ("played", "begins", "earned")
    params: PRIParams

    def __init__(self, spec: Spec, *, preset: str | None = None, **params: Any) -> None:
        super().__init__(spec, preset=preset, **_with_quorum(params))
        self.notes = notes(spec, self.preset, self.params)
        self.pruning = Pruning(spec, self.preset, self.params)
        self.refinement: Refinement | None = None
        self.played = 0  # episodes
        self.begins = np.full(len(PHASES), NOT_YET, dtype=np.int64)  # first episode of each phase
        self.earned = np.stack([empty_tally(spec.N) for _ in PHASES])  # [phases, 2, 1+N]: all returns
        self._total = np.zeros(1 + spec.N)  # of the running episode, when it is driven step by step

    def _play(self, source: Source, rng: Stream, out: FloatArray, first: int) -> int:
        """Play to the end of a base run or of a block of refinement at most."""
        self._note_phase()
        played = self._work.play(source, rng, out[:, first:])
        self._count(out[:, first : first + played])
        return played

    def begin(self, rng: Stream) -> None:
        """Let the base learner prepare the episode, while there is one."""
        if self.refinement is None:
            self.pruning.current.begin(rng)

    def first(self, s: int, rng: Stream) -> int:
        """Begin an episode in state s: the action to take."""
        self._total[...] = 0.0
        self._note_phase()
        return self._acting.first(s, rng)

    def next(self, signals: FloatArray, s: int, rng: Stream) -> int:
        """Learn from a step's reward and utilities [1+N], which led to s: the action to take there."""
        self._total += signals
        return self._acting.next(signals, s, rng)

    def last(self, signals: FloatArray) -> None:
        """Learn from the last step's reward and utilities [1+N], and end the episode."""
        self._total += signals
        self._work.last(signals, self._total)
        self._count(self._total[:, None])

    @property
    def _work(self) -> Pruning | Refinement:
        """What plays the next episode."""
        return self.pruning if self.refinement is None else self.refinement

    @property
    def _acting(self) -> Learner | Refinement:
        """What chooses its actions: while pruning, the base learner."""
        return self.pruning.current if self.refinement is None else self.refinement

    def _note_phase(self) -> None:
        """Keep the number of the next episode if a phase begins with it."""
        if self.begins[self._phase] == NOT_YET:
            self.begins[self._phase] = self.played

    def _count(self, returns: FloatArray) -> None:
        """Count episodes that were played, with returns [1+N, n]; when pruning is over, begin refinement."""
        add_up(returns, self.earned[self.begins.argmax()])  # to the phase that has begun last
        self.played += returns.shape[1]
        if self.refinement is None and self.pruning.done:
            self.refinement = self._refinement_of(self.pruning)

    def _refinement_of(self, pruning: Pruning) -> Refinement:
        return Refinement(self.spec, self.params, pruning.D, pruning.use, self.spec.rho + self.params.eps_rho)

    @property
    def _phase(self) -> int:
        """Which of PHASES the next episode belongs to; both kinds of run of a comparison belong to the second."""
        return min(self.pruning.stage, 1) if self.refinement is None else 2 + self.refinement.phase

    def behaviour(self) -> FloatArray:
        """pi [H, S, A] that the next episode plays."""
        return self._acting.behaviour()

    def recommend(self) -> FloatArray:
        """pi [H, S, A] to return now: from visits in the later phases, the base learner's while pruning."""
        return self._acting.recommend()

    def phases(self) -> tuple[tuple[str, int], ...]:
        """Phases begun so far, with their first episodes, counting from 0."""
        return tuple((name, int(k)) for name, k in zip(PHASES, self.begins, strict=True) if k != NOT_YET)

    def warnings(self) -> tuple[str | Note, ...]:
        """Sentences about what looks wrong at this point of the run."""
        said: list[str | Note] = []
        untested = int(self.pruning.untested.sum()) if self.pruning.done else 0
        if untested:
            said.append(
                f"pruning ended after prune_max = {self.params.prune_max:,} episodes with {untested} actions not "
                "tested: they were kept"
            )
        return (*said, *self._about_policies())

    def _about_policies(self) -> list[str | Note]:
        """Warnings of refinement: too many policies, a floor too high, weights that meet no threshold."""
        found = self.refinement
        if found is None:
            return []
        said: list[str | Note] = []
        if policies_in(self.pruning.D) > found.M:
            said.append(
                f"pruning left more than {found.M} policies: refinement takes those whose actions were visited most; "
                "max_policies raises that, compare=true or more runs prune further"
            )
        if found.floor < self.params.floor:
            said.append(
                f"the floor {self.params.floor:.3g} exceeds 1 / M with M = {found.M} policies: all weights are 1 / M"
            )
        if found.last_short:
            said.append(
                f"no weights of the {found.M} policies seem to meet the tightened thresholds: the smallest margin is "
                "maximised instead"
            )
        missed = self.spec.rho - found.alpha @ found.estimates()[1]
        noise = self.spec.H / np.sqrt(max(found.sums[:, 0].min(), 1.0))
        for n in np.flatnonzero(missed > noise):
            said.append(Note("pruned too far", int(n), by=float(missed[n])))
        return said

    def internals(self) -> dict[str, Any]:
        """Thresholds, surviving actions, tests, policies and weights, as plain values.

        Steps count from 1; states and actions are given by index, counting from 0.
        """
        pruning = self.pruning
        said: dict[str, Any] = {"tightening": [round(self.params.eps_rho, 6)] * self.spec.N}
        said["actions"] = {"to begin with": int(self.spec.allowed.sum()), "now": int(pruning.D.sum())}
        if pruning.actions_after_usage:
            said["actions"]["after usage"] = pruning.actions_after_usage
            said["open decisions"] = pruning.open_decisions()
        if len(pruning.tests):
            said["tests"] = [told(row) for row in pruning.tests]
        if self.refinement is not None:
            said["policies"] = self._policies(self.refinement)
            said["weights by round"] = {int(row[0]): row[1:].round(4).tolist() for row in self.refinement.history}
            said["rounds without feasible weights"] = self.refinement.rounds_short
        said["returns"] = self._returns()
        return said

    def _returns(self) -> list[dict[str, Any]]:
        """The total reward and utilities of the episodes of every phase, in unit scale."""
        return [
            {
                "phase": name,
                "episodes": int(tally[COUNT, 0]),
                "reward": float(tally[SUM, 0]),
                "utilities": tally[SUM, 1:].tolist(),
            }
            for name, tally in zip(PHASES, self.earned, strict=True)
            if tally[COUNT, 0] > 0
        ]

    def _policies(self, found: Refinement) -> list[dict[str, Any]]:
        """Each policy's actions at the open decisions, weight and estimates."""
        v, w = found.estimates()
        several = np.argwhere(self.pruning.D.sum(axis=-1) > 1)
        choices = found.choices.reshape(found.M, self.spec.H, self.spec.S)
        return [
            {
                "actions": [int(choices[m, h, s]) for h, s in several],
                "weight": round(float(found.alpha[m]), 6),
                "plays": int(found.plays[:, m].sum()),
                "value": round(float(v[m]), 6),
                "utilities": w[m].round(6).tolist(),
            }
            for m in range(found.M)
        ]

    def state(self) -> dict[str, NDArray[Any]]:
        """Copies of all arrays that change; those of the phases under "pruning/" and "refinement/"."""
        later = {} if self.refinement is None else with_prefix("refinement/", self.refinement.state())
        return super().state() | with_prefix("pruning/", self.pruning.state()) | later

    def restore(self, state: State) -> None:
        """Continue from a state, in a learner made with the same arguments; one that does not fit changes nothing."""
        pruning, refinement = Pruning(self.spec, self.preset, self.params), None
        pruning.restore(without_prefix("pruning/", state))
        if pruning.done:
            refinement = self._refinement_of(pruning)
            refinement.restore(without_prefix("refinement/", state))
        super().restore(state)
        self.pruning, self.refinement = pruning, refinement


def _with_quorum(params: dict[str, Any]) -> dict[str, Any]:
    """Where the number of usage runs is changed and the quorum is not, more than half of the runs are needed."""
    runs = params.get("runs")
    if isinstance(runs, int | float) and math.isfinite(runs):
        return {"quorum": int(runs) // 2 + 1, **params}
    return params
