"""Figures of studies, policies and trade-offs, drawn with matplotlib; here they are found by name and by type.

A study or a policy enters, a `matplotlib.figure.Figure` leaves; ``figure.savefig("name.pdf")`` writes it. No window is
opened, pyplot is not imported and matplotlib's global settings stay as they are. `curves` draws regret, violation and
multipliers of studies, `plans` prices, comparisons, totals, and policies as boards and maps, and `style` holds
 the look and how figures are sized and saved. Other rooms may import all of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.comparison import PolicyComparison
from cmdpkit.exact.solution import Solution
from cmdpkit.exact.tradeoff import Tradeoff
from cmdpkit.model import showing
from cmdpkit.model.policy import Policy
from cmdpkit.results.figures import curves, plans
from cmdpkit.results.study import Study, model_of
from cmdpkit.simulate.distribution import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(study: Study, name: str, **options: Any) -> Figure:
    """The figure called ``name`` of a study, with its options."""
    drawn: Mapping[str, Callable[..., Figure]] = {
        "overview": curves.overview,
        "regret": curves.regret,
        "violation": curves.violation,
        "certified_gap": curves.certified_gap,
        "multiplier": partial(curves.multiplier, models=study.models),
        "policy": plans.policy_boards,
    }
    if name not in drawn:
        raise CmdpkitError(f"there is no figure {name!r}; there are {', '.join(drawn)}")
    if not study.records:
        raise CmdpkitError("there is no finished run to draw")
    if name != "policy":
        return drawn[name](study.groups(), **options)
    first = study.records[0]
    cmdp = model_of(first.run, study.models)
    if cmdp is None:
        raise CmdpkitError(
            f"the model of {first.run.env} is not at hand; pass it: Study(records, models={{name: cmdp}})"
        )
    return drawn[name](cmdp, first.policy, **options)


showing.draw.register(Policy, plans.policy_map)
showing.draw.register(Solution, plans.solution_map)
showing.draw.register(Tradeoff, plans.price_curve)
showing.draw.register(Simulation, plans.totals)
showing.draw.register(PolicyComparison, plans.comparison_bars)
showing.draw.register(Study, draw)
