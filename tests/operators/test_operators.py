"""Every operator on every form of transition rows, against exact fractions; compiled code against the interpreter.

Probabilities, values and signals are small multiples of powers of two, so that floating point is exact and every
comparison is an equality.
"""

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest

from cmdpkit.model.compiled import ONE, compiled, readonly
from cmdpkit.model.decisions import Decisions, of_table
from cmdpkit.model.transitions import Kernel, Rows, Signals
from cmdpkit.operators.rows import BestRows, Stepped, at_most, expect, expect2, prepare, push, row_of
from cmdpkit.operators.steps import (
    NO_CHOICE,
    all_drawn,
    backup,
    bellman,
    flow,
    induction,
    lookahead,
    occupy,
    sweep,
    sweeps,
)

pytestmark = pytest.mark.compiled
H, S, A, N = 3, 4, 3, 2


def dyadic(rng, parts, total=16):
    """A distribution of multiples of 1/16."""
    cuts = np.sort(rng.integers(0, total + 1, parts - 1))
    return np.diff(np.concatenate(([0], cuts, [total]))) / total


@compiled
def stepped(data, h, s, a, w):
    return (s + np.uint64(data[w]) + a * h) % np.uint64(S)


class Case:
    """Rows of one form, and the distribution [S] of every row as fractions, given the values of the next step."""

    def __init__(self, form, rng):
        self.form = form
        if form == "stepped":
            self.data, self.chance = rng.integers(0, S, 3), dyadic(rng, 3)
            self.rows = Stepped(stepped, self.data, self.chance)
            return
        self.T = H if form.endswith("by step") else 1
        self.p = np.array([dyadic(rng, S) for _ in range(self.T * S * A)]).reshape(self.T, S, A, S)
        if form.startswith("arrays"):
            kernel = Kernel.from_dense(self.p)
            self.rows = Rows.of(kernel.indptr, kernel.successors, kernel.prob, S, A)
            return
        flat = self.p.reshape(-1, S)
        self.listed = rng.random(flat.shape) < 0.6
        self.lo = np.where(self.listed, np.maximum(flat - rng.integers(0, 4, flat.shape) / 16, 0), 0)
        self.up = np.where(self.listed, np.minimum(flat + rng.integers(0, 4, flat.shape) / 16, 1), 0)
        self.unseen = np.maximum(np.where(self.listed, 0, flat).max(axis=1), 1 / 16)
        self.up = np.where(self.listed, self.up, self.unseen[:, None])
        row, state = np.nonzero(self.listed)
        ends = np.searchsorted(row, np.arange(len(flat) + 1))
        link = np.arange(1, len(row) + 1)
        link[ends[1:][np.diff(ends) > 0] - 1] = -1
        head = np.where(np.diff(ends) > 0, ends[:-1], -1)
        given = self.lo[row, state], self.up[row, state], self.unseen, 1 - self.lo.sum(axis=1)
        self.rows = BestRows.of((head, link, state), *given, (H, S, A))

    def distribution(self, h, s, a, V):
        """The row as fractions; of a box the one with the largest expectation of V, among all its extreme points."""
        if self.form == "stepped":
            found = [Fraction(0)] * S
            for w, chance in enumerate(self.chance):
                found[(s + int(self.data[w]) + a * h) % S] += Fraction(chance)
            return found
        if self.form.startswith("arrays"):
            return [Fraction(x) for x in self.p[h % self.T, s, a]]
        row = (h % self.T) * S * A + s * A + a
        corners = []
        for order in permutations(range(S)):
            p = [Fraction(x) for x in self.lo[row]]
            missing = 1 - sum(p)
            for i in order:
                more = min(Fraction(self.up[row, i]) - p[i], missing)
                p[i], missing = p[i] + more, missing - more
            corners.append(p)
        return max(corners, key=lambda p: inner(p, V))

    def expectation(self, h, s, a, V):
        return inner(self.distribution(h, s, a, V), V)


def inner(p, V):
    return sum((x * Fraction(float(v)) for x, v in zip(p, V, strict=True)), Fraction(0))


FORMS = ["arrays", "arrays by step", "best rows", "best rows by step", "stepped"]


@pytest.fixture(params=[(form, seed) for form in FORMS for seed in range(3)], ids=lambda x: f"{x[0]}-{x[1]}")
def case(request):
    form, seed = request.param
    rng = np.random.default_rng(seed)
    found = Case(form, rng)
    found.V = rng.permutation(np.arange(S)) / 4 - 1.0  # all different, so that a best row is unique
    found.X = np.column_stack((found.V, rng.integers(-8, 9, (S, N)) / 4))
    found.x = readonly(rng.integers(-8, 9, (H if seed else 1, S, A)) / 8)
    shape = (N, H if seed == 1 else 1, S, A)
    found.signals = Signals(found.x, readonly(rng.integers(-8, 9, shape) / 8))
    found.allowed = readonly((np.arange(A) > 0) | (rng.random((1 if seed else H, S, A)) < 0.5))
    pi = np.array([dyadic(rng, A) for _ in range(H * S)]).reshape(H, S, A)
    pi[rng.random((H, S)) < 0.5] = np.eye(A)[rng.integers(A)]
    found.pi, found.policy = pi, of_table(pi)
    return found


