"""Runs of unknown length: when they stop, how they are continued, and what their certificate is worth."""

from itertools import islice, takewhile

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit import envs, learners
from cmdpkit.estimate.intervals import bet_against, betting_interval, variances_before
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.cl_pri import ClosedLoopPRI
from cmdpkit.learners.cl_pri.rules import ClosedLoopParams, timetable
from cmdpkit.records.store import difference
from cmdpkit.running.active import readings_of
from cmdpkit.running.learning import learn_many
from cmdpkit.running.request import stop_of
from cmdpkit.simulate.random import stream
from gym_line import Line

PROBLEM = "random:S=6,A=3,H=4,N=2,conflict=0.5,stationary=true,seed=5"


@pytest.fixture(scope="module")
def long():
    return ck.learn(PROBLEM, "cl-pri", stop=2600, seed=3, bonus=0.2)


# -- continuing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [37, 1000, 1213])
def test_a_run_continued_is_the_run_that_was_longer_from_the_start(long, first):
    """In the middle of exploration, at the end of a stage, and in the middle of a block of the second stage."""
    begun = ck.learn(PROBLEM, "cl-pri", stop=first, seed=3, bonus=0.2)
    assert begun.run.episodes == first and begun.curves["episode"][-1] == first
    longer = ck.continue_run(begun, episodes=2600 - first)
    assert difference(longer, long) is None and longer.run == long.run and longer.run.key == long.run.key


def test_a_loaded_record_is_continued_to_the_same_bits_without_and_with_its_checkpoint(tmp_path, long):
    saved = tmp_path / "run.npz"
    begun = ck.learn(PROBLEM, "cl-pri", stop=700, seed=3, checkpoint=saved, bonus=0.2)
    ck.save_record(begun, tmp_path)
    loaded = ck.load_record(tmp_path, begun.run.key)
    assert loaded.saved is None and loaded.run == begun.run
    assert difference(ck.continue_run(loaded, episodes=1900), long) is None
    seen = []
    again = ck.continue_run(loaded, episodes=1900, checkpoint=saved, progress=lambda at: seen.append(at.done))
    assert difference(again, long) is None
    assert min(seen) > 700  # it went on from the file


def test_only_runs_of_unknown_length_can_be_continued_and_only_in_their_own_world(long):
    planned = ck.learn("paper/synthetic", "cl-pri", episodes=50)
    with pytest.raises(ck.CmdpkitError, match=r"planned for 50 episodes.*begin it with stop="):
        ck.continue_run(planned, episodes=10)
    with pytest.raises(ck.CmdpkitError, match="is not what this run was begun in"):
        ck.continue_run(long, episodes=10, env="paper/synthetic")
    model = ck.learn(ck.load("paper/synthetic"), "cl-pri", stop=40)
    with pytest.raises(ck.CmdpkitError, match="give it as env="):
        ck.continue_run(model, episodes=10)
    assert ck.continue_run(model, episodes=10, env=ck.load("paper/synthetic")).run.episodes == 50
    with pytest.raises(ck.CmdpkitError, match="already played 40 episodes"):
        ck.continue_run(model, stop=30, env=ck.load("paper/synthetic"))
    with pytest.raises(ck.CmdpkitError, match="at least 1"):
        ck.continue_run(model, episodes=0, env=ck.load("paper/synthetic"))


def test_a_run_in_a_gymnasium_environment_is_continued_too():
    ranges = {"reward_range": (0.0, 1.0)}

    def world():
        return ck.gym.GymWorld(Line(chance=0.7), [ck.at_most("cost", 1.5)], horizon=5, **ranges)

    begun = ck.learn(world(), "cl-pri", stop=30)
    longer = ck.continue_run(begun, episodes=20, env=world())
    assert difference(longer, ck.learn(world(), "cl-pri", stop=50)) is None


def test_the_folder_of_a_run_continues_it_by_more_episodes_each_time(tmp_path):
    asked = {"seeds": [3], "out": tmp_path, "bonus": 0.2}
    [first] = learn_many(PROBLEM, "cl-pri", stop=600, **asked)
    [second] = learn_many(PROBLEM, "cl-pri", more=400, **asked)
    [third] = learn_many(PROBLEM, "cl-pri", more=500, **asked)
    assert [r.run.episodes for r in (first, second, third)] == [600, 1000, 1500]
    assert difference(third, ck.learn(PROBLEM, "cl-pri", stop=1500, seed=3, bonus=0.2)) is None
    [again] = learn_many(PROBLEM, "cl-pri", stop=600, **asked)  # what is finished is read, not played
    assert difference(again, first) is None
    with pytest.raises(ck.CmdpkitError, match="seed 4 that can be continued"):
        learn_many(PROBLEM, "cl-pri", more=10, seeds=[4], out=tmp_path)
    with pytest.raises(ck.CmdpkitError, match="--out"):
        learn_many(PROBLEM, "cl-pri", more=10, seeds=[3])


