"""Worlds without episodes: the gap table, the meter, restarts, and driving a learner by steps."""

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.estimate.continuing import cautious_model, hopeful_model, mean_model, with_patience
from cmdpkit.exact.stationary import gap_table
from cmdpkit.learners import Learner, Spec, names_for
from cmdpkit.operators.chains import stationary_occupancy, stationary_values
from cmdpkit.records.store import difference
from cmdpkit.simulate.meter import StepOptimum, Walk
from cmdpkit.simulate.random import stream
from counted import seen

AVERAGE = ["machine-two", "machine", "power-queue", "flow-queue", "rover:slip=0.1", "box", "cycle-3", "two-state"]
DISCOUNTED = ["power-queue:discount=0.95", "mud-grid"]
CONTINUING = names_for("average")


def random_policy(cmdp, rng):
    pi = rng.random((cmdp.S, cmdp.A)) * cmdp.actions[0]
    return pi / pi.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("name", AVERAGE + DISCOUNTED)
def test_what_a_policy_lacks_is_its_gaps_and_the_price_of_what_it_exceeds(name):
    cmdp = ck.load(name)
    best, steps = ck.solve(cmdp), cmdp.criterion.steps_in_value
    gaps = gap_table(cmdp, best.lam)
    assert (gaps >= 0).all()
    rng = np.random.default_rng(0)
    scale = max(1.0, abs(best.value / steps))
    for pi in (best.policy.pi[0], *(random_policy(cmdp, rng) for _ in range(3))):
        q = stationary_occupancy(cmdp, pi)
        v, w = stationary_values(cmdp, pi)
        lacks = (best.value - v) / steps
        assert lacks == pytest.approx((q * gaps).sum() + best.lam @ (w - cmdp.rho) / steps, abs=1e-8 * scale)
    assert (stationary_occupancy(cmdp, best.policy.pi[0]) * gaps).sum() < 1e-8 * scale


def test_gaps_also_hold_where_states_are_only_passed_through():
    # State 0 is left forever by its first step: it may go to 1 for nothing, or to 2 for 0.3. From 2 one must go to 1.
    # In 1 one earns 0.5 (stay) or 0.1 (go to 3 and back, where nothing is earned). By hand: c = 0.5, h(1) = 0.
    P = np.zeros((4, 2, 4))
    P[0, 0, 1] = P[0, 1, 2] = P[2, :, 1] = P[1, 0, 1] = P[1, 1, 3] = P[3, :, 1] = 1
    r = [[0, 0.3], [0.5, 0.1], [0.2, 0.0], [0, 0]]
    gaps = gap_table(ck.CMDP(P, r, criterion="average"), np.zeros(0))
    # h(2) = 0.2 - 0.5 = -0.3, h(0) = max(-0.5, 0.3 - 0.5 - 0.3) = -0.5, and h(3) = -0.5.
    np.testing.assert_allclose(gaps, [[0, 0], [0, 0.5 - 0.1 + 0.5], [0, 0.2], [0, 0]], atol=1e-12)


class Uniform(Learner):
    """Acts at random; complete without compiled code."""

    title = "acts at random."
    criteria = ("average", "discounted")

    def __init__(self, spec, **settings):
        super().__init__(spec, **settings)
        self.starts = np.zeros(spec.S)

    def first(self, s, rng):
        self.starts[s] += 1
        return self.next(None, s, rng)

    def next(self, signals, s, rng):
        return int(np.flatnonzero(self.spec.allowed[0, s])[int(rng[0] % self.spec.allowed[0, s].sum())])

    def last(self, signals):
        pass

    def recommend(self):
        return self.spec.allowed / self.spec.allowed.sum(axis=-1, keepdims=True)


def test_the_meter_adds_up_gaps_and_violation_step_by_step():
    cmdp = ck.load("machine-two")
    best = ck.solve(cmdp)
    gaps = gap_table(cmdp, best.shadow_prices)
    walk = Walk.of(cmdp, StepOptimum(best.value, best.shadow_prices, gaps))
    learner, rng = Uniform(Spec.of(cmdp, 300)), stream(3)
    violation, paid, largest, earned = 0.0, 0.0, -np.inf, 0.0
    learner.walk(walk, rng, 0)
    for _ in range(300):
        s, a = walk.place
        learner.walk(walk, rng, 1)
        violation += 0.85 - cmdp.compact.g[0, 0, s, a]
        paid += gaps[s, a]
        earned += cmdp.compact.r[0, s, a]
        largest = max(largest, violation)
    tally = walk.meter.tally()
    assert tally.length == 300
    assert tally.weak.violation == pytest.approx([violation]) and tally.strong.violation == pytest.approx([largest])
    assert tally.gaps == pytest.approx(paid) and tally.weak.regret == pytest.approx(paid - 8 / 3 * violation)
    assert tally.realised.regret == pytest.approx(-14 / 15 * 300 - earned)


