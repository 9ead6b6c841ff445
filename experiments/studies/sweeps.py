"""Many streams of a task: all pairs of criteria (not in the paper), and error thresholds (figures of section 6)."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.plots.frames import quantiles, significant, to_markdown
from experiments.plots.style import BASELINE, LABELS, PAGE, PUBLISHED, draw_band, page, scale_axis, show_from_to
from experiments.studies import paper
from experiments.studies.stream import CRITERIA, DISTINCT, QUANTITIES, VARIANTS, Run, Setting, streams_of
from experiments.studies.study import Plan, Study, Unit, frame_of_parts, mark_least, part_of, read_part, summarise
from experiments.studies.tasks import TASKS

# --- any acceptance criterion with any reduction criterion ----------------------------------------

ACCEPTANCES = ("none", *CRITERIA)
REFERENCE = "leave_one_out"  # stored points are judged by the model without them
#: criteria that choose the same points (section 3.2 of the paper) and share their acceptance (section 3.3)
CLASSES = dict(zip(CRITERIA, ("entropy", "entropy", "relevance", "likelihood", "likelihood"), strict=True))
PAIRS = (("prior_entropy", "predictive_entropy"), ("marginal_log_likelihood", "log_predictive_density"))
SAME = 1e-6  # relative difference of two SMSE that come from the same points
SHORT = ("none", "Prior ent.", "Pred. ent.", "Mean rel.", "Marg. lik.", "Log dens.")  # names of `ACCEPTANCES`
PANELS_IN_ROW = 5
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
    weight, quantities = 0.45, QUANTITIES

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """One stream for each of the 30 cells."""
        streams, rows = streams_of(unit.task, unit.seed, plan), []
        for acceptance, reduction in product(ACCEPTANCES, CRITERIA):
            run = Run("trained", reduction, acceptance, "" if acceptance == "none" else REFERENCE)
            rows.append({**run._asdict(), **streams.offer(run)})
        return part_of(rows)

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        return {"dataset": plan.titles, "acceptance": ACCEPTANCES, "reduction": [*CRITERIA]}

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Medians over seeds, one row per cell; without data nan and no seed."""
        medians = ["smse", "n_revised", "accepted_percent"]
        found = summarise(store, medians).assign(setting="trained")
        found["reference"] = np.where(found["acceptance"] == "none", "", REFERENCE)
        return found[["dataset", "setting", "reduction", "acceptance", "reference", *medians, "n_seeds"]]

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Best pairs, means over datasets, criteria that agree, medians per dataset."""
        medians = median_smse(store).dropna("dataset", how="all")
        if not medians.size:
            return dict.fromkeys(("best", "means", "agreement", "medians"), "No data.")
        tables = {"best": list_best(medians), "means": average(medians), "agreement": compare_equivalent(store)}
        datasets = [f"### {smse['dataset'].item()}\n\n{to_markdown(tabulate(smse))}" for smse in medians]
        return {name: to_markdown(table) for name, table in tables.items()} | {"medians": "\n\n".join(datasets)}

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Heat maps relative to the best cell of each dataset."""
        return {self.name: partial(draw_heat_maps, median_smse(store))}


def median_smse(store: xr.Dataset) -> xr.DataArray:
    """Median SMSE over seeds (dataset, acceptance, reduction); nan without data."""
    return store["smse"].transpose("dataset", "acceptance", "reduction", "seed").median("seed")


def relate_to_best(smse: xr.DataArray) -> xr.DataArray:
    """Median SMSE over that of the best cell of the same dataset."""
    return smse / smse.min(["acceptance", "reduction"])


def find_best(ratio: xr.DataArray) -> list[str]:
    """Cells of a dataset that share the lowest SMSE, one for criteria that choose the same points."""
    found: dict[tuple[str, str | None], str] = {}
    for i, j in np.argwhere(ratio.values <= 1.0 + SAME):
        acceptance, reduction = ACCEPTANCES[i], list(CRITERIA)[j]
        text = f"{LABELS[reduction]} with {LABELS.get(acceptance, 'no acceptance').lower()}"
        found.setdefault((CLASSES[reduction], CLASSES.get(acceptance)), text)
    return list(found.values())


def list_best(medians: xr.DataArray) -> pd.DataFrame:
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


