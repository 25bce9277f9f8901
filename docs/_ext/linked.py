"""Links from the names in examples to the reference, by sphinx-codeautolink, in an eighth of its time.

It parses a finished page to find the code on it, and writes the whole page again. Here it is given the blocks of code
alone, and everything else on the page stays as it was written.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import sphinx_codeautolink.extension
from sphinx.application import Sphinx

BLOCK = re.compile(r'<div class="(?:doctest )?highlight-[^"]*">.*?</pre></div>\s*</div>', re.DOTALL)
SEAM = "\n<!-- the next block of code -->\n"

link_html = sphinx_codeautolink.extension.link_html


def link_blocks(document: str, out_dir: str, *parts: Any, **options: Any) -> None:
    """Add links to the code on a finished page."""
    page = Path(out_dir, f"{document}.html")
    text = page.read_text(encoding="utf-8")
    page.write_text(SEAM.join(BLOCK.findall(text)), encoding="utf-8")
    link_html(document, out_dir, *parts, **options)
    linked = iter(page.read_text(encoding="utf-8").split(SEAM))
    page.write_text(BLOCK.sub(lambda _block: next(linked), text), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.setup_extension("sphinx_codeautolink")
    sphinx_codeautolink.extension.link_html = link_blocks
    return {"parallel_read_safe": True, "parallel_write_safe": True}
