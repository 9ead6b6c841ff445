"""Every claim as a line of ratios with their intervals, coloured by the verdict."""

import numpy as np
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from experiments.studies.style import SETTINGS, page
from experiments.studies.verdict import Verdict

#: of the verdicts (Okabe and Ito)
COLORS = {
    Verdict.holds.value: "#009e73",
    Verdict.in_part.value: "#e69f00",
    Verdict.fails.value: "#d55e00",
    Verdict.undecided.value: "#7a7a7a",
}
MARKERS = {"won": "o", "lost": "X", "equal": "s", "tied": "."}
FACTOR = 10.0  # ratios beyond this, or below its inverse, are drawn at the edge
ROW = 0.22  # inch per claim: all of them on one page
FONT = 7  # points
NAMES = {"smse": "SMSE", "nlpd": "NLPD", "van": "Van", "pol": "Pol"}
TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


@rc_context(SETTINGS)
def forest(store: xr.Dataset, setting: str) -> Figure:
    """Claims with results, one row each: the ratio that speaks least for the claim at every place.

    The region that the claim wants is shaded.
    """
    part = store.sel(setting=setting)
    names = [name for name in part["claim"].values if np.isfinite(part["median"].sel(claim=name)).any()]
    figure, axes = page(1, 1, 0.9 + ROW * len(names))
    ax = axes[0, 0]
    for row, name in enumerate(names):
        _claim(ax, len(names) - 1 - row, part.sel(claim=name))
    ax.axvline(0.0, color="black", linewidth=0.6, zorder=1)
    edge = np.log(FACTOR)
    ax.set(xlim=(-1.06 * edge, 1.06 * edge), ylim=(-0.6, len(names) - 0.4), xticks=np.log(TICKS))
    ax.set_xlabel("Median ratio and its 95 % interval [1]; shaded: what the claim wants", fontsize=FONT)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{np.exp(x):g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_yticks(range(len(names)), [_label(part.sel(claim=name)) for name in reversed(names)], fontsize=FONT)
    ax.grid(visible=False, axis="y")
    _legend(figure)
    return figure


def _claim(ax: Axes, y: float, part: xr.Dataset) -> None:
    """Places of a claim around its height, in their order from top to bottom; the verdict in the right margin."""
    ax.text(1.01, y, part["verdict"].item(), transform=ax.get_yaxis_transform(), va="center", fontsize=FONT)
    color = COLORS[part["verdict"].item()]
    known = part.isel(place=np.flatnonzero(np.isfinite(part["median"])))
    heights = y + 0.32 * np.linspace(1, -1, known.sizes["place"] + 2)[1:-1]
    edge = np.log(FACTOR)
    region = np.clip([known["region_low"].values.max(), known["region_high"].values.min()], -1.06 * edge, 1.06 * edge)
    ax.fill_betweenx([y - 0.45, y + 0.45], *region, color=color, alpha=0.12, linewidth=0)
    for height, place in zip(heights, known["place"].values, strict=True):
        at = known.sel(place=place)
        interval = np.array([at["low"].item(), at["high"].item()])
        if np.isfinite(interval).all():
            ax.plot(
                np.clip(interval, -1.06 * edge, 1.06 * edge), [height, height], color=color, linewidth=0.6, zorder=2
            )
        middle = np.clip(at["median"].item(), -edge, edge)
        marker = MARKERS[at["outcome"].item()]
        face = color if np.isfinite(at["p_value"]) else "white"
        ax.plot(
            middle, height, marker, color=color, markerfacecolor=face, markersize=3.2, markeredgewidth=0.6, zorder=3
        )


def _label(part: xr.Dataset) -> str:
    counts = [int(part[key]) for key in ("n_won", "n_lost")]
    tied = int(part["n_equal"] + part["n_tied"])
    name = " ".join(NAMES.get(word, word) for word in str(part["claim"].item()).split("_"))
    name = name[0].upper() + name[1:]
    return f"{name} ({part['source'].item()})  {counts[0]}/{counts[1]}/{tied}"


def _legend(figure: Figure) -> None:
    """Colours and markers, above the axes."""
    colors = [Line2D([], [], color=color, linewidth=4, label=verdict) for verdict, color in COLORS.items()]
    marks = [
        Line2D([], [], color="black", marker=marker, linestyle="", markersize=4, label=outcome)
        for outcome, marker in MARKERS.items()
    ]
    untested = Line2D([], [], color="black", marker="o", markerfacecolor="white", linestyle="", label="one number")
    figure.legend(
        handles=[*colors, *marks, untested], loc="outside upper center", ncols=5, frameon=False, fontsize=FONT
    )
