"""How objects print: as the command line shows them, in Python and in notebooks."""

from __future__ import annotations


class Shown:
    """An object whose text, and whose picture in a notebook, are what the command line shows of it.

    What is shown is made by `cmdpkit.results.showing`, which is loaded when something is printed.
    """

    def __str__(self) -> str:
        from cmdpkit.results.showing import text

        return text(self)

    def _repr_html_(self) -> str:
        from cmdpkit.results.showing import html

        return html(self)
