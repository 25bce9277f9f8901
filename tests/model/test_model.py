"""The model keeps what it is given, in whatever form it is given."""

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.model.cmdp import Scale
from instances import synthetic


def stationary(**changes):
    arguments = {
        "P": np.array([[[0.5, 0.5], [1.0, 0.0]], [[0.0, 1.0], [0.25, 0.75]]]),
        "r": np.array([[1.0, 0.0], [2.0, -1.0]]),
        "g": np.array([[[0.0, 3.0], [1.0, 0.0]]]),
        "rho": [1.0],
        "horizon": 4,
    }
    return ck.CMDP(**(arguments | changes))


def test_stationary_input_is_a_view_and_equals_its_written_out_form():
    short = stationary()
    long = stationary(P=short.P.copy(), r=short.r.copy(), g=short.g.copy(), horizon=None)
    assert short.P.shape == (4, 2, 2, 2) and short.P.strides[0] == 0 and short.r.strides[0] == 0
    assert (short.P == long.P).all() and (short.g == long.g).all() and short.H == long.H == 4
    assert ck.solve(short).value == pytest.approx(ck.solve(long).value, abs=1e-14)


def test_arrays_are_copied_in_and_cannot_be_changed():
    r = np.array([[1.0, 0.0], [2.0, -1.0]])
    cmdp = stationary(r=r)
    r[0, 0] = 99.0
    assert cmdp.r[0, 0, 0] == 1.0
    for array in (cmdp.P, cmdp.r, cmdp.g, cmdp.rho, cmdp.mu, cmdp.actions, *cmdp.compact, *cmdp.kernel.arrays):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(AttributeError, match="cannot be changed"):
        cmdp.H = 3


def test_an_at_most_cost_is_a_negative_utility_inside_and_a_cost_outside():
    cmdp = stationary(g=None, rho=None, constraints=[ck.at_most("cost", 2.0, [[0.0, 3.0], [1.0, 0.0]])])
    assert cmdp.g[0, 0].tolist() == [[0.0, -3.0], [-1.0, 0.0]] and cmdp.rho.tolist() == [-2.0]
    rests = ck.Policy.deterministic(np.ones((4, 2), dtype=int), 2)
    assert ck.evaluate(cmdp, rests).w.tolist() == [12.0]


def test_signals_may_come_separately_from_their_constraints():
    both = stationary(rho=None, constraints=[ck.at_most("cost", 2.0)])
    assert both == stationary(g=None, rho=None, constraints=[ck.at_most("cost", 2.0, [[0.0, 3.0], [1.0, 0.0]])])


def test_constraints_may_mix_stationary_and_time_indexed_signals():
    timed = np.arange(16.0).reshape(4, 2, 2)
    constraints = [ck.at_least("a", 0, np.ones((2, 2))), ck.at_least("b", 0, timed)]
    cmdp = stationary(g=None, rho=None, constraints=constraints)
    assert cmdp.g[0].sum() == 16 and cmdp.g[1, 3, 1, 1] == 15.0


@pytest.mark.parametrize("mu", [1, np.array([0.0, 1.0]), {"on": 1.0}, "on"])
def test_the_start_is_an_index_a_name_a_distribution_or_a_mapping(mu):
    assert stationary(mu=mu, states=["off", "on"]).mu.tolist() == [0.0, 1.0]


def test_default_names_count_from_one():
    cmdp = synthetic()
    assert list(cmdp.states) == [1, 2, 3] and list(cmdp.action_names) == [1, 2, 3]
    assert cmdp.state_index(3) == 2 and cmdp.state_index("3") == 2


def test_actions_that_do_not_exist_may_hold_anything():
    P = np.array([[[0.5, 0.5], [np.nan, 7.0]], [[0.0, 1.0], [0.25, 0.75]]])
    r = np.array([[1.0, np.inf], [2.0, -1.0]])
    cmdp = stationary(P=P, r=r, actions=np.array([[True, False], [True, True]]))
    assert cmdp.P[0, 0, 1].tolist() == [0.0, 0.0] and cmdp.r[0, 0, 1] == 0.0
    assert cmdp.reward_scale == Scale(-1.0, 3.0)


def test_action_sets_may_depend_on_the_step():
    actions = np.ones((4, 2, 2), dtype=bool)
    actions[2, 0, 1] = False
    cmdp = stationary(actions=actions)
    assert cmdp.kernel.T == 1, "the kernel stays stationary"
    solution = ck.solve(cmdp.reformulated(r=np.array([[[0.0, 1.0], [0.0, 0.0]]])))
    assert solution.policy.pi[2, 0].tolist() == [1.0, 0.0]


def test_scales_map_to_the_unit_interval_and_back():
    cmdp = stationary()
    scale = cmdp.reward_scale
    assert scale == Scale(-1.0, 3.0)
    assert scale.to_unit(cmdp.r).min() == 0.0 and scale.to_unit(cmdp.r).max() == 1.0
    value = ck.evaluate(cmdp, ck.Policy.uniform(cmdp)).v
    unit = cmdp.reformulated(r=scale.to_unit(cmdp.compact.r))
    unit_value = ck.evaluate(unit, ck.Policy.uniform(cmdp)).v
    assert scale.total_from_unit(unit_value, cmdp.H) == pytest.approx(value, abs=1e-12)
    assert scale.total_to_unit(value, cmdp.H) == pytest.approx(unit_value, abs=1e-12)
    assert synthetic().reward_scale == Scale(0.0, 1.0), "a reward already in [0, 1] is left alone"