def average(medians: xr.DataArray) -> pd.DataFrame:
    """Geometric mean over datasets of SMSE / best SMSE; datasets where the matched acceptance is the best one."""
    accepted = medians.sel(acceptance=list(CRITERIA))
    best_matched = accepted.where(IS_MATCHED.sel(acceptance=list(CRITERIA))).min("acceptance")
    counts = (best_matched <= accepted.min("acceptance") * (1 + SAME)).sum("dataset").values
    ratio = relate_to_best(medians)
    mean = ratio.isel(dataset=0, drop=True).copy(data=np.exp(np.log(ratio.values).mean(axis=0)))
    return tabulate(mean, digits=4).assign(
        **{"matched is best in": [f"{n} of {medians.sizes['dataset']}" for n in counts]}
    )


def tabulate(smse: xr.DataArray, digits: int = 3) -> pd.DataFrame:
    """Reductions by acceptances, the lowest bold."""
    texts = {"reduction": [LABELS[name] for name in CRITERIA]}
    for acceptance, column in zip(ACCEPTANCES, smse.values, strict=True):
        words = [(significant(value, digits), value <= float(smse.min()) * (1 + SAME)) for value in column]
        texts[LABELS.get(acceptance, "none").lower()] = [f"**{word}**" if bold else word for word, bold in words]
    return pd.DataFrame(texts)


def count_agreement(store: xr.Dataset, role: str) -> tuple[int, int, float]:
    """Pairs of cells that differ in two equivalent criteria of one role: how many agree, how many there are.

    Agreement: the same number of revised points and the same SMSE within a relative difference of 1e-6. The third
    number is the largest relative difference of the SMSE.
    """
    one, other = (store.sel({role: list(names)}).drop_vars(role) for names in zip(*PAIRS, strict=True))
    difference = abs(one["smse"] / other["smse"] - 1.0)
    is_equal = (difference <= SAME) & (one["n_revised"] == other["n_revised"])
    return int(is_equal.sum()), int(difference.notnull().sum()), float(difference.max())


def compare_equivalent(store: xr.Dataset) -> pd.DataFrame:
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
    n_rows = math.ceil(n / PANELS_IN_ROW)
    figure, axes = page(n_rows, PANELS_IN_ROW, 0.9 + 1.65 * n_rows)
    for i, ax in enumerate(axes.flat):
        ax.set_visible(i < n)
    for i, (ax, ratio) in enumerate(zip(axes.flat, relate_to_best(medians), strict=False)):
        values = np.clip(ratio.values, 1.0, MOST)
        image = ax.imshow(values, norm="log", vmin=1.0, vmax=MOST, cmap="YlOrBr", aspect="auto")
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        if not np.isfinite(ratio.values).any():
            ax.text(0.5, 0.5, "no data", transform=ax.transAxes, ha="center", va="center")
        for (y, x), value in np.ndenumerate(ratio.values):
            color = "white" if value > DARK else "black"
            ax.text(x, y, significant(float(value)), ha="center", va="center", fontsize=5.5, color=color)
        for y, x in np.argwhere(IS_MATCHED.values):
            ax.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor="0.15", linewidth=0.7))
        is_left, is_bottom = i % PANELS_IN_ROW == 0, i + PANELS_IN_ROW >= n
        ax.set(title=str(ratio["dataset"].item()))
        ax.set_yticks(range(len(SHORT)), SHORT if is_left else [""] * len(SHORT))
        ax.set_xticks(range(len(CRITERIA)), SHORT[1:] if is_bottom else [""] * len(CRITERIA), rotation=90)
        ax.tick_params(length=0)
        ax.set(ylabel="Acceptance" if is_left else "", xlabel="Reduction" if is_bottom else "")
    bar = figure.colorbar(image, ax=axes, orientation="horizontal", shrink=0.5, aspect=45, extend="max")
    bar.set_ticks(TICKS, labels=[f"{tick:g}" for tick in TICKS], minor=False)
    bar.ax.minorticks_off()
    bar.set_label("Median SMSE over that of the best pair of the dataset [1]")
    return figure


# --- the error threshold --------------------------------------------------------------------------

SHOWN = ("smse", "mean_variance", "n_revised")
QUICK_STEP = 5  # every so many thresholds of a quick run
TITLES = {
    "none": "Without acceptance",
    "leave_one_out": "Acceptance, leave-one-out",
    "in_sample": "Acceptance, in-sample",
}
VAN_DER_POL = tuple(np.round(0.0005 * np.arange(1, 31), 4).tolist())  # m
BUILDING = tuple(np.round(0.025 * np.arange(2, 11), 3).tolist())  # K


