"""Rows as text for a console and as Markdown."""

from collections.abc import Sequence
from itertools import groupby

from experiments.benchmarks.row import Row

HEAD = ("case", "measured", "unit", "median", "target", "met", "details")


def text(rows: Sequence[Row]) -> str:
    """Aligned plain text, one block per benchmark."""
    cells = [HEAD, *map(_cells, rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEAD) - 1)]
    blocks = [_aligned(HEAD, widths)]
    for name, group in groupby(rows, key=lambda row: row.benchmark):
        blocks += ["", name, *(_aligned(_cells(row), widths) for row in group)]
    return "\n".join(blocks)


def markdown(rows: Sequence[Row]) -> str:
    """One table per benchmark."""
    blocks = []
    for name, group in groupby(rows, key=lambda row: row.benchmark):
        lines = [HEAD, ("---",) * len(HEAD), *map(_cells, group)]
        blocks.append(f"## {name}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(blocks)


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
    return "  ".join(["", *padded, line[-1]]).rstrip()


def _cells(row: Row) -> tuple[str, ...]:
    target = row.target
    return (
        row.case,
        _number(row.value),
        row.unit,
        "" if row.median is None else _number(row.median),
        "" if target is None else str(target),
        "" if target is None else ("yes" if target.met(row.value) else "NO"),
        ", ".join(f"{name} {_number(value)}" for name, value in row.details.items()),
    )


def _number(value: float) -> str:
    if float(value).is_integer() and abs(value) < 1e9:
        return str(int(value))
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