def signal(case, n, h, s, a):
    x = case.signals.r if n == 0 else case.signals.g[n - 1]
    return Fraction(float(x[h % len(x), s, a]))


@pytest.mark.parametrize("h", range(H))
def test_primitives_are_sums_over_the_distribution_of_a_row(case, h):
    prepare(case.rows, h, case.V)
    for s in range(S):
        for a in range(A):
            row, p = row_of(case.rows, h, s, a), case.distribution(h, s, a, case.V)
            assert expect(case.rows, row, case.V, 0.5) == Fraction(1, 2) + inner(p, case.V)
            assert at_most(case.rows, row, case.V, 0.5) >= Fraction(1, 2) + inner(p, case.V)
            both = expect2(case.rows, row, case.X, ONE, 0.25, 2.0)
            assert both == (Fraction(1, 4) + inner(p, case.X[:, 1]), 2 + inner(p, case.X[:, 2]))
            out = np.arange(S) / 2
            push(case.rows, row, 0.5, out)
            assert out.tolist() == [Fraction(i, 2) + x / 2 for i, x in enumerate(p)]


@pytest.mark.parametrize("h", range(H))
def test_bellman_takes_the_first_best_action_that_exists(case, h):
    prepare(case.rows, h, case.V)
    V, choice = np.full(S, 99.0), np.full(S, -1)
    bellman(case.rows, case.x, case.allowed, h, 1, S, case.V, V, choice)
    assert (V[0], choice[0]) == (99.0, -1)  # outside of the chunk
    for s in range(1, S):
        values = {a: signal(case, 0, h, s, a) + case.expectation(h, s, a, case.V) for a in range(A)}
        open_ = [a for a in range(A) if case.allowed[h % len(case.allowed), s, a]]
        best = max(values[a] for a in open_)
        assert (V[s], choice[s]) == (best, min(a for a in open_ if values[a] == best))


@pytest.mark.parametrize("h", range(H))
def test_lookahead_has_the_value_of_every_action(case, h):
    prepare(case.rows, h, case.V)
    Q = np.zeros((S, A))
    lookahead(case.rows, case.x, h, case.V, Q)
    for s in range(S):
        assert Q[s].tolist() == [signal(case, 0, h, s, a) + case.expectation(h, s, a, case.V) for a in range(A)]


@pytest.mark.parametrize("h", range(H))
@pytest.mark.parametrize("table", [False, True])
def test_backup_is_the_mean_over_actions_and_next_states(case, h, table):
    prepare(case.rows, h, case.V)
    policy = all_drawn(case.pi) if table else case.policy
    X, Q = np.full((S, 1 + N), 99.0), np.zeros((len(policy.s), A, 1 + N))
    backup(case.rows, case.signals, policy, h, 0, S, case.X, X, Q)
    drawn = {int(policy.s[i]): i for i in range(policy.first[h], policy.first[h + 1])}
    for s in range(S):
        rows = [case.distribution(h, s, a, case.V) for a in range(A)]
        for n in range(1 + N):
            values = [signal(case, n, h, s, a) + inner(rows[a], case.X[:, n]) for a in range(A)]
            assert X[s, n] == inner(values, case.pi[h, s])
            if s in drawn:
                used = case.pi[h, s] > 0
                assert Q[drawn[s], used, n].tolist() == [x for x, there in zip(values, used, strict=True) if there]


@pytest.mark.parametrize("h", range(H))
@pytest.mark.parametrize("table", [False, True])
def test_occupy_sends_every_mass_where_the_policy_leads_it(case, h, table):
    prepare(case.rows, h, case.V)
    d, d_next, totals = np.array([0.5, 0.0, -0.25, 1.0]), np.arange(S) / 4, np.zeros(1 + N)
    occupy(case.rows, all_drawn(case.pi) if table else case.policy, case.signals, h, d, d_next, totals)
    mass = {(s, a): Fraction(d[s]) * Fraction(case.pi[h, s, a]) for s in range(S) for a in range(A)}
    rows = {sa: case.distribution(h, *sa, case.V) for sa in mass}
    for i in range(S):
        assert d_next[i] == Fraction(i, 4) + sum(mass[sa] * rows[sa][i] for sa in mass)
    assert totals.tolist() == [sum(mass[sa] * signal(case, n, h, *sa) for sa in mass) for n in range(1 + N)]


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("K", [1, 2])
def test_sweep_is_the_damped_backup_of_a_chain(relative, K):
    rng = np.random.default_rng(K)
    P = np.array([dyadic(rng, S) for _ in range(S)])
    kernel = Kernel.from_dense(P.reshape(1, S, 1, S))
    rows = Rows.of(kernel.indptr, kernel.successors, kernel.prob, S, 1)
    x, Y = rng.integers(-8, 9, (S, K)) / 4, rng.integers(-8, 9, (S, K)) / 4
    Z, low, high = np.zeros((S, K)), np.zeros(K), np.zeros(K)
    sweep(rows, x, Y, Z, 0.5, relative, np.uint64(0), np.uint64(1) if K == 2 else None, low, high)
    for k in range(K):
        change = [Fraction(x[s, k]) + inner([Fraction(p) for p in P[s]], Y[:, k]) - Fraction(Y[s, k]) for s in range(S)]
        after = [Fraction(Y[s, k]) + change[s] / 2 for s in range(S)]
        assert Z[:, k].tolist() == [y - (after[0] if relative else 0) for y in after]
        assert (low[k], high[k]) == (min(change), max(change))


