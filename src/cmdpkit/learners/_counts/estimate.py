"""The model that the memory suggests, the best policy in it, and how far both can be trusted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.exact.infeasible import Infeasible
from cmdpkit.exact.solver import solve_fully
from cmdpkit.learners import Spec
from cmdpkit.learners._counts.indifference import indifferent
from cmdpkit.learners._counts.memory import Memory, signal_means, signal_variances, transitions
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import compiled
from cmdpkit.model.constraints import at_least
from cmdpkit.model.evaluate import action_values, flow
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

PSEUDO_VISITS = 2.0  # visits that the average variance of a step counts as, in the error of an action's value
UNSEEN_SPREAD = 0.25  # of the range of values: the deviation that a next state not seen yet may bring
PSEUDO_MOVES = 5.0  # the same in the error of a whole policy


class Model(NamedTuple):
    """The estimated model and what it rests on."""

    cmdp: CMDP
    memory: Memory
    tried: BoolArray  # [H, S, A]: actions whose outcome was seen often enough to plan with
    known: BoolArray  # [H, S]: states with such an action
    moot: BoolArray  # [N]: bounds that no plan asks for, because nothing that is done seems to matter to them


class Plan(NamedTuple):
    """A policy for the estimated model."""

    pi: FloatArray  # [H, S, A]
    prices: FloatArray  # [N]: of the bounds it was made for; 0 where it could not meet them
    utilities: FloatArray  # [N]: predicted
    feasible: bool
    value: float = -np.inf  # predicted; minus infinity where the bounds could not be met


def model_of(spec: Spec, memory: Memory, T: int, least: int | IntArray) -> Model:
    """The estimated model; an action counts as tried after `least` observations, perhaps by state [H, S, 1]."""
    H, S, A, M = spec.H, spec.S, spec.A, 1 + spec.N
    means = signal_means(memory, M).reshape(T, S, A, M)
    moves, visits = (np.broadcast_to(x.reshape(T, S, A), (H, S, A)) for x in (memory.moves, memory.visits))
    tried = spec.allowed & (moves >= least)
    tried[-1] = spec.allowed[-1] & (visits[-1] >= np.broadcast_to(least, (H, S, 1))[-1])
    known = np.asarray(tried.any(axis=-1))
    allowed = np.where(known[..., None], tried, spec.allowed)
    mu = memory.starts / max(int(memory.starts.sum()), 1)
    if not memory.starts.any():
        mu = np.full(S, 1 / S)
    bounds = [at_least(f"utility {n}", float(x)) for n, x in enumerate(spec.rho)]
    cmdp = CMDP(
        transitions(memory, T, A),
        means[..., 0],
        np.moveaxis(means[..., 1:], -1, 0),
        mu=mu,
        horizon=H,
        actions=allowed,
        constraints=bounds,
        renormalise=True,
    )
    return Model(cmdp, memory, tried, known, indifferent(memory, T, H, spec.rho))


def best_plan(model: Model, target: FloatArray) -> Plan:
    """The best policy of the estimated model that reaches the target [N]; if none does, the best compromise."""
    asked = np.where(model.moot, 0.0, target)  # no total is below 0, so that a target of 0 asks for nothing
    cmdp = model.cmdp.with_bounds(**{c.name: float(x) for c, x in zip(model.cmdp.constraints, asked, strict=True)})
    try:
        found = solve_fully(cmdp)
    except Infeasible as error:
        return Plan(error.policy.pi.copy(), np.zeros(len(target)), error.utilities, False)
    return Plan(found.policy.pi.copy(), found.shadow_prices, found.utilities, True, found.value)


def surplus_at(model: Model, rho: FloatArray, prices: FloatArray) -> FloatArray:
    """[N]: by how much the bounds can be exceeded while a unit of each utility costs at most its price [N] of reward.

    It is that of the best policy within the bounds when utilities are paid for at these prices.
    """
    signals = model.cmdp.compact
    paid = signals.r + np.tensordot(prices, signals.g, 1)
    cmdp = model.cmdp.reformulated(r=paid, g=signals.g, constraints=model.cmdp.constraints)
    surplus: FloatArray = best_plan(model._replace(cmdp=cmdp), rho).utilities - rho
    return surplus


def value_range(model: Model) -> float:
    """How far the best and the worst policy of the estimated model are apart if no bound is asked for."""
    nothing = np.zeros(model.cmdp.N)
    worst = model._replace(cmdp=model.cmdp.reformulated(r=-model.cmdp.compact.r))
    return best_plan(model, nothing).value + best_plan(worst, nothing).value


class Evidence(NamedTuple):
    """What the memory says of every action at given prices, beside a policy."""

    advantage: FloatArray  # [H, S, A]: over the policy
    error: FloatArray  # [H, S, A]: its standard error
    reach: FloatArray  # [H, S]: of the policy, in the estimated model
    effect: FloatArray  # [N, H, S, A]: what one episode's utility gains per unit of flow moved to the action
    surprise: FloatArray  # [H, 1, 1]: how far the values of next states are apart, of which few tries show only some


def evidence(model: Model, pi: FloatArray, prices: FloatArray, caution: float = 1.0) -> Evidence:
    """Advantages over pi at prices [N], with their standard errors.

    A few visits that were alike by chance make an error look small. Caution is by how much more than usual the average
    variance of a step is believed instead.
    """
    cmdp, c = model.cmdp, np.append(1.0, prices)
    found = [action_values(cmdp, x, pi) for x in (cmdp.compact.r, *cmdp.compact.g)]
    Q = sum(weight * q for weight, (q, _) in zip(c, found, strict=True))
    V = sum(weight * v for weight, (_, v) in zip(c, found, strict=True))
    reach = flow(cmdp, pi, np.zeros(pi.shape[:2]), cmdp.mu).sum(axis=-1)
    gains = np.array([q - v[:-1, :, None] for q, v in found[1:]]).reshape(len(prices), *pi.shape)
    errors = np.sqrt(_squared_errors(model, V, c, caution * PSEUDO_VISITS))
    return Evidence(Q - V[:-1, :, None], errors, reach, gains, _surprise(model, V))


def _surprise(model: Model, V: FloatArray) -> FloatArray:
    """[H, 1, 1]: the largest minus the smallest value of a known state at the next step."""
    after = V[1:-1]
    highest = np.where(model.known[1:], after, -np.inf).max(axis=1)
    lowest = np.where(model.known[1:], after, np.inf).min(axis=1)
    spread: FloatArray = np.append(np.maximum(highest - lowest, 0.0), 0.0)
    return spread[:, None, None]


def _squared_errors(model: Model, V: FloatArray, c: FloatArray, pseudo: float) -> FloatArray:
    """[H, S, A]: squared standard error of an action's value, from where it leads and from what it earns."""
    cmdp, memory = model.cmdp, model.memory
    H, S, A = cmdp.H, cmdp.S, cmdp.A
    T = cmdp.kernel.T
    moves, visits = (np.broadcast_to(x.reshape(T, S, A), (H, S, A)) for x in (memory.moves, memory.visits))
    ahead = np.zeros((H, S, A))
    _variance_ahead(cmdp.compact.indptr, cmdp.compact.successors, cmdp.compact.prob, V, ahead)
    ahead = _with_average(ahead, moves, pseudo)
    ahead[-1] = 0.0
    earned = np.broadcast_to(signal_variances(memory, c).reshape(T, S, A), (H, S, A))
    earned = _with_average(earned, visits, pseudo)
    errors: FloatArray = ahead / np.maximum(moves, 1) + earned / np.maximum(visits, 1)
    return errors


