"""`ck.operators` against exact fractions, and an algorithm of a user built on them."""

import inspect
from fractions import Fraction

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit import CmdpkitError

ops = ck.operators
S, A = 5, 3
CRITERIA = {
    "horizon": {"horizon": 4},
    "discounted": {"discount": 0.75},
    "average": {"criterion": "average"},
    "total": {"criterion": "total"},
}


def instance(kind, seed):
    """A model with dyadic numbers, one action missing, and a policy that draws; for totals, state 4 ends the run."""
    rng = np.random.default_rng([seed, len(kind)])
    steps = 4 if kind == "horizon" and seed % 2 else 1
    P = rng.multinomial(8 if kind == "total" else 12, np.full(S, 1 / S), (steps, S, A)).astype(float)
    P[..., seed % S] += 4  # one recurrent class
    if kind == "total":
        P[..., S - 1] += 4
        P[:, S - 1] = np.eye(S)[S - 1]
    P /= P.sum(axis=-1, keepdims=True)
    r = rng.integers(-8, 9, (steps, S, A)) / 4
    if kind == "total":
        r[:, S - 1] = 0.0
    actions = np.ones((S, A), dtype=bool)
    actions[1, 0] = False
    squeeze = (lambda x: x) if steps > 1 else (lambda x: x[0])
    mu = rng.multinomial(8, np.full(S, 1 / S)) / 8
    cmdp = ck.CMDP(squeeze(P), r=squeeze(r), mu=mu, actions=actions, **CRITERIA[kind])
    pi = rng.multinomial(4, np.full(A, 1 / A), (cmdp.n_steps, S)) / 4
    pi[:, 1] = [0.0, 0.25, 0.75]
    return cmdp, P, pi


def exact(x):
    return np.vectorize(Fraction, otypes=[object])(np.asarray(x, dtype=float))


def solved(matrix, right):
    """The solution of a linear system of fractions, by Gauss and Jordan."""
    n = len(matrix)
    rows = np.column_stack((matrix, right)).astype(object)
    for i in range(n):
        pivot = next(k for k in range(i, n) if rows[k, i] != 0)
        rows[[i, pivot]] = rows[[pivot, i]]
        rows[i] = rows[i] / rows[i, i]
        for k in range(n):
            if k != i:
                rows[k] = rows[k] - rows[k, i] * rows[i]
    return rows[:, n]


def chain(P, pi):
    return np.einsum("sa,sat->st", exact(pi[0]), exact(P[0]))


def close(found, expected):
    np.testing.assert_allclose(found, np.asarray(expected, dtype=float), rtol=1e-12, atol=1e-12)


cases = pytest.mark.parametrize(("kind", "seed"), [(kind, seed) for kind in CRITERIA for seed in range(4)])


@cases
def test_bellman_and_greedy_take_the_best_available_action(kind, seed):
    cmdp, P, _ = instance(kind, seed)
    V = np.array([0.5, -1.0, 2.0, 0.0, 1.5])
    gamma = Fraction(cmdp.criterion.discount or 1)
    for h in range(cmdp.n_steps):
        for x in (None, np.arange(S * A).reshape(S, A) % 7 / 2):
            signal = exact(cmdp.r[h] if x is None else x)
            Q = signal + gamma * (exact(P[h % len(P)]) @ exact(V))
            Q[1, 0] = Fraction(-(10**9))
            close(ops.bellman(cmdp, V, x, h=h), Q.max(axis=1))
            assert ops.greedy(cmdp, V, x, h=h).tolist() == Q.argmax(axis=1).tolist()


@cases
def test_pushing_forward_is_the_transposed_chain(kind, seed):
    cmdp, P, pi = instance(kind, seed)
    d = np.array([0.5, 0.0, 0.25, -1.0, 0.25])
    for h in range(cmdp.n_steps):
        expected = np.einsum("s,sa,sat->t", exact(d), exact(pi[h]), exact(P[h % len(P)]))
        close(ops.push_forward(cmdp, d, pi, h=h), expected)


