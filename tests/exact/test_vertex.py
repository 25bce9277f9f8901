"""Purification: from optimal but blurred policies to extreme points, in one walk through the steps."""

import itertools

import numpy as np
import pytest
from scipy import sparse
from stationary_oracle import optimum

import cmdpkit as ck
from cmdpkit.exact.sources import Induction, blend, policy_of, purify, read_off
from cmdpkit.exact.stationary.problem import ComponentRows
from cmdpkit.exact.stationary.vertex import Flows
from cmdpkit.exact.stationary.vertex import vertex as stationary_vertex
from instances import tiny, with_rho

pytestmark = pytest.mark.compiled


def vertex_of(cmdp: ck.CMDP, policy: ck.Policy) -> ck.Policy:
    start = read_off(ck.occupancy(cmdp, policy), policy.pi.argmax(axis=-1).astype(np.int16))
    return policy_of(cmdp, purify(Induction(cmdp), start, cmdp.rho, np.ones(cmdp.N)))


def extras(cmdp: ck.CMDP, policy: ck.Policy) -> int:
    q = ck.occupancy(cmdp, policy)
    return int((q > 1e-10).sum() - (q.sum(axis=-1) > 1e-10).sum())


@pytest.mark.parametrize("N", [0, 1, 2, 3])
def test_when_everything_is_tied_any_policy_becomes_a_vertex_with_its_utilities(N):
    """With reward 0 every policy is optimal: the hardest case, since no action is ruled out."""
    rng = np.random.default_rng(N)
    blurred = 0
    for _ in range(40):
        cmdp = tiny(rng, N, ties=False)
        cmdp = cmdp.reformulated(r=np.zeros((1, cmdp.S, cmdp.A)))
        uniform = ck.Policy.uniform(cmdp)
        cmdp = with_rho(cmdp, ck.evaluate(cmdp, uniform).w)
        blurred += extras(cmdp, uniform) > N
        vertex = vertex_of(cmdp, uniform)
        assert extras(cmdp, vertex) <= N
        assert ck.evaluate(cmdp, vertex).w == pytest.approx(cmdp.rho, abs=1e-9), "all constraints are binding"
    assert blurred > 20


@pytest.mark.parametrize("N", [1, 2, 3])
def test_the_reward_never_falls_on_the_way(N):
    """Also from policies that are far from optimal: directions are followed to the side that gains."""
    rng = np.random.default_rng([N, 1])
    for _ in range(40):
        cmdp = tiny(rng, N, ties=bool(rng.integers(2)))
        uniform = ck.Policy.uniform(cmdp)
        cmdp = with_rho(cmdp, ck.evaluate(cmdp, uniform).w)
        vertex = vertex_of(cmdp, uniform)
        assert ck.evaluate(cmdp, vertex).v >= ck.evaluate(cmdp, uniform).v - 1e-9
        assert (ck.evaluate(cmdp, vertex).w >= cmdp.rho - 1e-9).all()
        assert extras(cmdp, vertex) <= N


def test_a_slack_utility_may_fall_but_not_below_its_bound():
    # One state, three actions; utility of the actions 0, 1/2, 1. Uniform play has 1/2; the bound 0.2 is slack.
    cmdp = ck.CMDP(np.ones((1, 3, 1)), np.zeros((1, 3)), np.array([[[0.0, 0.5, 1.0]]]), [0.2], horizon=1)
    vertex = vertex_of(cmdp, ck.Policy.uniform(cmdp))
    assert extras(cmdp, vertex) <= 1
    assert ck.evaluate(cmdp, vertex).w[0] >= 0.2 - 1e-12


def test_rounding_in_a_binding_utility_is_taken_out():
    cmdp = ck.CMDP(np.ones((1, 2, 1)), np.zeros((1, 2)), np.array([[[0.0, 1.0]]]), [0.3], horizon=1)
    vertex = vertex_of(cmdp, ck.Policy(np.array([[[0.7 + 3e-13, 0.3 - 3e-13]]])))
    assert vertex.pi[0, 0, 1] == pytest.approx(0.3, abs=1e-15)


