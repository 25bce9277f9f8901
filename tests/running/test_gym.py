"""A model as a Gymnasium environment, Gymnasium's environments as models, and other conventions brought to ours."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from gymnasium.utils.env_checker import check_env

import cmdpkit as ck
from cmdpkit import envs
from cmdpkit.envs.gym import GymTable
from cmdpkit.running.gym import WithCost, make_env
from instances import synthetic

EPISODIC = [name for name in envs.names() if envs.build(name).criterion.has_horizon]
GYM = [name for name in envs.names() if name.startswith("gym/")]


def played(env: gymnasium.Env, pi: np.ndarray, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Totals [n, 1+N] of reward and costs in n episodes of pi, and how often (h, s) was visited [H, S]."""
    rng = np.random.default_rng(seed)
    cdf = np.cumsum(pi, axis=-1)
    totals, visits = [], np.zeros(pi.shape[:2])
    for k in range(n):
        s, _ = env.reset(seed=seed if k == 0 else None)
        total, h, over = 0.0, 0, False
        while not over:
            visits[h, s] += 1
            s, reward, terminated, truncated, info = env.step(int((cdf[h, s] < rng.random()).sum()))
            total = total + np.array([reward, *np.atleast_1d(info["cost"])])
            h, over = h + 1, terminated or truncated
        totals.append(total)
    return np.array(totals), visits


def assert_mean(samples: np.ndarray, expected: np.ndarray) -> None:
    """Within 4.5 standard errors: a right implementation fails with probability 7e-6 a number."""
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    assert (np.abs(samples.mean(axis=0) - expected) <= 4.5 * error + 1e-12).all(), (samples.mean(axis=0), expected)


def two_bounds(stationary: bool = False) -> ck.CMDP:
    """Three states, another kernel at every step, signals in odd units, one bound of each sense, an action missing."""
    rng = np.random.default_rng(5)
    shape = () if stationary else (4,)
    actions = np.ones((3, 2), dtype=bool)
    actions[1, 0] = False
    return ck.CMDP(
        rng.dirichlet(np.ones(3), size=(*shape, 3, 2)),
        10 * rng.normal(size=(*shape, 3, 2)),
        mu=[0.2, 0.5, 0.3],
        horizon=4,
        actions=actions,
        constraints=[
            ck.at_most("heat", 5, 3 * rng.random((*shape, 3, 2))),
            ck.at_least("joy", -5, rng.normal(size=(*shape, 3, 2))),
        ],
        states=["cold", "warm", "hot"],
        action_names=["rest", "work"],
    )


# -- a model as an environment -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cmdp", [*EPISODIC, "noisy"])
def test_every_model_passes_gymnasiums_own_checks_without_a_warning(cmdp):
    check_env(two_bounds().to_gym(noise="bernoulli") if cmdp == "noisy" else envs.build(cmdp).to_gym())


def test_the_step_is_observed_on_request():
    env = two_bounds().to_gym(observe_step=True)
    plain = two_bounds().to_gym()
    check_env(env)
    assert env.observation_space.nvec.tolist() == [5, 3]
    seen, same = [env.reset(seed=3)[0]], [plain.reset(seed=3)[0]]
    for _ in range(4):
        seen.append(env.step(1)[0])
        same.append(plain.step(1)[0])
    assert [x.tolist() for x in seen] == [[h, s] for h, s in enumerate(same)]


@pytest.mark.parametrize("noise", ["none", "bernoulli"])
@pytest.mark.parametrize("stationary", [False, True])
def test_episodes_have_the_models_values_and_occupancy(noise, stationary):
    cmdp = two_bounds(stationary)
    pi = np.where(cmdp.actions, [0.3, 0.7], 0.0)
    policy = ck.Policy.of(cmdp, pi / pi.sum(axis=-1, keepdims=True))
    n = 1000
    totals, visits = played(cmdp.to_gym(noise), policy.pi, n, seed=11)
    values = ck.evaluate(cmdp, policy)
    assert_mean(totals, np.array([values.v, *values.w]))
    reach = ck.occupancy(cmdp, policy).sum(axis=-1)
    assert (np.abs(visits / n - reach) <= 4.5 * np.sqrt(reach * (1 - reach) / n)).all()  # 12 numbers, 7e-6 each


def test_without_noise_signals_are_the_models_in_the_users_units_and_order():
    cmdp = two_bounds()
    env = cmdp.to_gym()
    for seed in range(20):
        s, _ = env.reset(seed=seed)
        for h in range(cmdp.H):
            s_next, reward, _, _, info = env.step(1)
            assert reward == cmdp.r[h, s, 1]
            assert info["costs"].tolist() == [-cmdp.g[0, h, s, 1], cmdp.g[1, h, s, 1]] == info["cost"].tolist()
            s = s_next


