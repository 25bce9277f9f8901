"""Episodes of a fixed policy, one by one: what each of them earns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cmdpkit.model.compiled import compiled, inlined
from cmdpkit.model.policy import Policy
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import Stream, uniform
from cmdpkit.simulate.simulator import Simulator, reset, step


class Rollout(NamedTuple):
    """Episodes played one by one, in unit scale."""

    reward: FloatArray  # [n], total reward of each episode
    utilities: FloatArray  # [N, n], total utilities of each episode


def episodes(sim: Simulator, policy: Policy, rng: Stream, n: int, *, discount: float = 1.0) -> Rollout:
    """n episodes of a policy that fits the simulator. What is earned at step h counts discount^h times.

    >>> from cmdpkit import Policy, envs
    >>> from cmdpkit.simulate.random import stream
    >>> cmdp = envs.build("paper/grid")
    >>> played = episodes(Simulator.of(cmdp), Policy.uniform(cmdp), stream(1), 1000)
    >>> played.reward.shape, played.utilities.shape
    ((1000,), (1, 1000))
    """
    decisions = policy.decisions
    totals = np.zeros((sim.outcomes.shape[1], n))
    _play(sim, decisions._replace(p=np.cumsum(decisions.p, axis=1)), rng, float(discount), totals)
    return Rollout(totals[0], totals[1:])


@compiled
def _play(sim, decisions, rng, discount, totals):
    """Episodes of a policy, one per column of totals [1+N, n]; decisions.p holds cumulative probabilities here.

    Every step takes one random number for the action, whether the decision draws or not.
    """
    for k in range(totals.shape[1]):
        s = reset(sim, rng)
        weight = 1.0
        for h in range(sim.H):
            a = _action(decisions, h, s, uniform(rng))
            s, x = step(sim, h, s, a, rng)
            for n in range(len(totals)):
                totals[n, k] += weight * sim.outcomes[x, n]
            weight *= discount


@inlined
def _action(decisions, h, s, u):
    """The action at step h in state s for a number u in [0, 1)."""
    t, s = np.int64(h) if len(decisions.choice) > 1 else np.int64(0), np.int64(s)  # h % T, which takes longer
    low, high = decisions.first[t], decisions.first[t + 1]
    last = high
    if high - low == decisions.choice.shape[1]:  # every state draws
        low = high = low + s
    while low < high:  # the first row of this step whose state is not below s
        middle = (low + high) // 2
        if decisions.s[middle] < s:
            low = middle + 1
        else:
            high = middle
    if low == last or decisions.s[low] != s:
        return np.int64(decisions.choice[t, s])
    a = 0
    u *= decisions.p[low, -1]
    while decisions.p[low, a] <= u:
        a += 1
    return a
