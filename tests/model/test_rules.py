"""Policies from whatever says what to do, and controllers made from them: against tables written by hand."""

import random
import runpy
from dataclasses import dataclass
from datetime import date
from enum import Enum
from types import SimpleNamespace

import numpy as np
import pytest

import cmdpkit as ck

pytestmark = pytest.mark.compiled


def shop(**judged) -> ck.CMDP:
    """Stock (item, number) from 0 to 2; nothing can be sold from an empty shelf."""
    return ck.CMDP.from_function(
        start=("box", 2),
        actions=lambda s: ["order", "wait"] + ["sell"] * (s[1] > 0) if s[1] < 2 else ["sell", "wait"],
        step=lambda s, a: {("box", s[1] + {"order": 1, "sell": -1, "wait": 0}[a]): 1.0},
        reward=lambda s, a: float(a == "sell"),
        constraints=[ck.at_most("orders", 2.0, lambda s, a: float(a == "order"))],
        **judged,
    )


SHOP = shop(horizon=3)
# States in the order in which they are met: 2, 1, 0; actions: sell, wait, order.
STATES, ACTIONS = (("box", 2), ("box", 1), ("box", 0)), ("sell", "wait", "order")
BY_HAND = [[1, 0, 0], [0.5, 0.5, 0], [0, 0, 1]]
CHOICES = {("box", 2): "sell", ("box", 1): {"sell": 0.5, "wait": 0.5}, ("box", 0): "order"}


def test_states_keep_the_objects_of_the_user():
    assert SHOP.states == STATES and SHOP.action_names == ACTIONS
    assert SHOP.state_index(("box", 1)) == SHOP.state_index("('box', 1)") == 1
    decision = ck.Policy.of(SHOP, CHOICES).stochastic_decisions()[0]
    assert decision == (1, ("box", 1), {"sell": 0.5, "wait": 0.5})


@pytest.mark.parametrize(
    "rule",
    [
        lambda s: CHOICES[s],
        lambda state, bonus=3: CHOICES[state],
        lambda s, step: CHOICES[s],
        CHOICES,
        {str(s): a for s, a in CHOICES.items()},
        BY_HAND,
        np.array([BY_HAND] * 3),
        ck.Policy.stationary(BY_HAND, STATES, ACTIONS),
        ck.Policy([BY_HAND] * 3),
    ],
    ids=[
        "state",
        "default",
        "s, step",
        "mapping",
        "texts",
        "S A",
        "H S A",
        "stationary",
        "policy",
    ],
)
def test_every_way_to_say_it_is_the_same_policy(rule):
    policy = ck.Policy.of(SHOP, rule)
    assert policy.pi.tolist() == [BY_HAND] * 3
    assert policy.states == STATES and policy.action_names == ACTIONS


@pytest.mark.parametrize("indices", [[0, 1, 2], [[0, 1, 2]] * 3])
def test_indices_become_probabilities_by_unit_vectors(indices):
    assert ck.Policy.of(SHOP, np.eye(3)[indices]).pi.tolist() == [np.eye(3).tolist()] * 3


def test_a_rule_with_steps_is_given_them_counted_from_0():
    policy = ck.Policy.of(SHOP, lambda s, h: "wait" if h == 1 else CHOICES[s])
    waiting = [[0, 1, 0]] * 3
    assert policy.pi.tolist() == [BY_HAND, waiting, BY_HAND]
    assert policy.probabilities(2, ("box", 0)) == {"wait": 1.0}  # people count from 1


def test_a_rule_is_not_asked_where_there_is_nothing_to_decide():
    # After the last step the states 3 and 4 are met, which have a single action that is never taken.
    line = ck.CMDP.from_function(
        start=0, horizon=2, actions=["on", "by"], step=lambda s, a: {s + 1 + (a == "by"): 1.0}, reward=lambda s, a: 0.0
    )
    assert len(line.states) == 5
    asked = []
    ck.Policy.of(line, lambda s: asked.append(s) or "by")
    assert asked == [0, 1, 2]
    assert ck.Policy.of(line, {0: "on", 1: "by", 2: "on"}).horizon == 2


def test_without_a_horizon_rules_are_stationary():
    endless = shop(discount=0.9)
    for rule in (CHOICES, lambda s: CHOICES[s], BY_HAND, ck.Policy.stationary(BY_HAND)):
        policy = ck.Policy.of(endless, rule)
        assert policy.is_stationary and policy.pi.tolist() == [BY_HAND]
    assert ck.Policy.of(endless, dict(zip(STATES, ACTIONS, strict=True))).choice.tolist() == [[0, 1, 2]]
    with pytest.raises(ck.CmdpkitError, match=r"takes h, the step, but the model is judged by totals disc"):
        ck.Policy.of(endless, lambda s, h: "wait")


