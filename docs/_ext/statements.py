"""The directive ``statement``: a numbered lemma, statement or event that other pages can link to.

``:::{statement} Statement 9 (an idealised loop)`` makes a block with that heading and the anchor ``statement-9``, which
is the part before the bracket. The number is written by hand, so that it stays what it is when another statement is
added.
"""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

LINK = "¶"


def anchor(heading: str) -> str:
    """The anchor of a statement: its name without the remark in brackets.

    >>> anchor("Statement 9 (an idealised loop)")
    'statement-9'
    """
    return re.sub(r"\W+", "-", heading.partition("(")[0].strip().lower())


class Statement(SphinxDirective):
    """A heading that runs into the text, and the text."""

    has_content = True
    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        heading = self.arguments[0]
        name, bracket, remark = heading.partition(" (")
        block = nodes.container(classes=["statement"], names=[anchor(heading)])
        self.set_source_info(block)
        self.state.document.note_explicit_target(block)
        remark_nodes, messages = self.parse_inline(bracket + remark)
        title = nodes.paragraph("", "", nodes.strong(name, name), *remark_nodes, classes=["heading"])
        title += nodes.reference("", LINK, refuri=f"#{anchor(heading)}", internal=True, classes=["headerlink"])
        block += [title, *self.parse_content_to_nodes()]
        return [block, *messages]


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("statement", Statement)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
