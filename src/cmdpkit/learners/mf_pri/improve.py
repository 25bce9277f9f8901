"""Between epochs of MF-PRI: from samples to the next policy, prices, and actions ruled out.

One improvement solves the master problem around what was played, replaces the policy, lets samples fade that saw
another continuation, and tests every action against the new policy at the new prices. A policy that no action improves
at its own prices is optimal (docs/theory/cl-pri.md), so this is policy iteration under constraints, on data.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.estimate.intervals import margin_for_certificate
from cmdpkit.estimate.quantiles import different_columns, error_quantile
from cmdpkit.learners import Spec
from cmdpkit.learners.mf_pri.master import MIN_PROBABILITY, Answer, linear, solve_master
from cmdpkit.learners.mf_pri.moments import (
    covariance,
    evidence,
    means,
    pooled_variance,
    utility_errors,
)
from cmdpkit.learners.mf_pri.play import Samples
from cmdpkit.learners.mf_pri.progress import MfPriProgress, MfPriTask, extra_actions
from cmdpkit.learners.mf_pri.steer import debt
from cmdpkit.model.transitions import BoolArray, FloatArray

Goal = tuple[FloatArray, FloatArray, FloatArray]  # target, lowest and highest prices, each [N]


def begin_epoch(task: MfPriTask, progress: MfPriProgress, samples: Samples) -> None:
    """Fix what an epoch works with: values to bootstrap from, and the effects of the closed loop's controls."""
    spec, M = task.spec, 1 + task.spec.N
    n = spec.H * spec.S
    progress.ahead[:n] = means(samples.values, M)
    progress.known[:n] = samples.values[:, 0] >= task.params.known
    progress.known[n:] = True
    X = _row_means(spec, samples)
    moved = progress.reach[..., None, None] * (X - np.take_along_axis(X, progress.base[..., None, None], 2))[..., 1:]
    progress.effect[...] = np.where(extra_actions(progress)[..., None], moved, 0.0)


def improve(task: MfPriTask, progress: MfPriProgress, samples: Samples) -> None:
    """The end of an epoch: a new policy and new prices."""
    seen = samples.start.copy()
    changed = False  # whether other actions are in use
    if seen[0] >= task.params.least_episodes:
        _measure(progress, samples)
        p, answer = _next_policy(task, progress, samples)
        changed = bool(((p > 0) != (progress.pi > 0)).any())
        moved = ((p - progress.pi)[..., None] * _row_means(task.spec, samples)).sum(axis=2)
        progress.pi[...], progress.base[...] = p, p.argmax(axis=-1)
        progress.lam[...], progress.short[...] = answer.lam, answer.short
        _forget(task, progress, samples, moved)
        if changed:
            progress.support_changes += 1
            for array in (samples.start, samples.visits, progress.played):
                array *= task.params.keep_start
        decide(task, progress, samples)
    _log(progress, seen, changed)


def _next_policy(task: MfPriTask, progress: MfPriProgress, samples: Samples) -> tuple[FloatArray, Answer]:
    """The policy to play now, with the answer for the bounds themselves, which prices and shortfall are taken from.

    Prices never follow what is asked for beyond the bounds to repay a debt: that may be out of reach, and prices that
    went on rising would multiply all noise. They follow only what is missing to the bounds beyond its own error.
    """
    spec, p, k = task.spec, task.params, progress.episode
    if k >= task.table.hand:
        answer = _to_hand_over(task, progress, samples)
        return answer.p, answer
    frozen = k >= task.table.freeze
    low = np.maximum(progress.lam / p.trust - p.price_step, 0.0)
    high = np.minimum(progress.lam * p.trust + p.price_step, p.lam_max)
    error = progress.sd / np.sqrt(samples.start[0])
    answer = _best(task, progress, samples, (spec.rho - p.tolerance * error, low, high), frozen=frozen)
    repay = _repayment(task, progress, samples)
    more = spec.rho + repay, low, _ceiling(task, progress, answer.lam)
    repaying = _best(task, progress, samples, more, frozen=frozen, any_action=True)
    if frozen:
        return repaying.p, answer
    progress.core[...] = (repaying.p > 0) | (answer.p > 0)
    return repaying.p, answer


