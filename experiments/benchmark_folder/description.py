"""A system in words: its equations from the docstring, the meaning of its fields from their comments."""

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

from simulators import System

HEADING = re.compile(r"^-{3,}\s*$")
FIELD = re.compile(r"^\s+(\w+)\s*:[^#]*#\s*(.+?)\s*$")


class Parameter(NamedTuple):
    """A field of a system."""

    name: str
    value: Any
    meaning: str  # comment beside it in the class: symbol, meaning, unit; empty if there is none


def equations(system: System) -> str:
    """Docstring of the class up to its first section, in Markdown: blocks after ``::`` become code.

    A class without a docstring of its own has no equations here; `source_of` shows what is computed.
    """
    text = _own_docstring(system)
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", _before_sections(text)):
        if block.strip() == "::":
            continue
        indented = all(line.startswith("    ") for line in block.splitlines())
        lines.append(f"```text\n{textwrap.dedent(block)}\n```" if indented else _without_markers(block))
    return "\n\n".join(lines).strip()


def notes(system: System) -> str:
    """Section Notes of the docstring: where the system comes from."""
    match = re.search(r"^Notes\n-+\n(.*?)(?=^\w[\w ]*\n-{3,}$|\Z)", _own_docstring(system), re.DOTALL | re.MULTILINE)
    return _without_markers(match[1].strip()) if match else ""


def summary(thing: object) -> str:
    """First paragraph of the docstring of an object's class, on one line, as Markdown."""
    return " ".join(_without_markers(_own_docstring(thing).split("\n\n")[0]).split())


def parameters(system: System) -> list[Parameter]:
    """Fields of a system with their values and what stands beside them in its class."""
    comments: dict[str, str] = {}
    for owner in reversed(type(system).__mro__):
        if dataclasses.is_dataclass(owner):
            comments |= _comments(owner)
    return [
        Parameter(field.name, getattr(system, field.name), comments.get(field.name, ""))
        for field in dataclasses.fields(system)
    ]


def source_of(system: System) -> str:
    """Python text of drift and output, which is what is computed; empty where it cannot be found."""
    found = [_source(getattr(type(system), name)) for name in ("drift", "output", "parameters")]
    return "\n".join(textwrap.dedent(text) for text in found if text).rstrip()


def _own_docstring(thing: object) -> str:
    text = type(thing).__dict__.get("__doc__") or ""
    generated = text.startswith(f"{type(thing).__name__}(")  # by dataclass, for a class without one
    return "" if generated else inspect.cleandoc(text)


def _before_sections(text: str) -> str:
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if number and HEADING.match(line):
            return "\n".join(lines[: number - 1])
    return text


def _without_markers(block: str) -> str:
    """Plain Markdown: no literal-block mark at the end, single backticks."""
    text = block.rstrip()
    if text.endswith("::"):
        text = text[:-1]
    return text.replace("``", "`")


def _comments(owner: type) -> dict[str, str]:
    matches = (FIELD.match(line) for line in _source(owner).splitlines())
    return {match[1]: match[2] for match in matches if match}


def _source(thing: type | Callable[..., Any]) -> str:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        return ""
