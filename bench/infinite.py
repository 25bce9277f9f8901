"""Models without a horizon: column generation against the fastest HiGHS run, and how far it scales."""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import highspy
import numpy as np
from scipy import sparse

import cmdpkit as ck

CRITERIA = ({"discount": 0.99}, {"criterion": "average"})


def sparse_model(S: int, N: int, seed: int = 1, A: int = 5, **criterion: object) -> ck.CMDP:
    """Every action has five random successors; bounds halfway between what comes by itself and the best."""
    from cmdpkit.exact.sources import columns_of

    rng = np.random.default_rng(seed)
    successors = 5
    rows, nexts = np.repeat(np.arange(S * A), successors), rng.integers(0, S, S * A * successors)
    kernel = ck.Kernel.from_entries((1, S, A), rows, nexts, rng.dirichlet(np.ones(successors), S * A).reshape(-1))
    constraints = [ck.at_least(f"utility {n + 1}", 0.0, rng.random((S, A))) for n in range(N)]
    cmdp = ck.CMDP(kernel, rng.random((S, A)), constraints=constraints, **criterion)
    pool = columns_of(cmdp)
    _, free, _ = pool.price(np.eye(1, 1 + N)[0])
    _, weights, _ = pool.reach(np.full(N, -2.0), np.ones(N))
    best = sum(x * c.w for x, c in pool.parts(weights))
    own = (free.w + best) / 2 * pool.units[1:] + pool.offsets[1:]
    return cmdp.with_bounds(**{c.name: float(x) for c, x in zip(cmdp.constraints, own, strict=True)})


def program(cmdp: ck.CMDP) -> highspy.HighsLp:
    """The occupancy program in normalised units: balance of every state (and total mass 1 for averages), bounds."""
    S, A, N, k = cmdp.S, cmdp.A, cmdp.N, cmdp.kernel
    gamma = cmdp.criterion.discount or 1.0
    out = sparse.kron(sparse.identity(S), np.ones((1, A)))
    into = sparse.csr_array((k.prob, k.successors, k.indptr), shape=(S * A, S)).T
    blocks = [out - gamma * into, np.ones((1, S * A)), *(x[0].reshape(1, -1) for x in cmdp.g)]
    matrix = sparse.csc_array(sparse.vstack(blocks))
    steps = cmdp.criterion.steps_in_value or 1.0
    source = np.append((1 - gamma) * cmdp.mu, 1.0)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = S * A, S + 1 + N
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = cmdp.r[0].reshape(-1)
    lp.col_lower_, lp.col_upper_ = np.zeros(S * A), np.full(S * A, highspy.kHighsInf)
    lp.row_lower_ = np.concatenate((source, cmdp.rho / steps))
    lp.row_upper_ = np.concatenate((source, np.full(N, highspy.kHighsInf)))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = matrix.indptr.astype(np.int32)
    lp.a_matrix_.index_ = matrix.indices.astype(np.int32)
    lp.a_matrix_.value_ = matrix.data
    return lp


def highs_seconds(cmdp: ck.CMDP, solver: str, limit: float) -> tuple[float, float]:
    """Run time (model building excluded) and value in own units of one HiGHS method that ends at a vertex."""
    highs = highspy.Highs()
    for option, value in (
        ("output_flag", False),
        ("solver", solver),
        ("run_crossover", "on"),
        ("threads", 1),
        ("time_limit", limit),
        ("primal_feasibility_tolerance", 1e-10),
        ("dual_feasibility_tolerance", 1e-10),
    ):
        highs.setOptionValue(option, value)
    highs.passModel(program(cmdp))
    began = time.perf_counter()
    highs.run()
    done = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return (time.perf_counter() - began if done else np.inf), highs.getObjectiveValue() * (
        cmdp.criterion.steps_in_value or 1.0
    )


def compare(S: int, N: int, criterion: dict[str, object]) -> None:
    cmdp = sparse_model(S, N, **criterion)
    ours = min((ck.solve(cmdp) for _ in range(3)), key=lambda s: s.seconds)
    ipm, value = highs_seconds(cmdp, "ipm", 600.0)
    simplex, by_simplex = highs_seconds(cmdp, "simplex", 2 * ipm + 1)
    best, value = (ipm, value) if ipm <= simplex else (simplex, by_simplex)
    print(
        f"S={S:,} {cmdp.criterion}, N={N}: columns {1000 * ours.seconds:.0f} ms, HiGHS interior point {ipm:.2f} s, "
        f"simplex {simplex:.2f} s; ratio {best / ours.seconds:.1f}x, values differ by "
        f"{abs(ours.value - value) / value:.1e} (relative), relative gap "
        f"{ours.gap / ours.value:.1e}, {len(ours.stochastic_decisions())} states draw",
        flush=True,
    )


def large(S: int, criterion: dict[str, object]) -> None:
    """In a process of its own, so that the peak memory is this model's."""
    subprocess.run([sys.executable, "-c", f"from bench.infinite import report; report({S}, {criterion!r})"], check=True)


def report(S: int, criterion: dict[str, object]) -> None:
    cmdp = sparse_model(S, 1, **criterion)
    found = ck.solve(cmdp)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"S={S:,} {cmdp.criterion}, N=1: {found.seconds:.2f} s, peak memory {peak / 1e6:.2f} GB, relative gap "
        f"{found.gap / found.value:.1e}, {len(found.stochastic_decisions())} states draw",
        flush=True,
    )


def main() -> None:
    ck.solve(sparse_model(10, 1, discount=0.9))  # loads everything
    for criterion in CRITERIA:
        for S in (50, 500, 5_000):
            for N in (1, 3):
                compare(S, N, criterion)
    compare(500, 1, {"discount": 0.9999})
    compare(500, 3, {"discount": 0.9999})
    for criterion in CRITERIA:
        large(50_000, criterion)
