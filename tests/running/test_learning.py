"""Runs: cut, saved, killed and resumed without changing a bit; records that say what the learner did."""

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit import learners
from cmdpkit.io.loading import build
from cmdpkit.running.active import checkpoints
from cmdpkit.running.learning import learn
from cmdpkit.running.worlds import ModelWorld
from cmdpkit.simulate.random import stream


def same(a, b):
    assert a.run == b.run and a.run.key == b.run.key
    assert a.curves.keys() == b.curves.keys()
    for name in a.curves:
        assert np.array_equal(a.curves[name], b.curves[name]), name
    assert a.policy == b.policy and a.policy_value == b.policy_value


def test_curves_are_read_at_log_spaced_and_even_episodes():
    stops = checkpoints(100_000)
    assert stops[0] == 1 and stops[-1] == 100_000 and stops == sorted(set(stops))
    assert {500 * i for i in range(1, 201)} <= set(stops)
    assert sum(k < 1000 for k in stops) > 20
    assert checkpoints(1) == [1]


def test_curves_are_read_exactly_at_the_episodes_that_are_asked_for(tmp_path, monkeypatch):
    """A run that ends there, but is told of the longer one, has the same figures: nothing is interpolated."""
    asked = {"episodes": 20_000, "seed": 3, "frame": 100}
    usual, read = (learn("paper/synthetic", "triple-q", **asked, readings=k) for k in ((), (7_333, 7_334)))
    assert usual.run.key != read.run.key and "readings" not in usual.run.to_dict()
    episodes = read.curves["episode"]
    assert set(episodes) - set(usual.curves["episode"]) == {7_333, 7_334}
    kept = np.isin(episodes, usual.curves["episode"])
    for name, curve in usual.curves.items():
        assert np.array_equal(read.curves[name][..., kept], curve), name
    world = ModelWorld(ck.load("paper/synthetic"))
    learner = learners.load("triple-q")(world.spec(20_000), frame=100)
    world.play(learner, stream(3), 7_333)
    assert read.curves["regret"][episodes == 7_333] == world.tally().weak.regret
    monkeypatch.setattr("cmdpkit.running.playing.SAVE_SECONDS", 0.0)
    path = tmp_path / "run.npz"
    for _ in range(2):  # saved, and continued from its end
        same(learn("paper/synthetic", "triple-q", **asked, readings=(7_333, 7_334), checkpoint=path), read)
    for wrong in (0, 20_001, 7.5):
        with pytest.raises(ck.CmdpkitError, match="at least 1 and at most 20,000, the length of the run"):
            learn("paper/synthetic", "triple-q", **asked, readings=[wrong])


def test_the_same_seed_gives_the_same_record_and_another_seed_another():
    first, again, other = (learn("paper/synthetic", "triple-q", episodes=3000, seed=s) for s in (1, 1, 2))
    same(first, again)
    assert not np.array_equal(first.curves["realised_regret"], other.curves["realised_regret"])


def test_regret_is_measured_against_the_optimum_and_violation_against_the_bound():
    run = learn("paper/grid", "triple-q", episodes=2000, seed=3)
    assert run.optimum == pytest.approx(5.001162, abs=1e-6)
    cmdp = ck.load("paper/grid")
    assert run.policy_value == pytest.approx(ck.evaluate(cmdp, run.policy).v)
    total = run.curves["episode"] * run.optimum - run.curves["realised_regret"]
    assert 0 <= total[-1] <= 2000 * 6
    costs = run.curves["realised_violation"][0] + 0.5 * run.curves["episode"]
    assert np.allclose(costs, np.rint(costs), atol=1e-6), "costs are whole numbers, a violation is cost minus bound"
    assert (np.diff(costs) >= -1e-6).all()
    assert (run.curves["strong_regret"] >= run.curves["regret"] - 1e-9).all()