def test_a_csv_of_states_and_actions_is_enough(tmp_path):
    path = tmp_path / "rule.csv"
    path.write_text("action,state\nsell,\"('box', 2)\"\norder,\"('box', 0)\"\nwait,\"('box', 1)\"\n")
    expected = [[[1, 0, 0], [0, 1, 0], [0, 0, 1]]] * 3
    assert ck.read_policy(path, SHOP).pi.tolist() == ck.read_policy(str(path), SHOP).pi.tolist() == expected
    path.write_text("state,action,probability\n\"('box', 2)\",sell,1\n\"('box', 1)\",sell,0.5\n\"('box', 1)\",wait,.5\n"
                    "\"('box', 0)\",order,1\n")  # fmt: skip
    assert ck.read_policy(path, SHOP).pi.tolist() == [BY_HAND] * 3
    assert ck.read_policy(path, SHOP).states == STATES
    path.write_text("state,action\n\"('box', 2)\",sell\n\"('box', 1)\",sell\n")
    with pytest.raises(ck.CmdpkitError, match=r"rule.csv: .*there is no decision in state \"\('box', 0\)\""):
        ck.read_policy(path, SHOP)
    with pytest.raises(
        ck.CmdpkitError, match=r"rule.csv: head: there are no lines '# states = ...' above the data; give the model too"
    ):
        ck.read_policy(path)


def test_a_policy_whose_names_stand_in_another_order_is_put_in_order():
    """Every state and action has the probability that it had by name, also where the policy draws."""
    rng = np.random.default_rng(3)
    names = ("sell", "wait", "order")
    shop = ck.CMDP(np.full((3, 3, 3), 1 / 3), np.zeros((3, 3)), horizon=3, states=STATES, action_names=names)
    pi = rng.dirichlet(np.ones(3), size=(3, 3))
    pi[0, 1], pi[2, 0] = [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]
    s, a = [2, 0, 1], [1, 2, 0]
    moved = ck.Policy(pi[:, s][:, :, a], [STATES[i] for i in s], [names[i] for i in a])
    found = ck.Policy.of(shop, moved)
    assert found.states == shop.states and found.action_names == shop.action_names
    assert found.pi.tolist() == pi.tolist()
    with pytest.raises(ck.CmdpkitError, match=r"is called .*; both must have the same names in the same order"):
        ck.evaluate(shop, moved)


@pytest.mark.parametrize("H", [3, None])
def test_a_policy_of_more_states_is_one_for_a_smaller_model(H):
    """As where a state was added to a model, and the policy is wanted for the model before."""
    rng, names = np.random.default_rng(4), ["empty", "full", "broken", "late"]
    judged = {"horizon": H} if H else {"discount": 0.9}
    small = ck.CMDP(np.full((2, 2, 2), 0.5), np.zeros((2, 2)), states=["full", "empty"], **judged)
    pi = rng.dirichlet(np.ones(2), size=(H or 1, 4))
    pi[0, 1] = [0.0, 1.0]
    large = ck.Policy(pi, names, small.action_names) if H else ck.Policy.stationary(pi[0], names, small.action_names)
    found = ck.Policy.of(small, large)
    assert found.states == ("full", "empty") and found.pi.tolist() == pi[:, [1, 0]].tolist()
    three = ck.CMDP(np.full((3, 2, 3), 1 / 3), np.zeros((3, 2)), states=["full", "empty", "lost"], **judged)
    with pytest.raises(ck.CmdpkitError, match=r"has shape .*; it has no decision for state 'lost'; give a policy"):
        ck.Policy.of(three, large)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda s: "sel", r"rule\(\('box', 2\)\) is 'sel', expected the name of an action.*did you mean 'sell'"),
        (lambda s: None, r"rule\(\('box', 2\)\) is None, expected the name of an action, or \{action: probability\}"),
        (lambda s: {"sell": 0.5}, r"is \{'sell': 0.5\}, expected probabilities that sum to 1 .*; these sum to 0.5"),
        (lambda s: {"sell": 1.5, "wait": -0.5}, r"expected probabilities that sum to 1"),
        (lambda s: {"sel": 1.0}, r"unknown action 'sel'; did you mean 'sell'"),
        (lambda s: {"sell": "all"}, r"a probability must be an array of numbers"),
        (lambda s: "order", r"gives action 'order' probability 1.0 at step 1 in state \('box', 2\), where it does not"),
        (lambda s, x: "sell", r"takes \(s, x\), expected a function of the state, or of the state and h"),
        (lambda s, h=0: "sell", r"takes \(s, h=0\), expected a function of the state"),
        (lambda h, s: "sell", r"takes \(h, s\), expected a function of the state"),
        (lambda *s: "sell", r"takes \(\*s\), expected a function of the state"),
        ({("box", 2): "sell"}, r"has no action for state \('box', 1\) \(and for 1 more\); name one for every state"),
        ({"box": "sell"}, r"unknown state 'box'; known are \('box', 2\)"),
        ({("box", 2): "sell", "('box', 2)": "sell"}, r"names state .* twice"),
        (["sell", "wait", "order"], r"array of names or whole numbers, .*; pass a mapping \{state: action\} for names"),
        ([0, 1, 2], r"array of names or whole numbers, expected probabilities .* np\.eye\(A\)\[rule\] for indices"),
        (np.eye(3, dtype=int), r"array of names or whole numbers, expected probabilities .*, which are floats"),
        (np.zeros((2, 2)), r"pi has shape \(2, 2\), expected \(H, S, A\) = \(3, 3, 3\), or \(S, A\)"),
        ([[1.0], [0.5, 0.5]], r"must be an array, a mapping or a function"),
        (ck.Policy.stationary(BY_HAND, ("a", "b", "c")), r"state 1 is called 'a', the model's \('box', 2\)"),
        ("nothing.csv", r"the rule is 'nothing.csv'; cmdpkit.read_policy\(path, cmdp\)"),
    ],
)  # fmt: skip
def test_broken_rules_are_refused_with_place_value_rule_and_next_step(rule, message):
    with pytest.raises(ck.CmdpkitError, match=message):
        ck.Policy.of(SHOP, rule)