def test_bounds_and_actions_can_be_changed_on_a_copy():
    cmdp = synthetic()
    assert cmdp.with_bounds(utility=1.5).rho.tolist() == [1.5] and cmdp.rho.tolist() == [2.0]
    with pytest.raises(ValueError, match="unknown constraint 'nothing'"):
        cmdp.with_bounds(nothing=1.0)
    with pytest.raises(ValueError, match="would be empty"):
        cmdp.restrict(np.zeros((3, 3), dtype=bool))


def test_equal_models_have_equal_fingerprints_and_any_change_shows():
    base = stationary()
    assert base == stationary() and hash(base) == hash(stationary())
    changes = [
        {"horizon": 5},
        {"rho": [1.5]},
        {"mu": 1},
        {"states": ["a", "b"]},
        {"actions": np.array([[True, False], [True, True]])},
        {"r": np.array([[1.0, 0.0], [2.0, -1.0000000001]])},
    ]
    prints = {stationary(**change).fingerprint() for change in changes} | {base.fingerprint()}
    assert len(prints) == len(changes) + 1


def test_a_large_model_is_stored_in_memory_that_grows_with_its_nonzeros():
    S, A = 50_000, 2
    rows, nexts = np.arange(S * A), np.arange(S * A) % S
    kernel = ck.Kernel.from_entries((1, S, A), rows, nexts, np.ones(S * A))
    cmdp = ck.CMDP(kernel, np.zeros((S, A)), horizon=100)
    assert sum(x.nbytes for x in (*cmdp.compact, *cmdp.kernel.arrays)) < 60 * S * A


TUPLES = [(0, 1), (1, 0)]


def pair(states, mu):
    return ck.CMDP(np.full((2, 1, 2), 0.5), np.zeros((2, 1)), horizon=2, states=states, mu=mu).mu.tolist()


def from_pair(states, start):
    made = ck.CMDP.from_function(
        start=start,
        states=states,
        horizon=2,
        actions=["go"],
        step=lambda s, a: dict.fromkeys(states, 0.5),
        reward=lambda s, a: 0.0,
    )
    return made.mu.tolist()


def test_a_tuple_that_is_the_name_of_a_state_is_refused_as_it_could_be_a_distribution():
    message = r"mu is \(0, 1\), which could be the name of a state and also .*; write mu=\{\(0, 1\): 1.0\} for"
    with pytest.raises(ck.CmdpkitError, match=message):
        pair(TUPLES, (0, 1))
    assert pair(TUPLES, {(0, 1): 1.0}) == [1.0, 0.0]
    assert pair(TUPLES, [0, 1]) == pair(TUPLES, np.array([0.0, 1.0])) == [0.0, 1.0]
    assert pair(["a", "b"], (0.25, 0.75)) == [0.25, 0.75]  # not a state
    assert pair(["a", "b"], "b") == pair(["a", "b"], {"b": 1.0}) == [0.0, 1.0]


def test_functions_start_in_a_state_or_in_a_mapping_and_in_nothing_else():
    assert from_pair(TUPLES, (0, 1)) == from_pair(TUPLES, {(0, 1): 1.0}) == [1.0, 0.0]
    assert from_pair([1, 2], 1) == [1.0, 0.0]  # a whole number is the name of a state
    with pytest.raises(ck.CmdpkitError, match="start 0 is not among the states"):
        from_pair([1, 2], 0)
    with pytest.raises(ck.CmdpkitError, match=r"start is \[0, 1\], expected a state, or a mapping from states"):
        from_pair(TUPLES, [0, 1])


def test_a_whole_number_is_an_index_and_refused_where_it_could_be_a_name():
    message = r"mu is 1, which could be the name of a state and also an index or a distribution; write mu=\{1: 1"
    for states in ([1, 2], [0, 1], [7, 8]):
        with pytest.raises(ck.CmdpkitError, match=message):
            pair(states, 1)
    assert pair([1, 2], {1: 1.0}) == pair([1, 2], None) == [1.0, 0.0]
    assert pair(["a", "b"], 1) == pair(None, 1) == [0.0, 1.0]
    with pytest.raises(ck.CmdpkitError, match=r"mu is 2: an initial state must be an index in 0..1 or the name"):
        pair(["a", "b"], 2)


def test_files_take_a_tuple_as_the_name_of_the_first_state(tmp_path):
    model = ck.CMDP(np.full((2, 1, 2), 0.5), np.zeros((2, 1)), horizon=2, states=TUPLES, mu={(1, 0): 1.0})
    path = ck.write_model(model, tmp_path / "model.csv")
    assert ck.read_model(path, start=(0, 1)).mu.tolist() == [1.0, 0.0]
    assert ck.read_model(path, start={(0, 1): 0.5, (1, 0): 0.5}).mu.tolist() == [0.5, 0.5]


def test_names_of_earlier_versions_are_refused_with_those_that_replaced_them():
    cmdp = ck.CMDP([[[1.0]]], [[2.0]], constraints=[ck.at_most("cost", 5, [[1.0]])], horizon=3)
    renamed = {"steps": (cmdp, "n_steps"), "total": (cmdp.constraints[0], "bound_on_total"),
               "stationary": (cmdp.criterion, "not has_horizon")}  # fmt: skip
    for old, (thing, new) in renamed.items():
        with pytest.raises(AttributeError, match=rf"^{type(thing).__name__}.{old} is now called {new}$"):
            getattr(thing, old)
