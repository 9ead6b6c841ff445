"""Pieces of Markdown."""

from collections.abc import Sequence
from typing import Any

from omegaconf import OmegaConf


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown table; empty without rows.

    >>> print(table(("a", "b"), [("1", "x|y")]))
    | a | b |
    | --- | --- |
    | 1 | x\\|y |
    """
    if not rows:
        return ""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def yaml_block(settings: dict[str, Any]) -> str:
    """Settings as a block of YAML; empty without settings."""
    if not settings:
        return ""
    text = OmegaConf.to_yaml(OmegaConf.create(settings)).rstrip()
    return f"```yaml\n{text}\n```"


def number(value: Any, digits: int = 17) -> str:
    """A number with so many significant digits and no more than it needs; anything else as text.

    >>> number(0.1), number(4e7), number(1 / 3, 4), number(True), number("RK4")
    ('0.1', '40000000.0', '0.3333', 'True', 'RK4')
    """
    if not isinstance(value, float):
        return str(value)
    return repr(value) if digits >= 17 else f"{value:.{digits}g}"