class ThresholdSweep(Study):
    """One task at many error thresholds, without and with acceptance, beside a batch model."""

    template, quantities = "threshold", QUANTITIES[:-1]
    sweeps: ClassVar[Mapping[Setting, tuple[tuple[float, ...], tuple[str, ...]]]]  # thresholds, variants of a setting
    printed: ClassVar[tuple[float, ...]]  # thresholds of the Markdown table
    model: ClassVar[str]  # name in the baselines
    model_title: ClassVar[str]
    model_published: ClassVar[float]  # SMSE
    is_smse_logarithmic: ClassVar[bool]  # its axis, as the paper has it

    def thresholds(self, plan: Plan) -> list[float]:
        """Error thresholds, in the unit of the target."""
        return list(self.sweeps[Setting.trained][0][:: QUICK_STEP if plan.quick else 1])

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Outcomes of every setting at its thresholds and variants."""
        streams, rows = streams_of(unit.task, unit.seed, plan), []
        for setting, (thresholds, variants) in self.sweeps.items():
            chosen = sorted({*thresholds} & {*self.thresholds(plan)})
            for threshold, criterion in product(chosen, paper.CRITERIA):
                offered = streams.offer_variants(setting, criterion, "error", threshold, variants)
                for variant, (run, outcome) in offered.items():
                    rows.append({"criterion": criterion, "variant": variant, **run._asdict(), **outcome})
        return part_of(rows)

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        over: dict[str, Sequence[Any]] = {"setting": [*map(str, self.sweeps)], "criterion": paper.CRITERIA}
        return over | {"variant": VARIANTS, "threshold": self.thresholds(plan)}

    def combine(self, plan: Plan) -> xr.Dataset:
        """Outcomes with their units; SMSE of the baseline, published and ours."""
        store = super().combine(plan)
        unit = TASKS[self.tasks[0]].unit
        units = {"mean_variance": f"{unit}^2", "seconds": "s", "nlpd": "nat"}
        for name in store.data_vars:
            store[name].attrs["units"] = units.get(str(name), "1")
        store["threshold"].attrs |= {"units": unit, "long_name": "error threshold"}
        own = {"units": "1", "long_name": f"median SMSE of our {self.model_title}"}
        return store.assign(
            baseline_smse=((), read_baseline(plan, self.tasks[0], self.model), own),
            baseline_smse_published=((), self.model_published, {"units": "1"}),
        )

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Median and quartiles of SMSE, variance and revised points at every threshold."""
        found = summarise(store, (*SHOWN, "n_inserted"))
        return found[found["n_seeds"] > 0].drop(columns=["n_inserted_lower_quartile", "n_inserted_upper_quartile"])

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """SMSE / revised points per setting and variant, the lowest SMSE of a threshold bold."""
        rows, sections, unit = self.rows(store), [], store["threshold"].attrs["units"]
        rows = rows[np.isclose(rows["threshold"].to_numpy()[:, None], self.printed).any(axis=1)]
        for (setting, variant), part in rows[rows["variant"].isin(TITLES)].groupby(["setting", "variant"], sort=False):
            texts = [f"{s:.4g} / {n:.0f}" for s, n in zip(part["smse"], part["n_revised"], strict=True)]
            part = part.assign(text=mark_least(part, texts, ["threshold"]))
            wide = part.pivot(index="threshold", columns="criterion", values="text")[list(paper.CRITERIA)]
            wide = wide.rename("{:g}".format).rename(columns=LABELS).reset_index(names=f"threshold [{unit}]")
            sections.append(f"## Setting `{setting}`: {TITLES[variant].lower()}\n\n{to_markdown(wide)}")
        own = significant(float(store["baseline_smse"]), 4) or "not computed yet (study baselines)"
        names = ["batch model", "SMSE, published", "SMSE, ours"]
        baseline = pd.DataFrame([[self.model_title, f"{self.model_published:g}", own]], columns=names)
        return {"baseline": to_markdown(baseline), "sections": "\n\n".join(sections)}

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """One figure per setting."""
        settings = store["setting"].values.tolist()
        return {self.name + ("" if s == "trained" else f"_{s}"): partial(self._draw, store, s) for s in settings}

    @rc_context(PAGE)
    def _draw(self, store: xr.Dataset, setting: str) -> Figure:
        """Median over seeds and 95 % band, one column per variant with data; bands of a linear SMSE may leave it."""
        part = store.sel(setting=setting, variant=list(TITLES)).dropna("threshold", how="all", subset=["smse"])
        part = part.dropna("variant", how="all", subset=["smse"]).transpose("variant", "criterion", "threshold", "seed")
        unit, thresholds, own = (
            store["threshold"].attrs["units"],
            part["threshold"].values,
            store["baseline_smse"].item(),
        )
        figure, axes = page(3, part.sizes["variant"], 5.6, sharex=True, sharey="row")
        for i, variant in enumerate(part["variant"].values.tolist()):
            for (j, name), (k, criterion) in product(enumerate(SHOWN), enumerate(paper.CRITERIA)):
                values = part[name].sel(variant=variant, criterion=criterion).values
                draw_band(axes[j, i], thresholds, values, criterion, k / len(paper.CRITERIA))
            axes[0, i].set_title(TITLES[variant])
            published = f"{self.model_title} (published)"
            axes[0, i].axhline(self.model_published, color=PUBLISHED, linestyle=":", label=published)
            if np.isfinite(own):
                axes[0, i].axhline(own, color=BASELINE, linestyle="--", label=f"{self.model_title} (ours)")
            axes[-1, i].set_xlabel(f"Error threshold [{unit}]")
        labels = ("SMSE [1]", f"Mean variance [{unit}$^2$]", "Revised points [1]")
        for ax, name, label in zip(axes[:, 0], SHOWN, labels, strict=True):
            is_linear = name == "smse" and not self.is_smse_logarithmic
            shown = quantiles(part[name].values, (0.5,) if is_linear else (0.025, 0.975)).ravel()
            ends = [self.model_published, own] if name == "smse" else []
            scale_axis(ax.yaxis, np.append(shown, ends), ratio=np.inf if is_linear else 1.0)
            ax.set_ylabel(label)
        show_from_to(axes[0, 0], thresholds)
        figure.align_ylabels(axes[:, 0])
        curves, names = axes[0, 0].get_legend_handles_labels()
        n = len(paper.CRITERIA)
        figure.legend(curves[:n], names[:n], loc="outside upper center", ncols=n)
        figure.legend(curves[n:], names[n:], loc="outside lower center", ncols=2)
        return figure


