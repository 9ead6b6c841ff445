"""Equations of the site as MathML, which a browser shows without a script and without a network."""

import html
import re
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils.math.latex2mathml import MathError, tex2mathml
from sphinx.util import logging

NAMESPACE = "http://www.w3.org/1998/Math/MathML"
ElementTree.register_namespace("", NAMESPACE)

#: names of characters that HTML knows, but not XML
NAMED_ENTITY = re.compile(r"&(?!(?:lt|gt|amp|quot|apos);)\w+;")

logger = logging.getLogger(__name__)


def convert(text, node, *, is_block):
    """Return LaTeX as MathML; what cannot be converted is a warning and stays as it is."""
    known = re.sub(r"\\dots\b", r"\\ldots", text)  # the converter lacks this name
    try:
        return place_indices(tex2mathml(known, as_block=is_block))
    except (MathError, SyntaxError) as error:
        logger.warning("cannot show the equation %r: %s", text, error, location=node)
        return f"<code>{html.escape(nodes.unescape(text))}</code>"


def place_indices(mathml):
    """Return MathML with the index of an accented symbol beside it.

    The converter writes the index of a hat, bar, tilde or dot below the symbol, as it writes the
    lower limit of a sum. Only an operator has limits.
    """
    root = ElementTree.fromstring(NAMED_ENTITY.sub(lambda name: html.unescape(name[0]), mathml))
    is_changed = False
    for element in root.iter(f"{{{NAMESPACE}}}munderover"):
        symbol, index, accent = element
        if symbol.tag.endswith("}mo") or not accent.tag.endswith("}mo"):
            continue
        is_changed = True
        accented = ElementTree.Element(f"{{{NAMESPACE}}}mover", {"accent": "true"})
        accented.extend([symbol, accent])
        element.tag = f"{{{NAMESPACE}}}msub"
        element[:] = [accented, index]
    return ElementTree.tostring(root, encoding="unicode") if is_changed else mathml


def visit_inline(translator, node):
    """Write an equation within a line."""
    translator.body.append(convert(node.astext(), node, is_block=False))
    raise nodes.SkipNode


def visit_block(translator, node):
    """Write an equation of its own lines."""
    text = node.astext().strip()
    if r"\\" in text and r"\begin" not in text:  # lines, as the directive allows them
        text = rf"\begin{{aligned}}{text}\end{{aligned}}"
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    translator.body.append(convert(text, node, is_block=True))
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app):
    """Register the renderer, which `html_math_renderer` names."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
