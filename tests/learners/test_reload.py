"""ReLOAD: told everything, its last iterate settles at the saddle point."""

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.learners import Spec, load
from cmdpkit.learners._model_based.iterating import improved
from instances import synthetic
from told import know

pytestmark = pytest.mark.compiled


def flip_flop(H: int = 4) -> ck.CMDP:
    """Action 1 earns the reward, action 2 the utility, and half of the largest utility is asked for.

    Best is any policy that takes either action half of the time; a greedy one flips between the extremes.
    """
    P = np.zeros((2, 2, 2))
    P[:, 0, 1] = P[:, 1, 0] = 1.0
    return ck.CMDP(P, [[1, 0], [1, 0]], [[0, 1], [0, 1]], rho=H / 2, horizon=H)


def settled(cmdp: ck.CMDP, steps: int, **given: float) -> tuple[ck.Values, np.ndarray]:
    """Totals of the last iterate, and its prices in the units of the model, after so many steps on the true model."""
    learner = load("reload")(Spec.of(cmdp, 10), c=0.0, **given)
    know(learner, cmdp, 10**12)
    for _ in range(steps):
        improved(learner.after.parts, learner.counts, learner.playing)
    spans = np.array([scale.span for scale in cmdp.utility_scales])
    policy = ck.Policy.of(cmdp, learner.recommend() / learner.recommend().sum(axis=-1, keepdims=True))
    return ck.evaluate(cmdp, policy), learner.multipliers * cmdp.reward_scale.span / spans


@pytest.mark.parametrize(
    "cmdp",
    [synthetic(), ck.load("inventory"), flip_flop(), ck.load("random", S=6, H=4, seed=1, N=2)],
    ids=["synthetic", "inventory", "flip-flop", "two bounds"],
)
def test_the_last_iterate_is_the_saddle_point_of_a_model_that_is_known(cmdp):
    exact = ck.solve(cmdp)
    found, prices = settled(cmdp, 20_000)
    assert found.v == pytest.approx(exact.value, abs=1e-4)
    assert found.w == pytest.approx(exact.utilities, abs=1e-4)
    assert prices == pytest.approx(exact.shadow_prices, abs=1e-3)


def test_without_constraints_it_is_policy_iteration_by_small_steps():
    rng = np.random.default_rng(3)
    cmdp = ck.CMDP(rng.dirichlet(np.ones(3), (3, 3)), rng.normal(size=(3, 3)), horizon=4)
    found, prices = settled(cmdp, 100_000)
    assert found.v == pytest.approx(ck.solve(cmdp).value, abs=1e-7)
    assert prices.shape == (0,)
