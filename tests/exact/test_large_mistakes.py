"""Mistakes in models by functions: each is an error that names the place and says what is expected."""

import functools
import math

import numpy as np
import pytest

import cmdpkit as ck

PLACES, TABLE = np.arange(3), np.ones((3, 2))


def stays(x, a, e):
    return x, 0.5


def one(x, a):
    return (1.0,)


def events(step=stays, space=(4,), actions=("go", "stop"), events=2, collect=one, start=None, **more):
    if not {"discount", "horizon", "criterion"} & set(more):
        more["discount"] = 0.9
    start = (0,) * len(space) if start is None else start
    return ck.EventModel(space, actions, events, step, collect, start=start, **more)


def factored(move=lambda x, a: x, space=(4,), noise=(None,), collect=one, after=None, **more):
    start = (0,) * len(space)
    return ck.FactoredModel(space, ["go", "stop"], move, noise, collect, after, start=start, discount=0.9, **more)


def raising(x, a, e):
    if x[0] == 2:
        raise ValueError("no such state")
    return x, 0.5


def outside(x, a):
    return (TABLE[x[0], a],)


def two(x, a):
    return 1.0, 1.0


GO = r"state \(0,\), action 'go' \(index 0\)"
LAST = r"state \(3,\), action 'go' \(index 0\)"
LINE = r".*\(line \d+ of .*test_large_mistakes\.py\)"
FUNCTION = "expected a function, made by `def`"
STATE = r"\(x_next, p\), a tuple of 1 whole numbers and a float" + LINE
SIGNALS = "a tuple of 1 numbers, the reward and one signal per constraint" + LINE
ONE = [ck.at_most("c", 1.0)]

