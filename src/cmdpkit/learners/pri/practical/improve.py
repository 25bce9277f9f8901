"""Between epochs of practical PRI: from samples to the next policy, prices, and actions ruled out.

One improvement solves the master problem around what was played, replaces the policy, lets samples fade that saw
another continuation, and tests every action against the new policy at the new prices. A policy that no action improves
at its own prices is optimal (docs/theory/pri.md), so this is policy iteration under constraints, on data.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.learners import Spec
from cmdpkit.learners._certificate import half_width
from cmdpkit.learners.pri.practical import book as at
from cmdpkit.learners.pri.practical.book import Book, Task, extra_actions
from cmdpkit.learners.pri.practical.master import UNUSED, Answer, linear, solve_master
from cmdpkit.learners.pri.practical.moments import Evidence, covariance, evidence, means
from cmdpkit.learners.pri.practical.play import Tables
from cmdpkit.learners.pri.practical.steer import debt
from cmdpkit.model.transitions import BoolArray, FloatArray

FEW = 50  # episodes of the policy itself without which nothing is concluded
SLACK = 0.05  # by which a price may change beside the factor `trust`
STEEPEST = 0.02  # of H: largest utility asked for beyond the bound to repay a debt
PRECISE = 10  # samples below which a row is always worth more
SURE = 5  # samples without which nothing is ruled out
MILD = 0.02  # of the noise: losses smaller than this count as this

Goal = tuple[FloatArray, FloatArray, FloatArray]  # target, lowest and highest prices, each [N]


def begin_epoch(task: Task, book: Book, tables: Tables) -> None:
    """Fix what an epoch works with: values to bootstrap from, and the effects of the closed loop's controls."""
    spec, M = task.spec, 1 + task.spec.N
    n = spec.H * spec.S
    book.ahead[:n] = means(tables.values, M)
    book.known[:n] = tables.values[:, 0] >= task.params.known
    book.known[n:] = True
    X = _row_means(spec, tables)
    moved = book.reach[..., None, None] * (X - np.take_along_axis(X, book.base[..., None, None], 2))[..., 1:]
    book.effect[...] = np.where(extra_actions(book)[..., None], moved, 0.0)


def improve(task: Task, book: Book, tables: Tables) -> None:
    """The end of an epoch: a new policy and new prices."""
    seen = tables.start.copy()
    changed: list[int] = []  # steps with another support
    if seen[0] >= FEW:
        _measure(book, tables)
        p, answer = _next_policy(task, book, tables)
        changed = np.flatnonzero(((p > 0) != (book.pi > 0)).any(axis=(1, 2))).tolist()
        book.pi[...], book.base[...] = p, p.argmax(axis=-1)
        book.lam[...], book.short[...] = answer.lam, answer.short
        if changed:
            book.clock[at.CHANGES] += 1
            _forget(task, book, tables, changed[-1])
        decide(task, book, tables)
    _log(book, seen, bool(changed))


def _next_policy(task: Task, book: Book, tables: Tables) -> tuple[FloatArray, Answer]:
    """The policy to play now, with the answer it comes from; until exploration ends, also what may be used later."""
    k = int(book.clock[at.EPISODE])
    frozen, goal = k >= task.table.freeze, _goal(task, book, tables, k)
    answer, found = _best(task, book, tables, goal, frozen)
    if frozen:
        return answer.p, answer
    unburdened, _ = _best(task, book, tables, (task.spec.rho, *goal[1:]), frozen)  # if there were nothing to repay
    p = _repaired(task, book, answer.p, found)
    book.core[...] = (p > 0) | (unburdened.p > 0)
    return p, answer


def _row_means(spec: Spec, tables: Tables) -> FloatArray:
    """[H, S, A, 1+N]"""
    return means(tables.rows, 1 + spec.N).reshape(spec.H, spec.S, spec.A, 1 + spec.N)


def _measure(book: Book, tables: Tables) -> None:
    """What episodes of the policy itself say about it: reach and noise."""
    M = len(tables.totals)
    cov, c = covariance(tables.start, M), np.append(1.0, book.lam)
    book.reach[...] = (tables.visits / tables.start[0]).reshape(book.reach.shape)
    book.sd[...] = np.sqrt(np.maximum(np.diag(cov)[1:], 1e-12))
    book.scales[at.SIGMA] = np.sqrt(max(float(c @ cov @ c), 1e-12))


def _best(task: Task, book: Book, tables: Tables, goal: Goal, frozen: bool) -> tuple[Answer, Evidence]:
    """Solve the master problem; when frozen, newcomers are let in only if the target cannot be met without them."""
    spec, n = task.spec, tables.start[0]
    used = book.pi > 0
    found = evidence(tables, book.base, extra_actions(book), book.lam)
    start = means(tables.start, 1 + spec.N)[1:], book.reach, book.played / n
    problem = linear(start, _row_means(spec, tables), book.base, goal)
    live = (found.ok & ~book.decided & spec.allowed) | used
    fee = task.params.enter * found.own
    if frozen:
        answer = solve_master(problem, used | (book.core & live), used, fee)
        if not (answer.short > UNUSED).any():
            return answer, found
    return solve_master(problem, live, used, fee), found


