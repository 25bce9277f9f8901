"""A log of four rows that several tests read, and whether any log leads to a promise."""

import cmdpkit as ck

COLUMNS = ["episode", "step", "state", "action", "reward", "cost", "next_state"]
# Two episodes of two steps: from "a", "go" leads to "b" twice; in "b", "go" is tried once and "stay" once.
ROWS = [
    (1, 1, "a", "go", 1.0, 0.5, "b"),
    (1, 2, "b", "go", 2.0, 0.0, "a"),
    (2, 1, "a", "go", 3.0, 1.0, "b"),
    (2, 2, "b", "stay", 0.0, 0.25, "b"),
]
BOUND = [ck.at_most("cost", 1.5)]


def promise_of(log: ck.Estimate) -> ck.Promise | None:
    """What a log promises; None if that is nothing."""
    try:
        return log.solve()
    except ck.NoPromise:
        return None
