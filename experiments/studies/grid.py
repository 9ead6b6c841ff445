"""Any acceptance criterion with any reduction criterion: the full grid, which the paper asks for and does not show."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.plots.frames import quantiles, significant, to_markdown
from experiments.plots.style import LABELS, PAGE, page
from experiments.studies.stream import CRITERIA, QUANTITIES, Run, row_of, streams_of
from experiments.studies.study import STREAM_STUDIES, Plan, Study, Unit, frame_of_parts, part_of, spread_out, summarise
from experiments.studies.tasks import TASKS

ACCEPTANCES = ("none", *CRITERIA)
REFERENCE = "leave_one_out"  # stored points are judged by the model without them
#: criteria that choose the same points (section 3.2 of the paper) and share their acceptance (section 3.3)
CLASSES = dict(zip(CRITERIA, ("entropy", "entropy", "relevance", "likelihood", "likelihood"), strict=True))
PAIRS = (("prior_entropy", "predictive_entropy"), ("marginal_log_likelihood", "log_predictive_density"))
SAME = 1e-6  # relative difference of two SMSE that come from the same points
SHORT = dict(
    zip(ACCEPTANCES, ("none", "Prior ent.", "Pred. ent.", "Mean rel.", "Marg. lik.", "Log dens."), strict=True)
)
COLUMNS = 5  # panels in a row
MOST = 4.0  # ratio at the end of the colours
TICKS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
DARK = 2.2  # ratio from which on the text is white
IS_MATCHED = xr.DataArray(
    [[CLASSES.get(a) == CLASSES[r] for r in CRITERIA] for a in ACCEPTANCES],
    coords={"acceptance": list(ACCEPTANCES), "reduction": list(CRITERIA)},
)  # whether the acceptance is the one that the paper gives to the reduction


class Grid(Study):
    """All new points offered with trained hyper-parameters; stored points judged without themselves."""

    name, title = "grid", "Acceptance by reduction: all pairs of criteria"
    weight = 0.45

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """One stream for each of the 30 cells."""
        streams = streams_of(unit.task, unit.seed, plan, STREAM_STUDIES)
        rows = []
        for acceptance in ACCEPTANCES:
            for reduction in CRITERIA:
                run = Run("trained", reduction, acceptance, "" if acceptance == "none" else REFERENCE)
                rows.append(row_of(run, streams.offer(run)))
        return part_of(rows)

    def combine(self, plan: Plan) -> xr.Dataset:
        """Outcomes (dataset, acceptance, reduction, seed); nan where a task has no such seed, or no data."""
        coordinates: dict[str, Sequence[Any]] = {
            "dataset": [TASKS[task].title for task in plan.tasks],
            "acceptance": list(ACCEPTANCES),
            "reduction": list(CRITERIA),
            "seed": list(range(plan.seeds)),
        }
        return spread_out(frame_of_parts(self.kept(plan)), coordinates, QUANTITIES)

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Medians over seeds, one row per cell; without data nan and no seed."""
        medians = ("smse", "n_revised", "accepted_percent")
        found = summarise(store, medians).assign(setting="trained")
        found["reference"] = np.where(found["acceptance"] == "none", "", REFERENCE)
        return found[["dataset", "setting", "reduction", "acceptance", "reference", *medians, "n_seeds"]]

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Best pairs, means over datasets, criteria that agree, medians per dataset."""
        medians = median_smse(store).dropna("dataset", how="all")
        if not medians.size:
            return dict.fromkeys(("best", "means", "agreement", "medians"), "No data.")
        tables = {"best": _list_best(medians), "means": _average(medians), "agreement": _compare_equivalent(store)}
        datasets = [f"### {smse['dataset'].item()}\n\n{to_markdown(_tabulate(smse))}" for smse in medians]
        return {name: to_markdown(table) for name, table in tables.items()} | {"medians": "\n\n".join(datasets)}

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Heat maps relative to the best cell of each dataset."""
        return {self.name: partial(draw_heat_maps, median_smse(store))}


def median_smse(store: xr.Dataset) -> xr.DataArray:
    """Median SMSE over seeds (dataset, acceptance, reduction); nan without data."""
    smse = store["smse"].transpose("dataset", "acceptance", "reduction", "seed")
    return smse.isel(seed=0, drop=True).copy(data=quantiles(smse.values, (0.5,))[0])


def relate_to_best(smse: xr.DataArray) -> xr.DataArray:
    """Median SMSE over that of the best cell of the same dataset."""
    return smse / smse.min(["acceptance", "reduction"])


def find_best(ratio: xr.DataArray) -> list[str]:
    """Cells of a dataset that share the lowest SMSE, one for criteria that choose the same points."""
    found: dict[tuple[str, str | None], str] = {}
    for acceptance in ACCEPTANCES:
        for reduction in CRITERIA:
            if float(ratio.sel(acceptance=acceptance, reduction=reduction)) <= 1.0 + SAME:
                label = LABELS.get(acceptance, "no acceptance").lower()
                key = CLASSES[reduction], CLASSES.get(acceptance)
                found.setdefault(key, f"{LABELS[reduction]} with {label}")
    return list(found.values())


def _list_best(medians: xr.DataArray) -> pd.DataFrame:
    """Best cell of each dataset, the best matched one, the best without acceptance."""
    return pd.DataFrame(
        {
            "dataset": ratio["dataset"].item(),
            "lowest SMSE": significant(float(smse.min())),
            "best pair: reduction with acceptance": ", ".join(find_best(ratio)),
            "best matched / best": significant(float(ratio.where(IS_MATCHED).min()), 4),
            "best without acceptance / best": significant(float(ratio.sel(acceptance="none").min()), 4),
        }
        for smse, ratio in zip(medians, relate_to_best(medians), strict=True)
    )