def _with_average(variance: FloatArray, n: IntArray, pseudo: float) -> FloatArray:
    """Few samples say little about their variance, so the average of the step is mixed in."""
    weight = n.sum(axis=(1, 2), keepdims=True)
    average = (variance * n).sum(axis=(1, 2), keepdims=True) / np.maximum(weight, 1)
    mixed: FloatArray = (variance * n + pseudo * average) / (n + pseudo)
    return mixed


def plan_errors(model: Model, pi: FloatArray) -> FloatArray:
    """[N]: standard errors of a policy's predicted utilities, by the delta method.

    Where all steps share their counts, an error of one estimate acts at every step at once: what the flow of all steps
    takes to a next state is added up before it is squared.
    """
    cmdp, memory = model.cmdp, model.memory
    T, S, A = cmdp.kernel.shape
    q = flow(cmdp, pi, np.zeros(pi.shape[:2]), cmdp.mu)
    episodes = max(int(memory.starts.sum()), 1)
    errors = np.zeros(cmdp.N)
    for n, g in enumerate(cmdp.compact.g):
        _, V = action_values(cmdp, g, pi)
        through = np.zeros(T * S * A)  # flow through a cell that is followed by another step
        spread = np.zeros(T * S * A)  # variance of what a move out of the cell is worth, all steps together
        span = np.ptp(V, axis=1) * UNSEEN_SPREAD  # [H+1]
        c = cmdp.compact
        _pooled_variance(c.indptr, c.successors, c.prob, memory.moves, q, V, span, through, spread)
        moves = np.maximum(memory.moves, 1)
        unit = np.divide(spread, through**2, out=np.zeros_like(spread), where=through > 1e-12)
        counted = memory.moves * (through > 0)
        average = float((counted * unit).sum() / max(counted.sum(), 1))
        unit = (counted * unit + PSEUDO_MOVES * average) / (counted + PSEUDO_MOVES)
        moved = float((through**2 * unit / moves).sum())
        flow_all = q.reshape(-1, T, S * A).sum(axis=0).ravel() if T == 1 else q.reshape(-1)
        alone = np.eye(1, 1 + cmdp.N, 1 + n)[0]
        earned = float((flow_all**2 * signal_variances(memory, alone) / np.maximum(memory.visits, 1)).sum())
        start = float(cmdp.mu @ V[0] ** 2 - (cmdp.mu @ V[0]) ** 2) / episodes
        errors[n] = np.sqrt(moved + earned + max(start, 0.0))
    return errors


