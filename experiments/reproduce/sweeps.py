"""Figures of sections 5 and 6: a set reduced one by one, points of Rastrigin, error thresholds;
pairs of criteria.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from math import sqrt
from typing import Any, ClassVar

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
    DISTINCT,
    QUANTITIES,
    TITLES,
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
from experiments.reproduce.tasks import FUNCTIONS, N_AXIS, TASKS, TaskData, draw_rows
from sysid.gp.rules import COMPARED_CRITERIA, CRITERIA


def draw_curves(
    panels: Sequence[xr.DataArray], labels: Sequence[str], xlabel: str, **options: Any
) -> Figure:
    """Medians over seeds with 95 % bands of panels (criterion, x, seed), row by row; `labels` are
    those of the rows.
    """
    figure, axes = page(
        len(labels),
        len(panels) // len(labels),
        0.8 + 1.7 * len(labels),
        sharex=True,
        **options,
    )
    for ax, panel in zip(axes.flat, panels, strict=True):
        ax.set_title(panel.attrs.get("title", ""))
        for i, curve in enumerate(panel):
            draw_band(
                ax,
                panel[panel.dims[1]].values,
                curve.values,
                curve["criterion"].item(),
                i / len(panel),
            )
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

PRINTED = (80, 60, 40, 20, 10)  # points, of the Markdown table


class Reduction(Study):
    """The initial rows of the static functions, fewer and fewer of them, judged on the validation
    grid.
    """

    name = "figure_reduction"
    title = "Reduction of uniform points one by one"
    tasks = tuple(FUNCTIONS)
    quantities = ("smse",)
    settings = (
        Setting.trained.value,
        Setting.published.value,
    )  # there is nothing to follow

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """SMSE in both settings by every criterion, from all initial rows to 1."""
        data = stream.data_of(unit.task, unit.seed, plan)
        rows = []
        for setting, criterion in product(self.settings, COMPARED_CRITERIA):
            start = stream.hyperparameters_of(unit.task, unit.seed, setting, plan)
            curve = reduce_one_by_one(data, start, CRITERIA[criterion]())
            key = {"setting": setting, "criterion": criterion}
            rows += [
                {**key, "n_points": len(curve) - i, "smse": smse} for i, smse in enumerate(curve)
            ]
        return part_of(rows)

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        over: dict[str, Sequence[Any]] = {
            "setting": self.settings,
            "criterion": COMPARED_CRITERIA,
        }
        return super().axes(plan) | over | {"n_points": range(plan.n_initial, 0, -1)}

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """SMSE at some sizes per setting, the lowest of a function and size bold, and the ratio to
        prior entropy.
        """
        level = average_sizes(store)
        ratio = level.copy(
            data=np.exp((level - level.sel(criterion="prior_entropy", drop=True)).values)
        )
        ratios = summarise(ratio.to_dataset(name="smse"), ["smse"])
        ratios["text"], ratios["n_points"] = (
            study.with_quartiles(ratios, "smse"),
            "ratio to prior entropy",
        )
        rows = self.rows(store)
        rows = rows[rows["n_points"].isin(PRINTED)].assign(
            n_points=lambda x: x["n_points"].map("{} points".format)
        )
        rows["text"] = mark_least(
            rows, rows["smse"].map(significant), ["dataset", "setting", "n_points"]
        )
        sections = study.pivot_by(
            pd.concat([rows, ratios]), ["setting"], ["dataset", "criterion"], "n_points"
        )
        return {"sections": sections}

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """SMSE against the number of points, one figure per setting."""
        endings = zip(self.settings, ("", "_published"), strict=True)
        return {
            self.name + ending: partial(self._draw, store["smse"].sel(setting=s))
            for s, ending in endings
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
    """SMSE (n,) on the test rows with n, n - 1, ..., 1 of the n initial rows, chosen by the
    criterion.

    The mean at the test rows (m,) costs O(m N) from the weights ``Ky^-1 y``; `OnlineGP.predict`
    adds its variance.
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
    """Mean log SMSE over all sizes but the full one, where all criteria agree."""
    smaller = store["smse"].sel(n_points=store["n_points"] < store["n_points"].max())
    return smaller.copy(data=np.log(smaller.values)).mean("n_points", skipna=False)


