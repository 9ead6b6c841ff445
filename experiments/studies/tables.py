"""Tables 2 to 4: one stream for every task, setting, criterion, variant and seed, beside the published numbers."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.plots.frames import fixed, quantiles, significant, to_markdown
from experiments.plots.style import COLORS, LABELS, MARKERS, PAGE, PUBLISHED, page
from experiments.studies import paper
from experiments.studies.stream import CRITERIA, DISTINCT, QUANTITIES, VARIANTS, Run, Setting, Streams, streams_of
from experiments.studies.study import Plan, Study, Unit, part_of, summarise
from experiments.studies.tasks import TASKS

CELL = ("setting", "criterion", "variant", "threshold_choice")
COLUMNS = [
    *("dataset", "setting", "criterion", "acceptance", "reference", "threshold", "smse", "smse_published"),
    *("n_revised", "n_revised_published", "accepted_percent", "accepted_percent_published", "n_seeds"),
]
CHOICES = ("published", "own")  # the published threshold; one of our rule, where that means nothing
RULES = {"table_2": "always", "table_3": "variance", "table_4": "error"}
FEWEST, MOST = 0.1, 0.99  # of the published number of revised points; of the stream: beyond, a threshold means nothing
RAISE = 1.25  # factor between an own threshold that revises too many points and the next
DIGITS = 4  # decimals of the printed SMSE
REFERENCES = {"none": "without acceptance", "leave_one_out": "leave-one-out", "in_sample": "in-sample"}
PANELS = {"none": "Without acceptance", "leave_one_out": "With acceptance, leave-one-out"}
PERCENTAGES = "Mean difference of the percentages accepted to the published ones [points of percent]"
STEP, HEIGHT = 0.24, 0.4  # between two criteria of a dataset, in rows; inch per dataset
HOLLOW: dict[str, Any] = {"markerfacecolor": "none", "markeredgecolor": PUBLISHED, "markeredgewidth": 0.7}


class Table(Study):
    """A table of the paper; records have all seeds, for the adaptive setting keeps a random sample of the stream."""

    template, has_random_records, quantities = "tables", True, (*QUANTITIES, "threshold")

    def __init__(self, name: str, title: str) -> None:
        self.name, self.title = name, title

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Outcomes of a task and seed; of a record only the adaptive setting has seeds above 0."""
        streams, title, rows = streams_of(unit.task, unit.seed, plan), TASKS[unit.task].title, []
        cells = paper.read_cells(self.name).set_index(["dataset", "criterion", "is_accepting"]).sort_index()
        settings = list(Setting) if unit.seed == 0 or TASKS[unit.task].is_random else [Setting.adaptive]
        for setting, criterion in product(settings, paper.CRITERIA):
            threshold = 0.0 if self.name == "table_2" else float(cells["threshold"][title, criterion, False])
            offered = streams.offer_variants(setting, criterion, RULES[self.name], threshold)
            for variant, (run, outcome) in offered.items():
                key, n = (
                    {"criterion": criterion, "variant": variant},
                    cells["n_revised"][title, criterion, variant != "none"],
                )
                rows.append({**key, "threshold_choice": "published", **run._asdict(), **outcome})
                if self.name != "table_2" and is_meaningless(outcome, n):
                    run, outcome = offer_at_own_threshold(streams, run, int(n))
                    rows.append({**key, "threshold_choice": "own", **run._asdict(), **outcome})
        return part_of(rows)

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        cells = ([*map(str, Setting)], paper.CRITERIA, VARIANTS, CHOICES)
        return {"dataset": plan.titles, **dict(zip(CELL, cells, strict=True))}

    def combine(self, plan: Plan) -> xr.Dataset:
        """Outcomes; table 2 has no threshold."""
        found = super().combine(plan)
        return found.assign(threshold=found["threshold"].where(self.name != "table_2"))

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Medians beside the published numbers; without data nan and no seed."""
        cells = summarise_cells(store, self.name)
        cells["reference"] = cells["variant"].where(cells["is_accepting"], "")
        cells["acceptance"] = np.where(cells["is_accepting"], "matched", "none")
        return cells[COLUMNS]

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Sections of the settings, gaps, floors, references, and what following the stream brings.

        Reads the attributes ``gaps``, ``floors`` and ``missed`` (JSON, by dataset), if they are there.
        """
        gaps, floors, missed = (json.loads(store.attrs.get(key, "{}")) for key in ("gaps", "floors", "missed"))
        cells = summarise_cells(store, self.name)
        sections = {}
        for setting in store["setting"].values.tolist():
            here = cells[cells["setting"] == setting]
            parts = {
                "": compare(here[here["threshold_choice"] == "published"]),
                "At own thresholds:": compare(here[here["threshold_choice"] == "own"]),
                "Datasets at or below the published SMSE:": count_datasets(here[here["n_seeds"] > 0]),
                "Cells that stay above the published SMSE:": list_worse(here, floors),
            }
            texts = [f"{name}\n\n{to_markdown(part)}".strip() for name, part in parts.items() if len(part)]
            sections[f"Setting `{setting}`"] = "\n\n".join(texts)
        lengths = [[name, significant(ours), fixed(theirs, DIGITS)] for name, (ours, theirs) in missed.items()]
        unreached = pd.DataFrame(lengths, columns=["dataset", "nearest", "published"])
        references = compare_references(cells) if self.name == "table_2" else pd.DataFrame()
        sections |= {
            "No data": to_markdown(pd.DataFrame(gaps.items(), columns=["dataset", "reason"])),
            "Setting `published`: initial SMSE that no length scale reaches": to_markdown(unreached),
            PERCENTAGES: to_markdown(references),
            "Setting `adaptive` over `trained`, seed by seed": to_markdown(compare_adaptive(store)),
        }
        return {"sections": "\n\n".join(f"## {name}\n\n{text}" for name, text in sections.items() if text)}

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Ours against published, one figure per setting."""
        cells = summarise_cells(store, self.name)
        return {f"{self.name}_{s}": partial(draw_dots, cells[cells["setting"] == s]) for s in store["setting"].values}


# --- own thresholds -------------------------------------------------------------------------------


def is_meaningless(outcome: dict[str, float], n_published: float) -> bool:
    """Whether none or all points pass: fewer than a tenth of the published revisions, or 99 % of the stream."""
    return outcome["n_inserted"] < FEWEST * n_published or outcome["n_inserted"] > MOST * outcome["n_offered"]


def offer_at_own_threshold(streams: Streams, run: Run, n_published: int) -> tuple[Run, dict[str, float]]:
    """Offer the stream at a threshold of our rule, which revises at most `n_published` points.

    The rule looks at the training part alone: the initial model predicts the whole stream; the threshold starts at
    the value that `n_published` points of it exceed (latent variance, or absolute error), and is raised by a quarter
    until the stream revises no more points than published.

    Raises
    ------
    ValueError
        If the initial model leaves nothing to exceed: no factor raises a threshold of 0.
    """
    model = streams.start(run._replace(acceptance="none", reference="")).model
    assert model is not None
    mean, variance = model.predict(streams.data.inputs)
    threshold = find_exceeded(variance if run.rule == "variance" else np.abs(streams.data.targets - mean), n_published)
    if not threshold > 0:
        raise ValueError(f"own threshold: expected errors or variances above 0 in the stream, got {threshold}")
    while True:
        run = run._replace(threshold=threshold)
        outcome = streams.offer(run)
        if outcome["n_revised"] <= n_published:
            return run, outcome
        threshold *= RAISE


def find_exceeded(values: np.ndarray, n: int) -> float:
    """Threshold in the middle between the n-th and the next largest value: n values exceed it, fewer if there are ties.

    Half of the smallest value where all shall exceed it; twice the largest where none shall.
    """
    ordered = np.sort(values)[::-1]
    padded, n = np.concatenate([[3.0 * ordered[0]], ordered, [0.0]]), min(n, len(ordered))
    return float(0.5 * (padded[n] + padded[n + 1]))


# --- what the cells say ---------------------------------------------------------------------------


def summarise_cells(store: xr.Dataset, table: str) -> pd.DataFrame:
    """One row per cell: medians, the 95 % range, seeds at or below the published SMSE, and what the paper prints.

    Own thresholds are there only where more than half of the seeds with data have one.
    """
    store = store.transpose("dataset", *CELL, "seed")
    cells = summarise(store, ["smse", *(str(name) for name in store.data_vars if name != "smse")])
    values = store["smse"].values.reshape(len(cells), -1)
    cells["low"], cells["high"] = quantiles(values, (0.025, 0.975))
    n_known = store["smse"].notnull().any("threshold_choice").sum("seed").values  # (dataset, setting, ...)
    is_common = 2 * cells["n_seeds"] > np.repeat(n_known.ravel(), len(CHOICES))
    keys = ["dataset", "criterion", "is_accepting"]
    printed = paper.read_cells(table).set_index(keys).add_suffix("_published").reset_index()
    cells = cells.assign(is_accepting=cells["variant"] != "none").merge(printed, how="left", on=keys)
    cells["n_below"] = (values <= cells["smse_published"].to_numpy()[:, None]).sum(axis=1)
    return cells[(cells["threshold_choice"] == "published") | is_common].reset_index(drop=True)


def compare(cells: pd.DataFrame) -> pd.DataFrame:
    """Datasets by criteria, each dataset without and with acceptance: ours / published."""
    shown = cells[cells["variant"].isin(list(PANELS))]
    if shown.empty:
        return shown
    acceptance = shown["variant"].map({"none": "without", "leave_one_out": "with"})
    shown = shown.assign(text=shown.apply(describe_cell, axis=1), acceptance=acceptance)
    wide = shown.pivot(index=["dataset", "acceptance"], columns="criterion", values="text").fillna("")
    order = [(d, a) for d in shown["dataset"].unique() for a in ("without", "with") if (d, a) in wide.index]
    wide = wide.loc[order, [name for name in LABELS if name in wide.columns]]
    return wide.rename(columns=LABELS).reset_index(names=["Dataset", "Acceptance"])


def describe_cell(cell: pd.Series) -> str:
    """``**ours** [quartiles] / published``, then what was revised, then the own threshold.

    Bold marks the lower SMSE; both if they are equal.
    """
    if not cell["n_seeds"]:
        return "no data"
    ours, theirs = significant(cell["smse"]), fixed(cell["smse_published"], DIGITS)
    ours = f"**{ours}**" if cell["smse"] <= cell["smse_published"] else ours
    theirs = f"**{theirs}**" if cell["smse_published"] <= cell["smse"] else theirs
    quartiles = (significant(cell[f"smse_{side}_quartile"]) for side in ("lower", "upper"))
    spread = f" [{', '.join(quartiles)}]" if cell["n_seeds"] > 1 else ""
    lines = [f"{ours}{spread} / {theirs}"]
    if np.isfinite(cell["threshold_published"]):
        lines.append(f"{cell['n_revised']:.0f} / {cell['n_revised_published']:.0f} points")
    elif cell["is_accepting"]:
        lines.append(f"{cell['accepted_percent']:.1f} / {cell['accepted_percent_published']:.1f} %")
    if cell["threshold_choice"] == "own":
        lines.append(f"at {significant(cell['threshold'])} instead of {cell['threshold_published']:.3g}")
    return "<br>".join(lines)


def count_datasets(cells: pd.DataFrame) -> pd.DataFrame:
    """``9 of 10`` for each criterion and variant, at the published thresholds, and at own ones where there are."""
    choices = {"published": cells[cells["threshold_choice"] == "published"]}
    if (cells["threshold_choice"] == "own").any():
        own_last = cells.drop_duplicates(["dataset", "criterion", "variant"], keep="last")
        choices["own where the published one means nothing"] = own_last
    rows = []
    for choice, chosen in choices.items():
        for criterion, here in chosen.groupby("criterion", sort=False):
            texts = {REFERENCES.get(v, "as published"): count(here[here["variant"] == v]) for v in VARIANTS}
            rows.append({"threshold": choice, "criterion": LABELS[str(criterion)], **texts})
    return pd.DataFrame(rows)


def count(cells: pd.DataFrame) -> str:
    """``9 of 10``: cells at or below the published SMSE."""
    return f"{(cells['smse'] <= cells['smse_published']).sum()} of {len(cells)}"


def list_worse(cells: pd.DataFrame, floors: Mapping[str, float]) -> pd.DataFrame:
    """Cells of one setting above the published SMSE at every threshold, with what may explain it."""
    keys = ["dataset", "criterion", "variant"]
    own = cells[cells["threshold_choice"] == "own"].set_index(keys)["smse"].to_dict()
    known = cells[(cells["n_seeds"] > 0) & cells["variant"].isin(list(PANELS))]
    least = known.groupby(keys)["smse"].transform("min")
    worse = known[(least > known["smse_published"]) & (known["threshold_choice"] == "published")]
    return pd.DataFrame(
        {
            "dataset": cell["dataset"],
            "criterion": LABELS[cell["criterion"]],
            "acceptance": "with" if cell["is_accepting"] else "without",
            "SMSE ours / published": f"{significant(cell['smse'])} / {fixed(cell['smse_published'], DIGITS)}",
            "seeds at or below": f"{cell['n_below']} of {cell['n_seeds']}",
            "initial SMSE": significant(cell["smse_initial"]),
            "points that pass": f"{cell['n_inserted']:.0f} of {cell['n_offered']:.0f}",
            "revised ours / published": f"{cell['n_revised']:.0f} / {cell['n_revised_published']:.0f}",
            "at an own threshold": significant(own.get(tuple(cell[key] for key in keys), float("nan"))),
            "floor": significant(floors.get(cell["dataset"], float("nan"))),
        }
        for cell in worse.to_dict("records")
    )


def compare_references(cells: pd.DataFrame) -> pd.DataFrame:
    """Mean absolute difference of our median percentages accepted to the published ones over the datasets."""
    known = cells[(cells["n_seeds"] > 0) & cells["variant"].isin(DISTINCT[1:]) & (cells["setting"] != "adaptive")]
    known = known.assign(difference=(known["accepted_percent"] - known["accepted_percent_published"]).abs())
    rows = []
    for (setting, criterion), here in known.groupby(["setting", "criterion"], sort=False):
        means = here.groupby("variant", sort=False)["difference"].mean()
        texts = {REFERENCES[variant]: f"{value:.1f}" for variant, value in means.items()}
        formula = REFERENCES[CRITERIA[criterion].published_reference.value]
        texts |= {"nearer": REFERENCES[means.idxmin()], "the paper's formula": formula}
        rows.append({"setting": setting, "criterion": LABELS[criterion], **texts})
    return pd.DataFrame(rows)


def compare_adaptive(store: xr.Dataset) -> pd.DataFrame:
    """SMSE and time of adaptive over those of trained at the published thresholds, over criteria, variants, seeds."""
    store = store.sel(threshold_choice="published", variant=list(DISTINCT))
    trained, adaptive = (store.sel(setting=s.value) for s in (Setting.trained, Setting.adaptive))
    is_record = trained["smse"].notnull().sum("seed") == 1  # one run without following stands beside every seed of it
    trained = trained.where(~is_record, trained.isel(seed=0, drop=True))
    ratios, medians = adaptive / trained, adaptive.median(["criterion", "variant", "seed"])
    frame = ratios.to_dataframe().dropna(subset="smse")
    worst = frame.loc[frame.groupby("dataset", sort=False)["smse"].idxmax()].reset_index()
    middle = frame.groupby("dataset", sort=False)[["smse", "seconds"]].median()
    known = medians.sel(dataset=worst["dataset"].tolist())
    return pd.DataFrame(
        {
            "dataset": worst["dataset"],
            "SMSE, median": middle["smse"].map(significant).values,
            "SMSE, worst": worst["smse"].map(significant),
            "at": worst["criterion"] + ", " + worst["variant"] + ", seed " + worst["seed"].astype(str),
            "time, median": middle["seconds"].map(significant).values,
            "time [ms]": [significant(1e3 * x) for x in known["seconds"].values],
            "estimates": [f"{x:g}" for x in known["n_estimates"].values],
        }
    )


# --- figure ---------------------------------------------------------------------------------------


@rc_context(PAGE)
def draw_dots(cells: pd.DataFrame) -> Figure:
    """Cells of one setting: median with the 95 % range over seeds, published values hollow, by dataset.

    A cross marks the median at an own threshold, where there is one.
    """
    datasets, criteria = cells["dataset"].unique().tolist(), cells["criterion"].unique().tolist()
    figure, axes = page(1, len(PANELS), 1.1 + HEIGHT * len(datasets), sharex=True, sharey=True)
    for ax, (variant, title) in zip(axes[0], PANELS.items(), strict=True):
        for cell in cells[cells["variant"] == variant].to_dict("records"):
            name = cell["criterion"]
            y = datasets.index(cell["dataset"]) + STEP * (criteria.index(name) - 0.5 * (len(criteria) - 1))
            if cell["threshold_choice"] == "own":
                ax.plot(cell["smse"], y, "x", color=COLORS[name], markersize=5, markeredgewidth=1.0, zorder=4)
                continue
            ax.plot(cell["smse_published"], y, MARKERS[name], markersize=5.5, zorder=2, **HOLLOW)
            if cell["n_seeds"]:
                ax.plot([cell["low"], cell["high"]], [y, y], color=COLORS[name], linewidth=1.4, solid_capstyle="butt")
                ax.plot(cell["smse"], y, MARKERS[name], color=COLORS[name], markersize=4, zorder=3, markeredgewidth=0)
        ax.set(title=title, xscale="log", xlabel="SMSE [1]")
        for i in range(0, len(datasets), 2):
            ax.axhspan(i - 0.5, i + 0.5, color="0.955", linewidth=0, zorder=0)
        ax.grid(visible=False, axis="y")
        ax.tick_params(axis="y", length=0)
    axes[0, 0].set_yticks(range(len(datasets)), datasets)
    axes[0, 0].set_ylim(len(datasets) - 0.5, -0.5)
    handles = [Line2D([], [], color=COLORS[c], marker=MARKERS[c], markersize=4, label=LABELS[c]) for c in criteria]
    handles.append(Line2D([], [], linestyle="none", marker="o", markersize=5.5, label="published", **HOLLOW))
    if (cells["threshold_choice"] == "own").any():
        handles.append(Line2D([], [], linestyle="none", marker="x", color="0.3", markersize=5, label="own threshold"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(criteria) + 2)
    return figure
