"""Purification: from optimal but blurred occupancies to extreme points."""

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.exact.vertex import purify
from cmdpkit.model.mixture import from_occupancy
from instances import tiny, with_rho

pytestmark = pytest.mark.compiled


def extras(q: np.ndarray) -> int:
    return int((q > 1e-10).sum() - (q.sum(axis=-1) > 1e-10).sum())


@pytest.mark.parametrize("N", [0, 1, 2, 3])
def test_when_everything_is_tied_any_policy_becomes_a_vertex_with_its_utilities(N):
    """With reward 0 every policy is optimal: the hardest case, since no action is ruled out."""
    rng = np.random.default_rng(N)
    blurred = 0
    for _ in range(40):
        cmdp = tiny(rng, N, ties=False)
        cmdp = cmdp.reformulated(r=np.zeros((1, cmdp.S, cmdp.A)))
        q = ck.occupancy(cmdp, ck.Policy.uniform(cmdp))
        cmdp = with_rho(cmdp, ck.evaluate(cmdp, ck.Policy.uniform(cmdp)).w)
        blurred += extras(q) > N
        vertex = purify(cmdp, q, cmdp.rho, np.ones(N), ck.Policy.uniform(cmdp).pi)
        assert extras(vertex) <= N
        policy = from_occupancy(cmdp, vertex, ck.Policy.uniform(cmdp).pi)
        assert ck.evaluate(cmdp, policy).w == pytest.approx(cmdp.rho, abs=1e-9), "all constraints are binding"
    assert blurred > 20


def test_a_slack_utility_may_fall_but_not_below_its_bound():
    # One state, three actions; utility of the actions 0, 1/2, 1. Uniform play has 1/2; the bound 0.2 is slack.
    cmdp = ck.CMDP(np.ones((1, 3, 1)), np.zeros((1, 3)), np.array([[[0.0, 0.5, 1.0]]]), [0.2], horizon=1)
    vertex = purify(cmdp, np.full((1, 1, 3), 1 / 3), cmdp.rho, np.ones(1), np.full((1, 1, 3), 1 / 3))
    assert extras(vertex) <= 1
    assert (vertex * cmdp.g[0]).sum() >= 0.2 - 1e-12


def test_rounding_in_a_binding_utility_is_taken_out():
    cmdp = ck.CMDP(np.ones((1, 2, 1)), np.zeros((1, 2)), np.array([[[0.0, 1.0]]]), [0.3], horizon=1)
    q = np.array([[[0.7 + 3e-10, 0.3 - 3e-10]]])
    assert purify(cmdp, q, cmdp.rho, np.ones(1), q)[0, 0, 1] == pytest.approx(0.3, abs=1e-15)