def test_a_discounted_world_restarts_with_one_minus_the_discount():
    cmdp = ck.load("power-queue:discount=0.95")
    learner, walk = Uniform(Spec.of(cmdp, 20_000)), Walk.of(cmdp)
    returns = learner.walk(walk, stream(1), 20_000)
    # Binomial with n = 20,000 and p = 0.05 around 1,001 (the first start counts): beyond 5 standard deviations with
    # probability 6e-7.
    assert abs(learner.starts.sum() - 1001) < 5 * np.sqrt(20_000 * 0.05 * 0.95)
    assert learner.starts[1:].sum() == 0  # the queue begins empty
    value = ck.evaluate(cmdp, ck.Policy.uniform(cmdp)).v * 0.05
    scale = cmdp.reward_scale
    batches = returns.reward.reshape(100, 200).mean(axis=1) * scale.span + scale.low
    assert abs(batches.mean() - value) < 5 * batches.std() / 10, "per step, its worth times 1 - discount"


def test_a_run_by_steps_is_recorded_in_steps(tmp_path):
    run = ck.learn("machine-two", Uniform, steps=500, seed=2)
    assert run.curves["step"][-1] == 500 and "episode" not in run.curves and "unsafe_episodes" not in run.curves
    assert run.run.unit == "step" and run.run.length == 500 and run.policy.is_stationary
    assert run.regret == pytest.approx(run.final("gaps_paid") - 8 / 3 * run.violation[0])
    ck.save_record(run, tmp_path)
    assert difference(ck.load_record(tmp_path, run.run.key), run) is None


def test_steps_and_episodes_are_not_exchanged():
    with pytest.raises(ck.CmdpkitError, match="machine-two has no horizon and so no episodes: give steps"):
        ck.learn("machine-two", "cl-pri", episodes=10)
    with pytest.raises(ck.CmdpkitError, match="queue has a horizon and is learned in episodes: give episodes="):
        ck.learn("queue", "cl-pri", steps=10)
    with pytest.raises(ck.CmdpkitError, match=r"steps is 2\.5, expected a whole number, at least 1"):
        ck.learn("machine-two", "cl-pri", steps=2.5)


def test_who_cannot_learn_without_episodes_says_who_can():
    with pytest.raises(ck.CmdpkitError, match=r"triple-q cannot learn machine-two, .* one of .*cl-pri, .*cmdp-psrl"):
        ck.learn("machine-two", "triple-q", steps=10)
    with pytest.raises(ck.CmdpkitError, match=r"cmdp-psrl cannot learn queue, .* take one of .*cl-pri"):
        ck.learn("queue", "cmdp-psrl", episodes=10)
    with pytest.raises(ck.CmdpkitError, match="problems with the criterion horizon, this one's criterion is average"):
        ck.learners.load("dual-q")(Spec.of(ck.load("machine-two"), 10))


def test_models_that_cannot_be_learned_are_refused():
    with pytest.raises(ck.CmdpkitError, match="settles in one of several parts"):
        ck.learn("one-way", "cl-pri", steps=10)
    P, r = [[[0, 1.0]], [[0, 1.0]]], [[1.0], [0.0]]
    with pytest.raises(ck.CmdpkitError, match="judged by totals until absorption; no algorithm can"):
        ck.learn(ck.CMDP(P, r, criterion="total"), "cl-pri", steps=10)


# -- every learner that can --------------------------------------------------------------------------------------------


def made(name, cmdp, K, **params):
    return ck.learners.load(name, cmdp.criterion.kind)(Spec.of(cmdp, K), **params)


def parts(learner, returns, rng):
    return {
        "reward": returns.reward,
        "utilities": returns.utilities,
        "rng": rng,
        "pi": learner.recommend(),
        **learner.state(),
    }


def assert_same(one, two):
    assert one.keys() == two.keys()
    for name, x in one.items():
        assert np.array_equal(x, two[name]), name


def visited(learner, walk, rng, n):
    """How often each action was taken in n more steps [S, A], as the world saw it, and the rewards."""
    visits, rewards = np.zeros((learner.spec.S, learner.spec.A), dtype=int), []
    learner.walk(walk, rng, 0)
    for _ in range(n):
        visits[tuple(walk.place)] += 1
        rewards.append(learner.walk(walk, rng, 1).reward[0])
    return visits, rewards


