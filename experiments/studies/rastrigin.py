"""Where the dictionary's points lie on Rastrigin, and what the model knows there (section 5)."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from experiments.benchmark_folder.markdown import table
from experiments.studies.label import LABELS
from experiments.studies.plan import Plan
from experiments.studies.point_pattern import boundary_share, nearest_distance_ratio, share_of_area
from experiments.studies.points_claims import POINTS_CLAIMS
from experiments.studies.setting import Setting, data_of, hyperparameters_of
from experiments.studies.statement import claim_list, quartile_text
from experiments.studies.stream import CRITERIA, acceptance_of, identification_of, spread
from experiments.studies.study import Study, Unit, seeds_of
from experiments.studies.tasks.catalogue import task_of
from experiments.studies.tasks.static_function import N_AXIS, RastriginTask
from experiments.studies.tasks.task import TaskData
from sysid import Always, Identification, Scaling

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETTINGS = (Setting.trained, Setting.published)
SHOWN_VARIANTS = ("none", "leave_one_out")
CELL = ("setting", "criterion", "variant")
STATISTICS = {  # name to unit, meaning and heading
    "boundary_share": ("1", "share of the points at the boundary", "at the boundary [1]"),
    "nearest_distance_ratio": (
        "1",
        "mean distance to the nearest point over that of uniform points",
        "distance ratio [1]",
    ),
    "mean_abs_error": ("1", "mean absolute prediction error on the grid", "mean error [1]"),
    "mean_std": ("1", "mean predictive standard deviation on the grid", "mean standard deviation [1]"),
}


class RastriginMaps(Study):
    """Maps of error and standard deviation after the stream of table 2, with the points."""

    name, title = "figure_rastrigin", "Rastrigin: prediction error, standard deviation and points"
    tasks = (RastriginTask.name,)
    weight = 0.6

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Maps, points and their statistics (setting, criterion, variant)."""
        data, training, test = data_of(unit.task, unit.seed, plan), *task_of(unit.task, plan).rows(unit.seed)
        n = len(data.initial_targets)
        scaling = scaling_of(data.initial_inputs, training.inputs[:n])
        grid, offset = scaling.transform(test.inputs), training.targets[0] - data.initial_targets[0]
        lower, upper = RastriginTask.function.lower, RastriginTask.function.upper
        cells = []
        for identification in _identifications(unit, data, plan):
            assert identification.model is not None
            mean, variance = identification.model.predict(grid)
            error, std = np.abs(test.targets - (mean + offset)), np.sqrt(variance)
            points = scaling.inverse(identification.model.gp.inputs)
            cells.append(
                {
                    "absolute_error": error.reshape(N_AXIS, N_AXIS),
                    "standard_deviation": std.reshape(N_AXIS, N_AXIS),
                    "point": points,
                    "boundary_share": boundary_share(points, lower, upper),
                    "nearest_distance_ratio": nearest_distance_ratio(points, lower, upper),
                    "mean_abs_error": error.mean(),
                    "mean_std": std.mean(),
                }
            )
        return _stacked(cells, plan)

    def combine(self, parts: Mapping[Unit, xr.Dataset], plan: Plan) -> xr.Dataset:
        """The same with the dimension seed."""
        found = seeds_of(parts, RastriginTask.name)
        if not found:
            found = [xr.full_like(_stacked([], plan), np.nan)] * plan.seeds
        return xr.concat(found, "seed", combine_attrs="override").assign_coords(seed=range(len(found)))

    def rows(self, store: xr.Dataset) -> list[dict[str, object]]:
        """Median and quartiles of the statistics."""
        rows: list[dict[str, object]] = []
        for names in _cells(store):
            part = store.sel(names)
            if not bool(part["mean_abs_error"].notnull().any()):
                continue
            row: dict[str, object] = {**names, "uniform_boundary_share": share_of_area(2)}
            for name in STATISTICS:
                low, middle, high = spread(part[name].values)
                row |= {name: middle, f"{name}_lower_quartile": low, f"{name}_upper_quartile": high}
            rows.append(row | {"n_seeds": int(part["mean_abs_error"].notnull().sum())})
        return rows

    def markdown(self, store: xr.Dataset) -> str:
        """Statistics and claims per setting and variant."""
        sections = []
        for setting in store["setting"].values.tolist():
            tables = (f"{VARIANT_TEXT[v]}:\n\n{_table(store.sel(setting=setting, variant=v))}" for v in SHOWN_VARIANTS)
            told = claim_list(POINTS_CLAIMS, self.name, store, setting)
            sections.append("\n\n".join([f"## Setting `{setting}`", *tables, f"{CLAIMS_HEAD}\n\n{told}"]))
        return "\n\n".join([NOTE.format(uniform=share_of_area(2)), *sections])

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], "Figure"]]:
        """Seed 0, one figure per setting and variant."""
        from experiments.studies.rastrigin_figure import draw

        if not bool(store["absolute_error"].isel(seed=0).notnull().any()):
            return {}
        return {
            self.name + ending: lambda setting=setting, variant=variant: draw(store, setting, variant)  # type: ignore[misc]
            for setting, variant, ending in (
                ("trained", "none", ""),
                ("trained", "leave_one_out", "_acceptance"),
                ("published", "none", "_published"),
                ("published", "leave_one_out", "_published_acceptance"),
            )
        }


