"""What holds on `paper/lower-bound`: the statements of docs/theory/pri.md about it, checked on a rule.

The rule, which is docs/tutorial/watch.py, plays u while the realised violation is at most -rho, and v otherwise.
"""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

import cmdpkit as ck

ERROR = 1e-6  # probability that a statistical statement below fails although the theorem is true
H, K, RUNS = 11, 2000, 20_000
CLOSE, FAR = 0.5, 0.5 + K**-0.5  # p of the two problems that K episodes cannot tell apart
BOUND = (H - 1) * math.sqrt(K) / 12  # of the paper's claim in the form in which it holds


@pytest.fixture(scope="module")
def watch():
    sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "tutorial"))
    from watch import Watch

    return Watch


@pytest.mark.parametrize("p", [0.0, 0.5, 0.77, 1.0])
@pytest.mark.parametrize("H", [2, 10, 11])
def test_the_rule_keeps_its_realised_violation_within_one_episode_of_zero_in_every_run(watch, p, H):
    """After every single episode; and exact regret is minus the price times the exact violation, to rounding."""
    run = ck.learn(f"paper/lower-bound:p={p},H={H}", watch, episodes=300, seed=1, readings=range(1, 301))
    realised, price = run.curves["realised_violation"][0], 2 / (1 + p)
    assert list(run.curves["episode"]) == list(range(1, 301))
    assert realised.min() >= -(H - 1) - 1e-9 and realised.max() <= 1e-9
    assert realised.max() > -(H - 1) / 3 - 1e-9, "it does not hoard: surplus is spent on reward again and again"
    assert run.curves["regret"] == pytest.approx(-price * run.curves["violation"][0], abs=1e-9)


def simulated(p, runs=RUNS, seed=0):
    """Many runs of the rule side by side: realised violation and plays of v, [runs] each.

    Utilities are counted in sixths of H - 1, so that all numbers are whole: rho is 2, v earns 6 or 3.
    """
    rng = np.random.default_rng(seed)
    violation, plays = np.zeros(runs, dtype=np.int64), np.zeros(runs, dtype=np.int64)
    for _ in range(K):
        utility = violation > -2
        violation += 2 - utility * np.where(rng.random(runs) < p, 6, 3)
        plays += utility
    return (H - 1) / 6 * violation, plays


def exact(p, plays):
    """Exact violation and regret of runs that played v so often."""
    violation = (H - 1) * (K / 3 - plays * (1 + p) / 2)
    return violation, (H - 1) * (plays - K * 2 / (3 * (1 + p)))


@pytest.fixture(scope="module")
def outcomes():
    return {p: simulated(p) for p in (CLOSE, FAR)}


@pytest.mark.parametrize("p", [CLOSE, FAR])
def test_expected_violation_and_regret_of_the_rule_do_not_grow_with_the_number_of_episodes(outcomes, p):
    """A run's exact minus realised violation is a sum of K martingale differences, each in a range of (H - 1) / 2.

    By the inequality of Azuma and Hoeffding the mean of all runs is within `radius` of its expectation but for a
    probability of ERROR. The radius is 4 where the paper claims that violation or regret is of order H sqrt K = 492.
    """
    realised, plays = outcomes[p]
    assert realised.min() > -(H - 1) and realised.max() <= 0
    violation, regret = exact(p, plays)
    radius = (H - 1) / 2 * math.sqrt(K * math.log(2 / ERROR) / (2 * RUNS))
    assert radius < 4.4 < BOUND / 8
    assert abs(violation.mean() - realised.mean()) < radius
    assert -(H - 1) - radius < violation.mean() < radius
    assert -2 * radius < regret.mean() < 2 * (H - 1) + 2 * radius


def test_a_policy_between_the_two_optima_does_pay_order_sqrt_k():
    """The restriction that the paper's proof makes: then errors add up, whichever policies between them are played."""
    low, high = (2 / (3 * (1 + p)) for p in (FAR, CLOSE))
    for share in np.linspace(low, high, 101):
        violation, _ = exact(CLOSE, share * K)
        _, regret = exact(FAR, share * K)
        assert violation >= -1e-9 <= regret and violation + regret > (H - 1) * math.sqrt(K) / 6


def test_no_number_of_plays_is_good_for_both_problems():
    """Too few plays of v violate on one problem, too many lose reward on the other; there is nothing between."""
    plays = np.arange(K + 1)
    violation, _ = exact(CLOSE, plays)
    _, regret = exact(FAR, plays)
    assert (np.maximum(violation, regret) >= BOUND).all()


def test_single_runs_of_the_rule_miss_by_order_sqrt_k_with_constant_probability(outcomes):
    """As every learner must, at least with probability exp(-2.5) / 2 on the two problems together.

    By Hoeffding's inequality each frequency is within `radius` of its probability but for a probability of ERROR / 2.
    """
    missed = float((exact(CLOSE, outcomes[CLOSE][1])[0] >= BOUND).mean())
    lost = float((exact(FAR, outcomes[FAR][1])[1] >= BOUND).mean())
    radius = math.sqrt(math.log(2 / ERROR) / (2 * RUNS))
    assert missed + lost > math.exp(-2.5) / 2 + 2 * radius
    assert -K / 2 * math.log(1 - 4 / K) <= 2.5, "what K plays of v tell about which problem it is"
