"""A small model, as people would write it in a file and as arrays, and what it means that two models are the same."""

import numpy as np

from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_least, at_most

BUFFER = """
[model]
horizon = 4
start = "empty"

[[constraint]]
name = "backlog"
sense = "at_most"
bound = 2.5

[[constraint]]
name = "served well"
sense = "at_least"
bound = 0.5

[[transition]]
state = "empty"
action = "rest"
next = {empty = 0.25, busy = 0.75}
reward = 0
backlog = 0
"served well" = 0.125

[[transition]]
state = "busy"
action = "rest"
next = {busy = 1}
reward = 0
backlog = 1
"served well" = 0

[[transition]]
state = "busy"
action = "serve"
next = {empty = 0.5, busy = 0.5}
reward = 1.5
backlog = 1
"served well" = 1
"""


def buffer() -> CMDP:
    """What BUFFER says, as arrays written down independently."""
    P = [[[0.25, 0.75], [0, 0]], [[0, 1], [0.5, 0.5]]]
    return CMDP(
        P,
        [[0, 0], [0, 1.5]],
        horizon=4,
        actions=np.array([[True, False], [True, True]]),
        constraints=[at_most("backlog", 2.5, [[0, 0], [1, 1]]), at_least("served well", 0.5, [[0.125, 0], [0, 1]])],
        states=["empty", "busy"],
        action_names=["rest", "serve"],
    )


def assert_same(a: CMDP, b: CMDP) -> None:
    """Equal as models, and, independently of how equality is defined, in every array, name and mark."""
    assert a == b
    assert [x.shape for x in a.compact] == [x.shape for x in b.compact]
    assert np.array_equal(a.actions, b.actions) and np.array_equal(a.mu, b.mu)
    for x, y in ((a.r, b.r), *zip(a.g, b.g, strict=True), (a.P, b.P) if a.S < 100 else (a.kernel.prob, b.kernel.prob)):
        used = a.actions if x.ndim > 1 else slice(None)
        assert x.shape == y.shape and np.array_equal(x[used], y[used])
    assert (a.S, a.A, a.N, a.kernel.T, a.constraints) == (b.S, b.A, b.N, b.kernel.T, b.constraints)
    assert a.criterion == b.criterion and [c.per_step for c in a.constraints] == [c.per_step for c in b.constraints]
    for names, others in ((a.states, b.states), (a.action_names, b.action_names)):
        assert isinstance(names, range) == isinstance(others, range)
        assert [(type(x), x) for x in names] == [(type(x), x) for x in others]
    assert a.grid == b.grid
