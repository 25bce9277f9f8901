"""Broken models: every kind is refused with a ValueError that names the place, the value and the rule.

Broken files are in test_bad_files.py.
"""
# ruff: noqa: E501 - a table of cases reads best with a case per line

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.model.cmdp import CMDP, Grid
from cmdpkit.model.constraints import Constraint, at_least, at_most
from cmdpkit.model.transitions import Kernel

P, R = np.full((2, 2, 2), 0.5), np.zeros((2, 2))
SQUARE = np.array([[[0.9, 0.1], [0.8, 0.2]], [[0.7, 0.3], [0.6, 0.4]]])  # sums to 1 over the last axis only
NAN, INF = float("nan"), float("inf")
HUGE = 10**400  # a whole number no float can hold


def changed(array: np.ndarray, place: tuple[int, ...], value: Any) -> np.ndarray:
    new = array.astype(float)
    new[place] = value
    return new


def build(**changes: Any) -> CMDP:
    """A valid model of two states and two actions, unless the changes break it."""
    return CMDP(**{"P": P, "r": R, "horizon": 3, **changes})


def kernel(indptr: list[int], successors: list[int], prob: list[float]) -> Kernel:
    return Kernel(1, 2, 2, np.array(indptr), np.array(successors, dtype=np.int32), np.array(prob))


def call(**changes: Any) -> CMDP:
    """A valid model made by a function, unless the changes break it."""
    valid = {
        "start": 0,
        "horizon": 3,
        "actions": ["a", "b"],
        "step": lambda s, a: {(s + 1) % 3: 1.0},
        "reward": lambda s, a: 1.0,
    }
    return CMDP.from_function(**{**valid, **changes})


