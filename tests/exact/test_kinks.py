"""At a kink of the trade-off, the price of a bound is what a looser bound would bring: against difference quotients."""

import numpy as np
import pytest

import cmdpkit as ck

NAME = "utility"
CRITERIA = [{"horizon": 4}, {"discount": 0.9}, {"criterion": "average"}]


def random_model(seed: int, criterion: dict[str, object]) -> ck.CMDP:
    """Four states, three actions, one bound that is loose."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(4), (4, 3))
    return ck.CMDP(P, rng.random((4, 3)), constraints=[ck.at_least(NAME, -1.0, rng.random((4, 3)))], **criterion)


def at(cmdp: ck.CMDP, bound: float) -> ck.Solution:
    return ck.solve(cmdp.with_bounds(**{NAME: bound}))


def kink(cmdp: ck.CMDP) -> float:
    """What the better one of the two policies earns that the optimum halfway to the strictest bound mixes."""
    free = at(cmdp, -1.0).utilities[0]
    most = ck.tradeoff(cmdp, NAME, 2).bounds.max()
    found = at(cmdp, (free + most) / 2)
    (decision,) = found.stochastic_decisions()
    step = 0 if decision.step is None else decision.step - 1
    s, totals = cmdp.states.index(decision.state), []
    for a in np.flatnonzero(found.policy.table(step)[s] > 0):
        pi = np.array([found.policy.table(h) for h in range(cmdp.criterion.horizon or 1)])
        pi[step, s] = np.eye(cmdp.A)[a]
        totals.append(float(ck.evaluate(cmdp, ck.Policy.of(cmdp, pi)).w[0]))
    return max(totals)


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_at_a_kink_the_price_is_the_slope_on_the_side_of_looser_bounds(criterion):
    bent = 0
    for seed in range(6):
        cmdp = random_model(seed, criterion)
        bound, eps = kink(cmdp), 1e-5 * (cmdp.criterion.steps_in_value or 4)
        here, looser = at(cmdp, bound), at(cmdp, bound - eps)
        stricter = at(cmdp, bound + eps)
        left, right = (looser.value - here.value) / eps, (here.value - stricter.value) / eps
        assert here.shadow_prices[0] == pytest.approx(left, rel=1e-5)
        bent += right > 1.01 * left
    assert bent >= 4, "most of these bounds should be at a kink"


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_the_price_of_the_strictest_bound_is_finite_and_that_of_an_indifferent_one_zero(criterion):
    cmdp = random_model(11, criterion)
    curve = ck.tradeoff(cmdp, NAME, 2)
    eps = 1e-5 * (cmdp.criterion.steps_in_value or 4)
    near = at(cmdp, float(curve.bounds[1]) - eps)
    assert curve.prices[1] == pytest.approx((near.value - curve.values[1]) / eps, rel=1e-5)
    assert curve.prices[0] == 0.0


def test_a_relaxation_prints_in_one_line():
    bounds = [ck.at_least("left", 1.5, [[1.0, 0.0]]), ck.at_least("right", 1.0, [[0.0, 1.0]])]
    model = ck.CMDP([[[1.0], [1.0]]], r=[[0.0, 0.0]], constraints=bounds, horizon=2)
    with pytest.raises(ck.Infeasible) as found:
        ck.solve(model)
    text = repr(found.value.relax)
    assert "Relaxation(name='left', bound=1, by=0.5, at_least=0.5, solution=<optimal value 0>)" in text
    assert len(text) < 250
