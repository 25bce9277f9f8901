"""Settings of the tutorials, which sphinx-gallery runs in the build and offers as notebooks."""

from __future__ import annotations

import os
from typing import Any

from sphinx_gallery.scrapers import figure_rst

os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")  # a cluster comes and goes without a word

SETTINGS: dict[str, Any] = {
    "examples_dirs": "notebooks",
    "gallery_dirs": "tutorials",  # made by the build
    "filename_pattern": "plot_",
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("matplotlib", "notebooks.figures"),
    "ignore_repr_types": r"Figure|Axes",
    "abort_on_example_error": True,
    "run_stale_examples": True,  # what a notebook shows depends on the package, not on its own text alone
    "plot_gallery": True,
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "min_reported_time": 10_000,
    "remove_config_comments": True,
    "compress_images": (),
    "first_notebook_cell": "# pip install 'cmdpkit[all]'",
}


def figures(_block: Any, values: dict[str, Any], settings: dict[str, Any]) -> str:
    """Keep the figure that is the value of a cell's last line; our figures are not registered with pyplot."""
    figure = values["example_globals"].get("___")
    if not type(figure).__name__.endswith("Figure") or figure in getattr(figures, "drawn", []):
        return ""
    figures.drawn = [*getattr(figures, "drawn", []), figure]  # type: ignore[attr-defined]  # a cell without one shows none
    path = str(next(values["image_path_iterator"]))
    figure.savefig(path, dpi=120)
    return str(figure_rst([path], settings["src_dir"]))