ARRAYS: dict[str, tuple[dict[str, Any], str]] = {
    "P with too few axes": ({"P": P[0]}, r"P has shape \(2, 2\), expected \(S, A, S\) or \(H, S, A, S\)"),
    "P with other states": ({"P": np.full((2, 2, 3), 1 / 3)}, r"P has shape \(2, 2, 3\), expected \(S, A, S\) .* S = 2 and A = 2"),
    "P with other actions": ({"P": np.full((2, 3, 2), 0.5)}, r"P has shape \(2, 3, 2\), expected .* A = 2 as in r"),
    "P with other steps": ({"P": np.full((4, 2, 2, 2), 0.5)}, r"P has 4 steps, expected 1 \(stationary\) or horizon = 3"),
    "P in the order of older toolboxes": ({"P": np.full((3, 2, 2), 0.5), "r": np.zeros((2, 3))}, r"P has shape \(3, 2, 2\), expected .* S = 2 and A = 3 .* actions come first in P, pass np.swapaxes\(P, -3, -2\)"),
    "P in that order per step": ({"P": np.full((3, 3, 2, 2), 0.5), "r": np.zeros((2, 3))}, r"P has shape \(3, 3, 2, 2\), expected"),
    "P and r in that order": ({"P": np.full((3, 2, 2), 0.5), "r": np.zeros((3, 2))}, r"where they come first in r, np.swapaxes\(r, -2, -1\)"),
    "P with actions last": ({"P": np.full((2, 2, 3), 0.5), "r": np.zeros((2, 3))}, r"where they come last, np.swapaxes\(P, -2, -1\)"),
    "P square with actions last": ({"P": np.swapaxes(SQUARE, -2, -1)}, r"sums to 1 over axis -2 and not over its last axis, expected \(S, A, next S\)"),
    "P square with next states first": ({"P": np.moveaxis(SQUARE, -1, 0)}, r"sums to 1 over axis -3 and not over its last axis"),
    "P ragged": ({"P": [[1.0], [0.5, 0.5]]}, r"P must be an array of numbers: .*inhomogeneous"),
    "P of text": ({"P": P.astype(str)}, r"P must be an array of numbers: got an array of <U"),
    "P complex": ({"P": P * 1j}, r"P must be an array of numbers: got an array of complex"),
    "P with NaN": ({"P": changed(P, (0, 1, 0), NAN)}, r"P\[s=0, a=1\] gives next state index 0 probability nan"),
    "P with infinity": ({"P": changed(P, (0, 1, 0), INF)}, r"P\[s=0, a=1\] .* probability inf, .*between 0 and 1"),
    "P negative": ({"P": P + np.array([-0.7, 0.7])}, r"P\[s=0, a=0\] .* probability -0\.1999.*, expected a number between 0 and 1"),
    "P above one": ({"P": P * 3}, r"probability 1\.5, expected a number between 0 and 1"),
    "P with both infinities": ({"P": np.array([[[INF, -INF], [0.5, 0.5]]] * 2)}, r"P\[s=0, a=0\] gives next state index 0 probability inf"),
    "P sums below one": ({"P": changed(P, (1, 1, 0), 0.4)}, r"P\[s=1, a=1\] sums to 0\.9, expected 1 within 1e-09"),
    "P just outside the tolerance": ({"P": changed(P, (1, 0, 0), 0.5 + 2e-9)}, r"P\[s=1, a=0\] sums to 1\.000000002"),
    "P row of zeros": ({"P": changed(P, (1, 1), 0)}, r"P\[s=1, a=1\] sums to 0, .*mark the action as unavailable"),
    "kernel rows of another size": ({"P": kernel([0, 2], [0, 1], [0.5, 0.5])}, r"indptr is .* expected .* shape \(5,\)"),
    "kernel rows that fall": ({"P": kernel([0, 2, 1, 3, 4], [0, 0, 0, 0], [1.0] * 4)}, r"indptr must rise from 0 .*4"),
    "kernel beyond the states": ({"P": kernel([0, 1, 2, 3, 4], [0, 2, 1, 1], [1.0] * 4)}, r"successors\[1\] is 2, .*0\.\.1"),
    "kernel with a repeated successor": ({"P": kernel([0, 2, 3, 4, 5], [1] * 5, [0.5] * 5)}, r"successors\[1\] does not"),
    "kernel with stored zeros": ({"P": kernel([0, 2, 3, 4, 5], [0, 1, 0, 0, 0], [0.0, 1, 1, 1, 1])}, r"prob\[0\] is 0"),
    "r with one axis": ({"r": [1, 2]}, r"r has shape \(2,\), expected \(S, A\) or \(H, S, A\)"),
    "r empty": ({"r": np.zeros((0, 2))}, r"r has shape \(0, 2\), .* nothing empty"),
    "r None": ({"r": None}, r"r is missing"),
    "r with other steps": ({"r": np.zeros((4, 2, 2))}, r"r has 4 steps, expected 1 \(stationary\) or horizon = 3"),
    "r with NaN": ({"r": changed(R, (1, 0), NAN)}, r"r\[s=1, a=0\] is nan, expected a finite number"),
    "r with infinity": ({"r": changed(R, (1, 0), INF)}, r"r\[s=1, a=0\] is inf, expected a finite number"),
    "r whose totals overflow": ({"r": R + 1e308}, r"r\[s=0, a=0\] is 1e\+308, expected at most .* totals are finite"),
    "r too large for a float": ({"r": [[HUGE, 0], [0, 0]]}, r"r must be an array of numbers: .*too large"),
    "r of dates": ({"r": np.zeros((2, 2), "M8[D]")}, r"r must be an array of numbers: got an array of datetime64"),
    "signal of another shape": ({"g": np.zeros((1, 3, 2)), "rho": [1]}, r"signal of 'utility' has shape \(1, 3, 2\)"),
    "signal with NaN": ({"g": R + NAN, "rho": 1}, r"signal of 'utility' \[s=0, a=0\] is nan"),
    "signals and bounds of other number": ({"g": np.zeros((2, 2, 2)), "rho": [1]}, r"g has 2 signals for 1 bounds"),
    "signal that is a number": ({"g": 5, "rho": [1]}, r"g is 5, expected one signal per bound"),
    "signal without a bound": ({"g": R}, r"g is given without rho"),
    "bound without a signal": ({"rho": 1.0}, r"rho is given without g"),
    "bound NaN": ({"g": R, "rho": NAN}, r"constraint 'utility': bound is nan, expected a finite number"),
    "bounds of two axes": ({"g": [R], "rho": [[1, 2]]}, r"rho has shape \(1, 2\), expected one bound or one per signal"),
    "bounds of text": ({"g": R, "rho": "3"}, r"rho must be an array of numbers"),
    "bounds given twice": ({"g": R, "rho": 1, "constraints": [at_least("x", 1)]}, r"either in rho or in constraints"),
    "constraint without a signal": ({"constraints": [at_most("x", 1)]}, r"constraint 'x' needs a signal array"),
    "constraints of one name": ({"constraints": [at_most("x", 1, R), at_least("x", 0, R)]}, r"two constraints .* 'x'"),
    "constraint outside a list": ({"constraints": at_most("x", 1, R)}, r"constraints is Constraint.*, expected a list"),
    "constraint that is none": ({"constraints": ["x <= 1"]}, r"constraints must be at_least.*, got 'x <= 1'"),
    "mask of numbers": ({"actions": [[1, 1], [1, 1]]}, r"actions has dtype int64, expected bool"),
    "mask of another shape": ({"actions": np.ones((2, 3), bool)}, r"actions has shape \(2, 3\), expected \(2, 2\)"),
    "mask ragged": ({"actions": [[True], [True, True]]}, r"actions must be an array of truth values"),
    "mask without any action": ({"actions": np.array([[True, True], [False, False]])}, r"actions\[s=1\] is empty: every"),
    "mask with other steps": ({"actions": np.ones((2, 2, 2), bool)}, r"actions has 2 steps, expected 1 .* horizon = 3"),
    "start outside the states": ({"mu": 2}, r"mu is 2: an initial state must be an index in 0\.\.1"),
    "start unknown": ({"mu": "bussy", "states": ["busy", "idle"]}, r"unknown state 'bussy'; did you mean 'busy'"),
    "start of another length": ({"mu": [1.0]}, r"mu has shape \(1,\), expected \(2,\)"),
    "start negative": ({"mu": [1.5, -0.5]}, r"mu\[s=1\] is -0\.5, expected a probability"),
    "start NaN": ({"mu": [NAN, 1]}, r"mu\[s=0\] is nan, expected a probability"),
    "start that does not sum to one": ({"mu": [0.5, 0.4]}, r"mu sums to 0\.9, expected 1 within 1e-09"),
    "start with text for a probability": ({"mu": {1: "half"}}, r"mu\[1\] must be an array of numbers"),
    "start with nothing for a probability": ({"mu": {1: None}}, r"mu\[s=0\] is nan, expected a probability"),
    "start a fraction": ({"mu": 0.5}, r"mu is 0\.5: an initial state must be an index"),
    "horizon missing": ({"horizon": None}, r"horizon is missing: nothing given depends on the step"),
    "horizon zero": ({"horizon": 0}, r"horizon is 0, expected a whole number of steps, at least 1"),
    "horizon a fraction": ({"horizon": 2.5}, r"horizon is 2\.5, expected a whole number"),
    "horizon a truth value": ({"horizon": True}, r"horizon is True, expected a whole number"),
    "horizon beyond counting": ({"horizon": HUGE}, r"horizon is 1000.*, expected .*at most 1,000,000,000"),
    "names of other number": ({"states": ["a"]}, r"states has 1 names, expected 2"),
    "names repeated": ({"states": ["a", "a"]}, r"states\[1\] is 'a' again: names must differ"),
    "names alike as text": ({"action_names": [1, "1"]}, r"action_names\[1\] is '1' again"),
    "names blank": ({"states": ["a", " "]}, r"states\[1\] is empty"),
    "names in one text": ({"states": "ab"}, r"states is 'ab', expected a list of names"),
    "names a number": ({"action_names": 2}, r"action_names is 2, expected a list of names"),
    "grid of another number of cells": ({"grid": Grid(1, 1, ((0, 0),))}, r"grid has 1 cells, expected one per state: 2"),
    "grid with too few arrows": ({"grid": Grid(1, 2, ((0, 0), (0, 1)), arrows=("←",))}, r"grid has 1 arrows, .*action: 2"),
    "grid with an unknown mark": ({"grid": Grid(1, 2, ((0, 0), (0, 1)), {2: "x"})}, r"grid marks state index 2, .*0\.\.1"),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), ARRAYS.values(), ids=ARRAYS)
