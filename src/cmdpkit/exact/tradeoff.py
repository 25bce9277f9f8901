"""The optimal value as a function of one bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.exact.infeasible import Infeasible
from cmdpkit.exact.progress import Watch
from cmdpkit.exact.ranges import indifferent, strictest
from cmdpkit.exact.solver import Solution, need_horizon, solve_in
from cmdpkit.exact.sources import columns_of
from cmdpkit.exact.steps import Threads
from cmdpkit.model import showing
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.fits import check_model
from cmdpkit.model.showing import Shown
from cmdpkit.model.transitions import FloatArray
from cmdpkit.model.validate import is_int
from cmdpkit.tolerances import FEASIBLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The ends of the curve are totals of solutions, found with `ranges.REACHED_BOUND_BAND`. A slightly wider band makes
# them count as feasible here too.
MOST_POINTS = 1_000_000  # of a curve; more are taken for a mistake
CURVE_END_BAND = 0.6 * FEASIBLE


@dataclass(frozen=True)
class Tradeoff(Shown):
    """The optimal value as a function of one bound, in the unit in which that bound was given."""

    constraint: Constraint  # whose bound is moved, with the bound of the model
    bounds: FloatArray  # [points], the bounds that can be met
    values: FloatArray  # [points], the optimal value under each
    prices: FloatArray  # [points], the shadow price of this bound
    utilities: FloatArray  # [points, N], expected totals of the constraints' signals
    infeasible: FloatArray  # the bounds asked for that no policy meets

    @property
    def name(self) -> str:
        """The name of the constraint."""
        return self.constraint.name

    @classmethod
    def of(cls, cmdp: CMDP, name: str, met: Sequence[tuple[float, Solution]], unmet: Sequence[float]) -> Tradeoff:
        """The curve of one constraint's bound from the bounds that can be met, with their optima, and the others."""
        k = cmdp.constraint_index(name)
        return cls(
            cmdp.constraints[k],
            np.array([bound for bound, _ in met]),
            np.array([s.value for _, s in met]),
            np.array([s.shadow_prices[k] for _, s in met]),
            np.array([s.utilities for _, s in met]).reshape(len(met), cmdp.N),
            np.array(unmet),
        )

    def plot(self, bound: float | None = None) -> Figure:
        """A matplotlib figure: the value and the price for every bound; ``bound`` is marked, by default the model's."""
        return showing.draw(self, self.constraint.bound if bound is None else bound)

    def rows(self) -> list[dict[str, float]]:
        """One dictionary per point, with the keys bound, value and price."""
        keys = ("bound", "value", "price")
        return [
            dict(zip(keys, map(float, row), strict=True))
            for row in zip(self.bounds, self.values, self.prices, strict=True)
        ]


def _is_finite(x: object) -> bool:
    try:
        return not isinstance(x, (str, bytes, bool)) and math.isfinite(x)  # type: ignore[arg-type]
    except (TypeError, OverflowError):
        return False


def tradeoff(
    cmdp: CMDP,
    name: str,
    n: int = 21,
    *,
    low: float | None = None,
    high: float | None = None,
    threads: Threads = None,
) -> Tradeoff:
    """The optimal value for ``n`` different bounds of one constraint, evenly spaced from ``low`` to ``high``.

    Parameters
    ----------
    cmdp : the model; its other bounds stay as they are
    name : of the constraint whose bound is moved
    n : how many bounds are tried
    low, high : the smallest and the largest of them, per step if the bound is. By default they go from where the bound
        no longer changes the optimum to the strictest bound that can be met together with the others.
    threads : how many threads to use for large models with a horizon; all cores unless given

    Returns
    -------
    The `Tradeoff`, which lists the bounds that no policy meets separately.

    >>> import cmdpkit as ck
    >>> cmdp = ck.CMDP([[[1.0], [1.0]]], r=[[1.0, 0.0]], g=[[[0.0, 1.0]]], rho=[1.5], horizon=2)
    >>> [(round(row["bound"], 6), round(row["value"], 6)) for row in tradeoff(cmdp, "utility", 3).rows()]
    [(0.0, 2.0), (1.0, 1.0), (2.0, 0.0)]
    """
    check_model(cmdp)
    k = cmdp.constraint_index(name)
    if not is_int(n) or not 1 <= n <= MOST_POINTS:
        raise CmdpkitError(
            f"n is {quoted(n)}, expected a whole number of points, at least 1 and at most {MOST_POINTS:,}"
        )
    for what, end in (("low", low), ("high", high)):
        if end is not None and not _is_finite(end):
            raise CmdpkitError(f"{what} is {quoted(end)}, expected a finite number")
    need_horizon(cmdp, threads=threads)
    if low is None or high is None:
        ends = _ends(cmdp, k, threads)
        low, high = (ends[0] if low is None else low), (ends[1] if high is None else high)
    asked = np.linspace(low, high, n)
    pool = columns_of(cmdp, CURVE_END_BAND, threads=threads)
    met: list[tuple[float, Solution]] = []
    unmet: list[float] = []
    for bound in asked:
        moved = cmdp.with_bounds(**{name: float(bound)})
        try:
            met.append((float(bound), solve_in(pool, moved, "auto", Watch())))
        except Infeasible:
            unmet.append(float(bound))
    return Tradeoff.of(cmdp, name, met, unmet)


def _ends(cmdp: CMDP, k: int, threads: Threads) -> list[float]:
    """Where bound k stops to change the optimum and where it can no longer be met, in ascending order."""
    c = cmdp.constraints[k]
    try:
        return sorted(x / c.scale for x in (indifferent(cmdp, k, threads), strictest(cmdp, k, threads)))
    except Infeasible:
        raise
    except CmdpkitError as error:  # a total of this signal alone need not be finite
        raise CmdpkitError(
            f"the range of bounds of {quoted(c.name)} is not known: {error}. Give low= and high="
        ) from None
