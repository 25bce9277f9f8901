"""The parts of MF-PRI that keep it from being led astray: warm-up, prices, warnings."""

import numpy as np
import pytest
from bench.cl_pri import constant, copies

from cmdpkit import CMDP, Policy, envs, evaluate, solve
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.mf_pri import ModelFreePRI
from cmdpkit.simulate.random import stream


def run(cmdp, K, seed=1, noise="none"):
    learner = ModelFreePRI(Spec.of(cmdp, K))
    learner.run(Source.of(cmdp, noise=noise), stream(seed), K)
    return learner


def lock(n, H, *, stationary):
    """n states in a row, of which one action of three leads on and the others back; the end alone pays."""
    P, r, g = np.zeros((n + 1, 3, n + 1)), np.zeros((n + 1, 3)), np.ones((1, n + 1, 3))
    key = np.random.default_rng(2).integers(3, size=n)
    for s in range(n):
        P[s, np.arange(3), np.where(np.arange(3) == key[s], s + 1, 0)] = 1.0
    P[n, :, n], r[n], g[0, n] = 1.0, 1.0, (0.2, 0.5, 0.9)
    if not stationary:
        P, r = np.tile(P, (H, 1, 1, 1)), np.tile(r, (H, 1, 1))
        g = np.tile(g[:, None], (1, H, 1, 1))
    return CMDP(P, r, g, np.array([0.9 * H]), horizon=H)


# -- warm-up -----------------------------------------------------------------------------------------------------------


def backed_up(cells, visits, path, weight, allowed, shared):
    """Action values [H+1, S, A, 1+N] after an episode (states, actions, signals), by a plain reading of the rule."""
    H = len(path[1])
    for h in reversed(range(H)):
        s, a, x = path[0][h], path[1][h], path[2][h]
        for j in reversed(range(H)) if shared and h < H - 1 else [h]:
            then = np.zeros_like(x)
            if j < H - 1:
                s_next = path[0][h + 1]
                then = cells[
                    j + 1, s_next, np.where(allowed[j + 1, s_next], cells[j + 1, s_next] @ weight, -9).argmax()
                ]
            visits[j, s, a] += 1
            cells[j, s, a] += (H + 1) / (H + visits[j, s, a]) * (x + then - cells[j, s, a])


@pytest.mark.compiled
@pytest.mark.parametrize("stationary", [True, False])
def test_an_episode_is_learned_from_backwards_and_in_a_stationary_world_for_all_steps(stationary):
    """Fifty episodes, against a plain reading of the rule; the prices stay as they are until the frame ends."""
    cmdp = envs.build("random", S=4, A=3, H=4, N=2, stationary=stationary, seed=5)
    spec = Spec.of(cmdp, 10**6)
    learner, source, rng = ModelFreePRI(spec, warm_up=10**5), Source.of(cmdp), stream(3)
    assert int(learner.constants.frame) > 50 and spec.stationary == stationary
    cells = learner.values.cells.reshape(5, 4, 3, 4).copy()
    values, visits = cells[..., :3].copy(), cells[..., 3].copy()
    assert np.all(values[:4] == np.arange(4, 0, -1.0)[:, None, None, None])  # the most that could still be earned
    for _ in range(50):
        learner.run(source, rng, 1)
        episode = learner._episode
        path = episode.states.astype(int), episode.actions.astype(int), episode.signals
        weight = np.append(1.0, learner.values.weight)
        backed_up(values, visits, path, weight, cmdp.actions, stationary)
    found = learner.values.cells.reshape(5, 4, 3, 4)
    np.testing.assert_allclose(found[..., :3], values, rtol=1e-12)
    np.testing.assert_array_equal(found[..., 3], visits)
    assert visits[0].sum() > 100 if stationary else visits[0].sum() == 50


@pytest.mark.parametrize("stationary", [True, False])
def test_a_lock_whose_end_alone_pays_is_opened(stationary):
    """Random actions open it in an episode with probability below 1e-4, and no reward is seen before."""
    cmdp = lock(10, 14, stationary=stationary)
    learner = run(cmdp, 4000)
    assert evaluate(cmdp, Policy.of(cmdp, learner.recommend())).v > 0.99 * solve(cmdp).value > 0
    assert not any("is unsolved" in str(text) for text in learner.warnings())


def test_a_lock_that_is_not_opened_is_called_unsolved():
    cmdp = lock(25, 30, stationary=False)
    learner = run(cmdp, 300)
    assert evaluate(cmdp, Policy.of(cmdp, learner.recommend())).v == 0
    assert any("is unsolved" in str(text) for text in learner.warnings())


# -- prices and warnings -----------------------------------------------------------------------------------------------


def test_a_bound_that_all_policies_meet_exactly_is_rarely_chased_though_noise_hides_it():
    """By chance every policy seems to miss the bound a little, and version 0.1 ends up to 0.8 below the optimum.

    36 of 48 runs on such problems lack less than 0.02, so that fewer than 6 of 12 do with a probability of 1.4 %.
    """
    cmdp = constant(0)
    best, close = solve(cmdp).value, 0
    for seed in range(12):
        learner = run(cmdp, 100_000, seed, "bernoulli")
        close += best - evaluate(cmdp, Policy.of(cmdp, learner.recommend())).v < 0.02
    assert close >= 6


def test_three_copies_of_one_constraint_are_learned_like_one():
    cmdp = copies(0)
    learner = run(cmdp, 100_000)
    values = evaluate(cmdp, Policy.of(cmdp, learner.recommend()))
    assert solve(cmdp).value - values.v < 0.02 and (values.w >= cmdp.rho - 1e-3).all()


def test_a_bound_missed_by_the_realised_total_is_reported():
    cmdp = envs.build("paper/synthetic", rho=2.5)  # at most 2.09 can be had
    learner = run(cmdp, 3000)
    short = 2.5 - learner.ledger.totals[1] / 3000
    assert short > 0.4
    assert any(f"was missed by {short:.3g}" in str(text) for text in learner.warnings())
    assert not any("was missed" in str(text) for text in run(envs.build("paper/synthetic", rho=1.0), 3000).warnings())