def test_broken_arrays_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        build(**changes)


FUNCTIONS: dict[str, tuple[Callable[[], Any], str]] = {
    "sense": (lambda: Constraint("x", "below", 1), r"constraint 'x': sense is 'below', expected 'at_least' or"),
    "bound text": (lambda: at_most("x", "3"), r"constraint 'x': bound is '3', expected a number"),
    "bound infinite": (lambda: at_most("x", INF), r"constraint 'x': bound is inf, expected a finite number"),
    "bound beyond floats": (lambda: at_most("x", HUGE), r"constraint 'x': bound is 1000.*, expected a number"),
    "name of a constraint blank": (lambda: at_most(" ", 1), r"name must be a non-empty string, got ' '"),
    "grid cell outside": (lambda: Grid(2, 2, ((0, 0), (2, 0))), r"state index 1 is \(2, 0\), outside 2 x 2"),
    "function: complex": (lambda: call(step=lambda s, a: {0: 1j}), r"step\(0, 'a'\) gives 0 probability 1j"),
    "function: beyond floats": (lambda: call(step=lambda s, a: {0: HUGE}), r"step\(0, 'a'\) gives 0 probability 1000"),
    "function: next not hashable": (lambda: call(step=lambda s, a: [(1.0, [0])]), r"next state of step\(0, 'a'\) is \[0\]"),
    "function: start not hashable": (lambda: call(start=[0]), r"start is \[0\], expected a state, or a mapping from states"),
    "function: several starts in a tuple": (lambda: call(states=[0, 1], start=(0, 1, 0)), r"start \(0, 1, 0\) is not among the states; list it"),
    "function: several starts in a list": (lambda: call(start=[0, 1]), r"start is \[0, 1\], expected .* such as \{'low': 0\.5"),
    "function: starts that sum to less": (lambda: call(start={0: 0.5}), r"start sums to 0\.5, expected 1"),
    "function: no start": (lambda: call(start={}), r"start sums to 0, expected 1"),
    "function: start of text": (lambda: call(start={0: "all"}), r"start\[0\] must be an array of numbers"),
    "function: no function": (lambda: call(reward=1.0), r"reward is 1\.0, expected a function of \(state, action\)"),
    "function: no reward": (lambda: call(reward=lambda s, a: None), r"reward\(0, 'a'\) is None, expected a number"),
    "function: reward beyond floats": (lambda: call(reward=lambda s, a: HUGE), r"reward\(0, 'a'\) is 1000"),
    "function: actions in one text": (lambda: call(actions="serve"), r"actions is 'serve', expected a list"),
    "function: action twice": (lambda: call(actions=["a", "a"]), r"actions lists an action twice: 'a'"),
    "function: action twice here": (lambda: call(actions=lambda s: "ab"[s] * 2), r"actions\(0\) is 'aa', expected a list"),
    "function: states a number": (lambda: call(states=5), r"states is 5, expected a list"),
    "function: constraint outside a list": (lambda: call(constraints=at_most("x", 1)), r"expected a list of at_least"),
    "function: signal an array": (lambda: call(constraints=[at_most("x", 1, R)]), r"'x' needs a function"),
    "bounds of unknown constraints": (lambda: build().with_bounds(x=1), r"unknown constraint 'x'"),
    "restricted to nothing": (lambda: build().restrict(np.zeros((2, 2), bool)), r"actions\[s=0\] would be empty"),
}  # fmt: skip


