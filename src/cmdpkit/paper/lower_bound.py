"""The lower bound of the paper (its appendix on Omega(H sqrt K)), measured on its own family of problems.

Two problems of `paper/lower-bound`, p = 1/2 and p = 1/2 + 1 / sqrt K, cannot be told apart in K episodes. The paper
states that regret or violation of every algorithm is of order H sqrt K on one of them, for expected sums. Two ways to
play show where that is so and where it is not:

- the *open loop* is the published refinement and identification, started with the right action set and without
  tightening: the error of its weights adds up to order sqrt K;
- the *rule* plays u while the realised violation is at most -rho, and v otherwise (docs/theory/pri.md): it learns
  nothing, and both of its expected sums stay below 2 (H - 1) for every K.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cmdpkit.envs.paper import lower_bound
from cmdpkit.exact.solver import solve_fully
from cmdpkit.learners import Source, Spec
from cmdpkit.learners.pri import pri_params
from cmdpkit.learners.pri.refine import Refinement
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.compiled import compiled
from cmdpkit.model.tolerances import SUPPORT
from cmdpkit.model.transitions import FloatArray
from cmdpkit.results.statistics import SeedMean, seed_mean
from cmdpkit.results.tables import Column, Table, each, means, numbers
from cmdpkit.results.wording import short
from cmdpkit.simulate.random import Stream, stream, uniform

H = 10
EPISODES = (10**4, 10**5, 10**6)


class LowerBound(NamedTuple):
    """What one way to play came to on the problem with p = 1/2, over seeds."""

    who: str  # "open loop" or "rule"
    episodes: int  # K
    regret: SeedMean  # exact sum of a run
    rms_regret: float  # root of the mean square of the exact regret of a run
    strong: SeedMean  # violation in which episodes do not cancel
    realised: SeedMean  # violation that was realised; its expectation is that of the exact sum
    smallest: float  # realised violation of a run
    largest: float  # realised violation of a run


# Refinement that may not miss a threshold and uses all that it has seen.
ONE_SIDED = {
    **{"band": False, "first_block": False, "release": True, "pooled": False},
    **{"floor": 0.01, "floor_total": 0.25},
}


def open_loop(cmdp: CMDP, source: Source, K: int, seed: int) -> None:
    """Refinement for K / 2 episodes, then identification, in the optimum's own action set."""
    spec = Spec.of(cmdp, K)
    p = pri_params(spec, "printed", {"K": K // 2, "eps_rho": 0.0, **ONE_SIDED})
    D = solve_fully(cmdp).policy.pi > SUPPORT
    phase = Refinement(spec, p, D, D.astype(float), spec.rho)
    rng, out, done = stream(seed), np.empty((1 + spec.N, K)), 0
    while done < K:
        done += phase.play(source, rng, out[:, done:])


def rule(cmdp: CMDP, source: Source, K: int, seed: int) -> None:
    """The rule that only watches what was realised."""
    most, p = cmdp.H - 1, float(cmdp.P[0, 0, 1, 2])
    plays, lucky = _plays_of_the_rule(K, p, stream(seed))
    source.meter.add(K - plays, np.array([most, 0.0]), np.array([(K - plays) * most, 0.0]))
    source.meter.add(plays, np.array([0.0, most * (1 + p) / 2]), np.array([0.0, most * (plays + lucky) / 2]))


@compiled
def _plays_of_the_rule(K: int, p: float, rng: Stream) -> tuple[int, int]:
    """How often it plays v, and how often v then earns the larger utility; violation is in sixths of H - 1."""
    violation, plays, lucky = 0, 0, 0
    for _ in range(K):
        violation += 2
        if violation > 0:
            plays += 1
            high = uniform(rng) < p
            lucky += high
            violation -= 6 if high else 3
    return plays, lucky


Player = Callable[[CMDP, Source, int, int], None]  # plays K episodes with a seed
PLAYERS: dict[str, tuple[Player, int]] = {  # how to play, and runs per seed that is asked for
    "open loop": (open_loop, 1),
    "rule": (rule, 20),
}


def measured(seeds: int, episodes: Sequence[int] = EPISODES, p: float = 0.5) -> tuple[LowerBound, ...]:
    """Both ways to play at several lengths; the rule is cheap and has twenty times as many runs."""
    cmdp = lower_bound.build(p, H)
    best = solve_fully(cmdp).value
    found = []
    for who, (play, times) in PLAYERS.items():
        for K in episodes:
            totals = np.array([_totals(play, cmdp, best, K, seed) for seed in range(seeds * times)])
            found.append(_summary(who, K, totals))
    return tuple(found)


def _totals(play: Player, cmdp: CMDP, best: float, K: int, seed: int) -> tuple[float, float, float]:
    """Regret, strong violation and realised violation of a run."""
    source = Source.of(cmdp, best)
    play(cmdp, source, K, seed)
    tally = source.meter.tally()
    assert tally.weak is not None and tally.weak.regret is not None and tally.strong is not None
    return tally.weak.regret, float(tally.strong.violation[0]), float(tally.realised.violation[0])


def _summary(who: str, K: int, totals: FloatArray) -> LowerBound:
    regret, strong, realised = totals.T
    rms = float(np.sqrt(np.mean(regret**2)))
    ends = float(realised.min()), float(realised.max())
    return LowerBound(who, K, seed_mean(regret), rms, seed_mean(strong), seed_mean(realised), *ends)


def lower_bound_table(rows: Sequence[LowerBound]) -> Table[LowerBound]:
    """One row per way to play and length."""
    return Table(f"paper/lower-bound with p = 1/2, H = {H}", (
        Column("who", "player", "How it was played.", lambda row: row.who),
        numbers("episodes", "episodes", "K.", lambda row: row.episodes, each(short)),
        means("regret", "regret", "Exact sum of a run, mean over runs.", lambda row: row.regret, 3),
        numbers("rms", "root mean square", "Of the regret.", lambda row: row.rms_regret, each(short)),
        means("realised", "realised violation", "Mean over runs.", lambda row: row.realised, 3),
        means("strong", "strong violation", "Episodes do not cancel.", lambda row: row.strong, 3),
    ), tuple(rows))  # fmt: skip
