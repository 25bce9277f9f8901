"""Inventory control: order stock against random demand, with the cost of ordering and holding bounded.

A shop with room for five units sees random demand in every period; what is not in stock is lost. Orders arrive at
once. Both signals are normalised as in the published instance: sales are divided by the mean demand and the cost by
that of the dearest order, so each lies in [0, 1] per period.

States: Units in stock at the beginning of a period, 0..5.
Actions: Units ordered: 0 up to the free room, so 0..5 - stock.
Reward: E[min(demand, stock + order)] / E[demand], the expected share of a period's demand that is sold. Demand is 0..5
    with probabilities 0.3, 0.2, 0.2, 0.2, 0.05, 0.05.
Constraints: cost: E[sum of (4 + 2 order if anything is ordered, + stock + order for holding) / 19] <= share * H.
Start: An empty shop.
Parameters:
    H : number of periods
    share : bound on the cost as a share of H; the published safe baseline is the optimum at share = 0.1

Ordering nothing costs nothing, so the Slater slack is share * H.

Reference: Bura et al., DOPE (NeurIPS 2022), inventory control, with the constants of its public code.
"""

from __future__ import annotations

from cmdpkit.envs._shared import real, whole
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most

CAPACITY = 5  # units that the shop has room for
DEMAND = (0.3, 0.2, 0.2, 0.2, 0.05, 0.05)  # probability of 0, 1, ... units


def build(H: int = 7, share: float = 0.5) -> CMDP:
    """The shop over ``H`` periods."""
    H, share = whole("H", H, 1), real("share", share, 0, 1)
    most_sold, dearest = _sales(CAPACITY), _cost(0, CAPACITY)
    return CMDP.from_function(
        states=range(CAPACITY + 1),
        start=0,
        horizon=H,
        actions=lambda stock: range(CAPACITY - stock + 1),
        step=lambda stock, order: [(p, max(stock + order - d, 0)) for d, p in enumerate(DEMAND)],
        reward=lambda stock, order: _sales(stock + order) / most_sold,
        constraints=[at_most("cost", share * H, lambda stock, order: _cost(stock, order) / dearest)],
        exact=["cost"],
    )


def _sales(units: int) -> float:
    return sum(p * min(d, units) for d, p in enumerate(DEMAND))


def _cost(stock: int, order: int) -> float:
    ordering = 4.0 + 2.0 * order if order else 0.0
    return ordering + stock + order
