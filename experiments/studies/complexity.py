"""Table 1: what one evaluation of a criterion costs as published, and all N scores our way."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from experiments.benchmark_folder.markdown import table
from experiments.benchmarks.harness import describe, machine
from experiments.benchmarks.scores import (
    COMPILED,
    CRITERIA,
    PUBLISHED,
    WAYS,
    exponent,
    rounds_for,
    score_seconds,
)
from experiments.studies.label import LABELS
from experiments.studies.plan import Plan
from experiments.studies.published_table import published_rows
from experiments.studies.significant import significant
from experiments.studies.study import Study, Unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = (20, 100)  # points, of the published table
TIMES_HEAD = (
    "criterion",
    "N",
    "one point, published",
    "one point",
    "all points, NumPy",
    "all points, compiled",
    "gain",
)
TIMES_NOTE = """Median times of one evaluation in milliseconds. *One point* factorises the set of N points without
it, as the paper does (the covariances are given; LAPACK by SciPy); the published milliseconds are from another
machine. *All points* gives the scores of all N points with the candidate from the cached factor: in NumPy, and
compiled as the online GP does it. Both ways give the same numbers. *Gain*: time of N evaluations for one point each
over that of all scores, compiled."""
GROWTH_NOTE = """Exponents of growth: slope of log time over log N from 200 points on. *One point* is a single
evaluation: for the scores of all N points add one."""


class ComplexityStudy(Study):
    """Time of the five criteria over the number of points, the published way and ours."""

    name, title, tasks = "table_1", "Table 1: cost of the criteria", ()
    weight = 30.0

    def units(self, plan: Plan) -> list[Unit]:
        """One: all ways take turns in one process."""
        return [Unit(self.name, "")]

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Quartiles of the seconds of one call (quartile, way, criterion, points), and the machine they are from."""
        before = machine()["load"]
        shape = (3, len(WAYS), len(CRITERIA), len(plan.table_sizes))
        coords = {"quartile": [0.25, 0.5, 0.75], "way": list(WAYS), "criterion": list(CRITERIA)}
        seconds = xr.DataArray(np.empty(shape), {**coords, "points": list(plan.table_sizes)}, (*coords, "points"))
        for size in plan.table_sizes:
            for (way, name), values in score_seconds(size, rounds_for(size, plan.repetitions), unit.seed).items():
                seconds.loc[:, way, name, size] = np.quantile(values, seconds["quartile"])
        facts = machine()
        attributes = {
            "machine": describe(facts),
            "load_before": before or np.nan,
            "load_after": facts["load"] or np.nan,
        }
        return xr.Dataset({"seconds": seconds.assign_attrs(units="s")}, attrs=attributes)

    def combine(self, parts: Mapping[Unit, xr.Dataset], plan: Plan) -> xr.Dataset:
        """The one part, with the published seconds and the exponents of growth."""
        (store,) = parts.values()
        published = store["seconds"].isel(quartile=0, way=0, drop=True) * np.nan
        for name, row in published_rows("table_1").items():
            for size in set(SHOWN) & set(plan.table_sizes):
                published.loc[name, size] = 1e-3 * row[f"median_ms_n{size}"]
        slopes = xr.apply_ufunc(
            lambda values: exponent(store["points"].values, values),
            store["seconds"].sel(quartile=0.5, drop=True),
            input_core_dims=[["points"]],
            vectorize=True,
        )
        return store.assign(seconds_published=published.assign_attrs(units="s"), exponent=slopes)

    def rows(self, store: xr.Dataset) -> list[dict[str, object]]:
        """One row per criterion and number of points, times in milliseconds."""
        return [_row(store.sel(criterion=name, points=size)) for name in CRITERIA for size in store["points"].values]

    def markdown(self, store: xr.Dataset) -> str:
        """Published sizes, then exponents."""
        times = table(TIMES_HEAD, [_cells(row) for row in self.rows(store) if row["points"] in SHOWN])
        exponents = store["exponent"]
        growth = table(
            ["criterion", "one point", "all points, NumPy", "all points, compiled"],
            [
                [LABELS[name], *(f"{float(exponents.sel(criterion=name, way=way)):.2f}" for way in WAYS)]
                for name in CRITERIA
            ],
        )
        load = f"Load of the machine before and after: {store.attrs['load_before']}, {store.attrs['load_after']}."
        machine_line = f"Machine: {store.attrs['machine']}. {load}"
        return "\n\n".join([TIMES_NOTE, times, GROWTH_NOTE, growth, machine_line])

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], "Figure"]]:
        """Time over number of points."""

        def draw() -> "Figure":
            from experiments.studies.complexity_figure import cost_figure

            return cost_figure(store)

        return {"table_1": draw}


def _row(cell: xr.Dataset) -> dict[str, object]:
    """Times [ms] of one criterion and number of points."""
    median = {way: 1e3 * float(cell["seconds"].sel(quartile=0.5, way=way)) for way in WAYS}
    points = int(cell["points"])
    return {
        "criterion": str(cell["criterion"].values),
        "points": points,
        "published_ms": 1e3 * float(cell["seconds_published"]),
        **{f"{way}_ms": value for way, value in median.items()},
        "gain": points * median[PUBLISHED] / median[COMPILED],
    }


def _cells(row: Mapping[str, object]) -> list[str]:
    values = (float(row[name]) for name in ("published_ms", *(f"{way}_ms" for way in WAYS), "gain"))  # type: ignore[arg-type]
    return [LABELS[str(row["criterion"])], str(row["points"]), *map(significant, values)]
