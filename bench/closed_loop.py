"""How good closed-loop PRI is after so many episodes, on the development or the reserved problems of `suite`."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import cmdpkit as ck
from bench.suite import problems


def measure(job):
    name, cmdp, algo, K, seed = job
    free = [ck.solve(ck.CMDP(cmdp.kernel, sign * cmdp.compact.r, horizon=cmdp.H, mu=cmdp.mu)).value for sign in (1, -1)]
    span = max(free[0] + free[1], 1e-9)
    began = time.perf_counter()
    run = ck.learn(cmdp, algo, episodes=K, seed=seed)
    seconds = time.perf_counter() - began
    short = max(
        (c.sign * (c.bound - w) for c, w in zip(cmdp.constraints, run.policy_utilities, strict=True)), default=0
    )
    return {
        "name": name, "seed": seed, "regret": 100 * run.regret / K / span, "seconds": seconds,
        "realised": float(np.max(run.final("realised_violation"), initial=-np.inf)),
        "gap": 100 * (run.optimum - run.policy_value) / span, "short": float(short), "met": short <= 1e-9,
        "strong": 100 * float(np.max(run.final("strong_violation"), initial=0)) / K / cmdp.H,
    }  # fmt: skip


def table(half, K, algo="cl-pri", seeds=2, copies=3, verbose=False):
    jobs = [(name, cmdp, algo, K, seed) for name, cmdp in problems(half, copies) for seed in range(seeds)]
    with ProcessPoolExecutor(2) as pool:
        rows = list(pool.map(measure, jobs))
    if verbose:
        for x in sorted(rows, key=lambda x: -x["regret"]):
            print(
                f"  {x['name']:22s} {x['seed']} regret {x['regret']:7.3f} gap {x['gap']:7.3f} real {x['realised']:9.2f} short {x['short']:9.5f} {x['seconds']:6.1f}s"
            )
    get = lambda key: np.array([x[key] for x in rows])
    good = get("met") & (get("gap") <= 1)
    print(
        f"{half} {algo} K={K}: regret median {np.median(get('regret')):.3f} mean {get('regret').mean():.3f}, "
        f"gap {np.median(get('gap')):.3f}, realised <= 0 {100 * (get('realised') <= 0).mean():.0f} %, "
        f"met {100 * get('met').mean():.0f} %, good {100 * good.mean():.0f} %, {get('seconds').mean():.2f} s a run",
        flush=True,
    )
    return rows


if __name__ == "__main__":
    half, *Ks = sys.argv[1:]
    for K in Ks:
        table(half, int(float(K)), verbose="-v" in sys.argv) if K != "-v" else None
