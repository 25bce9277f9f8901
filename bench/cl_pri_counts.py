"""CL-PRI with counts on the instances of the paper and on random ones, its speed, and its memory.

python -m bench cl_pri_counts             everything, a quarter of an hour
python -c "from bench.cl_pri_counts import synthetic; synthetic()"      one of them: synthetic, grid, random, memory
"""

from __future__ import annotations

import time

import numpy as np

from bench._suite import problems
from bench.cl_pri import instances, interval, plays, report
from cmdpkit import envs
from cmdpkit.learners import Source, Spec, load
from cmdpkit.simulate.random import stream


def synthetic(K: int = 8_000_000, seeds: int = 20) -> None:
    """Also the speed: wall-clock time of all seeds on two threads."""
    began = time.perf_counter()
    runs = plays(envs.build("paper/synthetic"), "cl-pri", K, range(seeds))
    report(f"paper/synthetic, {K:,} episodes", runs, time.perf_counter() - began)


def grid(K: int = 10_400_000, seeds: int = 10) -> None:
    began = time.perf_counter()
    runs = plays(envs.build("paper/grid"), "cl-pri", K, range(seeds))
    report(f"paper/grid, {K:,} episodes", runs, time.perf_counter() - began)


def random(K: int = 2_000_000, seeds: int = 5, n: int = 30) -> None:
    """Right support, gap, violation and regret on the random instances of `bench.cl_pri`."""
    print(f"random instances, {K:,} episodes, {seeds} seeds; means over seeds, violations the largest of any seed")
    print("| H, S, A, N | regret | realised violation | gap | bounds | support: all, often | s of processor time |")
    print("|---|---|---|---|---|---|---|", flush=True)
    everything = []
    for given in instances(n):
        cmdp = envs.build("random", **given)
        runs = plays(cmdp, "cl-pri", K, range(seeds))
        everything += runs
        cells = (
            f"{cmdp.H}, {cmdp.S}, {cmdp.A}, {cmdp.N}",
            f"{np.mean([x.tally.weak.regret for x in runs]):,.0f}",
            f"{max(x.tally.realised.violation.max() for x in runs):,.0f}",
            f"{np.mean([x.gap for x in runs]):.4f}",
            f"{sum(x.margin >= 0 for x in runs)} of {seeds}",
            f"{sum(x.same for x in runs)}, {sum(x.often for x in runs)} of {seeds}",
            f"{np.mean([x.seconds for x in runs]):.1f}",
        )
        print("| " + " | ".join(cells) + " |", flush=True)
    gaps = [x.gap for x in everything]
    print(f"mean regret {interval(x.tally.weak.regret for x in everything)}", end=", ")
    print(f"support of the optimum in {sum(x.same for x in everything)} of {len(everything)} runs", end=", ")
    print(f"in states reached often in {sum(x.often for x in everything)}")
    print(f"gap mean {np.mean(gaps):.4f}, largest {max(gaps):.4f}", end=", ")
    print(f"bounds met in {sum(x.margin >= 0 for x in everything)}", end=", ")
    print(f"realised violation <= 0 in {sum(x.tally.realised.violation.max() <= 0 for x in everything)}", flush=True)


def memory(K: int = 10_000) -> None:
    """Bytes of a saved learner after K episodes against the tables without counts, on the development suite."""
    ratios = []
    for name, cmdp in problems("development", copies=1):
        sizes = []
        for kind in ("counts", "none"):
            learner = load("cl-pri")(Spec.of(cmdp, K), memory=kind)
            learner.run(Source.of(cmdp), stream(0), K)
            sizes.append(sum(x.nbytes for x in learner.state().values()))
        ratios.append(sizes[0] / sizes[1])
        print(f"  {name}: {sizes[0] / 1e3:,.0f} kB with counts, {sizes[1] / 1e3:,.0f} kB without", flush=True)
    print(f"counts / tables: median {np.median(ratios):.2f}, largest {max(ratios):.2f}", flush=True)


def main() -> None:
    synthetic(K=20_000, seeds=2)  # compile
    synthetic()
    grid()
    random()
    memory()
