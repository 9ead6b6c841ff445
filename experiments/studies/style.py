"""The look of the studies' figures: one colour and marker per criterion, sizes of a printed page."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
LINES = {"none": "-", "leave_one_out": "--", "in_sample": ":", "published": "-."}  # of the variants
PUBLISHED, BASELINE = "#000000", "#7a7a7a"
WIDTH = 6.8  # inch, both columns of a page
SETTINGS: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "pdf.fonttype": 42,
}
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


def band(ax: Axes, x: Sequence[float] | np.ndarray, values: np.ndarray, criterion: str, variant: str = "none") -> None:
    """Median over seeds (x, seed) with the band between their 2.5 and 97.5 percentiles."""
    low, middle, high = np.nanquantile(values, [0.025, 0.5, 0.975], axis=1)
    color = COLORS[criterion]
    ax.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0)
    ax.plot(x, middle, LINES[variant], color=color, label=LABELS[criterion])


def saved(figure: Figure, form: str) -> bytes:
    """Figure as ``png`` or ``pdf``; the same figure gives the same bytes."""
    buffer = BytesIO()
    metadata = {"CreationDate": None} if form == "pdf" else {}
    with rc_context(SETTINGS):
        figure.savefig(buffer, format=form, dpi=200, metadata=metadata)
    return buffer.getvalue()
