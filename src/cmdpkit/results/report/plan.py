"""The report of a plan: what a model's bounds cost, and today's way of working against the best and a simple plan.

One HTML page to show to people who decide, made from what `compare_policies`, `simplify`, `tradeoff` and
`simulate_policy` say. Nothing is computed here that these do not give.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.exact.comparison import Judged, PolicyComparison, compare_policies
from cmdpkit.exact.diagnosis import tradeoff
from cmdpkit.exact.solver import Solution, solve_fully
from cmdpkit.io.atomic import write_text
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.constraints import Constraint
from cmdpkit.model.fits import check_model
from cmdpkit.model.policy import Mixture, Policy
from cmdpkit.results.policies import bars_of, difference_table, judged_table, means_note, spread_table, with_optimum
from cmdpkit.results.report import (
    MOST_PAIRS,
    PRICE_POINTS,
    Plain,
    page_of,
    policy_data,
    policy_frame,
    tradeoff_data,
)
from cmdpkit.results.simplify import Simplified, simplify
from cmdpkit.results.solution import constraint_table, price_note, rule_table
from cmdpkit.results.tables import Table
from cmdpkit.results.wording import bounded, counted, label, number, percent, short
from cmdpkit.simulate.distribution import Simulation, simulate_policy

BEST, SIMPLE, TODAY = "optimum", "simple", "today"
EPISODES = 20_000  # played of every plan, for the spread of single episodes
MOST_BARS = 40  # of a histogram
MOST_DIFFERENCES = 12  # that are listed and drawn, the dearest first


def plan_report(
    cmdp: CMDP,
    path: str | os.PathLike[str],
    today: Any = None,
    *,
    title: str = "",
    within: float = 0.01,
    episodes: int = EPISODES,
    seed: int = 0,
    overwrite: bool = False,
) -> Path:
    """Write one HTML page about the best plan of a model, which needs no network and can be sent to anybody.

    It shows the bounds and their prices, the policies that are given against the optimum and a simple policy, the
    decisions that cost most, and how totals of single episodes spread.

    Parameters
    ----------
    cmdp : the model
    path : the file to write, which ends in .html
    today : what is done today: a policy, or several as {name: policy}, as in `compare_policies`
    title : the heading of the page
    within : the share of the optimum that the simple policy may give up, as in `simplify`
    episodes, seed : how many episodes of every policy are played for the spread, and the seed of the random numbers
    overwrite : whether a file of that name is replaced

    >>> import cmdpkit as ck, tempfile
    >>> cmdp = ck.load("queue")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = plan_report(cmdp, f"{folder}/plan.html", ck.Policy.uniform(cmdp), episodes=100)
    ...     "exceeds the limit on backlog" in page.read_text(encoding="utf-8")
    True
    """
    text = render_plan(cmdp, today, title=title, within=within, episodes=episodes, seed=seed)
    return write_text(path, text, overwrite=overwrite)


def render_plan(
    cmdp: CMDP, today: Any, *, title: str = "", within: float = 0.01, episodes: int = EPISODES, seed: int = 0
) -> str:
    """The page as text."""
    check_model(cmdp)
    given = today if isinstance(today, Mapping) else {} if today is None else {TODAY: today}
    for name in (BEST, SIMPLE):
        if name in given:
            raise CmdpkitError(
                f"a policy is called {quoted(name)}, which the report uses for one of its own; rename it"
            )
    best = solve_fully(cmdp)
    policies = {name: x if isinstance(x, (Policy, Mixture)) else Policy.of(cmdp, x) for name, x in given.items()}
    simple, notes = _simple(best, within)
    plans: dict[str, Any] = {**policies, **({} if simple is None else {SIMPLE: simple.policy}), BEST: best.policy}
    found = compare_policies(cmdp, plans)
    found = replace(found, policies=tuple(x for x in found.policies if x.name != BEST))
    shown = {name: x for name, x in plans.items() if isinstance(x, Policy)}
    if len(shown) < len(plans):
        mixed = ", ".join(label(name) for name in plans if name not in shown)
        notes.append(f"A draw among several policies ({mixed}) has no decisions and single episodes on this page.")
    if cmdp.n_steps * cmdp.S > MOST_PAIRS:
        notes.append("The model is large: price curves and policies are left out.")
    played = {name: simulate_policy(cmdp, x, episodes, seed=seed) for name, x in shown.items()}
    if cmdp.of_means and played:
        notes.append(f"Single episodes of {means_note(cmdp.of_means)}")
    dear = tuple(x for x in found.differences if x.name in given)[:MOST_DIFFERENCES]
    tables: dict[str, Table[Any]] = {"plans": judged_table(found)}
    tables |= {"spread": spread_table(played)} if played else {}
    tables |= {"bounds": constraint_table(best)} if cmdp.N else {}
    tables |= {"differences": difference_table(dear)} if dear else {}
    tables |= {"rules": rule_table(simple)} if simple is not None and simple.phases else {}
    looks = {name: i + 1 if name in given else 0 if name == BEST else len(given) + 1 for i, name in enumerate(plans)}
    return page_of(
        "plan.html",
        "plan.js",
        _data(found, looks, shown, played),
        tables,
        title or "The best plan, and what the bounds cost",
        said=_said(found, simple, given),
        facts=_facts(best),
        looks=looks,
        price_note=price_note(best),
        episodes=episodes,
        seed=seed,
        notes=tuple(notes),
    )


def _simple(best: Solution, within: float) -> tuple[Simplified | None, list[str]]:
    """A simpler policy than the optimum, if there is one; or why there is none."""
    try:
        found = simplify(best, within)
    except CmdpkitError as error:  # the model is too large for the search, or the optimum is a mixture
        return None, [f"There is no simple plan on this page: {error}."]
    if not found.simpler:
        return None, [f"No simpler plan than the optimum was found that loses at most {percent(within)}."]
    return found, []


# -- in words ----------------------------------------------------------------------------------------------------------


def _said(found: PolicyComparison, simple: Simplified | None, given: Mapping[str, Any]) -> list[str]:
    """What a reader in a hurry should know."""
    best = found.optimum
    said = [f"The best plan within all bounds is worth {short(best.value, 5)}."]
    said += [_judgement(x, best) for x in found.policies if x.name in given]
    if simple is not None:
        draws = counted(simple.after.draws, "stochastic decision")
        size = f"{counted(simple.after.phases, 'phase')}, {draws}" if best.cmdp.criterion.has_horizon else draws
        said.append(f"A simple plan ({size}) is worth {short(simple.value, 5)}, {_less(simple.lost, best.value)}.")
    for c, price, binds in zip(best.cmdp.constraints, best.shadow_prices, best.binds, strict=True):
        if binds:  # prices have units of their own, so no bound is called the most expensive
            gain = short(float(price), 4)
            said.append(f"Relaxing the bound {label(c.name)} {bounded(c)} gains {gain} per unit{c.unit}.")
    return said


def _judgement(x: Judged, best: Solution) -> str:
    violated = [
        _violated(c, float(total))
        for c, total, met in zip(best.cmdp.constraints, x.utilities, x.met, strict=True)
        if not met
    ]
    verdict = " and ".join(violated) if violated else "meets every bound"
    subject = "At present the plan" if x.name == TODAY else label(x.name)
    return f"{subject} {verdict}; it is worth {short(x.value, 5)}, {_less(x.below, best.value)}."


def _violated(c: Constraint, total: float) -> str:
    """How a total violates its bound: "exceeds the limit on energy (43.38 against 25)"."""
    verb, kind = ("exceeds", "limit on") if c.sense == "at_most" else ("falls short of", "minimum of")
    return f"{verb} the {kind} {label(c.name)} ({short(total)} against {short(c.bound_on_total)})"


def _less(lost: float, value: float) -> str:
    """How a value compares with the optimum's."""
    if abs(lost) <= 1e-9 * max(1.0, abs(value)):
        return "as much as the best plan"
    share = f" ({percent(round(abs(lost / value), 4))})" if value else ""
    return f"{short(abs(lost), 4)}{share} {'less' if lost > 0 else 'more'} than the best plan within the bounds"