def _goal(task: Task, book: Book, tables: Tables, k: int) -> Goal:
    """What the next policy must reach, and the prices it may do so at.

    While improving: the bounds, and more where there is a debt to repay; prices near the present ones. When settling:
    the same, at any price. The policy to hand over: the bounds, with a margin for the error of its utilities.
    """
    spec, p, table = task.spec, task.params, task.table
    if k >= table.hand:
        return spec.rho + _margin(task, book, tables), np.zeros(spec.N), np.full(spec.N, p.lam_max)
    repay = np.clip(debt(task, book, tables, k) / max(table.hand - k, table.K // 20, 1), 0.0, STEEPEST * spec.H)
    if k >= table.freeze:
        return spec.rho + repay, np.zeros(spec.N), np.full(spec.N, p.lam_max)
    low = np.maximum(book.lam / p.trust - SLACK, 0.0)
    return spec.rho + repay, low, np.minimum(book.lam * p.trust + SLACK, p.lam_max)


def _margin(task: Task, book: Book, tables: Tables) -> FloatArray:
    """[N]: by how much the policy to hand over should clear the bounds, by the estimates of its utilities."""
    spec, table = task.spec, task.table
    margin: FloatArray = task.z_safe * book.sd / np.sqrt(tables.start[0])
    if task.params.certified:
        n = max((table.K - table.hand) // 2, 2)  # episodes the certificate will have
        part = task.params.delta / (1 + spec.N)
        margin += [2 * half_width(n, float(sd) ** 2, float(spec.H), part) for sd in book.sd]
    return margin


def _repaired(task: Task, book: Book, p: FloatArray, found: Evidence) -> FloatArray:
    """Where the policy never gets, a significantly better action is taken at once: nobody pays for it."""
    gain = np.where(found.ok & task.spec.allowed, found.advantage - task.params.enter * found.se, -np.inf)
    better = (book.reach <= 0) & (gain.max(axis=-1) > 0)
    return np.where(better[..., None], np.eye(p.shape[-1])[gain.argmax(axis=-1)], p)


def _forget(task: Task, book: Book, tables: Tables, h: int) -> None:
    """The last changed decision is at step h: earlier samples saw another continuation, and starts another policy."""
    S, A, keep = task.spec.S, task.spec.A, task.params.keep
    tables.rows[: h * S * A] *= keep
    tables.values[: (h + 1) * S] *= keep
    for array in (tables.start, tables.visits, book.played):
        array *= task.params.keep_start


def decide(task: Task, book: Book, tables: Tables) -> None:
    """Which actions are ruled out at the new prices, and which are worth deviating to."""
    used = book.pi > 0
    counts = tables.rows[:, 0].reshape(used.shape)
    found = evidence(tables, book.base, extra_actions(book), book.lam)
    worse = found.ok & (counts >= SURE) & (found.advantage + task.z_out * found.se < 0)
    book.decided[...] = (worse & ~used) | ~task.spec.allowed
    useful = (found.own**2 >= task.params.share * found.se**2) | (counts < PRECISE)
    book.explore[...] = ~book.decided & useful & ~used
    weight = book.reach[..., None] * (book.explore & found.ok)
    loss = float((weight * np.maximum(-found.advantage, 0.0)).sum()) / max(float(weight.sum()), 1e-12)
    book.scales[at.LOSS] = max(loss, MILD * book.scales[at.SIGMA])
    book.advantage[...], book.se[...] = found.advantage, np.where(found.ok, found.se, np.inf)


def undecided(book: Book) -> BoolArray:
    """[H, S, A]: reached, not in use, and not ruled out."""
    return ~book.decided & ~(book.pi > 0) & (book.reach > 0)[..., None]


def _log(book: Book, start: FloatArray, changed: bool) -> None:
    """One line of history; `start` is the record of the epoch's episodes, before it has faded."""
    N = len(book.lam)
    line, mean = book.history[book.clock[at.EPOCH]], means(start, 1 + N)
    counts = undecided(book).sum(), book.explore.sum()
    line[: at.LOG_FIRST] = book.clock[at.EPISODE], start[0], changed, *counts, mean[0]
    extras = np.flatnonzero(extra_actions(book))[:N]
    padded = np.full(2 * N, -1.0)
    padded[: len(extras)], padded[N : N + len(extras)] = extras, book.pi.ravel()[extras]
    line[at.LOG_FIRST :] = np.concatenate((book.lam, mean[1:], book.short, padded))
