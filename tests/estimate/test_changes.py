"""Environments that change during a run: what is counted, what is found, and what the user is told."""

import re
from collections import defaultdict

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete

import cmdpkit as ck
from cmdpkit.learners import load
from cmdpkit.learners._note import Note
from cmdpkit.records.record import Certificate
from cmdpkit.results.runs import _certified
from cmdpkit.running.gym import GymWorld
from cmdpkit.running.gym import world as by_period
from cmdpkit.running.gym.world import PERIODS
from cmdpkit.running.playing import account_of
from cmdpkit.simulate.random import stream

H = 6


class Machine(gymnasium.Env):
    """Run (1) or mend (0) a machine that is good (0) or worn (1): from episode ``switch`` on it wears sooner.

    Running earns 1, and costs 1 where it is worn. An episode ends early with probability ``quits`` at each step.
    """

    observation_space, action_space = Discrete(2), Discrete(2)

    def __init__(self, switch=10**9, wear=(0.2, 0.5), cost=(1.0, 1.0), start=(0.0, 0.0), quits=0.0):
        self.switch, self.k, self.quits = switch, -1, quits
        self.worlds = list(zip(wear, cost, start, strict=True))
        self.seen = []  # episodes as lists of (state, action, reward, cost, next state or "over")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.k += 1
        self.wear, self.cost, start = self.worlds[self.k >= self.switch]
        self.s = int(self.np_random.random() < start)
        self.seen.append([])
        return self.s, {}

    def step(self, action):
        s, u = self.s, self.np_random.random()
        self.s = int(s == 1 or u < self.wear) if action == 1 else 0
        reward, cost = float(action), self.cost * float(action * s)
        over = self.np_random.random() < self.quits
        self.seen[-1].append((s, int(action), reward, cost, "over" if over else self.s))
        return self.s, reward, over, False, {"cost": cost}


def world_of(env, bound=1.5, **more):
    return GymWorld(env, [ck.at_most("cost", bound)], horizon=H, reward_range=(0.0, 1.0), **more)


def played(env, episodes, algo="triple-q", seed=0, **more):
    world = world_of(env, **more)
    learner = load(algo)(world.spec(episodes))
    world.play(learner, stream(seed), episodes)
    return world, learner


