"""Between epochs of CL-PRI: from samples to the next policy, prices, and actions ruled out.

One improvement solves the master problem around what was played, replaces the policy, lets samples fade that saw
another continuation, and tests every action against the new policy at the new prices. A policy that no action improves
at its own prices is optimal (docs/theory/cl-pri.md), so this is policy iteration under constraints, on data.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.learners import Spec
from cmdpkit.learners._certificate import half_width
from cmdpkit.learners.cl_pri.model_free.master import MIN_PROBABILITY, Answer, linear, solve_master
from cmdpkit.learners.cl_pri.model_free.moments import Evidence, covariance, evidence, means
from cmdpkit.learners.cl_pri.model_free.play import Samples
from cmdpkit.learners.cl_pri.model_free.progress import Progress, Task, extra_actions
from cmdpkit.learners.cl_pri.model_free.steer import debt
from cmdpkit.model.transitions import BoolArray, FloatArray

MIN_EPISODES = 50  # episodes of the policy itself without which nothing is concluded
MIN_PRICE_STEP = 0.05  # by which a price may change beside the factor `trust`
MAX_REPAYMENT = 0.02  # of H: largest utility asked for beyond the bound to repay a debt
MIN_PRECISE_SAMPLES = 10  # samples below which a row is always worth more
MIN_SAMPLES_TO_RULE_OUT = 5  # samples without which nothing is ruled out
MIN_LOSS_TO_NOISE = 0.02  # of the noise: losses smaller than this count as this

Goal = tuple[FloatArray, FloatArray, FloatArray]  # target, lowest and highest prices, each [N]


def begin_epoch(task: Task, progress: Progress, samples: Samples) -> None:
    """Fix what an epoch works with: values to bootstrap from, and the effects of the closed loop's controls."""
    spec, M = task.spec, 1 + task.spec.N
    n = spec.H * spec.S
    progress.ahead[:n] = means(samples.values, M)
    progress.known[:n] = samples.values[:, 0] >= task.params.known
    progress.known[n:] = True
    X = _row_means(spec, samples)
    moved = progress.reach[..., None, None] * (X - np.take_along_axis(X, progress.base[..., None, None], 2))[..., 1:]
    progress.effect[...] = np.where(extra_actions(progress)[..., None], moved, 0.0)


def improve(task: Task, progress: Progress, samples: Samples) -> None:
    """The end of an epoch: a new policy and new prices."""
    seen = samples.start.copy()
    changed: list[int] = []  # steps with another support
    if seen[0] >= MIN_EPISODES:
        _measure(progress, samples)
        p, answer = _next_policy(task, progress, samples)
        changed = np.flatnonzero(((p > 0) != (progress.pi > 0)).any(axis=(1, 2))).tolist()
        progress.pi[...], progress.base[...] = p, p.argmax(axis=-1)
        progress.lam[...], progress.short[...] = answer.lam, answer.short
        if changed:
            progress.support_changes += 1
            _forget(task, progress, samples, changed[-1])
        decide(task, progress, samples)
    _log(progress, seen, bool(changed))


def _next_policy(task: Task, progress: Progress, samples: Samples) -> tuple[FloatArray, Answer]:
    """The policy to play now, with the answer it comes from; until exploration ends, also what may be used later."""
    k = progress.episode
    frozen, goal = k >= task.table.freeze, _goal(task, progress, samples, k)
    answer, found = _best(task, progress, samples, goal, frozen)
    if frozen:
        return answer.p, answer
    unburdened, _ = _best(task, progress, samples, (task.spec.rho, *goal[1:]), frozen)  # if there were nothing to repay
    p = _repaired(task, progress, answer.p, found)
    progress.core[...] = (p > 0) | (unburdened.p > 0)
    return p, answer


def _row_means(spec: Spec, samples: Samples) -> FloatArray:
    """[H, S, A, 1+N]"""
    return means(samples.rows, 1 + spec.N).reshape(spec.H, spec.S, spec.A, 1 + spec.N)


def _measure(progress: Progress, samples: Samples) -> None:
    """What episodes of the policy itself say about it: reach and noise."""
    M = len(samples.totals)
    cov, c = covariance(samples.start, M), np.append(1.0, progress.lam)
    progress.reach[...] = (samples.visits / samples.start[0]).reshape(progress.reach.shape)
    progress.sd[...] = np.sqrt(np.maximum(np.diag(cov)[1:], 1e-12))
    progress.noise = np.sqrt(max(float(c @ cov @ c), 1e-12))


def _best(task: Task, progress: Progress, samples: Samples, goal: Goal, frozen: bool) -> tuple[Answer, Evidence]:
    """Solve the master problem; when frozen, newcomers are let in only if the target cannot be met without them."""
    spec, n = task.spec, samples.start[0]
    used = progress.pi > 0
    found = evidence(samples, progress.base, extra_actions(progress), progress.lam)
    start = means(samples.start, 1 + spec.N)[1:], progress.reach, progress.played / n
    problem = linear(start, _row_means(spec, samples), progress.base, goal)
    live = (found.ok & ~progress.decided & spec.allowed) | used
    fee = task.params.enter * found.own
    if frozen:
        answer = solve_master(problem, used | (progress.core & live), used, fee)
        if not (answer.short > MIN_PROBABILITY).any():
            return answer, found
    return solve_master(problem, live, used, fee), found


