"""One HTML file that needs no network, no server and no other file: what the pages of studies and plans share.

A page is a Jinja template with everything escaped; its data are JSON, which scripts of our own draw as SVG. A content
security policy allows exactly these scripts and nothing else. docs/design/charts.md says why no chart library is used.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np

from cmdpkit import __version__
from cmdpkit.errors import CmdpkitError
from cmdpkit.exact.diagnosis import Tradeoff
from cmdpkit.io.formats.csv_text import cell
from cmdpkit.model.cmdp import CMDP
from cmdpkit.model.policy import Policy
from cmdpkit.model.tolerances import NEGLIGIBLE
from cmdpkit.model.transitions import FloatArray
from cmdpkit.operators.policies import reach
from cmdpkit.results.tables import Table
from cmdpkit.results.wording import label

MOST_PAIRS = 20_000  # (step, state) pairs; a larger model is neither solved again for a page nor drawn
PRICE_POINTS = 25  # bounds at which the price curve is computed
TEMPLATES = ("page.html", "parts.html", "report.html", "plan.html")
SHARED_SCRIPTS = ("scale.js", "chart.js", "page.js", "policy.js")

Plain = dict[str, Any]


def page_of(
    template: str, script: str, data: Plain, tables: Mapping[str, Table[Any]], title: str, **context: Any
) -> str:
    """The page as text; ``script`` draws ``data``, and ``tables`` can be taken away from it under their names."""
    source = "".join(map(_asset, (*SHARED_SCRIPTS, script)))
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    page: str = (
        _environment()
        .get_template(template)
        .render(
            title=title,
            tables=tables,
            version=__version__,
            data={**data, "tables": {name: _files(table) for name, table in tables.items()}},
            style=_asset("page.css"),
            script=source,
            policy=f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:",
            **context,
        )
    )
    return page


def _asset(name: str) -> str:
    return resources.files("cmdpkit.results.report").joinpath("assets", name).read_text(encoding="utf-8")


def _environment() -> Any:
    try:
        from jinja2 import DictLoader, Environment, StrictUndefined
    except ImportError:
        raise CmdpkitError("the report needs jinja2, which is not installed: pip install 'cmdpkit[report]'") from None
    environment = Environment(
        loader=DictLoader({name: _asset(name) for name in TEMPLATES}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["zipped"] = lambda rows, cells: zip(rows, cells, strict=True)
    return environment


def _files(table: Table[Any]) -> Plain:
    """A table as files: LaTeX and Markdown as they are written for papers, CSV with every digit."""
    rows = table.data()
    names = list(dict.fromkeys(key for row in rows for key in row))
    lines: list[list[Any]] = [names, *([row.get(name) for name in names] for row in rows)]
    text = "".join(",".join(cell(None if x is None else str(x)) for x in line) + "\r\n" for line in lines)
    files = {"tex": table.to_latex(), "md": table.to_markdown(), "csv": text}
    return {"name": label(table.title) or "table", "files": files}


# -- what policy.js and chart.js draw ----------------------------------------------------------------------------------


def policy_frame(policy: Policy, cmdp: CMDP | None) -> Plain:
    """The names of states and actions, and the board, that all policies of a problem share."""
    return {
        "states": list(map(str, policy.states)),
        "actions": list(map(str, policy.action_names)),
        "numbered": [isinstance(x, range) for x in (policy.states, policy.action_names)],
        "grid": _grid(cmdp),
        "stationary": policy.is_stationary,
    }


def _grid(cmdp: CMDP | None) -> Plain | None:
    if cmdp is None or cmdp.grid is None:
        return None
    grid = cmdp.grid
    arrows = list(grid.arrows or map(str, cmdp.action_names))
    marks = [grid.marks.get(s, "") for s in range(cmdp.S)]
    return {"rows": grid.rows, "columns": grid.columns, "cells": grid.cells, "marks": marks, "arrows": arrows}


def policy_data(policy: Policy, cmdp: CMDP | None) -> Plain:
    """The decisions of a policy, and where it goes if its model is known; nothing of a policy that is too large.

    A decision is the index of its action, or pairs of action and probability where there are several. Where it goes is
    a text for every step, with 1 for a state that is reached and 0 for others.
    """
    if policy.choice.size > MOST_PAIRS:
        return {"policy": None, "reach": None}

    def decision(row: FloatArray) -> int | list[tuple[int, float]]:
        taken = np.flatnonzero(row)
        return int(taken[0]) if len(taken) == 1 and row[taken[0]] == 1 else [(int(a), float(row[a])) for a in taken]

    there = [] if cmdp is None else ["".join("01"[int(x > NEGLIGIBLE)] for x in row) for row in reach(cmdp, policy)]
    table = [[decision(row) for row in policy.table(h)] for h in range(policy.shape[0])]
    return {"policy": table, "reach": None if cmdp is None else there}


def tradeoff_data(line: Tradeoff, points: Sequence[Plain]) -> Plain:
    """A price curve by totals, and the policies that lie in it: [{"label": name, "at": [[total, value], ...]}]."""
    c = line.constraint
    return {
        "name": label(c.name),
        "bound": c.bound_on_total,
        "bounds": (c.scale * line.bounds).tolist(),
        "values": line.values.tolist(),
        "prices": (line.prices / c.scale).tolist(),
        "points": list(points),
    }
