"""Everything that MF-PRI knows between two episodes: what a checkpoint keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cmdpkit.learners import Spec
from cmdpkit.learners.mf_pri.moments import record_size
from cmdpkit.learners.mf_pri.play import MfPriEpisode, Samples
from cmdpkit.learners.mf_pri.schedule import MfPriTimetable
from cmdpkit.learners.mf_pri.settings import ModelFreeParams
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray


class MfPriTask(NamedTuple):
    """What does not change during a run."""

    spec: Spec  # what the learner was told
    params: ModelFreeParams  # its parameters
    table: MfPriTimetable  # when which phase, epoch and block begins
    z_out: float  # an action is ruled out when its advantage is this many standard errors below 0


@dataclass
class History:
    """What every epoch ended with; arrays [epochs] and, by constraint, [epochs, N]."""

    until: FloatArray  # episodes played by then
    starts: FloatArray  # episodes of the policy itself, without deviations
    changed: BoolArray  # whether the support has changed
    undecided: IntArray  # actions neither in use nor ruled out
    explored: IntArray  # actions worth deviating to
    value: FloatArray  # mean return of the policy
    lam: FloatArray  # [epochs, N]: prices
    utilities: FloatArray  # [epochs, N]: mean utilities of the policy
    short: FloatArray  # [epochs, N]: what the improvement missed of its target
    extra: IntArray  # [epochs, N]: actions in use beyond one per decision, as flat indices of [H, S, A]; -1 for none
    chance: FloatArray  # [epochs, N]: their probabilities

    @classmethod
    def empty(cls, epochs: int, N: int) -> History:
        """Before the first epoch has ended."""
        numbers, per_bound = np.zeros(epochs), np.zeros((epochs, N))
        return cls(
            until=numbers,
            starts=numbers.copy(),
            changed=np.zeros(epochs, dtype=bool),
            undecided=np.zeros(epochs, dtype=np.int64),
            explored=np.zeros(epochs, dtype=np.int64),
            value=numbers.copy(),
            lam=per_bound,
            utilities=per_bound.copy(),
            short=per_bound.copy(),
            extra=np.full((epochs, N), -1),
            chance=np.full((epochs, N), -1.0),
        )


@dataclass
class MfPriProgress:
    """The state of a run; arrays are changed in place."""

    pi: FloatArray  # [H, S, A]: the policy of this epoch
    playing: FloatArray  # [H, S, A]: what the block plays, deviations left out
    final: FloatArray  # [H, S, A]: the policy to hand over, once it is fixed
    base: IntArray  # [H, S]: the likeliest action of pi
    core: BoolArray  # [H, S, A]: actions in use when exploration ended
    decided: BoolArray  # [H, S, A]: actions ruled out
    explore: BoolArray  # [H, S, A]: actions not in use that are worth deviating to
    lam: FloatArray  # [N]: prices
    sd: FloatArray  # [N]: standard deviations of an episode's utilities
    short: FloatArray  # [N]: what the last improvement missed of the bounds
    uncovered: FloatArray  # [N]: what the policy to hand over misses of its margin
    reach: FloatArray  # [H, S]: probability of getting there
    effect: FloatArray  # [H, S, A, N]: change of the utilities per probability moved from base to an extra action
    ahead: FloatArray  # [(H+1)*S, 1+N]: value estimates of this epoch
    known: BoolArray  # [(H+1)*S]: where they are good enough to be used
    played: FloatArray  # [H, S, A]: policies summed over the episodes of `Samples.start`
    advantage: FloatArray  # [H, S, A]: of every action over the base action, at the last improvement
    se: FloatArray  # [H, S, A]: its standard error
    history: History  # what every epoch so far ended with
    hoped_lam: FloatArray  # [N]: prices at the end of the warm-up
    hoped: FloatArray  # [S]: what an episode from there could be worth at these prices, by the warm-up's optimism
    block_end: int  # episode at which the running block ends
    noise: float  # standard deviation of an episode's return at the present prices
    loss: float  # what a deviation costs on average
    episode: int = 0  # episodes played
    epoch: int = 0  # epochs that have ended
    new_block: bool = False  # whether no episode of the block has begun
    certifying: bool = False  # whether the block plays `final`
    support_changes: int = 0  # improvements that changed the set of actions in use
    deviation_chance: float = 0.0  # probability per step that a deviation is asked for
    counted_starts: float = 0.0  # n of `Samples.start` when the block began


def new_progress(spec: Spec, table: MfPriTimetable) -> MfPriProgress:
    """The state before the first episode."""
    H, S, A, N = spec.H, spec.S, spec.A, spec.N
    cells = (H, S, A)
    return MfPriProgress(
        pi=np.zeros(cells),
        playing=np.zeros(cells),
        final=np.zeros(cells),
        base=np.zeros((H, S), dtype=np.int64),
        core=np.zeros(cells, dtype=bool),
        decided=~spec.allowed,
        explore=np.zeros(cells, dtype=bool),
        lam=np.zeros(N),
        sd=np.full(N, H / 4),
        short=np.zeros(N),
        uncovered=np.zeros(N),
        reach=np.zeros((H, S)),
        effect=np.zeros((*cells, N)),
        ahead=np.zeros(((H + 1) * S, 1 + N)),
        known=np.zeros((H + 1) * S, dtype=bool),
        played=np.zeros(cells),
        advantage=np.zeros(cells),
        se=np.full(cells, np.inf),
        history=History.empty(len(table.ends), N),
        hoped_lam=np.zeros(N),
        hoped=np.zeros(S),
        block_end=table.warm,
        noise=H / 4,
        loss=H / 4,
    )


def new_samples(spec: Spec, table: MfPriTimetable) -> Samples:
    """No samples yet."""
    H, S, A, M = spec.H, spec.S, spec.A, 1 + spec.N
    size = record_size(M)
    return Samples(
        rows=np.zeros((H * S * A, size)),
        values=np.zeros((H * S, size)),
        start=np.zeros(size),
        sample=np.zeros((table.batches, M)),
        sampled=np.zeros(1, dtype=np.int64),
        visits=np.zeros(H * S),
        totals=np.zeros(M),
    )


def new_episode(spec: Spec) -> MfPriEpisode:
    """Before the first episode."""
    H, M = spec.H, 1 + spec.N
    return MfPriEpisode(
        states=np.zeros(H + 1, dtype=np.uint64),
        actions=np.zeros(H, dtype=np.uint64),
        deviations=np.zeros(H, dtype=bool),
        signals=np.zeros((H, M)),
        total=np.zeros(M),
        target=np.zeros(M),
    )


def extra_actions(progress: MfPriProgress) -> BoolArray:
    """[H, S, A]: actions in use other than the base action, the controls of the closed loop."""
    extra = progress.pi > 0
    np.put_along_axis(extra, progress.base[..., None], False, axis=-1)
    return extra
