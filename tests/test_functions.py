"""Models from Python functions."""

import numpy as np
import pytest

import cmdpkit as ck

QUEUE = {
    "start": 0,
    "horizon": 20,
    "actions": ["serve", "rest"],
    "step": lambda s, a: [(1.0, max(s - 1, 0))] if a == "serve" else [(0.7, min(s + 1, 4)), (0.3, max(s - 1, 0))],
    "reward": lambda s, a: float(a == "serve"),
    "constraints": [ck.at_most("backlog", 30.0, lambda s, a: float(s))],
}


def test_states_are_explored_in_the_order_they_are_met_or_taken_as_given():
    found, given = ck.CMDP.from_function(**QUEUE), ck.CMDP.from_function(**QUEUE, states=range(5))
    assert found.states == given.states == (0, 1, 2, 3, 4)
    assert found == given


def test_the_tables_hold_what_the_functions_say():
    cmdp = ck.CMDP.from_function(**QUEUE)
    assert cmdp.P[0, 2, 1].tolist() == [0.0, 0.3, 0.0, 0.7, 0.0]
    assert cmdp.r[0].tolist() == [[1.0, 0.0]] * 5
    assert cmdp.g[0, 0, :, 0].tolist() == [0, -1, -2, -3, -4] and cmdp.rho.tolist() == [-30.0]


def test_probabilities_of_the_same_next_state_add_up():
    cmdp = ck.CMDP.from_function(**QUEUE | {"step": lambda s, a: [(0.5, 0), (0.5, 0)]})
    assert cmdp.P[0, 0, 0].tolist() == [1.0]


def test_functions_of_three_arguments_depend_on_the_step():
    cmdp = ck.CMDP.from_function(
        **QUEUE | {"horizon": 3, "reward": lambda s, a, h: h + 0.5, "step": lambda s, a, h: {s + h: 1.0}}
    )
    assert cmdp.r[:, 0, 0].tolist() == [0.5, 1.5, 2.5]
    assert cmdp.P[2, 0, 0, cmdp.state_index(2)] == 1.0


def test_each_state_may_have_its_own_actions():
    cmdp = ck.CMDP.from_function(
        **QUEUE | {"actions": lambda s: ["rest"] if s == 0 else ["serve", "rest"]}, states=range(5)
    )
    assert cmdp.action_names == ("rest", "serve")
    assert cmdp.actions[0].tolist() == [[True, False]] + [[True, True]] * 4


def test_exploration_stops_at_the_horizon_even_when_states_never_end():
    cmdp = ck.CMDP.from_function(
        start=0, horizon=3, actions=["go"], step=lambda s, a: {s + 1: 1.0}, reward=lambda s, a: float(s)
    )
    assert cmdp.states == (0, 1, 2, 3)
    assert ck.solve(cmdp).value == 0 + 1 + 2


def test_a_start_distribution_is_kept():
    cmdp = ck.CMDP.from_function(**QUEUE | {"start": {0: 0.25, 3: 0.75}}, states=range(5))
    assert cmdp.mu.tolist() == [0.25, 0, 0, 0.75, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": lambda s, a: [(0.7, 0), (0.2, 1)]}, r"step\(0, 'serve'\) sum to 0\.9, expected 1"),
        ({"step": lambda s, a: [(1.5, 0), (-0.5, 1)]}, r"step\(0, 'serve'\) gives 1 probability -0\.5"),
        ({"step": lambda s, a: [(np.nan, 0)]}, r"step\(0, 'serve'\) gives 0 probability nan"),
        ({"step": lambda s, a: [("p", 0)]}, r"step\(0, 'serve'\) gives 0 probability 'p'"),
        ({"step": lambda s, a: 7}, r"step\(0, 'serve'\) returned 7, expected \[\(probability, next state\)"),
        ({"step": lambda s, a: {99: 1.0}, "states": range(5)}, r"step\(0, 'serve'\) leads to 99, which is not among"),
        ({"reward": lambda s, a: float("inf")}, r"reward\(0, 'serve'\) is inf, expected a finite number"),
        ({"reward": lambda s, a: "much"}, r"reward\(0, 'serve'\) is 'much', expected a number"),
        ({"actions": lambda s: [] if s == 2 else ["serve", "rest"]}, r"state 2 has no actions"),
        ({"actions": []}, r"there are no actions"),
        ({"start": 9, "states": range(5)}, r"start 9 is not among the states"),
        ({"states": [0, 1, 2, 3, 4, 0]}, r"states lists a state twice"),
        ({"horizon": 0}, r"horizon is 0, expected a whole number of steps"),
        ({"constraints": [ck.at_most("backlog", 30.0)]}, r"'backlog' needs a function of \(state, action\)"),
        ({"step": lambda s, a: {s + 1: 1.0}, "max_states": 10}, r"more than max_states = 10 states"),
        ({"start": {0: 0.5}}, r"mu sums to 0\.5, expected 1"),
    ],
)
def test_a_wrong_answer_is_named_with_its_state_and_action(change, message):
    with pytest.raises(ValueError, match=message):
        ck.CMDP.from_function(**QUEUE | change)