PLACES = {"cycle-3": 400, "power-queue:discount=0.95": 160}  # and a number of steps


@pytest.mark.compiled
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", CONTINUING)
def test_single_steps_pieces_and_a_resumed_run_are_the_whole_run(name, place):
    cmdp, n = ck.load(place), PLACES[place]
    whole, rng = made(name, cmdp, n), stream(4)
    expected = parts(whole, whole.walk(Walk.of(cmdp), rng, n), rng)
    steps, rng, walk = made(name, cmdp, n), stream(4), Walk.of(cmdp)
    assert_same(expected, parts(steps, Learner.walk(steps, walk, rng, n), rng))
    rng, walk, first = stream(4), Walk.of(cmdp), made(name, cmdp, n)
    pieces = [first.walk(walk, rng, k) for k in (0, 1, 90)]
    second = made(name, cmdp, n)
    second.restore(first.state())
    pieces.append(second.walk(walk, rng, n - 91))
    joined = type(pieces[0])(
        np.concatenate([x.reward for x in pieces]), np.concatenate([x.utilities for x in pieces], 1)
    )
    assert_same(expected, parts(second, joined, rng))


@pytest.mark.parametrize("name", CONTINUING)
def test_it_is_blind_to_what_it_has_not_seen(name):
    rng, S, A, n = np.random.default_rng(5), 12, 3, 30
    P, r, g = rng.dirichlet(np.full(S, 0.3), (S, A)), rng.random((S, A)), rng.random((S, A))
    r[0, 0], r[0, 1], g[0, 0], g[0, 1] = 0.0, 1.0, 0.0, 1.0  # the scales of both models
    learner = made(name, ck.CMDP(P, r, g, 0.3, criterion="average"), n)
    visits, rewards = visited(learner, Walk.of(ck.CMDP(P, r, g, 0.3, criterion="average")), stream(1), n)
    unseen = visits == 0
    unseen[0] = False
    assert unseen.sum() > 3
    P2, r2 = np.where(unseen[:, :, None], np.roll(P, 1, axis=-1), P), np.where(unseen, 1 - r, r)
    other = made(name, ck.CMDP(P2, r2, g, 0.3, criterion="average"), n)
    again = other.walk(Walk.of(ck.CMDP(P2, r2, g, 0.3, criterion="average")), stream(1), n)
    assert np.array_equal(rewards, again.reward) and np.array_equal(learner.recommend(), other.recommend())


@pytest.mark.parametrize("name", CONTINUING)
def test_it_uses_only_allowed_actions_and_refuses_another_world(name):
    cmdp = ck.load("power-queue")
    allowed = cmdp.actions.copy()
    allowed[0, :, 1::2] = False
    learner = ck.learners.load(name, cmdp.criterion.kind)(Spec.of(cmdp, 300, allowed))
    visits, _ = visited(learner, Walk.of(cmdp), stream(2), 300)
    assert visits[~allowed[0]].sum() == 0 and visits.sum() == 300
    for pi in (learner.behaviour(), learner.recommend()):
        assert pi.shape == (1, cmdp.S, cmdp.A) and (pi[~allowed] == 0).all()
        np.testing.assert_allclose(pi.sum(axis=-1), 1, atol=1e-9)
    with pytest.raises(ck.CmdpkitError, match=r"spec is for .*; make both from the same model"):
        learner.walk(Walk.of(ck.load("machine-two")), stream(2), 1)


@pytest.mark.parametrize("name", CONTINUING)
def test_it_comes_near_the_optimum_of_a_machine_solved_by_hand(name):
    steps = 200_000 if name == "triple-qa" else 20_000  # which has no model and learns more slowly
    run = ck.learn("machine-two", name, steps=steps, seed=1)
    assert run.optimum == pytest.approx(-14 / 15)
    # The cost of the machine varies by about 1.2 per step and its availability by about 0.7, so 20,000 steps tell the
    # utilities of a policy to about 0.005; five times that, at the price of 8/3, bounds what may be lost.
    assert abs(run.policy_value + 14 / 15) < 0.07 and run.policy_utilities[0] > 0.85 - 0.025
    assert run.final("gaps_paid") < 200  # acting at random pays 0 here only where nothing is lost


@pytest.mark.parametrize("env", ["machine-two", "machine", "cycle-3"])
def test_cl_pri_steers_realised_totals_to_its_bounds(env):
    # Availabilities and the work of the cycle vary by more than 0.2 per step, so 20,000 steps of an optimal policy that
    # is not steered end more than 28 on either side of the bound with a probability of about 1/3 at least.
    # It need not end within the bound: with this seed machine-two misses it by 3.
    run = ck.learn(env, "cl-pri", steps=20_000, seed=1)
    assert (run.final("realised_violation") <= 10).all() and (run.final("realised_violation") >= -150).all()


