"""The look that all figures share: colours that colour-blind readers can tell apart, plain axes, legends below."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.atomic import writing
from cmdpkit.results.wording import compact

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito without its yellow, which is too pale for lines on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B5B5B")
LINES = ("-", "--", "-.", ":")
BLACK, GREY, PALE = "#111111", "#767676", "#E4E4E4"
CHANCE = "#D55E00"  # the orange of stochastic decisions, in figures as in the report

FORMATS = ("png", "pdf", "svg")  # of files

Options = ParamSpec("Options")

PANEL = (4.2, 3.0)  # width and height of one panel, in inches
SAVING = {
    "pdf.fonttype": 42,  # TrueType
    "ps.fonttype": 42,
    "svg.fonttype": "none",  # text stays text, which can be searched and edited; SVG files embed no fonts
    "savefig.dpi": 200,
}
STYLE = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.edgecolor": "#4A4A4A",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": PALE,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
}


def matplotlib() -> Any:
    """The library matplotlib; where it is missing, an error that says how to install it."""
    try:
        import matplotlib
    except ImportError:
        raise CmdpkitError("figures need matplotlib, which is not installed: pip install 'cmdpkit[plot]'") from None
    return matplotlib


def styled(drawn: Callable[Options, Figure]) -> Callable[Options, Figure]:
    """Decorator for a function that draws a figure: it draws in this style, on top of the user's own settings."""

    @wraps(drawn)
    def inner(*args: Options.args, **options: Options.kwargs) -> Figure:
        with matplotlib().rc_context(STYLE):
            return drawn(*args, **options)

    return inner


def save(figure: Figure, path: Path) -> Path:
    """Write a figure to a file, in the format of its suffix; a file of that name is replaced."""
    form = path.suffix.removeprefix(".").lower()
    if form not in FORMATS:
        known = ", ".join(f".{x}" for x in FORMATS)
        raise CmdpkitError(f"{path}: unknown suffix {quoted(path.suffix)}, expected one of {known}")
    with writing(path, overwrite=True) as file:
        figure.savefig(file, format=form)
    return path


def canvas(rows: int, columns: int, panel: tuple[float, float] = PANEL) -> tuple[Figure, Any]:
    """An empty figure and its axes [rows, columns]; pyplot is not used, so that nothing global changes."""
    figure = _figure_class()(figsize=(panel[0] * columns, panel[1] * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


@cache
def _figure_class() -> type[Figure]:
    """A figure that is written with the settings `SAVING`, however it is saved.

    Matplotlib decides how fonts are embedded when a file is written, from its global settings; by default it embeds
    Type 3 fonts, which many journals refuse. These figures bring their settings along for the time of the writing, so
    that the user's global settings need not be changed.
    """
    from matplotlib.backend_bases import FigureCanvasBase
    from matplotlib.figure import Figure

    class SelfContainedFigure(Figure):
        def set_canvas(self, canvas: FigureCanvasBase) -> None:
            """Take a new canvas; every way of saving a figure ends in its method ``print_figure``."""
            super().set_canvas(canvas)
            canvas.print_figure = _with_settings(canvas.print_figure)  # type: ignore[method-assign]

    return SelfContainedFigure


def _with_settings(print_figure: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(print_figure)
    def inner(filename: Any, *args: Any, **options: Any) -> Any:
        from matplotlib.backends.backend_pdf import PdfPages

        if isinstance(filename, PdfPages):  # its fonts are embedded later, with the settings of that moment
            return print_figure(filename, *args, **options)
        with matplotlib().rc_context(SAVING):
            return print_figure(filename, *args, **options)

    return inner


def legend_below(figure: Figure) -> None:
    """One legend for all panels, under them, where it covers nothing."""
    entries: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, text in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(text, handle)
    if entries:
        longest = max(len(text) for text in entries)
        per_row = max(1, int(figure.get_figwidth() / (0.7 + 0.07 * longest)))
        figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside lower center",
            ncols=min(len(entries), per_row),
            frameon=False,
        )


def thousands(axis: Any) -> None:
    """Few marks, with k for thousands and M for millions, because longer numbers would run into each other."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda x, _: compact(float(x), 4)))


def plain_axis(axis: Axes) -> None:
    """An axis for a picture: no ticks, no frame, no grid, square cells."""
    axis.set_aspect("equal")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.grid(False)
    for spine in axis.spines.values():
        spine.set_visible(False)
