"""The estimated model of a run, against frequencies, prices and values computed apart from the package's own code."""

import numpy as np
import pytest
from oracle import optimum

import cmdpkit as ck
from cmdpkit.learners import load

pytestmark = pytest.mark.compiled


class SeesAll(load("ps-cmdp")):
    """Posterior sampling that writes down what it sees."""


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

    for name, function in (("first", first), ("next", following), ("last", last), ("_play", ck.Learner._play)):
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
    np.testing.assert_array_equal(belief.actions, np.where(tried.any(axis=2, keepdims=True), tried, queue.actions))
    assert belief.states == queue.states and belief.action_names == queue.action_names
    assert [str(c) for c in belief.constraints] == [str(c) for c in queue.constraints]
    np.testing.assert_allclose(
        belief.P[:-1][tried[:-1]], (moves / np.maximum(n, 1)[..., None])[:-1][tried[:-1]], atol=1e-12
    )
    means = sums / np.maximum(n, 1)
    for found, mean in zip((belief.r, *belief.g), means, strict=True):
        np.testing.assert_allclose(np.broadcast_to(found, (H, S, A))[tried], mean[tried], atol=1e-12)

    best = optimum(belief)  # HiGHS
    solution = ck.solve(belief)
    assert solution.value == pytest.approx(best.value, abs=1e-8)
    lam = solution.shadow_prices
    for c, x in zip(queue.constraints, lam, strict=True):
        moved = {c.name: c.bound + c.sign * -1e-4}  # what a looser bound gains
        assert (optimum(belief.with_bounds(**moved)).value - best.value) / 1e-4 == pytest.approx(x, abs=1e-5)

    V = np.zeros((H + 1, S))
    Q = np.full((H, S, A), -np.inf)
    P, x = belief.P, means[0] + np.tensordot(lam, means[1:], 1)  # g has the sign of "at least" already
    for h in reversed(range(H)):
        Q[h] = np.where(belief.actions[h], x[h] + (P[h] @ V[h + 1] if h + 1 < H else 0.0), -np.inf)
        V[h] = Q[h].max(axis=-1)
    compared = 0
    for h, s in np.argwhere(tried.any(axis=2)):
        for option in ck.explain(belief, state=queue.states[s], step=int(h) + 1).options:
            a = queue.action_names.index(option.action)
            assert tried[h, s, a]  # a state with an action that was tried has no other actions
            assert option.priced == pytest.approx(Q[h, s, a], abs=1e-8)
            assert option.loses == pytest.approx(V[h, s] - Q[h, s, a], abs=1e-8)
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("algo", ["cl-pri", "opt-cmdp", "dope", "reload", "opt-dual", "reg-primal-dual"])
def test_learners_that_count_have_a_belief(algo):
    belief = ck.learn("paper/grid", algo, episodes=50).belief()
    assert belief.S == 25 and belief.r.max() > 0
    np.testing.assert_array_equal(belief.mu, ck.load("paper/grid").mu)


def test_others_and_records_of_a_folder_say_that_they_have_none(tmp_path):
    with pytest.raises(ck.CmdpkitError, match=r"this record of triple-q holds no counts: .+ does not count"):
        ck.learn("paper/synthetic", "triple-q", episodes=50).belief()
    with pytest.raises(ck.CmdpkitError, match="this record of cl-pri holds no counts"):
        ck.learn("machine-two", "cl-pri", steps=200).belief()
    ck.save_record(ck.learn("paper/synthetic", "cl-pri", episodes=50), tmp_path)
    with pytest.raises(ck.CmdpkitError, match="learning again with the same seed makes them"):
        ck.load_records(tmp_path)[0].belief()
