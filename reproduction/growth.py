"""Table 1 of the paper with measured growth, and what each phase of PRI adds to regret and violation on the grid."""

from typing import NamedTuple

import numpy as np

import cmdpkit as ck
from reproduction.text import interval, table


class Bound(NamedTuple):
    """A row of the paper's Table 1; bounds are up to logarithms, slack is Slater's constant."""

    name: str  # in the paper
    regret: str
    violation: str
    identifies: str  # whether the best policy is identified


TABLE1 = {
    "opdop": Bound("OPDOP", "H^3 sqrt(S^2 A K)", "H^3 sqrt(S^2 A K)", "no"),
    "opt-dual": Bound("OptDual-CMDP", "H^2 sqrt(S^3 A K)", "H^2 sqrt(S^3 A K)", "no"),
    "opt-primal-dual": Bound("OptPrimalDual-CMDP", "H^2 sqrt(S^3 A K)", "H^2 sqrt(S^3 A K)", "no"),
    "conrl": Bound("CONRL", "H^3 sqrt(S^3 A^2 K)", "H^3 sqrt(S^3 A^2 K)", "no"),
    "opt-pess-lp": Bound("OptPess-LP", "H^3 sqrt(S^3 A K)", "0", "no"),
    "opt-pess-primal-dual": Bound("OptPess-PrimalDual", "H^3 sqrt(S^3 A K)", "1", "no"),
    "opsrl": Bound("OPSRL", "sqrt(S^4 H^7 A K)", "0", "no"),
    "triple-q": Bound("Triple-Q", "(1/slack) H^4 sqrt(S A) K^0.8", "0", "no"),
    "pri": Bound("PRI", "H sqrt(K)", "0", "yes"),
}


def table1_text(groups):
    """One row per algorithm and preset: the published bounds, and b in "grows like K^b" over the last nine tenths."""
    headings = (
        *("algorithm", "preset", "regret", "violation", "BPI"),
        *("b: regret", "b: strong regret", "b: strong violation"),
    )
    lines = []
    for group in groups:
        bound, run = TABLE1[group.run.algo], group.run
        growth = [exponent(ck.slope(group, name)) for name in ("regret", "strong_regret", "strong_violation")]
        lines.append((f"{bound.name} ({run.algo})", run.preset, *bound[1:], *growth))
    title = f"Table 1 of the paper, and measured growth on paper/synthetic (K = {groups[0].run.episodes:,})"
    return table(title, headings, lines)


def exponent(b):
    """With half the width of its interval; nothing where the sum is not positive throughout.

    >>> exponent(ck.seed_mean([0.5, 0.52, 0.54])), exponent(ck.seed_mean([1.0, 1.0])), exponent(None)
    ('0.52 ± 0.05', '1.00', '–')
    """
    if b is None:
        return "–"
    half = 0.0 if b.low is None else (b.high - b.low) / 2
    return f"{b.mean:.2f} ± {half:.2f}" if half >= 0.005 else f"{b.mean:.2f}"


def phases_of(group):
    """(name, episodes, regret, violation) of every phase of PRI, as realised: means over seeds with intervals."""
    cmdp = ck.load(group.run.env)
    added = [_added(record, cmdp) for record in group.samples]
    names = dict.fromkeys(name for run in added for name in run)
    return [
        (name, *(ck.seed_mean(column) for column in np.array([run.get(name, (0.0, 0.0, 0.0)) for run in added]).T))
        for name in names
    ]


def _added(record, cmdp):
    """Episodes, realised regret and violation of every phase, from the learner's sums, which are in unit scale."""
    bound = record.constraints[0].sign * record.constraints[0].bound
    found = {}
    for earned in record.internals["returns"]:
        n, (low, span) = earned["episodes"], cmdp.reward_scale
        reward = earned["reward"] * span + n * cmdp.H * low
        low, span = cmdp.utility_scales[0]
        utility = earned["utilities"][0] * span + n * cmdp.H * low
        found[earned["phase"]] = (float(n), n * record.optimum - reward, n * bound - utility)
    return found


def phases_text(group):
    """One row per phase."""
    lines = [(name, f"{n.mean:,.0f}", *map(interval, sums)) for name, n, *sums in phases_of(group)]
    return table(f"pri on {group.run.env}, by phase", ("phase", "episodes", "regret", "violation"), lines)