@compiled
def _variance_ahead(indptr, successors, prob, V, out):
    """Fill out [H, S, A] with the variance of V[h+1] at the next state; the last step stays 0."""
    H, S, A = out.shape
    T = (len(indptr) - 1) // (S * A)
    for h in range(H - 1):
        for s in range(S):
            for a in range(A):
                row = ((h % T) * S + s) * A + a
                mean, square = 0.0, 0.0
                for i in range(indptr[row], indptr[row + 1]):
                    y = V[h + 1, successors[i]]
                    mean += prob[i] * y
                    square += prob[i] * y * y
                out[h, s, a] = max(square - mean * mean, 0.0)


@compiled
def _pooled_variance(indptr, successors, prob, moves, q, V, span, through, spread):
    """Per row: the flow that goes on from it, and the variance of sum_h q_h V[h+1] at its next state.

    Next states seen only once tell how much probability was not seen at all (Good and Turing): so much of it may lead
    to values that deviate by span [H+1].
    """
    H, S, A = q.shape
    T = (len(indptr) - 1) // (S * A)
    for row in range(len(through)):
        t, cell = row // (S * A), row % (S * A)
        s, a = cell // A, cell % A
        total, deviation = 0.0, 0.0
        for h in range(t, H - 1, T):
            total += q[h, s, a]
            deviation += q[h, s, a] * span[h + 1]
        through[row] = total
        if total == 0.0:
            continue
        mean, square, unseen = 0.0, 0.0, 0.0
        for i in range(indptr[row], indptr[row + 1]):
            u = 0.0
            for h in range(t, H - 1, T):
                u += q[h, s, a] * V[h + 1, successors[i]]
            mean += prob[i] * u
            square += prob[i] * u * u
            if prob[i] * moves[row] < 1.5:
                unseen += prob[i]
        spread[row] = max(square - mean * mean, 0.0) + unseen * deviation * deviation
