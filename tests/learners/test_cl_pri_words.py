"""What CL-PRI with counts says about its own runs: in the user's names and units, with what would help."""

import re

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.running.learning import learn
from cmdpkit.running.playing import told_slack
from cmdpkit.running.request import known_safe
from cmdpkit.running.worlds import ModelWorld


def lock(steps, actions, slip, base=0.0):
    """A row of states in which one action leads on and all others lead back to the start; only the end pays."""
    S, H = steps + 1, steps + 1
    key = np.random.default_rng(0).integers(actions, size=steps)
    P, r, g = np.zeros((S, actions, S)), np.full((S, actions), base), np.ones((S, actions))
    for s in range(steps):
        for a in range(actions):
            P[s, a, s + 1 if a == key[s] else 0] += 1 - slip
            P[s, a, 0] += slip
            g[s, a] = 0.9 if a == key[s] else 1.0
    P[steps, :, steps] = 1.0
    r[steps] = 1.0
    return ck.CMDP(P, r, g, 0.9 * H, horizon=H)


def dear(price, scale=1.0):
    """Every step one can rest for a reward, or work for 1/price of utility; half of the steps must be worked.

    The third action is ruinous, so that exploration leaves a debt. `scale` is the unit of the utility.
    """
    H, gain = 4, 1 / price
    g = scale * np.array([[0.5, 0.5 + gain, 0.0]])
    bound = ck.at_least("served", scale * H * (0.5 + gain / 2), g)
    return ck.CMDP(np.ones((1, 3, 1)), np.array([[1.0, 0.0, 1.0]]), horizon=H, constraints=[bound])


def one(notes, words):
    (said,) = (note for note in notes if words in note)
    return said


@pytest.mark.parametrize("base", [0.0, 0.001])
def test_a_lock_of_twenty_steps_is_solved_or_called_unsolved(base):
    solved = learn(lock(20, 3, 0.02, base), "cl-pri", episodes=10_000)
    assert solved.policy_value > 0.95 * solved.optimum and not any("unsolved" in note for note in solved.notes)
    missed = learn(lock(20, 30, 0.2, base), "cl-pri", episodes=10_000)
    assert missed.policy_value < 0.03 < missed.optimum * 3  # nothing but what every state pays
    assert "10,000 episodes earned the same reward" in one(missed.notes, "the problem is unsolved")


def test_a_slack_of_a_two_thousandth_is_warned_about():
    rng = np.random.default_rng(3)
    P, r, g = rng.dirichlet(np.ones(6), (6, 3)), rng.random((6, 3)), rng.random((6, 3))
    best = ck.solve(ck.CMDP(P, g, horizon=6)).value
    run = learn(ck.CMDP(P, r, g, best - 0.0005 * 6, horizon=6), "cl-pri", episodes=3000)
    assert one(run.notes, "may miss utility ≥").startswith("the returned policy")
    if run.final("realised_violation")[0] > 0:
        assert one(run.notes, "was missed by")


@pytest.mark.parametrize("scale", [1.0, 250.0])
def test_what_was_missed_is_told_in_the_users_units_with_the_price_at_which_it_would_be_repaid(scale):
    cmdp = dear(60.0, scale)
    np.testing.assert_allclose(ck.solve(cmdp).shadow_prices, 60.0 / scale)
    left = learn(cmdp, "cl-pri", episodes=1000, repay_price=20.0)
    short = left.final("realised_violation")[0] / 1000
    assert short > 0
    said = one(left.notes, "was missed by")
    assert said.startswith("served ≥") and "repay_price" in said
    assert float(re.search(r"missed by (\S+) per episode", said)[1]) == pytest.approx(short, rel=0.01)
    assert float(re.search(r"have cost (\S+) of reward", said)[1]) == pytest.approx(60.0 / scale, rel=0.01)
    repaid = learn(cmdp, "cl-pri", episodes=1000)
    assert repaid.final("realised_violation")[0] <= 1e-9 and not any("was missed" in note for note in repaid.notes)
    assert "repaying the shortfall on served" in one(repaid.notes, "repay_price")
    assert repaid.regret > left.regret + 60 * 0.5 * left.final("realised_violation")[0] / scale  # that is what it costs


def test_a_debt_that_the_episodes_do_not_suffice_to_repay_is_told():
    run = learn("paper/grid", "cl-pri", episodes=30, seed=1)
    short = run.final("realised_violation")[0]
    assert (short > 0) == any("was missed by" in note for note in run.notes)
    assert short > 0 and "more episodes would repay it" in one(run.notes, "was missed by")


def test_bounds_that_exclude_each_other_are_told_each_with_what_it_lacks():
    """Nobody can be at both ends: each of two bounds of 3 in 4 steps lacks 1 in the best compromise."""
    P = np.zeros((2, 2, 2))
    P[:, 0, 0] = P[:, 1, 1] = 1.0
    left = np.array([[1.0, 1.0], [0.0, 0.0]])
    bounds = [ck.at_least("left", 3.0, left), ck.at_least("right", 3.0, 1 - left)]
    run = learn(ck.CMDP(P, np.zeros((2, 2)), horizon=4, mu=[0.5, 0.5], constraints=bounds), "cl-pri", episodes=400)
    for name in ("left", "right"):
        said = one(run.notes, f"the best compromise misses {name} ≥ 3 by")
        assert float(re.search(r"≥ 3 by (\S+) per episode", said)[1]) == pytest.approx(1.0, abs=0.15)
        assert "may be impossible" in said


def test_a_run_that_is_short_for_its_problem_says_how_long_it_should_be():
    """100 x 4 pairs, each to be tried once in three tenths of the run: 1,334 episodes."""
    large = "random:S=100,A=4,H=5,stationary=true,successors=5,concentration=1.0"
    said = one(learn(large, "cl-pri", episodes=200).notes, "are few for")
    assert "200 episodes are few for 400 (state, action) pairs" in said and "at least 1,334 episodes" in said
    assert one(learn(large, "cl-pri", stop=200).notes, "are few for") == said
    assert not any("few for" in note for note in learn("paper/synthetic", "cl-pri", episodes=1000).notes)


def test_internals_name_states_and_actions_and_speak_in_the_users_units():
    plain = ck.load("paper/synthetic")
    names = {"states": ["calm", "busy", "lost"], "action_names": ["rest", "serve", "call"]}
    named = ck.CMDP(plain.P, plain.r, plain.g, [2.0], mu=plain.mu, **names)
    wide = ck.CMDP(plain.P, plain.r, 40 * plain.g, [80.0], mu=plain.mu, **names)
    run, other = (learn(cmdp, "cl-pri", episodes=3000, seed=7) for cmdp in (named, wide))
    drawn = run.internals["stochastic decisions"]
    assert {(d["step"], d["state"], d["action"]) for d in drawn} == {
        (d.step, d.state, a) for d in run.decisions for a in d.probabilities
    }
    assert "state calm, action serve" in run.internals_text() and "index" not in run.internals_text()
    [margin], [wide_margin] = (r.internals["margin of the returned policy"] for r in (run, other))
    assert wide_margin == pytest.approx(40 * margin, rel=0.6) and margin > 0  # in steps of half a standard error


def test_what_an_algorithm_was_told_is_in_the_users_units():
    cmdp = dear(4.0, scale=250.0)
    safest = 4 * 250.0 * (0.5 + 0.25)
    said = told_slack(ModelWorld(cmdp), known_safe(ModelWorld(cmdp)))
    clears = safest - cmdp.constraints[0].bound
    assert said == f", which clears {cmdp.constraints[0]} by {clears:.4g}"
