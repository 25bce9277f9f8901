"""Sphinx settings. Everything is offline: no fonts, scripts or inventories from elsewhere."""

import sys
from pathlib import Path

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

import cmdpkit

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import notebooks

project = "cmdpkit"
author = "the cmdpkit authors"
version = release = cmdpkit.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "run",
    "docstrings",
    "mathml",
    "statements",
    "gallery",
    "checked",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_ext", "notebooks", "**/sg_execution_times.rst", "sg_execution_times.rst"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "amsmath"]
myst_dmath_allow_labels = True
html_math_renderer = "mathml"
myst_heading_anchors = 3

default_role = "py:obj"  # `solve` in a docstring is a link where there is something to link to
autodoc_member_order = "bysource"
autodoc_type_aliases = {name: name for name in ("FloatArray", "BoolArray", "IntArray", "Name", "Sense")}
python_maximum_signature_line_length = 100
autodoc_typehints = "description"  # every parameter and result is listed with its type, described or not

sphinx_gallery_conf = notebooks.SETTINGS

html_theme = "furo"
html_title = f"cmdpkit {release}"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("doctree-read", trim)
    app.connect("doctree-read", plain_names)
    app.add_lexer("csv", TextLexer)  # Pygments has none


def plain_names(_app: Sphinx, page: nodes.document) -> None:
    """Show an alias such as ``FloatArray`` by its name, where autodoc has ``TypeAliasForwardRef('FloatArray')``."""
    texts = list(page.findall(nodes.Text))
    for k, text in enumerate(texts):
        if text == "TypeAliasForwardRef":
            for part in texts[k : k + 4]:
                part.parent.replace(part, nodes.Text(part.strip("()'").replace("TypeAliasForwardRef", "")))


def trim(_app: Sphinx, page: nodes.document) -> None:
    """Cut the empty line at the end of every example, which doctest needs and readers do not."""
    for block in page.findall(nodes.literal_block):
        block.rawsource = block.rawsource.rstrip()
        block.children = [nodes.Text(block.astext().rstrip())]
