"""A matplotlib figure that saves itself with TrueType fonts, however it is saved.

Matplotlib decides how fonts are embedded when a file is written, from its global settings; by default it embeds
Type 3 fonts, which many journals refuse. The figures made here bring these settings along for the time of the writing,
so that the user's global settings need not be changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from cmdpkit.results.figures.style import matplotlib

SAVING = {
    "pdf.fonttype": 42,  # TrueType
    "ps.fonttype": 42,
    "svg.fonttype": "none",  # text stays text, which can be searched and edited; SVG files embed no fonts
    "savefig.dpi": 200,
}


class SelfContainedFigure(Figure):
    """A figure whose canvas writes files with the settings `SAVING`."""

    def set_canvas(self, canvas: FigureCanvasBase) -> None:
        """Take a new canvas; every way of saving a figure ends in its method ``print_figure``."""
        super().set_canvas(canvas)
        canvas.print_figure = _with_settings(canvas.print_figure)  # type: ignore[method-assign]


def _with_settings(print_figure: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(print_figure)
    def inner(filename: Any, *args: Any, **options: Any) -> Any:
        from matplotlib.backends.backend_pdf import PdfPages

        if isinstance(filename, PdfPages):  # its fonts are embedded later, with the settings of that moment
            return print_figure(filename, *args, **options)
        with matplotlib().rc_context(SAVING):
            return print_figure(filename, *args, **options)

    return inner
