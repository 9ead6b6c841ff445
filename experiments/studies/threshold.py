"""SMSE, variance and revised points against the error threshold (figures of section 6)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import rc_context
from matplotlib.figure import Figure

from experiments.plots.frames import significant, to_markdown
from experiments.plots.style import BASELINE, LABELS, PAGE, PUBLISHED, draw_band, label_logarithmic, page, show_from_to
from experiments.studies import paper
from experiments.studies.stream import DISTINCT, QUANTITIES, VARIANTS, Setting, row_of, streams_of
from experiments.studies.study import (
    STREAM_STUDIES,
    Plan,
    Study,
    Unit,
    frame_of_parts,
    mark_least,
    part_of,
    read_part,
    spread_out,
    summarise,
)
from experiments.studies.tasks import TASKS

DIMENSIONS = ("setting", "criterion", "variant", "threshold")
SHOWN = ("smse", "mean_variance", "n_revised")
QUICK_STEP = 5  # every so many thresholds of a quick run
ROOM = 1.25  # of a linear axis above the highest median
TITLES = {
    "none": "Without acceptance",
    "leave_one_out": "Acceptance, leave-one-out",
    "in_sample": "Acceptance, in-sample",
}


class ThresholdSweep(Study):
    """One task at many error thresholds, without and with acceptance, beside a batch model."""

    template = "threshold"
    sweeps: ClassVar[
        Mapping[Setting, tuple[tuple[float, ...], tuple[str, ...]]]
    ]  # thresholds and variants of a setting
    printed: ClassVar[tuple[float, ...]]  # thresholds of the Markdown table
    model: ClassVar[str]  # name in the baselines
    model_title: ClassVar[str]
    model_published: ClassVar[float]  # SMSE
    smse_scale: ClassVar[str]  # of the axis, as the paper has it

    @property
    def task(self) -> str:
        """Name of the only task."""
        return self.tasks[0]

    def thresholds(self, plan: Plan) -> tuple[float, ...]:
        """Error thresholds, in the unit of the target."""
        return self.sweeps[Setting.trained][0][:: QUICK_STEP if plan.quick else 1]

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Outcomes of every setting at its thresholds and variants."""
        streams = streams_of(unit.task, unit.seed, plan, STREAM_STUDIES)
        rows = [
            {"criterion": criterion, "variant": variant} | row_of(run, outcome)
            for setting, (thresholds, variants) in self.sweeps.items()
            for threshold in sorted({*thresholds} & {*self.thresholds(plan)})
            for criterion in paper.CRITERIA
            for variant, (run, outcome) in streams.offer_variants(
                setting, criterion, "error", threshold, variants
            ).items()
        ]
        return part_of(rows)

    def combine(self, plan: Plan) -> xr.Dataset:
        """Outcomes over seeds, and the SMSE of the baseline: the published one, and ours where it was computed."""
        unit = TASKS[self.task].unit
        thresholds = ("threshold", list(self.thresholds(plan)), {"units": unit, "long_name": "error threshold"})
        coordinates: dict[str, Sequence[Any]] = {
            "setting": [setting.value for setting in self.sweeps],
            "criterion": list(paper.CRITERIA),
            "variant": list(VARIANTS),
            "threshold": thresholds[1],
            "seed": list(range(plan.seeds)),
        }
        store = spread_out(frame_of_parts(self.kept(plan)), coordinates, QUANTITIES[:-1])
        units = {"mean_variance": f"{unit}^2", "seconds": "s", "nlpd": "nat"}
        for name in store.data_vars:
            store[name].attrs["units"] = units.get(str(name), "1")
        own = {"units": "1", "long_name": f"median SMSE of our {self.model_title}"}
        return store.assign_coords(threshold=thresholds).assign(
            baseline_smse=((), read_baseline(plan, self.task, self.model), own),
            baseline_smse_published=((), self.model_published, {"units": "1"}),
        )

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Median and quartiles of SMSE, variance and revised points at every threshold."""
        found = summarise(store, (*SHOWN, "n_inserted"))
        names = [name + ending for name in SHOWN for ending in ("", "_lower_quartile", "_upper_quartile")]
        return found.loc[found["n_seeds"] > 0, [*DIMENSIONS, *names, "n_inserted", "n_seeds"]]

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """SMSE / revised points per setting and variant, the lowest SMSE of a threshold bold."""
        rows, sections = self.rows(store), []
        rows = rows[np.isclose(rows["threshold"].to_numpy()[:, None], self.printed).any(axis=1)]
        for (setting, variant), part in rows.groupby(["setting", "variant"], sort=False):
            if variant in TITLES:
                texts = [f"{s:.4g} / {n:.0f}" for s, n in zip(part["smse"], part["n_revised"], strict=True)]
                part = part.assign(text=mark_least(part, texts, ["threshold"]))
                wide = part.pivot(index="threshold", columns="criterion", values="text")[list(paper.CRITERIA)]
                unit = store["threshold"].attrs["units"]
                wide = wide.rename(columns=LABELS).reset_index(names=f"threshold [{unit}]")
                wide[wide.columns[0]] = wide[wide.columns[0]].map("{:g}".format)
                sections.append(f"## Setting `{setting}`: {TITLES[variant].lower()}\n\n{to_markdown(wide)}")
        own = float(store["baseline_smse"])
        baseline = pd.DataFrame(
            {
                "batch model": [self.model_title],
                "SMSE, published": [f"{self.model_published:g}"],
                "SMSE, ours": [significant(own, 4) or "not computed yet (study baselines)"],
            }
        )
        return {"baseline": to_markdown(baseline), "sections": "\n\n".join(sections)}

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """One figure per setting with data."""
        return {
            self.name + ("" if setting == Setting.trained else f"_{setting}"): partial(self._draw, store, setting)
            for setting in store["setting"].values.tolist()
            if store["smse"].sel(setting=setting).notnull().any()
        }

    @rc_context(PAGE)
    def _draw(self, store: xr.Dataset, setting: str) -> Figure:
        """Median over seeds and 95 % band, one column per variant with data."""
        part = store.sel(setting=setting).dropna("threshold", how="all", subset=["smse"])
        part = part.sel(variant=list(TITLES)).dropna("variant", how="all", subset=["smse"])
        part = part.transpose("variant", "criterion", "threshold", "seed")
        unit, thresholds = store["threshold"].attrs["units"], part["threshold"].values
        figure, axes = page(3, part.sizes["variant"], 5.6, sharex=True, sharey="row")
        for column, variant in zip(axes.T, part["variant"].values.tolist(), strict=True):
            for ax, name in zip(column, SHOWN, strict=True):
                for i, criterion in enumerate(paper.CRITERIA):
                    values = part[name].sel(variant=variant, criterion=criterion).values
                    draw_band(ax, thresholds, values, criterion, i / len(paper.CRITERIA))
            column[0].set_title(TITLES[variant])
            published = f"{self.model_title} (published)"
            column[0].axhline(self.model_published, color=PUBLISHED, linestyle=":", label=published)
            if np.isfinite(own := float(store["baseline_smse"])):
                column[0].axhline(own, color=BASELINE, linestyle="--", label=f"{self.model_title} (ours)")
            column[-1].set_xlabel(f"Error threshold [{unit}]")
        labels = ("SMSE [1]", f"Mean variance [{unit}$^2$]", "Revised points [1]")
        for ax, label in zip(axes[:, 0], labels, strict=True):
            ax.set_ylabel(label)
        self._scale(axes[:, 0], part)
        show_from_to(axes[0, 0], thresholds)
        figure.align_ylabels(axes[:, 0])
        curves, names = axes[0, 0].get_legend_handles_labels()
        n = len(paper.CRITERIA)
        figure.legend(curves[:n], names[:n], loc="outside upper center", ncols=n)
        figure.legend(curves[n:], names[n:], loc="outside lower center", ncols=2)
        return figure

    def _scale(self, axes: np.ndarray, part: xr.Dataset) -> None:
        """Logarithmic variance and revised points; where there may be none these are linear below one.

        On a linear axis of the SMSE the medians decide the upper end: bands of a few bad seeds leave the panel.
        """
        smse, variance, revised = axes
        smse.set_yscale(self.smse_scale)
        if self.smse_scale == "linear":
            smse.set_ylim(top=min(smse.get_ylim()[1], ROOM * float(part["smse"].median("seed").max())))
        else:
            label_logarithmic(smse.yaxis)
        variance.set_yscale("log")
        label_logarithmic(variance.yaxis)
        if float(part["n_revised"].min()) < 1.0:
            revised.set_yscale("symlog", linthresh=1.0, linscale=0.4)
            revised.set_ylim(bottom=0.0)
        else:
            revised.set_yscale("log")


def read_baseline(plan: Plan, task: str, model: str) -> float:
    """Median SMSE over seeds of a model that the study of the baselines has computed; nan if it has not."""
    units = [Unit("baselines", task, seed) for seed in TASKS[task].seeds(plan.seeds)]
    frame = frame_of_parts({unit: read_part(unit, plan) for unit in units if plan.is_kept(unit)})
    if frame.empty:
        return float("nan")
    return float(frame.loc[(frame["order"] == "given") & (frame["model"] == model), "smse"].median())


VAN_DER_POL = tuple(np.round(0.0005 * np.arange(1, 31), 4).tolist())  # m
BUILDING = tuple(np.round(0.025 * np.arange(2, 11), 3).tolist())  # K


class VanDerPolSweep(ThresholdSweep):
    """Van der Pol at 0.0005 to 0.015 m."""

    name, title = "figure_van_der_pol", "Van der Pol: the error threshold"
    tasks, weight, smse_scale = ("van_der_pol",), 11.0, "log"
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
    tasks, weight, smse_scale = ("building",), 0.7, "linear"
    sweeps: ClassVar = {Setting.trained: (BUILDING, DISTINCT), Setting.adaptive: (BUILDING[:7:2], DISTINCT[:2])}
    printed = BUILDING
    model, model_title, model_published = "vfe", "VFE, 100 inducing inputs", paper.VFE_BUILDING
