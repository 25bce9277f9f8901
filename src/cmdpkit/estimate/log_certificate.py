"""What a log proves about a policy, whoever chose it and whatever was looked at before: `Estimate.certificate`.

Every row of a log is a draw from the same process, so the intervals of `estimate.certificate` hold for it as they do
for a learner. They need the range of every signal, which therefore has to be declared. The optimum is that of policies
which do only what the log has tried: about anything else a log says nothing.

A learner is told all states, a log is not. Unless the user has declared them, the intervals are those of Statement 17
(docs/theory/logs.md), which hold for any number of states. One more state stands for all that the log never met: every
row leads there with a probability that the log bounds, and from there on anything within the declared ranges may
follow.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import betaln, xlog1py, xlogy

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.estimate.boxes import Box
from cmdpkit.estimate.certificate import Certifier
from cmdpkit.estimate.counts import Counts, entries_of, new_counts, with_transitions
from cmdpkit.estimate.intervals import Certificate, stated
from cmdpkit.estimate.log import Log
from cmdpkit.estimate.radii import Ranges
from cmdpkit.model.cmdp import Scale
from cmdpkit.model.tolerances import ROUNDOFF, SUM_ORDER
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

HALVINGS = 60  # of an interval of length 1 or less, to find the end of another


def certified(log: Log, T: int, pi: FloatArray, confidence: float) -> Certificate:
    """What a log with a horizon proves about pi [H, S, A]; T is 1 if all steps share their counts."""
    H, scales = log.criterion.horizon, scales_of(log)
    if H is None:
        raise CmdpkitError(
            f"the log is judged by {log.criterion}, and certificates are for logs with a horizon: see evaluate"
        )
    totals = [c.sign * c.bound_on_total for c in log.constraints]
    rho = np.array([scale.total_to_unit(x, H) for scale, x in zip(scales[1:], totals, strict=True)])
    unmet = int(log.open)  # the last state stands for those that the log never met
    over, S = np.append(log.terminal, np.zeros(unmet, dtype=bool)), log.S + unmet
    shape, nothing = (T, S, log.A), np.array([scale.to_unit(0.0) for scale in scales])
    ends = np.arange(T * S * log.A).reshape(shape)[:, over, 0].ravel()  # rows in which an episode is over
    counts = counts_of_log(log, T, S, scales, ends, nothing)
    certifier = Certifier(np.ones((H, S, log.A), dtype=bool), rho, T, 1 - confidence)
    certifier.look(counts)
    box, ranges, entries = certifier.box, certifier.ranges, counts.head[ends]
    if unmet:
        fill_open_sides(log, T, counts, box, ranges, 1 - confidence)
    # It is certain that an episode that is over stays so and signals nothing.
    box.rows.lo[entries], box.rows.up[entries], box.rows.spare[ends], box.rows.unseen[ends] = 1.0, 1.0, 0.0, 0.0
    ranges.least[:, ends], ranges.most[:, ends] = nothing[:, None], nothing[:, None]
    tried = np.broadcast_to((counts.visits > 0).reshape(shape), (H, S, log.A)).copy()
    tried[~tried.any(axis=-1)] = True  # where nothing was recorded, anything may happen
    certifier.restrict(tried)
    first = np.eye(1, log.A)[0]
    played = np.append(pi, np.broadcast_to(first, (H, unmet, log.A)), axis=1)
    played = np.where(over[:, None], first, played)
    return stated(certifier.prove(played), scales, log.constraints, H, names=(log.states, log.action_names))


def scales_of(log: Log) -> list[Scale]:
    """[1 + N]: the declared ranges in the sense of "at least"; 0 is in them where an episode can be over."""
    names = ["reward", *(c.name for c in log.constraints)]
    missing = [name for name, declared in zip(names, log.declared, strict=True) if declared is None]
    if missing:
        raise CmdpkitError(
            f"the range of {', '.join(map(quoted, missing))} is not declared, and a certificate holds only for signals "
            f"whose range is known: give ranges={{{missing[0]!r}: (smallest, largest)}} to from_log"
        )
    scales = []
    for sign, declared in zip((1.0, *(c.sign for c in log.constraints)), log.declared, strict=True):
        low, high = sorted(sign * float(x) for x in declared or (0.0, 1.0))
        if log.terminal.any():
            low, high = min(low, 0.0), max(high, 0.0)
        scales.append(Scale(low, high - low if high > low else 1.0))
    return scales


def counts_of_log(log: Log, T: int, S: int, scales: list[Scale], ends: IntArray, nothing: FloatArray) -> Counts:
    """Transitions and signals of a log in unit scale; the rows `ends` stay where they are and signal `nothing`.

    If there is one state more than the log has, every visited row has an entry for it, which was seen 0 times.
    """
    A, M, own = log.A, 1 + log.N, log.rows(T, S)
    cells = T * S * A
    moves, s_next = np.append(own[log.moved], ends), np.append(log.s_next[log.moved], ends // A % S)
    unmet = np.unique(own[log.moved]) * S + S - 1 if S > log.S else np.zeros(0, dtype=np.int64)
    pairs, times = np.unique(np.append(moves * S + s_next, unmet), return_counts=True)
    times -= np.isin(pairs, unmet)
    counts = with_transitions(new_counts(T, S, A, M), pairs // S, pairs % S, times)
    visits, signs = np.append(own, ends), (1.0, *(c.sign for c in log.constraints))
    x = np.array([scale.to_unit(sign * y) for scale, sign, y in zip(scales, signs, log.x, strict=True)])
    x = np.append(x, np.repeat(nothing[:, None], len(ends), axis=1), axis=1)
    counts.moves[...] = np.bincount(moves, minlength=cells)
    counts.visits[...] = np.bincount(visits, minlength=cells)
    products = (x[m] * x[n] for m, n in zip(*np.tril_indices(M), strict=True))
    for i, y in enumerate((*x, *products)):
        counts.moments[:, i] = np.bincount(visits, weights=y, minlength=cells)
    counts.starts[...] = np.bincount(log.starts, minlength=S)
    return counts


# -- Intervals that hold for any number of states (Statement 17) -------------------------------------------------------


def fill_open_sides(log: Log, T: int, counts: Counts, box: Box, ranges: Ranges, delta: float) -> None:
    """Fill the intervals of all rows that were visited, and of the start, where the states are not known."""
    A, M = log.A, 1 + log.N
    order, new, new_starts = _discoveries(log)
    S = len(order) + 1
    # The start comes first, then the states in the order in which they were met; each has a part of delta.
    parts = np.log((order + 1.0) * (order + 2.0) * T * A * (2 + M) / delta)
    logs = np.tile(np.repeat(np.append(parts, np.inf), A), T)  # [cells]
    n, (owner, states, times) = counts.moves.astype(float), entries_of(counts)
    rows, start = box.rows, box.start
    lo, up = successor_ends(times, n[owner], logs[owner])
    surprises = np.bincount(log.rows(T, S)[log.moved & new], minlength=len(n))
    to_unmet, moved = states == S - 1, n > 0
    unmet = owner[to_unmet]
    lo[to_unmet], up[to_unmet] = 0.0, unmet_mass(surprises[unmet], n[unmet], logs[unmet])
    rows.lo[: len(owner)], rows.up[: len(owner)] = lo, up
    rows.unseen[moved] = successor_ends(np.zeros(int(moved.sum())), n[moved], logs[moved])[1]
    rows.spare[...] = np.maximum(1.0 - np.bincount(owner, weights=lo, minlength=len(n)), 0.0)
    seen = counts.visits > 0
    for m in range(M):
        k, visits = counts.moments[seen, m], counts.visits[seen].astype(float)
        ranges.least[m, seen], ranges.most[m, seen] = _ends(k, visits - k, _level(k, visits, logs[seen]))
    episodes, first = float(counts.starts.sum()), math.log(4 / delta)
    start.lo[...], start.up[...] = successor_ends(counts.starts, np.full(S, episodes), np.full(S, first))
    start.lo[-1], start.up[-1] = 0.0, unmet_mass(np.array([new_starts]), episodes, first)[0]
    start.spare[0] = max(1.0 - float(start.lo.sum()), 0.0)


def _discoveries(log: Log) -> tuple[IntArray, BoolArray, int]:
    """[S]: the number of each state in the order in which they were met, from 1; [n]: whether a transition led to a
    state that was never met before; and the number of episodes that began in such a state.
    """
    begins = log.begins
    places = np.stack((np.where(begins, log.s, -1), np.where(log.moved, log.s_next, -1)), axis=1).ravel()
    met, first = np.unique(places, return_index=True)
    met, first = met[met >= 0], first[met >= 0]
    order = np.full(log.S, len(met), dtype=np.int64)
    order[met] = np.argsort(np.argsort(first)) + 1
    new = np.zeros(len(places), dtype=bool)
    new[first] = True
    return order, new[1::2], int(new[::2].sum())


def successor_ends(k: FloatArray | IntArray, n: FloatArray, log: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Both ends for the probabilities of next states that were seen k times among n, all of a row together."""
    return _ends(k - 1.0, n - k, _level(k, n, log))