def shares(cmdp, P, pi):
    """Discounted or long-run share of time, or expected visits, [S]."""
    chained, one = chain(P, pi), exact(np.eye(S))
    if cmdp.criterion.kind == "discounted":
        gamma = Fraction(cmdp.criterion.discount)
        return solved(one - gamma * chained.T, (1 - gamma) * exact(cmdp.mu))
    if cmdp.criterion.kind == "total":
        there = solved((one - chained.T)[:-1, :-1], exact(cmdp.mu)[:-1])
        return np.append(there, Fraction(0))
    system = one - chained.T
    system[0] = Fraction(1)
    return solved(system, exact(np.eye(S)[0]))


@cases
def test_the_occupancy_solves_its_balance(kind, seed):
    cmdp, P, pi = instance(kind, seed)
    q = ops.occupancy(cmdp, pi)
    assert q.shape == (cmdp.n_steps, S, A)
    if kind == "horizon":
        d = exact(cmdp.mu)
        for h in range(4):
            close(q[h], d[:, None] * exact(pi[h]))
            d = np.einsum("s,sa,sat->t", d, exact(pi[h]), exact(P[h % len(P)]))
    else:
        close(q[0], shares(cmdp, P, pi)[:, None] * exact(pi[0]))


@cases
def test_values_of_a_policy_solve_its_bellman_equation(kind, seed):
    cmdp, P, pi = instance(kind, seed)
    for x in (None, np.arange(S * A).reshape(S, A) % 5 - 2.0):
        if kind == "total" and x is not None:
            x[S - 1] = 0.0
        signal = exact(np.broadcast_to(cmdp.r if x is None else x, (cmdp.n_steps, S, A)))
        Q, V = ops.evaluate(cmdp, pi, x)
        if kind == "horizon":
            then = exact(np.zeros(S))
            for h in range(3, -1, -1):
                expected = signal[h] + exact(P[h % len(P)]) @ then
                expected[1, 0] = Fraction(0)
                then = (exact(pi[h]) * expected).sum(axis=1)
                close(Q[h], expected)
                close(V[h], then)
            continue
        gain = (shares(cmdp, P, pi)[:, None] * exact(pi[0]) * signal[0]).sum() if kind == "average" else Fraction(0)
        gamma = Fraction(cmdp.criterion.discount or 1)
        one, here = exact(np.eye(S)), (exact(pi[0]) * signal[0]).sum(axis=1) - gain
        if kind == "discounted":
            expected = solved(one - gamma * chain(P, pi), here)
        elif kind == "total":
            expected = np.append(solved((one - chain(P, pi))[:-1, :-1], here[:-1]), Fraction(0))
        else:  # up to a constant
            expected = np.append(solved((one - chain(P, pi))[:-1, :-1], here[:-1]), Fraction(0))
            expected = expected + Fraction(float(V[0, S - 1]))
        close(V[0], expected)
        ahead = signal[0] - gain + gamma * (exact(P[0]) @ expected)
        ahead[1, 0] = Fraction(0)
        close(Q[0], ahead)


@pytest.mark.parametrize("kind", ["discounted", "average", "total"])
@pytest.mark.parametrize("seed", range(4))
def test_the_resolvent_and_its_adjoint_solve_their_systems(kind, seed):
    cmdp, P, pi = instance(kind, seed)
    x = np.array([1.0, -2.0, 0.5, 0.25, 0.0 if kind == "total" else 0.25])  # its sum is 0
    y, d = ops.resolvent(cmdp, pi, x), ops.resolvent(cmdp, pi, x, adjoint=True)
    gamma = Fraction(cmdp.criterion.discount or 1)
    chained = gamma * chain(P, pi)
    if kind == "total":
        chained[:, -1] = Fraction(0)  # what ends is not counted
    gain = shares(cmdp, P, pi) @ exact(x) if kind == "average" else Fraction(0)
    residual = exact(x) - gain + chained @ exact(y) - exact(y)
    assert max(abs(residual)) < 1e-12
    assert max(abs(exact(x) + chained.T @ exact(d) - exact(d))) < 1e-12
    if kind == "average":
        assert abs(d.sum()) < 1e-12
        assert (y == 0).any()
        with pytest.raises(CmdpkitError, match="x sums to 1, expected 0"):
            ops.resolvent(cmdp, pi, np.eye(S)[0], adjoint=True)
    else:
        np.testing.assert_allclose(cmdp.mu @ y, ops.resolvent(cmdp, pi, cmdp.mu, adjoint=True) @ x, atol=1e-12)


