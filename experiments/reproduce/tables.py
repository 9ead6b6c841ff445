"""Tables 2 to 4: a stream for every task, setting, criterion, variant, seed; table 1; beside the
published numbers.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
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
    DISTINCT,
    QUANTITIES,
    TITLES,
    VARIANTS,
    Run,
    Setting,
)
from experiments.reproduce.study import Plan, Study, Unit
from experiments.reproduce.tasks import TASKS
from sysid.gp.rules import COMPARED_CRITERIA

CELL = ("setting", "criterion", "variant", "threshold_choice")
COLUMNS = [
    *(
        "dataset",
        "setting",
        "criterion",
        "acceptance",
        "reference",
        "threshold",
        "smse",
        "smse_published",
    ),
    *(
        "n_revised",
        "n_revised_published",
        "accepted_percent",
        "accepted_percent_published",
        "n_seeds",
    ),
]
CHOICES = (
    "published",
    "own",
)  # the published threshold; one of our rule, where that means nothing
RULES = {"table_2": "always", "table_3": "variance", "table_4": "error"}
# of the published number of revised points; of the stream: beyond, a threshold means nothing
FEWEST = 0.1
MOST = 0.99
RAISE = 1.25  # factor between an own threshold that revises too many points and the next
PANELS = dict(list(TITLES.items())[:2])  # variants that are shown
# between two criteria of a dataset, in rows; inch per dataset
STEP = 0.24
HEIGHT = 0.4
HOLLOW: dict[str, Any] = {
    "markerfacecolor": "none",
    "markeredgecolor": PUBLISHED_COLOR,
    "markeredgewidth": 0.7,
}


class Table(Study):
    """A table of the paper; records have all seeds, for the adaptive setting keeps a random sample
    of the stream.
    """

    template = "tables"
    has_random_records = True
    quantities = (*QUANTITIES, "threshold")

    def __init__(self, name: str, title: str) -> None:
        self.name = name
        self.title = title

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Outcomes of a task and seed; of a record only the adaptive setting has seeds above 0."""
        rows = []
        is_printed = self.name != "table_2"
        cells = (
            paper.read_cells(self.name)
            .set_index(["dataset", "criterion", "is_accepting"])
            .sort_index()
        )
        settings = (
            list(Setting) if unit.seed == 0 or TASKS[unit.task].is_random else [Setting.adaptive]
        )
        for setting, criterion in product(settings, COMPARED_CRITERIA):
            printed = cells.loc[TASKS[unit.task].title, criterion]
            threshold = float(printed["threshold"][False]) if is_printed else 0.0
            for row in stream.offer_variants(
                unit, plan, setting, criterion, RULES[self.name], threshold
            ):
                rows.append({"threshold_choice": "published", **row})
                n = int(printed["n_revised"][row["variant"] != "none"])
                if is_printed and is_meaningless(row, n):
                    rows.append(
                        {
                            **row,
                            **offer_at_own_threshold(row, unit, plan, n),
                            "threshold_choice": "own",
                        }
                    )
        return study.part_of(rows)

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        cells = ([*map(str, Setting)], COMPARED_CRITERIA, VARIANTS, CHOICES)
        return super().axes(plan) | dict(zip(CELL, cells, strict=True))

    def combine(self, plan: Plan) -> xr.Dataset:
        """Outcomes; table 2 has no threshold."""
        found = super().combine(plan)
        return found.assign(threshold=found["threshold"].where(self.name != "table_2"))

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Medians beside the published numbers; without data nan and no seed."""
        return summarise_cells(store, self.name)[COLUMNS]

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Ours / published per setting.

        Reads the attribute ``gaps`` (JSON, reason by dataset), if it is there.
        """
        gaps = pd.DataFrame(
            json.loads(store.attrs.get("gaps", "{}")).items(),
            columns=["dataset", "reason"],
        )
        cells = summarise_cells(store, self.name)
        sections = {"No data": to_markdown(gaps)}
        shown = cells[cells["variant"].isin(list(PANELS))].assign(
            text=lambda x: x.apply(describe_cell, axis=1)
        )
        shown["acceptance"] = np.where(shown["is_accepting"], "with", "without")
        for setting, here in shown.groupby("setting", sort=False):
            groups = here.groupby("threshold_choice", sort=False)
            over = (["dataset", "acceptance"], "criterion")
            parts = [study.pivot(part, *over) for _, part in groups]
            sections[f"Setting `{setting}`"] = "\n\nAt own thresholds:\n\n".join(parts)
        return {
            "sections": "\n\n".join(
                f"## {name}\n\n{text}" for name, text in sections.items() if text
            )
        }

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Ours against published, one figure per setting."""
        cells = summarise_cells(store, self.name)
        return {
            f"{self.name}_{s}": partial(draw_dots, cells[cells["setting"] == s])
            for s in store["setting"].values
        }


# --- own thresholds -------------------------------------------------------------------------------


def is_meaningless(row: Mapping[str, Any], n_published: float) -> bool:
    """Whether none or all points pass: fewer than a tenth of the published revisions, or 99 % of
    the stream.
    """
    return bool(
        row["n_inserted"] < FEWEST * n_published or row["n_inserted"] > MOST * row["n_offered"]
    )


def offer_at_own_threshold(
    row: Mapping[str, Any], unit: Unit, plan: Plan, n_published: int
) -> dict[str, Any]:
    """Offer the stream with the rules of a row at a threshold of our rule, which revises at most
    `n_published` points.

    The rule looks at the training part alone: the initial model predicts the whole stream; the
    threshold starts at the value that `n_published` points of it exceed (latent variance, or
    absolute error), and is raised by a quarter until the stream revises no more points than
    published.
    """
    run = Run(*(row[name] for name in Run._fields))
    data = stream.data_of(unit.task, unit.seed, plan)
    model = stream.start(run, unit, plan).require_model()
    mean, variance = model.predict(data.inputs)
    threshold = find_exceeded(
        variance if run.rule == "variance" else np.abs(data.targets - mean), n_published
    )

    while (found := stream.offer(run._replace(threshold=threshold), unit, plan))[
        "n_revised"
    ] > n_published:
        threshold *= RAISE
    return found


def find_exceeded(values: np.ndarray, n: int) -> float:
    """Threshold in the middle between the n-th and the next largest value: n values exceed it,
    fewer if there are ties.

    Half of the smallest value where all shall exceed it; twice the largest where none shall.
    """
    ordered = np.sort(values)[::-1]
    padded = np.concatenate([[3.0 * ordered[0]], ordered, [0.0]])
    n = min(n, len(ordered))
    return float(0.5 * (padded[n] + padded[n + 1]))


# --- what the cells say ---------------------------------------------------------------------------


def summarise_cells(store: xr.Dataset, table: str) -> pd.DataFrame:
    """One row per cell: medians, the 95 % range over seeds, and what the paper prints.

    Own thresholds are there only where more than half of the seeds with data have one.
    """
    store = store.transpose("dataset", *CELL, "seed")
    cells = study.summarise(
        store, ["smse", *(str(name) for name in store.data_vars if name != "smse")]
    )
    cells["low"], cells["high"] = quantiles(
        store["smse"].values.reshape(len(cells), -1), (0.025, 0.975)
    )
    n_known = (
        store["smse"].notnull().any("threshold_choice").sum("seed").values
    )  # (dataset, setting, ...)
    is_common = 2 * cells["n_seeds"] > np.repeat(n_known.ravel(), len(CHOICES))
    cells["is_accepting"], cells["smse_text"] = (
        cells["variant"] != "none",
        study.with_quartiles(cells, "smse"),
    )
    cells["reference"] = cells["variant"].where(cells["is_accepting"], "")
    cells["acceptance"] = np.where(cells["is_accepting"], "matched", "none")
    keys = ["dataset", "criterion", "is_accepting"]
    printed = paper.read_cells(table).set_index(keys).add_suffix("_published").reset_index()
    cells = cells[(cells["threshold_choice"] == "published") | is_common]
    return cells.merge(printed, how="left", on=keys)


def describe_cell(cell: pd.Series) -> str:
    """``**ours** [quartiles] / published``, then what was revised, then the own threshold.

    Bold marks the lower SMSE; both if they are equal.
    """
    if not cell["n_seeds"]:
        return "no data"
    ours, _, spread = cell["smse_text"].partition(" ")
    theirs = fixed(cell["smse_published"], 4)
    ours = f"**{ours}**" if cell["smse"] <= cell["smse_published"] else ours
    theirs = f"**{theirs}**" if cell["smse_published"] <= cell["smse"] else theirs
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
    """``8 to 9 of 10``: datasets at or below the published SMSE at the published thresholds, the
    fewest to the most.
    """
    cells = cells[
        (cells["threshold_choice"] == "published")
        & (cells["n_seeds"] > 0)
        & cells["variant"].isin(DISTINCT)
    ]
    if cells.empty:
        return "no data"
    groups = (cells["smse"] <= cells["smse_published"]).groupby(
        [cells["criterion"], cells["variant"]]
    )
    low = groups.sum().min()
    high = groups.sum().max()
    return f"{low if low == high else f'{low} to {high}'} of {groups.size().max()}"


# --- figure ---------------------------------------------------------------------------------------


def draw_dots(cells: pd.DataFrame) -> Figure:
    """Cells of one setting: median with the 95 % range over seeds, published values hollow, by
    dataset.

    A cross marks the median at an own threshold, where there is one.
    """
    datasets = cells["dataset"].unique().tolist()
    criteria = cells["criterion"].unique().tolist()
    figure, axes = page(1, len(PANELS), 1.1 + HEIGHT * len(datasets), sharex=True, sharey=True)
    for ax, (variant, title) in zip(axes[0], PANELS.items(), strict=True):
        for cell in cells[cells["variant"] == variant].to_dict("records"):
            name = cell["criterion"]
            y = datasets.index(cell["dataset"]) + STEP * (
                criteria.index(name) - 0.5 * (len(criteria) - 1)
            )
            if cell["threshold_choice"] == "own":
                ax.plot(
                    cell["smse"],
                    y,
                    "x",
                    color=CRITERION_COLORS[name],
                    markersize=5,
                    markeredgewidth=1.0,
                    zorder=4,
                )
                continue
            ax.plot(
                cell["smse_published"],
                y,
                CRITERION_MARKERS[name],
                markersize=5.5,
                zorder=2,
                **HOLLOW,
            )
            if cell["n_seeds"]:
                ax.plot(
                    [cell["low"], cell["high"]],
                    [y, y],
                    color=CRITERION_COLORS[name],
                    linewidth=1.4,
                    solid_capstyle="butt",
                )
                ax.plot(
                    cell["smse"],
                    y,
                    CRITERION_MARKERS[name],
                    color=CRITERION_COLORS[name],
                    markersize=4,
                    zorder=3,
                    markeredgewidth=0,
                )
        ax.set(title=title, xscale="log", xlabel="SMSE [1]")
        ax.tick_params(axis="y", length=0)
    axes[0, 0].set_yticks(range(len(datasets)), datasets)
    axes[0, 0].set_ylim(len(datasets) - 0.5, -0.5)
    handles = [
        Line2D(
            [],
            [],
            color=CRITERION_COLORS[c],
            marker=CRITERION_MARKERS[c],
            markersize=4,
            label=LABELS[c],
        )
        for c in criteria
    ]
    handles.append(
        Line2D(
            [],
            [],
            linestyle="none",
            marker="o",
            markersize=5.5,
            label="published",
            **HOLLOW,
        )
    )
    handles.append(
        Line2D(
            [],
            [],
            linestyle="none",
            marker="x",
            color="0.3",
            markersize=5,
            label="own threshold",
        )
    )
    figure.legend(handles=handles, loc="outside lower center", ncols=len(criteria) + 2)
    return figure


# --- table 1: what one evaluation of a criterion costs as published, and all N scores our way ----

PRINTED_SIZES = (20, 100)  # points, of the published table


class ComplexityStudy(Study):
    """Time of the five criteria over the number of points, the published way and ours, in turns in
    one process.
    """

    name = "table_1"
    title = "Table 1: cost of the criteria"
    tasks = ()
    quantities = ("published_ms", *(f"{way}_ms" for way in WAYS), "gain")

    def units(self, plan: Plan) -> list[Unit]:
        return [Unit(self.name, "")]

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Median times of one call [ms] for every criterion and number of points, and the machine
        they are from.
        """
        printed = paper.read_table("table_1")
        rows = []
        for n in plan.table_sizes:
            seconds = score_seconds(n, rounds_for(n, plan.repetitions), unit.seed)
            for name in PUBLISHED_SCORES:
                one, every = (1e3 * float(np.median(seconds[way, name])) for way in WAYS)
                published = printed[f"median_ms_n{n}"][name] if n in PRINTED_SIZES else np.nan
                times = dict(
                    zip(
                        self.quantities,
                        (published, one, every, n * one / every),
                        strict=True,
                    )
                )
                rows.append({"criterion": name, "points": n, **times})
        return study.part_of(rows).assign_attrs(machine=describe(machine()))

    def combine(self, plan: Plan) -> xr.Dataset:
        """Spread the one part out over criterion and points."""
        part = study.read_part(Unit(self.name, ""), plan)
        over: dict[str, Sequence[Any]] = {
            "criterion": [*PUBLISHED_SCORES],
            "points": plan.table_sizes,
        }
        return study.spread_out(part.to_dataframe(), over, self.quantities).assign_attrs(
            machine=part.attrs["machine"]
        )

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """One row per criterion and number of points, times in milliseconds."""
        return store.to_dataframe(["criterion", "points"]).reset_index()

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Return a table of the published sizes, and the machine."""
        rows = self.rows(store).replace({"criterion": LABELS}).rename(columns={"points": "N"})
        rows = rows[rows["N"].isin(PRINTED_SIZES)].map(
            lambda x: significant(x) if isinstance(x, float) else x
        )
        return {"times": to_markdown(rows), "machine": store.attrs["machine"]}
