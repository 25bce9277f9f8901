"""Notes for the user where the constants of a theory are so large that they say nothing at this number of episodes."""

from __future__ import annotations

from cmdpkit.estimate.boxes import bernstein, hoeffding
from cmdpkit.learners import Spec


def even_visits(spec: Spec) -> int:
    """Visits that a count rests on when K episodes are spread evenly; in a stationary world the steps share them."""
    cells = int(spec.allowed.any(axis=0).sum() if spec.stationary else spec.allowed.sum())
    return max(1, spec.K * spec.H // cells)


def transition_and_signal(spec: Spec, kernel_log: float, mean_log: float) -> float:
    """The bonus beta_l + H sum beta_p of an action after `even_visits`, if all next states are equally likely."""
    n = even_visits(spec)
    per_state = bernstein(1 / spec.S, n, kernel_log) if spec.H > 1 else 0.0
    return float(hoeffding(n, mean_log) + spec.H * spec.S * per_state)


def on_radius(spec: Spec, radius: float, noticeable: float = 0.1) -> tuple[str, ...]:
    """A note where the radius of a signal after `even_visits` is at least `noticeable`, as a share of its range."""
    if radius < noticeable:
        return ()
    return (
        f"K = {spec.K} episodes spread evenly are {even_visits(spec)} visits a pair, after which the mean of "
        f"a reward or utility is still uncertain by {radius:.0%} of its range: the bounds will be missed by about as "
        "much in every step",
    )


def on_bonus(spec: Spec, bonus: float) -> tuple[str, ...]:
    """A note where a bonus after `even_visits` exceeds all that a step can earn."""
    if bonus < 1:
        return ()
    return (
        f"K = {spec.K} episodes spread evenly are {even_visits(spec)} visits a pair, after which its bonus is still "
        f"{bonus:.3g} times what a step can earn at most: values promise everything and mean little",
    )