def no_draws():
    empty = np.zeros(H + 1, np.int64), np.zeros(0, np.int32), np.zeros((0, A))
    return Decisions(np.zeros((H, S), np.int16), *map(readonly, empty))


def both(function, make):
    """What the compiled function and the interpreter write to the arrays that `make` returns besides the arguments."""
    found = []
    for run in (function, function.interpret):
        arguments, written = make()
        run(*arguments)
        found.append([x.copy() for x in written])
    return found


def test_compiled_operators_do_what_the_interpreter_does_over_the_steps(case):
    none, fresh = np.zeros((0, 1, 1)), np.zeros((0, S))

    def best():
        policy, V, X = no_draws(), np.zeros((2, S)), np.zeros((2, S, 1 + N))
        return (case.rows, case.x, case.allowed, case.signals, policy, 0, H - 1, 0, S, V, X, none), (
            policy.choice,
            V,
            X,
        )

    def evaluated():
        X, Q = np.zeros((2, S, 1 + N)), np.zeros((len(case.policy.s), A, 1 + N))
        policy = case.policy._replace(choice=np.array(case.policy.choice))
        given = case.rows, case.x, case.allowed, case.signals, policy
        return (*given, 0, H - 1, 0, S, NO_CHOICE, X, Q), (X, Q)

    def carried():
        d, totals = np.zeros((H, S)), np.zeros(1 + N)
        d[0, 0] = 1.0
        return (case.rows, case.policy, case.signals, 0, H - 1, fresh, d, totals), (d, totals)

    for function, make in ((induction, best), (induction, evaluated), (flow, carried)):
        one, other = both(function, make)
        assert all(np.array_equal(x, y) for x, y in zip(one, other, strict=True))


def test_totals_forward_are_totals_backward(case):
    X, d, totals = np.zeros((2, S, 1 + N)), np.zeros((2, S)), np.zeros(1 + N)
    if case.form.startswith("best"):  # its rows depend on the values, which only a backward pass knows
        induction(case.rows, case.x, case.allowed, case.signals, no_draws(), 0, H - 1, 0, S, np.zeros((2, S)), X, X[:0])
    X[:] = 0.0
    d[0] = dyadic(np.random.default_rng(5), S)
    policy = case.policy._replace(choice=np.array(case.policy.choice))
    given = case.rows, case.x, case.allowed, case.signals, policy
    induction(*given, 0, H - 1, 0, S, NO_CHOICE, X, X[:0])
    flow(case.rows, case.policy, case.signals, 0, H - 1, np.zeros((0, S)), d, totals)
    assert np.allclose(totals, dyadic(np.random.default_rng(5), S) @ X[0], rtol=0, atol=1e-12)


def test_inflow_joins_at_its_step_and_may_be_negative():
    P = np.zeros((1, 2, 1, 2))
    P[0, 0, 0] = P[0, 1, 0] = 0.5
    kernel = Kernel.from_dense(P)
    rows, signals = (
        Rows.of(kernel.indptr, kernel.successors, kernel.prob, 2, 1),
        Signals(P[:, :, :, 0], P[None, :, :, :, 0]),
    )
    d, inflow = np.array([[1.0, 0.0], [9.0, 9.0], [9.0, 9.0]]), np.array([[9.0, 9.0], [0.25, 0.0], [0.0, -0.5]])
    policy = Decisions(np.zeros((1, 2), np.int16), np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros((0, 1)))
    flow(rows, policy, signals, 0, 2, inflow, d, np.zeros(0))
    assert d.tolist() == [[1, 0], [0.75, 0.5], [0.625, 0.125]]


def test_sweeps_end_at_the_goal_and_find_the_average():
    P = np.array([[0.5, 0.5], [0.25, 0.75]])
    kernel = Kernel.from_dense(P.reshape(1, 2, 1, 2))
    rows, x = Rows.of(kernel.indptr, kernel.successors, kernel.prob, 2, 1), np.array([[3.0, 1.0, 0.0], [0.0, 1.0, 6.0]])
    Y, widths, low, high = np.zeros((2, 3)), np.zeros(100), np.zeros(3), np.zeros(3)
    no = np.zeros(0)
    n = sweeps(rows, x, Y, np.zeros((2, 3)), 0.9, True, no, no, 1e-12, widths, low, high)
    assert n < 100 and widths[n - 1] <= 1e-12 < widths[n - 2]
    assert np.allclose((low + high) / 2, [1, 1, 4], rtol=0, atol=1e-12)  # a third of the time in the first state