def _goal(task: Task, progress: Progress, samples: Samples, k: int) -> Goal:
    """What the next policy must reach, and the prices it may do so at.

    While improving: the bounds, and more where there is a debt to repay; prices near the present ones. When settling:
    the same, at any price. The policy to hand over: the bounds, with a margin for the error of its utilities.
    """
    spec, p, table = task.spec, task.params, task.table
    if k >= table.hand:
        return spec.rho + _margin(task, progress, samples), np.zeros(spec.N), np.full(spec.N, p.lam_max)
    repay = np.clip(
        debt(task, progress, samples, k) / max(table.hand - k, table.K // 20, 1), 0.0, MAX_REPAYMENT * spec.H
    )
    if k >= table.freeze:
        return spec.rho + repay, np.zeros(spec.N), np.full(spec.N, p.lam_max)
    low = np.maximum(progress.lam / p.trust - MIN_PRICE_STEP, 0.0)
    return spec.rho + repay, low, np.minimum(progress.lam * p.trust + MIN_PRICE_STEP, p.lam_max)


def _margin(task: Task, progress: Progress, samples: Samples) -> FloatArray:
    """[N]: by how much the policy to hand over should clear the bounds, by the estimates of its utilities."""
    spec, table = task.spec, task.table
    margin: FloatArray = task.z_safe * progress.sd / np.sqrt(samples.start[0])
    if task.params.certified:
        n = max((table.K - table.hand) // 2, 2)  # episodes the certificate will have
        part = task.params.delta / (1 + spec.N)
        margin += [2 * half_width(n, float(sd) ** 2, float(spec.H), part) for sd in progress.sd]
    return margin


def _repaired(task: Task, progress: Progress, p: FloatArray, found: Evidence) -> FloatArray:
    """Where the policy never gets, a significantly better action is taken at once: that costs nothing."""
    gain = np.where(found.ok & task.spec.allowed, found.advantage - task.params.enter * found.se, -np.inf)
    better = (progress.reach <= 0) & (gain.max(axis=-1) > 0)
    return np.where(better[..., None], np.eye(p.shape[-1])[gain.argmax(axis=-1)], p)


def _forget(task: Task, progress: Progress, samples: Samples, h: int) -> None:
    """The last changed decision is at step h: earlier samples saw another continuation, and starts another policy."""
    S, A, keep = task.spec.S, task.spec.A, task.params.keep
    samples.rows[: h * S * A] *= keep
    samples.values[: (h + 1) * S] *= keep
    for array in (samples.start, samples.visits, progress.played):
        array *= task.params.keep_start


def decide(task: Task, progress: Progress, samples: Samples) -> None:
    """Which actions are ruled out at the new prices, and which are worth deviating to."""
    used = progress.pi > 0
    counts = samples.rows[:, 0].reshape(used.shape)
    found = evidence(samples, progress.base, extra_actions(progress), progress.lam)
    worse = found.ok & (counts >= MIN_SAMPLES_TO_RULE_OUT) & (found.advantage + task.z_out * found.se < 0)
    progress.decided[...] = (worse & ~used) | ~task.spec.allowed
    useful = (found.own**2 >= task.params.share * found.se**2) | (counts < MIN_PRECISE_SAMPLES)
    progress.explore[...] = ~progress.decided & useful & ~used
    weight = progress.reach[..., None] * (progress.explore & found.ok)
    loss = float((weight * np.maximum(-found.advantage, 0.0)).sum()) / max(float(weight.sum()), 1e-12)
    progress.loss = max(loss, MIN_LOSS_TO_NOISE * progress.noise)
    progress.advantage[...], progress.se[...] = found.advantage, np.where(found.ok, found.se, np.inf)


def undecided(progress: Progress) -> BoolArray:
    """[H, S, A]: reached, not in use, and not ruled out."""
    return ~progress.decided & ~(progress.pi > 0) & (progress.reach > 0)[..., None]


def _log(progress: Progress, start: FloatArray, changed: bool) -> None:
    """One line of history; `start` is the record of the epoch's episodes, before it has faded."""
    N, i, line = len(progress.lam), progress.epoch, progress.history
    mean = means(start, 1 + N)
    extras = np.flatnonzero(extra_actions(progress))[:N]
    line.until[i], line.starts[i], line.changed[i] = progress.episode, start[0], changed
    line.undecided[i], line.explored[i] = undecided(progress).sum(), progress.explore.sum()
    line.value[i], line.utilities[i] = mean[0], mean[1:]
    line.lam[i], line.short[i] = progress.lam, progress.short
    line.extra[i, : len(extras)], line.chance[i, : len(extras)] = extras, progress.pi.ravel()[extras]
