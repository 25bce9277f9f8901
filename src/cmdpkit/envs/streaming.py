"""Media streaming: keep the playback buffer from running dry while using the fast link half of the time at most.

In every step a packet arrives with a probability that depends on the link, and one is played with probability
``departure``. An empty buffer stalls the video; the fast link is expensive. The published problem minimises the
expected number of stalled steps; here 1 - stall is the reward, so that value = H - expected stalls.

States: Packets in the buffer, 0..capacity.
Actions: fast, slow: the link used in this step.
Reward: 1 in a step that begins with packets in the buffer, 0 in a stalled one.
Constraints: fast link: E[steps on the fast link] <= share * H.
Start: An empty buffer.
Parameters:
    H : number of steps
    capacity : the largest buffer level
    fast, slow : probability that a packet arrives on either link
    departure : probability that a packet is played
    share : bound on the fast link as a share of H; the published safe baseline is the optimum at share = 0.1

Using the slow link only costs nothing, so the Slater slack is share * H.

Reference: Bura et al., DOPE (NeurIPS 2022), media streaming, with the constants of its public code.
"""

from __future__ import annotations

from cmdpkit.envs._shared import real, whole
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most


def build(
    H: int = 10, capacity: int = 9, fast: float = 0.9, slow: float = 0.1, departure: float = 0.8, share: float = 0.5
) -> CMDP:
    """The streaming problem over ``H`` steps."""
    H, capacity = whole("H", H, 1), whole("capacity", capacity, 1)
    arrival = {"fast": real("fast", fast, 0, 1), "slow": real("slow", slow, 0, 1)}
    departure, share = real("departure", departure, 0, 1), real("share", share, 0, 1)

    def step(level: int, link: str) -> list[tuple[float, int]]:
        p, q = arrival[link], departure
        return [
            (p * (1 - q), min(level + 1, capacity)),
            ((1 - p) * q, max(level - 1, 0)),
            (p * q + (1 - p) * (1 - q), level),
        ]

    return CMDP.from_function(
        states=range(capacity + 1),
        start=0,
        horizon=H,
        actions=list(arrival),
        step=step,
        reward=lambda level, link: float(level > 0),
        constraints=[at_most("fast link", share * H, lambda level, link: float(link == "fast"))],
        exact=True,
    )
