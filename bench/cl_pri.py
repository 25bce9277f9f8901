"""CL-PRI: the tables of docs/algorithms/cl-pri.md. Seeds run on two processes; figures are exact unless named.

python -m bench cl_pri                    everything with counts, half an hour
python -c "from bench.cl_pri import synthetic; synthetic(algo='mf-pri')"
                                          one of them, here without counts: synthetic, grid, random, sizes
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from bench._suite import problems
from cmdpkit import CMDP, Policy, Solution, envs, evaluate, occupancy, solve
from cmdpkit.learners import Source, Spec, load
from cmdpkit.simulate.meter import Tally
from cmdpkit.simulate.random import stream

WORKERS = 2
USED = 1e-6  # an occupancy above this counts as use, when supports are compared
OFTEN = 1e-3  # reached in one of a thousand episodes


class Outcome(NamedTuple):
    """One run."""

    tally: Tally
    gap: float  # what the policy handed over lacks of the optimum
    margin: float  # by how much it clears its tightest bound
    same: bool  # it uses the actions of the optimum and no others, wherever either gets
    often: bool  # the same, in states that either reaches often
    decisions: tuple[tuple[int, Any], ...]  # its stochastic ones
    undecided: int
    width: float  # of the certificate, widest utility
    seconds: float  # of processor time, for the run and its certificate


def play(solution: Solution, algo: str, K: int, seed: int, **params: Any) -> Outcome:
    cmdp = solution.cmdp
    source, learner = Source.of(cmdp, solution.value), load(algo)(Spec.of(cmdp, K), **params)
    began = time.thread_time()
    learner.run(source, stream(seed), K)
    found = learner.certificate() if hasattr(learner, "certificate") else None
    seconds = time.thread_time() - began
    policy = Policy.of(cmdp, learner.recommend())
    values, q = evaluate(cmdp, policy), occupancy(cmdp, policy)
    reach = q.sum(axis=-1)
    reached = np.maximum(reach, solution.occupancy.sum(axis=-1))
    agree = ((q > USED) == (solution.occupancy > USED)).all(axis=-1)
    return Outcome(
        tally=source.meter.tally(),
        gap=solution.value - values.v,
        margin=float((values.w * cmdp.signs - cmdp.rho).min(initial=np.inf)),
        same=bool(agree[reached > USED].all()),
        often=bool(agree[reached > OFTEN].all()),
        decisions=tuple((d.step, d.state) for d in policy.stochastic_decisions(reach=reach)),
        undecided=learner.explain().get("actions undecided", 0),  # only without counts
        width=max((high - low for low, high in found.intervals[1:]), default=0.0) if found else np.nan,
        seconds=seconds,
    )


def plays(cmdp: CMDP, algo: str, K: int, seeds: Iterable[int], **params: Any) -> list[Outcome]:
    solution = solve(cmdp)
    with ProcessPoolExecutor(WORKERS) as pool:
        return list(pool.map(partial(play, solution, algo, K, **params), seeds))


def interval(x: Iterable[float]) -> str:
    """Mean and twice its standard error."""
    values = np.array(list(x))
    return f"{values.mean():,.0f} ± {2 * values.std(ddof=1) / np.sqrt(len(values)):,.0f}"


def report(title: str, runs: list[Outcome], wall: float) -> None:
    worst = [x.tally.weak.violation.max() for x in runs]
    print(f"{title}: {len(runs)} seeds")
    print(f"  regret {interval(x.tally.weak.regret for x in runs)}, violation {interval(worst)}")
    print(f"  realised violation at most {max(x.tally.realised.violation.max() for x in runs):,.0f}")
    print(f"  strong regret {interval(x.tally.strong.regret for x in runs)}", end=", ")
    print(f"strong violation {interval(x.tally.strong.violation.max() for x in runs)}")
    print(f"  policy: gap at most {max(x.gap for x in runs):.5f}", end=", ")
    print(f"bounds met in {sum(x.margin >= 0 for x in runs)}, support of the optimum in {sum(x.same for x in runs)}")
    print(f"  stochastic decisions {sorted({x.decisions for x in runs})}")
    print(f"  certificate: mean width {np.mean([x.width for x in runs]):.4f} of a utility")
    print(f"  {wall:.0f} s, {np.mean([x.seconds for x in runs]):.2f} s of processor time per run", flush=True)


def synthetic(K: int = 8_000_000, seeds: int = 20, algo: str = "cl-pri") -> None:
    """Also the speed: wall-clock time of all seeds on two processes."""
    _instance("paper/synthetic", K, seeds, algo)


def grid(K: int = 10_400_000, seeds: int = 10, algo: str = "cl-pri") -> None:
    _instance("paper/grid", K, seeds, algo)


def _instance(name: str, K: int, seeds: int, algo: str) -> None:
    began = time.perf_counter()
    runs = plays(envs.build(name), algo, K, range(seeds))
    report(f"{name}, {K:,} episodes, {algo}", runs, time.perf_counter() - began)


def instances(n: int = 30) -> list[dict[str, Any]]:
    """Parameters of `random` by one rule, first come, first served; at least one bound must have a price."""
    rng, found = np.random.default_rng(2024), []
    for seed in range(1000):
        given = {
            "S": int(rng.integers(3, 21)),
            "A": int(rng.integers(2, 6)),
            "H": int(rng.integers(3, 9)),
            "N": int(rng.integers(1, 4)),
            "concentration": float(rng.choice([0.1, 0.3, 1.0])),
            "conflict": float(rng.choice([0.0, 0.3, 0.5])),
            "slack": round(float(rng.uniform(0.02, 0.2)), 3),
            "seed": 5000 + seed,
        }
        if solve(envs.build("random", **given)).shadow_prices.max() > 1e-3:
            found.append(given)
        if len(found) == n:
            break
    return found


def random(K: int = 2_000_000, seeds: int = 5, n: int = 30, algo: str = "cl-pri") -> None:
    """Right support, gap, violation and regret on random instances, and the regret of Triple-Q beside it."""
    print(f"random instances, {K:,} episodes, {seeds} seeds; means over seeds, violations the largest of any seed")
    print(
        "| H, S, A, N | slack / H | largest price | regret | Triple-Q | violation, realised | gap | bounds | support |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    everything, better = [], 0
    for given in instances(n):
        cmdp = envs.build("random", **given)
        runs = plays(cmdp, algo, K, range(seeds))
        other = plays(cmdp, "triple-q", K, range(seeds))
        regret, theirs = (float(np.mean([x.tally.weak.regret for x in xs])) for xs in (runs, other))
        better += regret < theirs
        everything += runs
        cells = (
            f"{cmdp.H}, {cmdp.S}, {cmdp.A}, {cmdp.N}",
            f"{given['slack']:.1%}",
            f"{solve(cmdp).shadow_prices.max():.2f}",
            f"{regret:,.0f}",
            f"{theirs:,.0f}",
            f"{max(x.tally.weak.violation.max() for x in runs):,.0f}, "
            f"{max(x.tally.realised.violation.max() for x in runs):,.0f}",
            f"{np.mean([x.gap for x in runs]):.4f}",
            f"{sum(x.margin >= 0 for x in runs)} of {seeds}",
            f"{sum(x.same for x in runs)}, {sum(x.often for x in runs)} of {seeds}",
        )
        print("| " + " | ".join(cells) + " |", flush=True)
    gaps = [x.gap for x in everything]
    print(
        f"less regret than Triple-Q on {better} of {n}; mean regret {interval(x.tally.weak.regret for x in everything)}"
    )
    print(f"support of the optimum in {sum(x.same for x in everything)} of {len(everything)} runs", end=", ")
    print(f"in states reached often in {sum(x.often for x in everything)}", end=", ")
    print(f"another one and nothing undecided in {sum(not x.often and not x.undecided for x in everything)}")
    print(
        f"gap mean {np.mean(gaps):.4f}, largest {max(gaps):.4f}, bounds met in {sum(x.margin >= 0 for x in everything)}"
    )
    print(f"realised violation <= 0 in {sum(x.tally.realised.violation.max() <= 0 for x in everything)}", flush=True)


def sizes(K: int = 10_000) -> None:
    """Bytes of a saved learner after K episodes against the tables without counts, on the development suite."""
    ratios = []
    for name, cmdp in problems("development", copies=1):
        held = []
        for algo in ("cl-pri", "mf-pri"):
            learner = load(algo)(Spec.of(cmdp, K))
            learner.run(Source.of(cmdp), stream(0), K)
            held.append(sum(x.nbytes for x in learner.state().values()))
        ratios.append(held[0] / held[1])
        print(f"  {name}: {held[0] / 1e3:,.0f} kB with counts, {held[1] / 1e3:,.0f} kB without", flush=True)
    print(f"counts / tables: median {np.median(ratios):.2f}, largest {max(ratios):.2f}", flush=True)


def main() -> None:
    synthetic(K=20_000, seeds=2)  # compile
    synthetic()
    grid()
    random()
    sizes()