def read_baseline(plan: Plan, task: str, model: str) -> float:
    """Median SMSE over seeds of a model that the study of the baselines has computed; nan if it has not."""
    units = [Unit("baselines", task, seed) for seed in TASKS[task].seeds(plan.seeds)]
    frame = frame_of_parts({unit: read_part(unit, plan) for unit in units if plan.is_kept(unit)})
    if frame.empty:
        return float("nan")
    return float(frame.loc[(frame["order"] == "given") & (frame["model"] == model), "smse"].median())


class VanDerPolSweep(ThresholdSweep):
    """Van der Pol at 0.0005 to 0.015 m."""

    name, title = "figure_van_der_pol", "Van der Pol: the error threshold"
    tasks, weight, is_smse_logarithmic = ("van_der_pol",), 11.0, True
    sweeps: ClassVar = {
        Setting.trained: (VAN_DER_POL, DISTINCT),
        Setting.published: (VAN_DER_POL, DISTINCT),
        Setting.adaptive: (VAN_DER_POL[1::4], DISTINCT[:2]),
    }
    printed = (0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015)
    model, model_title, model_published = "full_gp", "Full GP", paper.FULL_GP_VAN_DER_POL


class BuildingSweep(ThresholdSweep):
    """Building at 0.05 to 0.25 K; following the stream above 0.2 K takes minutes."""

    name, title = "figure_building", "Building: the error threshold"
    tasks, weight, is_smse_logarithmic = ("building",), 0.7, False
    sweeps: ClassVar = {Setting.trained: (BUILDING, DISTINCT), Setting.adaptive: (BUILDING[:7:2], DISTINCT[:2])}
    printed = BUILDING
    model, model_title, model_published = "vfe", "VFE, 100 inducing inputs", paper.VFE_BUILDING
