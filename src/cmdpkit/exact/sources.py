"""The source of columns of a model, whatever its criterion."""

from __future__ import annotations

from cmdpkit.exact.columns import Columns, PolicySource
from cmdpkit.exact.horizon import Horizon
from cmdpkit.exact.stationary.problem import Arrays
from cmdpkit.exact.stationary.sources import BRIDGE, Stationary
from cmdpkit.exact.steps import Threads
from cmdpkit.exact.units import Units
from cmdpkit.model.cmdp import CMDP
from cmdpkit.tolerances import FEASIBLE


def source_of(
    cmdp: CMDP, *, ranges: Units | None = None, threads: Threads = None, bridge: float | None = None
) -> PolicySource:
    """Where the columns of a model come from.

    ``ranges``, where they are known already, and ``threads`` are for models with a horizon. ``bridge`` is for averages.
    """
    if not cmdp.criterion.stationary:
        return Horizon(cmdp, ranges, threads)
    c, criterion = cmdp.compact, cmdp.criterion
    names = (cmdp.states, cmdp.action_names)
    transitions, discount = (c.indptr, c.successors, c.prob), criterion.discount or 1.0
    arrays = Arrays(*transitions, c.r[0], c.g[:, 0], c.mu, c.allowed[0], criterion.kind, discount, names)
    source = Stationary(arrays, cmdp)
    source.bridge = BRIDGE if bridge is None else bridge
    return source


def columns_of(
    cmdp: CMDP,
    band: float = FEASIBLE / 2,
    *,
    ranges: Units | None = None,
    threads: Threads = None,
    bridge: float | None = None,
) -> Columns[PolicySource]:
    """An empty pool for a model; `Columns` and `source_of` describe the arguments."""
    return Columns(source_of(cmdp, ranges=ranges, threads=threads, bridge=bridge), band)