def test_a_saved_run_is_continued_to_the_same_bits(tmp_path, monkeypatch):
    whole = learn("paper/synthetic", "triple-q", episodes=20_000, seed=5)
    monkeypatch.setattr("cmdpkit.running.playing.SAVE_SECONDS", 0.0)
    path = tmp_path / "run.npz"

    class Stop(Exception):
        pass

    def stop_somewhere(progress):
        if progress.done > stop_somewhere.after:
            raise Stop

    for after in (0, 137, 9_000, 15_001):
        stop_somewhere.after = after
        with pytest.raises(Stop):
            learn("paper/synthetic", "triple-q", episodes=20_000, seed=5, checkpoint=path, progress=stop_somewhere)
    same(whole, learn("paper/synthetic", "triple-q", episodes=20_000, seed=5, checkpoint=path))
    same(whole, learn("paper/synthetic", "triple-q", episodes=20_000, seed=5, checkpoint=path))


def test_a_saved_run_of_something_else_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    learn("paper/synthetic", "triple-q", episodes=100, seed=1, checkpoint=path)
    with pytest.raises(ValueError, match=r"was saved by another run: seed was 1 and is 2 now; choose another"):
        learn("paper/synthetic", "triple-q", episodes=100, seed=2, checkpoint=path)
    with pytest.raises(ValueError, match=r"episodes was 100 and is 200 now, params was \{\} and is \{'eta': 3.0\} now"):
        learn("paper/synthetic", "triple-q", episodes=200, seed=1, eta=3.0, checkpoint=path)
    with pytest.raises(ValueError, match=r"bounds was \{\} and is \{'utility': 1.9\} now, the model is another one"):
        learn("paper/synthetic", "triple-q", episodes=100, seed=1, bounds={"utility": 1.9}, checkpoint=path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match="is not a readable saved run"):
        learn("paper/synthetic", "triple-q", episodes=100, seed=1, checkpoint=path)


def test_a_runs_key_depends_on_everything_that_was_asked():
    asked = [{}, {"seed": 1}, {"episodes": 60}, {"preset": "theory"}, {"eta": 3.0}, {"noise": "bernoulli"}]
    keys = {learn("paper/synthetic", "triple-q", **{"episodes": 50, "seed": 0} | change).run.key for change in asked}
    keys.add(learn("paper/synthetic:rho=1.9", "triple-q", episodes=50, seed=0).run.key)
    assert len(keys) == len(asked) + 1


def test_an_infeasible_problem_is_learnt_without_regret_and_says_so():
    cmdp = ck.load("paper/synthetic").with_bounds(utility=2.2)
    run = learn(cmdp, "triple-q", episodes=500)
    assert run.optimum is None and "regret" not in run.curves
    assert any("cannot be met" in note for note in run.notes)
    assert run.to_dict()["violation"][0] > 0


def test_progress_reports_every_piece():
    seen = []
    learn("paper/synthetic", "triple-q", episodes=5000, progress=seen.append)
    done = [p.done for p in seen]
    assert done == sorted(done) and done[-1] == 5000 and all(p.tally.length == p.done for p in seen)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"episodes": 0}, "episodes is 0, expected a whole number, at least 1"),
        ({"episodes": 10.5}, r"episodes is 10\.5"),
        ({"algo": "triple-k"}, "unknown algorithm 'triple-k'; did you mean 'triple-q'"),
        ({"preset": "best"}, "best"),
        ({"colour": 3}, "colour"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1.7}, r"seed is 1\.7, expected a whole number from 0"),
        ({"seed": 2**63}, f"seed is {2**63}, expected a whole number from 0"),
        ({"seeds": 3}, "seeds is not a parameter of an algorithm"),
        ({"slack": 3}, "slack is not a parameter of an algorithm"),
        ({"constraints": [ck.at_most("cost", 1)]}, "a model has its own constraints"),
    ],
)
def test_bad_requests_are_named(change, message):
    asked = {"env": "paper/synthetic", "algo": "triple-q", "episodes": 10} | change
    with pytest.raises(ValueError, match=message):
        learn(asked.pop("env"), asked.pop("algo"), **asked)


