"""The paper's instances against what the paper prints and what follows from it by hand."""

import numpy as np
import pytest
from oracle import optimum, slater_slack

from cmdpkit import envs
from cmdpkit.model.policy import Policy
from cmdpkit.operators.policies import evaluate
from pri_instance import PRINTED_P

# -- paper/synthetic ---------------------------------------------------------------------------------------------------

# As printed, in the order of `PRINTED_P`.
PRINTED_R = """
.5507979  .70814782 .29090474 .51082761 .89294695 .89629309 .12558531 .20724388 .0514672
.44080984 .02987621 .45683322 .64914405 .27848728 .6762549  .59086282 .02398188 .55885409
.25925245 .4151012  .28352508 .69313792 .44045372 .15686774 .54464902 .78031476 .30636353
"""
PRINTED_G = """
.22195788 .38797126 .93638365 .97599542 .67238368 .90283411 .84575087 .37799404 .09221701
.6534109  .55784076 .36156476 .2250545  .40651992 .46894025 .26923558 .29179277 .4576864
.86053391 .5862529  .28348786 .27797751 .45462208 .20541034 .20137871 .51403506 .08722937
"""


def printed(text: str) -> np.ndarray:
    return np.array(text.split(), dtype=float)


def test_synthetic_has_the_printed_digits():
    """All 108 numbers to the last digit, but for two digits that the source has differently from the stream."""
    cmdp = envs.build("paper/synthetic")
    P = printed(PRINTED_P).reshape(2, 3, 3, 3).transpose(0, 2, 3, 1)  # [h, s', s, a] -> [h, s, a, s']
    pairs = {
        "P": (cmdp.P[:2], P),
        "r": (cmdp.r, printed(PRINTED_R).reshape(3, 3, 3)),
        "g": (cmdp.g[0], printed(PRINTED_G).reshape(3, 3, 3)),
    }
    off = {
        name: {tuple(i): x[tuple(i)] for i in np.argwhere(abs(x - y) > 5.1e-9).tolist()}
        for name, (x, y) in pairs.items()
    }
    assert off == {
        "P": {(1, 0, 2, 2): pytest.approx(0.41343523, abs=5.1e-9)},  # printed .41343525: that row sums to 1.00000003
        "r": {(0, 2, 1): pytest.approx(0.20724288, abs=5.1e-9)},  # printed .20724388
        "g": {},
    }


def test_synthetic_is_the_legacy_stream_with_seed_3_start_distribution_included():
    before = np.random.get_state()
    try:
        np.random.seed(3)
        r, g, P, mu = (np.random.rand(*shape) for shape in ((3, 3, 3), (3, 3, 3), (3, 3, 3, 3), (3,)))
    finally:
        np.random.set_state(before)
    cmdp = envs.build("paper/synthetic")
    assert np.array_equal(cmdp.r, r) and np.array_equal(cmdp.g[0], g)
    np.testing.assert_allclose(cmdp.P, P / P.sum(-1, keepdims=True), rtol=1e-15)
    np.testing.assert_allclose(cmdp.mu, [0.14088753, 0.37446841, 0.48464406], rtol=0, atol=5.1e-9)
    np.testing.assert_allclose(cmdp.mu, mu / mu.sum(), rtol=1e-15)


def test_synthetic_has_the_published_optimum():
    cmdp = envs.build("paper/synthetic")
    best = optimum(cmdp)
    assert best.value == pytest.approx(1.573063, abs=5e-7)
    assert best.utilities[0] == pytest.approx(2.0, abs=1e-9)
    assert best.prices[0] == pytest.approx(0.739261, abs=5e-7)
    assert best.q[0, 0, 1:] / best.q[0, 0].sum() == pytest.approx([0.2738, 0.7262], abs=5e-5)
    assert slater_slack(cmdp) == pytest.approx(0.0898, abs=5e-5)
    assert [str(c) for c in cmdp.constraints] == ["utility ≥ 2"]


def test_the_published_policy_has_its_published_value_and_utility():
    pi = Policy.deterministic(np.array([[3, 3, 1], [1, 3, 3], [1, 1, 2]]) - 1, A=3).pi.copy()
    pi[0, 0] = [0, 0.0593, 0.9407]
    values = evaluate(envs.build("paper/synthetic"), Policy(pi))
    assert values.v == pytest.approx(1.56124, abs=5e-6)
    assert values.w[0] == pytest.approx(2.01599, abs=1e-5)


