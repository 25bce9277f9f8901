"""A ring to walk around on a budget of moves: only whole rounds are worth their cost, and optimal policies tie.

Deterministic. A round of S moves earns (S + 1) / 2, each move more than the one before. With H a multiple of S the
value is therefore linear in the budget, with the shadow price (S + 1) / (2 S) at every bound. At the default bound,
walking every second round is as good as tossing a coin between walking all the time and never moving, so this problem
also tests how ties are handled.

States: Places on the ring, 1..S.
Actions: stay, move (to the next place, from S to 1).
Reward: s / S for moving on from place s, 0 for staying. (The published problem minimises the negative.)
Constraints: moves: E[number of moves] <= share * H.
Start: Place 1.
Parameters:
    S : number of places
    H : number of steps
    share : bound on the moves as a share of H

Staying costs nothing, so the Slater slack is share * H.

Reference: Bura et al., DOPE (NeurIPS 2022), factored CMDP, with the constants of its public code.
"""

from __future__ import annotations

from cmdpkit.envs._shared import real, whole
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most


def build(S: int = 3, H: int = 6, share: float = 0.5) -> CMDP:
    """A ring of ``S`` places, walked for ``H`` steps."""
    S, H, share = whole("S", S, 1), whole("H", H, 1), real("share", share, 0, 1)
    return CMDP.from_function(
        states=range(1, S + 1),
        start=1,
        horizon=H,
        actions=["stay", "move"],
        step=lambda s, a: {s % S + 1 if a == "move" else s: 1.0},
        reward=lambda s, a: s / S if a == "move" else 0.0,
        constraints=[at_most("moves", share * H, lambda s, a: float(a == "move"))],
        exact=True,
    )
