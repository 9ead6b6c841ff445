"""The look of the studies' figures: one colour and marker per criterion, sizes of a printed page."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, NullFormatter

from experiments.studies.label import LABELS

#: readable in grey and by the colour-blind (Okabe and Ito, Color universal design)
COLORS = {
    "prior_entropy": "#0072b2",
    "predictive_entropy": "#56b4e9",
    "mean_relevance": "#d55e00",
    "marginal_log_likelihood": "#009e73",
    "log_predictive_density": "#cc79a7",
}
MARKERS = {
    "prior_entropy": "o",
    "predictive_entropy": "v",
    "mean_relevance": "s",
    "marginal_log_likelihood": "^",
    "log_predictive_density": "D",
}
ORDER = {name: i for i, name in enumerate(("prior_entropy", "mean_relevance", "marginal_log_likelihood"))}
N_MARKERS = 8  # about so many on a curve
PUBLISHED, BASELINE = "#000000", "#7a7a7a"
WIDTH = 6.69  # inch, the 17 cm of both columns of a page
SETTINGS: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "pdf.fonttype": 42,
}
#: labelled multiples of the powers of ten on an axis of less than so many decades
SUBDIVISIONS = ((0.7, (1.0, 2.0, 3.0, 4.0, 6.0)), (1.0, (1.0, 2.0, 5.0)), (2.0, (1.0, 3.0)))
Z_95 = 1.96


def page(rows: int, columns: int, height: float, **options: object) -> tuple[Figure, np.ndarray]:
    """Figure of a page's width and its axes (rows, columns)."""
    with rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, **options)  # type: ignore[call-overload]
        for ax in axes.flat:
            ax.spines[["top", "right"]].set_visible(False)
            ax.grid(alpha=0.3, linewidth=0.4)
    return figure, axes


def band(ax: Axes, x: Sequence[float] | np.ndarray, values: np.ndarray, criterion: str) -> None:
    """Median over seeds (x, seed) with the band between their 2.5 and 97.5 percentiles.

    Markers stand at every eighth of the points, those of two criteria never at the same one where there is room.
    """
    low, middle, high = np.nanquantile(values, [0.025, 0.5, 0.975], axis=1)
    color, step = COLORS[criterion], max(1, len(x) // N_MARKERS)
    ax.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
    ax.plot(
        x,
        middle,
        color=color,
        label=LABELS[criterion],
        marker=MARKERS[criterion],
        markersize=3.5,
        markeredgewidth=0,
        markevery=(ORDER[criterion] * step // len(ORDER), step),
    )


def log_labels(axis: Axis) -> None:
    """Ticks of a logarithmic axis whose limits are final: powers of ten, more of them labelled below two decades."""
    low, high = sorted(axis.get_view_interval())
    decades = np.log10(high / low)
    subs = next((subs for most, subs in SUBDIVISIONS if decades < most), (1.0,))
    axis.set_major_locator(LogLocator(subs=subs))
    is_plain = low >= 1e-3 and high <= 1e4
    scientific = LogFormatterSciNotation(labelOnlyBase=False, minor_thresholds=(np.inf, np.inf))
    axis.set_major_formatter("{x:g}" if is_plain else scientific)
    axis.set_minor_formatter(NullFormatter())


def saved(figure: Figure, form: str) -> bytes:
    """Figure as ``png`` or ``pdf``; the same figure gives the same bytes."""
    buffer = BytesIO()
    metadata = {"CreationDate": None} if form == "pdf" else {}
    with rc_context(SETTINGS):
        figure.savefig(buffer, format=form, dpi=200, metadata=metadata)
    return buffer.getvalue()
