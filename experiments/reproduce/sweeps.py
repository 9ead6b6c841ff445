"""Figures of sections 5 and 6 of the paper, and a grid of all pairs of criteria.

The figures show a set that is reduced one by one, the points of Rastrigin, and error thresholds.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from math import sqrt
from typing import Any, ClassVar, NamedTuple

import matplotlib as mpl
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

import sysid
from experiments.drawing.style import (
    BASELINE_COLOR,
    LABELS,
    PUBLISHED_COLOR,
    draw_band,
    page,
    scale_axis,
    show_from_to,
)
from experiments.drawing.tables import quantiles, significant, to_markdown
from experiments.reproduce import paper, stream, study
from experiments.reproduce.stream import (
    DISTINCT_VARIANTS,
    STREAM_QUANTITIES,
    VARIANT_TITLES,
    VARIANTS,
    Run,
    Setting,
)
from experiments.reproduce.study import (
    Plan,
    Study,
    Unit,
    mark_least,
    part_of,
    read_part,
    summarise,
)
from experiments.reproduce.tasks import N_AXIS, STATIC_FUNCTIONS, STUDY_TASKS, TaskData, draw_rows
from sysid.gp.rules import COMPARED_CRITERIA, CRITERIA


def draw_curves(
    panels: Sequence[xr.DataArray], labels: Sequence[str], xlabel: str, **options: Any
) -> Figure:
    """Draw medians over seeds with 95 % bands.

    The panels (criterion, x, seed) are drawn row by row; `labels` are those of the rows.
    """
    n_rows = len(labels)
    height = 0.8 + 1.7 * n_rows
    figure, axes = page(n_rows, len(panels) // n_rows, height, sharex=True, **options)
    for ax, panel in zip(axes.flat, panels, strict=True):
        ax.set_title(panel.attrs.get("title", ""))
        x = panel[panel.dims[1]].values
        for i, curve in enumerate(panel):
            draw_band(ax, x, curve.values, curve["criterion"].item(), i / len(panel))
    for ax, label in zip(axes[:, 0], labels, strict=True):
        ax.set_ylabel(label)
    for ax in axes[-1]:
        ax.set_xlabel(xlabel)
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=len(panels[0]),
    )
    figure.align_ylabels(axes[:, 0])
    return figure


# --- a set reduced one by one ---------------------------------------------------------------------

PRINTED_POINTS = (80, 60, 40, 20, 10)  # numbers of points in the Markdown table


class Reduction(Study):
    """Initial rows of the static functions that are reduced, scored on the validation grid."""

    name = "figure_reduction"
    title = "Reduction of uniform points one by one"
    tasks = tuple(STATIC_FUNCTIONS)
    quantities = ("smse",)
    # Without a stream, the setting `adaptive` is the same as `trained`.
    settings = (Setting.trained.value, Setting.published.value)

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Compute the SMSE by every setting and criterion, from all initial rows to 1."""
        data = stream.data_of(unit.task, unit.seed, plan)
        rows = []
        for setting, criterion in product(self.settings, COMPARED_CRITERIA):
            start = stream.hyperparameters_of(unit.task, unit.seed, setting, plan)
            curve = reduce_one_by_one(data, start, CRITERIA[criterion]())
            for i, smse in enumerate(curve):
                rows.append(
                    {
                        "setting": setting,
                        "criterion": criterion,
                        "n_points": len(curve) - i,
                        "smse": smse,
                    }
                )
        return part_of(rows)

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        return super().axes(plan) | {
            "setting": self.settings,
            "criterion": COMPARED_CRITERIA,
            "n_points": range(plan.n_initial, 0, -1),
        }

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Return the SMSE at some sizes per setting, and the ratio to prior entropy.

        The lowest SMSE of a function and size is bold.
        """
        level = average_sizes(store)
        of_entropy = level.sel(criterion="prior_entropy", drop=True)
        ratio = level.copy(data=np.exp((level - of_entropy).values))
        ratios = summarise(ratio.to_dataset(name="smse"), ["smse"])
        ratios["text"] = study.with_quartiles(ratios, "smse")
        ratios["n_points"] = "ratio to prior entropy"
        rows = self.rows(store)
        rows = rows[rows["n_points"].isin(PRINTED_POINTS)]
        rows = rows.assign(n_points=rows["n_points"].map("{} points".format))
        texts = rows["smse"].map(significant)
        rows["text"] = mark_least(rows, texts, ["dataset", "setting", "n_points"])
        both = pd.concat([rows, ratios])
        sections = study.pivot_by(both, ["setting"], ["dataset", "criterion"], "n_points")
        return {"sections": sections}

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Return figures of the SMSE against the number of points, one per setting."""
        endings = zip(self.settings, ("", "_published"), strict=True)
        return {
            self.name + ending: partial(self._draw, store["smse"].sel(setting=setting))
            for setting, ending in endings
        }

    def _draw(self, smse: xr.DataArray) -> Figure:
        panels = [
            part.assign_attrs(title=part["dataset"].item())
            for part in smse.dropna("dataset", how="all")
        ]
        n_rows = 2 if len(panels) == len(self.tasks) else 1
        figure = draw_curves(panels, ["SMSE [1]"] * n_rows, "Points left")
        for ax, panel in zip(figure.axes, panels, strict=True):
            scale_axis(ax.yaxis, quantiles(panel.values, (0.025, 0.975)), ratio=1.0)
            ax.set_xlim(panel["n_points"].max(), panel["n_points"].min())
        return figure


