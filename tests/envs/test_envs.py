"""The registry, and the environments against numbers worked out by hand or published."""

import sys

import numpy as np
import pytest
from oracle import optimum

from cmdpkit import envs

# -- the registry ------------------------------------------------------------------------------------------------------


def test_an_unknown_environment_raises_with_the_nearest_suggested():
    for ask in (envs.build, envs.describe, envs.parameters):
        with pytest.raises(ValueError, match=r"unknown environment 'paper/gird'; did you mean 'paper/grid'\?"):
            ask("paper/gird")


def test_helpers_and_packages_are_not_environments():
    assert not [name for name in envs.names() if "shared" in name or name == "paper"]
    with pytest.raises(ValueError, match="unknown environment '_shared'"):
        envs.build("_shared")


def test_an_unknown_parameter_raises_with_the_parameters_listed():
    with pytest.raises(ValueError, match=r"'paper/lower-bound' has no parameter 'q'; its parameters are p=0.5, H=6"):
        envs.build("paper/lower-bound", q=0.3)


def test_a_parameter_changes_the_problem():
    assert envs.build("paper/synthetic", rho=1.5).rho.tolist() == [1.5]
    assert envs.build("paper/lower-bound", H=9).H == 9


def test_describing_an_environment_does_not_import_it():
    sys.modules.pop("cmdpkit.envs.treatment", None)
    envs.describe("treatment")
    assert "cmdpkit.envs.treatment" not in sys.modules


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("queue", ("queue", {})),
        ("paper/synthetic:rho=1.9", ("paper/synthetic", {"rho": 1.9})),
        ("random:S=10,A=3,seed=4", ("random", {"S": 10, "A": 3, "seed": 4})),
        ("random: slack = -1e-2 , stationary=True", ("random", {"slack": -0.01, "stationary": True})),
        ("x:a=false,b=text,c=1e3,d=-7", ("x", {"a": False, "b": "text", "c": 1000.0, "d": -7})),
    ],
)
def test_parameters_are_read_from_a_command_line(text, expected):
    name, params = envs.parse(text)
    assert (name, params) == expected
    assert [type(v) for v in params.values()] == [type(v) for v in expected[1].values()]


@pytest.mark.parametrize("text", ["random:", "random:S", "random:S=", "random:=3", "random:S=1,,A=2", "random:S=1,"])
def test_a_parameter_without_name_or_value_is_refused(text):
    with pytest.raises(ValueError, match="expected parameter=value after the colon, got"):
        envs.parse(text)


def test_a_parameter_given_twice_is_refused():
    with pytest.raises(ValueError, match="parameter 'S' is given twice"):
        envs.parse("random:S=1,S=2")


# -- the DOPE environments ---------------------------------------------------------------------------------------------


def row(cmdp, state, action, h: int = 0) -> dict:
    """Next states and their probabilities, by name."""
    p = cmdp.P[h, cmdp.state_index(state), cmdp.action_index(action)]
    return {cmdp.states[i]: pytest.approx(p[i], abs=1e-12) for i in np.flatnonzero(p)}


def test_streaming_moves_by_arrivals_and_departures():
    cmdp = envs.build("streaming")
    assert row(cmdp, 3, "fast") == {2: 0.08, 3: 0.74, 4: 0.18}
    assert row(cmdp, 3, "slow") == {2: 0.72, 3: 0.26, 4: 0.02}
    assert row(cmdp, 0, "slow") == {0: 0.98, 1: 0.02}
    assert row(cmdp, 9, "fast") == {8: 0.08, 9: 0.92}
    assert np.array_equal(cmdp.r[0, :, 0], [0] + [1] * 9)


def test_two_steps_of_streaming_are_solved_by_hand():
    """Only the first link matters: 0.18 if fast, 0.02 if slow, and the bound lets it be fast half of the time."""
    best = optimum(envs.build("streaming", H=2, share=0.25))
    assert best.value == pytest.approx(0.1, abs=1e-9)
    assert best.prices[0] == pytest.approx(0.16, abs=1e-9)


def test_inventory_has_the_published_rows_and_signals():
    cmdp = envs.build("inventory")
    assert row(cmdp, 2, 1) == {0: 0.3, 1: 0.2, 2: 0.2, 3: 0.3}
    assert [int(x) for x in cmdp.actions[0].sum(axis=-1)] == [6, 5, 4, 3, 2, 1]
    cost = -cmdp.g[0, 0]
    assert (cost[0, 5], cost[2, 0], cost[1, 3]) == pytest.approx((1, 2 / 19, 14 / 19))
    for s in range(6):
        for a in range(6 - s):  # published: sum over d <= s + a of P(next = s + a - d) * d, over its largest value
            sold = sum(cmdp.P[0, s, a, s + a - d] * d for d in range(s + a + 1))
            assert cmdp.r[0, s, a] == pytest.approx(sold / 1.65, abs=1e-12)


