"""Which points stay (section 5): a set reduced one by one, and where the points of Rastrigin lie after a stream."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from math import sqrt
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import rc_context
from matplotlib.figure import Figure

import sysid
from experiments.plots.frames import quantiles, significant, to_markdown
from experiments.plots.style import LABELS, PAGE, draw_band, page, scale_axis
from experiments.studies.paper import CRITERIA as SHOWN
from experiments.studies.stream import CRITERIA, Setting, Streams, data_of, hyperparameters_of, run_of
from experiments.studies.study import Plan, Study, Unit, mark_least, part_of, summarise
from experiments.studies.tasks import FUNCTIONS, N_AXIS, TASKS, TaskData, draw_rows

SETTINGS = (Setting.trained.value, Setting.published.value)  # there is nothing to follow
PRINTED = (80, 60, 40, 20, 10)  # points, of the Markdown table
SHOWN_VARIANTS = ("none", "leave_one_out")
MARGIN = 0.05  # of the half-width of a box: what counts as its boundary
STATISTICS = {
    "boundary_share": "share of the points at the boundary",
    "nearest_distance_ratio": "mean distance to the nearest point over that of uniform points",
    "mean_abs_error": "mean absolute prediction error on the grid",
    "mean_std": "mean predictive standard deviation on the grid",
}
#: dimensions and attributes of what a stream leaves
LAYOUT = {
    "absolute_error": (["x1", "x2"], {"units": "1", "long_name": "absolute prediction error"}),
    "standard_deviation": (["x1", "x2"], {"units": "1", "long_name": "predictive standard deviation"}),
    "point": (["slot", "input"], {"units": "1", "long_name": "inputs of the stored points"}),
    **{name: ([], {"units": "1", "long_name": label}) for name, label in STATISTICS.items()},
}
ENDINGS = {"trained": "", "published": "_published", "none": "", "leave_one_out": "_acceptance"}  # of figure names
MAPS = {  # variable to label and colours
    "absolute_error": ("Absolute error [1]", "magma"),
    "standard_deviation": ("Standard deviation [1]", "viridis"),
}
N_COLORS = 12  # steps of the colours: contours that a printed page keeps
BRIGHTEST = 0.99  # quantile of all maps of a row that gets the last colour


class Reduction(Study):
    """The initial rows of the static functions, fewer and fewer of them, judged on the validation grid."""

    name, title = "figure_reduction", "Reduction of uniform points one by one"
    tasks = tuple(FUNCTIONS)
    weight, quantities = 0.5, ("smse",)

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """SMSE in both settings by every criterion, from all initial rows to 1."""
        data, rows = data_of(unit.task, unit.seed, plan), []
        for setting, criterion in product(SETTINGS, SHOWN):
            start = hyperparameters_of(unit.task, unit.seed, setting, plan)
            curve = reduce_one_by_one(data, start, CRITERIA[criterion])
            key = {"setting": setting, "criterion": criterion}
            rows += [{**key, "n_points": len(curve) - i, "smse": smse} for i, smse in enumerate(curve)]
        return part_of(rows)

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        titles, sizes = [TASKS[name].title for name in self.tasks], range(plan.n_initial, 0, -1)
        return {"dataset": titles, "setting": SETTINGS, "criterion": SHOWN, "n_points": sizes}

    def combine(self, plan: Plan) -> xr.Dataset:
        """SMSE with its unit."""
        store = super().combine(plan)
        store["smse"].attrs |= {"units": "1", "long_name": "standardised mean squared error on the validation grid"}
        return store

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """SMSE at some sizes per setting, the lowest of a function and size bold, and the ratio to prior entropy."""
        rows, keys, sections = self.rows(store), ["dataset", "setting", "criterion"], []
        ratios = summarise(relate_to_entropy(store), ["ratio"])
        ratios["ratio"] = ratios.apply(with_quartiles, axis=1, name="ratio")
        rows = rows[rows["n_points"].isin(PRINTED)].merge(ratios[[*keys, "ratio"]], on=keys)
        for setting, part in rows.groupby("setting", sort=False):
            texts = mark_least(part, part["smse"].map(significant), ["dataset", "n_points"])
            part = part.assign(text=texts, criterion=part["criterion"].map(LABELS))
            over = ["dataset", "criterion", "ratio"]
            wide = part.pivot(index=over, columns="n_points", values="text")[part["n_points"].unique()]
            wide = wide.loc[part[over].drop_duplicates().itertuples(index=False, name=None)]
            wide = wide.rename(columns="{} points".format).reset_index()
            wide["ratio to prior entropy"] = wide.pop("ratio")
            sections.append(f"## Setting `{setting}`\n\n{to_markdown(wide)}")
        missing = [name for name in store["dataset"].values if name not in set(rows["dataset"])]
        return {"sections": "\n\n".join([*sections, *(f"{name}: no data." for name in missing)])}

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """SMSE against the number of points, one figure per setting."""
        return {self.name + ENDINGS[setting]: partial(draw_reduction, store, setting) for setting in SETTINGS}


def reduce_one_by_one(data: TaskData, hyperparameters: sysid.Hyperparameters, criterion: sysid.Criterion) -> np.ndarray:
    """SMSE (n,) on the test rows with n, n - 1, ..., 1 of the n initial rows, chosen by the criterion."""
    n, noise = len(data.initial_targets), hyperparameters.noise_variance
    gp = sysid.OnlineGP(hyperparameters.kernel, noise_variance=noise, budget=n, reduction=criterion)
    gp.fit(data.initial_inputs, data.initial_targets)
    curve = np.empty(n)
    for i in range(n):
        gp.reduce_to(n - i)
        curve[i] = sysid.standardised_mean_squared_error(data.test_targets, predict_mean(gp, data.test_inputs))
    return curve


def predict_mean(gp: sysid.OnlineGP, inputs: np.ndarray) -> np.ndarray:
    """Posterior mean (m,) at inputs (m, p) alone, O(m N); `OnlineGP.predict` needs O(m N^2) for its variance."""
    weights = gp.state()["weights"][: gp.n_points]  # Ky^-1 y, oldest point first
    return np.asarray(gp.kernel(inputs, gp.inputs[gp.age_order]) @ weights)


def relate_to_entropy(store: xr.Dataset) -> xr.Dataset:
    """Geometric mean over the sizes below the first of the SMSE over that of prior entropy: ``ratio``."""
    smaller = store["smse"].sel(n_points=store["n_points"] < store["n_points"].max())
    level = smaller.copy(data=np.log(smaller.values)).mean("n_points", skipna=False)
    ratio = level - level.sel(criterion="prior_entropy", drop=True)
    return ratio.copy(data=np.exp(ratio.values)).to_dataset(name="ratio")


def with_quartiles(row: pd.Series, name: str) -> str:
    """``median [lower quartile, upper quartile]``; the median alone for one seed."""
    texts = [significant(row[name + ending]) for ending in ("", "_lower_quartile", "_upper_quartile")]
    return f"{texts[0]} [{texts[1]}, {texts[2]}]" if row["n_seeds"] > 1 else texts[0]


class RastriginMaps(Study):
    """Maps of error and standard deviation after the stream of table 2, with the points."""

    name, title = "figure_rastrigin", "Rastrigin: prediction error, standard deviation and points"
    tasks = ("rastrigin",)
    weight = 0.6

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Maps, points and their statistics (setting, criterion, variant)."""
        streams = Streams(unit.task, unit.seed, plan)
        data, (training, test) = streams.data, draw_rows(unit.task, unit.seed)
        scaling = find_scaling(data.initial_inputs, training.inputs[: plan.n_initial])
        grid, offset = scaling.transform(test.inputs), training.targets[0] - data.initial_targets[0]
        box = FUNCTIONS[unit.task].lower, FUNCTIONS[unit.task].upper
        over = {"setting": [*SETTINGS], "criterion": [*SHOWN], "variant": [*SHOWN_VARIANTS]}
        found: dict[str, list[Any]] = {name: [] for name in LAYOUT}
        for setting, criterion, variant in product(*over.values()):
            identification = streams.start(run_of(setting, criterion, variant))
            identification.observe_many(data.inputs, data.targets)
            model = identification.model
            assert model is not None
            mean, variance = model.predict(grid)
            error, std = np.abs(test.targets - (mean + offset)), np.sqrt(variance)
            points = scaling.inverse(model.gp.inputs)
            found["absolute_error"].append(error.reshape(N_AXIS, N_AXIS))
            found["standard_deviation"].append(std.reshape(N_AXIS, N_AXIS))
            found["point"].append(points)
            found["boundary_share"].append(share_at_boundary(points, *box))
            found["nearest_distance_ratio"].append(compare_distances(points, *box))
            found["mean_abs_error"].append(error.mean())
            found["mean_std"].append(std.mean())
        shape = [len(values) for values in over.values()]
        variables = {
            name: ([*over, *dims], np.reshape(found[name], [*shape, *np.shape(found[name])[1:]]), attributes)
            for name, (dims, attributes) in LAYOUT.items()
        }
        axes = {f"x{d + 1}": np.linspace(box[0][d], box[1][d], N_AXIS) for d in range(2)}
        return xr.Dataset(variables, coords={**over, **axes})

    def combine(self, plan: Plan) -> xr.Dataset:
        """The same with the dimension seed."""
        found = [*self.kept(plan).values()]
        return xr.concat(found, "seed", combine_attrs="override").assign_coords(seed=range(len(found)))

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Median and quartiles of the statistics."""
        found = summarise(store, [*STATISTICS])
        found.insert(3, "uniform_boundary_share", share_of_area(2))
        return found

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Statistics per setting, variant and criterion."""
        rows = self.rows(store)
        table = rows[["setting", "criterion", "variant"]].replace(LABELS)
        for name, label in STATISTICS.items():
            table[f"{label} [1]"] = rows.apply(with_quartiles, axis=1, name=name)
        return {"statistics": to_markdown(table), "uniform": f"{share_of_area(2):.4f}"}

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Seed 0, one figure per setting and variant."""
        cases = product(SETTINGS, SHOWN_VARIANTS)
        return {f"{self.name}{ENDINGS[s]}{ENDINGS[v]}": partial(draw_maps, store, s, v) for s, v in cases}


def find_scaling(standardised: np.ndarray, own: np.ndarray) -> sysid.Scaling:
    """Scaling by which rows (n, p) in their own units were standardised."""
    scale = np.ptp(own, axis=0) / np.ptp(standardised, axis=0)
    return sysid.Scaling(own.min(axis=0) - scale * standardised.min(axis=0), scale)


def share_at_boundary(points: np.ndarray, lower: Sequence[float], upper: Sequence[float]) -> float:
    """Share of the points (n, p) within `MARGIN` half-widths of an edge of the box."""
    low, high = np.asarray(lower), np.asarray(upper)
    margin = MARGIN * 0.5 * (high - low)
    return float(np.mean(((points < low + margin) | (points > high - margin)).any(axis=1)))


def share_of_area(n_dimensions: int) -> float:
    """Share that uniform points have on average: ``1 - (1 - MARGIN)^p``."""
    return float(1.0 - (1.0 - MARGIN) ** n_dimensions)


def compare_distances(points: np.ndarray, lower: Sequence[float], upper: Sequence[float]) -> float:
    """Mean distance of n points (n, 2) to their nearest neighbour over what uniform points in the rectangle have.

    Below 1: clusters; above 1: even. Clark and Evans, Ecology 35 (1954) 445. The expectation, for the area A and
    the perimeter P, is that of Donnelly (Simulation studies to determine edge effects of nearest neighbour
    analysis, 1978), for points next to an edge have no neighbours behind it::

        0.5 sqrt(A / n) + (0.0514 + 0.041 / sqrt(n)) P / n
    """
    sides, n = np.asarray(upper) - np.asarray(lower), len(points)
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    expected = 0.5 * sqrt(np.prod(sides) / n) + (0.0514 + 0.041 / sqrt(n)) * 2.0 * sides.sum() / n
    return float(distances.min(axis=1).mean() / expected)


@rc_context(PAGE)
def draw_reduction(store: xr.Dataset, setting: str) -> Figure:
    """Median over seeds and 95 % band against the number of points, one panel per function."""
    figure, axes = page(2, 2, 4.6, sharex=True)
    sizes = store["n_points"].values
    for ax, smse in zip(axes.flat, store["smse"].sel(setting=setting), strict=True):
        ax.set_title(smse["dataset"].item())
        if not bool(smse.notnull().any()):
            ax.text(0.5, 0.5, "no data", transform=ax.transAxes, ha="center")
            continue
        for i, criterion in enumerate(SHOWN):
            draw_band(ax, sizes, smse.sel(criterion=criterion).values, criterion, i / len(SHOWN))
        scale_axis(ax.yaxis, quantiles(smse.values, (0.025, 0.975)), ratio=1.0)
        ax.set_xlim(sizes.max(), sizes.min())
        legend = ax.get_legend_handles_labels()
    for left, below in zip(axes[:, 0], axes[-1], strict=True):
        left.set_ylabel("SMSE [1]")
        below.set_xlabel("Points left")
    figure.legend(*legend, loc="outside upper center", ncols=3)
    return figure


@rc_context(PAGE)
def draw_maps(store: xr.Dataset, setting: str, variant: str) -> Figure:
    """Error (above) and standard deviation (below) of seed 0, one column per criterion; x1 to the right, x2 upwards."""
    part = store.sel(setting=setting, variant=variant).isel(seed=0)
    figure, axes = page(2, len(SHOWN), 4.5, sharex=True, sharey=True)
    x1, x2 = part["x1"].values, part["x2"].values
    half = 0.5 * (x1[1] - x1[0]), 0.5 * (x2[1] - x2[0])  # grid points are centres of the pixels
    extent = (x1[0] - half[0], x1[-1] + half[0], x2[0] - half[1], x2[-1] + half[1])
    for row, (name, (label, colors)) in zip(axes, MAPS.items(), strict=True):
        style: dict[str, Any] = {"cmap": mpl.colormaps[colors].resampled(N_COLORS), "interpolation": "bilinear"}
        top = float(np.quantile(part[name].values, BRIGHTEST))
        for ax, criterion in zip(row, SHOWN, strict=True):
            values = part[name].sel(criterion=criterion).transpose("x2", "x1").values
            image = ax.imshow(values, origin="lower", extent=extent, vmin=0.0, vmax=top, **style)
            points = part["point"].sel(criterion=criterion).transpose("input", "slot").values
            ax.plot(*points, "o", color="white", markeredgecolor="black", markeredgewidth=0.4, markersize=2.6)
            ax.grid(visible=False)
            ax.set(xticks=[-1, 0, 1], yticks=[-1, 0, 1])
        figure.colorbar(image, ax=row, label=label, extend="max", pad=0.02)
        row[0].set_ylabel("$x_2$ [1]")
    for ax, below, criterion in zip(*axes, SHOWN, strict=True):
        ax.set_title(LABELS[criterion])
        below.set_xlabel("$x_1$ [1]")
    return figure