@pytest.mark.parametrize(("attempt", "message"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_broken_constraints_drawings_and_functions_are_refused(attempt, message):
    with pytest.raises(ValueError, match=message):
        attempt()


CRITERIA = [{"horizon": 4}, {"discount": 0.9}, {"criterion": "average"}]


@pytest.mark.parametrize("criterion", CRITERIA, ids=["horizon", "discount", "average"])
def test_numbers_near_the_largest_are_refused_with_their_place_or_solved_without_overflow(criterion):
    P, signal = np.full((2, 2, 2), 0.5), [[1.0, 0.0], [0.0, 1.0]]

    def made(r=1.0, g=1.0, bound=1.0, per_step=False):
        cost = ck.at_most("cost", bound, [[g, 0.0], [0.0, 1.0]], per_step=per_step)
        return ck.CMDP(P, [[r, 0.0], [0.0, 0.0]], constraints=[cost], **criterion)

    for x in (1e308, -1e308):
        with pytest.raises(ck.CmdpkitError, match=r"r\[s=0, a=0\] is -?1e\+308, expected at most .*, so that totals"):
            made(r=x)
        with pytest.raises(ck.CmdpkitError, match=r"signal of 'cost' \[s=0, a=0\] is -?1e\+308, expected at most"):
            made(g=x)
        for per_step in (False, True):
            with pytest.raises(ck.CmdpkitError, match=r"'cost': bound is -?1e\+308.*, expected at most .* in size"):
                made(bound=x, per_step=per_step)
    with pytest.raises(ck.CmdpkitError, match=r"bound is 1e\+300, expected at most"):
        made().with_bounds(cost=1e300)
    for x in (1e150, 1e300):  # warnings are errors: nothing overflows on the way
        assert ck.solve(made(r=x)).value == pytest.approx(x * ck.solve(made()).value, rel=1e-9)
    assert ck.solve(made(g=1e300, bound=1e300)).value > 0
    clash = [ck.at_least("a", 90.0, signal), ck.at_most("b", -1.0, signal), ck.at_most("c", 2.0, signal)]
    model = ck.CMDP(P, [[1.0, 0.0], [0.0, 0.0]], constraints=clash, **criterion)
    for ends in ({}, {"low": 0.0}, {"high": 3.0}):
        with pytest.raises(ck.Infeasible, match="a ≥ 90"):
            ck.tradeoff(model, "c", 3, **ends)
    assert ck.tradeoff(model, "c", 3, low=0.0, high=2.0).infeasible.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n": 10**12}, "n is 1000000000000, expected a whole number of points, at least 1 and at most 1,000,000"),
        ({"low": 10**400}, "'utility': bound is 1000.*, expected a number"),
        ({"high": "much"}, "'utility': bound is 'much', expected a number"),
        ({"high": float("nan")}, "'utility': bound is nan, expected a finite number"),
    ],
)
def test_points_and_ends_of_a_curve_are_checked(given, message):
    with pytest.raises(ck.CmdpkitError, match=message):
        ck.tradeoff(ck.load("paper/synthetic"), "utility", **given)
