"""Exact solving: column generation against the best HiGHS run that ends at a vertex, and how far it scales."""

from __future__ import annotations

import resource
import subprocess
import sys
import time

import highspy
import numpy as np

import cmdpkit as ck
from cmdpkit.exact.columns import Pool
from cmdpkit.exact.occupancy_lp import build_lp


def sparse_model(S: int, A: int, H: int, successors: int, N: int, seed: int = 0) -> ck.CMDP:
    """Random successors; bounds halfway between what the reward optimum has by itself and the best compromise."""
    rng = np.random.default_rng(seed)
    rows, nexts = np.repeat(np.arange(S * A), successors), rng.integers(0, S, S * A * successors)
    kernel = ck.Kernel.from_entries((1, S, A), rows, nexts, rng.dirichlet(np.ones(successors), S * A).reshape(-1))
    cmdp = ck.CMDP(kernel, rng.random((S, A)), rng.random((N, S, A)), np.zeros(N), 0, horizon=H)
    pool = Pool(cmdp)
    _, free = pool.price(1.0, np.zeros(N))
    _, weights, _ = pool.reach(pool.scaled(np.zeros(N)), np.ones(N))
    best = sum(x * c.w for x, c in zip(weights, pool.columns, strict=False))
    rho = (free.w + best) / 2 * pool.units[1:] + pool.offsets[1:]
    return cmdp.with_bounds(**{c.name: float(x) for c, x in zip(cmdp.constraints, rho, strict=True)})


def highs_seconds(cmdp: ck.CMDP, solver: str, limit: float) -> tuple[float, float]:
    """Run time (model building excluded) and objective of one HiGHS method that ends at a vertex."""
    units = Pool(cmdp).units
    highs = highspy.Highs()
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("solver", solver)
    highs.setOptionValue("run_crossover", "on")
    highs.setOptionValue("time_limit", limit)
    highs.passModel(build_lp(cmdp, cmdp.rho, units, np.flatnonzero(cmdp.actions.reshape(-1))))
    began = time.perf_counter()
    highs.run()
    done = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return (time.perf_counter() - began if done else np.inf), highs.getObjectiveValue() * units[0]


def compare(N: int) -> dict[str, float]:
    cmdp = sparse_model(500, 5, 20, 5, N)
    ours = min((ck.solve(cmdp, "columns") for _ in range(5)), key=lambda s: s.seconds)
    ipm, objective = highs_seconds(cmdp, "ipm", 600.0)
    simplex, _ = highs_seconds(cmdp, "simplex", 2 * ipm)
    best = min(ipm, simplex)
    shown = f"{simplex:.2f} s" if np.isfinite(simplex) else f"> {2 * ipm:.0f} s (stopped)"
    print(
        f"S=500 A=5 H=20, 5 successors, N={N}: columns {1000 * ours.seconds:.1f} ms, HiGHS interior point + crossover "
        f"{ipm:.2f} s, simplex {shown}; ratio {best / ours.seconds:.0f}x, objectives differ by "
        f"{abs(ours.value - objective):.1e}, relative gap {ours.gap / ours.value:.1e}",
        flush=True,
    )
    return {f"time of HiGHS over ours, exact optimum, N={N}": best / ours.seconds}


def large(S: int) -> None:
    """In a process of its own, so that the peak memory is this model's."""
    code = f"from bench.solver import report_large; report_large({S})"
    subprocess.run([sys.executable, "-c", code], check=True)


def report_large(S: int) -> None:
    ck.solve(sparse_model(10, 5, 20, 5, 1))  # compile
    cmdp = sparse_model(S, 5, 20, 5, 1)
    solution = ck.solve(cmdp, "columns")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"S={S:,} A=5 H=20, {cmdp.kernel.nonzeros:,} nonzeros, N=1: {solution.seconds:.2f} s, peak memory "
        f"{peak / 1e6:.2f} GB, relative gap {solution.gap / solution.value:.1e}",
        flush=True,
    )


def main() -> dict[str, float]:
    ck.solve(sparse_model(10, 2, 3, 2, 1))  # compile
    ratios = compare(1) | compare(3)
    large(20_000)
    large(200_000)
    return ratios