# -- deployment --------------------------------------------------------------------------------------------------------


def load(path) -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(path)))


def test_many_decisions_at_once_follow_the_probabilities():
    policy = ck.Policy.of(SHOP, lambda s, h: "wait" if h == 1 else CHOICES[s])
    n, rng = 20_000, np.random.default_rng(4)
    drawn = policy.act_many(np.tile([1, 2], n), [("box", 1)] * (2 * n), rng)
    assert set(drawn[1::2]) == {"wait"} and set(drawn[::2]) == {"sell", "wait"}
    # One comparison at 5 standard deviations: wrongly red with probability 6e-7, and the seed is fixed.
    assert abs((drawn[::2] == "sell").sum() - n / 2) < 5 * np.sqrt(n / 4)
    states = [STATES[i] for i in rng.integers(0, 3, 500)]
    assert policy.act_many(2, states, rng).tolist() == [policy.act(2, s, rng) for s in states]
    assert policy.act_many(3, np.array(["('box', 0)", "('box', 2)"]), rng).tolist() == ["order", "sell"]


def test_many_decisions_of_a_stationary_policy_with_default_names(tmp_path):
    policy = ck.Policy.stationary(np.eye(3)[[2, 0, 1]])
    module = load(ck.write_policy(policy, tmp_path / "controller.py"))
    rng = np.random.default_rng(5)
    assert policy.act_many(states=np.array([1, 2, 3, 1]), rng=rng).tolist() == [3, 1, 2, 3]
    assert [module.act(s) for s in (1, 2, 3, 1)] == [3, 1, 2, 3]
    assert module.act(2) == 1 and module.act("3", random.Random(1)) == 2


@pytest.mark.parametrize(
    ("steps", "states", "message"),
    [
        (4, [("box", 1)], r"step is 4, expected a whole number from 1 to 3"),
        ([1, 0], [("box", 1)] * 2, r"step is 0, expected"),
        ([2.0, 2.5], [("box", 1)] * 2, r"step is 2\.0, expected a whole number from 1 to 3"),
        (None, [("box", 1)], r"step is None, expected"),
        (1, ["box"], r"unknown state 'box'"),
        (1, "box", r"states is 'box', expected a list or array of names"),
    ],
)
def test_many_decisions_that_do_not_exist_are_refused(steps, states, message):
    with pytest.raises(ck.CmdpkitError, match=message):
        ck.Policy.of(SHOP, CHOICES).act_many(steps, states, np.random.default_rng(0))


