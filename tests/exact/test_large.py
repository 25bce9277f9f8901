"""Models by functions: both forms agree with their own arrays, solved by `ck.solve`, which knows no functions."""

import functools

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.model.functions import FunctionModel

G = 5  # random models in one compiled family: the first coordinate says which, and never changes
SIZES = (4, 5)
A, EVENTS = 3, 4


@functools.cache
def family(kind: str, N: int):
    """Functions of G random models of 20 states each, which differ in their start only, so that they compile once."""
    rng = np.random.default_rng([N, kind == "events"])
    n, m = SIZES
    signals = rng.normal(size=(G, n, m, A, 1 + N))
    exists = rng.random((G, n, m, A)) < 0.7
    exists[..., 0] |= ~exists.any(axis=-1)

    def collect(x, a):
        return tuple_of(signals[x[0], x[1], x[2], a])

    tuple_of = {
        0: lambda t: (t[0],),
        1: lambda t: (t[0], t[1]),
        2: lambda t: (t[0], t[1], t[2]),
        3: lambda t: (t[0], t[1], t[2], t[3]),
    }[N]
    from numba import njit

    tuple_of = njit(tuple_of)

    def allowed(x, a):
        return exists[x[0], x[1], x[2], a]

    if kind == "events":
        to = rng.integers(0, (n, m), size=(G, n, m, A, EVENTS, 2))
        p = rng.dirichlet(np.full(EVENTS, 0.7), size=(G, n, m, A))
        p[..., -1] = 1 - p[..., :-1].sum(axis=-1)

        def step(x, a, e):
            then = to[x[0], x[1], x[2], a, e]
            return (x[0], then[0], then[1]), p[x[0], x[1], x[2], a, e]

        return ck.EventModel, (EVENTS, step, collect), allowed
    moved = rng.integers(0, (n, m), size=(G, n, m, A, 2))
    extra = rng.normal(size=(n, m, 1 + N))
    noise = [None]
    for size in SIZES:
        noise.append(ck.Part(rng.integers(0, size, (size, 3)), rng.dirichlet(np.ones(3), size)))

    def move(x, a):
        y = moved[x[0], x[1], x[2], a]
        return x[0], y[0], y[1]

    def after(y):
        return tuple_of(extra[y[1], y[2]])

    return ck.FactoredModel, (move, noise, collect, after), allowed


def random_model(kind: str, N: int, g: int, judged: dict, tight: float | None = None) -> FunctionModel:
    """A random model with bounds between the totals of the reward optimum and of another policy, drawn at random.

    With ``tight`` they are the totals of the latter, less this share of the distance.
    """
    make, functions, allowed = family(kind, N)
    given = {"start": {(g, 0, 0): 0.25, (g, 3, 2): 0.75}, "allowed": allowed, **judged}
    made = lambda bounds: make(  # noqa: E731
        (G, *SIZES), A, *functions, **given,
        constraints=[ck.at_least(f"c{n}", x) if n % 2 else ck.at_most(f"c{n}", -x) for n, x in enumerate(bounds)],
    )  # fmt: skip
    arrays = made([0.0] * N).arrays()
    free = ck.solve(arrays.reformulated(g=arrays.compact.g[:0], constraints=())).policy
    rng = np.random.default_rng([N, g])
    other = ck.Policy.of(arrays, np.eye(A)[[rng.choice(np.flatnonzero(row)) for row in arrays.actions[0]]])
    ends = [arrays.signs * ck.evaluate(arrays, policy).w for policy in (free, other)]
    if tight is not None:
        return made(ends[1] - tight * np.abs(ends[0] - ends[1]))
    return made(0.5 * (ends[0] + ends[1]) - 0.3 * np.abs(ends[0] - ends[1]))


def check_equal(kind: str, N: int, g: int, judged: dict, tight: float | None = None) -> None:
    """The mixture and the single policy against the arrays; both are evaluated in the arrays, too."""
    model = random_model(kind, N, g, judged, tight)
    arrays = model.arrays()
    try:
        exact = ck.solve(arrays)
    except ck.Infeasible:
        with pytest.raises(ck.Infeasible):
            ck.solve(model, gap=1e-9)
        return
    size = abs(exact.value)
    for policy in ("mixture", "one"):
        found = ck.solve(model, gap=1e-9, policy=policy, threads=1)
        assert not found.notes
        assert found.gap <= 1e-9 * size * (1 + 1e-6)
        assert abs(found.value - exact.value) <= 1e-9 * size + 1e-13
        assert (arrays.signs * (found.utilities - [c.bound_on_total for c in arrays.constraints]) >= -1e-9).all()
        parts = [in_arrays(arrays, found, part) for part in found.policy.parts]
        values = [ck.evaluate(arrays, part) for part in parts]
        assert found.policy.weights @ [x.v for x in values] == pytest.approx(found.value, abs=1e-9 * size + 1e-12)
        assert found.policy.weights @ np.array([x.w for x in values]) == pytest.approx(found.utilities, abs=1e-8)
    assert len(found.policy.parts) == 1
    assert len(found.policy.stochastic_decisions()) <= N