def test_with_noise_a_signal_is_one_of_two_values():
    cmdp = synthetic()
    env = cmdp.to_gym(noise="bernoulli")
    seen = set()
    for seed in range(200):
        env.reset(seed=seed)
        _, reward, _, _, info = env.step(0)
        assert type(info["cost"]) is float and info["costs"].tolist() == [info["cost"]]  # as other libraries expect
        seen.add((reward, info["cost"]))
    assert seen == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_an_episode_is_truncated_after_h_steps_never_terminated_and_begins_with_reset():
    env = two_bounds().to_gym()
    _, info = env.reset(seed=1)
    assert info["step"] == 0 and "cost" not in info
    ends = [env.step(1)[2:] for _ in range(4)]
    assert [(terminated, truncated, info["step"]) for terminated, truncated, info in ends] == [
        (False, False, 1),
        (False, False, 2),
        (False, False, 3),
        (False, True, 4),
    ]
    for over in (env, two_bounds().to_gym()):
        with pytest.raises(ValueError, match=r"there is no episode: call reset\(\) first"):
            over.step(1)


def test_an_action_that_does_not_exist_is_named_with_step_and_state():
    env = two_bounds().to_gym()
    s = None
    for seed in range(50):
        s, info = env.reset(seed=seed)
        if s == 1:
            break
    assert info["action_mask"].tolist() == [0, 1] and info["action_mask"].dtype == np.int8
    with pytest.raises(ValueError, match=r"^step 1, state 'warm': there is no action 'rest'; those that exist"):
        env.step(0)
    with pytest.raises(ValueError, match=r"^step 1, state 'warm': there is no action index 2; those that exist"):
        env.step(2)


def test_an_unknown_noise_is_refused():
    with pytest.raises(ValueError, match="noise is 'normal', expected 'none' or 'bernoulli'"):
        two_bounds().to_gym(noise="normal")


def test_spaces_are_discrete_and_samples_are_actions_that_exist():
    env = envs.build("paper/grid").to_gym()
    assert env.observation_space == Discrete(25) and env.action_space == Discrete(5)
    env.action_space.seed(3)
    taken = set()
    for seed in range(60):
        s, info = env.reset(seed=seed)
        while True:
            assert info["action_mask"].tolist() == env.cmdp.actions[0, s].astype(int).tolist()
            a = int(env.action_space.sample())
            taken.add((s, a))
            s, _, _, truncated, info = env.step(a)  # raises for one that does not exist
            if truncated:
                break
    assert {a for s, a in taken if s == 2} == {1, 2, 3, 4}  # all that exist at the start
    assert env.action_space.sample(mask=np.array([1, 0, 0, 0, 0], dtype=np.int8)) == 0


def test_the_seed_decides_everything():
    def trace(seed):
        env = two_bounds().to_gym(noise="bernoulli")
        out = []
        for k in range(5):
            out.append(env.reset(seed=seed if k == 0 else None)[0])
            for _ in range(4):
                s, reward, _, _, info = env.step(1)
                out += [s, reward, *info["cost"]]
        return out

    assert trace(1) == trace(1) != trace(2)


# -- Gymnasium's environments as models --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*GYM, "gym/cliff-walking:slippery=true,H=60"])
def test_the_exact_model_and_the_environment_give_a_policy_the_same_value(name):
    """One step in ten is random; 500 episodes with the rewards and costs that the environment hands out."""
    base, params = envs.parse(name)
    env = make_env(base, **params)
    cmdp = env.cmdp
    assert cmdp == ck.load(name)
    pi = 0.9 * ck.solve(cmdp).policy.pi + 0.1 * ck.Policy.uniform(cmdp).pi
    totals, _ = played(env, pi, 500, seed=7)
    values = ck.evaluate(cmdp, ck.Policy.of(cmdp, pi))
    assert_mean(totals, np.array([values.v, *values.w]))


def test_the_environments_declare_the_ranges_of_what_they_hand_out():
    declared = {name: make_env(name).metadata for name in GYM}
    rewards = {name: metadata["reward_range"] for name, metadata in declared.items()}
    assert rewards == {"gym/cliff-walking": (-1, -1), "gym/frozen-lake": (0, 1), "gym/taxi": (-10, 20)}
    assert all(metadata["cost_ranges"] == [(0, 1)] for metadata in declared.values())