MADE = [  # mistakes that the constructor sees
    (lambda: events(np.ones((4, 2))), "step is array.*" + FUNCTION),
    (lambda: events(None), "step is None, " + FUNCTION),
    (lambda: events(functools.partial(stays)), "step is functools.partial.*" + FUNCTION),
    (lambda: events(max), "step is <built-in.*" + FUNCTION),
    (lambda: events(collect=None), "collect is None, " + FUNCTION),
    (lambda: events(allowed=[0, 1]), r"allowed is \[0, 1\], " + FUNCTION),
    (lambda: factored(None), "move is None, " + FUNCTION),
    (lambda: events(space=(2**32, 2**31)), r"9.22e\+18 states, expected at most 2\*\*62; merge coordinates"),
    (lambda: events(space=(2**70,)), r"at most 2\*\*62; merge coordinates"),
    (lambda: events(space=(0,)), r"space is \(0,\), expected the size of each"),
    (lambda: events(space=(4.0,)), r"space is \(4.0,\), expected the size of each"),
    (lambda: events(space=()), r"space is \(\), expected the size of each"),
    (lambda: ck.EventModel(4, 2, 2, stays, one, start=(0,), discount=0.9), "space is 4, expected the size of each"),
    (lambda: events(actions=0), "actions is 0, expected 1 to 32768"),
    (lambda: events(actions=[]), r"actions is \[\], expected 1 to 32768"),
    (lambda: events(actions="go"), "actions is 'go', expected 1 to 32768"),
    (lambda: events(actions=2.0), "actions is 2.0, expected 1 to 32768"),
    (lambda: events(actions=["go", "go"]), r"actions\[1\] is 'go' again"),
    (lambda: events(events=0), "events is 0, expected a whole number, at least 1"),
    (lambda: events(events=["a"]), "events is .*, expected a whole number, at least 1"),
    (lambda: events(start=(4,)), r"start: \(4,\) is no state of the space \(4,\)"),
    (lambda: events(start=[0]), r"start: \[0\] is no state of the space \(4,\)"),
    (lambda: events(start={}), r"start has probabilities \[\]"),
    (lambda: events(start={(0,): np.nan}), r"start has probabilities \[nan\]"),
    (lambda: ck.EventModel((4,), 2, 2, stays, one, start=(0,)), "a discount, a horizon or a criterion is missing"),
    (lambda: events(discount=0.9, horizon=4), "horizon = 4 and discount = 0.9 are given"),
    (lambda: events(discount=1.0), "discount is 1.0, expected a number above 0 and below 1"),
    (lambda: events(horizon=0), "horizon is 0, expected a whole number of steps"),
    (lambda: events(criterion="total"), "models by functions do not have; give a discount"),
    (lambda: events(constraints=[*ONE, *ONE], collect=two), "two constraints have the same name: c, c"),
    (lambda: events(constraints=[ck.at_most("c", 1, signal=TABLE)]), "'c' has a signal, .*; leave it out"),
    (lambda: factored(noise=None), "noise is None, expected a list with a Part, or None, for each of the 1"),
    (lambda: factored(noise=[]), r"noise is \[\], expected a list with a Part"),
    (lambda: factored(noise=[np.ones((4, 4))]), r"noise\[0\] is array.*expected a Part for 4 places, or None"),
    (lambda: factored(noise=[ck.Part([[0], [1]], [1.0])]), r"noise\[0\] is Part.*expected a Part for 4 places"),
    (lambda: ck.Part([[0, 1], [1]], [0.5, 0.5]), "to of a Part must be an array of numbers"),
    (lambda: ck.Part([[0.5, 1]] * 4, [0.5, 0.5]), r"to of a Part is \[\[0.5, 1.0\].*expected whole numbers"),
    (lambda: ck.Part([[0, 4]] * 4, [0.5, 0.5]), r"to\[0, 1\] of a Part is 4, expected a place from 0 to 3"),
    (lambda: ck.Part([[0, 1]] * 4, [0.5, 0.6]), r"p\[0\] of a Part is \[0.5, 0.6\], .*sum to 1"),
    (lambda: ck.Part.demand("4", [0, 1], [0.5, 0.5]), "size of a Part is '4', expected a whole number"),
    (lambda: ck.Part.demand(4, [0.5, 1], [0.5, 0.5]), "to of a Part is .*expected whole numbers"),
]
RUN = [  # mistakes that plain Python sees, in `arrays` and the first states of `check`
    (lambda: events(lambda x, a, e: ((PLACES[x[0]],), 0.5)), f"step fails in {LAST}, event 0: IndexError.*{LINE}"),
    (lambda: events(collect=outside), f"collect fails in {LAST}: IndexError.*{LINE}. It must return"),
    (lambda: events(allowed=lambda x, a: TABLE[x[0], a] > 0), f"allowed fails in {LAST}: IndexError.*{LINE}"),
    (lambda: factored(lambda x, a: (PLACES[x[0]],)), f"move fails in {LAST}: IndexError.*{LINE}"),
    (lambda: factored(after=lambda y: (TABLE[y[0], 0],)), rf"after fails in state \(3,\): IndexError.*{LINE}"),
    (lambda: events(lambda x, a, e: ({0: (0,)}[x[0]], 0.5)), f"step fails in .*KeyError: 1 {LINE}"),
    (lambda: events(collect=lambda x, a: (1 / (x[0] - 2),)), f"collect fails in .*ZeroDivisionError: .*{LINE}"),
    (lambda: events(collect=lambda x, a: (math.log(x[0]),)), f"collect fails in {GO}: ValueError: .*{LINE}"),
    (lambda: events(raising), f"step fails in .*ValueError: no such state{LINE}"),
    (lambda: events(lambda x, a: (x, 0.5)), rf"step fails in {GO}, event 0: TypeError: .* 2 positional .*{LINE}"),
    (lambda: factored(after=lambda x, a: (1.0,)), rf"after fails in state \(0,\): TypeError: .*'a' {LINE}"),
    (lambda: events(lambda x, a, e: None), f"step returns None in {GO}, event 0, expected {STATE}"),
    (lambda: events(lambda x, a, e: x), rf"step returns \(0,\) in {GO}, event 0, expected {STATE}"),
    (lambda: events(lambda x, a, e: ([x[0]], 0.5)), rf"step returns \(\[0\], 0.5\) in {GO}.*{STATE}"),
    (lambda: events(lambda x, a, e: ((0, 0), 0.5)), f"step returns .* in {GO}, event 0, expected {STATE}"),
    (lambda: events(lambda x, a, e: ((0.5 * x[0],), 0.5)), f"step returns .*0.0.* in {GO}, event 0, expected {STATE}"),
    (lambda: events(lambda x, a, e: (x, None)), f"step returns .*None.* in {GO}, event 0, expected {STATE}"),
    (lambda: events(lambda x, a, e: (x, "0.5")), f"step returns .*'0.5'.* in {GO}, event 0, expected {STATE}"),
    (lambda: events(lambda x, a, e: (x, 0.5 + 0j)), f"step returns .*0j.* in {GO}, event 0, expected {STATE}"),
    (
        lambda: events(lambda x, a, e: ((x[0] + e,), 0.5)),
        rf"{LAST}, event 1 leads to \(4,\) .* state of the space \(4,\)",
    ),
    (lambda: events(lambda x, a, e: ((x[0] - 1,), 0.5)), f"{GO}, event 0 leads to .-1,. with probability 0.5"),
    (lambda: events(lambda x, a, e: (x, np.nan if x[0] == 3 else 0.5)), f"{LAST}, event 0 leads .* probability nan, "),
    (lambda: events(lambda x, a, e: (x, 2.0 * e - 0.5)), f"{GO}, event 0 leads .* with probability -0.5, "),
    (lambda: events(lambda x, a, e: (x, 0.5005)), f"{GO} has probabilities .* sum to 1.001"),
    (lambda: events(collect=lambda x, a: 1.0), f"collect returns 1.0 in {GO}, expected {SIGNALS}"),
    (lambda: events(collect=lambda x, a: None), f"collect returns None in {GO}, expected {SIGNALS}"),
    (lambda: events(collect=lambda x, a: np.ones(1)), f"collect returns array.* in {GO}, expected {SIGNALS}"),
    (lambda: events(collect=lambda x, a: [1.0]), f"collect returns .* in {GO}, expected {SIGNALS}"),
    (lambda: events(collect=lambda x, a: ("a",)), f"collect returns .*'a'.* in {GO}, expected {SIGNALS}"),
    (lambda: events(collect=two), f"collect returns .* in {GO}, expected {SIGNALS}"),
    (lambda: events(constraints=ONE), f"collect returns .* in {GO}, expected a tuple of 2 numbers"),
    (lambda: events(collect=lambda x, a: (np.inf,)), f"{GO} collects a signal that is not a finite number"),
    (lambda: events(collect=lambda x, a: (1e308,)), r"finite number of at most 1e\+150: \[1e\+308\]"),
    (lambda: factored(after=lambda y: None), rf"after returns None in state \(0,\), expected {SIGNALS}"),
    (lambda: factored(lambda x, a: x[0]), f"move returns 0 in {GO}, expected a state, a tuple of 1 whole numbers"),
    (lambda: factored(lambda x, a: (x[0] / 2,)), f"move returns .*0.0.* in {GO}, expected a state"),
    (lambda: factored(lambda x, a: (x[0] + a,)), r"\(3,\), action 'stop' \(index 1\) leads to \(4,\) with"),
    (lambda: factored(lambda x, a: x[:1], (4, 3), (None, None)), "move returns .*expected a state, a tuple of 2 whole"),
    (lambda: events(allowed=lambda x, a: x[0] != 1), r"state \(1,\) has no action"),
    (lambda: events(space={"u": 4, "v": 2}, allowed=lambda x, a: x[0] != 1), r"\(u=1, v=0\) has no action"),
    (lambda: events(allowed=lambda x, a: None), f"allowed returns None in {GO}, expected True or False"),
    (lambda: events(allowed=lambda x, a: "yes"), f"allowed returns 'yes' in {GO}, expected True or False"),
]
COMPILED = [  # mistakes that compilation sees, and those that a solve must not overlook
    (lambda: events(lambda x, a: (x, 0.5)), f"step does not compile: .*{LINE}"),
    (lambda: events(lambda x, a, e: (undefined_name(x), 0.5)), "step does not compile: NameError.*numba.njit"),  # noqa: F821
    (lambda: events(lambda x, a, e: (x, float(f"0.{5}"))), f"step does not compile: .*{LINE}.*numba.njit"),
    (lambda: events(collect=lambda x, a: (float(repr(x)),)), f"collect does not compile: .*{LINE}"),
    (lambda: events(lambda x, a, e: (x, 0.5), (10**6, 10**6)), "GB for its tables, and this machine has"),
    *(RUN[i] for i in (1, 4, 8, 11, 15, 19, 21, 29)),
]


