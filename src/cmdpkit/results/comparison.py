"""Given policies: compared with the optimum, explained in a single decision, and played over many episodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.exact.comparison import Difference, Explanation, Judged, Option, PolicyComparison
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.validate import Name, written_name
from cmdpkit.results.tables import EMPTY_LINE, QUIET, Column, Table, TerminalTable, each, numbers, odds
from cmdpkit.results.wording import bounded, counted, label, number, percent, ranges, short, titled
from cmdpkit.simulate.distribution import Simulation, TotalShare, exact_distribution

MOST_DIFFERENCES = 15  # rows of the table of differences
MOST_STEP_LETTERS = 12  # characters of a list of steps
MOST_NAMED = 2  # actions of a random decision that are named in a table


# -- comparisons -------------------------------------------------------------------------------------------------------


def with_optimum(found: PolicyComparison) -> tuple[Judged, ...]:
    """The policies, and the optimum as the last one."""
    best = found.optimum
    return (*found.policies, Judged("optimum", best.value, best.utilities, (True,) * best.cmdp.N, 0.0, 0.0))


def judged_table(found: PolicyComparison) -> Table[Judged]:
    """One row per policy, and one for the optimum: totals, violated bounds, and the loss."""
    cmdp = found.optimum.cmdp
    return Table("policies beside the optimum", (
        Column("name", "policy", "The policy.", lambda x: x.name, tone=lambda _: "name"),
        numbers("value", "value", "Its expected reward.", lambda x: x.value),
        *(_total(cmdp, n) for n in range(cmdp.N)),
        numbers("below", "below the optimum", "The optimal value less this one.", lambda x: x.below),
        numbers("priced", "at the prices",
                "The same, plus what its other totals fall short of the optimum's, at the prices of the bounds.",
                lambda x: x.priced),
        Column("met", "bounds", "Whether all bounds are met.", lambda x: all(x.met),
               each(lambda met: "met" if met else "violated"), tone=lambda x: "" if all(x.met) else "alert"),
    ), with_optimum(found))  # fmt: skip


def _total(cmdp: CMDP, n: int) -> Column[Judged]:
    c = cmdp.constraints[n]
    heading = f"{label(c.name)} {bounded(c)}"
    return numbers(f"total_{n + 1}", heading, "The expected total of this constraint.", lambda x: float(x.utilities[n]),
                   tone=lambda x: "" if x.met[n] else "alert")  # fmt: skip


def difference_table(rows: Sequence[Difference]) -> Table[Difference]:
    """Where policies decide otherwise than the optimum, and what that costs."""
    return Table("what the differences cost", (
        Column("name", "policy", "The policy.", lambda x: x.name),
        Column("state", "state", "The state.", lambda x: written_name(x.state)),
        Column("steps", "steps", "The steps, from 1.", lambda x: list(x.steps), each(_steps)),
        Column("does", "does", "What the policy does there.", lambda x: _texts(x.does), each(_written)),
        Column("optimum", "optimum", "What the optimum does there.", lambda x: _texts(x.optimum), each(_written)),
        numbers("visits", "visits", "How often the policy gets there, per episode.", lambda x: x.visits, each(short)),
        numbers("cost", "costs", "What it costs per episode, at the prices of the bounds.", lambda x: x.cost),
    ), tuple(rows))  # fmt: skip


def _steps(steps: Sequence[int]) -> str:
    """The steps of a difference, or their ends and number where they are scattered."""
    text = ranges(steps)
    return text if len(text) <= MOST_STEP_LETTERS else f"{len(steps)} of {steps[0]}–{steps[-1]}"


def _texts(probabilities: Mapping[Name, float]) -> dict[str | int, float]:
    return {written_name(action): p for action, p in probabilities.items()}


def _written(probabilities: Mapping[Name, float]) -> str:
    if len(probabilities) == 1:
        return label(next(iter(probabilities)))
    if len(probabilities) > MOST_NAMED:
        return f"draws from {len(probabilities)} actions"
    return ", ".join(f"{percent(p)} {label(a)}" for a, p in probabilities.items())


def comparison(found: PolicyComparison) -> RenderableType:
    """Policies and the optimum side by side, and where they differ."""
    parts: list[RenderableType] = [TerminalTable(judged_table(found))]
    rows = found.differences
    if rows:
        total = sum(x.cost for x in rows)
        text = f"{counted(len(rows), 'difference')} cost {number(total)} per episode, at the prices of the bounds:"
        parts += [EMPTY_LINE, Text(text), EMPTY_LINE, TerminalTable(difference_table(rows[:MOST_DIFFERENCES]))]
        if len(rows) > MOST_DIFFERENCES:
            parts.append(Text(f"… and {len(rows) - MOST_DIFFERENCES:,} more", style=QUIET))
    elif not found.optimum.cmdp.criterion.has_horizon:
        parts += [EMPTY_LINE, Text("Without a horizon, differences are not listed decision by decision.", style=QUIET)]
    else:
        parts += [EMPTY_LINE, Text("No decision costs anything at the prices of the bounds.")]
    return Group(*parts)


# -- explanations ------------------------------------------------------------------------------------------------------


def option_table(found: Explanation) -> Table[Option]:
    """The actions in a state, the best first."""
    return Table("actions", (
        Column("action", "action", "The action.", lambda x: written_name(x.action)),
        numbers("probability", "taken", "How often the policy takes it there.", lambda x: x.probability, odds),
        numbers("value", "value", "The reward from here on.", lambda x: x.value),
        *(_ahead(found.cmdp, n) for n in range(found.cmdp.N)),
        numbers("priced", "at the prices", "Value and other totals together, at the prices of the bounds.",
                lambda x: x.priced),
        numbers("loses", "loses", "What it loses against the best action.", lambda x: x.loses),
    ), found.options)  # fmt: skip


def _ahead(cmdp: CMDP, n: int) -> Column[Option]:
    name = label(cmdp.constraints[n].name)
    explained = "The total of this constraint from here on."
    return numbers(f"total_{n + 1}", name, explained, lambda x: float(x.utilities[n]))


def explanation(found: Explanation) -> RenderableType:
    """Why a policy does what it does somewhere."""
    step = "" if found.step is None else f"step {found.step}, "
    where = Text.assemble((f"{step}{titled('state', found.state)}", "bold"))
    where.append(f": {_reached(found)}. {found.why}.")
    prices = ", ".join(
        f"{label(c.name)} {number(float(p))}{' for 1 more per step' * c.per_step}"
        for c, p in zip(found.cmdp.constraints, found.prices, strict=True)
    )
    note = [Text(f"Prices of the bounds: {prices}.", style=QUIET)] if prices else []
    return Group(where, EMPTY_LINE, TerminalTable(option_table(found)), EMPTY_LINE, *note)


def _reached(found: Explanation) -> str:
    if found.step is not None:
        return f"reached in {percent(found.reach)} of the episodes"
    if found.cmdp.criterion.kind == "total":
        return f"visited {number(found.reach)} times"
    return f"{percent(found.reach)} of the time is spent there"


# -- simulations -------------------------------------------------------------------------------------------------------


class Spread(NamedTuple):
    """How a total is distributed over episodes."""

    plan: str  # what the policy is called, where there are several
    name: str  # of the total
    mean: float  # over the episodes
    quantiles: tuple[float, ...]  # totals that 5, 25, 50, 75 and 95 % of the episodes do not exceed
    limit: Constraint | None  # the bound on the mean
    missed: TotalShare | None  # probability that one episode misses it
    exact: float | None  # the same without chance, where totals are counted in units
    known_by: str  # "outcomes", or "means" where outcomes vary more than this


def spread_table(played: Mapping[str, Simulation]) -> Table[Spread]:
    """One row per total and policy: mean, quantiles, and how often an episode misses the bound."""
    first = next(iter(played.values()))
    totals = zip(first.totals, (None, *first.cmdp.constraints), strict=True)
    rows = [_spread(plan, x, name, c) for name, c in totals for plan, x in played.items()]
    plans = [Column[Spread]("plan", "plan", "Whose episodes these are.", lambda x: x.plan)] if any(played) else []
    at = ("5 %", "25 %", "50 %", "75 %", "95 %")
    return Table("totals of single episodes", (
        Column("name", "total", "The reward or the constraint.", lambda x: x.name),
        *plans,
        numbers("mean", "mean", "The mean over the episodes.", lambda x: x.mean),
        *(_quantile(i, name) for i, name in enumerate(at)),
        numbers("limit", "bound", "The bound on the mean.", lambda x: x.limit, each(bounded),
                data=lambda key, c: {key: None if c is None else c.bound_on_total}),
        Column("missed", "episodes beyond it", "How often an episode misses the bound, with an interval of 95 %.",
               lambda x: x.missed, each(lambda x: f"{percent(x.low)} to {percent(x.high)}"), "right",
               data=lambda key, x: {key: None if x is None else x._asdict()}),
        numbers("exact", "exactly", "The same, exactly.", lambda x: x.exact, odds),
        Column("known_by", "known by", "What the model knows: outcomes, or only means, and then outcomes vary more.",
               lambda x: x.known_by, shown=False),
    ), tuple(rows))  # fmt: skip


def _quantile(i: int, heading: str) -> Column[Any]:
    meaning = f"{heading} of the episodes stay below it."
    return numbers(f"quantile_{heading[:-2]}", heading, meaning, lambda x: x.quantiles[i])


def _spread(plan: str, played: Simulation, name: str, c: Constraint | None) -> Spread:
    mean, quantiles = float(played.totals[name].mean()), tuple(played.quantiles(name))
    known_by = "means" if name in played.of_means else "outcomes"
    if c is None:
        return Spread(plan, name, mean, quantiles, None, None, None, known_by)
    counted = None
    if isinstance(played.cmdp, CMDP) and known_by == "outcomes" and played.cmdp.criterion.has_horizon:
        counted = exact_distribution(played.cmdp, played.policy, name) if name in played.cmdp.exact else None
    side = "above" if c.sense == "at_most" else "below"
    exact = None if counted is None else getattr(counted, side)(c.bound_on_total)
    return Spread(plan, name, mean, quantiles, c, getattr(played, side)(name, c.bound_on_total), exact, known_by)


def simulation(name: str, played: Simulation) -> RenderableType:
    """How totals spread over episodes."""
    headline = Text.assemble((label(name), "bold"), f": {_played(played)}")
    note = [Text(means_note(played.of_means), style=QUIET)] if played.of_means else []
    return Group(headline, EMPTY_LINE, TerminalTable(spread_table({"": played})), *note)


def means_note(names: Iterable[str]) -> str:
    """What to say about totals of signals that a model knows by their means alone."""
    return (
        f"{', '.join(map(label, names))}: of the means; outcomes vary more, unless a step earns exactly the mean. Give "
        "the outcomes in the model, or say there that it is exact."
    )


def _played(played: Simulation) -> str:
    """How many episodes were played, and of what kind where there is no horizon."""
    kind = played.cmdp.criterion.kind
    if kind == "finite":
        return counted(played.episodes, "episode")
    runs = f"{counted(played.episodes, 'run')} of {counted(played.steps, 'step')}"
    if kind == "average":
        return f"{runs}; means per step"
    if kind == "discounted":
        return f"{runs}, discounted; all later steps weigh {percent(played.left_out)}"
    return f"{runs}; {percent(played.left_out)} of the runs last longer"
