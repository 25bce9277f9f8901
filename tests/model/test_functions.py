"""Models from Python functions."""

import functools
import inspect
from fractions import Fraction
from types import MappingProxyType

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
        ({"start": {0: 0.5}}, r"start sums to 0\.5, expected 1"),
        ({"states": [0, 1, 2], "start": [0, 1]}, r"start is \[0, 1\], expected a state, or a mapping"),
    ],
)
def test_a_wrong_answer_is_named_with_its_state_and_action(change, message):
    with pytest.raises(ValueError, match=message):
        ck.CMDP.from_function(**QUEUE | change)


# Two states, one action: from 0 to 1 with probability 0.25 (and back to 0 otherwise), and 1 stays. With 10 s + s_next
# as the reward, the mean is 0.25 in state 0 and 11 in state 1.
CHAIN = {"start": 0, "horizon": 3, "actions": ["go"], "step": lambda s, a: {1: 0.25, 0: 0.75} if s == 0 else {1: 1.0}}


class Scored:
    """A callable object; its first parameter is bound."""

    def score(self, s, a, s_next):
        return 10 * s + s_next

    def __call__(self, s, a, s_next):
        return 10 * s + s_next


ON_NEXT = {
    "s_next": lambda s, a, s_next: 10 * s + s_next,
    "next_state": lambda state, action, next_state: 10 * state + next_state,
    "a bound method": Scored().score,
    "a callable object": Scored(),
    "a partial function": functools.partial(lambda scale, s, a, s_next: scale * s + s_next, 10),
    "a parameter with a default": lambda s, a, s_next, scale=10: scale * s + s_next,
}


@pytest.mark.parametrize("reward", ON_NEXT.values(), ids=ON_NEXT)
def test_a_reward_on_the_next_state_is_its_mean(reward):
    cmdp = ck.CMDP.from_function(**CHAIN, reward=reward, constraints=[ck.at_most("x", 99, reward)])
    assert cmdp.r[0].tolist() == [[0.25], [11.0]] and (-cmdp.g[0, 0]).tolist() == [[0.25], [11.0]]
    assert cmdp.compact.r.shape == (1, 2, 1)  # nothing depends on the step


def test_the_reproduction_of_the_third_argument_gives_the_right_value():
    # From state 0 the next states are 1, 2 and 3 for sure: their sum is 6, while the sum of the steps is 0 + 1 + 2.
    cmdp = ck.CMDP.from_function(
        start=0, horizon=3, actions=["go"], step=lambda s, a: {s + 1: 1.0}, reward=lambda s, a, s_next: float(s_next)
    )
    assert ck.solve(cmdp).value == 6.0


@pytest.mark.parametrize(
    "reward",
    [
        lambda s, a, s_next, h: 10 * s + s_next + 100 * h,
        lambda s, a, h, s_next: 10 * s + s_next + 100 * h,
        lambda state, action, step, next_state: 10 * state + next_state + 100 * step,
    ],
)
def test_next_state_and_step_are_told_apart_by_their_names(reward):
    cmdp = ck.CMDP.from_function(**CHAIN, reward=reward)
    assert cmdp.r[:, :, 0].tolist() == [[0.25, 11.0], [100.25, 111.0], [200.25, 211.0]]


def test_a_reward_on_the_next_state_depends_on_the_step_where_the_step_function_does():
    # From state 0 to 1 with probability (h + 1) / 4, so the mean of s_next is that.
    cmdp = ck.CMDP.from_function(
        start=0,
        horizon=3,
        actions=["go"],
        step=lambda s, a, h: {1: (h + 1) / 4, 0: 1 - (h + 1) / 4},
        reward=lambda s, a, s_next: s_next,
    )
    assert cmdp.r[:, 0, 0].tolist() == [0.25, 0.5, 0.75]


def test_means_over_next_states_agree_with_exact_fractions():
    rng = np.random.default_rng(5)
    weights = rng.integers(1, 9, (6, 6))
    values = rng.integers(-50, 50, (6, 6))
    cmdp = ck.CMDP.from_function(
        start=0,
        horizon=4,
        actions=["go"],
        states=range(6),
        step=lambda s, a: {x: int(weights[s, x]) / int(weights[s].sum()) for x in range(6)},
        reward=lambda s, a, s_next: float(values[s, s_next]),
    )
    for s in range(6):
        exact = sum(
            Fraction(int(w), int(weights[s].sum())) * int(v) for w, v in zip(weights[s], values[s], strict=True)
        )
        assert cmdp.r[0, s, 0] == pytest.approx(float(exact), abs=1e-13)