def test_an_action_of_negligible_probability_leaves_without_taking_the_others_along():
    """Effects count with the probability there is: a shift that is harmless because it is tiny must stay tiny."""
    cmdp = ck.CMDP(np.ones((1, 2, 1)), [[1.0, 0.0]], np.array([[[0.0, 1.0]]]), [1.0], horizon=1)
    vertex = vertex_of(cmdp, ck.Policy(np.array([[[1e-11, 1 - 1e-11]]])))
    assert vertex.pi[0, 0, 1] >= 1 - 2e-11


def test_a_blend_of_deterministic_policies_is_the_markov_policy_of_their_mixture():
    rng = np.random.default_rng(5)
    for _ in range(30):
        cmdp = tiny(rng, 2, ties=bool(rng.integers(2)))
        allowed = [np.flatnonzero(row) for row in cmdp.actions.reshape(-1, cmdp.A)]
        choices = [np.array([rng.choice(x) for x in allowed], dtype=np.int16).reshape(cmdp.H, cmdp.S) for _ in range(3)]
        weights = rng.dirichlet(np.ones(3))
        drawn = blend(cmdp, choices, weights, choices[0])
        mixture = ck.Mixture(tuple(ck.Policy.deterministic(x, cmdp.A) for x in choices), weights)
        assert ck.occupancy(cmdp, policy_of(cmdp, drawn)) == pytest.approx(ck.occupancy(cmdp, mixture), abs=1e-14)
        exact = ck.evaluate(cmdp, mixture)
        totals = Induction(cmdp).evaluate(drawn)
        assert totals == pytest.approx([exact.v, *exact.w], abs=1e-13)
        assert totals[0] == ck.evaluate(cmdp, policy_of(cmdp, drawn)).v, "both evaluations agree to the bit"


def test_an_occupancy_that_no_class_of_its_policy_keeps_is_no_single_policy():
    """State 0 goes to 1 and never comes back, so a mixture that is said to stay in 0 is kept by no class at all."""
    rows = ComponentRows.of(sparse.csr_array(np.array([[0.0, 1.0], [0.0, 1.0]])), np.arange(2), np.arange(2))
    flows = Flows(rows, True, np.zeros(2))
    assert flows.classes(np.ones(2), np.array([1.0, 0.0])) == ([], 0.0)
    part = (1.0, np.arange(2), np.array([1.0, 0.0]))
    assert stationary_vertex(flows, [part], np.zeros((1, 2)), np.zeros(1), np.zeros(1)).kept == 0.0


def test_a_state_that_is_left_once_in_a_hundred_million_steps_does_not_mislead_the_search_for_a_vertex():
    """The optimum of this queue stays at the full buffer for 37 % of the time. Rounding made its bound look slack."""
    arrives, rates, power, full = 0.16, (0.0, 0.68, 0.91), (0.0, 0.376, 0.541), 9
    P = np.zeros((full + 1, 3, full + 1))
    for s, (a, rate) in itertools.product(range(full + 1), enumerate(rates)):
        served, comes = rate * (s > 0), arrives * (s < full)
        up, down = comes * (1 - served), served * (1 - comes)
        P[s, a, min(s + 1, full)] += up
        P[s, a, max(s - 1, 0)] += down
        P[s, a, s] += 1 - up - down
    jobs = np.arange(full + 1.0)
    r = -np.array(power) * (jobs > 0)[:, None]
    g = np.broadcast_to(-jobs[None, :, None], (1, full + 1, 3)).copy()
    rho, mu = np.array([-3.5888]), np.eye(full + 1)[0]
    answer = ck.solve(ck.CMDP(P, r, g, rho, mu, criterion="average"))
    assert answer.value == pytest.approx(optimum(P, r, g, rho, mu, "average"), abs=1e-6)
    assert answer.gap <= 1e-9
    assert answer.utilities[0] >= rho[0] - answer.tolerance[0]
