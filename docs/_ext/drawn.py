"""The directive ``drawn``: a figure that the package draws while the pages are built.

The body is Python code, and its last line is an expression whose value is a figure of matplotlib; the argument is the
figure's description, for readers who do not see it. The code is shown above the figure, unless ``:hide:`` is given;
``:tall:`` gives more height to a figure of many lines. Names that the code does not define come from the examples of
the page, which are run one after the other until the names are known: so a page can begin with its result.

Where an example takes long, `price_figure` draws the numbers that it prints on the page. The tests run the example and
compare what it prints.
"""

from __future__ import annotations

import ast
import doctest
import os
import re
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from cmdpkit.results.figures import style


def value_of(code: str, page: str) -> Any:
    """The value of the last line of ``code``, after as many of the examples on ``page`` as it needs."""
    names: dict[str, Any] = {"price_figure": partial(price_figure, page)}
    *body, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        raise ValueError(f"the last line of a drawn figure is {ast.unparse(last)!r}, expected an expression")
    before = compile(ast.Module(body, []), "<drawn>", "exec")
    after = compile(ast.Expression(last.value), "<drawn>", "eval")
    examples = iter(doctest.DocTestParser().get_examples(page))
    while True:
        try:
            with redirect_stdout(StringIO()):
                exec(before, names)
                return eval(after, names)
        except NameError:
            example = next(examples, None)
            if example is None:
                raise
            if example.exc_msg is None:
                with redirect_stdout(StringIO()):
                    exec(compile(example.source, "<example>", "exec"), names)


def printed_rows(page: str, call: str) -> list[list[float]]:
    """The numbers in every line that the first example of ``page`` with this call prints.

    >>> printed_rows(">>> print(f(2))\\n2 a day: 0.5\\n4 a day: 0.25\\n", "f(")
    [[2.0, 0.5], [4.0, 0.25]]
    """
    example = next(x for x in doctest.DocTestParser().get_examples(page) if call in x.source)
    return [[float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", line)] for line in example.want.splitlines()]


@style.styled
def price_figure(page: str, call: str, bound: str, value: str, price: str) -> Any:
    """Value and price for every bound, as the page prints them below the example with this call; and their names."""
    bounds, values, prices = zip(*printed_rows(page, call), strict=True)
    figure, ((left, right),) = style.panels([2])
    left.plot(bounds, values, marker=".", color="#5B5B5B")
    right.step(bounds, prices, where="mid", color="#5B5B5B")
    for axis, name in ((left, value), (right, price)):
        axis.set_ylabel(name)
        axis.set_xlabel(bound)
    return figure


class Drawn(SphinxDirective):
    """A block of code and its figure."""

    has_content = True
    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {"hide": directives.flag, "tall": directives.flag}  # docutils reads the class attribute

    def run(self) -> list[nodes.Node]:
        source = Path(self.env.doc2path(self.env.docname))
        code = "\n".join(self.content)
        try:
            figure = value_of(code, source.read_text(encoding="utf-8"))
        except Exception as error:
            raise ExtensionError(f"{self.get_location()}: {type(error).__name__}: {error}") from error
        folder = Path(self.env.doctreedir, "drawn")
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.env.docname.replace('/', '+')}-{self.env.new_serialno('drawn')}.svg"
        figure.savefig(file, metadata={"Date": None})
        image = nodes.image(uri=os.path.relpath(file, source.parent), alt=self.arguments[0])
        self.set_source_info(image)
        shown = [] if "hide" in self.options else [nodes.literal_block(code, code, language="python")]
        return [*shown, nodes.figure("", image, classes=["drawn", *(["tall"] if "tall" in self.options else [])])]


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("drawn", Drawn)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
