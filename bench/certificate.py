"""Certificates of fixed policies: how often they hold, and how wide they are.

    python -m bench certificate

On each of four problems 1,000 certificates at level 95 % are made of 500 episodes of one policy each, as many as a run
of 10,000 episodes has for it. The policies lie between the optimum and the uniform policy, and another one is drawn for
every certificate, since a certificate has to hold for whatever policy is returned. A certificate holds if all its
1 + N intervals contain the exact totals. With a true coverage of 95 %, fewer than 928 of 1,000 would have a probability
below 0.001.
"""

from __future__ import annotations

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


def measured(cmdp: CMDP, runs: int, seed: int) -> tuple[float, float]:
    """Share of certificates that hold, and the mean width of an interval."""
    rng, best, held, widths = np.random.default_rng(seed), ck.solve(cmdp).policy.pi, 0, []
    evenly = cmdp.actions / cmdp.actions.sum(axis=-1, keepdims=True)
    for _ in range(runs):
        mixed = rng.random() * 0.3
        pi = (1 - mixed) * best + mixed * evenly
        x = returns(cmdp, pi, EPISODES, rng)
        found = simultaneous(x, float(cmdp.H), DELTA, planned=EPISODES).intervals
        held += all(low <= v <= high for v, (low, high) in zip(truth(cmdp, pi), found, strict=True))
        widths += [high - low for low, high in found]
    return held / runs, float(np.mean(widths))


def main(runs: int = RUNS) -> None:
    print(f"{runs:,} certificates of {EPISODES} episodes at level {1 - DELTA:.0%}; widths in unit scale")
    print("| problem | hold | mean width |\n|---|---|---|")
    for i, (name, cmdp) in enumerate(problems()):
        held, width = measured(cmdp, runs, i)
        print(f"| {name} | {held:.1%} | {width:.4f} of {cmdp.H} |", flush=True)


if __name__ == "__main__":
    main()
