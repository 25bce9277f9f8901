"""What Python and notebooks print of every kind of result, which is what the command line prints; and JSON text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.text import Text

from cmdpkit.estimate.from_log import Estimate, OffPolicyEvaluation
from cmdpkit.estimate.promise import Promise
from cmdpkit.exact.comparison import Explanation, PolicyComparison
from cmdpkit.exact.diagnosis import Diagnosis, Tradeoff
from cmdpkit.exact.large.policy import LargeSolution
from cmdpkit.exact.solver import Solution
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import Policy
from cmdpkit.model.showing import line_width, render
from cmdpkit.records.record import RunRecord
from cmdpkit.results.diagnosis import diagnosis, separation, tradeoff
from cmdpkit.results.log import coverage, evaluation, promise
from cmdpkit.results.policies import comparison, explanation, policy_text, simulation
from cmdpkit.results.runs import learned
from cmdpkit.results.simplify import Simplified
from cmdpkit.results.solution import solution
from cmdpkit.results.study import Study, study_text
from cmdpkit.results.tables import EMPTY_LINE, QUIET, Table, TerminalTable
from cmdpkit.results.wording import bounded, counted, label, percent, sizes
from cmdpkit.simulate.distribution import Simulation


def json_text(answer: Any) -> str:
    """JSON text; numbers that are not finite become null, because JSON cannot express them.

    What would disturb a terminal is escaped.

    >>> json_text({"slack": float("inf")})
    '{\\n  "slack": null\\n}'
    """
    written = json.dumps(_finite(answer), indent=2, ensure_ascii=False, allow_nan=False)
    return re.sub(r"[^\n -~]", lambda c: c[0] if c[0].isprintable() else json.dumps(c[0])[1:-1], written)


def _finite(x: Any) -> Any:
    if isinstance(x, Mapping):
        return {str(key): _finite(item) for key, item in x.items()}
    if isinstance(x, (list, tuple)):
        return [_finite(item) for item in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x


def _model(cmdp: CMDP) -> RenderableType:
    """Sizes, bounds and start of a model."""
    length = counted(cmdp.H, "step") if cmdp.criterion.has_horizon else str(cmdp.criterion)
    parts = [Text(f"Constrained problem: {length}, {', '.join(sizes(cmdp))}.")]
    parts += [Text(f"  {label(c.name)} {bounded(c)}") for c in cmdp.constraints]
    starts = [f"{label(cmdp.states[int(s)])} ({percent(float(cmdp.mu[s]))})" for s in np.flatnonzero(cmdp.mu)[:4]]
    more = np.count_nonzero(cmdp.mu) - len(starts)
    parts.append(Text(f"It starts in {', '.join(starts)}" + (f" and {more:,} more states." if more else ".")))
    parts += [Text(note, style=QUIET) for note in cmdp.notes]
    return Group(*parts)


def _whole_diagnosis(found: Diagnosis) -> RenderableType:
    """All that the command line prints one after the other."""
    parts: list[RenderableType] = [diagnosis("Model", found.cmdp, found)]
    if found.infeasible is not None:
        parts += [EMPTY_LINE, Text(str(found.infeasible), style="red")]
    elif found.solution is not None and found.solution.used:
        parts.append(separation(found.solution, found.separation or None))
    return Group(*parts)


render.register(Tradeoff, lambda found: tradeoff("Trade-off", found))
render.register(Table, TerminalTable)
render.register(Solution, lambda found: solution("Solution", found, line_width()))
render.register(LargeSolution, lambda found: solution("Solution", found))
render.register(Simplified, lambda found: solution("Simple policy", found, line_width()))
render.register(Estimate, lambda estimate: coverage("Log", estimate))
render.register(Promise, lambda found: Group(promise(found), EMPTY_LINE, policy_text(found.policy)))
render.register(OffPolicyEvaluation, evaluation)
render.register(PolicyComparison, comparison)
render.register(Explanation, explanation)
render.register(Simulation, lambda played: simulation("Simulation", played))
render.register(RunRecord, lambda record: learned([record]))
render.register(CMDP, _model)
render.register(Policy, policy_text)
render.register(Diagnosis, _whole_diagnosis)
render.register(Study, study_text)
