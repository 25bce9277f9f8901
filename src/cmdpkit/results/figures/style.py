"""The look of all figures (colours that the colour-blind can tell apart, plain axes, legends below) and their sizes."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Sequence
from functools import cache, wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np

from cmdpkit.errors import CmdpkitError, quoted
from cmdpkit.io.atomic import writing
from cmdpkit.results.wording import compact

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito without its yellow, which is too pale for lines on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5B5B5B")
LINES = ("-", "--", "-.", ":")
ORDERED = "viridis"  # the colour map of many areas, in their order
BLACK, GREY, PALE = "#111111", "#767676", "#E4E4E4"
CHANCE = "#D55E00"  # the orange of stochastic decisions, in figures as in the report

FORMATS = ("png", "pdf", "svg")  # of files

Options = ParamSpec("Options")
DRAWN = ("found", "played", "cmdp", "policy", "models")  # parameters with what is drawn, which are no options

PANEL = (4.2, 3.0)  # width and height of one panel, in inches
LEAST_PANEL = 2.3  # inches of width; where panels would be narrower, they stand below each other
LEAST_HEIGHT = 2.3  # inches of a panel with its labels, unless a height is given
LABEL_WIDTH = 24  # characters in a line of an upright label
SMALL = 5.0  # inches: figures that are narrower have smaller letters
Size = float | tuple[float, float] | None  # the width of a figure in inches, or its width and height
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
SMALL_STYLE = {"font.size": 8, "axes.titlesize": 8.5, "axes.labelsize": 8, "lines.linewidth": 1.3, "axes.titlepad": 4}


def matplotlib() -> Any:
    """The library matplotlib; where it is missing, an error that says how to install it."""
    try:
        import matplotlib
    except ImportError:
        raise CmdpkitError("figures need matplotlib, which is not installed: pip install 'cmdpkit[plot]'") from None
    return matplotlib


def styled(drawn: Callable[Options, Figure]) -> Callable[Options, Figure]:
    """Decorator for a function that draws a figure: it draws in this style, on top of the user's own settings."""

    names = list(signature(drawn).parameters)

    @wraps(drawn)
    def inner(*args: Options.args, **options: Options.kwargs) -> Figure:
        wrong = next((name for name in options if name not in names), None)
        if wrong is not None:
            known = [name for name in names if name not in DRAWN]
            raise CmdpkitError(f"this figure has no option {quoted(wrong)}; it has {', '.join(known)}")
        width, _ = size_of(options.get("size"))
        with matplotlib().rc_context(STYLE | (SMALL_STYLE if width is not None and width < SMALL else {})):
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


def size_of(size: Any) -> tuple[float | None, float | None]:
    """Width and height in inches, as far as they are given."""
    width, height = (size, None) if size is None or np.ndim(size) == 0 else size if len(size) == 2 else (math.nan, None)
    for x in (width, height):
        if x is not None and not (isinstance(x, (int, float)) and 1 <= x <= 100):
            raise CmdpkitError(
                f"size is {quoted(size)}, expected a width in inches such as 3.3, or width and height such as (7, 4)"
            )
    return width, height


def panels(
    counts: Sequence[int], size: Size = None, ax: Any = None, tall: float | None = None
) -> tuple[Figure, list[list[Axes]]]:
    """A figure and for every group of panels its axes; groups begin in a new row.

    Parameters
    ----------
    counts : how many panels every group has
    size : the width in inches, or width and height; without it every panel has its usual size
    ax : axes of the caller to draw into instead, as many as there are panels
    tall : height of a panel in inches, unless ``size`` has the height of the figure
    """
    if ax is not None:
        given = list(np.ravel(np.asarray(ax, dtype=object)))
        if len(given) != sum(counts):
            raise CmdpkitError(f"ax has {len(given)} axes, but this figure has {sum(counts)} panels; give one for each")
        found = iter(given)
        return given[0].figure, [[next(found) for _ in range(count)] for count in counts]
    width, height = size_of(size)
    columns = max(counts) if width is None else min(max(counts), max(1, int(width / LEAST_PANEL)))
    rows = [math.ceil(count / columns) for count in counts]
    across = PANEL[0] if width is None else width / columns
    tall = tall or min(max(LEAST_HEIGHT, 0.72 * across), PANEL[1])
    if height is not None:
        tall = height / sum(rows)
    figure, axes = canvas(sum(rows), columns, (across, tall))
    groups = []
    for count, row in zip(counts, np.split(axes, np.cumsum(rows)[:-1]), strict=True):
        groups.append(list(row.flat[:count]))
        for axis in row.flat[count:]:
            axis.set_axis_off()
    return figure, groups


def bend(axis: Axes) -> None:
    """A symmetric logarithmic upright axis, linear up to a power of ten near a thousandth of the largest value.

    At any other place the last mark of the logarithmic part would run into the mark of 0.
    """
    top = max(float(np.abs(axis.get_ylim()).max()), 1e-6)
    axis.set_yscale("symlog", linthresh=float(10.0 ** math.ceil(math.log10(top * 1e-3))) * (1 + 1e-9))
    marks: Any = axis.yaxis.get_major_locator()
    marks.set_params(numticks=6)


def name_upright(axis: Axes, text: str) -> None:
    """Name the upright axis; a long name takes several lines, none of which breaks between a sign and its bound."""
    bound_joined = re.sub(r" ([≤≥]) ", "\u00a0\\1\u00a0", text)
    axis.set_ylabel(textwrap.fill(bound_joined, LABEL_WIDTH).replace("\u00a0", " "))


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


def legend_below(figure: Figure, ax: Any = None) -> None:
    """One legend for all panels, under them, where it covers nothing; within the first of the caller's own axes."""
    if ax is not None:
        first = next(iter(np.ravel(np.asarray(ax, dtype=object))))
        if first.get_legend_handles_labels()[0]:
            first.legend(fontsize="small")
        return
    entries: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, text in zip(*axis.get_legend_handles_labels(), strict=True):
            entries.setdefault(text, handle)
    if entries:
        longest = max(len(text) for text in entries)
        letter = 0.0078 * matplotlib().rcParams["font.size"]  # inches
        per_row = max(1, int(figure.get_figwidth() / (0.65 + letter * longest)))
        figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside lower center",
            ncols=min(len(entries), per_row),
            frameon=False,
        )


def areas(n: int) -> list[Any]:
    """Colours of n areas, no two of them the same: those of all figures, or where these run out, `ORDERED` ones."""
    if n <= len(COLOURS):
        return list(COLOURS[:n])
    return [tuple(x) for x in matplotlib().colormaps[ORDERED](np.linspace(0.0, 1.0, n)).tolist()]


def thousands(axis: Any) -> None:
    """Few marks, with k for thousands and M for millions, because longer numbers would run into each other."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    narrow = axis.axis_name == "x" and axis.axes.get_window_extent().width < 2.0 * axis.axes.figure.dpi
    axis.set_major_locator(MaxNLocator(3 if narrow else 5))
    axis.set_major_formatter(FuncFormatter(lambda x, _: compact(float(x), 4)))


def plain_axis(axis: Axes) -> None:
    """An axis for a picture: no ticks, no frame, no grid, square cells."""
    axis.set_aspect("equal")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.grid(False)
    for spine in axis.spines.values():
        spine.set_visible(False)
