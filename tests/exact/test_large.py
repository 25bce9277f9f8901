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


def random_model(kind: str, N: int, g: int, judged: dict, share: float = 0.5) -> FunctionModel:
    """A random model with bounds between what the reward optimum has and the best that can be had together."""
    make, functions, allowed = family(kind, N)
    given = {"start": {(g, 0, 0): 0.25, (g, 3, 2): 0.75}, "allowed": allowed, **judged}
    made = lambda bounds: make(  # noqa: E731
        (G, *SIZES), A, *functions, **given,
        constraints=[ck.at_least(f"c{n}", x) if n % 2 else ck.at_most(f"c{n}", -x) for n, x in enumerate(bounds)],
    )  # fmt: skip
    arrays = made([0.0] * N).arrays()
    free = ck.solve(arrays.reformulated(g=arrays.compact.g[:0], constraints=())).policy
    rng = np.random.default_rng([N, g])
    other = ck.Policy.of(arrays, np.array([rng.choice(np.flatnonzero(row)) for row in arrays.actions[0]]))
    ends = [arrays.signs * ck.evaluate(arrays, policy).w for policy in (free, other)]
    return made((1 - share) * np.minimum(*ends) + share * np.maximum(*ends) - 0.3 * np.abs(ends[0] - ends[1]))


def check_equal(kind: str, N: int, g: int, judged: dict) -> None:
    """The mixture and the single policy against the arrays; both are evaluated in the arrays, too."""
    model = random_model(kind, N, g, judged)
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
