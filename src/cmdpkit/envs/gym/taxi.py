"""Taxi of Gymnasium with a bound on fuel: bring passengers where they want to go, but not the ones too far away.

A 5 x 5 town with walls and four stands: R at r1c1, G at r1c5, Y at r5c1, B at r5c4. A passenger waits at one of them
and wants to be taken to another; an episode ends on arrival. Serving everybody takes 11.07 units of fuel on average.
With less, the taxi declines the trips that are worth least per unit, and waits against a wall.

States: 500 of them, "r2c3 R>G" for a taxi at r2c3 and a passenger at R bound for G, "r2c3 taxi>G" with the passenger
    aboard. Index = Gymnasium's observation.
Actions: south, north, east, west, pick up, drop off, in Gymnasium's order. All can be tried everywhere.
Reward: -1 for every step, 20 instead for dropping the passenger off at the destination, -10 instead for picking up or
    dropping off where that is not possible.
Constraints: fuel: E[number of cells driven] <= fuel; a move against a wall takes none.
Start: Any cell, any passenger and any other destination, equally likely: 300 states.
Parameters:
    H : number of steps
    fuel : largest expected number of cells driven; waiting takes none, so the Slater slack equals it
Reference: Taxi of Gymnasium, after Dietterich, "Hierarchical Reinforcement Learning with the MAXQ Value Function
    Decomposition" (JAIR 13, 2000); the cost is ours. ``cmdpkit.gym.make_env("gym/taxi")`` is the environment itself.
"""

from __future__ import annotations

from gymnasium.envs.toy_text.taxi import TaxiEnv

from cmdpkit.envs._shared import real, whole
from cmdpkit.envs.gym import GymTable
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most

MOVES = ("south", "north", "east", "west")
STANDS = ("R", "G", "Y", "B")


def make() -> TaxiEnv:
    """Gymnasium's environment, without the cost."""
    return TaxiEnv()


def outcome(s: int, a: int, s_next: int, reward: float) -> tuple[float, float]:
    """Reward and cost of a transition."""
    return reward, float(a < len(MOVES) and s_next != s)


def build(H: int = 20, fuel: float = 9.0) -> CMDP:
    """The exact model over ``H`` steps."""
    H, fuel = whole("H", H, 1), real("fuel", fuel, 0)
    env = make()
    names = [
        f"r{row}c{column} {place}>{stand}"
        for row in range(1, 6)
        for column in range(1, 6)
        for place in (*STANDS, "taxi")
        for stand in STANDS
    ]
    table, actions = GymTable.of(env.P, outcome), (*MOVES, "pick up", "drop off")
    return table.model(env.initial_state_distrib, H, at_most("fuel", fuel), states=names, action_names=actions)
