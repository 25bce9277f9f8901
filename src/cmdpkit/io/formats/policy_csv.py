"""Large policies as CSV, line by line: neither writing nor reading makes an object for every line at once."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cmdpkit.io.formats import csv_text
from cmdpkit.model.decisions import Decisions, of_rows, rows_at
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import ROW_SUM_TOLERANCE

TOGETHER = 1 << 16  # lines that are read or written at once
SHORTEST_LINE = 6  # bytes, as in "s,a,1" with its line end


def lines(policy: Policy) -> Iterator[str]:
    """Lines 'step,state,action,probability' (no step if stationary), several thousand at a time."""
    states, actions = ([csv_text.cell(str(x)) for x in names] for names in (policy.states, policy.action_names))
    sure = [f",{a},1.0\n" for a in actions]
    for h in range(policy.shape[0]):
        step = "" if policy.is_stationary else f"{h + 1},"
        drawn = {int(s): row for s, row in zip(*rows_at(policy.decisions, h), strict=True)}
        choice = policy.choice[h]
        for first in range(0, len(choice), TOGETHER):
            part = slice(first, first + TOGETHER)
            block = [f"{step}{s}{sure[a]}" for s, a in zip(states[part], choice[part].tolist(), strict=True)]
            for s in drawn.keys() & range(first, first + len(block)) if drawn else ():
                used = np.flatnonzero(drawn[s]).tolist()
                block[s - first] = "".join(f"{step}{states[s]},{actions[a]},{float(drawn[s][a])!r}\n" for a in used)
            yield "".join(block)


def count(policy: Policy) -> int:
    """How many lines these are."""
    H, S, _ = policy.shape
    T, m = len(policy.decisions.choice), len(policy.decisions.s)
    return (T * S - m + int(np.count_nonzero(policy.decisions.p))) * H // T


def read_body(
    path: Path, before: int, columns: Sequence[str], states: Sequence[Any], actions: Sequence[Any], H: int, rows: int
) -> Decisions | None:
    """The decisions below the first ``before`` lines, or None if anything there is unusual.

    What is unusual is for the caller to find out, who reads slowly and says what is wrong and where. ``rows`` is how
    many lines are announced.
    """
    S, A = len(states), len(actions)
    if path.stat().st_size < H * S * SHORTEST_LINE:
        return None
    found = _Collected(np.full((H, S), -1, dtype=np.int32), A)
    look: dict[str, dict[str, Any]] = {
        "step": {str(h + 1): h for h in range(H)},
        "state": {str(x): i for i, x in enumerate(states)},
        "action": {str(x): i for i, x in enumerate(actions)},
        "probability": _Numbers(),
    }
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(islice(file, before, None), skipinitialspace=True, strict=True)
            while block := [cells for cells in islice(reader, TOGETHER) if cells]:
                by_column = dict(zip(columns, zip(*block, strict=True), strict=True))
                by_column.setdefault("step", ("1",) * len(block))
                h, s, a, p = (
                    np.fromiter(map(table.__getitem__, by_column[key]), float if key == "probability" else np.int64)
                    for key, table in look.items()
                )
                found.add(h * S + s, a, p)
    except (KeyError, ValueError, csv.Error, OSError):
        return None
    if rows != found.lines or not _ends_with_a_line(path):
        return None
    return found.decisions()


class _Numbers(dict[str, float]):
    """Texts and the numbers they stand for; KeyError for what is not a probability."""

    def __missing__(self, text: str) -> float:
        x = csv_text.number(text)
        if isinstance(x, str) or not 0 <= x <= 1:
            raise KeyError(text)
        self[text] = x
        return x


class _Collected:
    """What was read so far: single actions in `choice`, all others as they came."""

    def __init__(self, choice: NDArray[np.int32], A: int) -> None:
        self.choice, self.A = choice, A
        self.lines = self.single = 0
        self.others: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []

    def add(self, place: NDArray[Any], a: NDArray[Any], p: NDArray[Any]) -> None:
        """Keep lines with their places h * S + s, actions and probabilities."""
        sure = p == 1.0
        self.choice.reshape(-1)[place[sure]] = a[sure]
        self.lines += len(p)
        self.single += int(sure.sum())
        self.others.append((place[~sure], a[~sure], p[~sure]))

    def decisions(self) -> Decisions | None:
        """The policy; None unless every place has exactly one distribution."""
        flat = self.choice.reshape(-1)
        place, a, p = (np.concatenate(x) for x in zip(*self.others, strict=True)) if self.others else (np.zeros(0),) * 3
        drawn, row = np.unique(place.astype(np.int64), return_inverse=True)
        table = np.zeros((len(drawn), self.A))
        table[row, a.astype(np.int64)] = p
        twice = len(np.unique(row * np.int64(self.A) + a.astype(np.int64))) < len(p)
        taken = int((flat >= 0).sum())
        if twice or taken != self.single or (flat[drawn] >= 0).any() or taken + len(drawn) != len(flat):
            return None
        if (np.abs(table.sum(axis=1) - 1) > ROW_SUM_TOLERANCE).any():
            return None
        flat[drawn] = 0
        return of_rows(self.choice, np.stack(np.divmod(drawn, self.choice.shape[1]), axis=1), table)


def _ends_with_a_line(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() in (b"\n", b"\r")
