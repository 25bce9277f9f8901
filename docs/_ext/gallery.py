"""The directive ``gallery``: a list of links as cards, each with a picture of the optimum that is drawn in the build.

The body is a list with one link per item. Where the link's text is the name of an environment, that is what is
solved; otherwise the examples of the linked page are run until they have made a model. The picture shows where the
optimal policy is: a board by its cells, a problem with a horizon by step (from left to right) and state, one without
by state alone. The darker, the more likely. A red frame marks where the policy randomises. A model by functions has no
picture, because its states are too many.
"""

from __future__ import annotations

import doctest
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path

import numpy as np
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import cmdpkit as ck
from cmdpkit import envs

WIDTH, HEIGHT = 168, 96  # units of the picture
MOST = 48  # rows or columns of a picture; more are put together


class Gallery(SphinxDirective):
    """A list whose items get a picture each."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        block = nodes.container(classes=["gallery"])
        block += self.parse_content_to_nodes()
        for item in block.findall(nodes.list_item):
            link = next(node for node in item.findall() if "reftarget" in getattr(node, "attributes", {}))
            picture = thumbnail(link.astext(), str(self.env.doc2path(link["reftarget"])))
            if picture:
                item.insert(0, nodes.raw("", picture, format="html"))
        return [block]


@cache
def thumbnail(name: str, page: str) -> str:
    """The picture of the environment ``name``, or of the model that the examples on ``page`` make first; or nothing."""
    cmdp = ck.load(name) if name in envs.names() else first_model(Path(page))
    if cmdp is None:
        return ""
    solution = ck.solve(cmdp)
    q = np.asarray(solution.occupancy)  # [H, S, A], or [1, S, A] without a horizon
    drawn = (q > 1e-9).sum(axis=2) > 1  # [H, S]
    if cmdp.grid is not None:
        shade, frame = board(cmdp.grid, q.sum(axis=(0, 2)), drawn.any(axis=0))
    elif len(q) > 1:
        shade, frame = condensed(q.sum(axis=2).T), condensed(drawn.T.astype(float)) > 0
    else:
        return svg(bars(q.sum(axis=(0, 2)), drawn[0]))
    return svg(tiles(shade, frame, square=cmdp.grid is not None))


def first_model(page: Path) -> ck.CMDP | None:
    """The first model that the examples of a page assign to a name; None if it is a model by functions."""
    names: dict[str, object] = {}
    for example in doctest.DocTestParser().get_examples(page.read_text(encoding="utf-8")):
        with redirect_stdout(StringIO()):
            exec(compile(example.source, str(page), "exec"), names)
        for value in names.values():
            if isinstance(value, (ck.EventModel, ck.FactoredModel)):
                return None
            found = value if isinstance(value, ck.CMDP) else getattr(value, "cmdp", None)
            if isinstance(found, ck.CMDP):
                return found
    raise ValueError(f"the examples of {page.name} make no model")


def board(grid: ck.Grid, visits: np.ndarray, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Visits and draws by cell; cells that are no state stay empty."""
    shade, frame = np.full((grid.rows, grid.columns), np.nan), np.zeros((grid.rows, grid.columns), dtype=bool)
    for s, cell in enumerate(grid.cells):
        shade[cell] = np.nansum([shade[cell], visits[s]])
        frame[cell] |= drawn[s]
    return shade, frame


def condensed(values: np.ndarray) -> np.ndarray:
    """At most `MOST` rows and columns: neighbours are added up."""
    for axis in (0, 1):
        n = values.shape[axis]
        if n > MOST:
            values = np.add.reduceat(values, np.arange(0, n, -(-n // MOST)), axis=axis)
    return values


def tiles(shade: np.ndarray, frame: np.ndarray, square: bool) -> str:
    """A rectangle per cell, shaded by the square root of its value, so that what is rare can be seen."""
    rows, columns = shade.shape
    width, height = WIDTH / columns, HEIGHT / rows
    if square:
        width = height = min(width, height)
    left, top = (WIDTH - width * columns) / 2, (HEIGHT - height * rows) / 2
    most = np.nanmax(shade)
    drawn = []
    for row in range(rows):
        for column in range(columns):
            if np.isnan(shade[row, column]):
                continue
            alpha = 0.06 + 0.94 * np.sqrt(shade[row, column] / most)
            x, y = left + column * width, top + row * height
            drawn.append(_rectangle(x, y, width, height, alpha, bool(frame[row, column])))
    return "".join(sorted(drawn, key=lambda cell: "draws" in cell))  # frames lie on top


def bars(share: np.ndarray, drawn: np.ndarray) -> str:
    """A bar per state: the share of time spent there."""
    share, drawn = condensed(share[None])[0], condensed(drawn[None].astype(float))[0] > 0
    width = min(WIDTH / len(share), 40)
    left, scale = (WIDTH - width * len(share)) / 2, (HEIGHT - 4) / share.max()
    cells = [
        _rectangle(left + s * width, HEIGHT - max(scale * x, 1), width, max(scale * x, 1), 0.75, bool(drawn[s]))
        for s, x in enumerate(share)
    ]
    return "".join(sorted(cells, key=lambda cell: "draws" in cell))


def _rectangle(x: float, y: float, width: float, height: float, alpha: float, draws: bool) -> str:
    place = f'x="{x + 0.3:.1f}" y="{y + 0.3:.1f}"'
    size = f'width="{max(width - 0.6, 0.4):.1f}" height="{max(height - 0.6, 0.4):.1f}"'
    mark = ' class="draws"' if draws else ""
    return f'<rect {place} {size} fill-opacity="{alpha:.2f}"{mark}/>'


def svg(body: str) -> str:
    """A picture that takes its colours from the page, light or dark; its meaning stands in the text next to it."""
    return f'<svg viewBox="-2 -2 {WIDTH + 4} {HEIGHT + 4}" aria-hidden="true">{body}</svg>'


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("gallery", Gallery)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
