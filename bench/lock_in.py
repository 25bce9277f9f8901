"""CL-PRI on problems that led earlier versions astray for ever, with counts (`cl-pri`) and without (`mf-pri`).

    python -m bench lock_in                                              # everything, a quarter of an hour
    python -c "from bench.lock_in import redundant; redundant('mf-pri')"   # one of them with one algorithm

- `redundant`: *three copies of one constraint*, whose prices are not unique, and *a constant utility exactly at its
  bound* with signals that are drawn: every policy meets that bound, and by chance every policy seems to miss it by a
  little. Four random problems each, with five seeds each.
- `locks`: a row of 20 states in which one action of three leads on and the others lead back, and only its end pays. A
  run has to solve it or to say that it is unsolved.
- `tight`: bounds that leave a slack of 0.0005 H. A policy or a run that misses its bound has to be warned about.
"""

from __future__ import annotations

import numpy as np

import cmdpkit as ck
from cmdpkit import CMDP, RunRecord, envs

ALGORITHMS = ("mf-pri", "cl-pri")
LONG, SHORT = 400_000, 10_000  # episodes
SOLVED = 0.95  # share of the optimum


def copies(seed: int) -> CMDP:
    """A random problem whose only constraint is there three times."""
    one = envs.build("random", S=6, A=3, H=5, N=1, conflict=0.5, seed=seed)
    return CMDP(one.P, one.r, np.repeat(one.g, 3, axis=0), np.repeat(one.rho, 3), one.mu)


def constant(seed: int) -> CMDP:
    """A random problem with a utility of 1/2 at every step, and a bound of H/2."""
    one = envs.build("random", S=6, A=3, H=5, N=0, seed=seed)
    return CMDP(one.P, one.r, np.full((1, *one.r.shape), 0.5), np.array([one.H / 2]), one.mu)


def lock(seed: int, steps: int = 20, slip: float = 0.02, H: int = 24) -> CMDP:
    """A row of states to be passed with the right actions, from any of which one may slip back to the first."""
    P, r, g = np.zeros((steps + 1, 3, steps + 1)), np.zeros((steps + 1, 3)), np.ones((1, steps + 1, 3))
    key = np.random.default_rng(seed).integers(3, size=steps)
    for s in range(steps):
        P[s, :, 0] = 1.0
        P[s, key[s], 0], P[s, key[s], s + 1] = slip, 1 - slip
    P[steps, :, steps], r[steps], g[0, steps] = 1.0, 1.0, (0.2, 0.5, 0.9)
    return CMDP(P, r, g, np.array([0.95 * H]), horizon=H)


def narrow(seed: int) -> CMDP:
    """A random problem whose bound is 0.0005 H below the most that its utility can be."""
    rng = np.random.default_rng(seed)
    P, r, g = rng.dirichlet(np.ones(6), (6, 3)), rng.random((6, 3)), rng.random((6, 3))
    return CMDP(P, r, g, ck.solve(CMDP(P, g, horizon=6)).value - 0.0005 * 6, horizon=6)


def within_bounds(cmdp: CMDP, run: RunRecord) -> bool:
    """Whether the policy handed over keeps its bounds, by its exact totals."""
    short = [c.sign * (c.bound_on_total - w) for c, w in zip(cmdp.constraints, run.policy_utilities, strict=True)]
    return max(short) <= 1e-9


def redundant(*algos: str, first: int = 0, problems: int = 4, seeds: int = 5) -> None:
    """What the policies handed over lack of the optimum, in units of the value, and how many keep their bounds."""
    print(
        f"{problems} problems, {seeds} seeds each, {LONG:,} episodes: what the policy handed over lacks of the optimum"
    )
    print("| problem | algorithm | mean | largest | within 0.005 | within 0.01 | bounds met | regret |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for title, build, noise in (("three copies", copies, "none"), ("constant utility", constant, "bernoulli")):
        worlds = [build(i) for i in range(first, first + problems) for _ in range(seeds)]
        for algo in algos or ALGORITHMS:
            runs = [ck.learn(cmdp, algo, episodes=LONG, noise=noise, seed=i % seeds) for i, cmdp in enumerate(worlds)]
            gap = np.array([run.optimum - run.policy_value for run in runs])
            met = sum(within_bounds(cmdp, run) for cmdp, run in zip(worlds, runs, strict=True))
            figures = f"{gap.mean():.4f} | {gap.max():.4f} | {(gap <= 0.005).sum()} of {len(gap)} | "
            figures += f"{(gap <= 0.01).sum()} | {met} | {np.mean([run.regret for run in runs]):,.0f}"
            print(f"| {title} | {algo} | {figures} |", flush=True)


def locks(*algos: str, seeds: int = 5) -> None:
    """How many locks were opened, how many were called unsolved, and how many were neither."""
    for title, slip, H in (("20 steps in 24", 0.02, 24), ("20 steps in 24, slippery", 0.2, 24)):
        for algo in algos or ALGORITHMS:
            runs = [ck.learn(lock(i, slip=slip, H=H), algo, episodes=SHORT, seed=i) for i in range(seeds)]
            solved = [run.policy_value >= SOLVED * run.optimum for run in runs]
            said = [any("unsolved" in note or "far from the best" in note for note in run.notes) for run in runs]
            neither = sum(not a and not b for a, b in zip(solved, said, strict=True))
            print(
                f"lock, {title}, {SHORT:,} episodes, {algo}: {sum(solved)} of {seeds} solved, {sum(said)} "
                f"called unsolved or far from the best, {neither} neither",
                flush=True,
            )


def tight(*algos: str, seeds: int = 10) -> None:
    """How many policies and runs missed their bound, and how many of these were not warned about."""
    for algo in algos or ALGORITHMS:
        worlds = [narrow(i) for i in range(seeds)]
        runs = [ck.learn(cmdp, algo, episodes=SHORT, seed=i) for i, cmdp in enumerate(worlds)]
        missed = [not within_bounds(cmdp, run) for cmdp, run in zip(worlds, runs, strict=True)]
        realised = [run.final("realised_violation")[0] > 0 for run in runs]
        silent = sum(a and not _says(run, "miss") for a, run in zip(missed, runs, strict=True))
        silent += sum(a and not _says(run, "was missed by") for a, run in zip(realised, runs, strict=True))
        print(
            f"slack of 0.0005 H, {SHORT:,} episodes, {algo}: {sum(missed)} of {seeds} policies and "
            f"{sum(realised)} of {seeds} runs missed the bound, {silent} of them without a warning",
            flush=True,
        )


def _says(run: RunRecord, words: str) -> bool:
    return any(words in note for note in run.notes)


def main() -> None:
    locks()
    tight()
    redundant()
