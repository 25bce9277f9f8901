"""Mathematics as MathML, made while the pages are built: browsers typeset it without a script and without a network.

The extension is a math renderer of Sphinx (``html_math_renderer = "mathml"``), so the role and the directive ``math``,
and ``$...$`` and ``$$...$$`` on Markdown pages, all end here. latex2mathml translates; `mended` corrects what it gets
wrong. A command that it does not know stops the build: otherwise a reader would find ``\\foo`` in a formula.
"""

from __future__ import annotations

import re
from functools import cache
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

MATHML = "http://www.w3.org/1998/Math/MathML"
LIMITS = {"max", "min", "sup", "inf", "lim"}  # what stands under these in a displayed formula is their index
FENCES = {"⟨": "prefix", "⟩": "postfix", "⌈": "prefix", "⌉": "postfix", "⌊": "prefix", "⌋": "postfix"}
SIGNS = set("−+±")
AFTER_TERMS = set(")]}⟩!′")  # what ends a term: a sign that follows is no prefix
LONG = 30  # signs of a formula in a line of text that may be wider than a telephone, where it can be scrolled
OPERATORS = set("±∓∣∀∃′")  # latex2mathml calls them variables, which would take away their spaces


POWER = r"[A-Z]\^[\d.]*\d"
ROOT = r"sqrt\((?:[^()]|\([^()]*\))*\)|sqrt [A-Z]\b"
PLAIN = re.compile(rf"((?:\b(?:{POWER}|[A-Z]) )*(?:{ROOT})(?: {POWER})*|\b{POWER})")


class UnknownLatex(ValueError):
    """A formula that cannot be typeset."""


@cache
def mathml(latex: str, display: str = "inline") -> str:
    """``latex`` as a MathML element, for a line of text or (``display="block"``) for a line of its own."""
    try:
        root = ElementTree.fromstring(convert(latex.strip(), display=display).replace("<mi>&</mi>", "<mi>\\&amp;</mi>"))
    except Exception as error:
        raise UnknownLatex(f"{latex!r} cannot be typeset: {type(error).__name__} {error}") from error
    unknown = re.search(r"\\\w*|[$&]", "".join(root.itertext()))
    if unknown:
        raise UnknownLatex(f"{latex!r} cannot be typeset: it contains {unknown.group()!r}")
    mended(root, display == "block")
    ElementTree.register_namespace("", MATHML)
    return ElementTree.tostring(root, encoding="unicode")


def mended(element: ElementTree.Element, display: bool) -> None:
    """Correct, in place, what latex2mathml gets wrong or browsers do not read.

    Angle brackets, ± and primes become operators, and names of functions become names; what stands under ``max`` goes
    there; columns are aligned by style; and spaces are those of TeX: none around a slash or after a sign, thin ones
    around a name.
    """
    for child in element:
        mended(child, display)
        text = child.text or ""
        if child.tag == _tag("mi") and text in FENCES:
            child.tag = _tag("mo")
            child.attrib |= {"form": FENCES[text], "stretchy": "false"}
        elif child.tag == _tag("mi") and text in OPERATORS:
            child.tag = _tag("mo")
        elif child.tag == _tag("mo") and text.isalpha():
            child.tag = _tag("mi")
            child.attrib.clear()
        elif child.tag == _tag("mo") and text == "/":
            child.attrib |= {"lspace": "0", "rspace": "0"}
        elif child.tag == _tag("mtd"):
            child.attrib = {"style": f"text-align: {child.get('columnalign', 'center')}"}  # what browsers read
        elif display and child.tag in (_tag("msub"), _tag("msubsup")) and child[0].text in LIMITS:
            child.tag = child.tag.replace("msubsup", "munderover").replace("msub", "munder")
    if element.tag not in (_tag("mrow"), _tag("mtd")):
        return
    children = list(element)
    for k in range(len(children) - 1, 0, -1):
        before, after = children[k - 1], children[k]
        if after.text in SIGNS and before.tag == _tag("mo") and before.text not in AFTER_TERMS:
            after.set("form", "prefix")
        elif (_is_name(before) and after.tag not in (_tag("mo"), _tag("mspace"))) or (
            _is_name(after) and (before.tag not in (_tag("mo"), _tag("mspace")) or before.text in AFTER_TERMS)
        ):
            element.insert(k, ElementTree.Element(_tag("mspace"), {"width": "0.167em"}))


def _is_name(element: ElementTree.Element) -> bool:
    """Is this ``ln``, ``max`` or another name, with an index or without, that needs a space before its argument?"""
    if element.tag in {_tag(name) for name in ("msub", "munder", "msup", "msubsup", "munderover")}:
        return _is_name(element[0])
    return element.tag == _tag("mi") and len(element.text or "") > 1 and (element.text or "").isalpha()


def _tag(name: str) -> str:
    return f"{{{MATHML}}}{name}"


def _translated(node: nodes.Element, display: str) -> str:
    try:
        return mathml(node.astext(), display)
    except UnknownLatex as error:
        raise ExtensionError(f"{node.source}:{node.line}: {error}") from None


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    """A formula in a line of text."""
    made = _translated(node, "inline")
    if len(re.sub(r"<[^>]*>", "", made)) > LONG:
        made = f'<span class="long-formula">{made}</span>'
    translator.body.append(made)
    raise nodes.SkipNode


def visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """A formula on a line of its own, with its number and a link to itself if it has a label."""
    translator.body.append(translator.starttag(node, "div", CLASS="equation"))
    translator.body.append(_translated(node, "block"))
    if node["number"]:
        number = get_node_equation_number(translator, node)
        translator.body.append(f'<a class="eqno" href="#{node["ids"][0]}" title="Link to this equation">({number})</a>')
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def in_tables(_app: Sphinx, page: nodes.document) -> None:
    """Typeset ``sqrt(S A K)``, ``sqrt K`` and ``K^0.25`` in tables, which commands write as plain text."""
    for table in page.findall(nodes.table):
        for text in list(table.findall(nodes.Text)):
            parts = PLAIN.split(text.astext())
            if len(parts) > 1 and not isinstance(text.parent, (nodes.literal, nodes.math)):
                found = [nodes.math("", latex_of(part)) if k % 2 else nodes.Text(part) for k, part in enumerate(parts)]
                text.parent.replace(text, found)


def latex_of(plain: str) -> str:
    """A formula of a table that a command wrote.

    >>> latex_of("sqrt(H^4 (1 + N rd)^2 K)")
    '\\\\sqrt{H^{4} (1 + N rd)^{2} K}'
    """
    powers = re.sub(r"\^([\w.]+)", r"^{\1}", plain)
    roots = re.sub(r"sqrt\(((?:[^()]|\([^()]*\))*)\)", r"\\sqrt{\1}", powers)
    return re.sub(r"sqrt ([A-Z])", r"\\sqrt{\1}", roots)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("doctree-read", in_tables)
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