BY_FUNCTIONS = """
import cmdpkit as ck

def step(x, a, e):
    return (1 - x[0],), 1.0

def earned(x, a):
    return 1.0 * a, 1.0 * a

def make():
    return ck.EventModel((2,), 2, 1, step, earned, constraints=[ck.at_most("work", 3)], start=(0,), horizon=4)
"""


def test_a_model_by_functions_keeps_its_own_constraints_also_if_it_is_named(tmp_path, monkeypatch):
    """By name they were once ignored, and the run was judged by other bounds than those asked for."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "by_functions.py").write_text(BY_FUNCTIONS)
    for env in ("by_functions:make", build("by_functions:make")):
        with pytest.raises(ck.CmdpkitError, match="a model has its own constraints; change its bounds with bounds="):
            learn(env, "triple-q", episodes=10, constraints=[ck.at_most("work", 1)])
        run = learn(env, "triple-q", episodes=10, bounds={"work": 1})
        assert [c.bound for c in run.constraints] == [1.0]


def test_figures_are_in_the_users_units_whatever_the_scale():
    """Rewards times 100 minus 30: the learner sees the same unit world, the record speaks in the user's units."""
    plain = ck.load("paper/synthetic")
    lifted = ck.CMDP(
        plain.P, 100 * plain.r - 30, mu=plain.mu, constraints=[ck.at_most("cost", 8 * 3 - 14, 8 - 7 * plain.g[0])]
    )
    world = ModelWorld(lifted)
    assert world.spec(10).rho[0] == pytest.approx((7 * 2.0 - 3 * 7 * plain.g.min()) / (7 * np.ptp(plain.g)), abs=1e-9)
    run = learn(lifted, "triple-q", episodes=300, seed=4)
    assert run.optimum == pytest.approx(100 * 1.5730628631 - 90, abs=1e-6)
    v, w = ck.evaluate(lifted, run.policy)
    assert run.policy_value == v and run.policy_utilities == pytest.approx(w)
    assert run.policy_utilities[0] == pytest.approx(24 - 7 * ck.evaluate(plain, run.policy).w[0], abs=1e-9)


def test_an_account_with_numbered_entries_is_kept_whole():
    """PRI numbers its rounds, which once made its whole account vanish from the record."""
    record = learn("paper/synthetic", "pri", episodes=3000)
    assert record.internals["weights by round"] and not any("could not be computed" in x for x in record.notes)


def test_the_account_of_a_run_takes_a_line_an_entry():
    run = learn("paper/synthetic", "mf-pri", episodes=20_000, seed=1)
    text = run.internals_text()
    assert text.startswith("mf-pri (practical) on paper/synthetic, seed 1\nfrom episode 1: warm-up\n")
    drawn = text.split("stochastic decisions:\n")[1].split("actions in use")[0].splitlines()
    assert len(drawn) == len(run.internals["stochastic decisions"]) > 1
    assert "00000000" not in text, "numbers have six digits"


WITH_DELTA = [
    name for name in learners.names_for("horizon") if name not in ("triple-q", "dual-q", "pri")
]  # these three have no delta


@pytest.mark.parametrize("algo", WITH_DELTA)
@pytest.mark.parametrize("delta", [1e-300, 5e-324, 1e-13, 0.0, 1.0, float("nan")])
def test_a_probability_of_error_that_cannot_be_told_from_none_is_refused_by_all(algo, delta):
    for preset in learners.facts(algo).presets:
        with pytest.raises(ck.CmdpkitError, match=rf"delta is {delta}, expected .*at least 1e-12 and below 1"):
            learn("paper/synthetic", algo, episodes=50, preset=preset, delta=delta)


@pytest.mark.parametrize("algo", WITH_DELTA)
def test_the_smallest_probability_of_error_works_everywhere(algo):
    run = learn("paper/synthetic", algo, episodes=50, delta=1e-12)
    assert np.isfinite(run.curves["regret"]).all()
