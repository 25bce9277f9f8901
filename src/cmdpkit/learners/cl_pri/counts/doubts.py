"""What a user of a policy must know about how far it can be trusted: the warnings of CL-PRI with counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cmdpkit.estimate.counts import signal_means
from cmdpkit.estimate.halves import warning
from cmdpkit.learners._bound_warning import BoundWarning
from cmdpkit.learners.cl_pri.counts.account import FEW_TRIES, short_run

if TYPE_CHECKING:
    from cmdpkit.learners.cl_pri.counts import WithCounts

MISSED = 1e-12  # shortfalls per episode up to this are rounding
PREDICTED = 1e-9  # and so are shortfalls up to this in what a linear program predicts
SAME = 1e-12  # rewards that differ by less are the same

UNREACHED = (
    "in the model that the counts suggest no policy meets all bounds: the best compromise misses {constraint} by {by} "
    "per episode"
)
UNCOVERED = (
    "the policy handed over may miss {constraint} by up to {by}: no policy of the estimated model clears it by a "
    "margin for its own error, which more episodes would narrow"
)
SHORT = (
    "{constraint} was missed by {by} per episode in what was realised: the episodes did not suffice to repay what "
    "exploration had cost; more episodes would repay it"
)
TOO_DEAR = (
    "{constraint} was missed by {by} per episode in what was realised, and this was not repaid: every unit would have "
    "cost {price} of reward, which is more than the parameter repay_price allows; raise it to have debts repaid"
)


DEAR = 20.0  # a price above this, in unit scale, is worth a word
PAID_DEARLY = (
    "what is owed against {constraint} is repaid at a price of {price} of reward per unit; a lower repay_price would "
    "leave such debts as they are"
)


def warnings_of(learner: WithCounts) -> tuple[str, ...]:
    """Bounds that were missed or cannot be promised, too few episodes, and a world that depends on the step."""
    clock, table, anytime = learner.clock, learner.table, learner.spec.anytime
    said: list[str] = []
    if clock.infeasible_last and (clock.episode >= table.freeze or anytime):
        said += _unreached(learner)
    if clock.handed >= 0:
        said += _uncovered(learner)
    if clock.episode >= table.K or (anytime and clock.episode):
        said += _missed(learner)
        dear = (learner.prices > DEAR) & (learner.prices <= learner.params.repay_price)
        said += [
            BoundWarning(PAID_DEARLY, int(n), price=float(learner.prices[n]), doubtful=False)
            for n in np.flatnonzero(dear)
        ]
    return (*said, *_too_little_seen(learner), *_changing(learner))


def _unreached(learner: WithCounts) -> list[str]:
    """Bounds that the last plan could not meet."""
    short = learner.spec.rho - learner.predicted
    return [BoundWarning(UNREACHED, int(n), by=float(short[n])) for n in np.flatnonzero(short > PREDICTED)]


def _uncovered(learner: WithCounts) -> list[str]:
    """Bounds that the policy handed over may miss, as far as its own error goes."""
    short = learner.uncovered
    return [
        BoundWarning(UNCOVERED, int(n), by=float(short[n]), doubtful=False) for n in np.flatnonzero(short > PREDICTED)
    ]


def _missed(learner: WithCounts) -> list[str]:
    """Bounds that were missed in what was realised, and why that was not repaid."""
    k, prices = learner.clock.episode, learner.prices
    short = (k * learner.spec.rho - learner.ledger.totals[1:]) / k
    return [
        BoundWarning(
            TOO_DEAR if prices[n] > learner.params.repay_price else SHORT,
            int(n),
            by=float(short[n]),
            price=float(prices[n]),
            doubtful=False,
        )
        for n in np.flatnonzero(short > MISSED)
    ]


def _too_little_seen(learner: WithCounts) -> list[str]:
    """Whether the episodes were too few to see what the problem has to offer."""
    clock, said = learner.clock, []
    explored = clock.episode if learner.exploring else clock.explored
    visited = learner.memory.visits > 0
    if visited.any() and np.ptp(signal_means(learner.memory, 1 + learner.spec.N)[visited, 0]) < SAME:
        said.append(
            f"every step of {clock.episode:,} episodes earned the same reward: unless no action ever earns another "
            "one, what does was never reached, and the problem is unsolved; more episodes may reach it"
        )
    share = learner.params.exploration_share
    if learner.spec.anytime and clock.episode * share < FEW_TRIES * learner.cells:
        said.append(short_run(learner, f"{clock.episode:,}"))
    elif not learner.notes and not learner.exploring and not clock.all_found:
        missing = learner.cells - int(visited.sum())
        said.append(
            f"exploration had to end after {explored:,} episodes while it still found new actions, and {missing:,} of "
            f"{learner.cells:,} were never tried: more episodes, or a larger exploration_share, would help"
        )
    return said


def _changing(learner: WithCounts) -> list[str]:
    """A world that was declared stationary, where the data contradict that."""
    return list(warning(learner.memory.halves)) if learner.T == 1 else []
