"""The hook before every episode: it is called once, before the policy is asked for, and `check_learner` tests it."""

import sys
from pathlib import Path

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.learners import Learner, Source, Spec, numpy_generator, stream, uniform
from cmdpkit.testing import check_learner

PATH = Path(__file__).parents[2] / "docs" / "tutorial"


class Drawn(Learner):
    """Plays a deterministic policy that is drawn before every episode."""

    title = "Draws its policy."

    def __init__(self, spec, **settings):
        super().__init__(spec, **settings)
        self.pi = spec.allowed / spec.allowed.sum(axis=-1, keepdims=True)
        self.begun = self.ended = self.h = 0

    def begin(self, rng):
        assert self.begun == self.ended, "an episode begins after the one before has ended"
        self.begun += 1
        scores = np.where(self.spec.allowed, numpy_generator(rng).random(self.spec.allowed.shape), -1.0)
        self.pi = np.eye(self.spec.A)[scores.argmax(axis=-1)]

    def first(self, s, rng):
        self.h = 0
        return int(self.pi[0, s].argmax())

    def next(self, signals, s, rng):
        self.h += 1
        return int(self.pi[self.h, s].argmax())

    def last(self, signals):
        self.ended += 1

    def recommend(self):
        return self.pi


class Forgets(Drawn):
    """Its own loop leaves the hook out."""

    def run(self, source, rng, n):
        self.begin = lambda rng: None
        returns = super().run(source, rng, n)
        del self.begin
        return returns


class Waits(Learner):
    """Counts how often an action paid, and learns when an episode has ended."""

    title = "Waits."

    def __init__(self, spec, **settings):
        super().__init__(spec, **settings)
        self.paid = np.ones((spec.H, spec.S, spec.A)) * spec.allowed

    def act(self, h, s):
        return int((self.paid[h, s] * (uniform(self._rng) < 0.8) + self.spec.allowed[h, s]).argmax())

    def end(self, states, actions, signals):
        for h in range(self.spec.H):
            self.paid[h, states[h], actions[h]] += signals[h, 0]

    def behaviour(self):
        likely, any_ = self.paid + self.spec.allowed, self.spec.allowed
        return sum(p * np.eye(self.spec.A)[x.argmax(axis=-1)] for p, x in ((0.8, likely), (0.2, any_)))

    def recommend(self):
        return np.eye(self.spec.A)[self.paid.argmax(axis=-1)]


class ByStep(Waits):
    """The same, told step by step."""

    def first(self, s, rng):
        self._rng, self.h, self.trace = rng, 0, []
        return self.taken(s)

    def next(self, signals, s, rng):
        self.trace[-1] += (signals.copy(),)
        self.h += 1
        return self.taken(s)

    def last(self, signals):
        self.trace[-1] += (signals.copy(),)
        self.end(*(np.array(x) for x in zip(*self.trace, strict=True)))
        self.h, self.trace = 0, []

    def taken(self, s):
        a = self.act(self.h, s)
        self.trace.append((s, a))
        return a


def test_a_learner_that_waits_until_an_episode_ends_writes_two_methods_in_place_of_three():
    check_learner(Waits)
    runs = [ck.learn("paper/synthetic", kind, episodes=300, seed=2) for kind in (Waits, ByStep)]
    assert np.array_equal(runs[0].curves["regret"], runs[1].curves["regret"])
    assert np.array_equal(runs[0].policy.pi, runs[1].policy.pi)
    assert Waits.missing() == ByStep.missing() == [] and Learner.missing() == ["first", "next", "last", "recommend"]


def test_it_is_called_once_before_every_episode_and_what_it_draws_is_measured():
    """The meter must have seen the policy that was drawn for each episode: exact regret equals the sum over them."""
    cmdp = ck.load("paper/synthetic")
    learner, source, rng = Drawn(Spec.of(cmdp, 40)), Source.of(cmdp, ck.solve(cmdp).value), stream(3)
    lost, again = 0.0, Drawn(Spec.of(cmdp, 40))
    for _ in range(40):
        before = rng.copy()
        learner.run(source, rng, 1)
        again.begin(before)
        again.ended += 1
        lost += ck.solve(cmdp).value - ck.evaluate(cmdp, ck.Policy(again.pi)).v
    assert learner.begun == learner.ended == 40
    assert source.meter.tally().weak.regret == pytest.approx(lost, abs=1e-9)


def test_numpy_draws_come_from_the_stream_and_move_it_on():
    rng, other = stream(5), stream(5)
    first, second = numpy_generator(rng).random(), numpy_generator(rng).random()
    assert numpy_generator(other).random() == first != second
    assert uniform(rng) != uniform(other)


def test_check_learner_accepts_a_learner_that_draws_in_the_hook_and_refuses_one_whose_loop_leaves_it_out():
    check_learner(Drawn)
    with pytest.raises(AssertionError, match="run"):
        check_learner(Forgets)


def test_the_posterior_sampling_of_the_tutorial_keeps_the_contract_and_learns(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(PATH))
    from posterior import Posterior

    assert len((PATH / "posterior.py").read_text(encoding="utf-8").splitlines()) < 90
    check_learner(Posterior)
    run = ck.learn("paper/synthetic", Posterior, episodes=2_000, seed=1)
    assert run.policy_value == pytest.approx(1.573, abs=0.05) and run.policy_utilities[0] > 1.95
    study = ck.bench(
        ["paper/synthetic"], ["posterior:Posterior"], episodes=200, seeds=2, out=tmp_path, executor="serial"
    )
    assert [record.run.algo for record in study.records] == ["posterior:Posterior"] * 2
    sys.modules.pop("posterior")