# --- where the points of Rastrigin lie -------------------------------------------------------------

BOUNDARY = 0.05  # of the half-width of a box: what counts as its boundary
UNIFORM_SHARE = (
    1.0 - (1.0 - BOUNDARY) ** 2
)  # of uniform points in a rectangle that lie at its boundary, on average
STATISTICS = (
    "boundary_share",
    "nearest_distance_ratio",
    "mean_abs_error",
    "mean_std",
)  # of points, and on the grid
MAP_SETTINGS = {
    "trained": "",
    "published": "_published",
}  # there is nothing to follow; endings of figure names
MAP_VARIANTS = {"none": "", "leave_one_out": "_acceptance"}
MAPS = {  # variable to label and colours
    "absolute_error": ("Absolute error [1]", "magma"),
    "standard_deviation": ("Standard deviation [1]", "viridis"),
}
N_COLORS = 12  # steps of the colours: contours that a printed page keeps
BRIGHTEST = 0.99  # quantile of all maps of a row that gets the last colour


class RastriginMaps(Study):
    """Maps of error and standard deviation after the stream of table 2, with the points."""

    name = "figure_rastrigin"
    title = "Rastrigin: prediction error, standard deviation and points"
    tasks = ("rastrigin",)

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Compute maps, points and their statistics (setting, criterion, variant)."""
        (training, test), data = (
            draw_rows(unit.task, unit.seed),
            stream.data_of(unit.task, unit.seed, plan),
        )
        n = plan.n_initial + plan.most_rows
        box = (FUNCTIONS[unit.task].lower, FUNCTIONS[unit.task].upper)
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
            share = share_at_boundary(points, *box)
            distance = compare_distances(points, *box)
            maps = (part.reshape(N_AXIS, N_AXIS) for part in (error, std))
            cells.append((*maps, points, share, distance, error.mean(), std.mean()))
        dims = {
            **dict.fromkeys(MAPS, ("x1", "x2")),
            "point": ("slot", "input"),
            **dict.fromkeys(STATISTICS, ()),
        }
        variables = {}
        for (name, own), values in zip(dims.items(), zip(*cells, strict=True), strict=True):
            shape = [len(names) for names in over.values()]
            variables[name] = (
                [*over, *own],
                np.reshape(values, [*shape, *np.shape(values)[1:]]),
                {"units": "1"},
            )
        axes = {f"x{d + 1}": np.linspace(box[0][d], box[1][d], N_AXIS) for d in range(2)}
        return xr.Dataset(variables, coords={**over, **axes})

    def combine(self, plan: Plan) -> xr.Dataset:
        """Join the parts of all seeds along the dimension seed."""
        found = [read_part(unit, plan) for unit in self.units(plan) if plan.is_kept(unit)]
        return xr.concat(found, "seed", combine_attrs="override").assign_coords(
            seed=range(len(found))
        )

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Median and quartiles of the statistics."""
        found = summarise(store, [*STATISTICS])
        found.insert(3, "uniform_boundary_share", UNIFORM_SHARE)
        return found

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Statistics per setting, variant and criterion."""
        rows = self.rows(store)
        table = rows[["setting", "criterion", "variant"]].replace(LABELS)
        table = table.assign(**{name: study.with_quartiles(rows, name) for name in STATISTICS})
        return {"statistics": to_markdown(table), "uniform": f"{UNIFORM_SHARE:.4f}"}

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Seed 0, one figure per setting and variant."""
        cases = {
            (s, v): self.name + MAP_SETTINGS[s] + MAP_VARIANTS[v]
            for s in MAP_SETTINGS
            for v in MAP_VARIANTS
        }
        first = store.isel(seed=0)
        return {
            name: partial(draw_maps, first.sel(setting=s, variant=v))
            for (s, v), name in cases.items()
        }


