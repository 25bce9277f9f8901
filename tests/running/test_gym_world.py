"""Learning in Gymnasium environments: the same bits as the compiled loop, and resumed at any point."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete

import cmdpkit as ck
from cmdpkit.errors import RunFailed
from cmdpkit.learners import load, names_for
from cmdpkit.running.gym import GymWorld, WithCost, make_env
from cmdpkit.running.gym.episodes import EPISODES_PER_SEED
from cmdpkit.running.learning import learn
from cmdpkit.running.worlds import ModelWorld
from cmdpkit.simulate.random import stream
from gym_line import FALLS, Line, Recorder, Vector, Watched, WatchedByStep, lake, told

pytestmark = pytest.mark.usefixtures("short_evaluation")


def same(a, b):
    assert a.run.key == b.run.key
    assert a.curves.keys() == b.curves.keys()
    for name in a.curves:
        assert np.array_equal(a.curves[name], b.curves[name]), name
    assert a.policy == b.policy and a.policy_value == b.policy_value


# All that need nothing that only a model can tell.
DRIVEN = [x for x in names_for("horizon") if not load(x).needs]


# -- the same algorithm as in compiled code ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("paper/grid", {}),
        ("gym/cliff-walking", {}),
        ("paper/grid", {"preset": "authors", "eta": 2.0}),  # explores at random; its own eta depends on S
    ],
)
def test_on_a_deterministic_model_both_loops_learn_the_same_bits(name, params):
    """The environment of cliff-walking ends early, the model goes on in the goal: that must make no difference."""
    cmdp = ck.load(name)
    env = make_env(name) if name.startswith("gym/") else cmdp.to_gym()
    worlds = ModelWorld(cmdp), GymWorld(env)
    worlds[0].begin()
    learners = [load("triple-q")(world.spec(2000), **params) for world in worlds]
    streams = [stream(3), stream(3)]
    for n in (1, 6, 93, 900):
        for world, learner, rng in zip(worlds, learners, streams, strict=True):
            world.play(learner, rng, n)
        a, b = learners
        for x, y in ((a.behaviour(), b.behaviour()), (a.recommend(), b.recommend())):
            assert np.array_equal(x, y[:, : cmdp.S])
        assert np.array_equal(a.multipliers, b.multipliers)
        assert np.array_equal(*streams)
    realised = [world.tally().realised for world in worlds]
    assert realised[1].regret == pytest.approx(realised[0].regret, rel=1e-12)
    assert realised[1].violation == pytest.approx(realised[0].violation, rel=1e-12)
    assert a.multipliers.max() > 0, "the test would be blind to utilities"


@pytest.mark.parametrize("algo", DRIVEN)
def test_every_learner_that_can_be_driven_from_outside_learns_without_a_model(algo):
    run = learn(lake(), algo, constraints=FALLS, episodes=200, seed=1)
    assert run.policy.pi.shape == (20, 16, 4) and run.curves["episode"][-1] == 200
    assert run.policy_value is None and run.optimum is None and "regret" not in run.curves


def test_the_learned_policy_comes_close_to_the_optimum():
    """Half of the optimum's chance of arriving, a random walk has less than a quarter, and falls within bounds."""
    run = learn(make_env("gym/frozen-lake", H=12, falls=0.1), "cl-pri", episodes=3_000, seed=1)
    assert run.optimum == pytest.approx(ck.solve(ck.load("gym/frozen-lake", H=12, falls=0.1)).value)
    exact = ck.evaluate(ck.load("gym/frozen-lake", H=12, falls=0.1), run.policy)
    assert (run.policy_value, *run.policy_utilities) == (exact.v, *exact.w)
    uniform = ck.evaluate(ck.load("gym/frozen-lake", H=12), ck.Policy.uniform(ck.load("gym/frozen-lake", H=12)))
    assert exact.v > 0.5 * run.optimum and uniform.v < 0.25 * run.optimum
    assert exact.w[0] < 0.1 and uniform.w[0] > 0.6


# -- what a learner is told --------------------------------------------------------------------------------------------


def test_after_an_early_end_an_extra_state_goes_on_for_nothing():
    env = Line(rewards=(2.0, -1.0, 1.0), costs=(0.5, 2.0, 0.0))
    (episode, *_), _ = told(env, Watched(5), reward_range=(-2, 2), cost_ranges=[(0, 4)])
    states, actions, signals = episode
    assert states == [0, 1, 2, 3, 3] and actions == [1, 1, 1, 0, 0]
    assert signals == [[1.0, 0.875], [0.25, 0.5], [0.75, 1.0], [0.5, 1.0], [0.5, 1.0]]  # utility = 1 - cost / 4


def test_a_learner_driven_by_steps_is_told_the_same():
    options = {"reward_range": (-2, 2), "cost_ranges": [(0, 4)]}
    for chance in (1.0, 0.6):
        env = Line(rewards=(2.0, -1.0, 1.0), costs=(0.5, 2.0, 0.0), chance=chance)
        whole, _ = told(env, Watched(5), n=2 * EPISODES_PER_SEED + 5, **options)
        steps, _ = told(env, WatchedByStep(), n=2 * EPISODES_PER_SEED + 5, **options)
        assert steps == [(states, signals) for states, _, signals in whole]


