"""What a log proves about a policy, whoever chose it and whatever was looked at before: `Estimate.certificate`.

Every row of a log is a draw from the same process, so the intervals of `estimate.certificate` hold for it as they do
for a learner. They need the range of every signal, which therefore has to be declared. The optimum is that of policies
which do only what the log has tried: about anything else a log says nothing.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.estimate.certificate import Certifier
from cmdpkit.estimate.counts import Counts, new_counts
from cmdpkit.estimate.intervals import Certificate, stated
from cmdpkit.estimate.log import Log
from cmdpkit.model.cmdp import Scale
from cmdpkit.model.transitions import FloatArray


def certified(log: Log, T: int, pi: FloatArray, confidence: float) -> Certificate:
    """What a log with a horizon proves about pi [H, S, A]; T is 1 if all steps share their counts."""
    H, scales = log.criterion.horizon, scales_of(log)
    if H is None:
        raise CmdpkitError(
            f"the log is judged by {log.criterion}, and certificates are for logs with a horizon: see evaluate"
        )
    totals = [c.sign * c.total for c in log.constraints]
    rho = np.array([scale.total_to_unit(x, H) for scale, x in zip(scales[1:], totals, strict=True)])
    over = log.terminal
    nothing = np.array([scale.to_unit(0.0) for scale in scales])
    counts = counts_of_log(log, T, scales)
    certifier = Certifier(np.ones((H, log.S, log.A), dtype=bool), rho, T, 1 - confidence)
    certifier.look(counts)
    _close(certifier, counts, log, nothing)
    tried = np.broadcast_to((counts.visits > 0).reshape(T, log.S, log.A), (H, log.S, log.A)).copy()
    tried[~tried.any(axis=-1)] = True  # where nothing was recorded, anything may happen
    certifier.restrict(tried)
    played = np.where(over[:, None], np.eye(1, log.A)[0], pi)
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


def counts_of_log(log: Log, T: int, scales: list[Scale]) -> Counts:
    """Transitions and signals of a log in unit scale; the first action of a state where episodes are over stays."""
    S, A, M = log.S, log.A, 1 + log.N
    ends = np.array([(t * S + s) * A for t in range(T) for s in np.flatnonzero(log.terminal)], dtype=np.int64)
    row = np.append((np.where(T > 1, log.step, 0) * S + log.s) * A + log.a, ends)
    s_next = np.append(log.s_next, ends // A % S)
    signs = np.array([1.0, *(c.sign for c in log.constraints)])
    x = np.array([scale.to_unit(sign * y) for scale, sign, y in zip(scales, signs, log.x, strict=True)])
    rest = np.repeat([[scale.to_unit(0.0)] for scale in scales], len(ends), axis=1)
    x = np.concatenate((x, rest), axis=1)
    pairs, times = np.unique(row * S + s_next, return_counts=True)
    cell, counts = pairs // S, new_counts(T, S, A, M)
    seen, first = np.unique(cell, return_index=True)
    link = np.arange(1, len(cell) + 1)
    link[np.append(first[1:], len(cell))[: len(first)] - 1] = -1  # where the list of a cell ends
    counts.head[seen] = first
    counts.visits[...] = counts.moves[...] = np.bincount(row, minlength=len(counts.visits))
    i = M
    for m in range(M):
        counts.moments[:, m] = np.bincount(row, weights=x[m], minlength=len(counts.visits))
        for n in range(m + 1):
            counts.moments[:, i] = np.bincount(row, weights=x[m] * x[n], minlength=len(counts.visits))
            i += 1
    counts.starts[...] = np.bincount(log.starts, minlength=S)
    return counts._replace(
        link=link.astype(np.int32),
        state=(pairs % S).astype(np.int32),
        times=times.astype(np.int64),
        used=np.array([len(cell)]),
    )


def _close(certifier: Certifier, counts: Counts, log: Log, nothing: FloatArray) -> None:
    """Make certain what is known of states in which an episode is over: it stays there and signals nothing."""
    sides, S, A = certifier.sides, log.S, log.A
    for t in range(certifier.T):
        for s in np.flatnonzero(log.terminal):
            cell = (t * S + int(s)) * A
            entry = counts.head[cell]
            sides.lo[entry], sides.up[entry], sides.spare[cell], sides.unseen[cell] = 1.0, 1.0, 0.0, 0.0
            sides.least[cell], sides.most[cell] = nothing, nothing