# -- stopping ----------------------------------------------------------------------------------------------------------


def test_a_run_stopped_by_the_clock_is_the_run_of_that_number_of_episodes():
    timed = ck.learn(PROBLEM, "cl-pri", stop="0.05s", seed=3)
    assert timed.seconds >= 0.05
    assert difference(timed, ck.learn(PROBLEM, "cl-pri", stop=timed.run.episodes, seed=3)) is None


def test_certified_stops_with_the_first_certificate_that_says_so():
    run = ck.learn("paper/synthetic", "cl-pri", stop="certified", seed=3)
    assert run.certificate.safe == (True,) and run.policy_utilities[0] >= 2
    assert run.run.params == {"certified": True}
    asked = list(takewhile(lambda k: k < run.run.episodes, readings_of(run.run)))
    before = ck.learn("paper/synthetic", "cl-pri", stop=asked[-1], seed=3, certified=True)
    assert before.certificate is None or before.certificate.safe != (True,)


def test_a_function_stops_where_it_first_holds():
    seen = []

    def enough(at):
        seen.append(at.done)
        return at.tally.realised.violation[0] < 0 and at.done > 200

    run = ck.learn("paper/synthetic", "cl-pri", stop=enough, seed=3)
    assert run.run.episodes == seen[-1] and run.final("realised_violation")[0] < 0
    assert seen == list(islice(readings_of(run.run), len(seen)))


@pytest.mark.parametrize(
    ("asked", "seconds", "episodes"),
    [("60s", 60, None), ("1.5 min", 90, None), ("2h", 7200, None), (5, None, 5), ("2e4", None, 20_000)],
)
def test_times_and_numbers_of_episodes_are_read(asked, seconds, episodes):
    found = stop_of(asked)
    assert (found.seconds, found.length, found.rule) == (seconds, episodes, None)


@pytest.mark.parametrize(
    "bad", ["soon", "", "0", "-5", "1.5", "0s", "width=0.1", "gap=0", "nan", "infs", 0, 2.5, True, None]
)
def test_other_rules_are_refused_with_the_expected_form(bad):
    with pytest.raises(ck.CmdpkitError, match="stop"):
        ck.learn("paper/synthetic", "cl-pri", stop=bad)


def test_episodes_and_stop_exclude_each_other_and_certified_needs_a_bound():
    with pytest.raises(ck.CmdpkitError, match="both of episodes and stop"):
        ck.learn("paper/synthetic", "cl-pri", episodes=5, stop=5)
    free = ck.CMDP(np.ones((2, 2, 2)) / 2, np.eye(2), horizon=3)
    with pytest.raises(ck.CmdpkitError, match="no constraints to certify"):
        ck.learn(free, "cl-pri", stop="certified")


@pytest.mark.parametrize("algo", [name for name in learners.names_for("horizon") if not learners.load(name).anytime])
def test_an_algorithm_that_must_know_the_length_refuses_by_name(algo):
    with pytest.raises(ck.CmdpkitError, match=f"^{algo} must know the number of episodes in advance.*episodes="):
        ck.learn("paper/synthetic", algo, stop=10)


# -- the certificate ---------------------------------------------------------------------------------------------------


def test_bets_do_not_depend_on_returns_that_come_later_nor_on_how_many_there_are():
    """This is what makes the capital a martingale, and by Ville's inequality the interval hold at any stop."""
    x, some, all_of_them = np.random.default_rng(1).random(200), np.zeros(60), np.zeros(200)
    assert not bet_against(x[:60], variances_before(x[:60]), some, 0.5, 200, 3.0)
    assert not bet_against(x, variances_before(x), all_of_them, 0.5, 200, 3.0)
    assert np.array_equal(some, all_of_them[:60])


