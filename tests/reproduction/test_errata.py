"""Errata of the PRI paper that can be computed: docs/theory/errata.md says nothing that these do not show."""

import math
from pathlib import Path

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.learners.pri.presets import rad
from cmdpkit.learners.pri.refine import decomposition_opt, simplex
from pri_instance import PRINTED_P

PAGE = (Path(__file__).parents[2] / "docs" / "theory" / "errata.md").read_text(encoding="utf-8")


def test_the_caption_of_the_kernel_table_has_rows_and_columns_exchanged():
    table = np.array([float(x) for x in PRINTED_P.split()]).reshape(2, 3, 9)  # step, next state, (state, action)
    assert table.sum(axis=1) == pytest.approx(1.0, abs=4e-8)
    drawn = ck.load("paper/synthetic").P[:2].reshape(2, 9, 3).transpose(0, 2, 1)
    off = np.abs(table - drawn)
    assert np.unravel_index(off.argmax(), off.shape) == (1, 2, 2), "step 2, next state 3, (state 1, action 3)"
    assert f"{drawn[1, 2, 2]:.8f}" == "0.41343523" and np.sort(off.ravel())[-2] < 1e-8


@pytest.mark.parametrize("K", [10, 100, 10**6])
def test_bretagnolle_huber_with_the_printed_sign_is_impossible(K):
    """P(A) + Q(not A) is at most 2; exp(D) / 2 stays below that only by chance, exp(-D) / 2 always."""
    D = -K / 2 * math.log(1 - 4 / K)
    assert pytest.approx(2, rel=0.3) == D and math.exp(-D) / 2 < 0.5 < 2 < math.exp(D) / 2 + 2 * math.exp(-D)
    # For A = everything, P(A) + Q(not A) = 1 < exp(D) / 2: the printed form fails for a trivial event.
    assert math.exp(D) / 2 > 1 > math.exp(-D) / 2


@pytest.mark.parametrize("p", [0.5, 0.7])
@pytest.mark.parametrize("H", [6, 11])
def test_sigma_min_of_the_lower_bound_family_is_a_third(p, H):
    """Both restrictions of the only decision that matters, by hand: v alone, and u alone."""
    best = ck.solve(ck.load(f"paper/lower-bound:p={p},H={H}")).value
    v_alone, u_alone = best - 0.0, (H - 1) / 3 - 0.0  # reward lost with v, utility missed with u
    assert v_alone == pytest.approx((H - 1) * (1 - 2 / (3 * (1 + p))))
    assert min(v_alone, u_alone) == pytest.approx((H - 1) / 3)


def test_counts_of_episodes_and_actions():
    assert 6 * 5 * 5 + 1 == 151 and "151" in PAGE
    for HSA in (1, 27, 750):
        assert 4 + 2 * 2 * 4 * HSA <= 20 * HSA, "one loop of votes: usage, and two tests of 4 votes of two runs"
        assert 4 * HSA * 4 * 4 == 64 * HSA, "two loops: times 4 log K once more"


# -- what changes the algorithm or its proof ---------------------------------------------------------------------------


@pytest.mark.parametrize(("K", "shown"), [(7e6, (0.063, 0.937)), (1e10, (0.043, 0.957)), (1e14, (0.031, 0.969))])
def test_a_band_on_both_sides_is_infeasible_where_a_bound_is_slack(K, shown):
    """Two policies earn 1 and 0, with first utilities 0 and 1 (bound 0.5) and second utilities of 2 (bound 1).

    The optimum is (0.5, 0.5) by hand. With a band above the bounds no weights are feasible, in the last round, in which
    the band is narrowest, and in the first one as well where sqrt K is large.
    """
    v, w, rho = np.array([1.0, 0.0]), np.array([[0.0, 2.0], [1.0, 2.0]]), np.array([0.5, 1.0])
    floor, rounds = 1 / math.log(K), math.isqrt(int(K))
    for t in (1, rounds):
        radius = rad(3, K, floor, t)
        assert radius < 1 and (w @ [1, 1] > 0).all()
        printed = decomposition_opt(simplex(), v, w, rho, floor, radius)
        assert not printed.feasible and printed.alpha == pytest.approx([floor, 1 - floor])
        assert tuple(printed.alpha.round(3)) == shown and f"({shown[0]}, {shown[1]})" in PAGE
        with_slack = decomposition_opt(simplex(), v, w - [[0.0, 1.0]], rho, floor, radius)  # both bounds bind
        assert with_slack.feasible and with_slack.alpha[0] == pytest.approx(min(0.5 + radius, 1 - floor))
    meant = decomposition_opt(simplex(), v, w, rho, floor, None)  # at least the bound
    assert meant.feasible and meant.alpha == pytest.approx([0.5, 0.5])


