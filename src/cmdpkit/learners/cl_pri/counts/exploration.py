"""How exploration proceeds: in blocks that end with a sweep over all values and a change of the prices.

`explore` plays the episodes. This module decides when exploration is looked at, when it has found enough, and, in an
anytime run, when it is taken up again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmdpkit.estimate.model import best_plan, model_of
from cmdpkit.learners.cl_pri.counts.explore import sweep

if TYPE_CHECKING:
    from cmdpkit.learners.cl_pri.counts import WithCounts

NEW_CELLS = 0.03  # of the episodes: exploration ends when it finds fewer new cells than that
MAX_PRICE = 10.0  # during exploration, and where no policy meets the bounds


def next_exploration_block(learner: WithCounts) -> None:
    """Explore until the next sweep, or until exploration is looked at."""
    clock, table = learner.clock, learner.table
    k = clock.episode
    clock.block_end = min(table.explore, clock.check, k + table.sweep - k % table.sweep)


def end_exploration_block(learner: WithCounts) -> bool:
    """Correct prices and values; returns whether exploration has ended."""
    clock, spec = learner.clock, learner.spec
    k = clock.episode
    earned = learner.ledger.totals - learner.swept
    m = k - _swept_at(learner)
    rate = 2 / (spec.H * np.sqrt(learner.table.explore))
    prices = learner.optimism.prices
    prices[1:] = np.clip(prices[1:] + rate * (m * spec.rho - earned[1:]), 0.0, MAX_PRICE)
    learner.swept[...] = learner.ledger.totals
    ended = k >= min(clock.check, learner.table.explore) and _looked_at(learner)
    sweep(learner.memory, learner.optimism)
    if ended:
        clock.explored = k
        learner.prices[...] = prices[1:]
    else:
        next_exploration_block(learner)
    return ended


def _looked_at(learner: WithCounts) -> bool:
    """Take the prices of the estimated model, if it can meet the bounds; returns whether exploration has ended."""
    clock, table, spec = learner.clock, learner.table, learner.spec
    k = clock.episode
    plan = best_plan(model_of(learner.memory, spec.rho, spec.allowed, 1), spec.rho)
    if plan.feasible:
        learner.optimism.prices[1:] = np.minimum(plan.prices, MAX_PRICE)
    clock.all_found = int(clock.new_cells <= NEW_CELLS * (k - clock.checked))
    clock.checked, clock.new_cells = k, 0
    clock.check = table.next_check(k)
    return bool(clock.all_found) or k >= table.explore


def _swept_at(learner: WithCounts) -> int:
    """The episode of the last sweep: blocks of exploration end with one each."""
    k, size = learner.clock.episode, learner.table.sweep
    ends = [0, learner.clock.checked, (k - 1) // size * size]
    return max(x for x in ends if x < k)


def resume_exploration(learner: WithCounts) -> bool:
    """Take exploration up again at the beginning of a stage, unless there is nothing left to find or no time for it."""
    clock = learner.clock
    k = clock.explored_from = clock.episode
    if clock.all_found or learner.table.explore == k:
        clock.explored = k
        return False
    clock.explored, clock.checked, clock.new_cells = -1, k, 0
    clock.check = learner.table.next_check(k)
    learner.optimism.prices[1:] = np.minimum(learner.prices, MAX_PRICE)
    learner.swept[...] = learner.ledger.totals
    sweep(learner.memory, learner.optimism)
    next_exploration_block(learner)
    return True
