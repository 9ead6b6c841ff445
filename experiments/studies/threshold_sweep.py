"""SMSE, variance and revised points against the error threshold (figures of section 6)."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import xarray as xr

from experiments.benchmark_folder.markdown import table
from experiments.studies.cells import Cell, outcomes_under
from experiments.studies.label import LABELS
from experiments.studies.part import part_path, read_part
from experiments.studies.plan import Plan
from experiments.studies.published_table import FULL_GP_VAN_DER_POL, VFE_BUILDING
from experiments.studies.setting import Setting
from experiments.studies.stream import CRITERIA, VARIANTS, Outcome, distinct_variants, spread
from experiments.studies.study import Study, Unit, seeds_of
from experiments.studies.sweep_remark import remarks
from experiments.studies.tasks.building import BuildingTask
from experiments.studies.tasks.catalogue import TASKS, task_of
from experiments.studies.tasks.van_der_pol import VanDerPolTask
from sysid import ErrorThreshold

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIMENSIONS = ("setting", "criterion", "variant", "threshold")
SHOWN_VARIANTS = VARIANTS[:3]  # those that decide differently
QUICK_STEP = 5  # every so many thresholds of a quick run


class Sweep(NamedTuple):
    """What is computed in one setting."""

    thresholds: tuple[float, ...]  # target unit; some of those of the study
    variants: tuple[str, ...] = SHOWN_VARIANTS


class Baseline(NamedTuple):
    """Model that the figure compares with, and the SMSE that the paper prints."""

    model: str  # name in the study of the baselines
    title: str
    published: float


class ThresholdSweep(Study):
    """One task at many error thresholds, without and with acceptance."""

    thresholds: ClassVar[tuple[float, ...]]  # target unit
    printed: ClassVar[tuple[float, ...]]  # of them, those of the Markdown table
    sweeps: ClassVar[Mapping[Setting, Sweep]]
    baseline: ClassVar[Baseline]
    smse_scale: ClassVar[str]  # of the axis, as the paper has it

    @property
    def task(self) -> str:
        """Name of the only task."""
        assert self.tasks is not None
        return self.tasks[0]

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Outcomes (setting, criterion, variant, threshold); nan where a setting leaves a threshold out."""
        found = self.blank(plan)
        for setting, sweep in self.sweeps.items():
            for threshold in sorted({*sweep.thresholds} & {*found["threshold"].values.tolist()}):
                for name, criterion in CRITERIA.items():
                    cells = {variant: Cell(unit, plan, setting, name, variant) for variant in sweep.variants}
                    outcome = outcomes_under(ErrorThreshold(threshold), cells)
                    for variant, same in distinct_variants(criterion).items():
                        if same in outcome:
                            place = dict(zip(DIMENSIONS, (setting.value, name, variant, threshold), strict=True))
                            _fill(found, place, outcome[same])
        return found

    def blank(self, plan: Plan) -> xr.Dataset:
        """All outcomes of one seed, nan."""
        unit = TASKS[self.task].unit
        thresholds = list(self.thresholds[:: QUICK_STEP if plan.quick else 1])
        coords = {
            "setting": [setting.value for setting in self.sweeps],
            "criterion": list(CRITERIA),
            "variant": list(VARIANTS),
            "threshold": ("threshold", thresholds, {"units": unit, "long_name": "error threshold"}),
        }
        shape = (len(self.sweeps), len(CRITERIA), len(VARIANTS), len(thresholds))
        units = {"mean_variance": f"{unit}^2", "seconds": "s", "nlpd": "nat"}
        variables = {
            name: (DIMENSIONS, np.full(shape, np.nan), {"units": units.get(name, "1")}) for name in Outcome._fields
        }
        return xr.Dataset(variables, coords=coords)

    def combine(self, parts: Mapping[Unit, xr.Dataset], plan: Plan) -> xr.Dataset:
        """The same over seeds, and the baselines: the published one, and ours where it was computed."""
        found = [*seeds_of(parts, self.task)] or [self.blank(plan)] * plan.seeds
        store = xr.concat(found, "seed", combine_attrs="override").assign_coords(seed=range(len(found)))
        own = baseline_smse(plan, self.task, self.baseline.model)
        return store.transpose(*DIMENSIONS, "seed").assign(
            baseline_smse=((), own, {"units": "1", "long_name": f"median SMSE of our {self.baseline.title}"}),
            baseline_smse_published=((), self.baseline.published, {"units": "1"}),
        )

    def rows(self, store: xr.Dataset) -> list[dict[str, object]]:
        """Median and quartiles of SMSE, variance and revised points at every threshold."""
        rows: list[dict[str, object]] = []
        for place in np.ndindex(*(store.sizes[dim] for dim in DIMENSIONS)):
            part = store.isel(dict(zip(DIMENSIONS, place, strict=True)))
            if not bool(part["smse"].notnull().any()):
                continue
            row: dict[str, object] = {dim: part[dim].item() for dim in DIMENSIONS}
            for name in ("smse", "mean_variance", "n_revised"):
                low, middle, high = spread(part[name].values)
                row |= {name: middle, f"{name}_lower_quartile": low, f"{name}_upper_quartile": high}
            row |= {"n_inserted": spread(part["n_inserted"].values)[1]}
            rows.append(row | {"n_seeds": int(part["smse"].notnull().sum())})
        return rows

    def markdown(self, store: xr.Dataset) -> str:
        """SMSE and revised points per setting and variant, and the numbers for the paper's claims."""
        own = float(store["baseline_smse"])
        ours = f"ours {own:.4g}" if np.isfinite(own) else "ours not computed yet (study baselines)"
        head = f"{self.baseline.title}: published SMSE {self.baseline.published:g}, {ours}. {READING}"
        sections = [
            f"## Setting {setting}, {VARIANT_TEXT[variant]}\n\n{self._table(part)}\n\n{remarks(self.task, part)}"
            for setting in store["setting"].values.tolist()
            for variant in SHOWN_VARIANTS
            if (part := store.sel(setting=setting, variant=variant))["smse"].notnull().any()
        ]
        return "\n\n".join([head, *(section.rstrip() for section in sections)])

    def _table(self, part: xr.Dataset) -> str:
        """Medians: SMSE and revised points of each criterion."""
        part = part.transpose("criterion", "threshold", "seed")
        has_data = part["smse"].notnull().any(("criterion", "seed")).values
        shown = [i for i, t in enumerate(part["threshold"].values) if has_data[i] and np.isclose(t, self.printed).any()]
        rows = []
        for i in shown:
            smse, revised = (np.nanmedian(part[name].values[:, i], axis=-1) for name in ("smse", "n_revised"))
            cells = [f"{s:.4g} / {n:.0f}" for s, n in zip(smse, revised, strict=True)]
            cells[int(np.argmin(smse))] = f"**{cells[int(np.argmin(smse))]}**"
            rows.append([f"{part['threshold'].values[i]:g}", *cells])
        unit = part["threshold"].attrs["units"]
        return table([f"threshold [{unit}]", *(LABELS[name] for name in CRITERIA)], rows)

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], "Figure"]]:
        """One figure per setting with data."""
        from experiments.studies.sweep_figure import draw

        settings = [s for s in store["setting"].values.tolist() if store["smse"].sel(setting=s).notnull().any()]
        return {
            self.name + ("" if setting == Setting.trained else f"_{setting}"): (
                lambda setting=setting: draw(store, setting, self.baseline.title, self.smse_scale)  # type: ignore[misc]
            )
            for setting in settings
        }


