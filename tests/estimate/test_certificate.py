"""Certificates: betting intervals against a search over all candidates, coverage, stopping at will, and widths."""

import math

import numpy as np
import pytest
from bench.certificate import drawn, measured, problems, returns, truth

from cmdpkit import envs, evaluate
from cmdpkit.estimate.intervals import _gets_rich, betting_interval, half_width, simultaneous
from cmdpkit.learners import Source, Spec, load
from cmdpkit.model.policy import Policy
from cmdpkit.simulate.random import stream


def excluded(x, m, anchor, planned, wanted):
    """Whether the gambler on "above" excludes m, betting as against the anchor: the definition, in plain Python."""
    capital = against_anchor = 1.0
    mean, square = 0.5, 0.25
    for t, y in enumerate(x):
        left = planned - t if t < planned else 2 * planned - t
        missing = math.log(wanted / against_anchor)
        bet = min(math.sqrt(2 * missing / (left * square / (t + 1))), 0.9 / anchor) if missing > 0 else 0.0
        against_anchor *= 1 + bet * (y - anchor)
        capital *= 1 + bet * (y - m)
        if capital >= wanted:
            return True
        mean += y
        square += (y - mean / (t + 2)) ** 2
    return False


def beta(rng):
    return rng.beta(2, 5, 60)


def coins(rng):
    return (rng.random(60) < 0.3).astype(float)


def rising(rng):
    return np.sort(rng.random(60))


def falling(rng):
    return rising(rng)[::-1]


@pytest.mark.parametrize(
    ("sample", "planned"), [(beta, 60), (beta, 45), (beta, 100), (coins, 60), (rising, 45), (falling, 60)]
)
def test_betting_intervals_are_those_of_a_search_over_all_candidates(sample, planned):
    """2,000 candidates and the ends of cells, each bet against as the end of its cell says: none outside is kept."""
    x = sample(np.random.default_rng(1))
    low, high = betting_interval(x, 0.05, planned)
    cells = math.ceil(20 * math.sqrt(planned))
    candidates = np.append(np.linspace(0.0005, 0.9995, 2000), np.arange(1, cells) / cells - 1e-9)

    def kept(y, ms):
        return [m for m in ms if not excluded(y, m, math.ceil(m * cells) / cells, planned, 2 / 0.05)]

    assert abs(low - min(kept(x, candidates))) < 6e-4
    assert abs(high - (1 - min(kept(1 - x, candidates)))) < 6e-4


def test_a_capital_that_no_number_is_small_enough_for_can_grow_again():
    """400 bets leave a tenth each, which makes 1e-400. With 1.9 per bet, 1 is reached again after 1,435 more."""
    x = np.append(np.zeros(400), np.ones(1500))
    bets = np.full(len(x), 1.8)
    wanted = math.log(40)
    needed = 400 + math.ceil((400 * math.log(10) + wanted) / math.log(1.9))
    assert _gets_rich(x[:needed], bets, 0.5, wanted)
    assert not _gets_rich(x[: needed - 1], bets, 0.5, wanted)


def test_with_more_episodes_an_interval_only_shrinks_so_that_it_holds_at_whatever_time_one_stops():
    """The last interval lies in all earlier ones: whoever stops early with a wrong one has a wrong one in the end."""
    x = (np.random.default_rng(3).random(300) < 0.3).astype(float)
    before = (0.0, 1.0)
    for n in (1, 2, 5, 20, 21, 80, 150, 299, 300):
        low, high = betting_interval(x[:n], 0.05, planned=300)
        assert before[0] <= low <= high <= before[1]
        before = low, high
    assert before[1] - before[0] < 0.25


def test_coverage_on_the_worst_distributions_is_at_least_the_promised_one():
    """Rare large values make small samples look harmless. 2,000 samples of 60: at a true miss rate of 5 % more than 150
    misses would have probability below 1e-6. Stopped when the interval first excludes the truth, if ever."""
    rng = np.random.default_rng(1)
    for p in (0.01, 0.05, 0.3):
        x = (rng.random((2_000, 60)) < p).astype(float)
        ends = [betting_interval(row, 0.05) for row in x]
        assert sum(not low <= p <= high for low, high in ends) <= 150


def test_intervals_that_hold_together_share_delta_equally_and_stay_in_the_range():
    x = 3 * np.random.default_rng(2).beta((2, 9), (5, 0.5), (50, 2))
    found = simultaneous(x, 3.0, 0.05, planned=80)
    assert (found.level, found.episodes) == (0.95, 50)
    for interval, column in zip(found.intervals, x.T, strict=True):
        assert interval == pytest.approx(3 * np.array(betting_interval(column / 3, 0.025, 80)), rel=1e-12)
        assert 0 <= interval[0] < column.mean() < interval[1] <= 3


