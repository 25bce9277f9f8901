"""What every finished page is held to: links that lead somewhere, and no formula left as plain text.

The check reads the HTML that was written, because that is what a reader gets: an anchor that a theme drops, or a ``$``
that no parser took for a formula, cannot be seen in the sources. What it finds stops the build.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

SILENT = {"pre", "code", "math", "script", "style", "title", "svg"}  # their text is code, or typeset, or not shown
LEFTOVERS = re.compile(
    r"\$|\\[a-z]{2,}|\bsqrt\b|\blam\b|\blam\*|\brho_n|\|lam|sum_\w|\bw_n\b|\bK\^|\b[A-Z]\^\d|\bpi_k\b|\{eq\}|:::"
)
OF_DOCSTRINGS = re.compile(r"reference/|genindex")  # docstrings are read in terminals, and keep plain text


class Page(HTMLParser):
    """The anchors, links and text of one HTML page."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.text: list[str] = []
        self.silent = 0  # how many elements around the present text keep it from being read as prose

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an anchor or a link."""
        values = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := values.get(name))}
        self.links += [value for name in ("href", "src") if (value := values.get(name))]
        self.silent += tag in SILENT

    def handle_endtag(self, tag: str) -> None:
        """Leave an element."""
        self.silent -= tag in SILENT

    def handle_data(self, data: str) -> None:
        """Keep prose."""
        if not self.silent:
            self.text.append(data)


def faults(folder: Path) -> list[str]:
    """What is wrong with the HTML pages in ``folder``, one sentence each; nothing outside of it is asked for."""
    pages = {}
    for file in sorted(folder.rglob("*.html")):
        pages[file] = page = Page()
        page.feed(file.read_text(encoding="utf-8"))
    found = []
    for file, page in pages.items():
        name = file.relative_to(folder).as_posix()
        for link in sorted(set(page.links)):
            address = urlsplit(link)
            if address.scheme or address.netloc:
                if address.scheme not in ("http", "https", "mailto", "data"):
                    found.append(f"{name}: {link!r} is neither a page of ours nor a web address")
                continue
            target = (file.parent / unquote(address.path)).resolve() if address.path else file.resolve()
            if not target.exists():
                found.append(f"{name}: {link!r} leads to no file")
            elif address.fragment and target in pages and unquote(address.fragment) not in pages[target].anchors:
                found.append(f"{name}: {link!r} leads to no anchor")
        text = "" if OF_DOCSTRINGS.match(name) else " ".join(page.text)
        for left in LEFTOVERS.finditer(text):
            around = " ".join(text[max(0, left.start() - 40) : left.end() + 40].split())
            found.append(f"{name}: {left.group()!r} is shown as plain text in {around!r}")
    return found


def check(app: Sphinx, error: Exception | None) -> None:
    """Stop a build of HTML pages that has faults."""
    if error is None and app.builder.format == "html":
        found = faults(Path(app.outdir).resolve())
        if found:
            raise ExtensionError("\n".join(["the finished pages have faults:", *found]))


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
