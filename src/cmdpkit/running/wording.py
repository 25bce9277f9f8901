"""What a learner says about bounds, in the user's names and units."""

from __future__ import annotations

from cmdpkit.learners._bound_warning import BoundWarning
from cmdpkit.running.worlds import World


def in_users_units(sentence: str, world: World) -> str:
    """A note or warning of a learner as a user of this world reads it.

    Where the optimum of the world is known, all bounds can be met, and no warning says otherwise.
    """
    if not isinstance(sentence, BoundWarning):
        return sentence
    possible = world.optimum is not None
    n = sentence.constraint
    if n is None:
        return sentence.told("a constraint", possible=possible)
    reward, utility = world.scales[0].span, world.scales[1 + n].span
    name = str(world.constraints[n])
    return sentence.told(name, sentence.by * utility, sentence.price * reward / utility, possible=possible)
