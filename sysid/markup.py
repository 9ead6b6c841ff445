"""Pieces of HTML and SVG with which objects show themselves in a notebook.

Colours of text and axes are those of the notebook, so that they suit light and dark themes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from sysid.units import is_same_unit

#: width and height of a small picture [pixel]
CHART_SIZE = (640, 170)
#: margins of a small picture: left, right, top, bottom [pixel]
CHART_MARGINS = (58, 8, 8, 34)
#: colours of the lines of a picture, first to last; "currentColor" is that of the text
LINE_COLORS = ("currentColor", "#d9741a", "#0b6fa4")
BAND_COLOR = "#d9741a"
#: text of units that files write and people do not: a quantity without unit has none
SHOWN_UNITS = {"1": "", "-": ""}
#: units of time from the longest: its name, seconds, and the smallest span shown in it [s]
TIME_UNITS = (("d", 86400.0, 4 * 86400.0), ("h", 3600.0, 4 * 3600.0), ("min", 60.0, 600.0))


def shown_unit(unit: str) -> str:
    """Return a unit as people write it; empty if there is none.

    >>> shown_unit("degC"), shown_unit("V"), shown_unit("1")
    ('°C', 'V', '')
    """
    return "°C" if is_same_unit(unit, "degC") else SHOWN_UNITS.get(unit, unit)


def labelled(name: str, unit: str) -> str:
    """Return the name of a quantity with its unit, for an axis or the head of a column.

    >>> labelled("level", "V"), labelled("fit", "1")
    ('level [V]', 'fit')
    """
    shown = shown_unit(unit)
    return f"{name} [{shown}]" if shown else name


def with_unit(value: float, unit: str) -> str:
    """Return a number of four digits with its unit.

    >>> with_unit(0.042681, "K")
    '0.04268 K'

    A unit that begins with a number is a factor:

    >>> with_unit(5.044, "1000 USD")
    '5.044 x 1000 USD'
    """
    of_person = shown_unit(unit)
    return f"{value:.4g} {'x ' if of_person[:1].isdigit() else ''}{of_person}".rstrip()


def in_time_unit(seconds: np.ndarray, unit: str = "s") -> tuple[np.ndarray, str]:
    """Return times in a unit that suits their span, and the label of their axis.

    Times that do not count seconds stay as they are.

    >>> in_time_unit(np.array([0.0, 7200.0, 36000.0]))
    (array([ 0.,  2., 10.]), 'time [h]')
    """
    if unit == "1":
        return seconds, "sample"
    span = float(np.ptp(seconds)) if len(seconds) else 0.0
    if unit == "s":
        for name, length, smallest in TIME_UNITS:
            if span >= smallest:
                return seconds / length, f"time [{name}]"
    return seconds, labelled("time", unit)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; the first cell of a row is its head.

    Numbers below a head are aligned to the right, texts without one to the left.
    """
    side = "right" if head else "left"
    cells = "".join(f"<th>{escape(text)}</th>" for text in head)
    lines = [f"<thead><tr>{cells}</tr></thead>"] if head else []
    for first, *others in rows:
        cells = f"<th style='text-align:left'>{escape(first)}</th>"
        cells += "".join(f"<td style='text-align:{side}'>{escape(text)}</td>" for text in others)
        lines.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


def notes(sentences: Sequence[str]) -> str:
    """Return warnings as a list; empty if there is none."""
    if not sentences:
        return ""
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<ul style='border-left:3px solid #d9741a'>{items}</ul>"


def folded(title: str, html: str) -> str:
    """Return a part that is shown when its title is clicked."""
    return f"<details><summary>{escape(title)}</summary>{html}</details>"


def chart(
    x: np.ndarray,
    lines: Mapping[str, np.ndarray],
    *,
    band: tuple[np.ndarray, np.ndarray] | None = None,
    x_label: str,
    y_label: str,
) -> str:
    """Return a small picture of lines over x, with the band of the last of them.

    Parameters
    ----------
    x
        (n,) rising.
    lines
        (n,) values by their label; a line breaks at nan.
    band
        (n,) lower and upper limit.
    """
    width, height = CHART_SIZE
    left, right, top, bottom = CHART_MARGINS
    drawn = [*lines.values(), *(band or ())]
    values = np.concatenate(drawn)
    values = values[np.isfinite(values)]
    if not len(values) or len(x) < 2:
        return ""
    low, high = float(values.min()), float(values.max())
    span = (high - low) or 1.0
    x_span = float(x[-1] - x[0]) or 1.0
    across = left + (x - x[0]) / x_span * (width - left - right)

    def down(line: np.ndarray) -> np.ndarray:
        return top + (high - line) / span * (height - top - bottom)

    shapes = []
    if band is not None:
        lower, upper = down(band[0]), down(band[1])
        for rows in _runs(lower + upper):
            outline = np.concatenate([rows, rows[::-1]])
            edge = np.concatenate([lower[rows], upper[rows[::-1]]])
            shapes.append(
                f"<polygon points='{_points(across[outline], edge)}' fill='{BAND_COLOR}' "
                "fill-opacity='0.25' stroke='none'/>"
            )
    legend = []
    for number, (label, line) in enumerate(lines.items()):
        color = LINE_COLORS[number % len(LINE_COLORS)]
        line_down = down(line)
        # a wide first line stays visible beside one that fits it
        is_beneath = number == 0 and len(lines) > 1
        stroke = "stroke-width='3' stroke-opacity='0.5'" if is_beneath else "stroke-width='1.2'"
        for rows in _runs(line_down):
            shapes.append(
                f"<polyline points='{_points(across[rows], line_down[rows])}' fill='none' "
                f"stroke='{color}' {stroke}/>"
            )
        legend.append(f"<tspan fill='{color}'>{escape(label)}</tspan>")
    if band is not None:
        legend.append(f"<tspan fill='{BAND_COLOR}'>95 % band</tspan>")
    axis = height - bottom
    texts = [
        (left - 4, top + 9, "end", escape(f"{high:.3g}")),
        (left - 4, axis, "end", escape(f"{low:.3g}")),
        (left, axis + 14, "start", escape(f"{x[0]:.4g}")),
        (width - right, axis + 14, "end", escape(f"{x[-1]:.4g}")),
        ((left + width) // 2, axis + 14, "middle", escape(x_label)),
        (left, axis + 29, "start", f"{escape(y_label)}: {', '.join(legend)}"),
    ]
    shapes.append(f"<path d='M{left} {top}V{axis}H{width - right}' fill='none' stroke='#888'/>")
    for place, line_of_text, anchor, text in texts:
        shapes.append(
            f"<text x='{place}' y='{line_of_text}' text-anchor='{anchor}' font-size='11' "
            f"fill='currentColor' stroke='none'>{text}</text>"
        )
    return (
        f"<svg viewBox='0 0 {width} {height}' style='max-width:{width}px;width:100%' "
        f"role='img' aria-label='{escape(y_label, quote=True)}'>{''.join(shapes)}</svg>"
    )


def _runs(values: np.ndarray) -> list[np.ndarray]:
    """Return the rows of each run of at least two finite values."""
    rows = np.flatnonzero(np.isfinite(values))
    runs = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
    return [run for run in runs if len(run) > 1]


def _points(across: np.ndarray, down: np.ndarray) -> str:
    """Return the corners of a line for SVG."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))