def reduce_one_by_one(
    data: TaskData, hyperparameters: sysid.Hyperparameters, criterion: sysid.Criterion
) -> np.ndarray:
    """Return the SMSE (n,) on the test rows with n, n - 1, ..., 1 of the n initial rows.

    The criterion chooses the rows that leave. The mean at m test rows comes from the weights
    ``Ky^-1 y`` at a cost of O(m N); `OnlineGP.predict` would compute the variance, too.
    """
    n = len(data.initial_targets)
    noise = hyperparameters.noise_variance
    gp = sysid.OnlineGP(hyperparameters.kernel, noise_variance=noise, budget=n, reduction=criterion)
    gp.fit(data.initial_inputs, data.initial_targets)
    curve = np.empty(n)
    for i in range(n):
        gp.reduce_to(n - i)
        weights = gp.state()["weights"][: gp.n_points]  # oldest point first
        mean = gp.kernel(data.test_inputs, gp.inputs[gp.age_order]) @ weights
        curve[i] = sysid.standardised_mean_squared_error(data.test_targets, np.asarray(mean))
    return curve


def average_sizes(store: xr.Dataset) -> xr.DataArray:
    """Return the mean log SMSE over all sizes but the full one, where all criteria agree."""
    smaller = store["smse"].sel(n_points=store["n_points"] < store["n_points"].max())
    return smaller.copy(data=np.log(smaller.values)).mean("n_points", skipna=False)


# --- where the points of Rastrigin lie ------------------------------------------------------------

BOUNDARY_WIDTH = 0.05  # width of the region that counts as boundary, in half-widths of the box
# Mean share of uniform points in a rectangle that lie at its boundary.
UNIFORM_SHARE = 1.0 - (1.0 - BOUNDARY_WIDTH) ** 2
# Statistics of the points, and of the errors on the grid.
POINT_STATISTICS = (
    "boundary_share",
    "nearest_distance_ratio",
    "mean_abs_error",
    "mean_std",
)
# Settings and variants that are shown, with the endings of their figure names.
MAP_SETTINGS = {"trained": "", "published": "_published"}
MAP_VARIANTS = {"none": "", "leave_one_out": "_acceptance"}
# Label and colours of each variable.
MAPS = {
    "absolute_error": ("Absolute error [1]", "magma"),
    "standard_deviation": ("Standard deviation [1]", "viridis"),
}
N_COLOR_STEPS = 12  # with more steps, colours cannot be distinguished in print
BRIGHTEST_QUANTILE = 0.99  # values above this quantile of the maps of a row have the last colour