@pytest.mark.parametrize(("make", "told"), MADE)
def test_what_a_constructor_refuses(make, told):
    with pytest.raises(ck.CmdpkitError, match=told):
        make()


@pytest.mark.parametrize(("make", "told"), RUN)
def test_what_plain_python_refuses(make, told):
    model = make()
    with pytest.raises(ck.CmdpkitError, match=told):
        model.arrays()


@pytest.mark.parametrize(("make", "told"), COMPILED)
def test_what_a_solve_refuses(make, told):
    told = (
        told.replace(f" in {GO}, event 0", "")
        .replace(f" in {GO}, expected", ", expected")
        .replace("None", "none")
        .replace("0.0", "float64")
    )
    with pytest.raises(ck.CmdpkitError, match=told):
        ck.solve(make())


def test_every_entry_names_the_place_of_an_index_outside_of_an_array(tmp_path):
    model, well = events(collect=outside, horizon=3), events(horizon=3)
    policy = ck.solve(well).policy
    entries = [
        lambda: ck.check(model),
        lambda: ck.solve(model, folder=tmp_path / "kept"),
        lambda: ck.evaluate(model, policy),
        lambda: ck.learn(model, "triple-q", episodes=10, seed=0),
    ]
    for use in entries:
        with pytest.raises(ck.CmdpkitError, match=f"collect fails in {LAST}: IndexError.*{LINE}"):
            use()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((ck.CMDP([[[1.0]]], [[1.0]], horizon=2),), "is for models by functions, got CMDP.*cmdpkit.diagnose says"),
        ((events(), 0), "states is 0, expected a whole number, at least 1"),
        ((events(), 2.5), "states is 2.5, expected a whole number, at least 1"),
    ],
)
def test_what_a_check_refuses(given, told):
    with pytest.raises(ck.CmdpkitError, match=told):
        ck.check(*given)


def test_whole_numbers_and_truth_values_are_probabilities_too():
    for step in (lambda x, a, e: (x, 1 - e), lambda x, a, e: (x, e == 0)):
        model = events(step)
        assert ck.solve(model).value == pytest.approx(ck.solve(model.arrays()).value, rel=1e-6)
