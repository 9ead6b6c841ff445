"""Table 1: what one evaluation of a criterion costs as published, and all N scores our way."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from experiments.benchmarks.machine import describe, machine
from experiments.benchmarks.score_cost import (
    COMPILED,
    CRITERIA,
    PUBLISHED,
    WAYS,
    exponent,
    rounds_for,
    score_seconds,
)
from experiments.studies.plan import Plan
from experiments.studies.published_table import published_rows
from experiments.studies.study import Study, Unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = (20, 100)  # points, of the published table
NOTES = """
Times of one evaluation: medians, in milliseconds. *One point* factorises the set without it, as the paper does (the
covariances are given; LAPACK by SciPy); *all points* gives the scores of all N points with the candidate, from the
cached factor: in NumPy, and compiled as the online GP does it. *Gain*: N evaluations the published way over all scores
compiled. Both ways give the same numbers. The published milliseconds were measured on another machine. Exponents: slope
of log time over log N from 200 points on; that of one point, for all N add one.
"""


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
        head = ["criterion", "N", "one point, published [ms]", "one point, ours of that way [ms]"]
        head += ["all points, NumPy [ms]", "all points, compiled [ms]", "gain"]
        lines = [_line(head), _line(["---"] * len(head))]
        lines += [_line(_cells(row)) for row in self.rows(store) if row["points"] in SHOWN]
        lines += ["", _line(["exponent of growth", *WAYS]), _line(["---"] * 4)]
        for name in CRITERIA:
            values = [f"{float(store['exponent'].sel(criterion=name, way=way)):.2f}" for way in WAYS]
            lines.append(_line([name, *values]))
        load = f"Load of the machine before and after: {store.attrs['load_before']}, {store.attrs['load_after']}."
        return "\n".join([*lines, NOTES, f"{store.attrs['machine']}. {load}", ""])

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
    times = [f"{row[name]:.3g}" for name in ("published_ms", *(f"{way}_ms" for way in WAYS), "gain")]
    return [str(row["criterion"]), str(row["points"]), *times]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