class RastriginMaps(Study):
    """Maps of error and standard deviation after the stream of table 2, with the points."""

    name = "figure_rastrigin"
    title = "Rastrigin: prediction error, standard deviation and points"
    tasks = ("rastrigin",)

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Compute maps, points and their statistics (setting, criterion, variant)."""
        training, test = draw_rows(unit.task, unit.seed)
        data = stream.data_of(unit.task, unit.seed, plan)
        n = plan.n_initial + plan.most_rows
        box = (STATIC_FUNCTIONS[unit.task].lower, STATIC_FUNCTIONS[unit.task].upper)
        scaling = sysid.Scaling.fit(training.inputs[:n])
        offset = training.targets[:n].mean()
        over = {
            "setting": [*MAP_SETTINGS],
            "criterion": [*COMPARED_CRITERIA],
            "variant": [*MAP_VARIANTS],
        }
        cells = []
        for setting, criterion, variant in product(*over.values()):
            identification = stream.start(stream.run_of(setting, criterion, variant), unit, plan)
            identification.observe_many(data.inputs, data.targets)
            model = identification.require_model()
            mean, variance = model.predict(scaling.transform(test.inputs))
            error = np.abs(test.targets - (mean + offset))
            std = np.sqrt(variance)
            points = scaling.inverse(model.gp.inputs)
            cells.append(
                {
                    "absolute_error": error.reshape(N_AXIS, N_AXIS),
                    "standard_deviation": std.reshape(N_AXIS, N_AXIS),
                    "point": points,
                    "boundary_share": share_at_boundary(points, *box),
                    "nearest_distance_ratio": compare_distances(points, *box),
                    "mean_abs_error": error.mean(),
                    "mean_std": std.mean(),
                }
            )
        dims = {
            **dict.fromkeys(MAPS, ("x1", "x2")),
            "point": ("slot", "input"),
            **dict.fromkeys(POINT_STATISTICS, ()),
        }
        shape = [len(names) for names in over.values()]
        variables = {}
        for name, own_dims in dims.items():
            values = np.array([cell[name] for cell in cells])
            values = values.reshape([*shape, *values.shape[1:]])
            variables[name] = ([*over, *own_dims], values, {"units": "1"})
        axes = {f"x{d + 1}": np.linspace(box[0][d], box[1][d], N_AXIS) for d in range(2)}
        return xr.Dataset(variables, coords={**over, **axes})

    def combine(self, plan: Plan) -> xr.Dataset:
        """Return the parts of all seeds, joined along the dimension seed."""
        parts = [read_part(unit, plan) for unit in self.units(plan) if plan.is_kept(unit)]
        store = xr.concat(parts, "seed", combine_attrs="override")
        return store.assign_coords(seed=range(len(parts)))

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Return median and quartiles of the statistics."""
        found = summarise(store, [*POINT_STATISTICS])
        found.insert(3, "uniform_boundary_share", UNIFORM_SHARE)
        return found

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Return the statistics per setting, variant and criterion."""
        rows = self.rows(store)
        table = rows[["setting", "criterion", "variant"]].replace(LABELS)
        table = table.assign(
            **{name: study.with_quartiles(rows, name) for name in POINT_STATISTICS}
        )
        return {"statistics": to_markdown(table), "uniform": f"{UNIFORM_SHARE:.4f}"}

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Return figures of seed 0, one per setting and variant."""
        first = store.isel(seed=0)
        figures = {}
        for setting, variant in product(MAP_SETTINGS, MAP_VARIANTS):
            name = self.name + MAP_SETTINGS[setting] + MAP_VARIANTS[variant]
            figures[name] = partial(draw_maps, first.sel(setting=setting, variant=variant))
        return figures


def share_at_boundary(points: np.ndarray, lower: Sequence[float], upper: Sequence[float]) -> float:
    """Return the share of points (n, p) within `BOUNDARY_WIDTH` half-widths of an edge."""
    low = np.asarray(lower)
    high = np.asarray(upper)
    margin = BOUNDARY_WIDTH * 0.5 * (high - low)
    is_near_edge = (points < low + margin) | (points > high - margin)
    return float(np.mean(is_near_edge.any(axis=1)))