def _average(medians: xr.DataArray) -> pd.DataFrame:
    """Geometric mean over datasets of SMSE / best SMSE; datasets where the matched acceptance is the best one."""
    ratio = relate_to_best(medians)
    mean = ratio.isel(dataset=0, drop=True).copy(data=np.exp(np.log(ratio.values).mean(axis=0)))
    accepted = medians.sel(acceptance=list(CRITERIA))
    lowest = accepted.min("acceptance")
    is_best = accepted.where(IS_MATCHED.sel(acceptance=list(CRITERIA))).min("acceptance") <= lowest * (1 + SAME)
    table = _tabulate(mean, digits=4)
    counts = [int(is_best.sel(reduction=name).sum()) for name in CRITERIA]
    return table.assign(**{"matched is best in": [f"{n} of {medians.sizes['dataset']}" for n in counts]})


def _tabulate(smse: xr.DataArray, digits: int = 3) -> pd.DataFrame:
    """Reductions by acceptances, the lowest bold."""
    texts = {"reduction": [LABELS[name] for name in CRITERIA]}
    for acceptance in ACCEPTANCES:
        column = smse.sel(acceptance=acceptance, reduction=list(CRITERIA)).values
        is_least = column <= float(smse.min()) * (1 + SAME)
        words = [significant(value, digits) for value in column]
        label = LABELS.get(acceptance, "none").lower()
        texts[label] = [f"**{word}**" if bold else word for word, bold in zip(words, is_least, strict=True)]
    return pd.DataFrame(texts)


def count_agreement(store: xr.Dataset, role: str) -> tuple[int, int, float]:
    """Pairs of cells that differ in two equivalent criteria of one role: how many agree, how many there are.

    Agreement: the same number of revised points and the same SMSE within a relative difference of 1e-6. The third
    number is the largest relative difference of the SMSE.
    """
    n_equal, n_all, largest = 0, 0, 0.0
    for first, second in PAIRS:
        one, other = (store.sel({role: name}) for name in (first, second))
        difference = abs(one["smse"] / other["smse"] - 1.0)
        n_all += int(difference.notnull().sum())
        n_equal += int(((difference <= SAME) & (one["n_revised"] == other["n_revised"])).sum())
        largest = max(largest, float(difference.max()))
    return n_equal, n_all, largest


def _compare_equivalent(store: xr.Dataset) -> pd.DataFrame:
    """Check of the paper's equivalences, cell by cell and seed by seed."""
    rows = []
    for role, other in (("reduction", "acceptance"), ("acceptance", "reduction")):
        n_equal, n, largest = count_agreement(store, role)
        agree = {"pairs of cells": str(n), "agree": str(n_equal), "largest difference": significant(largest)}
        rows.append({"as": f"{role}, under every {other}"} | agree)
    return pd.DataFrame(rows)


@rc_context(PAGE)
def draw_heat_maps(medians: xr.DataArray) -> Figure:
    """Median SMSE (dataset, acceptance, reduction) over the best cell of each dataset; matched pairs are framed."""
    n = medians.sizes["dataset"]
    n_rows = math.ceil(n / COLUMNS)
    figure, axes = page(n_rows, COLUMNS, 0.9 + 1.65 * n_rows)
    for ax in axes.flat[n:]:
        ax.set_visible(False)
    for i, (ax, ratio) in enumerate(zip(axes.flat, relate_to_best(medians), strict=False)):
        values = np.clip(ratio.values, 1.0, MOST)
        image = ax.imshow(values, norm=LogNorm(1.0, MOST), cmap="YlOrBr", aspect="auto")
        _annotate(ax, ratio)
        is_left, is_bottom = i % COLUMNS == 0, i + COLUMNS >= n
        ax.set_title(str(ratio["dataset"].item()))
        ax.set_yticks(range(len(ACCEPTANCES)), list(SHORT.values()) if is_left else [""] * len(ACCEPTANCES))
        ax.set_xticks(range(len(CRITERIA)), [SHORT[name] if is_bottom else "" for name in CRITERIA])
        ax.tick_params(length=0)
        ax.tick_params(axis="x", labelrotation=90)
        ax.set_ylabel("Acceptance" if is_left else "")
        ax.set_xlabel("Reduction" if is_bottom else "")
    bar = figure.colorbar(image, ax=axes, orientation="horizontal", shrink=0.5, aspect=45, extend="max")
    bar.set_ticks(TICKS, labels=[f"{tick:g}" for tick in TICKS], minor=False)
    bar.ax.minorticks_off()
    bar.set_label("Median SMSE over that of the best pair of the dataset [1]")
    return figure


def _annotate(ax: Axes, ratio: xr.DataArray) -> None:
    """Ratio in every cell, a frame around matched pairs; a dataset without data says so."""
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    if not np.isfinite(ratio.values).any():
        ax.text(0.5, 0.5, "no data", transform=ax.transAxes, ha="center", va="center")
    for (y, x), value in np.ndenumerate(ratio.values):
        if np.isfinite(value):
            color = "white" if value > DARK else "black"
            ax.text(x, y, significant(float(value)), ha="center", va="center", fontsize=5.5, color=color)
        if IS_MATCHED.values[y, x]:
            ax.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor="0.15", linewidth=0.7))
