"""Reduction behaviour (section 5): SMSE while a dictionary of uniform points is reduced one by one."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from experiments.benchmark_folder.markdown import table
from experiments.studies.figure_claims import ENTROPY, FUNCTIONS, REDUCTION_CLAIMS, mean_smse
from experiments.studies.label import LABELS
from experiments.studies.plan import Plan
from experiments.studies.setting import Setting, data_of, hyperparameters_of
from experiments.studies.significant import significant
from experiments.studies.statement import claim_list, quartile_text
from experiments.studies.stream import CRITERIA, spread
from experiments.studies.study import Study, Unit, seeds_of
from experiments.studies.tasks.catalogue import TASKS, task_of
from experiments.studies.tasks.task import TaskData
from sysid import Criterion, Hyperparameters, OnlineGP, standardised_mean_squared_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SETTINGS = (Setting.trained, Setting.published)  # there is no stream to follow
PRINTED = (80, 60, 40, 20, 10)  # points, of the Markdown table


class Reduction(Study):
    """The initial rows, fewer and fewer of them, judged on the validation grid."""

    name, title = "figure_reduction", "Reduction of uniform points one by one"
    tasks = FUNCTIONS
    weight = 0.5

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """SMSE (setting, criterion, n_points) from all initial rows to 1."""
        data = data_of(unit.task, unit.seed, plan)
        curves = [
            [reduction_curve(data, hyperparameters_of(unit.task, unit.seed, s, plan), c) for c in CRITERIA.values()]
            for s in SETTINGS
        ]
        return xr.Dataset({"smse": (DIMENSIONS, np.array(curves), SMSE)}, coords=_coordinates(plan.n_initial))

    def combine(self, parts: Mapping[Unit, xr.Dataset], plan: Plan) -> xr.Dataset:
        """SMSE (dataset, setting, criterion, n_points, seed)."""
        coords = _coordinates(plan.n_initial)
        blank = np.full([len(values) for values in coords.values()], np.nan)
        tasks = []
        for name in FUNCTIONS:
            found = seeds_of(parts, name)
            seeds = task_of(name, plan).seeds(plan.seeds)
            values = [part["smse"].values for part in found] or [blank] * len(seeds)
            tasks.append(np.stack(values, axis=-1))
        titles = [TASKS[name].title for name in FUNCTIONS]
        return xr.Dataset(
            {"smse": (("dataset", *DIMENSIONS, "seed"), np.array(tasks), SMSE)},
            coords={"dataset": titles, **coords, "seed": range(plan.seeds)},
        )

    def rows(self, store: xr.Dataset) -> list[dict[str, object]]:
        """Median and quartiles at every size."""
        rows: list[dict[str, object]] = []
        smse = store["smse"].transpose("dataset", *DIMENSIONS, "seed")
        names = [smse[dim].values.tolist() for dim in smse.dims[:-1]]
        for place in np.ndindex(smse.shape[:-1]):
            values = smse.values[place]
            if not np.isfinite(values).any():
                continue
            low, middle, high = spread(values)
            keys = {dim: names[k][i] for k, (dim, i) in enumerate(zip(("dataset", *DIMENSIONS), place, strict=True))}
            measured = {"smse": middle, "smse_lower_quartile": low, "smse_upper_quartile": high}
            rows.append(keys | measured | {"n_seeds": int(np.isfinite(values).sum())})
        return rows

    def markdown(self, store: xr.Dataset) -> str:
        """One table and the claims, per setting."""
        sections = []
        for setting in store["setting"].values.tolist():
            told = claim_list(REDUCTION_CLAIMS, self.name, store, setting)
            sections.append(
                f"## Setting `{setting}`\n\n{_table(store.sel(setting=setting))}\n\n{CLAIMS_HEAD}\n\n{told}"
            )
        return "\n\n".join([NOTE, *sections])

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], "Figure"]]:
        """SMSE against the number of points, one figure per setting."""
        from experiments.studies.reduction_figure import draw

        if not bool(store["smse"].notnull().any()):
            return {}
        return {
            self.name: lambda: draw(store, Setting.trained.value),
            f"{self.name}_published": lambda: draw(store, Setting.published.value),
        }


DIMENSIONS = ("setting", "criterion", "n_points")
NOTE = (
    "Median SMSE over seeds, the lowest of a function and size bold. Ratio: geometric mean over all sizes below the "
    "first of the SMSE over that of prior entropy; median [quartiles] over seeds."
)
CLAIMS_HEAD = "The paper's claims; ratios are medians over seeds with the 95 % interval of the median:"
SMSE = {"units": "1", "long_name": "standardised mean squared error on the validation grid"}


def _coordinates(n_points: int) -> dict[str, list[str] | list[int]]:
    settings = [setting.value for setting in SETTINGS]
    return {"setting": settings, "criterion": list(CRITERIA), "n_points": list(range(n_points, 0, -1))}


def reduction_curve(data: TaskData, hyperparameters: Hyperparameters, criterion: Criterion) -> np.ndarray:
    """SMSE (n,) on the test rows with n, n - 1, ..., 1 of the n initial rows, chosen by the criterion."""
    n = len(data.initial_targets)
    gp = OnlineGP(
        hyperparameters.kernel, noise_variance=hyperparameters.noise_variance, budget=n, reduction=criterion
    ).fit(data.initial_inputs, data.initial_targets)
    curve = np.empty(n)
    for i in range(n):
        gp.reduce_to(n - i)
        curve[i] = standardised_mean_squared_error(data.test_targets, posterior_mean(gp, data.test_inputs))
    return curve


def posterior_mean(gp: OnlineGP, inputs: np.ndarray) -> np.ndarray:
    """Posterior mean (m,) at inputs (m, p) alone, O(m N); `OnlineGP.predict` needs O(m N^2) for its variance."""
    weights = gp.state()["weights"][: gp.n_points]  # Ky^-1 y, oldest point first
    return np.asarray(gp.kernel(inputs, gp.inputs[gp.age_order]) @ weights)


def ratio_to_entropy(part: xr.Dataset, task: str, criterion: str) -> np.ndarray:
    """Geometric mean over the sizes below the first of the SMSE over that of prior entropy (seed,)."""
    return np.exp(mean_smse(part, task, criterion) - mean_smse(part, task, ENTROPY))


def _table(part: xr.Dataset) -> str:
    """SMSE at some sizes and the ratio, in one setting; the lowest of a function and size is bold."""
    sizes = [n for n in PRINTED if n in part["n_points"].values]
    rows = []
    for task in FUNCTIONS:
        smse = part["smse"].sel(dataset=TASKS[task].title).transpose("criterion", "n_points", "seed")
        if not bool(smse.notnull().any()):
            rows.append([TASKS[task].title, *["no data"] * (len(sizes) + 2)])
            continue
        medians = np.nanmedian(smse.sel(n_points=sizes).values, axis=-1)
        is_best = medians == medians.min(axis=0)
        for criterion, values, best in zip(CRITERIA, medians, is_best, strict=True):
            cells = [
                f"**{significant(value)}**" if b else significant(value) for value, b in zip(values, best, strict=True)
            ]
            ratio = "1" if criterion == ENTROPY else quartile_text(ratio_to_entropy(part, task, criterion))
            rows.append([TASKS[task].title, LABELS[criterion], *cells, ratio])
    return table(["dataset", "criterion", *(f"{n} points" for n in sizes), "ratio to prior entropy"], rows)
