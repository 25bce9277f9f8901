"""The report: a study as one HTML file that needs no network, no server and no other file.

The page is a Jinja template with everything escaped; its data are JSON, which a small script of our own draws as SVG.
(A chart library would add 0.9 MB to every report and 90 MB to the installation.) A content security policy allows this
script and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from cmdpkit import __version__
from cmdpkit.errors import CmdpkitError
from cmdpkit.results.figures.style import COLOURS
from cmdpkit.results.published import Row
from cmdpkit.results.report.data import Detail, failures, problems, published
from cmdpkit.results.study import Study

MOST_BYTES = 2_000_000  # of a page, unless the caller says otherwise
# How much detail is tried, one after the other, until the page is small enough.
DETAILS = (Detail(160, 1_000), Detail(80, 1_000), Detail(80, 3), Detail(60, 1), Detail(40, 0))
THINNED = "This study is large: curves are thinned, and not every seed's policy is on this page."
SCRIPTS = ("scale.js", "chart.js", "policy.js", "report.js")


def render(study: Study, *, title: str = "", rows: Sequence[Row] = (), limit: int = MOST_BYTES) -> str:
    """The report as text; where it would exceed ``limit`` bytes, it has fewer points and policies.

    ``rows`` are figures published elsewhere, beside what the study gives; they are shown first.
    """
    if not study.records and not study.failures:
        raise CmdpkitError("there is nothing to report: no run finished and none failed")
    for detail in DETAILS:
        page = _page(study, title, rows, detail)
        if len(page.encode()) < limit:
            return page
    raise CmdpkitError(
        f"the report would have {len(page.encode()):,} bytes, more than {limit:,}; report on fewer runs at a time"
    )


def _page(study: Study, title: str, rows: Sequence[Row], detail: Detail) -> str:
    parts = problems(study, detail)
    script = "".join(_asset(name) for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    complete = detail == DETAILS[0]
    page: str = (
        _environment()
        .get_template("report.html")
        .render(
            title=title or "Constrained MDPs: what was learned",
            version=__version__,
            runs=len(study.records),
            zip=zip,
            published=published(rows, study.claims),
            problems=parts,
            failures=failures(study),
            data={"colours": len(COLOURS), "problems": [{"id": part["id"], **part["chart"]} for part in parts]},
            notes=(*study.remarks(), *(() if complete else (THINNED,))),
            style=_asset("report.css"),
            script=script,
            policy=f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:",
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
    return Environment(
        loader=DictLoader({"report.html": _asset("report.html")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
