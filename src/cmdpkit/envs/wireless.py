"""A wireless link: send with little power or with much, so that the mean backlog stays within a bound.

Packets arrive in bursts and wait in a buffer; what does not fit is lost. In every step at most one packet is sent, with
a probability that grows with the power.

States: Number of packets that wait, 0 .. buffer.
Actions: The power, 0.1 or 0.9, named "low" and "high".
Reward: 1 minus the power.
Constraints: backlog: mean number of packets that wait <= backlog, per step.
Start: An empty buffer.
Parameters:
    backlog : largest mean number of packets that wait
    buffer : most packets that wait
    low : smaller power
    high : larger power

0, 1, 2 or 3 packets arrive with probabilities 0.65, 0.2, 0.1 and 0.05, and one departs with probability 0.9 times the
power; the next number is the old one plus arrivals minus departures, cut to 0 .. buffer.

Reference: Section 3.3 of Chen, Jain and Luo (ICML 2022, arXiv 2202.00150), after Singh, Gupta and Shroff (arXiv
    2002.12435), who have the powers 0 and 1. Neither prints the size of the buffer. The optimum is 0.451569 with a
    buffer of 10, 0.400846 with 20 and 0.388184 with 50; with powers of 0 and 1 it is 0.502362, 0.440815 and 0.408747.
    All of these are ours, by the LP.
"""

from __future__ import annotations

from cmdpkit.envs._shared import real, whole
from cmdpkit.errors import CmdpkitError
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import at_most

ARRIVALS = (0.65, 0.2, 0.1, 0.05)  # probabilities of 0 .. 3 packets
SENT = 0.9  # probability that a packet is sent, per unit of power


def build(backlog: float = 3.0, buffer: int = 10, low: float = 0.1, high: float = 0.9) -> CMDP:
    """The link in the long run."""
    backlog, buffer = real("backlog", backlog, 0), whole("buffer", buffer, 1)
    power = {"low": real("low", low, 0, 1), "high": real("high", high, 0, 1)}
    if not power["low"] < power["high"]:
        raise CmdpkitError(f"low is {low!r} and high is {high!r}, expected low below high")

    def step(packets: int, action: str) -> list[tuple[float, int]]:
        sent = SENT * power[action]
        return [
            (p * q, min(max(packets + arrived - departed, 0), buffer))
            for arrived, p in enumerate(ARRIVALS)
            for departed, q in ((1, sent), (0, 1 - sent))
        ]

    return CMDP.from_function(
        states=range(buffer + 1),
        start=0,
        criterion="average",
        actions=list(power),
        step=step,
        reward=lambda packets, action: 1 - power[action],
        constraints=[at_most("backlog", backlog, lambda packets, action: float(packets), per_step=True)],
        exact=True,
    )