def share_at_boundary(points: np.ndarray, lower: Sequence[float], upper: Sequence[float]) -> float:
    """Share of the points (n, p) within `BOUNDARY` half-widths of an edge of the box."""
    low = np.asarray(lower)
    high = np.asarray(upper)
    margin = BOUNDARY * 0.5 * (high - low)
    return float(np.mean(((points < low + margin) | (points > high - margin)).any(axis=1)))


def compare_distances(points: np.ndarray, lower: Sequence[float], upper: Sequence[float]) -> float:
    """Mean distance of n points (n, 2) to their nearest neighbour over what uniform points in the
    rectangle have.

    Below 1: clusters; above 1: even. Clark and Evans, Ecology 35 (1954) 445. The expectation, for
    the area A and the perimeter P, is that of Donnelly (Simulation studies to determine edge
    effects of nearest neighbour analysis, 1978), for points next to an edge have no neighbours
    behind it::

        0.5 sqrt(A / n) + (0.0514 + 0.041 / sqrt(n)) P / n
    """
    sides = np.asarray(upper) - np.asarray(lower)
    n = len(points)
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    expected = 0.5 * sqrt(np.prod(sides) / n) + (0.0514 + 0.041 / sqrt(n)) * 2.0 * sides.sum() / n
    return float(distances.min(axis=1).mean() / expected)