def test_one_period_of_inventory_is_solved_by_hand():
    """From the empty shop order a: sales 0, 0.7, 1.2, 1.5, 1.6, 1.65 of 1.65 at cost 0, 7, 10, 13, 16, 19 of 19."""
    best = optimum(envs.build("inventory", H=1, share=11.5 / 19))
    assert best.value == pytest.approx((1.2 + 1.5) / 2 / 1.65, abs=1e-9)
    assert best.prices[0] == pytest.approx((0.3 / 1.65) / (3 / 19), abs=1e-9)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.7])
def test_on_the_ring_every_move_is_worth_the_same_on_average(share):
    best = optimum(envs.build("factored", share=share))
    assert best.value == pytest.approx(4 * share, abs=1e-9)
    assert best.prices[0] == pytest.approx(2 / 3, abs=1e-9)


def test_the_ring_closes():
    cmdp = envs.build("factored")
    assert row(cmdp, 3, "move") == {1: 1.0}
    assert row(cmdp, 2, "move") == {3: 1.0}
    assert row(cmdp, 2, "stay") == {2: 1.0}
    np.testing.assert_allclose(cmdp.r[0, :, 1], [1 / 3, 2 / 3, 1])
    assert not cmdp.r[0, :, 0].any()


# -- treatment and queue -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["treatment", "queue"])
def test_both_bounds_bind_and_both_need_a_stochastic_decision(name):
    cmdp = envs.build(name)
    best = optimum(cmdp)
    assert cmdp.N == 2
    assert best.utilities == pytest.approx([c.bound for c in cmdp.constraints], abs=1e-7)
    assert best.prices.min() > 0.05
    assert ((best.q > 1e-9).sum(axis=-1) > 1).sum() == 2
    for c in cmdp.constraints:
        assert optimum(cmdp.with_bounds(**{c.name: 1000.0})).value > best.value + 0.1


def test_treatment_moves_disease_and_toxicity_independently():
    cmdp = envs.build("treatment")
    assert row(cmdp, "moderate/none", "standard") == {
        "mild/none": 0.15,
        "mild/low": 0.15,
        "moderate/none": 0.3,
        "moderate/low": 0.3,
        "severe/none": 0.05,
        "severe/low": 0.05,
    }
    assert row(cmdp, "remission/high", "wait") == {
        "remission/medium": 0.35,
        "remission/high": 0.35,
        "mild/medium": 0.15,
        "mild/high": 0.15,
    }


def test_treatment_pays_by_stage_and_costs_by_drug_and_level():
    cmdp = envs.build("treatment")
    s = cmdp.state_index("mild/medium")
    assert cmdp.r[0, s] == pytest.approx([2 / 3] * 3)
    assert (-cmdp.g[:, 0, s]).tolist() == [[2, 2, 2], [0, 1, 4]]
    high = [i for i, state in enumerate(cmdp.states) if state.endswith("/high")]
    assert len(high) == 4
    assert (cmdp.actions[0, high] == [True, False, False]).all()
    assert cmdp.actions[0].sum() == 4 + 12 * 3


def test_the_queue_gains_and_loses_one_job_at_most():
    cmdp = envs.build("queue")
    assert row(cmdp, "2 jobs", "admit slow") == {"1 job": 0.28, "2 jobs": 0.54, "3 jobs": 0.18}
    assert row(cmdp, "2 jobs", "admit slow", h=8) == {"1 job": 0.08, "2 jobs": 0.44, "3 jobs": 0.48}
    assert row(cmdp, "2 jobs", "refuse fast", h=8) == {"1 job": 0.8, "2 jobs": 0.2}
    assert row(cmdp, "empty", "admit idle", h=18) == {"empty": 0.7, "1 job": 0.3}


def test_rush_hours_come_back_every_day():
    cmdp = envs.build("queue", H=48)
    s, a = cmdp.state_index("empty"), cmdp.action_index("admit idle")
    arrivals = cmdp.P[:, s, a, cmdp.state_index("1 job")]
    assert arrivals == pytest.approx(([0.3] * 8 + [0.8] * 10 + [0.3] * 6) * 2)


def test_a_full_server_refuses_and_an_empty_one_idles():
    cmdp = envs.build("queue")

    def available(state):
        return {cmdp.action_names[a] for a in np.flatnonzero(cmdp.actions[0, cmdp.state_index(state)])}

    assert available("empty") == {"admit idle", "refuse idle"}
    assert available("8 jobs") == {"refuse idle", "refuse slow", "refuse fast"}
    assert len(available("7 jobs")) == 6


def test_two_hours_of_the_queue_are_solved_by_hand():
    """Nothing is in the system at first; a job admitted (0.3) is served in hour 2, fast as far as the energy goes."""
    best = optimum(envs.build("queue", H=2, energy=0.5))
    # Slow serving costs 0.3 on average and earns 0.12; fast adds 0.12 for 0.6 more, of which 0.2 is left.
    assert best.value == pytest.approx(0.12 + 0.2 * 0.2, abs=1e-9)
    assert best.prices == pytest.approx([0.2, 0.0], abs=1e-9)
