"""Regret = gaps paid - price x violation (Statement 1 of docs/theory/pri.md), for published and measured runs.

The gaps are what actions lose that no optimal policy uses. So two of regret, violation and gaps give the third, and
"the regret differs" and "the violation differs" are one fact.
"""

from typing import NamedTuple

import numpy as np

import cmdpkit as ck
from reproduction import runs
from reproduction.figures import PUBLISHED
from reproduction.runs import READ_AT, SYNTHETIC
from reproduction.text import short, table


class Account(NamedTuple):
    """The sums of a run, or the means over several, after a number of episodes."""

    who: str
    episodes: int
    regret: float
    violation: float


def accounts(groups):
    """The published runs on the synthetic problem, then those of the groups; PRI's once more when pruning is over."""
    found = []
    for algo, preset in (("pri", "printed"), ("triple-q", "authors")):
        sums = {figure.quantity: figure.published for figure in PUBLISHED[SYNTHETIC][algo, preset]}
        found.append(Account(f"{algo}, published", READ_AT[SYNTHETIC], sums["regret"], sums["violation"]))
    for group in groups:
        who = f"{group.run.algo} ({group.run.preset}), measured"
        pruned = [group.run.readings[0]] if group.run.algo == "pri" else []
        for episodes in (*pruned, READ_AT[SYNTHETIC]):
            sums = (runs.over_seeds(group, runs.read(name, episodes)).mean for name in ("regret", "violation"))
            found.append(Account(who, episodes, *sums))
    return found


def accounts_text(found):
    """One row per account, with the gaps that the identity gives."""
    price = float(np.asarray(ck.solve(ck.load(SYNTHETIC)).shadow_prices)[0])
    lines = []
    for account in found:
        gaps = account.regret + price * account.violation
        rate = short(1000 * gaps / account.episodes, 3)
        lines.append((account.who, *map(short, (*account[1:], gaps)), rate))
    headings = ("run", "episodes", "regret", "violation", "gaps paid", "gaps per 1,000 episodes")
    return table(f"Gaps paid on {SYNTHETIC}: regret + {price:.4f} x violation", headings, lines)
