"""CL-PRI with ``memory="none"``: the suite, and two problems on which earlier versions were led astray for ever.

    python -m bench model_free                                  # the reserved problems, then the two below
    python -m bench.model_free suite development 1e4            # one length on the problems settings were chosen on
    python -m bench.model_free redundant none                   # the two below with one kind of memory

- *Three copies of one constraint*, four random problems with five seeds each: prices are not unique then.
- *A constant utility exactly at its bound*, with signals that are drawn: every policy meets the bound, and by chance
  every policy seems to miss it by a little.

To compare with another version, run this file with that version's sources first on the path (PYTHONPATH).
"""

from __future__ import annotations

import sys

import numpy as np

import cmdpkit as ck
from bench._ranges import total_range
from bench._suite import problems
from cmdpkit import CMDP, envs

SEEDS = {10_000: 2, 100_000: 1, 1_000_000: 1}  # by number of episodes
EVERY = {1_000_000: 3}  # long runs are made on every third problem
EPISODES = 400_000


def outcome(cmdp: CMDP, K: int, seed: int) -> tuple[float, float, bool, bool]:
    """Regret per episode and gap of the policy in % of the range of values; whether what was realised and the policy
    kept their bounds."""
    span = max(total_range(cmdp, np.asarray(cmdp.r)), 1e-9)
    run = ck.learn(cmdp, "cl-pri", episodes=K, seed=seed, memory="none")
    short = [c.sign * (c.bound - w) for c, w in zip(cmdp.constraints, run.policy_utilities, strict=True)]
    kept = float(np.max(run.final("realised_violation"), initial=-np.inf)) <= 0
    gap = (run.optimum - run.policy_value) / span
    return 100 * run.regret / K / span, 100 * gap, kept, max(short, default=0.0) <= 1e-9


def suite(half: str = "reserved", *lengths: str) -> None:
    """Figures on a half of the suite."""
    print(f"{half} problems, memory none; regret and gap in % of the range of values")
    print(
        "| episodes | runs | regret per episode, mean (median) | gap, median | realised violation <= 0 | bounds met |"
    )
    print("|---|---|---|---|---|---|", flush=True)
    for K in [int(float(x)) for x in lengths] or list(SEEDS):
        chosen = problems(half)[:: EVERY.get(K, 1)]
        found = [outcome(cmdp, K, seed) for _, cmdp in chosen for seed in range(SEEDS.get(K, 1))]
        regret, gap, kept, met = (np.array(x) for x in zip(*found, strict=True))
        figures = f"{regret.mean():.2f} ({np.median(regret):.2f}) | {np.median(gap):.2f} | {kept.mean():.0%}"
        print(f"| {K:,} | {len(found)} | {figures} | {met.mean():.0%} |", flush=True)


def copies(seed: int) -> CMDP:
    """A random problem whose only constraint is there three times."""
    one = envs.build("random", S=6, A=3, H=5, N=1, conflict=0.5, seed=seed)
    return CMDP(one.P, one.r, np.repeat(one.g, 3, axis=0), np.repeat(one.rho, 3), one.mu)


def constant(seed: int) -> CMDP:
    """A random problem with a utility of 1/2 at every step, and a bound of H/2."""
    one = envs.build("random", S=6, A=3, H=5, N=0, seed=seed)
    return CMDP(one.P, one.r, np.full((1, *one.r.shape), 0.5), np.array([one.H / 2]), one.mu)


def redundant(*memories: str) -> None:
    """Gaps of the policies handed over, in units of the value, for both kinds of problems."""
    print(f"four problems, five seeds each, {EPISODES:,} episodes: what the policy handed over lacks of the optimum")
    print("| problem | memory | mean | largest | within 0.005 | within 0.01 |\n|---|---|---|---|---|---|", flush=True)
    for title, build, noise in (("three copies", copies, "none"), ("constant utility", constant, "bernoulli")):
        for memory in memories or ("none", "counts"):
            settings = {"episodes": EPISODES, "noise": noise, "memory": memory}
            runs = [ck.learn(build(i), "cl-pri", seed=seed, **settings) for i in range(4) for seed in range(5)]
            gap = np.array([run.optimum - run.policy_value for run in runs])
            within = f"{(gap <= 0.005).sum()} of {len(gap)} | {(gap <= 0.01).sum()} of {len(gap)}"
            print(f"| {title} | {memory} | {gap.mean():.4f} | {gap.max():.4f} | {within} |", flush=True)


def main() -> None:
    suite()
    redundant()


if __name__ == "__main__":
    {"suite": suite, "redundant": redundant}[sys.argv[1]](*sys.argv[2:])
