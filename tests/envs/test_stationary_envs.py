"""The problems without a horizon that come with the package, against their optima by hand and by other solvers."""

from fractions import Fraction

import numpy as np
import pytest
from oracle import optimum

import cmdpkit as ck
from cmdpkit.model.policy import Mixture
from cmdpkit.operators.chains import chain_of

# Values from an independent prototype and from HiGHS with a tolerance of 1e-10; the digits given agree.
KNOWN = {
    "machine-two": (-14 / 15, 8 / 3, 1e-12),
    "machine": (0.506361775619, 16.79772864, 1e-11),
    "machine:availability=0.87": (0.674339062049, 16.79772864, 1e-11),
    "machine:availability=0.89": (0.338384489189, 16.79772864, 1e-11),
    "machine:availability=0.86": (0.74518614, 0.0, 1e-8),
    "power-queue": (-0.410331783140, 0.05604264, 1e-11),
    "power-queue:discount=0.95": (-4.903909745820, 0.08788455, 1e-10),
    "service-level": (-3.892411681652, 10.36186898, 1e-11),
    "service-level:service=0.9": (-3.54113331, 5.69144118, 1e-8),
    "service-level:service=0.98": (-4.23703852, 22.28116603, 1e-8),
    "mud-grid": (0.56435552, 0.00926673, 1e-8),
    "mud-grid:mud=0.5": (0.55315335, 0.05686532, 1e-8),
    "mud-grid:mud=1.2": (0.56606174, 0.0, 1e-8),
    "rover": (-31 / 40, 0.5, 1e-12),
    "rover:slip=0.1": (-0.804706416070, 0.43263892, 1e-11),
    "rover:slip=0.1,pits=0.1": (-0.847970307742, 0.43263892, 1e-11),
    "rover:board=large,pits=0.1": (-197 / 210, 1 / 7, 1e-12),
    "rover:board=large,pits=0.1,slip=0.1": (-0.946745849058, 0.13265834, 1e-11),
    "box": (-0.845, 0.05, 1e-12),
    "flow-queue": (4.473738334576, (0.26756562, 0.44347893), 1e-11),
    "wireless": (0.4515686759, 0.06748811, 1e-9),
    "wireless:buffer=20": (0.4008459967, 0.02972248, 1e-9),
    "wireless:low=0,high=1": (0.5023622547, 0.07109111, 1e-9),
    "two-state": (0.5275, 1.0, 1e-12),
    "cycle-3": (1 / 6, 1.0, 1e-12),
    "one-way": (0.5, 1.0, 1e-12),
}


@pytest.mark.parametrize("name", KNOWN)
def test_optimum_and_prices_are_the_known_ones(name):
    value, prices, tolerance = KNOWN[name]
    cmdp = ck.load(name)
    found = ck.solve(cmdp)
    assert found.value == pytest.approx(value, abs=tolerance)
    np.testing.assert_allclose(found.lam, np.atleast_1d(prices), rtol=0, atol=1e-8)
    assert found.gap <= 1e-9 * max(1.0, abs(value))
    assert (cmdp.signs * (found.utilities - [c.bound_on_total for c in cmdp.constraints]) >= -1e-9).all()
    evaluated = ck.evaluate(cmdp, found.policy)
    assert evaluated.v == pytest.approx(found.value, abs=1e-9)
    np.testing.assert_allclose(evaluated.w, found.utilities, rtol=0, atol=1e-9)
    extras = sum(len(d.probabilities) - 1 for d in found.stochastic_decisions())
    assert extras <= cmdp.N


@pytest.mark.parametrize("name", [name for name in KNOWN if "," not in name])
def test_the_linear_program_agrees(name):
    best = optimum(ck.load(name))
    assert best.value == pytest.approx(ck.solve(ck.load(name)).value, abs=1e-8)