def unmet_mass(new: IntArray, n: FloatArray | float, log: FloatArray | float) -> FloatArray:
    """The largest probability of all states together that were never met, if `new` of n moves led to a new state."""
    found: FloatArray = np.minimum((2.0 * new + log) / ((1.0 - math.exp(-2.0)) * n), 1.0)
    return found


def _level(k: FloatArray | IntArray, n: FloatArray, log: FloatArray) -> FloatArray:
    """ln B(k + 1/2, n - k + 1/2) - ln B(1/2, 1/2) - log, lowered by more than all rounding errors."""
    level = betaln(k + 0.5, np.maximum(n - k, 0.0) + 0.5) - math.log(math.pi) - log
    lowered: FloatArray = level - SUM_ORDER * (1.0 + np.abs(level)) - 40.0 * n * n * ROUNDOFF
    return lowered


def _ends(a: Any, b: Any, level: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Both ends of { m : a ln m + b ln(1 - m) >= level }, a little outside; 0 where a is 0 or less, 1 where b is."""
    peak = np.where(a > 0, a / np.maximum(a + b, 1.0), 0.0)

    def beyond(end: float) -> FloatArray:
        outside, inside = np.full(len(peak), end), peak.copy()
        for _ in range(HALVINGS):
            middle = (outside + inside) / 2
            held = xlogy(a, middle) + xlog1py(b, -middle) >= level
            inside, outside = np.where(held, middle, inside), np.where(held, outside, middle)
        return outside

    return np.where(a > 0, beyond(0.0), 0.0), np.where(b > 0, beyond(1.0), 1.0)