def _facts(best: Solution) -> list[tuple[str, str]]:
    """The card of the model."""
    cmdp = best.cmdp
    steps = counted(cmdp.H, "step") if cmdp.criterion.has_horizon else cmdp.criterion.in_words
    return [
        ("model", f"{steps}, {counted(cmdp.S, 'state')}, {counted(cmdp.A, 'action')}"),
        ("best value", f"{number(best.value)}, proved to within {best.gap:.2g}"),
        *((f"bound on {label(c.name)}", bounded(c)) for c in cmdp.constraints),
        ("fingerprint", cmdp.fingerprint()[:12]),
    ]


# -- pictures ----------------------------------------------------------------------------------------------------------


def _data(
    found: PolicyComparison,
    looks: Mapping[str, int],
    shown: Mapping[str, Policy],
    played: Mapping[str, Simulation],
) -> Plain:
    """Everything that plan.js draws."""
    cmdp, judged = found.optimum.cmdp, with_optimum(found)
    plans = [{"label": x.name, "look": looks[x.name], "value": x.value, "totals": x.utilities.tolist()} for x in judged]
    drawn = cmdp.n_steps * cmdp.S <= MOST_PAIRS
    tradeoffs = []
    for n, c in enumerate(cmdp.constraints if drawn else ()):
        points = [{"label": x.name, "look": looks[x.name], "at": [[float(x.utilities[n]), x.value]]} for x in judged]
        tradeoffs.append(tradeoff_data(tradeoff(cmdp, c.name, PRICE_POINTS), points))
    return {
        "plans": plans,
        "bounds": [{"name": label(c.name), "text": f"{label(c.name)} {bounded(c)}", "total": c.bound_on_total}
                   for c in cmdp.constraints],
        "tradeoffs": tradeoffs,
        "spreads": [_histogram(i, cmdp, played, looks) for i in range(1 + cmdp.N)] if played else [],
        "problem": {
            **(policy_frame(Policy.uniform(cmdp), cmdp) if drawn else {}),
            "groups": [
                {"label": name, "runs": [{"seed": "", "key": name, **policy_data(x, cmdp)}]}
                for name, x in shown.items()
                if drawn
            ],
        },
    }  # fmt: skip


def _histogram(i: int, cmdp: CMDP, played: Mapping[str, Simulation], looks: Mapping[str, int]) -> Plain:
    """Shares of the episodes by their total, in the same bars for every plan."""
    name = cmdp.signal_names[i]
    edges = bars_of(np.concatenate([x.totals[name] for x in played.values()]), MOST_BARS)
    centres = ((edges[1:] + edges[:-1]) / 2).round(12).tolist()
    lines = [
        {
            "label": plan,
            "look": looks[plan],
            "x": centres,
            "width": float(edges[1] - edges[0]),
            "mean": (np.histogram(x.totals[name], edges)[0] / x.episodes).tolist(),
        }
        for plan, x in played.items()
    ]
    bound = None if i == 0 else cmdp.constraints[i - 1].bound_on_total
    return {"name": label(name), "bound": bound, "series": lines}