VARIANT_TEXT = {"none": "Without acceptance", "leave_one_out": "With acceptance (leave-one-out reference)"}
CLAIMS_HEAD = (
    "The paper's claims, without acceptance; ratios are medians over seeds with the 95 % interval of the median:"
)
NOTE = (
    "Medians [quartiles] over seeds after all 500 new points were offered. At the boundary: share of the points "
    "within 5 % of the half-width of the domain from its edge; uniform points have {uniform:.4f}. Distance ratio: mean "
    "distance to the nearest other point over what uniform points have (below 1: clusters, above 1: spread evenly). "
    "Mean error and mean standard deviation: over the validation grid."
)


def _identifications(unit: Unit, data: TaskData, plan: Plan) -> list[Identification]:
    """Every setting, criterion and variant, after the stream."""
    found = []
    for setting in SETTINGS:
        start = hyperparameters_of(unit.task, unit.seed, setting, plan)
        for criterion in CRITERIA.values():
            for variant in SHOWN_VARIANTS:
                acceptance = acceptance_of(criterion, variant)
                identification = identification_of(
                    data, start, Always(), acceptance, criterion, budget=plan.budget, seed=unit.seed
                )
                identification.observe_many(data.inputs, data.targets)
                found.append(identification)
    return found


def scaling_of(standardised: np.ndarray, own: np.ndarray) -> Scaling:
    """Scaling by which rows (n, p) in their own units were standardised."""
    scale = np.ptp(own, axis=0) / np.ptp(standardised, axis=0)
    return Scaling(own.min(axis=0) - scale * standardised.min(axis=0), scale)


def _stacked(cells: Sequence[Mapping[str, np.ndarray]], plan: Plan) -> xr.Dataset:
    """Cells in the order of `_identifications` as a data set; without cells all nan."""
    coords = {"setting": [s.value for s in SETTINGS], "criterion": list(CRITERIA), "variant": list(SHOWN_VARIANTS)}
    lower, upper = RastriginTask.function.lower, RastriginTask.function.upper
    shape = tuple(len(values) for values in coords.values())
    units = {"units": "1"}
    layout = {
        "absolute_error": (("x1", "x2"), (N_AXIS, N_AXIS), units | {"long_name": "absolute prediction error"}),
        "standard_deviation": (("x1", "x2"), (N_AXIS, N_AXIS), units | {"long_name": "predictive standard deviation"}),
        "point": (("slot", "input"), (plan.budget, 2), units | {"long_name": "inputs of the stored points"}),
    } | {name: ((), (), {"units": unit, "long_name": text}) for name, (unit, text, _) in STATISTICS.items()}
    variables = {}
    for name, (dims, sizes, attributes) in layout.items():
        values = np.array([cell[name] for cell in cells]) if cells else np.full((*shape, *sizes), np.nan)
        variables[name] = ((*CELL, *dims), values.reshape(*shape, *sizes), attributes)
    axes = {f"x{d + 1}": np.linspace(lower[d], upper[d], N_AXIS) for d in range(2)}
    return xr.Dataset(variables, coords={**coords, **axes})


def _cells(store: xr.Dataset) -> list[dict[str, str]]:
    names = [store[dim].values.tolist() for dim in CELL]
    places = np.ndindex(*(len(values) for values in names))
    return [{dim: names[k][i] for k, (dim, i) in enumerate(zip(CELL, place, strict=True))} for place in places]


def _table(part: xr.Dataset) -> str:
    rows = [
        [LABELS[name], *(quartile_text(part[key].sel(criterion=name).values) for key in STATISTICS)]
        for name in CRITERIA
    ]
    return table(["criterion", *(heading for _, _, heading in STATISTICS.values())], rows)
