"""Planning over a box of kernels by another road: the extended LP in SciPy, straight from its definition.

Variables: the start distribution d[s] and z[h, s, a, s'] = Prob(s_h = s, a_h = a, s_{h+1} = s'), nothing left out.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog

from cmdpkit.estimate.boxes import Box, ExtendedPlan, box_of, plan

TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


class Sides(NamedTuple):
    """A box written out."""

    lo: np.ndarray  # [T, S, A, S]
    up: np.ndarray  # [T, S, A, S]
    start_lo: np.ndarray  # [S]
    start_up: np.ndarray  # [S]

    def boxed(self, H: int) -> Box:
        """The same box for H steps, as lists.

        Of each row, the largest group of states with one interval [0, up] is left out, and `unseen` says what up is.
        """
        _, S, A, _ = self.lo.shape
        lo, up = self.lo.reshape(-1, S), self.up.reshape(-1, S)
        unseen, listed = np.zeros(len(lo)), np.ones(lo.shape, dtype=bool)
        for i in range(len(lo)):
            values, times = np.unique(up[i, lo[i] == 0], return_counts=True)
            if len(values):
                unseen[i] = values[times.argmax()]
                listed[i] = (lo[i] > 0) | (up[i] != unseen[i])
        row, to = np.nonzero(listed)
        start = np.stack((self.start_lo, self.start_up))
        return box_of((H, S, A), row, to, np.stack((lo[listed], up[listed])), unseen, start)

    @classmethod
    def of(cls, box: Box) -> "Sides":
        """A box of lists, written out."""
        rows, S = box.rows, len(box.start.lo)
        lo, up = np.zeros((len(rows.head), S)), np.repeat(rows.unseen[:, None], S, axis=1)
        for row, j in enumerate(rows.head):
            while j >= 0:
                lo[row, rows.state[j]], up[row, rows.state[j]] = rows.lo[j], rows.up[j]
                j = rows.link[j]
        shape = (-1, S, int(rows.A), S)
        return cls(lo.reshape(shape), up.reshape(shape), box.start.lo, box.start.up)


def point(p: np.ndarray, mu: np.ndarray) -> Sides:
    """The box that holds one kernel and one start distribution."""
    return Sides(np.asarray(p), np.asarray(p), mu, mu)


class Problem(NamedTuple):
    """What an optimistic planner is given."""

    box: Sides
    r: np.ndarray  # [1 or H, S, A]
    g: np.ndarray  # [N, 1 or H, S, A]
    rho: np.ndarray  # [N]
    allowed: np.ndarray  # [1 or H, S, A]
    H: int

    @property
    def x(self) -> np.ndarray:
        """[1 + N, 1 or H, S, A]: reward and utilities together."""
        steps = max(len(self.r), *(len(g) for g in self.g)) if len(self.g) else len(self.r)
        return np.array([np.broadcast_to(x, (steps, *self.r.shape[1:])) for x in (self.r, *self.g)])

    def plan(self, **options: Any) -> ExtendedPlan:
        """The plan under test."""
        return plan(self.box.boxed(self.H), self.x, self.rho, self.allowed, self.H, **options)


def optimum(x: Problem, weights: np.ndarray, *, bounded: bool) -> float | None:
    """Maximise weights . (v, w) over policies and kernels of the box, with w >= rho if `bounded`; None: infeasible."""
    d_and_z = np.concatenate([totals(x, signal)[None] for signal in (x.r, *x.g)])  # [1 + N, variables]
    equal, source, below = _polytope(x)
    limits = np.zeros(len(below))
    if bounded:
        below, limits = np.vstack([below, -d_and_z[1:]]), np.append(limits, -x.rho)
    return _solve(-(weights @ d_and_z), equal, source, below, limits, _ranges(x))


def compromise(x: Problem, per: np.ndarray) -> float:
    """The largest t such that some pair of policy and kernel has w_n >= rho_n + t per_n for every n."""
    equal, source, below = _polytope(x)
    w = np.array([totals(x, signal) for signal in x.g])
    below = np.block([[below, np.zeros((len(below), 1))], [-w, per[:, None]]])
    limits = np.append(np.zeros(len(below) - len(w)), -x.rho)
    cost = np.append(np.zeros(equal.shape[1]), -1.0)
    equal = np.hstack([equal, np.zeros((len(equal), 1))])
    return _solve(cost, equal, source, below, limits, [*_ranges(x), (None, None)])


def distance(x: Problem, pi: np.ndarray, values: np.ndarray) -> float:
    """How far (v, w_1 .. w_N) is, at most in one of them, from what pi has in some model of the box."""
    H, S, A = _sizes(x)
    equal, source, below = _polytope(x)
    z = S + np.arange(H * S * A * S).reshape(H, S, A, S)
    follows = np.zeros((H, S, A, equal.shape[1]))  # sum_s' z[h, s, a, s'] = pi[h, s, a] sum_{a, s'} z[h, s, a, s']
    for h, s, a in np.ndindex(H, S, A):
        follows[h, s, a, z[h, s].ravel()] -= pi[h, s, a]
        follows[h, s, a, z[h, s, a]] += 1.0
    equal = np.vstack([equal, follows.reshape(H * S * A, -1)])
    d_and_z = np.array([totals(x, signal) for signal in (x.r, *x.g)])
    apart = -np.ones((len(values), 1))
    below = np.block([[below, np.zeros((len(below), 1))], [d_and_z, apart], [-d_and_z, apart]])
    limits = np.concatenate([np.zeros(len(below) - 2 * len(values)), values, -values])
    equal = np.hstack([equal, np.zeros((len(equal), 1))])
    source = np.append(source, np.zeros(H * S * A))
    nearest = _solve(
        np.append(np.zeros(equal.shape[1] - 1), 1.0), equal, source, below, limits, [*_ranges(x), (0, None)]
    )
    assert nearest is not None
    return -nearest


def totals(x: Problem, signal: np.ndarray) -> np.ndarray:
    """Coefficients of the expected total of a signal, over (d, z)."""
    H, S, A = _sizes(x)
    return np.append(np.zeros(S), np.repeat(np.broadcast_to(signal, (H, S, A)).ravel(), S))


def _sizes(x: Problem) -> tuple[int, int, int]:
    return x.H, *x.r.shape[1:]


def _polytope(x: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Equalities and their right side, and inequalities (<= 0): flow, and every row of z inside the box."""
    H, S, A = _sizes(x)
    z = S + np.arange(H * S * A * S).reshape(H, S, A, S)
    size = S + z.size
    lo, up = (np.broadcast_to(side, z.shape) for side in (x.box.lo, x.box.up))
    equal, below = [np.append(np.ones(S), np.zeros(z.size))], []
    for h in range(H):
        for s in range(S):
            row = np.zeros(size)
            row[z[h, s]] += 1.0
            row[s if h == 0 else z[h - 1, :, :, s]] -= 1.0
            equal.append(row)
            for a in range(A):
                for s_next in range(S):
                    row = np.zeros(size)
                    row[z[h, s, a]] = -up[h, s, a, s_next]
                    row[z[h, s, a, s_next]] += 1.0
                    below.append(row)
                    row = np.zeros(size)
                    row[z[h, s, a]] = lo[h, s, a, s_next]
                    row[z[h, s, a, s_next]] -= 1.0
                    below.append(row)
    return np.array(equal), np.append(1.0, np.zeros(len(equal) - 1)), np.array(below)