def test_actions_are_a_policy_also_where_their_shape_would_fit_probabilities():
    cmdp = ck.CMDP(np.full((2, 2, 2), 0.5), r=[[0.0, 1.0], [0.0, 2.0]], horizon=2)
    assert ops.evaluate(cmdp, np.array([[1, 0], [0, 1]])).V[1].tolist() == [0.0, 2.0]
    assert ops.evaluate(cmdp, np.array([[1.0, 0.0], [0.0, 1.0]])).V[1].tolist() == [0.0, 2.0]
    assert ops.evaluate(cmdp, np.array([[1, 0], [0, 1]])).V[0].tolist() == [2.0, 1.0]
    assert ops.evaluate(cmdp, [1, 1]).V[0].tolist() == [2.5, 3.5]


def test_wrong_shapes_and_steps_are_named():
    cmdp, _, pi = instance("horizon", 0)
    with pytest.raises(CmdpkitError, match=r"V has shape \(4,\), expected \(5,\)"):
        ops.bellman(cmdp, np.zeros(4))
    with pytest.raises(CmdpkitError, match=r"x has shape \(3, 5\), expected one that broadcasts to \(4, 5, 3\)"):
        ops.greedy(cmdp, np.zeros(S), np.zeros((A, S)))
    with pytest.raises(CmdpkitError, match=r"h is 4, expected a step from 0 to 3"):
        ops.push_forward(cmdp, np.zeros(S), pi, h=4)
    with pytest.raises(CmdpkitError, match=r"with a horizon has no resolvent: evaluate"):
        ops.resolvent(cmdp, pi, np.zeros(S))


def bisection(cmdp, low=0.0, high=1e4):
    def best(lam):
        x, V, a = cmdp.r + lam * cmdp.g[0], np.zeros(cmdp.S), np.zeros((cmdp.H, cmdp.S), int)
        for h in reversed(range(cmdp.H)):
            a[h], V = ops.greedy(cmdp, V, x, h=h), ops.bellman(cmdp, V, x, h=h)
        q = ops.occupancy(cmdp, a)
        return (q * cmdp.r).sum(), (q * cmdp.g[0]).sum()

    while high - low > 1e-10 * high:
        lam = (low + high) / 2
        low, high = (low, lam) if best(lam)[1] >= cmdp.rho[0] else (lam, high)
    (v, w), (v_met, w_met) = best(low), best(high)
    share = min(1.0, (cmdp.rho[0] - w) / (w_met - w))
    return (1 - share) * v + share * v_met


def test_a_bisection_of_fifteen_lines_finds_the_optimum_of_solve():
    assert len([line for line in inspect.getsource(bisection).splitlines() if line.strip()]) <= 15
    models = [ck.load("paper/synthetic")]
    for seed in range(8):
        rng = np.random.default_rng(seed)
        P, r, g = rng.dirichlet(np.full(6, 0.5), (6, 3)), rng.random((6, 3)), rng.random((6, 3))
        free = ck.CMDP(P, r=r, constraints=[ck.at_most("cost", 7.0, g)], horizon=7)
        least = -ck.solve(ck.CMDP(P, r=-g, horizon=7)).value
        cost = float(ck.evaluate(free, ck.solve(ck.CMDP(P, r=r, horizon=7)).policy).w[0])
        models.append(free.with_bounds(cost=(least + cost) / 2))  # binds, and can be met
    for cmdp in models:
        assert bisection(cmdp) == pytest.approx(ck.solve(cmdp).value, rel=1e-9)