def test_a_checkpoint_of_a_run_by_steps_is_continued_to_the_same_bits(tmp_path):
    whole = ck.learn("machine-two", "cl-pri", steps=600, seed=3)

    def interrupt(at):
        if at.done >= 200:
            raise KeyboardInterrupt

    path = tmp_path / "run.npz"
    with pytest.raises(KeyboardInterrupt):
        ck.learn("machine-two", "cl-pri", steps=600, seed=3, checkpoint=path, progress=interrupt)
    assert difference(ck.learn("machine-two", "cl-pri", steps=600, seed=3, checkpoint=path), whole) is None


# -- models made of counts ---------------------------------------------------------------------------------------------


def dense(model, S, A):
    P = np.zeros((S * A, S))
    for row in range(S * A):
        part = slice(model.rows.indptr[row], model.rows.indptr[row + 1])
        P[row, model.rows.successors[part]] = model.rows.prob[part]
    return P.reshape(S, A, S)


def queue_moves(spec):
    """[S, A, S]: moves in a queue with 4 places. Waiting was tried often, serving twice, and hurrying never."""
    moves = np.zeros((spec.S, spec.A, spec.S), dtype=int)
    for s in range(3):
        moves[s, 0, s], moves[s, 0, s + 1] = 60, 40
        moves[s + 1, 1, s] = 2
    moves[3, 0, 3] = 100
    return moves


def counted_queue():
    """The counts of these moves."""
    spec = Spec.of(ck.load("power-queue:capacity=3"), 1000)
    moves = queue_moves(spec)
    return seen(spec, moves, 0.5 * moves.sum(axis=2), state=3), spec


def test_in_a_hopeful_model_untried_actions_earn_the_best_and_lead_where_others_have_led():
    counts, spec = counted_queue()
    model = hopeful_model(counts, stream(1), unsure=5)
    P = dense(model, spec.S, spec.A)
    np.testing.assert_allclose(P.sum(axis=2), 1, atol=1e-12)
    led = queue_moves(spec).any(axis=1)
    assert (P[:, 4] > 0).tolist() == led.tolist()  # never tried: no jump to where nothing has led
    assert (model.r[:, 4] == 1).all() and (model.g[0, :, 1] == 1).all() and (model.r[:, 0] == 0.5).all()
    assert abs(P[0, 0, 1] - 0.4) < 0.25  # a Beta(40.5, 60.5) draw: 5 standard deviations


def test_the_cautious_model_does_not_rely_on_rare_actions_and_keeps_them_as_a_way_out():
    counts, spec = counted_queue()
    model = cautious_model(counts, 100)
    P = dense(model, spec.S, spec.A)
    # Serving was tried 2 times in a state that was visited 102 times, which is fewer than the square root of 102.
    assert model.allowed[1:, 1].all() and not model.allowed[:, 2:].any()
    assert (model.r[1:, 1] == 0).all() and (model.g[0, 1:, 1] == 0).all() and (model.r[:, 0] == 0.5).all()
    # Waiting was tried 100 times and leads only where it was seen to lead. Serving leads to 2 places of 3 by the weight
    # of 1 that it shares with waiting, of 3 in all.
    np.testing.assert_allclose(P[1, 0], [0, 0.6, 0.4, 0])
    np.testing.assert_allclose(P[1, 1], [(2 + 1 / 3) / 3, 1 / 9, 1 / 9, 0])


def test_patience_keeps_the_value_of_a_policy_that_visits_states_as_the_run_did():
    rng = np.random.default_rng(3)
    cmdp = ck.CMDP(rng.dirichlet(np.ones(5), (5, 2)), rng.random((5, 2)), criterion="average")
    pi = random_policy(cmdp, rng)
    chain = np.einsum("sa,sat->st", pi, cmdp.P[0])
    share = np.linalg.matrix_power(chain, 2000)[0]
    spec = Spec.of(cmdp, 10)
    visits = np.column_stack(((1e9 * share).astype(int), np.zeros(5, dtype=int)))
    counts = seen(spec, (1e6 * cmdp.P[0]).astype(int), visits=visits)
    model = with_patience(mean_model(counts), counts, 50.0)
    assert model.kind == "discounted" and model.discount == pytest.approx(0.98)
    earned = np.einsum("sa,sa->s", pi, cmdp.r[0])
    patient = 0.02 * model.mu @ np.linalg.solve(np.eye(5) - 0.98 * chain, earned)
    assert patient == pytest.approx(share @ earned, abs=1e-6)