def expected_counts(env, episodes, by_step):
    """What should be counted, from the environment's own list: (period, step, state, action, next) -> [n, r, c]."""
    length = 1
    while PERIODS * length < episodes:
        length *= 2
    counts, starts = defaultdict(lambda: np.zeros(3)), np.zeros((PERIODS, 3))
    for k, steps in enumerate(env.seen[:episodes]):
        starts[k // length, steps[0][0]] += 1
        for h, (s, a, r, c, to) in enumerate(steps):
            s_next = -1 if h == H - 1 else 2 if to == "over" else to
            counts[k // length, h if by_step else 0, s, a, s_next] += (1, r, 1 - c)  # utilities are costs below 1
    return counts, starts


@pytest.mark.parametrize("by_step", [False, True])
@pytest.mark.parametrize("episodes", [1, 15, 16, 17, 64, 100, 700])
def test_everything_is_counted_in_the_period_it_belongs_to(episodes, by_step):
    env = Machine(quits=0.1)
    world, _ = played(env, episodes, stationary=not by_step)
    counts, starts = expected_counts(env, episodes, by_step)
    seen = world.periods.observed(None)
    found = {}
    for i in range(len(seen.cell)):
        h, s, a = np.unravel_index(seen.cell[i], seen.shape)
        key = (int(seen.group[i]), int(h), int(s), int(a), int(seen.s_next[i]))
        found[key] = np.array([seen.n[i], seen.sums[0, i], seen.sums[1, i]])
    assert found.keys() == counts.keys()
    assert all((found[key] == counts[key]).all() for key in found)
    np.testing.assert_array_equal(np.pad(seen.starts, ((0, PERIODS - len(seen.starts)), (0, 0))), starts)


@pytest.mark.parametrize("at_once", [1, 10_000])
def test_pieces_and_resumed_runs_count_the_same_bits(at_once, monkeypatch):
    monkeypatch.setattr(by_period, "FEWEST_NEW", at_once)
    whole, _ = played(Machine(quits=0.1), 300)
    pieces = world_of(Machine(quits=0.1))
    learner, rng = load("triple-q")(pieces.spec(300)), stream(0)
    for n in (1, 5, 64, 13, 17, 100, 50):
        pieces.play(learner, rng, n)
        state, again = pieces.state(), world_of(Machine(quits=0.1))
        again.begin()
        again.restore(state)
        pieces = again
    pieces.play(learner, rng, 50)
    assert all((x == whole.state()[name]).all() for name, x in pieces.state().items())


def test_a_saved_run_whose_periods_were_tampered_with_is_refused():
    world, _ = played(Machine(), 50)
    state = world.state()
    for name, edit in (
        ("rows", lambda x: np.add(x, [10**6, 0, 0, 0, 0, 0, 0])),
        ("rows", lambda x: np.add(x, [-(10**6), 0, 0, 0, 0, 0, 0])),
        ("rows", lambda x: np.add(x, [0, 50, 0, 0, 0, 0, 0])),
        ("table", lambda x: x + 10**6),
    ):
        bad = {**state, f"periods/{name}": edit(state[f"periods/{name}"])}
        with pytest.raises(ck.CmdpkitError, match="by periods of time does not fit"):
            world_of(Machine()).restore(bad)


def test_what_does_not_fit_is_left_out_and_the_rest_is_still_right(monkeypatch):
    monkeypatch.setattr(by_period, "MOST_ROWS", 60)
    monkeypatch.setattr(by_period, "FEWEST_NEW", 1)
    env = Machine(quits=0.1)
    world, _ = played(env, 200)
    counts, _ = expected_counts(env, 200, False)
    seen = world.periods.observed(None)
    assert 0 < len(np.unique(seen.cell)) < 4
    for i in range(len(seen.cell)):
        s, a = np.unravel_index(seen.cell[i], seen.shape)[1:]
        assert seen.n[i] == counts[int(seen.group[i]), 0, int(s), int(a), int(seen.s_next[i])][0]


CHANGES = {
    "wear": ({"wear": (0.2, 0.5)}, "action 1 in state 0"),
    "cost": ({"cost": (1.0, 0.5)}, "action 1 in state 1"),
    "start": ({"start": (0.0, 0.5)}, "the beginning of an episode"),
}


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("algo", ["triple-q", "cl-pri"])
def test_the_note_says_when_where_and_by_how_much(algo, kind):
    """The sizes are compared with those of the two true processes under the decisions that were taken.

    Each may be wrong by five standard errors of a mean of 500 totals, which are at most 6 / 2 / sqrt(500): 0.67.
    """
    options, place = CHANGES[kind]
    given = {"wear": (0.2, 0.2), "cost": (1.0, 1.0), "start": (0.0, 0.0), **options}
    env = Machine(switch=500, **given)
    world, _ = played(env, 1000, algo)
    episode, note = world.change()
    assert 470 <= episode <= 535
    assert f"changes at about episode {episode:,}" in note
    assert note.split("what followed ")[1].startswith(place)
    shares = np.zeros((2, 2))
    for steps in env.seen[:1000]:
        for s, a, *_ in steps:
            shares[s, a] += 1
    pi = shares / shares.sum(axis=1, keepdims=True)
    told = [float(x) for pair in re.findall(r"goes from (\d+\.?\d*) to (\d+\.?\d*)", note) for x in pair]
    for i in range(2):
        wear, cost, start = (given[name][i] for name in ("wear", "cost", "start"))
        P = np.array([[[1, 0], [1 - wear, wear]], [[1, 0], [0, 1]]])
        r = np.array([[0.0, 1.0], [0.0, 1.0]])
        c = ck.at_most("cost", 9, np.array([[0.0, 0.0], [0.0, cost]]))
        model = ck.CMDP(P, r, mu=[1 - start, start], horizon=H, constraints=[c])
        true = ck.evaluate(model, ck.Policy.of(model, pi))
        assert told[i] == pytest.approx(true.v, abs=0.67) and told[2 + i] == pytest.approx(true.w[0], abs=0.67)
    moved = told[3] - told[2]
    assert (moved < -0.2) if kind == "cost" else (moved > 0.2)


def test_totals_are_told_in_the_users_units_and_sense():
    env = Machine(switch=200, wear=(0.2, 0.2), cost=(1.0, 3.0))
    world = GymWorld(env, [ck.at_least("cost", 0.5)], horizon=H, reward_range=(-1.0, 4.0), cost_ranges=[(0.0, 5.0)])
    world.play(load("triple-q")(world.spec(400)), stream(0), 400)
    note = world.change()[1]
    rows = [env.seen[:200], env.seen[200:400]]
    earned = [np.mean([sum(x[3] for x in steps) for steps in part]) for part in rows]
    told = re.findall(r"total of cost goes from (\d+\.?\d*) to (\d+\.?\d*)", note)[0]
    ratio = float(told[1]) / float(told[0])
    assert ratio == pytest.approx(3.0, rel=0.25) and earned[1] > earned[0] and "reward goes from" in note


def test_a_change_silences_the_advice_to_be_patient_and_undoes_the_certificate(monkeypatch):
    short = Note("exploration not repaid", 0, by=0.1)
    doubt = Note("missed", 0, by=0.1)
    proof = Certificate(0.95, 500, (0.0, 1.0), ((0.0, 1.0),), (True,))
    monkeypatch.setattr("cmdpkit.running.playing.certificate_of", lambda *_: proof)
    for switch in (250, 10**9):
        world, learner = played(Machine(switch=switch), 500, "cl-pri")
        monkeypatch.setattr(type(learner), "warnings", lambda self: (short, doubt, "something else"))
        found = account_of(world, learner, learner.recommend(), 0)
        changed = switch == 250
        assert found.notes[0].startswith("the process changes at about episode") == changed
        assert any("did not suffice to repay" in x for x in found.notes) != changed
        assert any("too few episodes" in x for x in found.notes) != changed
        assert "something else" in found.notes and any("is missed by" in x for x in found.notes)
        assert found.certificate.safe == ((None,) if changed else (True,))
        assert ("since" in found.certificate.to_dict()) == changed
        assert (240 <= found.certificate.since <= 270) if changed else found.certificate.since is None


def test_the_record_of_a_run_across_a_change_says_so_wherever_it_is_shown():
    record = ck.learn(world_of(Machine(switch=600), bound=1.0), "cl-pri", episodes=1200, seed=0)
    assert record.notes[0].startswith("the process changes at about episode")
    assert "did not suffice to repay" not in " ".join(record.notes)
    proof = Certificate(0.95, 500, (0.0, 1.0), ((0.0, 1.0),), (None,), since=601)
    said = " ".join(str(line) for line in _certified(record, proof))
    assert "If the environment had not changed" in said and "episode 601" in said and "Certain" not in said


def test_a_model_that_is_simulated_pays_nothing_and_is_never_said_to_change():
    record = ck.learn("paper/synthetic", "triple-q", episodes=200, seed=0)
    assert not any("process changes" in note for note in record.notes)


@pytest.mark.parametrize("episodes", [1, 2, 3, 17])
def test_a_run_of_a_few_episodes_shows_no_change(episodes):
    assert played(Machine(switch=1), episodes)[0].change() is None


@pytest.mark.long
def test_false_alarms_are_rare_while_learners_change_their_minds():
    """If at most 1 of 100 runs gives a false alarm, more than 5 of 120 have a probability below 0.002."""
    alarms = 0
    for i, (algo, episodes) in enumerate((a, k) for a in ("triple-q", "opt-cmdp", "cl-pri") for k in (100, 800)):
        for seed in range(20):
            world, _ = played(Machine(wear=(0.3, 0.3), start=(0.3, 0.3), quits=0.05), episodes, algo, 100 * i + seed)
            alarms += world.change() is not None
    assert alarms <= 5
