"""Optima and diagnoses of models without a horizon, for the terminal: one row per state."""

from __future__ import annotations

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.exact.diagnosis import StationaryDiagnosis
from cmdpkit.exact.solution import StationarySolution
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.evaluate import occupancy
from cmdpkit.model.mixture import Mixture
from cmdpkit.model.policy import NEGLIGIBLE, Policy
from cmdpkit.results import wording
from cmdpkit.results.model_tables import constraint_table, price_note
from cmdpkit.results.text.layout import DRAWN, EMPTY_LINE, QUIET, TerminalTable, plain_table, right
from cmdpkit.results.text.policy import MOST_ROWS, draws, save_hint
from cmdpkit.results.wording import counted, duration, label, number, percent, ranges, titled

VALUES = {"discounted": "discounted value", "average": "long-run average", "total": "total until absorption"}
MOST_STARTS = 3  # start states that are named


def solution(name: str, found: StationarySolution) -> RenderableType:
    """Optimum, start, constraints, stochastic states, policy and the proof."""
    kind = found.cmdp.criterion.kind
    headline = Text.assemble((label(name), "bold"), f": optimal {VALUES[kind]} ", (number(found.value), "bold green"))
    if kind == "discounted" and found.value_per_step is not None:
        headline.append(
            f" (times {1 - (found.cmdp.criterion.discount or 0):g}: {number(found.value_per_step)} per step)"
        )
    parts: list[RenderableType] = [headline, Text(_start(found), style=QUIET)]
    if found.cmdp.N:
        note = price_note(found)
        parts += [EMPTY_LINE, TerminalTable(constraint_table(found)), *([Text(note, style=QUIET)] if note else [])]
    parts += [part for note in found.notes for part in (EMPTY_LINE, Text(note, style=DRAWN))]
    return Group(*parts, EMPTY_LINE, *_policies(found), EMPTY_LINE, _proof(found))


def _start(found: StationarySolution) -> str:
    states = [f"{titled('state', s)}" + ("" if p == 1 else f" ({percent(p)})") for s, p in found.start.items()]
    more = len(states) - MOST_STARTS
    shown = ", ".join(states[:MOST_STARTS]) + (f" and {more:,} more" if more > 0 else "")
    if found.cmdp.criterion.kind == "discounted":
        return f"From {shown}. Bounds are promises from this start on: other starts are other problems."
    return f"From {shown}."


def _policies(found: StationarySolution) -> list[RenderableType]:
    """The policy, or each policy of a mixture with its probability."""
    if isinstance(found.policy, Policy):
        return [draws(found), EMPTY_LINE, policy_table(found.cmdp, found.policy, found.occupancy[0])]
    parts: list[RenderableType] = []
    for weight, policy in zip(found.policy.weights.tolist(), found.policy.policies, strict=True):
        title = Text(f"Drawn at the start with probability {percent(weight)}, and kept for ever:")
        parts += [title, policy_table(found.cmdp, policy, occupancy(found.cmdp, policy)[0]), EMPTY_LINE]
    return parts[:-1]


def policy_table(cmdp: CMDP, policy: Policy, q: np.ndarray) -> RenderableType:
    """One row per state: what is done there, and how much time is spent there; how often each action if it is long."""
    time = "visits" if cmdp.criterion.kind == "total" else "share of time"
    if cmdp.S > MOST_ROWS:
        table = plain_table("action", right(time))
        for a in np.argsort(-q.sum(axis=0), kind="stable")[:MOST_ROWS]:
            table.add_row(Text(label(cmdp.action_names[int(a)])), _share(cmdp, float(q[:, a].sum())))
        hint = f"too many to print; {save_hint()} writes it (.csv .json .npz .md .py)."
        return Group(Text(f"The policy has {cmdp.S:,} states, {hint}"), Text(), table)
    table = plain_table("state", "action", right(time))
    for s in range(cmdp.S):
        used = np.flatnonzero(policy.row(0, s) > NEGLIGIBLE)
        names = " / ".join(label(cmdp.action_names[int(a)]) for a in used)
        table.add_row(
            Text(label(cmdp.states[s])),
            Text(names, style=DRAWN if len(used) > 1 else ""),
            _share(cmdp, float(q[s].sum())),
        )
    return table


def _share(cmdp: CMDP, x: float) -> str:
    return f"{x:.4f}" if cmdp.criterion.kind == "total" else f"{100 * x:.2f} %"


def _proof(found: StationarySolution) -> Text:
    what = "optimal" if found.attained or isinstance(found.policy, Mixture) else "within the bounds, and optimal"
    return Text(f"Proved {what} to within {found.gap:.2g} (column generation, {duration(found.seconds)}).", style=QUIET)


def sizes(name: str, cmdp: CMDP, found: StationaryDiagnosis) -> Text:
    """What a diagnosis says first: sizes, what can be reached, where one can stay for ever, feasible starts."""
    text = Text.assemble((label(name), "bold"), f" is valid: {cmdp.criterion}, {', '.join(wording.sizes(cmdp))}.\n")
    text.append(f"{found.reachable:,} of {found.pairs:,} states can be reached.")
    if cmdp.criterion.kind == "average":
        inside = sum(len(part) for part in found.components)
        parts = counted(len(found.components), "end component")
        text.append(f"\nOne can stay for ever in {parts} with {counted(inside, 'state')}")
        passed = found.reachable - inside
        text.append(f"; the other {passed:,} are only passed through." if passed else ".")
        if len(found.components) > 1:
            text.append(" Where one settles decides what is earned, so the optimum may need a draw at the start.")
    if cmdp.N and cmdp.criterion.kind != "average":
        text.append(f"\n{_starts(cmdp, found)}")
    return text


def _starts(cmdp: CMDP, found: StationaryDiagnosis) -> str:
    known = set(found.feasible_starts)
    listed = [s + 1 for s in range(cmdp.S) if cmdp.states[s] in known]
    by_name = ", ".join(label(s) for s in found.feasible_starts[:MOST_ROWS])
    named = by_name if len(listed) <= 12 else f"those numbered {ranges(listed)}"
    if len(listed) == cmdp.S:
        named = "all of them"
    exact = "" if found.starts_exact else " (each bound by itself; together they may ask for more)"
    return f"Single start states from which the bounds can be met{exact}: {named or 'none'}."
