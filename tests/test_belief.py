"""What a run believes, against models, prices, values and errors computed apart from the package's own code."""

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.estimate.counts import counts_of
from cmdpkit.learners import load
from cmdpkit.model.constraints import Scale
from cmdpkit.model.policy import Policy
from cmdpkit.records.belief import Counted, belief_of
from oracle import optimum

pytestmark = pytest.mark.compiled

SeesAll = type("SeesAll", (load("ps-cmdp"),), {})


def kept(cmdp, monkeypatch, episodes=400):
    """A run of a learner whose episodes are written down apart: the record, and every step as h, s, a, signals, s'."""
    steps = []

    def first(self, s, rng):
        self.seen = [0, s, load("ps-cmdp").first(self, s, rng)]
        return self.seen[2]

    def following(self, signals, s, rng):
        h, before, a = self.seen
        steps.append((h, before, a, signals.copy(), s))
        self.seen = [h + 1, s, load("ps-cmdp").next(self, signals, s, rng)]
        return self.seen[2]

    def last(self, signals):
        h, before, a = self.seen
        steps.append((h, before, a, signals.copy(), -1))
        load("ps-cmdp").last(self, signals)

    for name, function in (("first", first), ("next", following), ("last", last), ("run", ck.Learner.run)):
        monkeypatch.setattr(SeesAll, name, function, raising=False)
    return ck.learn(cmdp, SeesAll, episodes=episodes, seed=1, preset="theory"), steps


def test_model_prices_and_values_are_those_of_the_observed_frequencies(monkeypatch):
    """Costs, rewards of another scale, names, and a world that depends on the step; no count of ours is used."""
    queue = ck.load("queue", H=4, capacity=2, energy=4.0, backlog=3.5)
    run, steps = kept(queue, monkeypatch)
    belief, (H, S, A) = run.belief(), queue.actions.shape
    n, moves, sums = np.zeros((H, S, A)), np.zeros((H, S, A, S)), np.zeros((3, H, S, A))
    for h, s, a, _, there in steps:
        n[h, s, a] += 1
        sums[:, h, s, a] += queue.r[h % len(queue.r), s, a], *(x[h % len(x), s, a] for x in queue.g)
        if there >= 0:
            moves[h, s, a, there] += 1
    tried = n > 0
    np.testing.assert_array_equal(belief.cmdp.actions, np.where(tried.any(axis=2, keepdims=True), tried, queue.actions))
    assert belief.cmdp.states == queue.states and belief.cmdp.action_names == queue.action_names
    assert [str(c) for c in belief.cmdp.constraints] == [str(c) for c in queue.constraints]
    np.testing.assert_allclose(
        belief.cmdp.P[:-1][tried[:-1]], (moves / np.maximum(n, 1)[..., None])[:-1][tried[:-1]], atol=1e-12
    )
    means = sums / np.maximum(n, 1)
    for found, mean in zip((belief.cmdp.r, *belief.cmdp.g), means, strict=True):
        np.testing.assert_allclose(np.broadcast_to(found, (H, S, A))[tried], mean[tried], atol=1e-12)

    best = optimum(belief.cmdp)  # HiGHS
    assert belief.solution.value == pytest.approx(best.value, abs=1e-8)
    lam = belief.solution.lam
    for c, x in zip(queue.constraints, lam, strict=True):
        assert belief.prices[c.name] == pytest.approx(x)
        moved = {c.name: c.bound + c.sign * -1e-4}  # what a looser bound gains
        assert (optimum(belief.cmdp.with_bounds(**moved)).value - best.value) / 1e-4 == pytest.approx(x, abs=1e-5)

    V = np.zeros((H + 1, S))
    Q = np.full((H, S, A), -np.inf)
    P, x = belief.cmdp.P, means[0] + np.tensordot(lam, means[1:], 1)  # g has the sign of "at least" already
    for h in reversed(range(H)):
        Q[h] = np.where(belief.cmdp.actions[h], x[h] + (P[h] @ V[h + 1] if h + 1 < H else 0.0), -np.inf)
        V[h] = Q[h].max(axis=-1)
    compared = 0
    for h, s in np.argwhere(tried.any(axis=2)):
        for row in belief.actions(int(h) + 1, queue.states[s]):
            a = queue.action_names.index(row.action)
            assert row.visits == n[h, s, a] and row.probability == run.policy.pi[h, s, a]
            if row.visits:
                assert row.value == pytest.approx(Q[h, s, a], abs=1e-8)
                assert row.loses == pytest.approx(V[h, s] - Q[h, s, a], abs=1e-8)
                assert row.interval[0] <= row.value <= row.interval[1]
                compared += 1
            else:
                assert np.isnan(row.value)
    assert compared > 20


