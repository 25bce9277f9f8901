"""Standard errors by the delta method: by hand, and against the spread of estimates of repeated experiments."""

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.estimate.continuing import Seen, mean_model
from cmdpkit.estimate.model import row_shares, stationary_errors
from cmdpkit.operators.chains import stationary_values
from counted import counts_of


def test_with_unbiased_variances_and_no_average_a_share_is_the_squared_error_of_a_mean():
    x, flow = np.array([1.0, 2.0, 4.0, 9.0]), 3.0
    deviations = ((x - x.mean()) ** 2).sum()
    found = row_shares(np.array([flow, 5.0]), np.array([deviations, 0.0]), np.array([4, 0]), pseudo=0.0, ddof=1)
    assert found.shares == pytest.approx([flow**2 * x.var(ddof=1) / 4, 0.0]) and found.freedom[0] == 3


def test_the_average_variance_counts_as_pseudo_observations():
    # Variances 6 / 2 and 0 / 2 with two observations each; their average is 6 / 4, or 6 / 2 if they are unbiased.
    for ddof, mixed in ((0, (6 + 5 * 1.5) / 7), (1, (6 + 5 * 3.0) / 6)):
        found = row_shares(np.array([2.0, 0.0]), np.array([6.0, 0.0]), np.array([2, 2]), pseudo=5.0, ddof=ddof)
        assert found.shares == pytest.approx([4 * mixed / 2, 0.0])


@pytest.mark.parametrize("discount", [None, 0.9])
def test_the_errors_of_one_unbroken_run_are_the_spread_of_its_predictions(discount):
    """400 experiments: a true ratio of 1 is measured beyond 1 +- 0.15 once in about 1e5 correct codes (0.035 each)."""
    rng, S, A, n = np.random.default_rng(5), 4, 2, 400
    P, g, mu = rng.dirichlet(np.ones(S), (S, A)), rng.random((S, A)), rng.dirichlet(np.ones(S))
    pi = rng.dirichlet(np.ones(A), S)
    predicted, errors = [], []
    for _ in range(400):
        moves = np.array([[rng.multinomial(n, P[s, a]) for a in range(A)] for s in range(S)])
        sums = rng.binomial(n, g).astype(float)[None]  # signals of 0 or 1, so that squares are the signals
        starts = rng.multinomial(300, mu)
        signals = np.concatenate((np.zeros_like(sums), sums))
        criterion = "average" if discount is None else "discounted"
        allowed, restart = np.ones((S, A), dtype=bool), 0.0 if discount is None else 1 - discount
        counts = counts_of(moves[None], np.full((1, S, A), n), signals[:, None], signals[:, None], starts)
        seen = Seen(counts, 0, allowed, restart, criterion)
        judged = {"criterion": "average"} if discount is None else {"discount": discount}
        believed = ck.CMDP(moves / n, sums[0] / n, mu=starts / 300, **judged)
        per_step = 1.0 if discount is None else 1 - discount
        predicted.append(per_step * stationary_values(believed, pi)[0])
        errors.append(stationary_errors(mean_model(seen), seen, pi)[0])
    assert np.mean(errors) == pytest.approx(np.std(predicted), rel=0.15)
