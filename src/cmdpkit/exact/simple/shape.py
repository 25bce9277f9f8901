"""How simple a policy is: phases, stochastic decisions, changes between neighbouring states and between steps.

Only decisions count that the policy can meet and that leave a choice: what is done in a state that is never reached, or
where there is one action only, makes a policy no harder to follow. A *phase* is a run of steps at which every state has
one action. A stochastic decision belongs to any phase, and is counted for itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.model.transitions import BoolArray, IntArray

NONE = -1  # in place of an action where no decision counts


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
