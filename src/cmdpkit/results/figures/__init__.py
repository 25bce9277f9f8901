"""Figures of studies, policies and trade-offs, drawn with matplotlib; here they are found by name and by type.

A study or a policy enters, a `matplotlib.figure.Figure` leaves; ``figure.savefig("name.pdf")`` writes it. No window is
opened, pyplot is not imported and matplotlib's global settings stay as they are. `curves` draws regret, violation and
prices, `policies` draws policies and how totals of their episodes spread, and `style` holds the look and how figures
are saved. Other rooms may import all of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.solution import Solution
from cmdpkit.exact.tradeoff import Tradeoff, tradeoff
from cmdpkit.model import showing
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import Policy
from cmdpkit.records.record import RunRecord
from cmdpkit.results.figures.curves import (
    certified_gap,
    multiplier,
    overview,
    parameter_sweep,
    price_curve,
    regret,
    violation,
)
from cmdpkit.results.figures.policies import occupancy_maps, policy_boards, policy_map, solution_map, totals
from cmdpkit.results.study import Study, model_of
from cmdpkit.simulate.distribution import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(study: Study, name: str, **options: Any) -> Figure:
    """The figure called ``name``, of a study; see the function of that name for its options."""
    drawn: Mapping[str, Callable[..., Figure]] = {
        "overview": lambda **o: overview(study.groups(), **o),
        "regret": lambda **o: regret(study.groups(), **o),
        "violation": lambda **o: violation(study.groups(), **o),
        "certified_gap": lambda **o: certified_gap(study.groups(), **o),
        "multiplier": lambda **o: multiplier(study.groups(), models=study.models, **o),
        "sweep": lambda **o: parameter_sweep(study.groups(), **o),
        "price": lambda **o: _price_of(study, **o),
        "policy": lambda **o: _board_of(study, policy_boards, **o),
        "occupancy": lambda **o: _board_of(study, occupancy_maps, **o),
    }
    if name not in drawn:
        raise CmdpkitError(f"there is no figure {name!r}; there are {', '.join(drawn)}")
    if not study.records:
        raise CmdpkitError("there is no finished run to draw")
    return drawn[name](**options)


def _price_of(study: Study, *, env: str | None = None, constraint: str | None = None, points: int = 21) -> Figure:
    """The price curve of one constraint of one environment; by default the first of each."""
    run, cmdp = _modelled(study, env)
    if cmdp.N == 0:
        raise CmdpkitError(f"{run.run.env} has no constraint, hence no price")
    name = cmdp.constraints[0].name if constraint is None else constraint
    bound = cmdp.constraints[cmdp.constraint_index(name)].bound
    return price_curve(tradeoff(cmdp, name, points), bound, run.run.env)


def _board_of(
    study: Study, drawn: Callable[..., Figure], *, env: str | None = None, algo: str | None = None, **options: Any
) -> Figure:
    """Boards of the policy of the first run of an algorithm; by default of the first run of the study."""
    record, cmdp = _modelled(study, env, algo)
    return drawn(cmdp, record.policy, **options)


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


showing.draw.register(Policy, policy_map)
showing.draw.register(Solution, solution_map)
showing.draw.register(Tradeoff, price_curve)
showing.draw.register(Simulation, totals)
showing.draw.register(Study, draw)