VARIANT_TEXT = {
    "none": "without acceptance",
    "leave_one_out": "with acceptance (leave-one-out reference)",
    "in_sample": "with acceptance (in-sample reference)",
}
READING = "Tables: median SMSE / revised points over seeds, the lowest SMSE bold."


def _fill(outcomes: xr.Dataset, place: Mapping[str, str | float], outcome: Outcome) -> None:
    for quantity, value in outcome._asdict().items():
        outcomes[quantity].loc[place] = value


def baseline_smse(plan: Plan, task: str, model: str) -> float:
    """Median SMSE over seeds of a model that the study of the baselines has computed; nan if it has not.

    Raises
    ------
    sysid.StoreError
        A result of another plan or version.
    """
    units = [Unit("baselines", task, seed) for seed in task_of(task, plan).seeds(plan.seeds)]
    kept = [read_part(unit, plan)["smse"] for unit in units if part_path(unit, plan).is_file()]
    found = [float(smse.sel(order="given", model=model)) for smse in kept]
    return float(np.nanmedian(found)) if np.isfinite(found).any() else float("nan")


class VanDerPolSweep(ThresholdSweep):
    """Van der Pol at 0.0005 to 0.015."""

    name, title = "figure_van_der_pol", "Van der Pol: the error threshold"
    tasks = (VanDerPolTask.name,)
    weight = 11.0
    thresholds = tuple(np.round(0.0005 * np.arange(1, 31), 4).tolist())
    printed = (0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.015)
    sweeps: ClassVar = {
        Setting.trained: Sweep(thresholds),
        Setting.published: Sweep(thresholds),
        Setting.adaptive: Sweep(thresholds[1::4], ("none", "leave_one_out")),
    }
    baseline = Baseline("full_gp", "Full GP", FULL_GP_VAN_DER_POL)
    smse_scale = "log"


class BuildingSweep(ThresholdSweep):
    """Building at 0.05 to 0.25 K."""

    name, title = "figure_building", "Building: the error threshold"
    tasks = (BuildingTask.name,)
    weight = 0.7
    thresholds = tuple(np.round(0.025 * np.arange(2, 11), 3).tolist())
    printed = thresholds
    sweeps: ClassVar = {
        Setting.trained: Sweep(thresholds),
        Setting.adaptive: Sweep(thresholds[:7:2], ("none", "leave_one_out")),  # above 0.2 K it takes minutes
    }
    baseline = Baseline("vfe", "VFE, 100 inducing inputs", VFE_BUILDING)
    smse_scale = "linear"