def test_machine_two_is_fourteen_fifteenths_by_hand():
    """The shares of time up and the costs of the two ways to run it, mixed in proportion to their visits."""
    run, care = (Fraction(5, 7), Fraction(4, 7)), (Fraction(10, 11), Fraction(12, 11))
    share = (Fraction(17, 20) - run[0]) / (care[0] - run[0])
    cost = (1 - share) * run[1] + share * care[1]
    assert (share, cost) == (Fraction(209, 300), Fraction(14, 15))
    found = ck.solve(ck.load("machine-two"))
    assert abs(found.value + float(cost)) < 1e-12
    assert abs(found.shadow_prices[0] - 8 / 3) < 1e-12
    (decision,) = found.stochastic_decisions()
    assert decision.step is None and decision.state == "up"


def test_vertices_draw_where_and_how_they_should():
    probabilities = {
        "machine": ("wear 2", "run", 0.464023),
        "power-queue": (1, "rate 0.3", 0.616596),
        "power-queue:discount=0.95": (3, "rate 0.3", 0.225979),
    }
    for name, (state, action, p) in probabilities.items():
        (decision,) = ck.solve(ck.load(name)).stochastic_decisions()
        assert decision.state == state
        assert decision.probabilities[action] == pytest.approx(p, abs=1e-6)


def test_bounds_beyond_reach_are_infeasible_with_the_best_that_can_be_had():
    for name, best in (("machine:availability=0.91", 0.902729), ("two-state:cost=0.52", 10 / 19)):
        with pytest.raises(ck.Infeasible) as caught:
            ck.solve(ck.load(name))
        assert caught.value.best[0] == pytest.approx(best, abs=1e-6)
        assert caught.value.utilities[0] == pytest.approx(best, abs=1e-6)
    with pytest.raises(ck.Infeasible) as caught:
        ck.solve(ck.load("power-queue:discount=0.95,start=10"))
    assert caught.value.best[0] / 20 == pytest.approx(4.1830, abs=1e-4)


def test_the_start_of_a_discounted_bound_matters():
    assert ck.solve(ck.load("power-queue:discount=0.95")).value_per_step == pytest.approx(-0.24520, abs=1e-5)
    assert ck.solve(ck.load("power-queue:discount=0.95,start=5")).value_per_step == pytest.approx(-0.92756, abs=1e-5)
    for start in (6, 7):
        assert (optimum(ck.load(f"power-queue:discount=0.95,start={start}")) is not None) == (start == 6)


def test_one_way_needs_a_mixture():
    found = ck.solve(ck.load("one-way"))
    assert isinstance(found.policy, Mixture) and not found.attained and found.notes
    np.testing.assert_allclose(np.sort(found.policy.weights), [0.5, 0.5], atol=1e-12)
    values = sorted(tuple(ck.evaluate(found.cmdp, p)[0:1]) for p in found.policy.policies)
    np.testing.assert_allclose(values, [(0.0,), (1.0,)], atol=1e-12)


@pytest.mark.parametrize("bridge", [1e-4, 1e-2])
def test_two_rooms_is_approached_at_half_the_bridge(bridge):
    found = ck.solve(ck.load("two-rooms"), bridge=bridge)
    assert not found.attained and found.notes
    assert found.value == pytest.approx(0.5 - bridge / 2, abs=1e-9)
    assert found.utilities[0] >= 0.5 - 1e-9
    assert bridge / 2 <= found.gap <= bridge / 2 + 1e-9
    p, q = (found.policy.pi[0, s, 1] for s in (0, 1))
    assert ck.evaluate(found.cmdp, found.policy).v == pytest.approx(q * (1 - p) / (p + q), abs=1e-9)


def test_the_periodic_cycle_takes_few_sweeps(monkeypatch):
    """With sweeps instead of elimination: a method without damping would never end."""
    from cmdpkit.exact.sources import columns_of
    from cmdpkit.exact.stationary import careful, pricing

    swept, made = pricing.sweeps, []
    monkeypatch.setattr(careful, "DIRECT_STATES", 0)
    monkeypatch.setattr(pricing, "sweeps", lambda *args: made.append(swept(*args)) or made[-1])
    cmdp = ck.load("cycle-3")
    pool = columns_of(cmdp)
    best = pool.optimum(pool.scaled(cmdp.rho))
    assert pool.value(best) == pytest.approx(1 / 6, abs=1e-10)
    assert 10 <= sum(made) <= 2_000