def test_a_random_generator_is_needed_and_used_only_where_a_policy_draws():
    policy = ck.Policy([[[1.0, 0.0], [0.5, 0.5]]] * 2)
    assert policy.act(1, 1) == 1 and policy.act_many(1, [1, 1]).tolist() == [1, 1]
    for act in (lambda: policy.act(1, 2), lambda: policy.act_many([2, 1], [1, 2])):
        with pytest.raises(
            ck.CmdpkitError, match=r"rng is missing, and the policy randomises in state 2: give .* rng=np"
        ):
            act()
    rng = np.random.default_rng(4)
    policy.act(1, 1, rng)
    policy.act_many([1, 2], [1, 1], rng)
    assert rng.random() == np.random.default_rng(4).random()
    drawn = [policy.act(1, 2, rng) for _ in range(2000)]
    assert abs(drawn.count(1) - 1000) < 180  # 8 standard deviations


@pytest.mark.parametrize("suffix", [".json", ".csv", ".npz"])
def test_a_file_says_for_which_model_and_bounds_it_was_made_and_hands_it_on(suffix, tmp_path):
    solution = ck.solve(SHOP)
    path = ck.write_policy(solution, tmp_path / f"best{suffix}")
    read = ck.read_policy(path)
    assert read == solution.policy and ck.read_policy(path, SHOP).states == STATES
    assert read.made_for == (SHOP.fingerprint(), "H=3", ("orders ≤ 2",))
    module = load(ck.write_policy(read, tmp_path / "controller.py"))
    assert {"fingerprint": SHOP.fingerprint(), "criterion": "H=3", "bounds": ["orders ≤ 2"]} == module.MODEL
    plain = ck.write_policy(solution.policy, tmp_path / f"plain{suffix}")
    assert ck.read_policy(plain).made_for is None
    assert (
        ck.read_policy(ck.write_policy(solution.policy, tmp_path / f"named{suffix}", model=SHOP)).made_for
        == read.made_for
    )


def test_the_controller_of_a_large_policy_is_small_and_decides_alike(tmp_path):
    S, H = 30_000, 6
    choice = (np.arange(S) > 20_000).astype(int) + np.array([[0]] * 3 + [[1]] * 3)  # a threshold, and two phases
    policy = ck.Policy.of_choices(choice, ([[4, 7]], [[0.25, 0.0, 0.75]]))
    path = ck.write_policy(policy, tmp_path / "controller.py")
    assert path.stat().st_size < 8_000  # 2 phases of 30,000 equal bytes, and a program
    module = load(path)
    rng = np.random.default_rng(6)
    steps, states = rng.integers(1, H + 1, 3000), rng.integers(1, S + 1, 3000)
    states[states == 8] = 9  # where it draws, below
    acted = [module.act(step, state) for step, state in zip(steps.tolist(), states.tolist(), strict=True)]
    np.testing.assert_array_equal(acted, choice[steps - 1, states - 1] + 1)
    assert module.probabilities(5, 8) == {1: 0.25, 3: 0.75} == policy.probabilities(5, 8)
    for step, state in zip(steps[:50].tolist(), states[:50].tolist(), strict=True):
        assert module.probabilities(step, state) == policy.probabilities(step, state)


class Light(Enum):
    RED = 1
    GREEN = 2


@dataclass(frozen=True)
class Stock:
    left: int


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (date(2024, 1, 31), date(2024, 2, 1)),
        (0.25, 0.75),
        (False, True),
        (Light.RED, Light.GREEN),
        (frozenset(), frozenset({1})),
        (Stock(0), Stock(1)),
    ],
    ids=["dates", "floats", "truth values", "enumerations", "sets", "objects"],
)
def test_a_rule_is_given_states_as_the_objects_that_they_are(first, second, tmp_path):
    """As texts, which they once were, False was true and no state was the one that a rule compared it with."""
    cmdp = ck.CMDP.from_function(
        start=first, horizon=2, actions=["go", "stay"], step=lambda s, a: {second: 1.0}, reward=lambda s, a: 1.0
    )
    assert cmdp.states == (first, second) and type(cmdp.states[0]) is type(first)
    policy = ck.Policy.of(cmdp, lambda s: "go" if s == first else "stay")
    assert policy.choice.tolist() == [[0, 1], [0, 1]] and policy == ck.Policy.of(cmdp, {first: "go", second: "stay"})
    for suffix in ("csv", "json", "npz"):
        assert ck.read_policy(ck.write_policy(policy, tmp_path / f"rule.{suffix}"), cmdp) == policy
    model = ck.read_model(ck.write_model(cmdp, tmp_path / "model.toml"))
    assert model.states == (str(first), str(second)) and model.fingerprint() == cmdp.fingerprint()


def test_names_that_are_equal_are_refused_even_if_their_texts_differ():
    with pytest.raises(ck.CmdpkitError, match=r"states\[1\] is True again"):
        ck.CMDP(np.full((2, 1, 2), 0.5), np.zeros((2, 1)), horizon=2, states=[1, True])