def test_the_floor_excludes_small_optimal_weights():
    """The first of two policies is optimal in 2 % of the episodes, by hand: 0.02 x 0 + 0.98 x 1 = 0.98."""
    v, w, rho = np.array([1.0, 0.0]), np.array([[0.0], [1.0]]), np.array([0.98])
    floor = 1 / math.log(7e6)
    assert decomposition_opt(simplex(), v, w, rho, 0.0, None).alpha == pytest.approx([0.02, 0.98])
    floored = decomposition_opt(simplex(), v, w, rho, floor, None)
    assert not floored.feasible and floored.alpha == pytest.approx([floor, 1 - floor])
    assert math.exp(1 / 0.02) == pytest.approx(5.2e21, rel=0.01) and "e^{50}" in PAGE


def test_counting_uses_does_not_count_policies():
    """All K^0.25 policies take a' at x', which a fifth of the episodes reach: exact binomial probability."""
    K, reach = 7e6, 0.2
    n, most = math.ceil(K**0.25), math.floor(K**0.2)
    below = sum(math.comb(n, k) * reach**k * (1 - reach) ** (n - k) for k in range(most + 1))
    assert (n, most) == (52, 23) and below > 0.9999
    assert n - most > 0, "so many policies are said not to use the action, and none of them is"


def test_realised_averages_miss_a_binding_threshold_half_of_the_time():
    """Utility 1 with probability 1/2, threshold 1/2: of averages of 52 episodes nearly half are below it."""
    n = math.ceil(7e6**0.25)
    below = sum(math.comb(n, k) for k in range(n // 2)) / 2**n
    assert 0.4 < below < 0.5
    assert math.sqrt(2 * 9 * math.log(7e6**0.25) / 7e6**0.25) > 1.1, "what Azuma's inequality allows at H = 3"


@pytest.mark.parametrize("K", [1e6, 1e10, 1e14])
def test_the_sum_of_refinement_needs_a_factor_of_four(K):
    e, H = 1 / math.log(K), 3
    rounds = np.arange(2, math.isqrt(int(K)))
    unit = math.sqrt(2 * K * H * H * math.log(K) / e)
    line = 2 * math.sqrt(2 * math.sqrt(K) * H * H * math.log(K) / e) * (1 / np.sqrt(rounds)).sum()
    assert 2 * unit < line <= 4 * unit


def test_a_policy_with_two_stochastic_decisions_is_not_excluded_by_counting_all_states():
    """H = 2, S = 3, N = 1, fixed start: two pairs are reached and two decisions drawn, with 4 <= HS + N = 7 values."""
    P = np.zeros((2, 3, 2, 3))
    P[..., 1] = 1.0  # everything leads to state 2
    cmdp = ck.CMDP(P, np.ones((2, 3, 2)), np.ones((1, 2, 3, 2)), [0.0], mu=0)
    q = ck.occupancy(cmdp, ck.Policy.uniform(cmdp))
    reached, nonzero = int((q.sum(axis=-1) > 0).sum()), int((q > 0).sum())
    assert (reached, nonzero) == (2, 4) and nonzero <= 2 * 3 + 1 and nonzero > reached + 1


@pytest.mark.parametrize("H", [6, 11])
def test_the_threshold_of_the_lower_bound_is_one_of_an_episode(H):
    """With (H-1)/3 for all K episodes together, playing v once would do, and u in all others would be optimal."""
    assert ck.load(f"paper/lower-bound:H={H}").constraints[0].bound == pytest.approx((H - 1) / 3)
    K = 1000
    assert (H - 1) * 3 / 4 > (H - 1) / 3 and 2 / 4.5 * K > 400, "one play of v in 1,000 episodes, not 444"


def test_triple_q_inside_pri_had_other_settings_than_the_one_it_is_compared_with():
    price = float(ck.solve(ck.load("paper/synthetic")).shadow_prices[0])
    pri, triple_q = 68_900 - price * 80_000, 1_570_000 - price * 417_000
    assert pri == pytest.approx(9_760, abs=5) and triple_q == pytest.approx(1_262_000, rel=1e-3)
    assert (triple_q / 8_000) / (pri / 1_000) > 16
