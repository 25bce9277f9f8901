"""The account of a practical PRI run: what was decided when, on what evidence, and what stayed open. Plain values only.

Steps count from 1; states and actions are given by index, counting from 0, because a learner knows no names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cmdpkit.learners._bound_warning import BoundWarning
from cmdpkit.learners.pri.practical import book as at
from cmdpkit.learners.pri.practical.book import Book, Task, extra_actions
from cmdpkit.learners.pri.practical.improve import undecided
from cmdpkit.learners.pri.practical.moments import PRICED
from cmdpkit.learners.pri.practical.play import Tables
from cmdpkit.model.transitions import BoolArray, FloatArray

LISTED = 40  # at most so many cells are listed of a kind


def account(task: Task, book: Book, tables: Tables) -> dict[str, Any]:
    """Everything worth telling, bounded in size: at most a line per epoch and LISTED cells of each kind."""
    spec, used = task.spec, book.pi > 0
    reached = (book.reach > 0)[..., None]
    open_ = undecided(book)
    stochastic = used & reached & (used.sum(axis=-1, keepdims=True) > 1)
    return {
        "error budget": {
            "delta": task.params.delta,
            "tests": int(spec.allowed.sum()) * len(task.table.ends),
            "standard errors to rule an action out": round(task.z_out, 3),
            "standard errors between policy and bounds": round(task.z_safe, 3),
        },
        "multipliers": [float(x) for x in book.lam],
        "changes of the support": int(book.clock[at.CHANGES]),
        "cells": {
            "allowed": int(spec.allowed.sum()),
            "reached by the policy": int((spec.allowed & reached).sum()),
            "in use": int((used & reached).sum()),
            "ruled out": int((book.decided & spec.allowed & reached).sum()),
            "undecided": int(open_.sum()),
        },
        "stochastic decisions": _cells(book, tables, stochastic, -book.pi),
        "undecided": _cells(book, tables, open_, _doubt(book)),
        "closest decisions": _cells(book, tables, book.decided & spec.allowed & reached, _doubt(book)),
        "ambiguous": ambiguous(book),
        "epochs": [_epoch(line, task) for line in book.history[: book.clock[at.EPOCH]]],
    }


def ambiguous(book: Book) -> list[str]:
    """Sentences about what the data did not settle."""
    said = []
    open_ = undecided(book)
    if open_.any():
        where = f"{int(open_.any(axis=-1).sum())} decision(s)"
        said.append(f"{int(open_.sum())} action(s) in {where} were neither ruled out nor taken into use")
    return [*said, *_unmixed(book)]


def _unmixed(book: Book) -> list[str]:
    """An optimum whose bound has a price meets it exactly, and needs a stochastic decision for that."""
    if not (book.lam > PRICED).any() or (extra_actions(book) & (book.reach > 0)[..., None]).any():
        return []
    return ["a bound has a price, but no stochastic decision was found that meets it exactly"]


def warnings_of(task: Task, book: Book) -> tuple[str, ...]:
    """Bounds that look out of reach, and a policy that cannot be quite the optimum."""
    k = book.clock[at.EPISODE]
    said: list[str] = [
        BoundWarning(
            "{constraint} is missed by {by} per episode, at a price of {price} per unit", n, by=short, price=lam
        )
        for n, (lam, short) in enumerate(zip(book.lam, book.short, strict=True))
        if short > PRICED and k >= task.table.freeze
    ]
    return (*said, *_unmixed(book)) if k >= task.table.hand and not said else tuple(said)


def _doubt(book: Book) -> FloatArray:
    """How close a call was: standard errors between advantage and 0; infinite errors come first."""
    return np.abs(book.advantage) / np.maximum(book.se, 1e-100)


def _cells(book: Book, tables: Tables, which: BoolArray, order: FloatArray) -> list[dict[str, Any]]:
    """The marked cells with their evidence, first those with the smallest `order`."""
    found = np.argwhere(which)
    counts = tables.rows[:, 0].reshape(which.shape)
    ranked = found[np.argsort(order[which], kind="stable")][:LISTED]
    return [
        {
            "step": int(h) + 1,
            "state index": int(s),
            "action index": int(a),
            "probability": float(book.pi[h, s, a]),
            "reach": float(book.reach[h, s]),
            "advantage": float(book.advantage[h, s, a]),
            "standard error": float(book.se[h, s, a]) if np.isfinite(book.se[h, s, a]) else None,
            "samples": float(counts[h, s, a]),
        }
        for h, s, a in ranked
    ]


def _epoch(line: FloatArray, task: Task) -> dict[str, Any]:
    """One line of history by name."""
    spec = task.spec
    lam, utilities, short, extras, chances = np.split(line[at.LOG_FIRST :], 5)
    mixed = []
    for flat, chance in zip(extras, chances, strict=True):
        if flat >= 0:
            h, s, a = (int(i) for i in np.unravel_index(int(flat), (spec.H, spec.S, spec.A)))
            mixed.append({"step": h + 1, "state index": s, "action index": a, "probability": float(chance)})
    return {
        "until episode": int(line[at.LOG_EPISODE]),
        "episodes of the policy itself": int(line[at.LOG_STARTS]),
        "support changed": bool(line[at.LOG_CHANGED]),
        "undecided": int(line[at.LOG_UNDECIDED]),
        "explored": int(line[at.LOG_EXPLORED]),
        "value": float(line[at.LOG_VALUE]),
        "utilities": [float(x) for x in utilities],
        "multipliers": [float(x) for x in lam],
        "short": [float(x) for x in short],
        "extra actions": mixed,
    }
