"""The certificate: what the episodes of the policy handed over prove about it, whenever the run is stopped.

The policy is fixed before the first of these episodes, and which episodes belong to the sample depends on their numbers
alone. The intervals are betting intervals whose bets are made for a number of episodes that is known in advance, so
they hold at every number of episodes at once. An anytime run hands over a policy in every stage: the j-th certificate
gets the share 1 / (j (j + 1)) of delta. These shares add up to 1 at most, so all certificates of all stages hold
together with probability 1 - delta, and a rule that stops the run because of what a certificate says cannot break it.
"""

from __future__ import annotations


def stage_delta(delta: float, stage: int, *, anytime: bool) -> float:
    """The error probability of the certificate of a stage (from 0); a run of known length has only one."""
    return delta / ((stage + 1) * (stage + 2)) if anytime else delta
