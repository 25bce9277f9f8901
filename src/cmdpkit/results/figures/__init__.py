"""Figures of studies, policies and trade-offs, drawn with matplotlib; here they are found by name and by type.

A study or a policy enters, a `matplotlib.figure.Figure` leaves; ``figure.savefig("name.pdf")`` writes it. No window is
opened, pyplot is not imported and matplotlib's global settings stay as they are. `curves` draws regret, violation and
multipliers of studies, `plans` prices, comparisons, totals, courses, logs, and policies as boards and maps, and `style`
holds the look and how figures are sized and saved. Other rooms may import all of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

from cmdpkit.errors import CmdpkitError
from cmdpkit.estimate.from_log import Estimate
from cmdpkit.exact.comparison import PolicyComparison
from cmdpkit.exact.solution import Solution
from cmdpkit.exact.tradeoff import Tradeoff
from cmdpkit.model import showing
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import Policy
from cmdpkit.operators.policies import TimeCourse
from cmdpkit.records.record import RunRecord
from cmdpkit.results.figures import curves, plans
from cmdpkit.results.study import Study, model_of
from cmdpkit.simulate.distribution import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(
    study: Study,
    name: str,
    *,
    algos: str | Sequence[str] | None = None,
    labels: Mapping[str, str] | None = None,
    **options: Any,
) -> Figure:
    """The figure called ``name`` of a study with its options, of some algorithms in this order, under other names."""
    drawn: Mapping[str, Callable[..., Figure]] = {
        "overview": curves.overview,
        "regret": curves.regret,
        "violation": curves.violation,
        "certified_gap": curves.certified_gap,
        "multiplier": curves.multiplier,
        "sweep": curves.parameter_sweep,
        "policy": plans.policy_boards,
        "occupancy": plans.occupancy_maps,
    }
    if name == "price":
        raise CmdpkitError("the figure 'price' was removed: ck.tradeoff(model, name).plot(policies={...}) draws it")
    if name not in drawn:
        raise CmdpkitError(f"there is no figure {name!r}; there are {', '.join(drawn)}")
    if not study.records:
        raise CmdpkitError("there is no finished run to draw")
    boards = name in ("policy", "occupancy")
    known = [x.name for x in signature(drawn[name]).parameters.values() if x.name not in NOT_OPTIONS]
    known += ["env", "algo"] if boards else ["algos", "labels"]
    for option in (*options, *(["algos"] if algos and boards else []), *(["labels"] if labels and boards else [])):
        if option not in known:
            raise CmdpkitError(f"the figure {name!r} has no option {option!r}; it has {', '.join(known)}")
    if boards:
        record, cmdp = _modelled(study, options.pop("env", None), options.pop("algo", None))
        return drawn[name](cmdp, record.policy, **options)
    study = _arranged(study, algos, labels)
    return drawn[name](study.groups(), **({"models": study.models} if name == "multiplier" else {}), **options)


NOT_OPTIONS = ("found", "study", "models", "cmdp", "policy")  # what `draw` itself gives to the functions


def _arranged(study: Study, algos: str | Sequence[str] | None, labels: Mapping[str, str] | None) -> Study:
    """The runs of some algorithms, in the order in which these are given, under other names."""
    asked = [algos] if isinstance(algos, str) else list(algos or ())
    if labels is not None and not isinstance(labels, Mapping):
        raise CmdpkitError(f"labels is {labels!r}, expected a mapping of names to labels")
    parts = [study.only(algos=algo).records for algo in asked]
    order = {record.run.key: i for i, part in reversed(list(enumerate(parts))) for record in part}
    kept = (record for record in study.records if record.run.key in order)
    chosen = replace(study, records=tuple(sorted(kept, key=lambda record: order[record.run.key]))) if asked else study
    return chosen.with_labels(labels) if labels else chosen


def _modelled(study: Study, env: str | None, algo: str | None = None) -> tuple[RunRecord, CMDP]:
    """The first record that fits, and its model."""
    fitting = [r for r in study.records if env in (None, r.run.env) and algo in (None, r.run.algo)]
    if not fitting:
        asked = " on ".join(x for x in (algo, env) if x)
        raise CmdpkitError(
            f"there is no run of {asked}; there are {sorted({(r.run.algo, r.run.env) for r in study.records})}"
        )
    cmdp = model_of(fitting[0].run, study.models)
    if cmdp is None:
        raise CmdpkitError(
            f"the model of {fitting[0].run.env} is not at hand; pass it: Study(records, models={{name: cmdp}})"
        )
    return fitting[0], cmdp


showing.draw.register(Policy, plans.policy_map)
showing.draw.register(Solution, plans.solution_map)
showing.draw.register(Tradeoff, plans.price_curve)
showing.draw.register(Simulation, plans.totals)
showing.draw.register(PolicyComparison, plans.comparison_bars)
showing.draw.register(TimeCourse, plans.course)
showing.draw.register(Estimate, plans.coverage_map)
showing.draw.register(Study, draw)
