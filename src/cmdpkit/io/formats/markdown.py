"""Markdown: escaped names, lines of a table, and a policy as a table for people to read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from cmdpkit.errors import printable, shown
from cmdpkit.model.decisions import rows_at
from cmdpkit.model.policy import Policy


def escaped(name: object) -> str:
    r"""A name on one line, with the middle left out if it is long, and with all Markdown characters escaped.

    >>> print(escaped("a|b\n<i>"))
    a\|b \<i\>
    """
    return literal(shown(" ".join(str(name).split())))


def literal(text: str) -> str:
    """A text of any length on one line, with all Markdown characters escaped."""
    return re.sub(r"([\\`*_<>\[\]|&~])", r"\\\1", printable(text).replace("\n", "\\n"))


def line(cells: Iterable[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |"


def policy_table(policy: Policy) -> Iterator[str]:
    """A table with one row per state and one column per step; consecutive steps with equal decisions share a column."""
    H, S, A = policy.shape
    phases = phases_of(policy)
    heads = ["state", *(f"step {a}" if a == b else f"steps {a}–{b}" for a, b in phases)]
    title = f"# Policy for {H} steps, {S} states, {A} actions"
    if policy.is_stationary:
        heads, title = ["state", "action"], f"# Stationary policy for {S} states, {A} actions"
    yield f"{title}\n\n"
    if policy.made_for is not None:
        bounds = "; ".join(escaped(bound) for bound in policy.made_for.bounds) or "none"
        yield f"Made for the model {policy.made_for.fingerprint[:12]} with the bounds: {bounds}.\n\n"
    yield f"{line(heads)}\n{line(['---'] * len(heads))}\n"
    names = [escaped(name) for name in policy.action_names]
    drawn = [
        dict(zip(rows_at(policy.decisions, a - 1)[0].tolist(), rows_at(policy.decisions, a - 1)[1], strict=True))
        for a, _ in phases
    ]
    chosen = policy.choice[[a - 1 for a, _ in phases]]
    for s, name in enumerate(policy.states):
        cells = [_odds(names, rows[s]) if s in rows else names[a] for rows, a in zip(drawn, chosen[:, s], strict=True)]
        yield line([escaped(name), *cells]) + "\n"


def phases_of(policy: Policy) -> list[tuple[int, int]]:
    """First and last step, counted from 1, of each longest sequence of steps with equal decisions."""
    starts = [1]
    for h in range(1, len(policy.decisions.choice)):
        one, other = ((policy.choice[i], *rows_at(policy.decisions, i)) for i in (h - 1, h))
        if not all(np.array_equal(x, y) for x, y in zip(one, other, strict=True)):
            starts.append(h + 1)
    return list(zip(starts, [*(h - 1 for h in starts[1:]), policy.shape[0]], strict=True))


def _odds(names: list[str], row: np.ndarray) -> str:
    used = np.flatnonzero(row).tolist()
    if len(used) == 1:
        return names[used[0]]
    return " / ".join(f"{names[a]} {100 * row[a]:.4g} %" for a in used)