def _ranges(x: Problem) -> list[tuple[float, float | None]]:
    H, S, A = _sizes(x)
    exists = np.repeat(np.broadcast_to(x.allowed, (H, S, A)).ravel(), S)
    start = list(zip(x.box.start_lo, x.box.start_up, strict=True))
    return [*start, *((0.0, None) if there else (0.0, 0.0) for there in exists)]


def _solve(cost, equal, source, below, limits, ranges) -> float | None:
    answer = linprog(
        cost, A_ub=below, b_ub=limits, A_eq=equal, b_eq=source, bounds=ranges, method="highs-ds", options=TIGHT
    )
    if answer.status == 2:
        return None
    if answer.status != 0:
        raise RuntimeError(f"linprog: {answer.message}")
    return float(-answer.fun)


def start_values(x: Problem, pi: np.ndarray, p: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """(v, w_1 .. w_N) of a policy under a kernel, forward: occupancies times signals."""
    d, out = mu, np.zeros(1 + len(x.g))
    for h in range(x.H):
        q = d[:, None] * pi[h]
        out += [(q * signal[h % len(signal)]).sum() for signal in (x.r, *x.g)]
        d = np.einsum("sa,sat->t", q, p[h % len(p)])
    return out


def problem(rng: np.random.Generator, N: int) -> Problem:
    """A tiny random problem: stationary or not, missing actions that would pay, boxes wide, narrow and a point."""
    H, S, A = (int(n) for n in rng.integers(1, 4, 3))
    steps = {"box": (1, H)[rng.integers(2)], "r": (1, H)[rng.integers(2)], "g": (1, H)[rng.integers(2)]}
    allowed = rng.random(((1, H)[rng.integers(2)], S, A)) < 0.8
    allowed[..., rng.integers(A)] = True
    if rng.random() < 0.3:  # ties everywhere
        r, g = rng.integers(0, 2, (steps["r"], S, A)) * 1.0, rng.integers(0, 2, (N, steps["g"], S, A)) * 1.0
    else:
        r, g = rng.normal(size=(steps["r"], S, A)), rng.normal(size=(N, steps["g"], S, A))
    never = ~allowed.any(axis=0)
    r[:, never], g[:, :, never] = 10.0, 10.0
    lo, up = random_box(rng, (steps["box"], S, A, S))
    start_lo, start_up = random_box(rng, (S,))
    x = Problem(Sides(lo, up, start_lo, start_up), r, g, np.zeros(N), allowed, H)
    return x._replace(rho=_threshold(rng, x))


def random_box(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Around random distributions: some rows a point, some everything, some in between."""
    S = shape[-1]
    p = rng.dirichlet(np.full(S, 0.5), shape[:-1]) if S > 1 else np.ones(shape)
    width = rng.choice([0.0, 0.1, 0.4, 1.0], size=(*shape[:-1], 1)) * rng.random(shape) ** 0.3
    return np.maximum(p - width, 0.0), np.minimum(p + width, 1.0)


def _threshold(rng: np.random.Generator, x: Problem) -> np.ndarray:
    """Utilities of a random pair of policy and kernel, shifted: inside, near the edge of, or beyond what can be had."""
    H, S, A = _sizes(x)
    pi = rng.dirichlet(np.full(A, 0.3), (H, S)) * np.broadcast_to(x.allowed, (H, S, A)) + 1e-9 * x.allowed
    p = (x.box.lo + x.box.up) / (x.box.lo + x.box.up).sum(axis=-1, keepdims=True)
    mu = (x.box.start_lo + x.box.start_up) / (x.box.start_lo + x.box.start_up).sum()
    w = start_values(x, pi / pi.sum(axis=-1, keepdims=True), p, mu)[1:]
    return w + rng.choice([-0.1, 0.3, 1.5]) * rng.random(len(w))
