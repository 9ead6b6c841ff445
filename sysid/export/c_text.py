"""C text: arrays of numbers, names, and templates."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

C_LINE_WIDTH = 100  # largest number of characters in a line of numbers

#: Folder of the templates, which are C but for words in braces that `fill` replaces.
TEMPLATES = Path(__file__).parent / "c_templates"

#: Beginning of the names in templates, which becomes the name of the model.
TEMPLATE_PREFIX = re.compile(r"\b(model|MODEL)_")


def template(name: str) -> str:
    """Return the text of a template."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def fill(text: str, values: Mapping[str, object]) -> str:
    """Replace ``{name}`` by its value, for all names of `values`."""
    return re.sub(
        r"\{(\w+)\}",
        lambda match: str(values[match[1]]) if match[1] in values else match[0],
        text,
    )


def prefixed(text: str, prefix: str) -> str:
    """Replace ``model_`` and ``MODEL_`` at the beginning of names by the name of the model."""
    prefixes = {"model": f"{prefix}_", "MODEL": f"{prefix.upper()}_"}
    return TEMPLATE_PREFIX.sub(lambda match: prefixes[match[1]], text)


def identifier(name: str, taken: Iterable[str] = ()) -> str:
    """Return a C identifier for a name that is not among those taken.

    >>> identifier("zone 1 [degC]"), identifier("2nd"), identifier("y", taken=["y"])
    ('zone_1_degC', 'x2nd', 'y_2')
    """
    word = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "x"
    if word[0].isdigit():
        word = f"x{word}"
    others = set(taken)
    found = word
    number = 1
    while found in others:
        number += 1
        found = f"{word}_{number}"
    return found


def number(value: float) -> str:
    """Return a number as a C constant that is read back bit for bit."""
    if value == np.inf:
        return "INFINITY"
    if value == -np.inf:
        return "-INFINITY"
    return repr(float(value))


def array(name: str, values: np.ndarray, kind: str = "real") -> str:
    """Return the definition of a constant array; an empty one gets one zero, as C demands."""
    flat = np.ravel(values).tolist() or [0]
    words = ", ".join(number(value) if kind == "real" else str(int(value)) for value in flat)
    lines = textwrap.wrap(words, C_LINE_WIDTH - 4)
    body = "\n    ".join(lines)
    return f"static const {kind} {name}[{len(flat)}] = {{\n    {body}\n}};"


def comment(text: str) -> str:
    """Return text that a comment can contain: ASCII, without an end of a comment or backslashes."""
    plain = text.encode("ascii", "backslashreplace").decode().replace("\\", "/")
    return plain.replace("*/", "* /").replace("/*", "/ *")


def paragraph(text: str, begin: str = " * ") -> str:
    """Return text as the lines of a comment."""
    lines = textwrap.wrap(comment(text), C_LINE_WIDTH - len(begin))
    return "\n".join(f"{begin}{line}" for line in lines)