def of_counts(visits, moves, rewards, pi=None):
    """A belief from counts [H, S, A, S] with rewards [H, S, A] that do not vary; no constraints."""
    H, S, A = visits.shape
    sums = (rewards * visits)[None]
    counts = counts_of(moves, visits, sums, sums * rewards, np.eye(1, S, dtype=np.int64)[0])
    policy = Policy(np.full((H, S, A), 1 / A) if pi is None else pi)
    return belief_of(Counted(counts, np.ones((H, S, A), dtype=bool), (Scale(0.0, 1.0),)), (), policy)


def test_the_four_reasons():
    """State 2 is worth 1, state 1 nothing. Action 1 led there always, 2 in half of all cases, 3 nearly always."""
    visits = np.full((2, 2, 4), 100)
    visits[0, 0, 3] = 0
    moves = np.zeros((2, 2, 4, 2), dtype=np.int64)
    moves[0] = (50, 50)
    moves[0, 0] = [(0, 100), (50, 50), (1, 99), (0, 0)]
    rewards = np.zeros((2, 2, 4))
    rewards[1, 1] = 1.0
    pi = np.zeros((2, 2, 4))
    pi[..., 0] = 1.0
    belief = of_counts(visits, moves, rewards, pi)
    found = [belief.why_not(1, 1, a) for a in (1, 2, 3, 4)]
    assert [x.reason for x in found] == ["taken", "worse", "undecided", "never tried"]
    assert found[1].difference[1] == pytest.approx(0.5) and found[1].difference[0] > 0.35
    assert str(found[3]) == "Step 1, state 1: 4 was never taken here, so that nothing is known about it."
    assert str(found[0]) == "Step 1, state 1: 1 is taken with probability 1 (100 visits)."
    assert str(found[1]).startswith("Step 1, state 1: 2 loses 0.5 (0.4") and "after 100 visits" in str(found[1])


def test_intervals_cover_the_truth_as_often_as_they_say():
    """One action, 60 visits, next state worth 1 with probability 0.3: 95 % of 600, within 3 standard errors."""
    rng, covered = np.random.default_rng(5), 0
    rewards = np.zeros((2, 2, 1))
    rewards[1, 1] = 1.0
    for _ in range(600):
        moves = np.zeros((2, 2, 1, 2), dtype=np.int64)
        there = rng.binomial(60, 0.3)
        moves[0, 0, 0] = 60 - there, there
        moves[0, 1, 0] = 30, 30
        (row,) = of_counts(np.full((2, 2, 1), 60), moves, rewards).actions(1, 1)
        covered += row.interval[0] <= 0.3 <= row.interval[1]
    assert abs(covered / 600 - 0.95) < 3 * np.sqrt(0.95 * 0.05 / 600)


@pytest.mark.parametrize("algo", ["cl-pri", "opt-cmdp", "dope", "reload", "opt-dual", "reg-primal-dual"])
def test_learners_that_count_have_a_belief(algo):
    belief = ck.learn("paper/grid", algo, episodes=50).belief()
    assert belief.cmdp.S == 25 and belief.counted.counts.starts.sum() == 50
    assert belief.actions(1, belief.cmdp.states[int(belief.cmdp.mu.argmax())])[0].visits > 0


def test_others_and_records_of_a_folder_say_that_they_have_none(tmp_path):
    with pytest.raises(ck.CmdpkitError, match=r"this record of triple-q holds no counts: .+ does not count"):
        ck.learn("paper/synthetic", "triple-q", episodes=50).belief()
    with pytest.raises(ck.CmdpkitError, match="this record of cl-pri holds no counts"):
        ck.learn("machine-two", "cl-pri", steps=200).belief()
    ck.save_record(ck.learn("paper/synthetic", "cl-pri", episodes=50), tmp_path)
    with pytest.raises(ck.CmdpkitError, match="learning again with the same seed makes them"):
        ck.load_records(tmp_path)[0].belief()
    belief = ck.learn("paper/grid", "cl-pri", episodes=50).belief()
    for place, sentence in (
        ((7, 1, 1), "step is 7, expected a whole number from 1 to 6"),
        ((1, 99, 1), "unknown state 99"),
    ):
        with pytest.raises(ck.CmdpkitError, match=sentence):
            belief.why_not(*place)