def test_ranges_are_stretched_to_include_nothing():
    (episode, *_), world = told(Line(), Watched(5), reward_range=(1, 1), cost_ranges=[(1, 2)])
    assert episode[2] == [[1.0, 1.0], [1.0, 0.5], [1.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
    assert world.spec(1).rho.tolist() == [4.5]  # 5 steps: (5 * 2 - 1) / 2


def test_at_least_keeps_the_sense_of_a_utility():
    world = GymWorld(Line(), [ck.at_least("progress", 2.0)], horizon=5, reward_range=(0, 1))
    learner = Watched(5)
    assert world.spec(1).rho.tolist() == [2.0]
    world.play(learner, stream(1), 1)
    assert [row[1] for row in learner.told[0][2]] == [0.0, 1.0, 0.0, 0.0, 0.0]
    assert world.tally().realised.violation.tolist() == [1.0]


def test_no_constraints_and_no_costs():
    world = GymWorld(Line(), [], horizon=5, reward_range=(0, 1))
    learner = Watched(5)
    world.spec(1)
    world.play(learner, stream(1), 1)
    assert learner.told[0][2] == [[1.0], [1.0], [1.0], [0.0], [0.0]]


@pytest.mark.parametrize("cost", [0.5, np.float64(0.5), np.array(0.5), np.array([0.5]), [0.5], (0.5,), np.float32(0.5)])
def test_a_single_cost_may_be_a_number_or_an_array_of_one(cost):
    (episode, *_), _ = told(Line(costs=(cost,) * 3), Watched(5), reward_range=(0, 1))
    assert [row[1] for row in episode[2]] == [0.5, 0.5, 0.5, 1.0, 1.0]


def test_several_costs_are_told_in_order():
    env = Line(costs=([0.0, 0.25], [0.5, 1.0], [0.0, 0.0]))
    world = GymWorld(env, [ck.at_most("a", 1), ck.at_least("b", 1)], horizon=3, reward_range=(0, 1))
    learner = Watched(3)
    world.spec(1)
    world.play(learner, stream(1), 1)
    assert learner.told[0][2] == [[1.0, 1.0, 0.25], [1.0, 0.5, 1.0], [1.0, 1.0, 0.0]]


def test_spaces_need_not_begin_with_zero():
    class Shifted(gymnasium.Wrapper):
        def __init__(self, env):
            super().__init__(env)
            self.observation_space, self.action_space = Discrete(16, start=-3), Discrete(4, start=10)

        def reset(self, *, seed=None, options=None):
            obs, info = self.env.reset(seed=seed, options=options)
            return obs - 3, info

        def step(self, action):
            obs, *rest = self.env.step(action - 10)
            return obs - 3, *rest

    plain = learn(lake(), "triple-q", constraints=FALLS, episodes=300, seed=2)
    shifted = learn(Shifted(lake()), "triple-q", constraints=FALLS, episodes=300, seed=2)
    assert np.array_equal(plain.policy.pi, shifted.policy.pi)
    assert plain.policy.states == tuple(range(16)) and plain.policy.action_names == tuple(range(4))
    assert shifted.policy.states == tuple(range(-3, 13)) and shifted.policy.action_names == (10, 11, 12, 13)


def test_only_allowed_actions_are_tried():
    allowed = np.ones((16, 4), dtype=bool)
    allowed[:, 3] = allowed[0, 1] = False
    seen = set()

    class Spy(gymnasium.Wrapper):
        def reset(self, *, seed=None, options=None):
            self.s, info = self.env.reset(seed=seed, options=options)
            return self.s, info

        def step(self, action):
            seen.add((self.s, action))
            self.s, *rest = self.env.step(action)
            return self.s, *rest

    world = GymWorld(Spy(lake()), FALLS, allowed=allowed)
    run = learn(world, "triple-q", episodes=300)
    assert {a for s, a in seen if s == 0} == {0, 2} and {a for _, a in seen} == {0, 1, 2}
    assert run.policy.pi[:, 0, 1].max() == run.policy.pi[..., 3].max() == 0
    assert world.spec(1).allowed[:, 16].sum() == 20, "one action in the extra state"


# -- what is counted ---------------------------------------------------------------------------------------------------


def test_realised_totals_are_what_the_environment_has_handed_out():
    env = Recorder(make_env("gym/taxi", H=9))
    world = GymWorld(env, [ck.at_most("fuel", 3)], model=ck.load("gym/taxi", H=9, fuel=3))
    run = learn(world, "triple-q", episodes=150, seed=3)
    assert run.curves["realised_regret"][-1] == pytest.approx(150 * run.optimum - env.reward)
    assert run.curves["realised_violation"][0, -1] == pytest.approx(env.cost - 150 * 3)
    assert run.regret == run.curves["realised_regret"][-1] and run.policy_value is not None
    assert "realised regret" in str(run)


@pytest.mark.parametrize("made", [GymWorld, lambda env: ModelWorld(env.cmdp)], ids=["gym", "model"])
def test_a_world_may_serve_one_run_after_another(made):
    world = made(make_env("gym/frozen-lake"))
    first = learn(world, "triple-q", episodes=150, seed=3)
    learn(world, "triple-q", episodes=70, seed=4)
    same(first, learn(world, "triple-q", episodes=150, seed=3))


def test_a_models_bounds_are_those_asked_for():
    run = learn(make_env("gym/frozen-lake"), "triple-q", constraints=[ck.at_most("falls", 0.02)], episodes=10)
    assert run.optimum == pytest.approx(ck.solve(ck.load("gym/frozen-lake", falls=0.02)).value)
    assert run.constraints == (ck.at_most("falls", 0.02),)


def test_a_model_of_other_constraints_is_not_used_and_that_is_said():
    run = learn(make_env("gym/frozen-lake"), "triple-q", constraints=[ck.at_most("wet feet", 0.2)], episodes=10)
    assert run.optimum is None and run.policy_value is None
    assert run.notes[0] == "the model of the environment is not used: its constraints are falls ≤ 0.05"


def test_a_bound_out_of_reach_is_said():
    run = learn(make_env("gym/frozen-lake"), "triple-q", constraints=[ck.at_most("falls", -1)], episodes=10)
    assert run.optimum is None and "without an optimum there is no regret" in run.notes[0]


# -- seeds, pieces, resumed runs ---------------------------------------------------------------------------------------


def test_the_seed_decides_everything_and_the_environment_is_seeded_once_a_block():
    env = lake()
    first = learn(env, "triple-q", constraints=FALLS, episodes=200, seed=5)
    same(first, learn(lake(), "triple-q", constraints=FALLS, episodes=200, seed=5))
    other = learn(lake(), "triple-q", constraints=FALLS, episodes=200, seed=6)
    assert not np.array_equal(first.curves["realised_violation"], other.curves["realised_violation"])
    learning = env.seeds[:200]
    seeds = [seed for seed in learning if seed is not None]
    assert [i for i, seed in enumerate(learning) if seed is not None] == [0, 64, 128, 192]
    assert not set(seeds) & set(env.seeds[200:]), "the final policy is evaluated with random numbers of its own"
    assert len(set(seeds)) == 4


def test_pieces_make_no_difference():
    states = []
    for pieces in ((200,), (1, 62, 1, 1, 100, 35)):
        world = GymWorld(lake(), FALLS)
        learner, rng = load("triple-q")(world.spec(200)), stream(8)
        for n in pieces:
            world.play(learner, rng, n)
        states.append({**learner.state(), **world.state()})
    assert states[0].keys() == states[1].keys()
    for name, x in states[0].items():
        assert np.array_equal(x, states[1][name]), name


@pytest.mark.parametrize("algo", ["triple-q", "dual-q"], ids=["by episode", "by step"])
def test_a_run_that_breaks_down_anywhere_is_continued_to_the_same_bits(algo, tmp_path, monkeypatch):
    monkeypatch.setattr("cmdpkit.running.playing.SAVE_SECONDS", 0.0)
    monkeypatch.setattr("cmdpkit.running.playing.CHUNK_SECONDS", 0.0)  # one episode per piece
    whole = learn(lake(), algo, constraints=FALLS, episodes=180, seed=5)
    path = tmp_path / "run.npz"
    for breaks in (3, 250, 600, 200):  # steps of one attempt, including those that replay earlier episodes
        with pytest.raises(RunFailed, match="power cut"):
            learn(Recorder(lake(), breaks), algo, constraints=FALLS, episodes=180, seed=5, checkpoint=path)
    same(whole, learn(lake(), algo, constraints=FALLS, episodes=180, seed=5, checkpoint=path))


def test_an_environment_that_does_not_repeat_itself_is_found_out():
    class Fickle(gymnasium.Wrapper):
        def reset(self, *, seed=None, options=None):
            return self.env.reset(options=options)

    world = GymWorld(Fickle(lake()), FALLS)
    learner = load("triple-q")(world.spec(100))
    world.play(learner, stream(1), 40)
    other = GymWorld(Fickle(lake()), FALLS)
    with pytest.raises(ValueError, match=r"episode \d+, step \d+: played again .* a run in it cannot be resumed"):
        other.restore(world.state())


# -- other conventions -------------------------------------------------------------------------------------------------


def test_a_vector_as_reward_is_split_into_reward_and_cost():
    plain = learn(lake(), "triple-q", constraints=FALLS, episodes=100, seed=2)
    split = WithCost(Vector(lake()), lambda s, a, s_next, rewards: (rewards[0], rewards[1:]))
    same(plain, learn(split, "triple-q", constraints=FALLS, episodes=100, seed=2))
