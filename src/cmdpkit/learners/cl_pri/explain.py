"""The account of a CL-PRI run: what was decided when, on what evidence, and what stayed open. Plain values only.

Steps count from 1; states and actions are given by index, counting from 0, because a learner knows no names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cmdpkit.learners._bound_warning import BoundWarning
from cmdpkit.learners.cl_pri.improve import undecided
from cmdpkit.learners.cl_pri.moments import MIN_PRICE
from cmdpkit.learners.cl_pri.play import Samples
from cmdpkit.learners.cl_pri.progress import History, Progress, Task, extra_actions
from cmdpkit.model.transitions import BoolArray, FloatArray

MAX_LISTED = 40  # at most so many cells are listed of a kind


def account(task: Task, progress: Progress, samples: Samples) -> dict[str, Any]:
    """Everything worth telling, bounded in size: at most a line per epoch and MAX_LISTED cells of each kind."""
    spec, used = task.spec, progress.pi > 0
    reached = (progress.reach > 0)[..., None]
    open_ = undecided(progress)
    stochastic = used & reached & (used.sum(axis=-1, keepdims=True) > 1)
    return {
        "error budget": {
            "delta": task.params.delta,
            "tests": int(spec.allowed.sum()) * len(task.table.ends),
            "standard errors to rule an action out": round(task.z_out, 3),
            "standard errors between policy and bounds": round(task.z_safe, 3),
        },
        "multipliers": [float(x) for x in progress.lam],
        "changes of the support": progress.support_changes,
        "cells": {
            "allowed": int(spec.allowed.sum()),
            "reached by the policy": int((spec.allowed & reached).sum()),
            "in use": int((used & reached).sum()),
            "ruled out": int((progress.decided & spec.allowed & reached).sum()),
            "undecided": int(open_.sum()),
        },
        "stochastic decisions": _cells(progress, samples, stochastic, -progress.pi),
        "undecided": _cells(progress, samples, open_, _doubt(progress)),
        "closest decisions": _cells(progress, samples, progress.decided & spec.allowed & reached, _doubt(progress)),
        "ambiguous": ambiguous(progress),
        "epochs": [_epoch(progress.history, i, task) for i in range(progress.epoch)],
    }


def ambiguous(progress: Progress) -> list[str]:
    """Sentences about what the data did not settle."""
    said = []
    open_ = undecided(progress)
    if open_.any():
        where = f"{int(open_.any(axis=-1).sum())} decision(s)"
        said.append(f"{int(open_.sum())} action(s) in {where} were neither ruled out nor taken into use")
    return [*said, *_unmixed(progress)]


def _unmixed(progress: Progress) -> list[str]:
    """An optimum whose bound has a price meets it exactly, and needs a stochastic decision for that."""
    if not (progress.lam > MIN_PRICE).any() or (extra_actions(progress) & (progress.reach > 0)[..., None]).any():
        return []
    return ["a bound has a price, but no stochastic decision was found that meets it exactly"]


def warnings_of(task: Task, progress: Progress) -> tuple[str, ...]:
    """Bounds that look out of reach, and a policy that cannot be quite the optimum."""
    k = progress.episode
    said: list[str] = [
        BoundWarning(
            "{constraint} is missed by {by} per episode, at a price of {price} per unit", n, by=short, price=lam
        )
        for n, (lam, short) in enumerate(zip(progress.lam, progress.short, strict=True))
        if short > MIN_PRICE and k >= task.table.freeze
    ]
    return (*said, *_unmixed(progress)) if k >= task.table.hand and not said else tuple(said)


def _doubt(progress: Progress) -> FloatArray:
    """How close a call was: standard errors between advantage and 0; infinite errors come first."""
    return np.abs(progress.advantage) / np.maximum(progress.se, 1e-100)


def _cells(progress: Progress, samples: Samples, which: BoolArray, order: FloatArray) -> list[dict[str, Any]]:
    """The marked cells with their evidence, first those with the smallest `order`."""
    found = np.argwhere(which)
    counts = samples.rows[:, 0].reshape(which.shape)
    ranked = found[np.argsort(order[which], kind="stable")][:MAX_LISTED]
    return [
        {
            "step": int(h) + 1,
            "state index": int(s),
            "action index": int(a),
            "probability": float(progress.pi[h, s, a]),
            "reach": float(progress.reach[h, s]),
            "advantage": float(progress.advantage[h, s, a]),
            "standard error": float(progress.se[h, s, a]) if np.isfinite(progress.se[h, s, a]) else None,
            "samples": float(counts[h, s, a]),
        }
        for h, s, a in ranked
    ]


def _epoch(history: History, i: int, task: Task) -> dict[str, Any]:
    """What the i-th epoch ended with, by name."""
    spec, mixed = task.spec, []
    for flat, chance in zip(history.extra[i], history.chance[i], strict=True):
        if flat >= 0:
            h, s, a = (int(x) for x in np.unravel_index(int(flat), (spec.H, spec.S, spec.A)))
            mixed.append({"step": h + 1, "state index": s, "action index": a, "probability": float(chance)})
    return {
        "until episode": int(history.until[i]),
        "episodes of the policy itself": int(history.starts[i]),
        "support changed": bool(history.changed[i]),
        "undecided": int(history.undecided[i]),
        "explored": int(history.explored[i]),
        "value": float(history.value[i]),
        "utilities": [float(x) for x in history.utilities[i]],
        "multipliers": [float(x) for x in history.lam[i]],
        "short": [float(x) for x in history.short[i]],
        "extra actions": mixed,
    }
