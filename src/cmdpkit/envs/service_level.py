"""Stock with a service level: order so that a given share of demand is met, at the least cost per day.

Every day begins with an order, which arrives at once; then a random demand takes from the stock, and what is not there
is lost. Orders cost a fixed sum and a price per unit, stock left over at night costs storage.

States: Units in stock, 0 .. capacity.
Actions: Units to order; stock and order together are at most the capacity.
Reward: Minus the expected cost: 3 per order, 1 per unit ordered, 0.4 per unit left over.
Constraints: service: share of demand that is met, in the long run, >= service.
Start: An empty stock.
Parameters:
    service : smallest share of the demand that must be met
    capacity : largest stock
    order_cost : fixed cost of an order
    storage : cost of a unit left over at night
Reference: Our own; demand is 0 .. 5 units with probabilities 0.2, 0.25, 0.25, 0.15, 0.1, 0.05.
"""

from __future__ import annotations

from cmdpkit.envs._shared import real, whole
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_least

DEMAND = (0.2, 0.25, 0.25, 0.15, 0.1, 0.05)
MEAN_DEMAND = sum(n * p for n, p in enumerate(DEMAND))
UNIT_COST = 1.0  # of a unit ordered


def build(service: float = 0.95, capacity: int = 10, order_cost: float = 3.0, storage: float = 0.4) -> CMDP:
    """The stock in the long run."""
    service, capacity = real("service", service, 0, 1), whole("capacity", capacity, 1)
    order_cost, storage = real("order_cost", order_cost, 0), real("storage", storage, 0)

    def cost(stock: int, order: int) -> float:
        kept = sum(p * max(stock + order - demand, 0) for demand, p in enumerate(DEMAND))
        return order_cost * (order > 0) + UNIT_COST * order + storage * kept

    def met(stock: int, order: int) -> float:
        return sum(p * min(stock + order, demand) for demand, p in enumerate(DEMAND)) / MEAN_DEMAND

    return CMDP.from_function(
        states=range(capacity + 1),
        start=0,
        criterion="average",
        actions=lambda stock: range(capacity - stock + 1),
        step=lambda stock, order: [(p, max(stock + order - demand, 0)) for demand, p in enumerate(DEMAND)],
        reward=lambda stock, order: -cost(stock, order),
        constraints=[at_least("service", service, met, per_step=True)],
    )
