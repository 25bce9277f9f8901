"""The directive ``folded``: tables in a file of Markdown, folded up under a title, with the same numbers as CSV.

The argument is the file, the body the title. All tables of the file become one CSV file; where it has several, each row
begins with the heading and the note that its table follows.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def rows_of(text: str) -> list[list[str]]:
    """The rows of the tables in a text, the header first.

    >>> rows_of("| a | b |\\n| - | - |\\n| 1 | 2 |")
    [['a', 'b'], ['1', '2']]
    """
    rows: list[list[str]] = []
    heading = header = ""
    for line in text.splitlines():
        cells = [cell.strip(" `") for cell in line.strip("|").split(" | ")]
        if line.startswith("#"):
            heading = line.strip("#` ")
        elif not line.startswith("|"):
            header = ""
        elif not header:
            header = line
            if not rows:
                rows.append((["table"] if heading else []) + cells)
        elif not set(line) <= set("|-: "):
            rows.append(([heading] if heading else []) + cells)
    return rows


class Folded(SphinxDirective):
    """A dropdown with tables and a link to their CSV file."""

    has_content = True
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        source = Path(self.env.doc2path(self.env.docname)).parent
        path = source / self.arguments[0]
        self.env.note_dependency(str(path))
        text = path.read_text(encoding="utf-8")
        file = Path(self.env.doctreedir, "folded", f"{path.stem}.csv")
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w", encoding="utf-8", newline="") as to:
            csv.writer(to, lineterminator="\n").writerows(rows_of(text))
        title = " ".join(self.content)
        block = self.parse_text_to_nodes(f"`````{{dropdown}} {title}\n{text}\n`````\n")
        link = addnodes.download_reference("", "", reftarget=os.path.relpath(file, source), refdomain="")
        link["refdoc"] = self.env.docname
        link += nodes.literal("", file.name)
        return [*block, nodes.paragraph("", "", nodes.Text("As a table for programs: "), link)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("folded", Folded)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