def compare_distances(points: np.ndarray, lower: Sequence[float], upper: Sequence[float]) -> float:
    """Return the mean distance of n points (n, 2) to their nearest neighbour, over its expectation.

    The expectation is that of uniform points in the rectangle. A ratio below 1 shows clusters, one
    above 1 an even spread (Clark and Evans, Ecology 35 (1954) 445). Points next to an edge have no
    neighbours behind it; the expectation for the area A and the perimeter P, by Donnelly
    (Simulation studies to determine edge effects of nearest neighbour analysis, 1978), includes
    this::

        0.5 sqrt(A / n) + (0.0514 + 0.041 / sqrt(n)) P / n
    """
    sides = np.asarray(upper) - np.asarray(lower)
    n = len(points)
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    expected = 0.5 * sqrt(np.prod(sides) / n) + (0.0514 + 0.041 / sqrt(n)) * 2.0 * sides.sum() / n
    return float(distances.min(axis=1).mean() / expected)


def draw_maps(part: xr.Dataset) -> Figure:
    """Draw error (above) and standard deviation (below), a column per criterion.

    x1 points to the right, x2 upwards.
    """
    figure, axes = page(2, len(COMPARED_CRITERIA), 4.5, sharex=True, sharey=True)
    for row, (name, (label, colors)) in zip(axes, MAPS.items(), strict=True):
        top = float(np.quantile(part[name].values, BRIGHTEST_QUANTILE))
        for ax, criterion in zip(row, COMPARED_CRITERIA, strict=True):
            chosen = part.sel(criterion=criterion)
            image = chosen[name].plot.imshow(
                x="x1",
                y="x2",
                ax=ax,
                vmin=0.0,
                vmax=top,
                cmap=mpl.colormaps[colors].resampled(N_COLOR_STEPS),
                interpolation="bilinear",
                origin="lower",
                add_colorbar=False,
                add_labels=False,
            )
            ax.plot(
                *chosen["point"].transpose("input", "slot").values,
                "o",
                color="white",
                markeredgecolor="black",
                markeredgewidth=0.4,
                markersize=2.6,
            )
            ax.grid(visible=False)
            ax.set(xticks=[-1, 0, 1], yticks=[-1, 0, 1])
        figure.colorbar(image, ax=row, label=label, extend="max", pad=0.02)
        row[0].set_ylabel("$x_2$ [1]")
    for above, below, criterion in zip(*axes, COMPARED_CRITERIA, strict=True):
        above.set_title(LABELS[criterion])
        below.set_xlabel("$x_1$ [1]")
    return figure


# --- any acceptance criterion with any reduction criterion (not in the paper) ---------------------

ACCEPTANCES = ("none", *CRITERIA)
STORED_REFERENCE = "leave_one_out"  # the model without a stored point predicts that point