@pytest.mark.parametrize("name", ["h", "step"])
def test_the_step_has_two_names(name):
    reward = eval(f"lambda s, a, {name}: {name} + 0.5")
    cmdp = ck.CMDP.from_function(**CHAIN, reward=reward)
    assert cmdp.r[:, 0, 0].tolist() == [0.5, 1.5, 2.5]


@pytest.mark.parametrize("names", ["s, a", "x, u", "level, link", "h, k", "a, b", "next, step"])
def test_two_parameters_are_state_and_action_whatever_they_are_called(names):
    reward = eval(f"lambda {names}: 10.0 * ({names})[0] + len(({names})[1])")
    assert ck.CMDP.from_function(**CHAIN, reward=reward).r[0, :, 0].tolist() == [2.0, 12.0]


SIGNATURES = {
    "another third name": (lambda s, a, k: 0.0, r"reward takes \(s, a, k\): k could be anything; .*h\) .*s_next\)"),
    "another name of the next state": (lambda s, a, s2: 0.0, r"s2 could be anything; .*s_next\) for the next state"),
    "a fourth name": (lambda s, a, h, k: 0.0, r"k could be anything"),
    "step first": (lambda h, s, a: 0.0, r"reward takes \(h, s, a\): a could be anything"),
    "exchanged": (lambda a, s: 0.0, r"reward takes \(a, s\), but the state comes first"),
    "exchanged capitals": (lambda A, S: 0.0, r"but the state comes first"),
    "exchanged words": (lambda action, state, h: 0.0, r"but the state comes first"),
    "only the state": (lambda s: 0.0, r"reward takes \(s\), expected \(state, action\)"),
    "nothing": (lambda: 0.0, r"reward takes \(\), expected \(state, action\)"),
    "any number": (lambda *args: 0.0, r"reward takes \(\*args\), which hides its parameters"),
    "any number more": (lambda s, a, *rest: 0.0, r"which hides its parameters; spell them out"),
    "a step with a default": (lambda s, a, h=0: 0.0, r"h has a default, so it may be meant as a constant"),
    "a next state with a default": (lambda s, a, s_next=None: 0.0, r"s_next has a default"),
    "two steps": (lambda s, a, h, step: 0.0, r"step is there twice, or by keyword alone"),
    "a step by keyword": (lambda s, a, *, h: 0.0, r"h is there twice, or by keyword alone"),
    "hidden parameters": (max, r"reward hides its parameters; give a function that calls it"),
    "a keyword that is needed": (lambda s, a, *, price: 0.0, r"price could be anything"),
}


@pytest.mark.parametrize(("f", "message"), SIGNATURES.values(), ids=SIGNATURES)
def test_what_could_be_misread_is_refused(f, message):
    with pytest.raises(ck.CmdpkitError, match=message):
        ck.CMDP.from_function(**CHAIN, reward=f)
    with pytest.raises(ck.CmdpkitError, match=message.replace("reward", "x")):
        ck.CMDP.from_function(**CHAIN, reward=lambda s, a: 0.0, constraints=[ck.at_most("x", 1, f)])


def test_a_step_function_of_the_next_state_is_refused():
    with pytest.raises(
        ck.CmdpkitError, match=r"step takes \(s, a, s_next\), but the next state is what it has to return"
    ):
        ck.CMDP.from_function(**CHAIN | {"step": lambda s, a, s_next: 0.5}, reward=lambda s, a: 0.0)


# -- what a step function returns ----------------------------------------------------------------------------


def stepping(answer, **more):
    described = {"start": 0, "horizon": 2, "actions": ["go"], "step": lambda s, a: answer, "reward": lambda s, a: 0.0}
    return ck.CMDP.from_function(**described | more)


EXCHANGED = {
    "the reproduction": [(0, 0.5), (1, 0.5)],
    "unequal": [(0, 0.7), (1, 0.3)],
    "unequal, the other way": [(1, 0.7), (0, 0.3)],
    "numbers beyond 1": [(2, 0.5), (3, 0.5)],
    "three states": [(0, 0.5), (1, 0.25), (2, 0.25)],
    "texts": [("low", 0.5), ("high", 0.5)],
    "tuples": [((0, 1), 0.5), ((1, 1), 0.5)],
    "numpy": [(np.int64(0), np.float64(0.5)), (np.int64(1), np.float64(0.5))],
    "fractions both ways": [(0.5, 0.25), (0.5, 0.75)],
    "fractions as states": [(0.5, 0.25), (0.5, 0.5)],
}


@pytest.mark.parametrize("answer", EXCHANGED.values(), ids=EXCHANGED)
def test_pairs_in_which_a_next_state_could_be_a_probability_are_refused(answer):
    with pytest.raises(ck.CmdpkitError, match=r"could be a probability as well .*; return a mapping") as caught:
        stepping(answer)
    assert "step(0, 'go')" in str(caught.value)


