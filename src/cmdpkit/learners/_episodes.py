"""The compiled loop over episodes that learners share, if they learn when an episode has ended.

What a learner plays and learns from is a NamedTuple of arrays, its *player*. The type of the player chooses, while the
loop is compiled, how the meter is told (`show`), how an action is chosen (`choose`) and what is learned (`learn`).
`chosen` and `learned` are the same for episodes that are played elsewhere.
"""

from __future__ import annotations

import numpy as np

from cmdpkit.model.compiled import compiled, primitive
from cmdpkit.simulate.meter import collect
from cmdpkit.simulate.simulator import reset, step


@primitive
def show(player, meter):
    """Tell the meter which policy the next episode plays."""


@primitive
def choose(player, episode, h, s, rng):
    """The action to take at step h in state s."""


@primitive
def learn(player, episode, rng):
    """Learn from an episode that has ended; returns whether there is something to decide before the next one."""


@compiled
def play_episodes(sim, meter, player, episode, rng, out, first, n):
    """Play up to n episodes, with returns in the columns of out [1+N, :] from `first` on; returns how many."""
    H, M = episode.signals.shape
    for k in range(first, first + n):
        show(player, meter)
        s = reset(sim, rng)
        for h in range(H):
            a = chosen(player, episode, h, np.int64(s), rng)
            episode.states[h], episode.actions[h] = s, a
            s, x = step(sim, h, s, a, rng)
            for m in range(M):
                episode.signals[h, m] = sim.outcomes[x, m]
        decide = learned(player, episode, rng)
        for m in range(M):
            out[m, k] = episode.totals[m]
        collect(meter, episode.totals)
        if decide:
            return k + 1 - first
    return n


@compiled(inline=True)
def chosen(player, episode, h, s, rng):
    """The action to take at step h in state s."""
    return np.int64(choose(player, episode, h, s, rng))


@compiled(inline=True)
def learned(player, episode, rng):
    """Fill the totals of an episode and learn from it; returns whether there is something to decide."""
    H, M = episode.signals.shape
    for m in range(M):
        episode.totals[m] = 0.0
        for h in range(H):
            episode.totals[m] += episode.signals[h, m]
    return learn(player, episode, rng)
