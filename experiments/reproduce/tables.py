"""Tables 1 to 4 of the paper beside our numbers.

Tables 2 to 4 come from a stream for every task, setting, criterion, variant and seed.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.benchmark.dictionary import (
    PUBLISHED_SCORES,
    WAYS,
    rounds_for,
    score_seconds,
)
from experiments.benchmark.harness import describe, machine
from experiments.drawing.style import (
    CRITERION_COLORS,
    CRITERION_MARKERS,
    LABELS,
    PUBLISHED_COLOR,
    page,
)
from experiments.drawing.tables import fixed, quantiles, significant, to_markdown
from experiments.reproduce import paper, stream, study
from experiments.reproduce.stream import (
    DISTINCT_VARIANTS,
    STREAM_QUANTITIES,
    VARIANT_TITLES,
    VARIANTS,
    Run,
    Setting,
)
from experiments.reproduce.study import Plan, Study, Unit
from experiments.reproduce.tasks import STUDY_TASKS
from sysid.gp.rules import COMPARED_CRITERIA

CELL_DIMENSIONS = ("setting", "criterion", "variant", "threshold_choice")
CELL_COLUMNS = [
    "dataset",
    "setting",
    "criterion",
    "acceptance",
    "reference",
    "threshold",
    "smse",
    "smse_published",
    "n_revised",
    "n_revised_published",
    "accepted_percent",
    "accepted_percent_published",
    "n_seeds",
]
# The published threshold, and one of our rule, which is tried if the published one has no meaning.
CHOICES = ("published", "own")
INSERTION_RULES = {"table_2": "always", "table_3": "variance", "table_4": "error"}
# A threshold has no meaning if fewer points pass it than this fraction of the published revisions.
MIN_INSERTED_FRACTION = 0.1
# A threshold has no meaning if more than this fraction of the stream passes it.
MAX_INSERTED_FRACTION = 0.99
THRESHOLD_FACTOR = 1.25  # factor by which a threshold that revises too many points is raised
# Variants that are shown, with their titles.
SHOWN_VARIANTS = {name: VARIANT_TITLES[name] for name in ("none", "leave_one_out")}
CRITERION_DISTANCE = 0.24  # distance of two criteria of a dataset, in rows of the figure
DATASET_HEIGHT = 0.4  # height of the row of a dataset [inch]
HOLLOW_MARK: dict[str, Any] = {
    "markerfacecolor": "none",
    "markeredgecolor": PUBLISHED_COLOR,
    "markeredgewidth": 0.7,
}


class Table(Study):
    """Table 2, 3 or 4 of the paper.

    Measured records are computed for all seeds, too, because the adaptive setting keeps a random
    sample of the stream.
    """

    template = "tables"
    has_random_records = True
    quantities = (*STREAM_QUANTITIES, "threshold")

    def __init__(self, name: str, title: str) -> None:
        self.name = name
        self.title = title

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Compute the outcomes of a task and seed.

        For a measured record, only the adaptive setting has seeds above 0.
        """
        settings = list(Setting)
        if unit.seed > 0 and not STUDY_TASKS[unit.task].is_random:
            settings = [Setting.adaptive]
        rule = INSERTION_RULES[self.name]
        cells = paper.read_cells(self.name)
        cells = cells.set_index(["dataset", "criterion", "is_accepting"]).sort_index()
        rows = []
        for setting, criterion in product(settings, COMPARED_CRITERIA):
            printed = cells.loc[STUDY_TASKS[unit.task].title, criterion]
            threshold = 0.0 if rule == "always" else float(printed["threshold"][False])
            for row in stream.offer_variants(unit, plan, setting, criterion, rule, threshold):
                rows.append({"threshold_choice": "published", **row})
                n_published = int(printed["n_revised"][row["variant"] != "none"])
                if rule != "always" and is_meaningless(row, n_published):
                    found = offer_at_own_threshold(row, unit, plan, n_published)
                    rows.append({**row, **found, "threshold_choice": "own"})
        return study.part_of(rows)

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        values = ([*map(str, Setting)], COMPARED_CRITERIA, VARIANTS, CHOICES)
        return super().axes(plan) | dict(zip(CELL_DIMENSIONS, values, strict=True))

    def combine(self, plan: Plan) -> xr.Dataset:
        """Return the outcomes; table 2 has no threshold."""
        found = super().combine(plan)
        return found.assign(threshold=found["threshold"].where(self.name != "table_2"))

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Return medians beside the published numbers; cells without data are nan, of 0 seeds."""
        return summarise_cells(store, self.name)[CELL_COLUMNS]

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Return our numbers over the published ones, a section per setting.

        The attribute ``gaps`` of the store (JSON, reasons by dataset), if it has one, becomes the
        section of missing data.
        """
        reasons = json.loads(store.attrs.get("gaps", "{}"))
        gaps = pd.DataFrame(reasons.items(), columns=["dataset", "reason"])
        sections = {"No data": to_markdown(gaps)}
        cells = summarise_cells(store, self.name)
        shown = cells[cells["variant"].isin(list(SHOWN_VARIANTS))]
        shown = shown.assign(
            text=shown.apply(describe_cell, axis=1),
            acceptance=np.where(shown["is_accepting"], "with", "without"),
        )
        for setting, of_setting in shown.groupby("setting", sort=False):
            parts = [
                study.pivot(part, ["dataset", "acceptance"], "criterion")
                for _, part in of_setting.groupby("threshold_choice", sort=False)
            ]
            sections[f"Setting `{setting}`"] = "\n\nAt own thresholds:\n\n".join(parts)
        texts = [f"## {name}\n\n{text}" for name, text in sections.items() if text]
        return {"sections": "\n\n".join(texts)}

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Return figures of our and published numbers, one per setting."""
        cells = summarise_cells(store, self.name)
        return {
            f"{self.name}_{setting}": partial(draw_dots, cells[cells["setting"] == setting])
            for setting in store["setting"].values
        }


# --- own thresholds -------------------------------------------------------------------------------


def is_meaningless(row: Mapping[str, Any], n_published: float) -> bool:
    """Return whether none or all points pass a threshold, so that it has no meaning.

    None pass it if they are fewer than a tenth of the published revisions, and all pass it if they
    are more than 99 % of the stream.
    """
    n_inserted = row["n_inserted"]
    passes_none = n_inserted < MIN_INSERTED_FRACTION * n_published
    passes_all = n_inserted > MAX_INSERTED_FRACTION * row["n_offered"]
    return bool(passes_none or passes_all)


def offer_at_own_threshold(
    row: Mapping[str, Any], unit: Unit, plan: Plan, n_published: int
) -> dict[str, Any]:
    """Offer the stream at a threshold of our rule, which revises at most `n_published` points.

    All other rules are those of the row. Our rule uses the training part alone: the initial model
    predicts the whole stream; the threshold starts at the value that `n_published` points of it
    exceed (latent variance, or absolute error), and is raised by a quarter until the stream revises
    no more points than published.
    """
    run = Run(*(row[name] for name in Run._fields))
    data = stream.data_of(unit.task, unit.seed, plan)
    model = stream.start(run, unit, plan).require_model()
    mean, variance = model.predict(data.inputs)
    values = variance if run.rule == "variance" else np.abs(data.targets - mean)
    threshold = find_exceeded(values, n_published)
    found = stream.offer(run._replace(threshold=threshold), unit, plan)
    while found["n_revised"] > n_published:
        threshold *= THRESHOLD_FACTOR
        found = stream.offer(run._replace(threshold=threshold), unit, plan)
    return found


def find_exceeded(values: np.ndarray, n: int) -> float:
    """Return a threshold that n values exceed, or fewer if there are ties.

    It is in the middle between the n-th and the next largest value. It is half of the smallest
    value if all values shall exceed it, and twice the largest value if none shall.
    """
    ordered = np.sort(values)[::-1]
    padded = np.concatenate([[3.0 * ordered[0]], ordered, [0.0]])
    n = min(n, len(ordered))
    return float(0.5 * (padded[n] + padded[n + 1]))


# --- cells as rows and texts ----------------------------------------------------------------------


def summarise_cells(store: xr.Dataset, table: str) -> pd.DataFrame:
    """Return one row per cell: medians, the 95 % range over seeds, and what the paper prints.

    Own thresholds have a row only if more than half of the seeds with data have one.
    """
    store = store.transpose("dataset", *CELL_DIMENSIONS, "seed")
    others = [str(name) for name in store.data_vars if name != "smse"]
    cells = study.summarise(store, ["smse", *others])
    smse = store["smse"].values.reshape(len(cells), -1)
    cells["low"], cells["high"] = quantiles(smse, (0.025, 0.975))
    # Seeds with data at any threshold: (dataset, setting, criterion, variant).
    n_known = store["smse"].notnull().any("threshold_choice").sum("seed").values
    is_common = 2 * cells["n_seeds"] > np.repeat(n_known.ravel(), len(CHOICES))
    cells["is_accepting"] = cells["variant"] != "none"
    cells["smse_text"] = study.with_quartiles(cells, "smse")
    cells["reference"] = cells["variant"].where(cells["is_accepting"], "")
    cells["acceptance"] = np.where(cells["is_accepting"], "matched", "none")
    keys = ["dataset", "criterion", "is_accepting"]
    printed = paper.read_cells(table).set_index(keys).add_suffix("_published").reset_index()
    cells = cells[(cells["threshold_choice"] == "published") | is_common]
    return cells.merge(printed, how="left", on=keys)


def describe_cell(cell: pd.Series) -> str:
    """Return the text of a cell: SMSE, number of revised points, and our own threshold, if any.

    The SMSE is written ``**ours** [quartiles] / published``. The lower one is bold, or both if they
    are equal.
    """
    if not cell["n_seeds"]:
        return "no data"
    ours, _, spread = cell["smse_text"].partition(" ")
    theirs = fixed(cell["smse_published"], 4)
    if cell["smse"] <= cell["smse_published"]:
        ours = f"**{ours}**"
    if cell["smse_published"] <= cell["smse"]:
        theirs = f"**{theirs}**"
    lines = [f"{ours} {spread}".strip() + f" / {theirs}"]
    if np.isfinite(cell["threshold_published"]):
        lines.append(f"{cell['n_revised']:.0f} / {cell['n_revised_published']:.0f} points")
    elif cell["is_accepting"]:
        lines.append(f"{cell['accepted_percent']:.1f} / {cell['accepted_percent_published']:.1f} %")
    if cell["threshold_choice"] == "own":
        lines.append(
            f"at {significant(cell['threshold'])} instead of {cell['threshold_published']:.3g}"
        )
    return "<br>".join(lines)


def count_below(cells: pd.DataFrame) -> str:
    """Return how many datasets are at or below the published SMSE, as ``8 to 9 of 10``.

    The counts at the published thresholds differ between criteria and variants: the text has the
    smallest and the largest.
    """
    cells = cells[
        (cells["threshold_choice"] == "published")
        & (cells["n_seeds"] > 0)
        & cells["variant"].isin(DISTINCT_VARIANTS)
    ]
    if cells.empty:
        return "no data"
    is_below = cells["smse"] <= cells["smse_published"]
    groups = is_below.groupby([cells["criterion"], cells["variant"]])
    low = groups.sum().min()
    high = groups.sum().max()
    counts = str(low) if low == high else f"{low} to {high}"
    return f"{counts} of {groups.size().max()}"


# --- figure ---------------------------------------------------------------------------------------


def draw_dots(cells: pd.DataFrame) -> Figure:
    """Draw the cells of one setting, a row per dataset.

    A mark is a median with the 95 % range over seeds; published values are hollow. A cross marks
    the median at an own threshold, if there is one.
    """
    datasets = cells["dataset"].unique().tolist()
    criteria = cells["criterion"].unique().tolist()
    height = 1.1 + DATASET_HEIGHT * len(datasets)
    figure, axes = page(1, len(SHOWN_VARIANTS), height, sharex=True, sharey=True)
    for ax, (variant, title) in zip(axes[0], SHOWN_VARIANTS.items(), strict=True):
        for cell in cells[cells["variant"] == variant].to_dict("records"):
            from_middle = criteria.index(cell["criterion"]) - 0.5 * (len(criteria) - 1)
            y = datasets.index(cell["dataset"]) + CRITERION_DISTANCE * from_middle
            _draw_cell(ax, cell, y)
        ax.set(title=title, xscale="log", xlabel="SMSE [1]")
        ax.tick_params(axis="y", length=0)
    axes[0, 0].set_yticks(range(len(datasets)), datasets)
    axes[0, 0].set_ylim(len(datasets) - 0.5, -0.5)
    figure.legend(
        handles=_make_handles(criteria), loc="outside lower center", ncols=len(criteria) + 2
    )
    return figure


def _draw_cell(ax: Axes, cell: Mapping[str, Any], y: float) -> None:
    """Draw one cell at a height: a cross, or the published value and our median with its range."""
    color = CRITERION_COLORS[cell["criterion"]]
    marker = CRITERION_MARKERS[cell["criterion"]]
    if cell["threshold_choice"] == "own":
        ax.plot(
            cell["smse"],
            y,
            "x",
            color=color,
            markersize=5,
            markeredgewidth=1.0,
            zorder=4,
        )
        return
    ax.plot(cell["smse_published"], y, marker, markersize=5.5, zorder=2, **HOLLOW_MARK)
    if cell["n_seeds"]:
        ax.plot(
            [cell["low"], cell["high"]],
            [y, y],
            color=color,
            linewidth=1.4,
            solid_capstyle="butt",
        )
        ax.plot(
            cell["smse"],
            y,
            marker,
            color=color,
            markersize=4,
            zorder=3,
            markeredgewidth=0,
        )


def _make_handles(criteria: Sequence[str]) -> list[Line2D]:
    """Return the entries of the legend: criteria, published values, own thresholds."""
    handles = [
        Line2D(
            [],
            [],
            color=CRITERION_COLORS[name],
            marker=CRITERION_MARKERS[name],
            markersize=4,
            label=LABELS[name],
        )
        for name in criteria
    ]
    published = Line2D(
        [],
        [],
        linestyle="none",
        marker="o",
        markersize=5.5,
        label="published",
        **HOLLOW_MARK,
    )
    own_threshold = Line2D(
        [],
        [],
        linestyle="none",
        marker="x",
        color="0.3",
        markersize=5,
        label="own threshold",
    )
    return [*handles, published, own_threshold]


# --- table 1: cost of the criteria ----------------------------------------------------------------

PRINTED_SIZES = (20, 100)  # numbers of points in the published table


class ComplexityStudy(Study):
    """Time of the five criteria over the number of points, by the published and the compiled way.

    Both ways are measured in turns in one process.
    """

    name = "table_1"
    title = "Table 1: cost of the criteria"
    tasks = ()
    quantities = ("published_ms", *(f"{way}_ms" for way in WAYS), "gain")

    def units(self, plan: Plan) -> list[Unit]:
        return [Unit(self.name, "")]

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Measure the median times of one call [ms] for every criterion and number of points.

        The result names the machine.
        """
        printed = paper.read_table("table_1")
        rows = []
        for n in plan.table_sizes:
            seconds = score_seconds(n, rounds_for(n, plan.repetitions), unit.seed)
            for name in PUBLISHED_SCORES:
                one_ms, all_ms = (1e3 * float(np.median(seconds[way, name])) for way in WAYS)
                published_ms = printed[f"median_ms_n{n}"][name] if n in PRINTED_SIZES else np.nan
                values = (published_ms, one_ms, all_ms, n * one_ms / all_ms)
                times = dict(zip(self.quantities, values, strict=True))
                rows.append({"criterion": name, "points": n, **times})
        return study.part_of(rows).assign_attrs(machine=describe(machine()))

    def combine(self, plan: Plan) -> xr.Dataset:
        """Return the one part over criterion and points."""
        part = study.read_part(Unit(self.name, ""), plan)
        coordinates: dict[str, Sequence[Any]] = {
            "criterion": [*PUBLISHED_SCORES],
            "points": plan.table_sizes,
        }
        store = study.spread_out(part.to_dataframe(), coordinates, self.quantities)
        return store.assign_attrs(machine=part.attrs["machine"])

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Return one row per criterion and number of points, times in milliseconds."""
        return store.to_dataframe(["criterion", "points"]).reset_index()

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Return a table of the published sizes, and the machine."""
        rows = self.rows(store).replace({"criterion": LABELS}).rename(columns={"points": "N"})
        rows = study.round_numbers(rows[rows["N"].isin(PRINTED_SIZES)])
        return {"times": to_markdown(rows), "machine": store.attrs["machine"]}