def in_arrays(arrays: ck.CMDP, found: ck.LargeSolution, part) -> ck.Policy:
    """A part of a policy as a policy of the arrays."""
    pi = np.zeros((arrays.n_steps, arrays.S, A))
    for h in range(arrays.n_steps):
        for s in range(arrays.S):
            for a, p in part.decision(h, s):
                pi[h, s, a] = p
    return ck.Policy.of(arrays, pi) if arrays.criterion.has_horizon else ck.Policy.of(arrays, pi[0])


DISCOUNTED, HORIZON = {"discount": 0.9}, {"horizon": 7}
SHORT = {("events", 2), ("factored", 1)}  # the families of `make test`


@pytest.mark.parametrize("judged", [DISCOUNTED, HORIZON], ids=["discounted", "horizon"])
@pytest.mark.parametrize(
    ("kind", "N"),
    [
        pytest.param(kind, N, marks=[] if (kind, N) in SHORT else [pytest.mark.long])
        for kind in ("events", "factored")
        for N in range(4)
    ],
)
def test_both_forms_agree_with_their_arrays(kind, N, judged):
    for g in range(G):
        check_equal(kind, N, g, judged)


@pytest.mark.parametrize("judged", [DISCOUNTED, HORIZON], ids=["discounted", "horizon"])
@pytest.mark.parametrize("tight", [0.0, 1e-10, 1e-6])
def test_bounds_that_are_the_totals_of_a_policy_are_met_by_one_policy(judged, tight):
    for kind, N in SHORT:
        for g in range(G):
            check_equal(kind, N, g, judged, tight)


@pytest.fixture(scope="module")
def corner():
    """Models with three bounds on a large signal that varies little: with one policy only, or with a choice."""
    signal = np.random.default_rng(1).normal(size=(2, 6, 2))

    def step(x, a, e):
        return (x[0], (x[1] + 1 + a * e) % 6), 0.5

    def collect(x, a):
        own = 1000 + 0.001 * signal[x[0], x[1], a]
        return signal[1, x[1], a], own, own, own + a

    def allowed(x, a):
        return a == 0 or x[0] == 1

    def made(g, totals, slack):
        kinds = (ck.at_least, ck.at_most, ck.at_most)
        bounds = [kind(f"c{n}", x + y) for n, (kind, x, y) in enumerate(zip(kinds, totals, slack, strict=True))]
        return ck.EventModel(
            (2, 6), 2, 2, step, collect, allowed=allowed, constraints=bounds, start=(g, 0), discount=0.9
        )  # fmt: skip

    return made


@pytest.mark.parametrize("g", [0, 1])
@pytest.mark.parametrize("slack", [(0.0, 0.0, 0.0), (-1e-9, 1e-9, 0.0), (-1e-6, 0.0, 10.0)])
def test_bounds_between_which_there_is_hardly_any_room_are_met(corner, g, slack):
    arrays = corner(g, np.zeros(3), slack).arrays()
    only = ck.evaluate(arrays, ck.Policy.of(arrays, np.eye(2)[np.zeros(arrays.S, dtype=int)]))
    model = corner(g, only.w, slack)
    exact = ck.solve(model.arrays())
    for policy in ("mixture", "one"):
        found = ck.solve(model, policy=policy)
        room = found.shadow_prices @ (found.tolerance + exact.tolerance)
        assert abs(found.value - exact.value) <= found.gap + found.errors[0] + exact.gap + room
        assert found.gap <= 1e-5 * abs(exact.value)
        assert (model.signs[1:] * (found.utilities - only.w - slack) >= -found.tolerance).all()
        assert (found.tolerance <= 1e-7).all()  # of totals of 10,000
    assert len(found.policy.parts) == 1
    assert len(found.policy.stochastic_decisions()) <= 3


def test_signals_that_are_always_zero_end_an_evaluation():
    model = ck.EventModel((3,), 1, 1, lambda x, a, e: (x, 1.0), lambda x, a: (0.0,), start=(0,), discount=0.9)
    assert ck.evaluate(model, ck.solve(model).policy).v == 0.0
