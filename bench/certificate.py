"""Certificates of fixed policies: how often they hold, and how wide they are beside those of version 0.1.

    python -m bench certificate

On each of four problems 1,000 certificates at level 95 % are made of 500 episodes of one policy each, as many as a run
of 10,000 episodes has for it. The policies lie between the optimum and the uniform policy, and another one is drawn for
every certificate, since a certificate has to hold for whatever policy is handed over. A certificate holds if all its
1 + N intervals contain the exact totals. With a true coverage of 95 %, fewer than 928 of 1,000 would have a probability
below 0.001. Version 0.1 used the empirical Bernstein inequality of Maurer and Pontil (COLT 2009, theorem 4).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

import cmdpkit as ck
from cmdpkit import CMDP, Policy, envs, evaluate
from cmdpkit.estimate.intervals import simultaneous
from cmdpkit.model.transitions import FloatArray

RUNS, EPISODES, DELTA = 1_000, 500, 0.05


def problems() -> Iterator[tuple[str, CMDP]]:
    """Short and long horizons, one bound and several, dense signals and rare ones."""
    yield "paper/synthetic", envs.build("paper/synthetic")
    yield "paper/grid", envs.build("paper/grid")
    yield "inventory", envs.build("inventory")
    yield "random, two bounds", envs.build("random", S=5, A=3, H=4, N=2, conflict=0.5, rewards="bernoulli", seed=1)


def returns(cmdp: CMDP, pi: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    """Totals [n, 1+N] of n episodes in unit scale, all episodes side by side; signals are their means."""
    scales = (cmdp.reward_scale, *cmdp.utility_scales)
    signals = np.stack([scale.to_unit(x) for scale, x in zip(scales, (cmdp.r, *cmdp.g), strict=True)], axis=-1)
    s, totals = drawn(np.broadcast_to(cmdp.mu, (n, cmdp.S)), rng), np.zeros((n, len(scales)))
    for h in range(cmdp.H):
        a = drawn(pi[h, s], rng)
        totals += signals[h, s, a]
        s = drawn(np.asarray(cmdp.P[h])[s, a], rng)
    return totals


def drawn(p: FloatArray, rng: np.random.Generator) -> np.ndarray:
    """An index for every row of probabilities p [n, :]."""
    cdf = np.cumsum(p, axis=1)
    return (rng.random((len(p), 1)) * cdf[:, -1:] >= cdf).sum(axis=1)


def truth(cmdp: CMDP, pi: FloatArray) -> list[float]:
    """Exact totals [1+N] in unit scale."""
    values = evaluate(cmdp, Policy.of(cmdp, pi))
    scales, totals = (cmdp.reward_scale, *cmdp.utility_scales), (values.v, *values.w * cmdp.signs)
    return [scale.total_to_unit(x, cmdp.H) for scale, x in zip(scales, totals, strict=True)]


def bernstein_width(x: FloatArray, width: float, delta: float) -> float:
    """Width of the interval that version 0.1 gave for the mean of x [n] in [0, width]."""
    n, log = len(x), math.log(4 / delta)
    radius = math.sqrt(2 * x.var(ddof=1) * log / n) + 7 * width * log / (3 * (n - 1))
    return min(width, x.mean() + radius) - max(0.0, x.mean() - radius)


def measured(cmdp: CMDP, runs: int, seed: int) -> tuple[float, float, float]:
    """Share of certificates that hold, and the mean widths of an interval, now and in 0.1."""
    rng, best, held, now, then = np.random.default_rng(seed), ck.solve(cmdp).policy.pi, 0, [], []
    evenly = cmdp.actions / cmdp.actions.sum(axis=-1, keepdims=True)
    for _ in range(runs):
        mixed = rng.random() * 0.3
        pi = (1 - mixed) * best + mixed * evenly
        x = returns(cmdp, pi, EPISODES, rng)
        found = simultaneous(x, float(cmdp.H), DELTA, planned=EPISODES).intervals
        held += all(low <= v <= high for v, (low, high) in zip(truth(cmdp, pi), found, strict=True))
        now += [high - low for low, high in found]
        then += [bernstein_width(column, float(cmdp.H), DELTA / x.shape[1]) for column in x.T]
    return held / runs, float(np.mean(now)), float(np.mean(then))


def main(runs: int = RUNS) -> dict[str, float]:
    print(f"{runs:,} certificates of {EPISODES} episodes at level {1 - DELTA:.0%}; widths in unit scale")
    print("| problem | hold | mean width | in 0.1 | ratio |\n|---|---|---|---|---|")
    ratios = {}
    for i, (name, cmdp) in enumerate(problems()):
        held, now, then = measured(cmdp, runs, i)
        print(f"| {name} | {held:.1%} | {now:.4f} of {cmdp.H} | {then:.4f} | {now / then:.2f} |", flush=True)
        ratios[f"certificate width, {name}"] = now / then
    return ratios


if __name__ == "__main__":
    main()