@pytest.mark.parametrize("name", GYM)
def test_rows_of_the_model_are_the_rows_of_the_table(name):
    env = make_env(name)
    cmdp, table = env.cmdp, env.unwrapped.P
    P, over = cmdp.P[0], set()
    going = set(np.flatnonzero(cmdp.mu))
    while True:  # everything that can be reached
        rows = [x for s in going for row in table[s].values() for x in row]
        over = {int(x[1]) for x in rows if x[3]}
        more = {int(x[1]) for x in rows} - over - going
        if not more:
            break
        going |= more
    assert over and not over & going
    for s in going:
        for a, row in table[s].items():
            expected = np.zeros(cmdp.S)
            for p, s_next, _, _ in row:
                expected[s_next] += p
            np.testing.assert_allclose(P[s, a], expected, atol=1e-12)
    for s in over:
        assert (P[s, :, s] == 1).all() and not cmdp.r[0, s].any() and not cmdp.g[0, 0, s].any()


def test_the_cliff_is_solved_by_hand():
    """13 steps with 12 on the edge, or 15 with 2: a bound of 5 makes the long way 7 times in 10."""
    sol = ck.solve(ck.load("gym/cliff-walking"))
    assert sol.value == pytest.approx(-0.3 * 13 - 0.7 * 15, abs=1e-9)
    assert sol.shadow_prices == pytest.approx([(15 - 13) / (12 - 2)], abs=1e-9)


def test_an_unbounded_taxi_earns_its_known_optimum():
    """7.93 is the mean over all starts of 20 minus a shortest way's other steps, as often reported for Taxi."""
    sol = ck.solve(ck.load("gym/taxi", H=25, fuel=100))
    assert sol.value == pytest.approx(7.93, abs=1e-9)


def test_on_the_lake_a_zero_bound_is_met_by_waiting_alone():
    sol = ck.solve(ck.load("gym/frozen-lake", falls=0))
    assert sol.utilities == pytest.approx([0], abs=1e-9) and sol.value == pytest.approx(0, abs=1e-9)


def test_boards_are_drawn_and_states_have_readable_names():
    lake, cliff, taxi = (ck.load(name) for name in ("gym/frozen-lake", "gym/cliff-walking", "gym/taxi"))
    desc = make_env("gym/frozen-lake").unwrapped.desc
    assert ["".join(row) for row in desc.astype(str)] == ["SFFF", "FHFH", "FFFH", "HFFG"]
    assert {lake.states[s]: mark for s, mark in lake.grid.marks.items()} == {
        "r1c1": "S", "r2c2": "H", "r2c4": "H", "r3c4": "H", "r4c1": "H", "r4c4": "G",
    }  # fmt: skip
    assert cliff.states[36] == "r4c1" and cliff.grid.marks[36] == "S" and cliff.grid.marks[47] == "G"
    env = make_env("gym/taxi").unwrapped
    assert taxi.states[env.encode(1, 2, 0, 1)] == "r2c3 R>G"
    assert taxi.states[env.encode(4, 0, 4, 3)] == "r5c1 taxi>B"


def test_a_state_that_both_ends_an_episode_and_does_not_is_refused():
    P = {0: {0: [(0.5, 1, 0.0, True), (0.5, 1, 0.0, False)]}, 1: {0: [(1.0, 0, 0.0, False)]}}
    table = GymTable.of(P, lambda s, a, s_next, reward: (reward, 0.0))
    with pytest.raises(ValueError, match="an episode may end in state 1 and may go on from there"):
        table.model(np.array([1.0, 0.0]), 3, ck.at_most("cost", 1))


def test_only_gymnasiums_environments_are_made():
    with pytest.raises(ValueError, match="'queue' is a model, not an environment of Gymnasium; to_gym makes one of it"):
        make_env("queue")
    with pytest.raises(ValueError, match="did you mean 'gym/taxi'"):
        make_env("gym/taxy")


# -- other conventions -------------------------------------------------------------------------------------------------


def test_a_cost_is_given_to_a_step_by_where_it_came_from_and_went():
    calls = []

    def outcome(s, a, s_next, reward):
        calls.append((s, a, s_next, reward))
        return -reward, 2.0

    env = WithCost(two_bounds().to_gym(), outcome)
    s0, _ = env.reset(seed=1)
    s1, reward, _, _, info = env.step(1)
    s2, *_ = env.step(1)
    assert [(c[0], c[2]) for c in calls] == [(s0, s1), (s1, s2)]
    assert reward == -calls[0][3] and info["cost"] == 2.0
