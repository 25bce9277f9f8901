"""The account of a MF-PRI run: what was decided when, on what evidence, and what stayed open. Plain values only.

Steps count from 1; states and actions are given by index, counting from 0, because a learner knows no names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cmdpkit.learners._bound_warning import BoundWarning
from cmdpkit.learners.mf_pri.improve import safe_quantile, undecided
from cmdpkit.learners.mf_pri.moments import MIN_PRICE, means
from cmdpkit.learners.mf_pri.play import Samples
from cmdpkit.learners.mf_pri.progress import History, MfPriProgress, MfPriTask, extra_actions
from cmdpkit.model.transitions import BoolArray, FloatArray
from cmdpkit.tolerances import NO_SHORTFALL

MAX_LISTED = 40  # at most so many cells are listed of a kind


def account(task: MfPriTask, progress: MfPriProgress, samples: Samples) -> dict[str, Any]:
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
            "standard errors between policy and bounds": round(safe_quantile(task, samples), 3),
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


def ambiguous(progress: MfPriProgress) -> list[str]:
    """Sentences about what the data did not settle."""
    said = []
    open_ = undecided(progress)
    if open_.any():
        where = f"{int(open_.any(axis=-1).sum())} decision(s)"
        said.append(f"{int(open_.sum())} action(s) in {where} were neither ruled out nor taken into use")
    return [*said, *_unmixed(progress)]


def _unmixed(progress: MfPriProgress) -> list[str]:
    """An optimum whose bound has a price meets it exactly, and needs a stochastic decision for that."""
    if not (progress.lam > MIN_PRICE).any() or (extra_actions(progress) & (progress.reach > 0)[..., None]).any():
        return []
    return ["a bound has a price, but no stochastic decision was found that meets it exactly"]


def warnings_of(task: MfPriTask, progress: MfPriProgress, samples: Samples) -> tuple[str, ...]:
    """Bounds that look out of reach or were missed, and a policy that may not be the best."""
    k, table = progress.episode, task.table
    said: list[str] = []
    if k >= table.freeze:
        said += _out_of_reach(progress)
    if k >= table.hand:
        said += _uncovered(progress)
        said += _unmixed(progress) if not said else []
    if k >= table.K:
        said += [*_missed(task, progress, samples), *_hopes(task, progress, samples)]
    return tuple(said)


def _out_of_reach(progress: MfPriProgress) -> list[str]:
    """Bounds that the last policy misses by more than the error of its utilities."""
    template = "{constraint} is missed by {by} per episode, at a price of {price} per unit"
    return [
        BoundWarning(template, int(n), by=float(progress.short[n]), price=float(progress.lam[n]))
        for n in np.flatnonzero(progress.short > MIN_PRICE)
    ]


def _uncovered(progress: MfPriProgress) -> list[str]:
    """Bounds that the policy handed over may miss, as far as its own error goes."""
    template = (
        "the policy handed over may miss {constraint} by up to {by}: clearing it by the whole margin for the policy's "
        "own error was out of reach or too dear, and more episodes would narrow that margin"
    )
    short = progress.uncovered
    return [BoundWarning(template, int(n), by=float(short[n]), doubtful=False) for n in np.flatnonzero(short > 0)]


def _missed(task: MfPriTask, progress: MfPriProgress, samples: Samples) -> list[str]:
    """Bounds that were missed in what was realised."""
    template = (
        "{constraint} was missed by {by} per episode in what was realised: the episodes did not suffice to repay what "
        "learning had cost"
    )
    short = task.spec.rho - samples.totals[1:] / progress.episode
    return [
        BoundWarning(template, int(n), by=float(short[n]), doubtful=False, patience=True)
        for n in np.flatnonzero(short > NO_SHORTFALL)
    ]


def _hopes(task: MfPriTask, progress: MfPriProgress, samples: Samples) -> list[str]:
    """Something better may be left to find: the warm-up ended before its optimism did."""
    c, starts = np.append(1.0, progress.hoped_lam), samples.visits[: task.spec.S]
    hoped = float(starts @ progress.hoped) / max(float(starts.sum()), 1.0)
    missing = hoped - float(means(samples.start, len(c)) @ c)
    if missing <= task.params.hope * task.spec.H * c.sum():
        return []
    return [
        "the policy may be far from the best: when the warm-up ended, it had not found out that nothing better exists; "
        "more episodes would lengthen it"
    ]


def _doubt(progress: MfPriProgress) -> FloatArray:
    """How close a call was: standard errors between advantage and 0; infinite errors come first."""
    return np.abs(progress.advantage) / np.maximum(progress.se, 1e-100)


def _cells(progress: MfPriProgress, samples: Samples, which: BoolArray, order: FloatArray) -> list[dict[str, Any]]:
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


def _epoch(history: History, i: int, task: MfPriTask) -> dict[str, Any]:
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
