"""Stationary problems by another road: SciPy's linear programs and exact fractions, from the definitions alone."""

import itertools
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog

import cmdpkit as ck

TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def model_of(P, r, g, mu, kind, discount=1.0) -> ck.CMDP:
    """Dense P [S, A, S], r [S, A], g [N, S, A] as a model whose bounds are 0."""
    criterion = {"discount": discount} if kind == "discounted" else {"criterion": kind}
    bounds = [ck.at_least(f"g{n}", 0.0, x) for n, x in enumerate(g)]
    return ck.CMDP(P, r, constraints=bounds, mu=mu, **criterion)


def bounded(cmdp: ck.CMDP, rho) -> ck.CMDP:
    """The same model with bounds rho [N]."""
    return cmdp.with_bounds(**{c.name: float(x) for c, x in zip(cmdp.constraints, rho, strict=True)})


def optimum(P, r, g, rho, mu, kind, discount=1.0) -> float | None:
    """The optimal value in the criterion's own unit; None where SciPy finds the bounds infeasible.

    Discounted: the long-run program of the chain that restarts from mu with probability 1 - discount, which is better
    conditioned than the usual one. Average: the two-block program over long-run frequencies x and visits y.
    """
    S, A, _ = P.shape
    N = len(g)
    out, into = np.kron(np.eye(S), np.ones((1, A))), P.reshape(S * A, S).T
    factor = 1.0
    cost, bounds = -r.ravel(), -g.reshape(N, S * A)
    if kind == "average":
        nothing = np.zeros((S, S * A))
        balance, source = np.block([[out - into, nothing], [out, out - into]]), np.append(np.zeros(S), mu)
        cost, bounds = np.append(cost, np.zeros(S * A)), np.hstack([bounds, np.zeros((N, S * A))])
    elif kind == "discounted":
        factor = 1 / (1 - discount)
        restart = discount * into + (1 - discount) * np.outer(mu, np.ones(S * A))
        balance, source = np.vstack([out - restart, np.ones((1, S * A))]), np.append(np.zeros(S), 1.0)
    else:
        balance, source = out - into, mu
    limits = {"A_ub": bounds, "b_ub": -rho / factor} if N else {}
    for options in (TIGHT, {**TIGHT, "presolve": False}):
        answer = linprog(cost, A_eq=balance, b_eq=source, method="highs-ds", options=options, **limits)
        if answer.status == 0:
            return float(-answer.fun * factor)
    return None


def exact_discounted(P, r, g, rho, mu, discount) -> Fraction | None:
    """The optimum with at most one bound in exact fractions: the best of all deterministic policies and their pairs.

    Discounted occupancies are mixtures of those of deterministic policies, and with one bound two of them suffice.
    """
    S, A = len(r), len(r[0])
    points = []
    for choice in itertools.product(range(A), repeat=S):
        rows = [
            [Fraction(int(i == j)) - discount * P[j][choice[j]][i] for j in range(S)] for i in range(S)
        ]  # d = mu + discount P^T d
        d = solve_fractions(rows, list(mu))
        v = sum(d[s] * r[s][choice[s]] for s in range(S))
        w = sum(d[s] * g[s][choice[s]] for s in range(S)) if g is not None else Fraction(0)
        points.append((v, w))
    if g is None:
        return max(v for v, _ in points)
    best = [v for v, w in points if w >= rho]
    for (v1, w1), (v2, w2) in itertools.product(points, points):
        if w1 < rho < w2:
            share = (rho - w1) / (w2 - w1)
            best.append(v1 + share * (v2 - v1))
    return max(best) if best else None


def solve_fractions(rows, b):
    """Gaussian elimination in exact arithmetic."""
    n = len(b)
    m = [[*row, x] for row, x in zip(rows, b, strict=True)]
    for i in range(n):
        pivot = next(k for k in range(i, n) if m[k][i] != 0)
        m[i], m[pivot] = m[pivot], m[i]
        m[i] = [x / m[i][i] for x in m[i]]
        for k in range(n):
            if k != i and m[k][i] != 0:
                m[k] = [x - m[k][i] * y for x, y in zip(m[k], m[i], strict=True)]
    return [row[-1] for row in m]


def random_model(rng: np.random.Generator, *, blocks: bool = False):
    """P, r, g, mu with 3 to 12 states, dense or sparse, generic or full of ties; with `blocks`, some never left."""
    S, A, N = int(rng.integers(3, 13)), int(rng.integers(2, 4)), int(rng.integers(0, 4))
    if rng.random() < 0.5:
        P = np.zeros((S, A, S))
        for s, a in itertools.product(range(S), range(A)):
            np.add.at(P[s, a], rng.integers(0, S, rng.integers(1, 3)), 1.0)
        r, g = rng.integers(0, 3, (S, A)).astype(float), rng.integers(0, 3, (N, S, A)).astype(float)
    else:
        # Tiny probabilities are left out: SciPy's tolerance, divided by them, would be all that is compared.
        P = rng.dirichlet(np.full(S, 0.3), (S, A))
        P = np.where(P < 1e-3, 0.0, P)
        r, g = rng.random((S, A)), rng.random((N, S, A))
    if blocks:
        block = np.sort(rng.integers(0, 3, S))
        for s, a in itertools.product(range(S), range(A)):
            inside = block == block[s] if a or rng.random() < 0.4 else block >= block[s]
            P[s, a] = P[s, a] * inside
            if not P[s, a].any():
                P[s, a, rng.choice(np.flatnonzero(inside))] = 1.0
    mu = rng.dirichlet(np.ones(S)) if rng.random() < 0.5 else np.eye(S)[0]
    return P / P.sum(axis=-1, keepdims=True), r, g, mu
