"""Optimistic planning over a box of kernels: column generation against the extended LP written out for HiGHS."""

from __future__ import annotations

import time

import highspy
import numpy as np
from scipy import sparse

from cmdpkit.estimate.boxes import box_of
from cmdpkit.estimate.extended import ExtendedPlan, PairSource, plan
from cmdpkit.estimate.radii import bernstein, kernel_log
from cmdpkit.exact.columns import Columns

AGREE = 1e-7


class Instance:
    """A box around a kernel estimated from a few hundred visits a pair, and bounds that bind."""

    def __init__(self, H: int, S: int, A: int, N: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        moved = rng.integers(50, 500, (H, S, A))
        p_hat = rng.multinomial(moved, rng.dirichlet(np.full(S, 0.3), (H, S, A))) / moved[..., None]
        self.H, self.S, self.A, self.N = H, S, A, N
        log, n = kernel_log(S, A, H, 5000, 0.1), np.broadcast_to(moved[..., None], p_hat.shape)
        radius = np.vectorize(bernstein)(p_hat, n, log)
        self.lo, self.up = np.maximum(p_hat - radius, 0.0), np.minimum(p_hat + radius, 1.0)
        self.mu = np.eye(S)[0]
        row, to = (x.ravel() for x in np.indices((H * S * A, S)))
        sides, start = np.stack((self.lo.ravel(), self.up.ravel())), np.stack((self.mu, self.mu))
        self.box = box_of((H, S, A), row, to, sides, np.zeros(H * S * A), start)
        self.r, self.g = rng.random((H, S, A)), rng.random((N, H, S, A))
        self.x = np.concatenate((self.r[None], self.g))
        self.allowed = np.ones((1, S, A), dtype=bool)
        pool = Columns(PairSource(self.box, self.x, self.allowed, H, np.full(1 + N, float(H))))
        _, free, _ = pool.price(np.eye(1, 1 + N)[0])
        _, weights, _ = pool.reach(np.zeros(N), np.ones(N))
        best = sum(x * c.w for x, c in zip(weights, pool.columns, strict=False))
        self.rho = (free.w + best) / 2 * pool.units[1:]

    def plan(self) -> ExtendedPlan:
        return plan(self.box, self.x, self.rho, self.allowed, self.H)


class Rows:
    """Rows of an LP, collected block by block."""

    def __init__(self) -> None:
        self.count = 0
        self.blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # row, column, value
        self.limits: list[tuple[np.ndarray, np.ndarray]] = []  # lower, upper

    def add(
        self, entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]], lower: np.ndarray, upper: np.ndarray
    ) -> None:
        """A block of len(lower) rows; entries are (row in the block, column, value)."""
        for row, column, value in entries:
            self.blocks.append((row + self.count, column, np.broadcast_to(value, row.shape)))
        self.limits.append((lower, upper))
        self.count += len(lower)

    def lp(self, cost: np.ndarray) -> highspy.HighsLp:
        """Maximise cost . x over x >= 0."""
        row, column, value = (np.concatenate(part) for part in zip(*self.blocks, strict=True))
        matrix = sparse.csc_array((value, (row, column)), shape=(self.count, len(cost)))
        lp = highspy.HighsLp()
        lp.num_row_, lp.num_col_ = matrix.shape
        lp.sense_ = highspy.ObjSense.kMaximize
        lp.col_cost_ = cost
        lp.col_lower_, lp.col_upper_ = np.zeros(len(cost)), np.full(len(cost), highspy.kHighsInf)
        lp.row_lower_, lp.row_upper_ = (np.concatenate(part) for part in zip(*self.limits, strict=True))
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_, lp.a_matrix_.index_ = matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32)
        lp.a_matrix_.value_ = matrix.data
        return lp


def direct_lp(x: Instance) -> highspy.HighsLp:
    """The extended LP as sparse as it gets: q[h, s, a] beside z, no row for up = 1 or lo = 0, no z for up = 0.

    Columns: q [H, S, A], then z[h, s, a, s'] for h < H - 1, since the last step has no transition.
    """
    cells, inner = x.H * x.S * x.A, (x.H - 1) * x.S * x.A
    lo, up = x.lo[:-1].reshape(inner, x.S), x.up[:-1].reshape(inner, x.S)
    pair, s_next = np.nonzero(up > 0)
    q, z = np.arange(cells), cells + np.arange(len(pair))
    rows = Rows()
    flow = np.append(x.mu, np.zeros((x.H - 1) * x.S))
    rows.add([(q // x.A, q, 1.0), ((pair // (x.S * x.A) + 1) * x.S + s_next, z, -1.0)], flow, flow)
    rows.add([(pair, z, 1.0), (q[:inner], q[:inner], -1.0)], np.zeros(inner), np.zeros(inner))  # sum_s' z = q
    for limit, sign, binds in ((up, 1.0, up < 1), (lo, -1.0, lo > 0)):  # z <= up q, z >= lo q
        k = np.flatnonzero(binds[pair, s_next])
        entries = [(np.arange(len(k)), z[k], sign), (np.arange(len(k)), pair[k], -sign * limit[pair[k], s_next[k]])]
        rows.add(entries, np.full(len(k), -highspy.kHighsInf), np.zeros(len(k)))
    for utility, rho in zip(x.g, x.rho, strict=True):
        rows.add([(0 * q, q, utility.reshape(-1))], np.array([rho]), np.array([highspy.kHighsInf]))
    return rows.lp(np.append(x.r.reshape(-1), np.zeros(len(z))))


def highs_seconds(lp: highspy.HighsLp, solver: str) -> tuple[float, float]:
    """Run time (model building excluded) and optimum."""
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("solver", solver)
    highs.setOptionValue("run_crossover", "on")
    highs.passModel(lp)
    began = time.perf_counter()
    highs.run()
    seconds = time.perf_counter() - began
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"HiGHS ended as {highs.modelStatusToString(highs.getModelStatus())}")
    return seconds, highs.getObjectiveValue()


def compare(N: int, seed: int) -> dict[str, float]:
    instance = Instance(6, 25, 5, N, seed)
    ours = np.inf
    for _ in range(5):
        began = time.perf_counter()
        found = instance.plan()
        ours = min(ours, time.perf_counter() - began)
    lp = direct_lp(instance)
    seconds = {solver: highs_seconds(lp, solver) for solver in ("simplex", "ipm")}
    best, optimum = min(seconds.values())
    difference = abs(found.value - optimum)
    print(
        f"H=6 S=25 A=5 N={N}, {lp.num_col_:,} variables, {lp.num_row_:,} rows: columns {1000 * ours:.2f} ms, "
        f"HiGHS simplex {seconds['simplex'][0]:.2f} s, interior point + crossover {seconds['ipm'][0]:.2f} s; "
        f"ratio {best / ours:.0f}x (goal 20x), optima differ by {difference:.1e}",
        flush=True,
    )
    if difference > AGREE:
        raise RuntimeError(f"the optima {found.value} and {optimum} differ by more than {AGREE}")
    return {f"time of HiGHS over ours, optimistic planning, N={N}, instance {seed}": best / ours}


def main() -> dict[str, float]:
    for N in (1, 3):
        Instance(2, 2, 2, N, 0).plan()  # compile
    return compare(1, 0) | compare(1, 1) | compare(3, 0)
