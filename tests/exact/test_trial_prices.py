"""Prices that are tried instead of those of the master problem: they save rounds and change nothing else."""

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.exact import master
from cmdpkit.exact.columns import PolicyColumn
from cmdpkit.exact.master import Tangent, between
from cmdpkit.exact.solver import Round
from instances import sparse


def tangent(price: float, bound: np.polynomial.Polynomial, rho: float) -> Tangent:
    """What a policy would say if L(price) were this polynomial: its slope is w - rho, its value v + price (w - rho)."""
    slope = float(bound.deriv()(price))
    return Tangent(price, float(bound(price)) - price * slope, rho + slope)


@pytest.mark.parametrize("rho", [0.0, 0.4])
@pytest.mark.parametrize(("low", "high"), [(0.0, 2.5), (0.5, 1.5), (0.7, 3.0)])
def test_the_minimum_of_a_cubic_bound_is_found_at_once(low, high, rho):
    bound = np.polynomial.Polynomial([1.0, -1.0, 0.0, 1 / 3])  # convex for prices of 0 or more, smallest at 1
    assert between(tangent(low, bound, rho), tangent(high, bound, rho), rho) == pytest.approx(1.0, abs=1e-12)


def test_a_guess_close_to_an_end_is_moved_to_twice_the_distance():
    bound = np.polynomial.Polynomial([1.0, -2.0, 1.0])  # smallest at 1
    assert between(tangent(0.95, bound, 0.0), tangent(3.0, bound, 0.0), 0.0) == pytest.approx(1.05, abs=1e-12)
    assert between(tangent(0.0, bound, 0.0), tangent(1.02, bound, 0.0), 0.0) == pytest.approx(0.98, abs=1e-12)


def test_no_guess_is_closer_to_an_end_than_a_hundredth_of_the_interval():
    bound = np.polynomial.Polynomial([1.0, -2.0, 1.0])
    assert between(tangent(1 - 1e-6, bound, 0.0), tangent(2.0, bound, 0.0), 0.0) == pytest.approx(1.01, abs=1e-5)
    assert between(tangent(0.0, bound, 0.0), tangent(1 + 1e-6, bound, 0.0), 0.0) == pytest.approx(0.99, abs=1e-5)


def column(price: float, different: int, weight_r: float = 1.0) -> PolicyColumn:
    choice = np.zeros((1, 200), dtype=np.int16)
    choice[0, :different] = 1
    bound = np.polynomial.Polynomial([1.0, -2.0, 1.0])
    _, v, w = tangent(price, bound, 0.5)
    return PolicyColumn(choice, v, np.array([w]), np.array([weight_r, weight_r * price]), 0.0)


def test_prices_are_interpolated_only_between_two_policies_that_differ_a_lot_and_have_a_finite_price():
    lam, rho, shares = np.array([1.3]), np.array([0.5]), np.array([0.5, 0.5])
    few, many = master.MIN_DIFFERENT - 1, master.MIN_DIFFERENT
    guess = master.trial_prices([column(2.0, many), column(0.5, 0)], shares, lam, rho)
    assert guess == pytest.approx([1.0], abs=1e-12)
    for mixed in (
        [column(2.0, few), column(0.5, 0)],
        [column(2.0, many), column(0.5, 0, weight_r=0.0)],  # found for the utility alone: its price is infinite
        [column(0.5, many), column(0.5, 0)],
        [column(2.0, many)],
    ):
        assert master.trial_prices(mixed, shares[: len(mixed)], lam, rho) is lam


@pytest.mark.compiled
def test_interpolated_prices_save_a_quarter_of_the_rounds_from_any_start_and_lead_to_the_same_optimum(monkeypatch):
    """From a single start they save less: 9 of 64 rounds in five models of 2,000 states."""
    ours = master.trial_prices
    rounds: dict[str, list[Round]] = {"ours": [], "plain": []}
    for seed in range(4):
        one_start = sparse(1000, 4, 12, 4, 1, seed=seed)
        any_start = np.full(1000, 1e-3)  # with a single start, the few decisions at the first steps weigh the most
        cmdp = ck.CMDP(one_start.kernel, one_start.r, one_start.g, one_start.rho, any_start, horizon=12)
        found = {}
        for name, guess in (("ours", ours), ("plain", lambda mixed, shares, lam, rho: lam)):
            monkeypatch.setattr(master, "trial_prices", guess)
            found[name] = ck.solve(cmdp, "columns", progress=rounds[name].append)
        assert found["ours"].value == pytest.approx(found["plain"].value, abs=2e-12 * cmdp.H)
        assert max(x.gap for x in found.values()) <= 1e-12 * cmdp.H
        assert len(found["ours"].stochastic_decisions()) <= 1
    assert len(rounds["ours"]) <= 3 / 4 * len(rounds["plain"])