class Grid(Study):
    """All pairs of acceptance and reduction criteria, with trained hyper-parameters.

    All new points are offered; the reference for stored points is leave-one-out.
    """

    name = "grid"
    title = "Acceptance by reduction: all pairs of criteria"
    quantities = STREAM_QUANTITIES

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Offer the stream once for each of the 30 cells."""
        rows = []
        for acceptance, reduction in product(ACCEPTANCES, CRITERIA):
            reference = "" if acceptance == "none" else STORED_REFERENCE
            run = Run("trained", reduction, acceptance, reference)
            rows.append(stream.offer(run, unit, plan))
        return part_of(rows)

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        return super().axes(plan) | {
            "acceptance": ACCEPTANCES,
            "reduction": [*CRITERIA],
        }

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Return medians over seeds, one row per cell; without data they are nan, of no seed."""
        medians = ["smse", "n_revised", "accepted_percent"]
        found = summarise(store, medians).assign(setting="trained")
        found["reference"] = np.where(found["acceptance"] == "none", "", STORED_REFERENCE)
        return found[
            [
                "dataset",
                "setting",
                "reduction",
                "acceptance",
                "reference",
                *medians,
                "n_seeds",
            ]
        ]

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Return geometric means over datasets of the ratio to the best pair, and medians."""
        rows = self.rows(store).query("n_seeds > 0")
        rows["text"] = mark_least(rows, rows["smse"].map(significant), ["dataset"])
        medians = study.pivot_by(rows, ["dataset"], ["reduction"], "acceptance")
        ratio = rows["smse"] / rows.groupby("dataset")["smse"].transform("min")
        pairs = rows.assign(ratio=np.log(ratio)).groupby(["acceptance", "reduction"], sort=False)
        means = np.exp(pairs["ratio"].mean()).reset_index()
        means["all"] = ""
        texts = [significant(mean, 4) for mean in means["ratio"]]
        means["text"] = mark_least(means, texts, ["all"], "ratio")
        return {
            "means": study.pivot(means, ["reduction"], "acceptance"),
            "medians": medians,
        }


# --- the error threshold --------------------------------------------------------------------------

SWEEP_QUANTITIES = ("smse", "mean_variance", "n_revised")
QUICK_THRESHOLD_STEP = 5  # a quick run has every fifth threshold
VAN_DER_POL_THRESHOLDS = tuple(np.round(0.0005 * np.arange(1, 31), 4).tolist())  # m
BUILDING_THRESHOLDS = tuple(np.round(0.025 * np.arange(2, 11), 3).tolist())  # K


class SweepPart(NamedTuple):
    """What a threshold sweep computes in one setting."""

    thresholds: tuple[float, ...]
    variants: tuple[str, ...]


class BatchModel(NamedTuple):
    """The batch model that a threshold sweep is compared with."""

    name: str  # in the study `baselines`
    title: str
    published_smse: float


class ThresholdSweep(Study):
    """One task at many error thresholds, without and with acceptance, beside a batch model."""

    template = "threshold"
    quantities = STREAM_QUANTITIES[:-1]
    sweeps: ClassVar[Mapping[Setting, SweepPart]]
    model: ClassVar[BatchModel]

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Compute the outcomes of every setting at its thresholds and variants."""
        rows = []
        thresholds = self.axes(plan)["threshold"]
        for setting, part in self.sweeps.items():
            chosen = [threshold for threshold in thresholds if threshold in part.thresholds]
            for threshold, criterion in product(chosen, COMPARED_CRITERIA):
                rows += stream.offer_variants(
                    unit, plan, setting, criterion, "error", threshold, part.variants
                )
        return part_of(rows)

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        step = QUICK_THRESHOLD_STEP if plan.quick else 1
        return {
            "setting": [*map(str, self.sweeps)],
            "criterion": COMPARED_CRITERIA,
            "variant": VARIANTS,
            "threshold": self.sweeps[Setting.trained].thresholds[::step],
        }

    def combine(self, plan: Plan) -> xr.Dataset:
        """Return the outcomes with their units, and the SMSE of the batch model.

        The SMSE is the published one, and ours if the study `baselines` has it.
        """
        store = super().combine(plan)
        task = STUDY_TASKS[self.tasks[0]]
        store["mean_variance"].attrs["units"] = f"{task.unit}^2"
        store["threshold"].attrs |= {"units": task.unit, "long_name": "error threshold"}
        smse = float("nan")
        for baselines in plan.read_stores(["baselines"]).values():
            of_model = baselines["smse"].sel(dataset=task.title, model=self.model.name)
            smse = float(of_model.median())
        attributes = {"units": "1", "long_name": f"median SMSE of our {self.model.title}"}
        return store.assign(
            baseline_smse=((), smse, attributes),
            baseline_smse_published=((), self.model.published_smse, {"units": "1"}),
        )

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Return median and quartiles of SMSE, variance and revised points at every threshold."""
        found = summarise(store, (*SWEEP_QUANTITIES, "n_inserted"))
        found = found[found["n_seeds"] > 0]
        return found.drop(columns=["n_inserted_lower_quartile", "n_inserted_upper_quartile"])

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Return SMSE / revised points per setting and variant.

        The lowest SMSE of a threshold is bold.
        """
        rows = self.rows(store)
        is_shown = rows["threshold"].isin(self.sweeps[Setting.adaptive].thresholds)
        rows = rows[is_shown & rows["variant"].isin(list(VARIANT_TITLES))]
        texts = [
            f"{smse:.4g} / {n:.0f}" for smse, n in zip(rows["smse"], rows["n_revised"], strict=True)
        ]
        rows = rows.assign(text=mark_least(rows, texts, ["setting", "variant", "threshold"]))
        unit = f"threshold [{store['threshold'].attrs['units']}]"
        rows[unit] = rows["threshold"].map("{:g}".format)
        ours = significant(float(store["baseline_smse"]), 4)
        if not ours:
            ours = "not computed yet (study baselines)"
        published = f"{self.model.published_smse:g}"
        baseline = f"{self.model.title}: SMSE {published} published, {ours} ours."
        return {
            "baseline": baseline,
            "sections": study.pivot_by(rows, ["setting", "variant"], [unit], "criterion"),
        }

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Return one figure per setting."""
        figures = {}
        for setting in store["setting"].values.tolist():
            ending = "" if setting == "trained" else f"_{setting}"
            figures[self.name + ending] = partial(self._draw, store, setting)
        return figures

    def _draw(self, store: xr.Dataset, setting: str) -> Figure:
        """Draw a column per variant with data; bands of a few bad seeds may leave its panels."""
        part = store.sel(setting=setting, variant=list(VARIANT_TITLES))
        part = part.dropna("threshold", how="all", subset=["smse"])
        part = part.dropna("variant", how="all", subset=["smse"])
        part = part.transpose("variant", "criterion", "threshold", "seed")
        unit = store["threshold"].attrs["units"]
        labels = ("SMSE [1]", f"Mean variance [{unit}$^2$]", "Revised points [1]")
        panels = [panel for name in SWEEP_QUANTITIES for panel in part[name]]
        figure = draw_curves(panels, labels, f"Error threshold [{unit}]", sharey="row")
        axes = np.array(figure.axes).reshape(len(SWEEP_QUANTITIES), -1)
        published = self.model.published_smse
        ours = store["baseline_smse"].item()
        for ax, variant in zip(axes[0], part["variant"].values, strict=True):
            ax.set_title(VARIANT_TITLES[variant])
            handles = [
                ax.axhline(
                    published,
                    label=f"{self.model.title} (published)",
                    color=PUBLISHED_COLOR,
                    linestyle=":",
                ),
                ax.axhline(
                    ours,
                    label=f"{self.model.title} (ours)",
                    color=BASELINE_COLOR,
                    linestyle="--",
                ),
            ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
        for ax, name in zip(axes[:, 0], SWEEP_QUANTITIES, strict=True):
            if name == "smse":
                medians = quantiles(part[name].values, (0.5,))
                scale_axis(ax.yaxis, np.append(medians, [published, ours]))
            else:
                scale_axis(ax.yaxis, quantiles(part[name].values, (0.025, 0.975)), ratio=1.0)
        show_from_to(axes[0, 0], part["threshold"].values)
        return figure


class VanDerPolSweep(ThresholdSweep):
    """Van der Pol at error thresholds from 0.0005 to 0.015 m."""

    name = "figure_van_der_pol"
    title = "Van der Pol: the error threshold"
    tasks = ("van_der_pol",)
    sweeps: ClassVar = {
        Setting.trained: SweepPart(VAN_DER_POL_THRESHOLDS, DISTINCT_VARIANTS),
        Setting.published: SweepPart(VAN_DER_POL_THRESHOLDS, DISTINCT_VARIANTS),
        Setting.adaptive: SweepPart(VAN_DER_POL_THRESHOLDS[1::4], DISTINCT_VARIANTS[:2]),
    }
    model = BatchModel("full_gp", "Full GP", paper.FULL_GP_VAN_DER_POL)


class BuildingSweep(ThresholdSweep):
    """Building at error thresholds from 0.05 to 0.25 K.

    The setting `adaptive` takes minutes above 0.2 K, and ends there.
    """

    name = "figure_building"
    title = "Building: the error threshold"
    tasks = ("building",)
    sweeps: ClassVar = {
        Setting.trained: SweepPart(BUILDING_THRESHOLDS, DISTINCT_VARIANTS),
        Setting.adaptive: SweepPart(BUILDING_THRESHOLDS[:7:2], DISTINCT_VARIANTS[:2]),
    }
    model = BatchModel("vfe", "VFE, 100 inducing inputs", paper.VFE_BUILDING)