def test_the_policy_of_rover_reaches_its_class_from_every_state():
    found = ck.solve(ck.load("rover"))
    from cmdpkit.operators.chains import closed_classes

    assert len(closed_classes(chain_of(found.cmdp, found.policy.pi[0]))) == 1


def test_discounts_near_one_come_near_the_average():
    """On every problem whose reachable part is one end component and whose optimum is attained."""
    small = ("machine-two", "machine", "power-queue", "service-level", "flow-queue", "two-state", "cycle-3")
    boards = ("rover", "rover:slip=0.1", "rover:board=large,pits=0.1", "rover:board=large,pits=0.1,slip=0.1", "box")
    for name in (*small, *boards):
        average = ck.load(name)
        found = ck.solve(average)
        near = ck.solve(average.with_criterion(discount=1 - 1e-6))
        span = np.ptp(found.bias[0] + found.shadow_prices @ found.bias[1:])
        assert abs(near.value_per_step - found.value) <= 2e-6 * span + 1e-9
        assert near.gap <= 1e-9 * 1e6 * max(1.0, abs(found.value))


def test_many_steps_are_worth_no_more_than_as_many_averages_and_the_span_of_the_bias():
    cmdp = ck.load("machine")
    found = ck.solve(cmdp)
    H = 2_000
    long = ck.solve(cmdp.with_criterion(horizon=H))
    span = np.ptp(found.bias[0] + found.shadow_prices @ found.bias[1:])
    assert long.value <= H * found.value + span + 1e-6


def test_the_discounted_occupancy_is_the_long_run_of_the_restart_chain():
    cmdp = ck.load("power-queue:discount=0.95")
    policy = ck.Policy.uniform(cmdp)
    P = chain_of(cmdp, policy.pi[0]).toarray()
    restart = 0.95 * P + 0.05 * cmdp.mu[None, :]
    d = ck.occupancy(cmdp, policy)[0].sum(axis=1)
    np.testing.assert_allclose(d @ restart, d, atol=1e-13)
    assert d.sum() == pytest.approx(1.0, abs=1e-13)


def test_a_fixed_rate_queue_has_the_textbook_backlog():
    """Arrivals p = 0.4, service m = 0.5, a long buffer: idle 1 - p/m, mean backlog p (1 - p) / (m - p)."""
    cmdp = ck.load("power-queue:capacity=200")
    pi = np.zeros((201, 5))
    pi[:, 2] = 1.0
    values = ck.evaluate(cmdp, ck.Policy.of(cmdp, pi))
    assert values.v == pytest.approx(-0.5 * 0.8, abs=1e-12)
    assert values.w[0] == pytest.approx(2.4, abs=1e-12)


def test_a_trade_off_passes_through_the_known_points():
    found = ck.tradeoff(ck.load("machine"), "availability", 3, low=0.87, high=0.89)
    np.testing.assert_allclose(found.values, [0.674339062049, 0.506361775619, 0.338384489189], atol=1e-10)
    np.testing.assert_allclose(found.prices, 16.79772864, atol=1e-7)
    assert ck.tradeoff(ck.load("machine"), "availability", 2, low=0.9, high=0.95).infeasible.tolist() == [0.95]


def test_ranges_and_slack_of_the_machine():
    found = ck.diagnose(ck.load("machine"))
    (r,) = found.ranges
    assert r.indifferent == pytest.approx(0.865782, abs=1e-6)
    assert r.strictest == r.best_alone == pytest.approx(0.902729, abs=1e-6)
    assert found.slater_slack == pytest.approx(0.902729 - 0.88, abs=1e-6)
    assert (found.reachable, found.pairs, len(found.components)) == (6, 6, 1)
    assert len(found.separation) == int((found.solution.occupancy > 1e-12).sum())


@pytest.mark.long
def test_a_queue_of_a_thousand_states_is_solved_at_discount_0_9999():
    cmdp = ck.load("power-queue:capacity=999").with_criterion(discount=0.9999)
    found = ck.solve(cmdp)
    assert found.gap <= 1e-9 * abs(found.value)
    assert len(found.stochastic_decisions()) <= 1
