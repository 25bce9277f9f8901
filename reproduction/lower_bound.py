"""The family of the paper's lower bound, played by a rule that refutes it for expected sums.

The rule plays u while the realised violation is at most -rho, and v otherwise (docs/theory/pri.md). It learns nothing,
and both of its expected sums stay below 2 (H - 1) for every K. Only the first action of an episode matters, so an
episode is one draw.
"""

from typing import Any, NamedTuple

import numpy as np

import cmdpkit as ck
from reproduction.text import interval, short, table

EPISODES = (10**4, 10**5, 10**6)
RUNS = 200
H, P = 10, 0.5  # steps, and the probability with which v earns H - 1 instead of half of it


class LowerBound(NamedTuple):
    """What the rule came to after some number of episodes, over runs; sums are exact where nothing else is said."""

    H: int
    episodes: int
    regret: Any
    rms_regret: float  # root of the mean square of a run's regret
    strong: Any  # violation in which episodes do not cancel
    realised: Any  # realised violation
    expected_regret: Any  # from the mean realised violation, whose expectation is that of the exact violation
    smallest: float  # realised violation after any episode of any run so far
    largest: float


def measured(episodes=EPISODES, runs=RUNS, seed=0):
    """The rule on the problem with p = 1/2, many runs side by side.

    Violation is counted in sixths of H - 1, so that all numbers are whole: rho is 2, and v earns 6 or 3.
    """
    cmdp = ck.load("paper/lower-bound", H=H, p=P)
    best = ck.solve(cmdp)
    sixth, price = (H - 1) / 6, float(best.shadow_prices[0])
    rng = np.random.default_rng(seed)
    violation, plays = np.zeros(runs, dtype=np.int64), np.zeros(runs, dtype=np.int64)
    smallest, largest, rows = 0, -6, []
    for k in range(1, max(episodes) + 1):
        plays_v = violation > -2
        violation += 2 - plays_v * np.where(rng.random(runs) < P, 6, 3)
        plays += plays_v
        smallest, largest = min(smallest, int(violation.min())), max(largest, int(violation.max()))
        if k in episodes:
            regret = k * best.value - (k - plays) * (H - 1)
            strong, realised = (k - plays) * 2 * sixth, violation * sixth
            rms = float(np.sqrt(np.mean(regret**2)))
            sums = (ck.seed_mean(x) for x in (strong, realised, -price * realised))
            rows.append(LowerBound(H, k, ck.seed_mean(regret), rms, *sums, smallest * sixth, largest * sixth))
    return tuple(rows)


def lower_bound_text(rows):
    """One row per length."""
    headings = ("episodes", "regret of a run", "root mean square", "realised violation", "strong violation")
    lines = [
        (short(row.episodes), interval(row.regret), short(row.rms_regret), interval(row.realised), interval(row.strong))
        for row in rows
    ]
    return table(f"The rule on paper/lower-bound with p = {P}, H = {H}, {RUNS} runs", headings, lines)