def draw_maps(part: xr.Dataset) -> Figure:
    """Error (above) and standard deviation (below), one column per criterion; x1 to the right, x2
    upwards.
    """
    figure, axes = page(2, len(COMPARED_CRITERIA), 4.5, sharex=True, sharey=True)
    for row, (name, (label, colors)) in zip(axes, MAPS.items(), strict=True):
        style: dict[str, Any] = {
            "cmap": mpl.colormaps[colors].resampled(N_COLORS),
            "interpolation": "bilinear",
        }
        top = float(np.quantile(part[name].values, BRIGHTEST))
        for ax, criterion in zip(row, COMPARED_CRITERIA, strict=True):
            place = {
                "x": "x1",
                "y": "x2",
                "ax": ax,
                "add_colorbar": False,
                "add_labels": False,
                "origin": "lower",
            }
            image = (
                part[name]
                .sel(criterion=criterion)
                .plot.imshow(vmin=0.0, vmax=top, **place, **style)
            )
            points = part["point"].sel(criterion=criterion).transpose("input", "slot").values
            ax.plot(
                *points,
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
    for ax, below, criterion in zip(*axes, COMPARED_CRITERIA, strict=True):
        ax.set_title(LABELS[criterion])
        below.set_xlabel("$x_1$ [1]")
    return figure


# --- any acceptance criterion with any reduction criterion (not in the paper) ---------------------

ACCEPTANCES = ("none", *CRITERIA)
REFERENCE = "leave_one_out"  # stored points are judged by the model without them


class Grid(Study):
    """All new points offered with trained hyper-parameters; stored points judged without
    themselves.
    """

    name = "grid"
    title = "Acceptance by reduction: all pairs of criteria"
    quantities = QUANTITIES

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """One stream for each of the 30 cells."""
        pairs = product(ACCEPTANCES, CRITERIA)
        runs = [Run("trained", r, a, "" if a == "none" else REFERENCE) for a, r in pairs]
        return part_of([stream.offer(run, unit, plan) for run in runs])

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        return super().axes(plan) | {
            "acceptance": ACCEPTANCES,
            "reduction": [*CRITERIA],
        }

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Medians over seeds, one row per cell; without data nan and no seed."""
        medians = ["smse", "n_revised", "accepted_percent"]
        found = summarise(store, medians).assign(setting="trained")
        found["reference"] = np.where(found["acceptance"] == "none", "", REFERENCE)
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
        """Geometric mean over datasets of the ratio to the best pair, medians per dataset."""
        rows = self.rows(store).query("n_seeds > 0")
        rows["text"] = mark_least(rows, rows["smse"].map(significant), ["dataset"])
        medians = study.pivot_by(rows, ["dataset"], ["reduction"], "acceptance")
        rows["ratio"] = rows["smse"] / rows.groupby("dataset")["smse"].transform("min")
        levels = rows.assign(ratio=np.log(rows["ratio"])).groupby(
            ["acceptance", "reduction"], sort=False
        )["ratio"]
        means = np.exp(levels.mean()).reset_index()
        means["all"], texts = "", means["ratio"].map(lambda x: significant(x, 4))
        means["text"] = mark_least(means, texts, ["all"], "ratio")
        return {
            "means": study.pivot(means, ["reduction"], "acceptance"),
            "medians": medians,
        }


# --- the error threshold --------------------------------------------------------------------------

SHOWN = ("smse", "mean_variance", "n_revised")
QUICK_STEP = 5  # every so many thresholds of a quick run
VAN_DER_POL = tuple(np.round(0.0005 * np.arange(1, 31), 4).tolist())  # m
BUILDING = tuple(np.round(0.025 * np.arange(2, 11), 3).tolist())  # K


class ThresholdSweep(Study):
    """One task at many error thresholds, without and with acceptance, beside a batch model."""

    template = "threshold"
    quantities = QUANTITIES[:-1]
    sweeps: ClassVar[
        Mapping[Setting, tuple[tuple[float, ...], tuple[str, ...]]]
    ]  # thresholds, variants of a setting
    model: ClassVar[tuple[str, str, float]]  # name in the baselines, title, published SMSE

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Outcomes of every setting at its thresholds and variants."""
        rows = []
        for setting, (thresholds, variants) in self.sweeps.items():
            chosen = [
                threshold for threshold in self.axes(plan)["threshold"] if threshold in thresholds
            ]
            for threshold, criterion in product(chosen, COMPARED_CRITERIA):
                rows += stream.offer_variants(
                    unit, plan, setting, criterion, "error", threshold, variants
                )
        return part_of(rows)

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        over: dict[str, Sequence[Any]] = {
            "setting": [*map(str, self.sweeps)],
            "criterion": COMPARED_CRITERIA,
        }
        thresholds = self.sweeps[Setting.trained][0][:: QUICK_STEP if plan.quick else 1]
        return over | {"variant": VARIANTS, "threshold": thresholds}

    def combine(self, plan: Plan) -> xr.Dataset:
        """Outcomes with their units; SMSE of the baseline, published and ours."""
        store = super().combine(plan)
        task = TASKS[self.tasks[0]]
        store["mean_variance"].attrs["units"] = f"{task.unit}^2"
        store["threshold"].attrs |= {"units": task.unit, "long_name": "error threshold"}
        (name, title, published), own = self.model, float("nan")
        for baselines in plan.read_stores(["baselines"]).values():
            own = float(baselines["smse"].sel(dataset=task.title, model=name).median())
        store["baseline_smse"] = (
            (),
            own,
            {"units": "1", "long_name": f"median SMSE of our {title}"},
        )
        return store.assign(baseline_smse_published=((), published, {"units": "1"}))

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Median and quartiles of SMSE, variance and revised points at every threshold."""
        found = summarise(store, (*SHOWN, "n_inserted"))
        return found[found["n_seeds"] > 0].drop(
            columns=["n_inserted_lower_quartile", "n_inserted_upper_quartile"]
        )

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """SMSE / revised points per setting and variant, the lowest SMSE of a threshold bold."""
        rows = self.rows(store)
        unit = f"threshold [{store['threshold'].attrs['units']}]"
        rows = rows[
            rows["threshold"].isin(self.sweeps[Setting.adaptive][0])
            & rows["variant"].isin(list(TITLES))
        ]
        texts = [
            f"{smse:.4g} / {n:.0f}" for smse, n in zip(rows["smse"], rows["n_revised"], strict=True)
        ]
        rows = rows.assign(text=mark_least(rows, texts, ["setting", "variant", "threshold"]))
        rows[unit] = rows["threshold"].map("{:g}".format)
        own = significant(float(store["baseline_smse"]), 4) or "not computed yet (study baselines)"
        baseline = f"{self.model[1]}: SMSE {self.model[2]:g} published, {own} ours."
        return {
            "baseline": baseline,
            "sections": study.pivot_by(rows, ["setting", "variant"], [unit], "criterion"),
        }

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """One figure per setting."""
        settings = store["setting"].values.tolist()
        return {
            self.name + ("" if s == "trained" else f"_{s}"): partial(self._draw, store, s)
            for s in settings
        }

    def _draw(self, store: xr.Dataset, setting: str) -> Figure:
        """One column per variant with data; bands of a few bad seeds may leave it."""
        part = store.sel(setting=setting, variant=list(TITLES)).dropna(
            "threshold", how="all", subset=["smse"]
        )
        part = part.dropna("variant", how="all", subset=["smse"]).transpose(
            "variant", "criterion", "threshold", "seed"
        )
        unit = store["threshold"].attrs["units"]
        own = store["baseline_smse"].item()
        labels = ("SMSE [1]", f"Mean variance [{unit}$^2$]", "Revised points [1]")
        panels = [panel for name in SHOWN for panel in part[name]]
        figure = draw_curves(panels, labels, f"Error threshold [{unit}]", sharey="row")
        axes = np.array(figure.axes).reshape(len(SHOWN), -1)
        styles = [
            {"color": PUBLISHED_COLOR, "linestyle": ":"},
            {"color": BASELINE_COLOR, "linestyle": "--"},
        ]
        names = (f"{self.model[1]} (published)", f"{self.model[1]} (ours)")
        for ax, variant in zip(axes[0], part["variant"].values, strict=True):
            ax.set_title(TITLES[variant])
            levels = zip((self.model[2], own), names, styles, strict=True)
            handles = [ax.axhline(level, label=name, **style) for level, name, style in levels]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)
        for ax, name in zip(axes[:, 0], SHOWN, strict=True):
            if name == "smse":
                scale_axis(
                    ax.yaxis,
                    np.append(quantiles(part[name].values, (0.5,)), [self.model[2], own]),
                )
            else:
                scale_axis(ax.yaxis, quantiles(part[name].values, (0.025, 0.975)), ratio=1.0)
        show_from_to(axes[0, 0], part["threshold"].values)
        return figure


class VanDerPolSweep(ThresholdSweep):
    """Van der Pol at 0.0005 to 0.015 m."""

    name = "figure_van_der_pol"
    title = "Van der Pol: the error threshold"
    tasks = ("van_der_pol",)
    sweeps: ClassVar = {
        Setting.trained: (VAN_DER_POL, DISTINCT),
        Setting.published: (VAN_DER_POL, DISTINCT),
        Setting.adaptive: (VAN_DER_POL[1::4], DISTINCT[:2]),
    }
    model = ("full_gp", "Full GP", paper.FULL_GP_VAN_DER_POL)


class BuildingSweep(ThresholdSweep):
    """Building at 0.05 to 0.25 K; following the stream above 0.2 K takes minutes."""

    name = "figure_building"
    title = "Building: the error threshold"
    tasks = ("building",)
    sweeps: ClassVar = {
        Setting.trained: (BUILDING, DISTINCT),
        Setting.adaptive: (BUILDING[:7:2], DISTINCT[:2]),
    }
    model = ("vfe", "VFE, 100 inducing inputs", paper.VFE_BUILDING)