@pytest.mark.parametrize(("a", "b"), [(1, 1), (20, 20), (2, 30)])
@pytest.mark.parametrize("n", [100, 2_000])
def test_the_planned_width_is_rarely_exceeded(a, b, n):
    """The mean of 40 widths, for wide, narrow and skewed distributions on [0, 4]."""
    rng = np.random.default_rng(5)
    found = [np.subtract(*betting_interval(rng.beta(a, b, n), 0.025)[::-1]) * 2 for _ in range(40)]
    variance = 16 * a * b / ((a + b) ** 2 * (a + b + 1))
    assert 0.4 < np.mean(found) / half_width(n, variance, 4.0, 0.025) < 1.05


def test_certificates_of_500_episodes_hold_and_are_as_narrow_as_the_page_says():
    """60 certificates on each of four problems at level 95 %: at most 24 of 240 misses; more have probability below
    1e-3 at a true miss rate of 5 %. The standard error of a mean width is below 3 %."""
    figures = [measured(cmdp, 60, seed) for seed, (_, cmdp) in enumerate(problems())]
    assert 60 * sum(1 - held for held, _ in figures) <= 24
    assert [width for _, width in figures] == pytest.approx([0.084, 0.175, 0.119, 0.119], rel=0.1)


def test_the_bench_draws_returns_with_the_exact_means():
    """40,000 episodes per problem, 10 means within 4.5 standard errors: fails by chance with probability below 1e-4."""
    rng = np.random.default_rng(4)
    for _, cmdp in problems():
        pi = cmdp.actions / cmdp.actions.sum(axis=-1, keepdims=True)
        x = returns(cmdp, pi, 40_000, rng)
        assert x.min() >= 0 and x.max() <= cmdp.H
        assert np.all(np.abs(x.mean(axis=0) - truth(cmdp, pi)) <= 4.5 * x.std(axis=0) / 200)
    assert set(drawn(np.tile([0.0, 1.0, 0.0], (50, 1)), rng)) == {1}


@pytest.mark.long
def test_the_certificate_of_a_run_covers_the_true_values_of_the_very_policy_handed_over():
    """20 short runs at 90 %: at a true coverage of 90 % fewer than 13 would have probability below 5e-4.

    Utilities are "at most" costs in [0, 1] here, with random signals, so scales and noise are exercised too.
    """
    cmdp = envs.build("random", S=4, A=3, H=3, N=2, conflict=0.5, seed=3)
    scales = (cmdp.reward_scale, *cmdp.utility_scales)
    hits, widths, policies = 0, [], set()
    for seed in range(20):
        learner = load("cl-pri")(Spec.of(cmdp, 300), delta=0.1)
        learner.run(Source.of(cmdp, noise="bernoulli"), stream(seed), 300)
        found = learner.certificate()
        assert found.level == 0.9
        pi = learner.recommend()
        v, w = evaluate(cmdp, Policy.of(cmdp, pi))
        truth = [scale.total_to_unit(x, cmdp.H) for scale, x in zip(scales, [v, *w * cmdp.signs], strict=True)]
        hits += all(low <= x <= high for x, (low, high) in zip(truth, found.intervals, strict=True))
        widths += [high - low for low, high in found.intervals]
        policies.add(pi.tobytes())
    assert hits >= 13
    assert len(policies) > 10  # it is a different policy nearly every time
    assert np.mean(widths) < 0.75 * cmdp.H  # not vacuous even with 25 to 50 episodes


def test_replanning_at_doublings_doubles_both_constants_of_lemma_c():
    """Along n visits of a row, with counts that are read at powers of two: sums by hand, and they need both factors."""
    n = np.arange(1, 2**20)
    stale = 2.0 ** np.floor(np.log2(n))  # the count at which the bonus was computed, more than half of the count
    assert (stale > n / 2).all()
    roots, ones = np.cumsum(1 / np.sqrt(stale)), np.cumsum(1 / stale)
    assert (roots <= np.sqrt(2) * 2 * np.sqrt(n)).all() and roots[-1] > 1.2 * 2 * np.sqrt(n[-1]), "81 becomes 162"
    assert (ones <= 2 * (1 + np.log(n))).all() and ones[-1] > 1.3 * (1 + np.log(n[-1])), "8/3 becomes 16/3"
