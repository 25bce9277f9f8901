"""Everything that practical PRI knows between two episodes, as named arrays: what a checkpoint keeps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.learners import Spec
from cmdpkit.learners.pri.practical.moments import record_size
from cmdpkit.learners.pri.practical.plan import Params, Timetable
from cmdpkit.learners.pri.practical.play import Tables, Tape
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

# clock
EPISODE, BLOCK_END, EPOCH, NEW, CERTIFY, CHANGES = range(6)
# scales
SIGMA, LOSS, COIN, COUNTED = range(4)
# history, before the N prices, utilities, shortfalls and N pairs (action, probability)
LOG_EPISODE, LOG_STARTS, LOG_CHANGED, LOG_UNDECIDED, LOG_EXPLORED, LOG_VALUE, LOG_FIRST = range(7)


class Task(NamedTuple):
    """What does not change during a run."""

    spec: Spec
    params: Params
    table: Timetable
    z_out: float  # an action is ruled out when its advantage is this many standard errors below 0
    z_safe: float  # standard errors of its utilities by which the policy handed over must clear the bounds


class Book(NamedTuple):
    """The state of a run; arrays are changed in place."""

    pi: FloatArray  # [H, S, A]: the policy of this epoch
    playing: FloatArray  # [H, S, A]: what the block plays, deviations left out
    final: FloatArray  # [H, S, A]: the policy to hand over, once it is fixed
    base: IntArray  # [H, S]: the likeliest action of pi
    core: BoolArray  # [H, S, A]: actions in use when exploration ended
    decided: BoolArray  # [H, S, A]: actions ruled out
    explore: BoolArray  # [H, S, A]: actions not in use that are worth deviating to
    lam: FloatArray  # [N]
    sd: FloatArray  # [N]: of an episode's utilities
    short: FloatArray  # [N]: what the last improvement missed of its target
    scales: FloatArray  # [4], see SIGMA ..: noise of an episode, loss of a deviation, chance of one per step,
    #                     and the n of Tables.start when the block began
    reach: FloatArray  # [H, S]
    effect: FloatArray  # [H, S, A, N]: change of the utilities per probability moved from base to an extra action
    ahead: FloatArray  # [(H+1)*S, 1+N]: value estimates of this epoch
    known: BoolArray  # [(H+1)*S]
    played: FloatArray  # [H, S, A]: policies summed over the episodes of `Tables.start`
    advantage: FloatArray  # [H, S, A]: at the last improvement
    se: FloatArray  # [H, S, A]
    clock: NDArray[np.int64]  # [6], see EPISODE ..: NEW, has the block not begun? CERTIFY, does it play `final`?
    history: FloatArray  # [epochs, 6 + 5 N], see LOG_EPISODE ..


def new_book(spec: Spec, table: Timetable) -> Book:
    """The state before the first episode."""
    H, S, A, N = spec.H, spec.S, spec.A, spec.N
    cells = (H, S, A)
    return Book(
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
        scales=np.array([H / 4, H / 4, 0.0, 0.0]),
        reach=np.zeros((H, S)),
        effect=np.zeros((*cells, N)),
        ahead=np.zeros(((H + 1) * S, 1 + N)),
        known=np.zeros((H + 1) * S, dtype=bool),
        played=np.zeros(cells),
        advantage=np.zeros(cells),
        se=np.full(cells, np.inf),
        clock=np.array([0, table.warm, 0, 0, 0, 0]),
        history=np.zeros((len(table.ends), LOG_FIRST + 5 * N)),
    )


def new_tables(spec: Spec) -> Tables:
    """No samples yet."""
    H, S, A, M = spec.H, spec.S, spec.A, 1 + spec.N
    size = record_size(M)
    return Tables(
        rows=np.zeros((H * S * A, size)),
        values=np.zeros((H * S, size)),
        start=np.zeros(size),
        sample=np.zeros(size),
        visits=np.zeros(H * S),
        totals=np.zeros(M),
    )


def new_tape(spec: Spec) -> Tape:
    """Room for one episode."""
    H, M = spec.H, 1 + spec.N
    return Tape(
        states=np.zeros(H + 1, dtype=np.uint64),
        actions=np.zeros(H, dtype=np.uint64),
        coins=np.zeros(H, dtype=bool),
        signals=np.zeros((H, M)),
        total=np.zeros(M),
        target=np.zeros(M),
    )


def extra_actions(book: Book) -> BoolArray:
    """[H, S, A]: actions in use other than the base action, the controls of the closed loop."""
    extra = book.pi > 0
    np.put_along_axis(extra, book.base[..., None], False, axis=-1)
    return extra
