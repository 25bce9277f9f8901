"""Figures of studies, policies and trade-offs, drawn with matplotlib; here they are found by name and by type.

A study or a policy enters, a `matplotlib.figure.Figure` leaves; ``figure.savefig("name.pdf")`` writes it. No window is
opened, pyplot is not imported and matplotlib's global settings stay as they are. `curves` draws regret, violation and
multipliers of studies, `plans` prices, comparisons, totals, courses, logs, and policies as boards and maps, and `style`
holds the look and how figures are sized and saved. Other rooms may import all of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.from_log import Estimate
from cmdpkit.exact.comparison import PolicyComparison
from cmdpkit.exact.diagnosis import Tradeoff
from cmdpkit.exact.solution import Solution
from cmdpkit.model import showing
from cmdpkit.model.policy import Policy
from cmdpkit.operators.policies import TimeCourse
from cmdpkit.results.figures import curves, plans
from cmdpkit.results.study import Study, model_of
from cmdpkit.simulate.distribution import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


ELSEWHERE = ("algos", "labels", "env", "algo")  # options of version 0.2; a study chooses and renames for every use


def draw(study: Study, name: str, **options: Any) -> Figure:
    """The figure called ``name`` of a study, with its options."""
    drawn: Mapping[str, Callable[..., Figure]] = {
        "overview": curves.overview,
        "regret": curves.regret,
        "violation": curves.violation,
        "certified_gap": curves.certified_gap,
        "multiplier": partial(curves.multiplier, models=study.models),
        "sweep": curves.parameter_sweep,
        "policy": plans.policy_boards,
        "occupancy": plans.occupancy_maps,
    }
    if name == "price":
        raise CmdpkitError("the figure 'price' was removed: ck.tradeoff(model, name).plot(policies={...}) draws it")
    if name not in drawn:
        raise CmdpkitError(f"there is no figure {name!r}; there are {', '.join(drawn)}")
    for option in ELSEWHERE:
        if option in options:
            raise CmdpkitError(
                f"the option {option!r} of figures was removed: study.only(algos=..., envs=...) chooses runs and their "
                "order, and study.with_labels({name: text}) renames"
            )
    if not study.records:
        raise CmdpkitError("there is no finished run to draw")
    if name not in ("policy", "occupancy"):
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
showing.draw.register(TimeCourse, plans.course)
showing.draw.register(Estimate, plans.coverage_map)
showing.draw.register(Study, draw)