def _repayment(task: MfPriTask, progress: MfPriProgress, samples: Samples) -> FloatArray:
    """[N]: by how much the next policies should exceed the bounds, to repay what is owed."""
    table, k = task.table, progress.episode
    rate = debt(task, progress, samples, k) / max(table.hand - k, table.K // 20, 1)
    return np.clip(rate, 0.0, task.params.repayment * task.spec.H)


def _ceiling(task: MfPriTask, progress: MfPriProgress, lam: FloatArray) -> FloatArray:
    """[N]: the largest prices at which more is bought than the bounds with that much tolerance, whose prices are lam.

    They are a multiple of the largest of these prices and those of recent epochs, as prices of single epochs are noisy.
    """
    p = task.params
    recent = progress.history.lam[max(progress.epoch - p.recent, 0) : progress.epoch]
    ceiling: FloatArray = p.ceiling * np.vstack((recent, lam)).max(axis=0) + p.ceiling_step
    return np.minimum(ceiling, p.lam_max)


def _to_hand_over(task: MfPriTask, progress: MfPriProgress, samples: Samples) -> Answer:
    """The best policy that clears the bounds by a margin for its own error, or by part of it where that is dear.

    The margin of a bound that is missed is halved, and given up in the end. If the bound itself is out of reach, it may
    be missed by as much as its error: only a shortfall beyond that is significant and bought at any price.
    """
    spec, error = task.spec, safe_quantile(task, samples) * progress.sd / np.sqrt(samples.start[0])
    margin = error + _certificate_width(task, progress)
    part, high = np.ones(spec.N), _ceiling(task, progress, progress.lam)
    while True:
        target = spec.rho + np.where(part >= 0, part * margin, -error)
        answer = _best(task, progress, samples, (target, np.zeros(spec.N), high), frozen=True)
        missed = (answer.short > MIN_PROBABILITY) & (part >= 0)
        if not missed.any():
            break
        part = np.where(missed, _smaller(part, task.params.least_margin), part)
        high = np.where(part >= 0, high, task.params.lam_max)
    progress.uncovered[...] = np.maximum(spec.rho + margin - target, 0.0)
    return answer


def safe_quantile(task: MfPriTask, samples: Samples) -> float:
    """Standard errors of its utilities by which the policy handed over must clear the bounds."""
    utilities = means(samples.rows, 1 + task.spec.N)[:, 1:]
    return error_quantile(task.params.delta * task.params.margin_error, different_columns(utilities))


def _smaller(part: FloatArray, least: float) -> FloatArray:
    """The next smaller parts of a margin that are tried: halves down to `least`, then none, then less than none."""
    return np.where(part > least, part / 2, np.where(part > 0, 0.0, -1.0))


def _row_means(spec: Spec, samples: Samples) -> FloatArray:
    """[H, S, A, 1+N]"""
    return means(samples.rows, 1 + spec.N).reshape(spec.H, spec.S, spec.A, 1 + spec.N)


def _proven_gains(task: MfPriTask, progress: MfPriProgress, samples: Samples) -> FloatArray:
    """[H, S, A, 1+N]: row means, but an action that is not in use gains no more of a utility than is certain.

    Otherwise noise alone would make the learner give up reward, at any price, for a bound that is out of reach or that
    all policies just meet.
    """
    X = _row_means(task.spec, samples)
    error = utility_errors(samples, X.shape, task.params)
    at_base = np.take_along_axis(X, progress.base[..., None, None], 2)[..., 1:]
    error = np.sqrt(error + np.take_along_axis(error, progress.base[..., None, None], 2))
    gain = X[..., 1:] - at_base
    proven = np.where(gain > 0, np.maximum(gain - task.params.proven * error, 0.0), gain)
    X[..., 1:] = np.where((progress.pi > 0)[..., None], X[..., 1:], at_base + proven)
    return X


def _measure(progress: MfPriProgress, samples: Samples) -> None:
    """What episodes of the policy itself say about it: reach and noise."""
    M = len(samples.totals)
    cov, c = covariance(samples.start, M), np.append(1.0, progress.lam)
    progress.reach[...] = (samples.visits / samples.start[0]).reshape(progress.reach.shape)
    progress.sd[...] = np.sqrt(np.maximum(np.diag(cov)[1:], 1e-12))
    progress.noise = np.sqrt(max(float(c @ cov @ c), 1e-12))


def _best(
    task: MfPriTask, progress: MfPriProgress, samples: Samples, goal: Goal, *, frozen: bool, any_action: bool = False
) -> Answer:
    """Solve the master problem on few actions at first, and on more if the target cannot be met with them.

    When frozen, newcomers come second. With `any_action`, actions that are ruled out come last: they were ruled out at
    the prices of the bounds, and may be worth it at higher ones, if their gain is certain.
    """
    spec, n = task.spec, samples.start[0]
    used, handing = progress.pi > 0, progress.episode >= task.table.hand
    found = evidence(samples, progress.base, extra_actions(progress), progress.lam, task.params)
    start = means(samples.start, 1 + spec.N)[1:], progress.reach, progress.played / n
    proven = linear(start, _proven_gains(task, progress, samples), progress.base, goal)
    problem = proven if handing else linear(start, _row_means(spec, samples), progress.base, goal)
    measured = (found.ok & spec.allowed) | used
    live = measured & (~progress.decided | used)
    stages = [(problem, used | (progress.core & live))] * frozen + [(problem, live)] + [(proven, measured)] * any_action
    for posed, usable in stages:
        answer = solve_master(posed, usable, used, task.params.enter * found.own)
        if not (answer.short > MIN_PROBABILITY).any():
            break
    return answer


def _certificate_width(task: MfPriTask, progress: MfPriProgress) -> FloatArray:
    """[N]: the further margin that lets the certificate say that the policy is safe, if that is asked for."""
    spec, table = task.spec, task.table
    if not task.params.certified:
        return np.zeros(spec.N)
    planned = (table.K - table.hand) // 2  # episodes the certificate will have
    return margin_for_certificate(progress.sd, spec.H, task.params.delta, planned)


def _forget(task: MfPriTask, progress: MfPriProgress, samples: Samples, moved: FloatArray) -> None:
    """Decisions have changed the values of their states by `moved` [H, S, 1+N]: let older samples of these fade.

    Rows of earlier steps, and values of these steps and earlier ones, saw another continuation. They keep as many
    samples as make their standard error as large as that change, but a few in any case. So a small change costs little,
    and an action that looked bad only because of what followed is in question again.
    """
    S, A, p = task.spec.S, task.spec.A, task.params
    drift = np.flip(np.cumsum(np.flip((moved**2).max(axis=1), 0), axis=0), 0)  # [H, 1+N]: of this step and later ones
    later = np.append(drift[1:], np.zeros((1, drift.shape[1])), axis=0)
    var = pooled_variance(samples.values.reshape(*progress.base.shape, -1), drift.shape[1])
    used = (progress.pi > 0).reshape(-1)
    least = np.where(used, p.keep_values, p.keep_rows)
    _fade(samples.rows, np.maximum(_samples_worth(var, later).repeat(S * A), least))
    _fade(samples.values, np.maximum(_samples_worth(var, drift).repeat(S), p.keep_values))


def _samples_worth(var: FloatArray, squared: FloatArray) -> FloatArray:
    """[H]: how many samples of variance var [H, 1+N] have a squared error as large as `squared` [H, 1+N]."""
    found: FloatArray = np.where(squared > 0, var / np.maximum(squared, 1e-300), np.inf).min(axis=-1)
    return found


def _fade(records: FloatArray, most: FloatArray) -> None:
    """Let records [n, :] weigh no more than `most` [n] samples each."""
    records *= np.minimum(1.0, most / np.maximum(records[:, 0], 1e-12))[:, None]


def decide(task: MfPriTask, progress: MfPriProgress, samples: Samples) -> None:
    """Which actions are ruled out at the new prices, and which are worth deviating to."""
    used = progress.pi > 0
    counts = samples.rows[:, 0].reshape(used.shape)
    found = evidence(samples, progress.base, extra_actions(progress), progress.lam, task.params)
    worse = found.ok & (counts >= task.params.rule_out) & (found.advantage + task.z_out * found.se < 0)
    progress.decided[...] = (worse & ~used) | ~task.spec.allowed
    useful = (found.own**2 >= task.params.share * found.se**2) | (counts < task.params.precise)
    progress.explore[...] = ~progress.decided & useful & ~used
    weight = progress.reach[..., None] * (progress.explore & found.ok)
    loss = float((weight * np.maximum(-found.advantage, 0.0)).sum()) / max(float(weight.sum()), 1e-12)
    progress.loss = max(loss, task.params.least_loss * progress.noise)
    progress.advantage[...], progress.se[...] = found.advantage, np.where(found.ok, found.se, np.inf)


def undecided(progress: MfPriProgress) -> BoolArray:
    """[H, S, A]: reached, not in use, and not ruled out."""
    return ~progress.decided & ~(progress.pi > 0) & (progress.reach > 0)[..., None]


def _log(progress: MfPriProgress, start: FloatArray, changed: bool) -> None:
    """One line of history; `start` is the record of the epoch's episodes, before it has faded."""
    N, i, line = len(progress.lam), progress.epoch, progress.history
    mean = means(start, 1 + N)
    extras = np.flatnonzero(extra_actions(progress))[:N]
    line.until[i], line.starts[i], line.changed[i] = progress.episode, start[0], changed
    line.undecided[i], line.explored[i] = undecided(progress).sum(), progress.explore.sum()
    line.value[i], line.utilities[i] = mean[0], mean[1:]
    line.lam[i], line.short[i] = progress.lam, progress.short
    line.extra[i, : len(extras)], line.chance[i, : len(extras)] = extras, progress.pi.ravel()[extras]
