"""The same model judged by another criterion."""

from __future__ import annotations

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.model.cmdp import CMDP


def judged_by(cmdp: CMDP, *, horizon: int | None, discount: float | None, criterion: str | None) -> CMDP:
    """The model with another horizon, discount or criterion; CmdpkitError unless all bounds were given per step."""
    for c in cmdp.constraints:
        if not c.per_step:
            raise CmdpkitError(
                f"the bound of {quoted(c.name)} is on the whole value under the present criterion, which would mean "
                "something else under another one; give the bound per step, with per_step=True"
            )
    arrays = cmdp.compact
    made = CMDP(
        cmdp.kernel,
        arrays.r,
        [c.sign * x for c, x in zip(cmdp.constraints, arrays.g, strict=True)],
        mu=cmdp.mu,
        horizon=horizon,
        discount=discount,
        criterion=criterion,
        actions=arrays.allowed,
        constraints=cmdp.constraints,
        states=cmdp.states,
        action_names=cmdp.action_names,
        grid=cmdp.grid,
    )
    vars(made).update(notes=cmdp.notes)
    return made
