"""The model that the counts suggest, and the best policy in it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import fdtrc

from cmdpkit.estimate.counts import Counts, estimated, signal_squares, steps_of
from cmdpkit.exact.columns import Columns
from cmdpkit.exact.solution import Infeasible
from cmdpkit.exact.solver import Watch, solve_fully, solve_in
from cmdpkit.exact.sources import Horizon
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_least
from cmdpkit.model.tolerances import EQUAL_SUMS
from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray


class Model(NamedTuple):
    """The estimated model and what it rests on."""

    cmdp: CMDP  # the model itself
    counts: Counts  # what it rests on
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


def model_of(counts: Counts, rho: FloatArray, allowed: BoolArray, least: int | IntArray) -> Model:
    """The estimated model with bounds rho [N] and the actions `allowed` [H, S, A].

    An action counts as tried after `least` observations, perhaps by state [H, S, 1]. In a state with such an action the
    others do not exist; in a state without, all allowed actions do, and lead back to it.
    """
    (H, S, A), found = allowed.shape, estimated(counts, allowed.shape[2])
    T = steps_of(counts, A)
    moves, visits = (np.broadcast_to(x.reshape(T, S, A), (H, S, A)) for x in (counts.moves, counts.visits))
    tried = allowed & (moves >= least)
    tried[-1] = allowed[-1] & (visits[-1] >= np.broadcast_to(least, (H, S, 1))[-1])
    known = np.asarray(tried.any(axis=-1))
    cmdp = CMDP(
        found.kernel,
        found.signals[0],
        found.signals[1:],
        mu=found.mu,
        horizon=H,
        actions=np.where(known[..., None], tried, allowed),
        constraints=[at_least(f"utility {n}", float(x)) for n, x in enumerate(rho)],
        renormalise=True,
    )
    return Model(cmdp, counts, tried, known, indifferent(counts, T, H, rho))


def best_plan(model: Model, target: FloatArray, pool: Columns[Horizon] | None = None) -> Plan:
    """The best policy of the estimated model that reaches the target [N]; if none does, the best compromise.

    A pool of policies of this model makes further plans in it faster.
    """
    asked = np.where(model.moot, 0.0, target)  # no total is below 0, so that a target of 0 asks for nothing
    cmdp = model.cmdp.with_bounds(**{c.name: float(x) for c, x in zip(model.cmdp.constraints, asked, strict=True)})
    try:
        found = solve_fully(cmdp) if pool is None else solve_in(pool, cmdp, "auto", Watch())
    except Infeasible as error:
        return Plan(error.policy.pi.copy(), np.zeros(len(target)), error.utilities, False)
    return Plan(found.policy.pi.copy(), found.shadow_prices, found.utilities, True, found.value)


def indifferent(
    counts: Counts, T: int, H: int, rho: FloatArray, *, near: float = 3.0, error: float = 1e-4
) -> BoolArray:
    """[N]: utilities that no state and no action is seen to change, and whose total cannot be told from the bound.

    Where such a utility lies exactly at its bound and its signals are noisy, the estimated model says by chance that it
    misses the bound, or meets it with nothing to spare. A plan would then give up any amount of reward for actions that
    were merely lucky so far. Nothing is bought by that, so no plan asks for such a bound.

    T is 1 where all steps share their counts, else H. A total cannot be told from the bound within `near` standard
    errors. A utility that nothing changes is taken for one that something changes with probability `error`.
    """
    M, visits = 1 + len(rho), counts.visits.reshape(T, -1)
    all_squares, found = signal_squares(counts, M), np.zeros(len(rho), dtype=bool)
    for n, bound in enumerate(rho):
        sums, squares = (x[:, n + 1].reshape(visits.shape) for x in (counts.moments, all_squares))
        variance = _common_variance(visits, sums, squares, error)
        if variance is None:
            continue
        seen = np.maximum(visits.sum(axis=1), 1)
        total = H / T * (sums.sum(axis=1) / seen).sum()
        deviation = H / T * np.sqrt((variance / seen).sum())
        found[n] = abs(total - bound) <= near * deviation + EQUAL_SUMS
    return found


def _common_variance(visits: IntArray, sums: FloatArray, squares: FloatArray, error: float) -> float | None:
    """The variance of a signal around the mean of its step, or None if the means of a step's cells differ.

    visits, sums and squares [T, cells] are what each cell saw. Whether the means differ is decided by the F-test of the
    analysis of variance, which compares their spread with the spread within the cells.
    """
    steps = visits.sum(axis=1)
    around_cells = max(float((squares - sums**2 / np.maximum(visits, 1)).sum()), 0.0)
    around_steps = max(float((squares.sum(axis=1) - sums.sum(axis=1) ** 2 / np.maximum(steps, 1)).sum()), 0.0)
    between = int((visits > 0).sum()) - int((steps > 0).sum())
    within = int(np.maximum(visits - 1, 0).sum())
    if within < between or not between:  # too few visits to tell
        return None
    apart = around_steps - around_cells
    if apart > EQUAL_SUMS * float(squares.sum()):
        ratio = apart / between / max(around_cells / within, 1e-300)
        if fdtrc(between, within, ratio) < error:
            return None
    return around_steps / (between + within)
