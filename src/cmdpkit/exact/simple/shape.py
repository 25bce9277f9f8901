"""How simple a policy is, and few runs at the least cost: phases of steps, and runs of states with one action.

Only decisions count that the policy can meet and that leave a choice: what is done in a state that is never reached, or
where there is one action only, makes a policy no harder to follow. A *phase* is a run of steps at which every state has
one action. A stochastic decision belongs to any phase, and is counted for itself. Runs are found exactly, by dynamic
programming, for costs that add up over the single decisions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.model.transitions import BoolArray, FloatArray, IntArray

NONE = -1  # in place of an action where no decision counts
MOST_PIECES = 128  # beginnings of phases that are considered; of longer horizons, every so many steps


class Shape(NamedTuple):
    """How simple a policy is; of two, the one that is smaller in this order is the simpler one."""

    phases: int  # how many there are
    draws: int  # stochastic decisions, those of different steps counted apart
    over_states: int  # changes of the action from one state to the next, in all phases together
    over_steps: int  # changes of the action of a state from one step to a later one


def shape_of(choice: IntArray, counts: BoolArray, draws: int) -> Shape:
    """The shape of choice [H, S], where `counts` [H, S] says which decisions count."""
    edges, rules = phases_of(choice, counts)
    over_states = sum(int((np.diff(rule[rule != NONE]) != 0).sum()) for rule in rules)
    before, over_steps = np.full(choice.shape[1], NONE), 0
    for here, count in zip(choice, counts, strict=True):
        over_steps += int((count & (before != NONE) & (before != here)).sum())
        before[count] = here[count]
    return Shape(len(edges) - 1, draws, over_states, over_steps)


def phases_of(choice: IntArray, counts: BoolArray) -> tuple[list[int], IntArray]:
    """The edges 0 = e[0] < e[1] < ... = H of the fewest phases, and the action of each state in each, or NONE.

    A phase is extended as long as possible: what can be one phase still can if it is cut short, so nothing is lost.
    """
    H, S = choice.shape
    edges, rules, rule = [0], [], np.full(S, NONE)
    for h in range(H):
        here = counts[h]
        if (here & (rule != NONE) & (rule != choice[h])).any():
            edges.append(h)
            rules.append(rule)
            rule = np.full(S, NONE)
        rule[here] = choice[h, here]
    return [*edges, H], np.array([*rules, rule])


def filled(choice: IntArray, counts: BoolArray, allowed: BoolArray) -> IntArray:
    """The same decisions where they count; elsewhere what the nearest state does in that phase, if it can be done."""
    edges, rules = phases_of(choice, counts)
    written = choice.copy()
    states = np.arange(choice.shape[1])
    for first, last, rule in zip(edges[:-1], edges[1:], rules, strict=True):
        known = np.flatnonzero(rule != NONE)
        if not len(known):
            continue
        right = np.minimum(np.searchsorted(known, states), len(known) - 1)
        left = np.maximum(right - 1, 0)
        nearer = np.abs(known[left] - states) <= np.abs(known[right] - states)
        near = rule[known[np.where(nearer, left, right)]]
        for h in range(first, last):
            possible = allowed[h, states, near] & ~counts[h]
            written[h, possible] = near[possible]
    return written


def best_phases(costs: FloatArray, K: int) -> IntArray:
    """choice [H, S] with at most K phases for which the costs [H, S, A] add up to the least."""
    H = len(costs)
    ends = np.unique(np.linspace(0, H, min(H, MOST_PIECES) + 1).astype(np.int64))
    pieces = np.add.reduceat(costs, ends[:-1], axis=0)
    edges = ends[_edges(_block_costs(pieces), min(K, len(pieces)))]
    return phases_at(costs, edges)


def phases_at(costs: FloatArray, edges: IntArray) -> IntArray:
    """choice [H, S] with the cheapest action of every state between two edges."""
    rules = np.add.reduceat(costs, edges[:-1], axis=0).argmin(axis=-1)
    return np.repeat(rules, np.diff(edges), axis=0)


def _block_costs(pieces: FloatArray) -> FloatArray:
    """[m, m + 1]: the least cost of the pieces i .. j - 1 with one action for each state; inf unless i < j."""
    m = len(pieces)
    by_action = np.ascontiguousarray(np.moveaxis(pieces, -1, 0))  # the least over the actions is found faster so
    cost = np.full((m, m + 1), np.inf)
    for i in range(m):
        cost[i, i + 1 :] = np.cumsum(by_action[:, i:], axis=1).min(axis=0).sum(axis=-1)
    return cost


def _edges(cost: FloatArray, K: int) -> IntArray:
    """Edges 0 = e[0] < ... = m of at most K blocks with the least cost; of several, those with the fewest blocks.

    Where actions come and go with the steps, so few blocks may not do; then every piece is a block.
    """
    m = len(cost)
    least, came = np.full((K + 1, m + 1), np.inf), np.zeros((K + 1, m + 1), dtype=np.int64)
    least[0, 0] = 0.0
    for k in range(1, K + 1):
        through = least[k - 1, :m, None] + cost  # [i, j]
        came[k], least[k] = through.argmin(axis=0), through.min(axis=0)
    k = int(least[:, m].argmin())
    if not np.isfinite(least[k, m]):
        return np.arange(m + 1)
    edges = [m]
    while k:
        edges.append(int(came[k, edges[-1]]))
        k -= 1
    return np.array(edges[::-1])


def best_runs(costs: FloatArray, change: float) -> IntArray:
    """rules [K, S] with the least sum of costs [K, S, A] and of `change` for every change from a state to the next."""
    K, S, A = costs.shape
    came = np.zeros((S, K, A), dtype=np.int16)
    here, actions = costs[:, 0].copy(), np.arange(A)
    for s in range(1, S):
        cheapest = here.argmin(axis=1)[:, None]
        switched = np.take_along_axis(here, cheapest, 1) + change
        stays = here <= switched
        came[s] = np.where(stays, actions, cheapest)
        here = costs[:, s] + np.where(stays, here, switched)
    rules = np.zeros((K, S), dtype=np.int64)
    rules[:, -1] = here.argmin(axis=1)
    for s in range(S - 1, 0, -1):
        rules[:, s - 1] = came[s, np.arange(K), rules[:, s]]
    return rules
