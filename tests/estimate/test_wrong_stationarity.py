"""Worlds that are taken for stationary and are not: a single step differs, the first, a middle or the last one.

Every world is drawn anew: four states, two actions, eight steps, signals that are drawn. One step then has another cost
(higher by 0.4 in half of the states) or other transitions (towards one state). A learner that is told "stationary"
counts all steps together, so its certificate would be about another world. It has to notice.
"""

from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete

import cmdpkit as ck
from cmdpkit.learners import Source, Spec, load
from cmdpkit.running.gym import GymWorld
from cmdpkit.simulate.random import stream

H, S, A, EPISODES = 8, 4, 2, 4000
STEPS = {"first": 0, "middle": H // 2, "last": H - 1}
ALL_STEPS = STEPS | {"before last": H - 2}  # nothing follows the last step, so it has no transitions to differ in


def world(seed, signal_at=None, move_at=None):
    """A random world; one step has another cost in half of the states, or leads to one state more often."""
    rng = np.random.default_rng(seed)
    P, r = rng.dirichlet(np.ones(S), (S, A)), rng.random((S, A))
    cost = 0.5 * rng.random((S, A))
    P, cost = np.tile(P, (H, 1, 1, 1)), np.tile(cost, (H, 1, 1))
    if signal_at is not None:
        cost[signal_at, rng.permutation(S)[: S // 2]] += 0.4
    if move_at is not None:
        P[move_at] = 0.5 * P[move_at] + 0.5 * np.eye(S)[rng.integers(S)]
    mu = rng.dirichlet(np.ones(S))
    return ck.CMDP(P, r, constraints=[ck.at_most("cost", 0.3 * H, cost)], horizon=H, mu=mu)


def learned(model, seed, algo="pac", episodes=EPISODES):
    """Whether a learner that is told "stationary" notices that it is wrong, and whether its certificate is false."""
    spec = Spec.of(model, episodes)
    told = Spec(spec.H, spec.S, spec.A, spec.K, spec.rho, spec.allowed, stationary=True)
    learner = load(algo)(told)
    learner.run(Source.of(model, noise="bernoulli"), stream(seed), episodes)
    found, false = learner.certificate(), False
    if found is not None:
        truth = ck.evaluate(model, ck.Policy.of(model, learner.recommend()))
        unit = [truth.v, *(scale.total_to_unit(-w, H) for scale, w in zip(model.utility_scales, truth.w, strict=True))]
        false = not all(low <= x <= high for x, (low, high) in zip(unit, found.intervals, strict=True))
    return any("different consequences at different steps" in str(note) for note in learner.warnings()), false


@pytest.mark.parametrize(("kind", "where"), [("signal_at", "last"), ("move_at", "before last")])
def test_a_step_that_differs_is_noticed(kind, where):
    assert learned(world(1, **{kind: ALL_STEPS[where]}), 1) == (True, False)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "where"),
    [("signal_at", x) for x in STEPS] + [("move_at", x) for x in ("first", "middle", "before last")],
)
def test_a_step_that_differs_is_noticed_in_48_of_50_worlds(kind, where):
    found = [learned(world(seed, **{kind: ALL_STEPS[where]}), seed) for seed in range(50)]
    assert sum(noticed for noticed, _ in found) >= 48
    assert sum(false for _, false in found) <= 2


@pytest.mark.long
def test_worlds_whose_steps_are_alike_cause_one_false_alarm_in_a_hundred_at_most():
    found = [learned(world(seed), seed) for seed in range(1000, 1100)]
    assert sum(noticed for noticed, _ in found) <= 1
    assert sum(false for _, false in found) <= 5


class Billed(gymnasium.Env):
    """Two rooms and ten steps; a room where nothing costs anything until the episode ends, and then up to 1."""

    observation_space, action_space = Discrete(2), Discrete(2)
    metadata: ClassVar = {"reward_range": (0, 1), "cost_ranges": [(0, 1)]}

    def __init__(self, at_end=0.8):
        self.at_end = at_end

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.h, self.s = 0, 0
        return self.s, {}

    def step(self, action):
        cost = float(self.np_random.random() < (self.at_end if self.h == 9 and self.s == 1 else 0.0))
        reward, self.h = float(self.s), self.h + 1
        self.s = int(self.np_random.random() < (0.7 if action == 1 else 0.2))
        return self.s, reward, False, False, {"cost": cost}


@pytest.mark.parametrize("at_end", [0.8, 0.0])
def test_a_gymnasium_world_of_which_nothing_is_declared_says_what_it_assumes_and_notices_a_bill_at_the_end(at_end):
    bounds = [ck.at_most("bill", 0.5)]
    run = ck.learn(GymWorld(Billed(at_end), bounds, horizon=10), "pac", episodes=1500)
    assert "learned assuming that nothing depends on the step (GymWorld(..., stationary=False) otherwise)" in run.notes
    noticed = any("different consequences at different steps" in note for note in run.notes)
    assert noticed == (at_end > 0) and (run.certificate is None) == noticed
    changes = [note for note in run.notes if "the process changes" in note]  # what differs is the step, not the time
    assert changes == [note for note in run.notes[-1:] if note.startswith("that the steps differ may be why")]
    assert len(changes) == noticed
    if not noticed:
        assert "assuming that nothing depends on the step" in run.certificate.sentence
        assert run.certificate.to_dict()["assuming"].startswith("nothing depends on the step")
    declared = ck.learn(GymWorld(Billed(at_end), bounds, horizon=10, stationary=False), "pac", episodes=300)
    assert not declared.certificate.assuming and not any("assuming" in note for note in declared.notes)


@pytest.mark.parametrize("algo", ["pac", "cl-pri", "opt-cmdp"])
def test_signals_that_vary_although_they_were_declared_noiseless_are_told(algo):
    model = world(3)
    spec = Spec.of(model, 300)
    for noise in ("bernoulli", "none"):
        told = Spec(spec.H, spec.S, spec.A, spec.K, spec.rho, spec.allowed, stationary=True, noiseless=True)
        learner = load(algo)(told)
        learner.run(Source.of(model, noise=noise), stream(1), 300)
        assert any("was declared noiseless" in str(note) for note in learner.warnings()) == (noise == "bernoulli")
