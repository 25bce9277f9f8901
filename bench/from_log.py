"""Promises from logs: are they kept, what do they cost, and how often is none made?

For each of three problems, 200 simulated logs of 500 and of 5,000 episodes in which every action was equally likely.
For every log, the policy promised at 95 % and the best policy of the plug-in model are evaluated in the true model.

`CMDPKIT_DECLARE` is "nothing", so that promises name a condition, "ranges" (of the signals in a step), so that they
make room for states that the log never met, or "states", which declares both the ranges and that there are no others.
"""

import os
from typing import NamedTuple

import numpy as np

import cmdpkit as ck
from bench._logs import PROBLEMS, behaviour, in_truth, table_of

LOGS = int(os.environ.get("CMDPKIT_LOGS", "200"))
SIZES = tuple(int(x) for x in os.environ.get("CMDPKIT_EPISODES", "500,5000").split(","))
DECLARE = os.environ.get("CMDPKIT_DECLARE", "nothing")


class Outcome(NamedTuple):
    """What one log led to."""

    plug_in_kept: bool
    plug_in_value: float
    kept: bool | None  # None: no promise was made
    value: float = 0.0
    covered: tuple[bool, ...] = ()  # whether the range of each total holds


def outcome(cmdp: ck.CMDP, episodes: int, stationary: bool, seed: int) -> Outcome:
    table = table_of(cmdp, behaviour(cmdp), episodes, np.random.default_rng([16, seed]))
    bounds = [ck.Constraint(c.name, c.sense, c.bound, per_step=c.per_step) for c in cmdp.constraints]
    declared: dict = {} if DECLARE == "nothing" else {"ranges": ranges_of(cmdp)}
    if DECLARE == "states":
        declared["states"] = "complete"
    estimate = ck.from_log(table, horizon=cmdp.H, constraints=bounds, stationary=stationary, **declared)
    try:
        plain = ck.solve(estimate.cmdp).policy
    except ck.Infeasible as infeasible:
        plain = infeasible.policy
    naive = in_truth(cmdp, plain)
    try:
        promise = estimate.solve(0.95, forecast=False)
    except ck.NoPromise:
        return Outcome(_kept(cmdp, naive), naive.v, None)
    true = in_truth(cmdp, promise.policy)
    ranges = zip((promise.value, *promise.utilities), (true.v, *true.w), strict=True)
    covered = tuple(x.low - 1e-9 <= y <= x.high + 1e-9 for x, y in ranges)
    return Outcome(_kept(cmdp, naive), naive.v, _kept(cmdp, true), true.v, covered)


def ranges_of(cmdp: ck.CMDP) -> dict[str, tuple[float, float]]:
    """The smallest and the largest value of every signal in the true model."""
    signals = [cmdp.r, *(c.sign * g for c, g in zip(cmdp.constraints, cmdp.g, strict=True))]
    names = ["reward", *(c.name for c in cmdp.constraints)]
    there = cmdp.actions
    return {name: (float(x[there].min()), float(x[there].max())) for name, x in zip(names, signals, strict=True)}


def _kept(cmdp: ck.CMDP, values: ck.Values) -> bool:
    return all(c.sign * (w - c.bound_on_total) >= -1e-9 for c, w in zip(cmdp.constraints, values.w, strict=True))


def main() -> None:
    print(
        f"{LOGS} logs each, declared: {DECLARE}; optimum, then what the promised and the plug-in policies are truly "
        "worth, on average"
    )
    head = (
        "problem",
        "counts",
        "episodes",
        "made",
        "kept",
        "ranges hold",
        "optimum",
        "promised",
        "plug-in",
        "plug-in keeps",
    )
    print(("{:9}{:9}" + "{:>15}" * 8).format(*head))
    for name, build in PROBLEMS.items():
        cmdp = build()
        best = ck.solve(cmdp).value
        for stationary in (False, True):
            for episodes in SIZES:
                found = [outcome(cmdp, episodes, stationary, seed) for seed in range(LOGS)]
                made = [x for x in found if x.kept is not None]
                kept = sum(bool(x.kept) for x in made)
                share = f"{kept} = {kept / len(made):.1%}" if made else "-"
                ranges = f"{np.mean([x.covered for x in made]):.1%}" if made else "-"
                value = f"{np.mean([x.value for x in made]):.3f}" if made else "-"
                plain = f"{np.mean([x.plug_in_value for x in found]):.3f}"
                keeps = f"{np.mean([x.plug_in_kept for x in found]):.1%}"
                counts = "shared" if stationary else "by step"
                row = (
                    name,
                    counts,
                    episodes,
                    f"{len(made)} of {LOGS}",
                    share,
                    ranges,
                    f"{best:.3f}",
                    value,
                    plain,
                    keeps,
                )
                print(("{:9}{:9}" + "{:>15}" * 8).format(*row), flush=True)
