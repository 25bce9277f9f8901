"""How a policy is stored: one action per step and state, and the few stochastic decisions.

An optimal policy of a model with N constraints draws in at most N places. Written as probabilities pi [H, S, A] it is
nearly all zeros; as `Decisions` it takes two bytes per step and state. Decisions that are the same at every step are
stored once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cmdpkit.errors import CmdpkitError
from cmdpkit.model.tolerances import ROW_SUM_TOLERANCE
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray
from cmdpkit.model.validate import frozen

BLOCK = 1 << 22  # numbers that are looked at together: little memory compared with the policy itself


class Decisions(NamedTuple):
    """A policy in the form that compiled code reads. All arrays are read-only.

    T is 1 if all steps have the same decisions, and H otherwise: index with h % T. A decision that takes one action
    with probability exactly 1 is in `choice` alone. Every other one has a row of `p`, and the likeliest of its actions
    is in `choice`.
    """

    choice: NDArray[Any]  # [T, S], int16 or int32: the index of the action
    first: IntArray  # [T + 1]: rows first[t] .. first[t+1] - 1 of the arrays below belong to step t
    s: NDArray[np.int32]  # [m]: the state of each row, rising within a step
    p: FloatArray  # [m, A]: the probability of each action


def of_table(pi: FloatArray) -> Decisions:
    """The decisions of pi [T, S, A]; CmdpkitError unless every pi[h, s] is a distribution."""
    T, S, A = pi.shape
    choice = np.empty((T, S), dtype=index_type(A))
    places, rows = [np.zeros(0, dtype=np.int64)], [np.zeros((0, A))]
    for h, block in _blocks(pi):
        x = block.reshape(-1, A)
        _check(x, range(h * S, h * S + len(x)), S)
        best = x.argmax(axis=1)
        choice[h : h + len(block)] = best.reshape(-1, S)
        drawn = np.flatnonzero(~_sure(x, best))
        places.append(drawn + h * S)
        rows.append(x[drawn])
    return _stored(choice, np.concatenate(places), np.concatenate(rows))


def of_rows(choice: Any, where: Any, p: FloatArray) -> Decisions:
    """The decisions choice [T, S], except at where [m, 2] (step and state, from 0), which draw by p [m, A]."""
    (T, S), A = choice.shape, p.shape[1]
    outside: NDArray[Any] = np.argwhere((choice < 0) | (choice >= A))
    if len(outside):
        h, s = outside[0]
        raise CmdpkitError(f"choice[h={h}, s={s}] is {choice[h, s]}, expected the index of an action in 0..{A - 1}")
    outside = np.flatnonzero(((where < 0) | (where >= (T, S))).any(axis=1))
    if len(outside):
        raise CmdpkitError(
            f"rows: where[{outside[0]}] is {where[outside[0]].tolist()}, expected a step in 0..{T - 1} and a state in "
            f"0..{S - 1}"
        )
    place = where[:, 0] * np.int64(S) + where[:, 1]
    order = np.argsort(place, kind="stable")
    place, p = place[order], p[order]
    twice = np.flatnonzero(np.diff(place) == 0)
    if len(twice):
        raise CmdpkitError(f"rows: where lists {where[order[twice[0]]].tolist()} twice, expected every place once")
    _check(p, place, S)
    choice = np.array(choice, dtype=index_type(A), order="C")
    best = p.argmax(axis=1)
    choice[place // S, place % S] = best
    drawn = ~_sure(p, best)
    return _stored(choice, place[drawn], p[drawn])


def undrawn(choice: NDArray[Any], A: int) -> Decisions:
    """The deterministic policy choice [T, S] for A actions; the array is shared, and may be filled afterwards."""
    nothing = np.zeros(len(choice) + 1, np.int64), np.zeros(0, np.int32), np.zeros((0, A))
    return Decisions(choice, *map(frozen, nothing))


def of_steps(tables: Iterable[FloatArray]) -> Decisions:
    """The decisions of tables [S, A], one for each step, of which no two are needed at the same time."""
    parts = [of_table(table[None]) for table in tables]
    first = np.concatenate(([0], np.cumsum([len(part.s) for part in parts])))
    choice = np.concatenate([part.choice for part in parts])
    s, p = np.concatenate([part.s for part in parts]), np.concatenate([part.p for part in parts])
    return Decisions(frozen(choice), frozen(first.astype(np.int64)), frozen(s), frozen(p))


def rearranged(decisions: Decisions, states: IntArray, actions: IntArray) -> Decisions:
    """The decisions of some states [n] in this order, with all actions [A] in another order; both by their indices."""
    T, S = decisions.choice.shape
    place = np.full(S, -1)
    place[states] = np.arange(len(states))
    h, s, p = all_rows(decisions, T)
    kept = place[s] >= 0
    choice = np.argsort(actions)[decisions.choice[:, states]]
    return of_rows(choice, np.stack((h, place[s]), axis=1)[kept], p[kept][:, actions])


def index_type(A: int) -> type[np.int16] | type[np.int32]:
    """The smallest type that the index of one of A actions fits in."""
    return np.int32 if A > 1 << 15 else np.int16


def rows_at(decisions: Decisions, h: int) -> tuple[Any, Any]:
    """The states [k] that draw at step h, and their probabilities [k, A]."""
    t = h % len(decisions.choice)
    rows = slice(int(decisions.first[t]), int(decisions.first[t + 1]))
    return decisions.s[rows], decisions.p[rows]


def drawn_at(decisions: Decisions, h: int) -> dict[int, FloatArray]:
    """The same by state."""
    return dict(zip(rows_at(decisions, h)[0].tolist(), rows_at(decisions, h)[1], strict=True))


def table_at(decisions: Decisions, h: int) -> FloatArray:
    """The probabilities [S, A] at step h, written out."""
    choice = decisions.choice[h % len(decisions.choice)]
    table = np.zeros((len(choice), decisions.p.shape[1]))
    table[np.arange(len(choice)), choice] = 1.0
    s, p = rows_at(decisions, h)
    table[s] = p
    return table


def all_rows(decisions: Decisions, H: int) -> tuple[IntArray, Any, Any]:
    """Step [m], state [m] and probabilities [m, A] of the stochastic decisions, at all of H steps."""
    T = len(decisions.choice)
    h = np.repeat(np.arange(T), np.diff(decisions.first))
    if T == H:
        return h, decisions.s, decisions.p
    m = len(decisions.s)
    return np.repeat(np.arange(H), m), np.tile(decisions.s, H), np.tile(decisions.p, (H, 1))


def one_hot(choice: NDArray[Any], A: int) -> FloatArray:
    """pi [H, S, A] of the deterministic policy choice [H, S]."""
    hot: FloatArray = (choice[..., None] == np.arange(A)).astype(float)
    return hot


def forbidden(decisions: Decisions, allowed: BoolArray) -> tuple[int, int, int] | None:
    """Step, state and action of the first positive probability of an action that `allowed` [1 or H, S, A] excludes."""
    T, S = decisions.choice.shape
    H = max(T, len(allowed))
    found = []
    for h, mask in _blocks(np.broadcast_to(allowed, (H, *allowed.shape[1:]))):
        steps = np.arange(h, h + len(mask))
        a = decisions.choice[steps % T]
        exists = mask[(steps - h)[:, None], np.arange(S), a]
        if not exists.all():
            i, s = np.argwhere(~exists)[0]
            found.append((h + int(i), int(s), int(a[i, s])))
            break
    h_row, s_row, p = all_rows(decisions, H)
    wrong = np.argwhere((p > 0) & ~allowed[h_row % len(allowed), s_row])
    if len(wrong):
        i, a = (int(x) for x in wrong[0])
        found.append((int(h_row[i]), int(s_row[i]), a))
    return min(found, default=None)


def same(one: Decisions, other: Decisions) -> bool:
    """Whether both decide the same at every step."""
    if len(one.choice) == len(other.choice):
        pairs: Iterator[tuple[Any, Any]] = zip(one, other, strict=True)
        return all(np.array_equal(x, y) for x, y in pairs)
    return all(same_at(one, h, other, h) for h in range(max(len(one.choice), len(other.choice))))


def same_at(one: Decisions, h: int, other: Decisions, k: int) -> bool:
    """Whether one decides at step h what the other decides at step k."""
    choices = one.choice[h % len(one.choice)], other.choice[k % len(other.choice)]
    pairs = choices, *zip(rows_at(one, h), rows_at(other, k), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def drawn_places(decisions: Decisions) -> IntArray:
    """h * S + s of every stochastic decision, [m], rising."""
    h, s, _ = all_rows(decisions, len(decisions.choice))
    places: IntArray = h * np.int64(decisions.choice.shape[1]) + s
    return places


def draw(
    decisions: Decisions, places: IntArray, h: IntArray, s: IntArray, rng: np.random.Generator | None
) -> NDArray[Any]:
    """Actions [n] for steps h [n] and states s [n], both from 0, of which `drawn_places` lists those that draw.

    Random numbers are taken only there; without ``rng``, actions are -1 there.
    """
    T, S = decisions.choice.shape
    place = (h % T) * np.int64(S) + s
    a: NDArray[Any] = decisions.choice.reshape(-1)[place]
    if len(places):
        row = np.minimum(np.searchsorted(places, place), len(places) - 1)
        drawn = np.flatnonzero(places[row] == place)
        if rng is None:
            a[drawn] = -1
        else:
            cdf = np.cumsum(decisions.p[row[drawn]], axis=1)
            a[drawn] = (cdf <= rng.random(len(drawn))[:, None] * cdf[:, -1:]).sum(axis=1)
    return a


def _blocks(pi: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Several steps of an array [T, S, A] at a time, and which is the first of them."""
    together = max(1, BLOCK // (pi.shape[1] * pi.shape[2]))
    for h in range(0, len(pi), together):
        yield h, pi[h : h + together]


def _sure(rows: FloatArray, best: NDArray[np.intp]) -> BoolArray:
    """Which rows [n, A] take one action, the best, with probability exactly 1."""
    sure: BoolArray = (rows[np.arange(len(rows)), best] == 1.0) & (np.count_nonzero(rows, axis=1) == 1)
    return sure


def _check(rows: FloatArray, place: IntArray | range, S: int) -> None:
    """Raise CmdpkitError unless rows [n, A] are distributions; they are those of the places h * S + s [n]."""

    def name(i: int) -> str:
        t, s = divmod(int(place[i]), S)
        return f"h={t}, s={s}"

    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~(np.isfinite(rows) & (rows >= 0)).all(axis=1))
        if len(bad):
            a = int(np.flatnonzero(~(np.isfinite(rows[bad[0]]) & (rows[bad[0]] >= 0)))[0])
            raise CmdpkitError(f"pi[{name(bad[0])}, a={a}] is {rows[bad[0], a]}, expected a probability")
    sums = rows.sum(axis=-1)
    wrong = np.flatnonzero(np.abs(sums - 1) > ROW_SUM_TOLERANCE)
    if len(wrong):
        total = f"{sums[wrong[0]]:.12g}"
        raise CmdpkitError(f"pi[{name(wrong[0])}] sums to {total}, expected 1 within {ROW_SUM_TOLERANCE:g}")


def _stored(choice: NDArray[Any], place: IntArray, p: FloatArray) -> Decisions:
    """Decisions whose rows p [m, A] are at the rising places h * S + s."""
    T, S = choice.shape
    first = np.searchsorted(place, np.arange(T + 1) * np.int64(S)).astype(np.int64)
    return Decisions(frozen(choice), frozen(first), frozen((place % S).astype(np.int32)), frozen(p))
