"""Learning in Gymnasium environments: time of a run over that of its `env.step` and `env.reset` calls alone."""

from __future__ import annotations

import time
from collections.abc import Callable

import gymnasium

import cmdpkit as ck
from cmdpkit.learners import load
from cmdpkit.running.gym import GymWorld, make_env
from cmdpkit.simulate.random import stream

ROUNDS = 5
COST = [ck.at_most("cost", 5)]
CASES = {
    "FrozenLake, no cost (H=100)": (lambda: gymnasium.make("FrozenLake-v1"), []),
    "FrozenLake (H=20)": (lambda: make_env("gym/frozen-lake"), COST),
    "CliffWalking (H=20)": (lambda: make_env("gym/cliff-walking"), COST),
    "Taxi (H=20)": (lambda: make_env("gym/taxi"), COST),
    "Taxi (H=50)": (lambda: make_env("gym/taxi", H=50), COST),
}


class Recorded(gymnasium.Wrapper):
    """Keeps what it was asked: a seed (or none) for every reset, an action for every step."""

    def __init__(self, env):
        super().__init__(env)
        self.calls: list[tuple[int | None, list[int]]] = []

    def reset(self, *, seed=None, options=None):
        self.calls.append((seed, []))
        return self.env.reset(seed=seed, options=options)

    def step(self, action):
        self.calls[-1][1].append(action)
        return self.env.step(action)


def learn(env: gymnasium.Env, constraints: list, episodes: int) -> float:
    """Seconds of a run with Triple-Q."""
    world = GymWorld(env, constraints)
    learner = load("triple-q")(world.spec(episodes))
    began = time.perf_counter()
    world.play(learner, stream(1), episodes)
    return time.perf_counter() - began


def replay(env: gymnasium.Env, calls: list[tuple[int | None, list[int]]]) -> float:
    """Seconds of the same calls by themselves."""
    began = time.perf_counter()
    for seed, actions in calls:
        env.reset(seed=seed)
        for action in actions:
            env.step(action)
    return time.perf_counter() - began


def compare(title: str, make: Callable[[], gymnasium.Env], constraints: list, episodes: int = 3000) -> float:
    learn(make(), constraints, 1)  # compiles
    recorded = Recorded(make())
    learn(recorded, constraints, episodes)
    runs, alone = [], []
    for _ in range(ROUNDS):
        runs.append(learn(make(), constraints, episodes))
        alone.append(replay(make(), recorded.calls))
    steps = sum(len(actions) for _, actions in recorded.calls)
    print(
        f"{title:27} {steps / episodes:5.1f} steps an episode: learning {1e6 * min(runs) / steps:5.2f} us a step, "
        f"env.step and reset alone {1e6 * min(alone) / steps:5.2f} us; ratio {min(runs) / min(alone):.2f}x",
        flush=True,
    )
    return min(runs) / min(alone)


def main() -> dict[str, float]:
    return {
        f"time of learning over that of the environment alone, {title}": compare(title, make, constraints)
        for title, (make, constraints) in CASES.items()
    }