# -- paper/grid --------------------------------------------------------------------------------------------------------


def walk(cmdp, *moves: str) -> tuple[float, float]:
    """(reward, cost) of a fixed sequence of moves; where a move does not exist the policy stays."""
    pi = np.zeros((cmdp.H, cmdp.S, cmdp.A))
    for h, move in enumerate(moves):
        a, stay = cmdp.action_index(move), cmdp.action_index("stay")
        pi[h, np.arange(cmdp.S), np.where(cmdp.actions[h, :, a], a, stay)] = 1
    values = evaluate(cmdp, Policy.of(cmdp, pi))
    return values.v, float(values.w[0])


def test_the_direct_way_and_the_detour_earn_what_the_paper_implies():
    cmdp = envs.build("paper/grid")
    assert walk(cmdp, "down", "down", "stay", "stay", "stay", "stay") == pytest.approx((5.646447, 1), abs=5e-7)
    assert walk(cmdp, "left", "down", "down", "right", "stay", "stay") == pytest.approx((4.355877, 0), abs=5e-7)


def test_the_grid_is_crossed_half_of_the_time():
    cmdp = envs.build("paper/grid")
    best = optimum(cmdp)
    assert best.value == pytest.approx(5.001162, abs=5e-7)
    assert best.utilities[0] == pytest.approx(0.5, abs=1e-9)
    assert best.prices[0] == pytest.approx(1.290569, abs=5e-7)
    start = best.q[0, cmdp.state_index("r1c3")]
    assert start[cmdp.action_index("down")] == pytest.approx(0.5, abs=1e-9)
    assert start[cmdp.action_index("left")] == pytest.approx(0.5, abs=1e-9)


def test_at_the_published_cost_the_grid_has_the_published_reward():
    assert optimum(envs.build("paper/grid", bound=0.499)).value == pytest.approx(5.000, abs=5e-4)


def test_no_move_leaves_the_board():
    cmdp = envs.build("paper/grid")
    assert cmdp.actions[0].sum() == 25 + 2 * 2 * 20  # stay everywhere, and each of the 40 borders both ways
    for corner, moves in {"r1c1": ["down", "right", "stay"], "r5c5": ["up", "left", "stay"]}.items():
        there = cmdp.actions[0, cmdp.state_index(corner)]
        assert [cmdp.action_names[a] for a in np.flatnonzero(there)] == moves


def test_only_steps_that_end_on_an_obstacle_cost():
    cmdp = envs.build("paper/grid")
    obstacles = [cmdp.state_index(s) for s in ("r2c3", "r2c4", "r4c2")]
    np.testing.assert_allclose(-cmdp.g[0], cmdp.P[..., obstacles].sum(-1))


def test_the_grid_can_be_drawn():
    cmdp = envs.build("paper/grid")
    grid = cmdp.grid
    lines = [["."] * grid.columns for _ in range(grid.rows)]
    for s, mark in grid.marks.items():
        lines[grid.cells[s][0]][grid.cells[s][1]] = mark
    assert ["".join(line) for line in lines] == ["..S..", "..##.", "..G..", ".#...", "....."]
    assert dict(zip(cmdp.action_names, grid.arrows, strict=True)) == {
        "up": "↑",
        "down": "↓",
        "left": "←",
        "right": "→",
        "stay": "·",
    }


# -- paper/lower-bound -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 0.51, 1.0])
@pytest.mark.parametrize("H", [2, 6, 11])
def test_the_lower_bound_instance_has_its_closed_form(p, H):
    cmdp = envs.build("paper/lower-bound", p=p, H=H)
    best = optimum(cmdp)
    v = 2 / (3 * (1 + p))
    assert best.q[0, 0] == pytest.approx([1 - v, v], abs=1e-9)
    assert best.value == pytest.approx((1 - v) * (H - 1), abs=1e-9)
    assert best.utilities == pytest.approx([(H - 1) / 3], abs=1e-9)
    assert best.prices == pytest.approx([2 / (1 + p)], abs=1e-9)
    assert slater_slack(cmdp) == pytest.approx((H - 1) * (1 + 3 * p) / 6, abs=1e-9)


@pytest.mark.parametrize(("name", "value"), [("p", -0.1), ("p", 1.1), ("H", 1), ("H", 2.5)])
def test_a_lower_bound_instance_out_of_range_is_refused(name, value):
    with pytest.raises(ValueError, match=f"^{name} is {value}, expected a"):
        envs.build("paper/lower-bound", **{name: value})