def test_an_exchanged_pair_that_is_sure_has_probability_zero():
    with pytest.raises(ck.CmdpkitError, match=r"step\(0, 'go'\) sum to 0, expected 1"):
        stepping([(0, 1.0)])


DOCUMENTED = {
    "halves": ([(0.5, 0), (0.5, 1)], {0: 0.5, 1: 0.5}),
    "zero and one": ([(1, 0), (0, 1)], {0: 1.0}),
    "one and zero": ([(0, 1), (1, 0)], {0: 1.0}),
    "for sure": ([(1.0, 1)], {1: 1.0}),
    "an array": (np.array([[0.25, 0.0], [0.75, 1.0]]), {0: 0.25, 1.0: 0.75}),
    "texts": ([(0.25, "low"), (0.75, "high")], {"low": 0.25, "high": 0.75}),
    "fractions in a mapping": ({0.25: 0.5, 0.75: 0.5}, {0.25: 0.5, 0.75: 0.5}),
    "zero and one in a mapping": ({0.25: 0.0, 0.75: 1.0}, {0.75: 1.0}),
    "a generator": (((p, x) for p, x in [(0.5, 1), (0.5, 2)]), {1: 0.5, 2: 0.5}),
    "another mapping": (MappingProxyType({1: 0.5, 2: 0.5}), {1: 0.5, 2: 0.5}),
}


@pytest.mark.parametrize(("answer", "meaning"), DOCUMENTED.values(), ids=DOCUMENTED)
def test_the_documented_order_is_taken(answer, meaning):
    cmdp = stepping(answer, horizon=1)
    assert cmdp.states[0] == 0
    row = {cmdp.state_index(x): p for x, p in meaning.items()}
    assert {i: p for i, p in enumerate(cmdp.P[0, 0, 0].tolist()) if p} == row


def test_an_exchanged_mapping_is_refused_where_it_cannot_be_right():
    with pytest.raises(
        ck.CmdpkitError, match=r"gives 0\.75 probability 2, expected .* \{next state: probability\}|sum to 3"
    ):
        stepping({0.25: 1, 0.75: 2})


def test_an_error_shows_what_came_back():
    with pytest.raises(
        ck.CmdpkitError, match=r"sum to 0\.9, expected 1 within 1e-09; it returned \[\(0\.4, 0\), \(0\.5, 1\)\]"
    ):
        stepping([(0.4, 0), (0.5, 1)])
    with pytest.raises(
        ck.CmdpkitError, match=r"step\(0, 'go'\) returned 'much', expected \[\(probability, next state\)"
    ):
        stepping("much")


def test_a_reward_that_is_text_is_refused_even_if_it_reads_as_a_number():
    with pytest.raises(ck.CmdpkitError, match=r"reward\(0, 'go'\) is '1\.5', expected a number"):
        stepping({0: 1.0}, reward=lambda s, a: "1.5")


def test_every_state_and_action_is_asked_about_once():
    asked = []

    def step(s, a):
        asked.append((s, a))
        return {min(s + 1, 3): 0.5, 0: 0.5}

    ck.CMDP.from_function(start=0, horizon=9, actions=["x", "y"], step=step, reward=lambda s, a: 0.0)
    assert sorted(asked) == [(s, a) for s in range(4) for a in "xy"]


def test_the_signature_of_from_function_is_spelled_out():
    parameters = inspect.signature(ck.CMDP.from_function).parameters
    assert list(parameters) == [
        "start", "horizon", "discount", "criterion", "actions", "step", "reward", "outcome", "constraints", "states",
        "exact", "renormalise", "max_states", "grid",
    ]  # fmt: skip
    for name in parameters:
        assert f"\n        {name} : " in ck.CMDP.from_function.__doc__


def test_actions_of_states_in_which_there_are_none_or_by_step_are_refused():
    described = {"start": 0, "step": lambda s, a: {s: 1.0}, "reward": lambda s, a: 0.0, "horizon": 2}
    with pytest.raises(ck.CmdpkitError, match=r"state 0 has no actions; give it at least one"):
        ck.CMDP.from_function(actions=lambda s: [], **described)
    with pytest.raises(ck.CmdpkitError, match=r"the function actions takes h, the step.*restrict\(mask\) of the model"):
        ck.CMDP.from_function(actions=lambda s, h: ["go"], **described)
    with pytest.raises(ck.CmdpkitError, match=r"actions takes \(s, level\), expected a function of the state, or"):
        ck.CMDP.from_function(actions=lambda s, level: ["go"], **described)
    with pytest.raises(ck.CmdpkitError, match=r"an entry of actions\(0\) is \[\]"):
        ck.CMDP.from_function(actions=lambda s: [[]], **described)
