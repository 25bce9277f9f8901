"""Sphinx settings. Everything is offline: no fonts, scripts or inventories from elsewhere."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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
    "sphinx.ext.autosummary",
    "linked",
    "run",
    "drawn",
    "folded",
    "docstrings",
    "mathml",
    "statements",
    "gallery",
    "checked",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxext.opengraph",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_ext", "notebooks", "tutorials/index.rst"]
exclude_patterns += ["**/sg_execution_times.rst", "sg_execution_times.rst"]

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

autosummary_generate = False
codeautolink_autodoc_inject = True  # below every public name, the pages whose examples use it
suppress_warnings = ["codeautolink.match_name", "codeautolink.match_block"]  # what sphinx-gallery linked, empty lines
codeautolink_concat_default = True  # the examples of a page go on from one another

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True  # a click copies the input without prompts and output


def web_address() -> str:
    """The repository on the web, as continuous integration or the clone knows it; empty if it is on no web server."""
    server, repository = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    if server and repository:
        return f"{server}/{repository}/"
    asked = ["git", "config", "remote.origin.url"]
    told = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=False).stdout.strip()
    return told.removesuffix(".git") + "/" if told.startswith("https://") else ""


# Where these pages are published and which versions are there (RELEASING.md): a copy that nobody publishes has neither.
site = os.environ.get("DOCS_SITE", "").rstrip("/")
ogp_site_url = f"{site}/{release}/" if site else ""
ogp_image = "_static/card.png"
ogp_use_first_image = False
ogp_enable_meta_description = True
ogp_custom_meta_tags = ['<meta name="twitter:card" content="summary_large_image">']

html_theme = "furo"
html_theme_options = {"top_of_page_buttons": ["edit"]}
if web_address():  # for the link "edit this page"
    html_theme_options |= {"source_edit_link": f"{web_address()}edit/main/docs/{{filename}}"}
html_context = {"site": site, "versions": os.environ.get("DOCS_VERSIONS", "").split() if site else []}
html_title = f"cmdpkit {release}"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_search_scorer = str(
    Path(__file__).parent / "_static" / "scorer.js"
)  # in a search, public names come before pages that only mention them
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("doctree-read", trim)
    app.connect("doctree-read", plain_names)
    app.connect("html-page-context", open_branch_only, priority=400)  # before the theme makes the menu
    app.add_lexer("csv", TextLexer)  # Pygments has none


def open_branch_only(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: object) -> None:
    """In the menu of a page, list the six doors and the branch of this page: not all pages again on every page."""
    if "toctree" in context:
        whole = context["toctree"]
        context["toctree"] = lambda **options: whole(**options | {"collapse": True})


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