def test_the_mean_is_outside_at_any_of_many_looks_only_with_the_probability_that_was_asked_for():
    """At delta = 0.3, 300 streams, looks after every 10 of 150 coins, of which 100 were planned.

    The stop that is worst for the interval: the first at which it misses the mean. If that had probability 0.3, more
    than 125 of 300 would have it with probability 1e-5.
    """
    rng = np.random.default_rng(8)
    missed = 0
    for _ in range(300):
        x = (rng.random(150) < 0.3).astype(float)
        ends = (betting_interval(x[:n], 0.3, 100) for n in range(10, 151, 10))
        missed += any(not low <= 0.3 <= high for low, high in ends)
    assert 0 < missed <= 125  # not 0: the looks do see bad luck


def test_the_sample_of_a_stage_has_its_share_of_three_quarters_of_delta():
    cmdp = envs.build("paper/synthetic")
    learner = ClosedLoopPRI(Spec(3, 3, 3, 100, Spec.of(cmdp, 1).rho, cmdp.actions, anytime=True))
    sizes = []
    for end in (100, 200, 400):  # the ends of three stages
        learner.run(Source.of(cmdp), stream(1), end - learner.clock.episode)
        found, n = learner._sample(), int(learner.ledger.size[0])
        sizes.append(n)
        j = len(sizes)
        for m, (low, high) in enumerate(found.intervals):
            ends = betting_interval(learner.ledger.sample[:n, m] / 3, 0.75 * 0.05 / (j * (j + 1)) / 2, n)
            np.testing.assert_allclose((low, high), 3 * np.array(ends), rtol=1e-12)
        assert learner.certificate().level == 0.95 and found.episodes == n
    assert sizes == sorted(sizes) and sizes[0] < sizes[-1]


@pytest.mark.parametrize("K", [40, 300, 1000, 5000, 20_011])
def test_the_sample_has_the_size_for_which_its_bets_were_made(K):
    cmdp = envs.build("paper/synthetic")
    learner = ClosedLoopPRI(Spec.of(cmdp, K))
    learner.run(Source.of(cmdp), stream(2), K)
    assert int(learner.ledger.size[0]) == learner.table.sample_size() > 0


# -- stages ------------------------------------------------------------------------------------------------------------


def test_stages_double_the_run_and_exploration_never_takes_more_than_its_share_of_it():
    spec, p = Spec(3, 3, 3, 1000, np.zeros(1), np.ones((3, 3, 3), dtype=bool), anytime=True), ClosedLoopParams()
    explored = 0
    for stage in range(12):
        table = timetable(spec, p, stage, explored)
        assert 1000 * 2**stage == table.K and table.start == (table.K // 2 if stage else 0)
        assert table.start <= table.explore <= table.freeze <= table.hand < table.K
        explored += table.explore - table.start
        assert explored <= p.exploration_share * table.K


def test_exploration_is_taken_up_again_where_it_had_to_end_and_not_where_it_had_found_everything():
    large = envs.build("random", S=60, A=6, H=4, N=1, stationary=True, successors=5, concentration=1.0, seed=1)
    for cmdp, again in ((large, True), (envs.build("paper/synthetic"), False)):
        spec = Spec.of(cmdp, 200)
        learner = ClosedLoopPRI(
            Spec(spec.H, spec.S, spec.A, 200, spec.rho, spec.allowed, spec.stationary, anytime=True)
        )
        learner.run(Source.of(cmdp), stream(1), 201)
        assert learner.exploring is again


def test_a_long_run_is_small_at_its_beginning():
    """All arrays after 1,000 of 2e8 episodes; the sample of the certificate alone would have 160 MB in the end."""
    cmdp = envs.build("paper/synthetic")
    learner = ClosedLoopPRI(Spec.of(cmdp, 200_000_000))
    learner.run(Source.of(cmdp), stream(1), 1000)
    assert sum(x.nbytes for x in learner.state().values()) < 100_000


def test_a_block_that_is_cut_goes_on_with_the_same_tries():
    cmdp = envs.build("random", S=12, A=4, H=5, concentration=1.0, seed=2)
    cut, source, rng = ClosedLoopPRI(Spec.of(cmdp, 20_000)), Source.of(cmdp), stream(5)
    while cut.exploring or not (cut.block.trying >= 0).any() or cut.clock.block_end <= cut.clock.episode + 10:
        cut.run(source, rng, 7)
    new = ClosedLoopPRI(Spec.of(cmdp, 20_000))
    new.restore(cut.state())
    assert new.behaviour().tobytes() == cut.behaviour().tobytes()
    one, other = (x.run(Source.of(cmdp), stream(6), 100).reward for x in (cut, new))
    assert one.tobytes() == other.tobytes()
