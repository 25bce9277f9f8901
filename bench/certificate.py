"""Certificates of fixed policies: how often they hold, and how wide they are beside those of version 0.1.

    python -m bench certificate

On each of four problems 1,000 certificates at level 95 % are made of 500 episodes of one policy each, as many as a run
of 10,000 episodes has for it. The policies lie between the optimum and the uniform policy, and another one is drawn for
every certificate, since a certificate has to hold for whatever policy is returned. A certificate holds if all its
1 + N intervals contain the exact totals. With a true coverage of 95 %, fewer than 928 of 1,000 would have a probability
below 0.001. Version 0.1 used the empirical Bernstein inequality of Maurer and Pontil (COLT 2009, theorem 4).

Then 1,000 whole runs of cl-pri with drawn signals on each problem. The certificate of the policy that would be returned
 is checked at the end, and at ten moments of the run: somebody who stops at the worst of them must not be misled
more often than in 5 % of the runs either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

import cmdpkit as ck
from cmdpkit import CMDP, Policy, envs, evaluate
from cmdpkit.estimate.intervals import simultaneous
from cmdpkit.learners import Source, Spec, load
from cmdpkit.model.transitions import FloatArray
from cmdpkit.simulate.random import stream

RUNS, EPISODES, DELTA = 1_000, 500, 0.05
WHOLE, LOOKS = 1_000, 10  # episodes of a whole run, and how often its certificate is checked


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


def in_runs(cmdp: CMDP, runs: int) -> tuple[float, float]:
    """Share of runs of cl-pri whose certificate is true at the end, and whose certificates are true at all looks."""
    true_at_end = true_always = 0
    for seed in range(runs):
        learner, source, rng = (
            load("cl-pri")(Spec.of(cmdp, WHOLE), delta=DELTA),
            Source.of(cmdp, noise="bernoulli"),
            stream(seed),
        )
        true = []
        for _ in range(LOOKS):
            learner.run(source, rng, WHOLE // LOOKS)
            found = learner.certificate()
            if found is not None:
                ends = zip(truth(cmdp, learner.recommend()), found.intervals, strict=True)
                true.append(all(low <= v <= high for v, (low, high) in ends))
        true_at_end += true[-1]
        true_always += all(true)
    return true_at_end / runs, true_always / runs


def main(runs: int = RUNS) -> dict[str, float]:
    print(f"{runs:,} certificates of {EPISODES} episodes at level {1 - DELTA:.0%}; widths in unit scale")
    print("| problem | hold | mean width | in 0.1 | ratio |\n|---|---|---|---|---|")
    ratios = {}
    for i, (name, cmdp) in enumerate(problems()):
        held, now, then = measured(cmdp, runs, i)
        print(f"| {name} | {held:.1%} | {now:.4f} of {cmdp.H} | {then:.4f} | {now / then:.2f} |", flush=True)
        ratios[f"certificate width, {name}"] = now / then
    print(f"{runs:,} runs of cl-pri of {WHOLE:,} episodes: true at the end, and at all of {LOOKS} looks")
    for name, cmdp in problems():
        at_end, always = in_runs(cmdp, runs)
        print(f"| {name} | {at_end:.1%} | {always:.1%} |", flush=True)
    return ratios


if __name__ == "__main__":
    main()
