"""No wrong answer without a horizon: problems made to break the solver, against exact rational arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import stationary_rational as rational
from stationary_adversarial import FAMILIES, examine, instance
from stationary_oracle import optimum, random_model

import cmdpkit as ck
from cmdpkit.exact.sources import columns_of
from cmdpkit.exact.stationary.plans import Plans, found_of

pytestmark = pytest.mark.compiled


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_hostile_problems_without_a_horizon_are_answered_as_exact_arithmetic_says(family):
    """`python -m bench adversarial` tries 4,000 of them."""
    for k in range(20):
        made = instance(np.random.default_rng([1, FAMILIES.index(family), k]), family)
        assert examine(made, wide=k % 12 == 0 and family != "avoidable").faults == [], k


def model_of(P, r, g, rho, mu, **criterion) -> rational.Model:
    constraints = [ck.at_least(f"c{n}", float(x), g[n]) for n, x in enumerate(rho)]
    return rational.Model(ck.CMDP(P, r, mu=mu, constraints=constraints, **criterion))


def test_the_oracle_knows_a_machine_solved_by_hand():
    """Running is available 2/3 of the time at a cost of 2/3, care 4/5 at 6/5. At least 3/4 needs 5/8 of care."""
    P = np.zeros((2, 2, 2))
    P[0, 0], P[0, 1], P[1, :] = [0.75, 0.25], [0.875, 0.125], [0.5, 0.5]
    model = model_of(P, [[0, -1], [-2, -2]], [[[1, 1], [0, 0]]], [0.75], 0, criterion="average")
    assert sorted(model.points()) == [(Fraction(-6, 5), Fraction(4, 5)), (Fraction(-2, 3), Fraction(2, 3))]
    exact = rational.Exact(model.points(), [Fraction(3, 4)], [1])
    assert exact.best() == Fraction(-2, 3) * Fraction(3, 8) + Fraction(-6, 5) * Fraction(5, 8)
    assert exact.slack == Fraction(1, 20)
    assert exact.best(Fraction(1, 20)) == Fraction(-6, 5)
    assert exact.best(Fraction(1, 10)) is None


@pytest.mark.parametrize("kind", ["discounted", "average", "total"])
def test_the_oracle_agrees_with_linear_programs_on_ordinary_models(kind):
    agreed = 0
    for seed in range(60):
        rng = np.random.default_rng([11, seed])
        P, r, g, mu = random_model(rng, blocks=kind == "average" and seed % 2 == 0)
        if len(mu) > 5 or r.shape[1] ** len(mu) > 100:
            continue
        if kind == "total":
            P = np.concatenate((0.9 * P, np.zeros((1, *P.shape[1:]))))
            P = np.concatenate((P, 1 - P.sum(axis=-1, keepdims=True)), axis=-1)
            r, g, mu = (np.pad(x, y) for x, y in ((r, ((0, 1), (0, 0))), (g, ((0, 0), (0, 1), (0, 0))), (mu, (0, 1))))
        how = {"discount": 0.9} if kind == "discounted" else {"criterion": kind}
        points = model_of(P, r, g, np.zeros(len(g)), mu, **how).points()
        low, high = (pick([[float(x) for x in p] for p in points], axis=0) for pick in (np.min, np.max))
        for share in (0.3, 0.7):
            rho = (low + share * (high - low))[1:]
            exact = rational.Exact(points, [Fraction(x) for x in rho], np.ones(len(g), dtype=int).tolist()).best()
            arrays = (P[:-1, :, :-1], r[:-1], g[:, :-1], rho, mu[:-1]) if kind == "total" else (P, r, g, rho, mu)
            other = optimum(*arrays, kind, 0.9 if kind == "discounted" else 1.0)
            assert (other is None) == (exact is None), seed
            if exact is not None:
                assert float(exact) == pytest.approx(other, abs=1e-7), seed
                agreed += 1
    assert agreed >= 8


def test_the_oracle_evaluates_chains_that_are_almost_never_left():
    """Two rooms left with 1e-18 and 3e-18: three quarters of the time are spent in the first."""
    P = np.array([[[1.0, 1e-18]], [[3e-18, 1.0]]])
    model = model_of(P, [[1.0], [0.0]], np.zeros((0, 2, 1)), [], 0, criterion="average")
    assert abs(model.points()[0][0] - Fraction(3, 4)) < Fraction(1, 10**15)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "avoidable"])
def test_values_of_policies_are_as_far_from_the_exact_ones_as_is_proved_at_most(family):
    """Random policies in hostile models; the proof must not be much weaker than the tolerance needs it to be either."""
    for k in range(8):
        rng = np.random.default_rng([3, FAMILIES.index(family), k])
        made = instance(rng, family)
        source = columns_of(made.cmdp).source
        rows = source.problem.rows
        p = rng.random(rows.R) ** 4
        p /= np.bincount(rows.owner, p, rows.S)[rows.owner]
        found = found_of(source, Plans([p], np.ones(1)))
        exact = rational.values_of(made.model, found.policy)
        for told, least, true in zip(found.totals, found.least, exact, strict=True):
            assert abs(Fraction(float(told)) - true) <= Fraction(float(told - least)), k
        proved = (found.totals - found.least)[1:]
        assert (proved <= source.ranges.tolerance[1:]).all(), k
