"""Environments that change halfway: is the change found, and is none found where there is none?

Random worlds of 6 states, 3 actions and 8 steps with drawn rewards and costs, in which learners play episodes. Halfway,
rewards, costs or transitions change, every other time in some states at random, else everywhere a little and in the
same direction. Either way the total reward or cost of the policy that was best before moves by 2 to 6 % of its range
over all policies. *Found* is the share of runs with a note about it, and
*dated* the share of those whose date is wrong by at most an eighth of the run. Worlds without a change show false
alarms. Wrong ones among 200 runs: at most 2 are expected, and more than 6 have a probability below 1 in 200.

`CMDPKIT_RUNS` is the number of runs of each line.
"""

import os
import sys
from bisect import bisect_right

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

import cmdpkit as ck
from bench._suite import total_range
from cmdpkit.learners import load
from cmdpkit.running.gym import GymWorld
from cmdpkit.simulate.random import stream

RUNS = int(os.environ.get("CMDPKIT_RUNS", "10"))
S, A, H = 6, 3, 8
LEARNERS = ("cl-pri", "triple-q", "opt-cmdp")
KINDS = ("reward", "cost", "transition")
LONG, SHORT = 30_000, (300, 3_000)  # episodes of runs with a change, and without


class World(gymnasium.Env):
    """Episodes of a first model and, from episode ``switch`` on, of a second one; rewards and costs are 0 or 1."""

    def __init__(self, first: ck.CMDP, second: ck.CMDP, switch: int) -> None:
        self.observation_space, self.action_space = Discrete(S), Discrete(A)
        self.metadata = {"reward_range": (0.0, 1.0), "cost_ranges": [(0.0, 1.0)]}
        self.switch, self.k = switch, -1
        self.worlds = [
            (np.cumsum(m.P[0], axis=-1).tolist(), m.r[0].tolist(), (-m.g[0, 0]).tolist()) for m in (first, second)
        ]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.k, self.h, self.s = self.k + 1, 0, 0
        self.P, self.r, self.c = self.worlds[self.k >= self.switch]
        self.u = self.np_random.random(3 * H).tolist()
        return 0, {}

    def step(self, action):
        s, (u, v, w) = self.s, self.u[3 * self.h : 3 * self.h + 3]
        self.s, self.h = min(bisect_right(self.P[s][action], u), S - 1), self.h + 1
        return self.s, float(v < self.r[s][action]), False, self.h == H, {"cost": float(w < self.c[s][action])}


def model(P, r, c, bound: float) -> ck.CMDP:
    constraints = [ck.at_most("cost", bound, c)]
    return ck.CMDP(P, r, mu=np.eye(S)[0], horizon=H, constraints=constraints, renormalise=True)


def drawn(seed: int, kind: str | None) -> tuple[ck.CMDP, ck.CMDP]:
    """A world and what becomes of it."""
    rng = np.random.default_rng([10, seed])
    P, r = rng.dirichlet(np.full(S, 0.4), size=(S, A)), rng.random((S, A))
    c = np.clip(0.5 * rng.random((S, A)) + 0.4 * r, 0.0, 1.0)
    least = -ck.solve(ck.CMDP(P, -c, mu=np.eye(S)[0], horizon=H)).value
    loose = model(P, r, c, float(H))
    bound = (least + ck.evaluate(loose, ck.solve(loose).policy).w[0]) / 2
    first = model(P, r, c, bound)
    if kind is None:
        return first, first
    best = ck.solve(first)
    if seed % 2:  # everything shifts a little in the same direction, which is hardest to see
        where, end = np.ones((S, 1)), float(rng.integers(2))
        to = np.broadcast_to(np.eye(S)[rng.integers(S)], (S, A, S)), np.full((S, A), end), np.full((S, A), end)
    else:  # some states change
        where = (rng.random((S, 1)) < 0.5).astype(float)
        to = rng.dirichlet(np.full(S, 0.4), size=(S, A)), rng.random((S, A)), rng.random((S, A))
    ranges, asked = [total_range(first, first.r), total_range(first, first.g[0])], rng.uniform(0.02, 0.06)
    low, high = 0.0, 1.0
    for _ in range(30):  # how far the parts that change go towards something else
        share = (low + high) / 2 * where
        change = [x + share.reshape(S, 1, *[1] * (x.ndim - 2)) * (y - x) for x, y in zip((P, r, c), to, strict=True)]
        new = [x if KINDS[(i + 2) % 3] != kind else y for i, (x, y) in enumerate(zip((P, r, c), change, strict=True))]
        second = model(*new, bound)
        after = ck.evaluate(second, best.policy)
        moved = max(abs(after.v - best.value) / ranges[0], abs(after.w[0] - best.utilities[0]) / ranges[1])
        low, high = (low, (low + high) / 2) if moved > asked else ((low + high) / 2, high)
    return (
        (first, second) if abs(moved - asked) < 1e-3 else drawn(seed + 1_000, kind)
    )  # where nothing that counts changed


def run(algo: str, kind: str | None, episodes: int, seed: int) -> tuple[int, str] | None:
    """The note of a run."""
    first, second = drawn(seed, kind)
    world = GymWorld(World(first, second, episodes // 2), [ck.at_most("cost", first.constraints[0].bound)], horizon=H)
    world.play(load(algo)(world.spec(episodes)), stream(seed), episodes)
    return world.change()


def main() -> None:
    shown = False
    for kind in KINDS:
        for i, algo in enumerate(LEARNERS):
            seeds = range(RUNS * i, RUNS * (i + 1))  # every line has worlds of its own
            notes = [x for x in (run(algo, kind, LONG, seed) for seed in seeds) if x is not None]
            dated = sum(abs(k - LONG // 2) <= LONG // 8 for k, _ in notes)
            line = f"{kind:10} changes, {algo:9} {LONG:,} episodes: found in {len(notes)} of {RUNS}, dated in {dated}"
            print(line, flush=True)
            if notes and not shown:
                print(f"  for example: {notes[0][1]}", flush=True)
                shown = True
    for episodes in SHORT:
        for i, algo in enumerate(LEARNERS):
            n = 4 * RUNS
            seeds = range(10_000 + n * i, 10_000 + n * (i + 1))
            alarms = sum(run(algo, None, episodes, seed) is not None for seed in seeds)
            print(f"nothing    changes, {algo:9} {episodes:6,} episodes: found in {alarms} of {n}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
