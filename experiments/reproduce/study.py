"""The base class of the studies, the settings of all studies, and the results of single units."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from experiments.drawing.style import LABELS
from experiments.drawing.tables import quantiles, significant, to_markdown
from experiments.files.identity import code_digest, key_of
from experiments.reproduce import paper
from experiments.reproduce.tasks import PAPER_TASKS, STUDY_TASKS, YEAR_SAMPLES
from sysid import store

# Units of quantities; those that are not listed have the unit 1.
QUANTITY_UNITS = {
    "nlpd": "nat",
    "predict_us": "us",
    "seconds": "s",
    "train_seconds": "s",
    "size_bytes": "byte",
}
# Quantities in the unit of the target or its square: the studies set it.
QUANTITIES_IN_TARGET_UNITS = {"mean_variance", "threshold", "rmse", "width_95", "crps"}
# Settings of a plan that change no number of a unit, or stand in the name of its file.
NOT_IN_FINGERPRINT = {"folder", "tasks", "records", "has_default_seeds"}


class Unit(NamedTuple):
    """The smallest piece of work of a study; its result is kept in its own file."""

    study: str
    task: str  # "" for a study without tasks
    seed: int = 0
    part: str = ""  # name of the part of the work for this task and seed; "" if it is all of it


def digest_code() -> str:
    """Return a digest of the code without comments, the packages, and the printed tables."""
    printed = [paper.read_table(name).to_csv() for name in paper.PRINTED_TABLES]
    return key_of({"code": code_digest(), "printed": printed})


@dataclass(frozen=True)
class Plan:
    """Settings of all studies; `fingerprint` depends on all settings that change a number."""

    folder: Path
    tasks: tuple[str, ...]  # names of the tasks
    seeds: int = 10  # number of seeds of each random task
    has_default_seeds: bool = False  # whether nobody gave their number
    budget: int = 100  # points of the online GP
    n_initial: int = 100  # samples before the stream
    building_samples: int = YEAR_SAMPLES
    inducing_points: int = 100
    sparse_iterations: int = 150  # largest number of iterations of a sparse GP
    table_sizes: tuple[int, ...] = (20, 50, 100, 200, 500, 1000, 2000)  # numbers of points, table 1
    repetitions: int = 1000  # evaluations of a criterion for table 1
    most_rows: int = 1_000_000  # largest number of rows of a stream, and of test rows
    quick: bool = False  # a run that only shows that everything works
    records: tuple[tuple[str, str], ...] = ()  # tasks with measured records, and their digests
    code: str = field(default_factory=digest_code)

    @property
    def fingerprint(self) -> str:
        """Digest of settings, code and packages; plans with the same digest give the same numbers.

        The digests of the measured records are part of `path_of` instead.
        """
        settings = {
            name: value for name, value in asdict(self).items() if name not in NOT_IN_FINGERPRINT
        }
        return key_of(settings)[:16]

    @property
    def parts(self) -> Path:
        """Folder of the results of single units; it differs between versions and settings."""
        return self.folder / "parts" / self.fingerprint

    def shorten(self) -> "Plan":
        """Return a plan with sizes that only show that everything works."""
        return replace(
            self,
            quick=True,
            seeds=min(self.seeds, 2),
            budget=12,
            n_initial=20,
            most_rows=40,
            building_samples=1201,
            inducing_points=10,
            sparse_iterations=5,
            table_sizes=(20, 40),
            repetitions=5,
        )

    def path_of(self, unit: Unit) -> Path:
        """Return the file of a unit; its name has the digest of the measured records."""
        records = dict(self.records).get(unit.task)
        parts = [unit.task or "all", records, unit.part, f"{unit.seed}.nc"]
        return self.parts / unit.study / "-".join(part for part in parts if part)

    def is_kept(self, unit: Unit) -> bool:
        """Return whether the result of a unit is kept."""
        return self.path_of(unit).is_file()

    def read_stores(self, names: Sequence[str]) -> dict[str, xr.Dataset]:
        """Read the stores of these studies that are in the folder.

        Stores of another version, of other settings or of other records are left out.

        Raises
        ------
        sysid.StoreError
            A store cannot be read.
        """
        found = {}
        for name in names:
            path = self.folder / f"{name}.nc"
            if not path.is_file():
                continue
            study = store.read(path, kind="study")
            records = dict(self.records) | json.loads(study.attrs.get("records", "{}"))
            has_same_records = all(records[task] == digest for task, digest in self.records)
            if has_same_records and study.attrs.get("fingerprint") == self.fingerprint:
                found[name] = study
        return found


def write_part(dataset: xr.Dataset, unit: Unit, plan: Plan) -> None:
    """Keep the result of a unit."""
    path = plan.path_of(unit)
    path.parent.mkdir(parents=True, exist_ok=True)
    store.write(dataset, path, kind="study", attributes={"fingerprint": plan.fingerprint})


def read_part(unit: Unit, plan: Plan) -> xr.Dataset:
    """Read the result of a unit.

    Raises
    ------
    sysid.StoreError
        The file does not exist, or is damaged.
    """
    try:
        return store.read(plan.path_of(unit), kind="study")
    except store.StoreError as error:
        raise store.StoreError(
            f"{error}; or delete it, and the same command computes it again"
        ) from error


# --- studies --------------------------------------------------------------------------------------


class Study:
    """One table or figure of the paper.

    To add one, write a subclass with `compute`, the `axes` and `quantities` of its rows, an entry
    of ``IN_REPORT_ORDER`` in `experiments/reproduce/studies.py`, and a text with ``$rows`` in
    ``text/``; override the methods whose results shall differ.
    """

    name: str  # name in the configuration, and of the study's files
    title: str
    tasks: ClassVar[tuple[str, ...]] = tuple(PAPER_TASKS)  # tasks for which it is computed
    is_prepared: ClassVar[bool] = True  # whether it needs the hyper-parameters of preparations
    is_among_all: ClassVar[bool] = True  # whether study=all computes it
    needs: ClassVar[tuple[str, ...]] = ()  # studies whose stores it reads
    template: ClassVar[str] = ""  # name of its text; empty: that of the study
    quantities: ClassVar[tuple[str, ...]] = ()  # columns of numbers in the rows of `compute`
    # Whether the results of measured records depend on the seed, too.
    has_random_records: ClassVar[bool] = False

    def units(self, plan: Plan) -> list[Unit]:
        """Return a unit for every task and every seed that gives another result."""
        units = []
        for task in plan.tasks:
            if task in self.tasks:
                seeds = STUDY_TASKS[task].seeds(plan.seeds)
                if self.has_random_records:
                    seeds = tuple(range(plan.seeds))
                units += [Unit(self.name, task, seed) for seed in seeds]
        return units

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Compute one unit, mostly as rows (`part_of`), in a worker process of one thread."""
        raise NotImplementedError

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        """Return the coordinates of the store except the seed.

        They are columns of the rows, with their values in order.
        """
        return {"dataset": [STUDY_TASKS[task].title for task in plan.tasks if task in self.tasks]}

    def combine(self, plan: Plan) -> xr.Dataset:
        """Return the store: all units that are kept, over the axes and the seed.

        Tasks without data are nan.
        """
        parts = {unit: read_part(unit, plan) for unit in self.units(plan) if plan.is_kept(unit)}
        store = spread_out(
            frame_of_parts(parts),
            self.axes(plan) | {"seed": range(plan.seeds)},
            self.quantities,
        )
        for name in self.quantities:
            if name not in QUANTITIES_IN_TARGET_UNITS:
                store[name].attrs["units"] = QUANTITY_UNITS.get(name, "1")
        return store

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Return the rows of the CSV file: medians and quartiles over seeds."""
        found = summarise(store, self.quantities)
        return found[found["n_seeds"] > 0]

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Return the Markdown text of each placeholder of the template, by its name."""
        rows = self.rows(store)
        text = to_markdown(round_numbers(rows))
        if "dataset" in store.dims:
            known = set(rows["dataset"])
            gaps = [name for name in store["dataset"].values.tolist() if name not in known]
            if gaps:
                text = f"{text}\n\nNo data: {', '.join(gaps)}."
        return {"rows": text}

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Return functions that draw the figures, by file name without ending."""
        return {}


def round_numbers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table whose floating-point numbers are texts with significant digits."""
    return frame.map(lambda cell: significant(cell) if isinstance(cell, float) else cell)


def part_of(rows: Sequence[Mapping[str, object]]) -> xr.Dataset:
    """Return rows of results as a data set over ``run``.

    Columns are texts or numbers, which come back from a file unchanged.
    """
    variables = {}
    for name, column in pd.DataFrame(list(rows)).items():
        values = column.to_numpy()
        is_numeric = values.dtype.kind in "fib"
        variables[name] = ("run", values if is_numeric else values.astype(str))
    return xr.Dataset(variables)


def frame_of_parts(parts: Mapping[Unit, xr.Dataset]) -> pd.DataFrame:
    """Return the rows of all parts in long form, with their ``seed`` and ``dataset``.

    A dataset that the rows do not name is the title of the task.
    """
    frames = []
    for unit, part in parts.items():
        columns = {"dataset": STUDY_TASKS[unit.task].title, "seed": unit.seed}
        frames.append(pd.DataFrame(columns | part.to_dataframe().to_dict("series")))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def spread_out(
    frame: pd.DataFrame, coordinates: Mapping[str, Sequence[Any]], names: Sequence[str]
) -> xr.Dataset:
    """Return columns of a long frame over coordinates.

    Cells without a row are nan, or an empty text.
    """
    dims = [*coordinates]
    index = pd.MultiIndex.from_product(coordinates.values(), names=dims)
    shape = [len(values) for values in coordinates.values()]
    wide = frame.reindex(columns=[*dims, *names]).set_index(dims).reindex(index)
    variables = {}
    for name in names:
        is_text = name in frame and not pd.api.types.is_numeric_dtype(frame[name])
        if is_text:
            values = wide[name].fillna("").astype(str).to_numpy().reshape(shape).astype(str)
        else:
            values = wide[name].astype(float).to_numpy().reshape(shape).astype(float)
        variables[name] = (dims, values)
    return xr.Dataset(variables, coords={name: [*values] for name, values in coordinates.items()})


def mark_least(
    rows: pd.DataFrame, texts: Sequence[str], by: Sequence[str], name: str = "smse"
) -> list[str]:
    """Return texts of rows, bold where a column is the smallest of its group, up to rounding."""
    smallest = rows.groupby(list(by))[name].transform("min")
    is_least = rows[name] <= smallest * (1 + 1e-6)
    return [f"**{text}**" if bold else text for text, bold in zip(texts, is_least, strict=True)]


def with_quartiles(rows: pd.DataFrame, name: str) -> list[str]:
    """Return ``median [lower quartile, upper quartile]`` of every summarised row.

    A row of one seed has the median alone.
    """
    levels = rows[[name, f"{name}_lower_quartile", f"{name}_upper_quartile"]].map(significant)
    texts = zip(levels.itertuples(index=False), rows["n_seeds"], strict=True)
    return [f"{middle} [{low}, {high}]" if n > 1 else middle for (middle, low, high), n in texts]


def pivot(rows: pd.DataFrame, index: Sequence[str], columns: str) -> str:
    """Return a Markdown table of the column ``text``.

    Index and columns keep the order of the rows; criteria have their labels.
    """
    wide = rows.pivot_table("text", list(index), columns, aggfunc="first", sort=False)
    return to_markdown(wide.rename(index=LABELS, columns=LABELS).reset_index().fillna(""))


def pivot_by(rows: pd.DataFrame, by: Sequence[str], index: Sequence[str], columns: str) -> str:
    """Return a Markdown section with its `pivot` for each group of rows."""
    groups = rows.groupby(list(by), sort=False)
    return "\n\n".join(
        f"## {', '.join(map(str, name))}\n\n{pivot(part, index, columns)}" for name, part in groups
    )


def summarise(store: xr.Dataset, names: Sequence[str]) -> pd.DataFrame:
    """Return one row per cell of a store: medians and quartiles over the seeds.

    The columns are the variables (medians), ``<name>_lower_quartile``, ``<name>_upper_quartile``,
    and ``n_seeds``, the number of seeds with a value of the first variable. A cell without any
    value is nan.
    """
    dims = [str(dim) for dim in store[names[0]].dims if dim != "seed"]
    index = pd.MultiIndex.from_product([store[dim].values.tolist() for dim in dims], names=dims)
    values = store[[*names]].to_array().transpose("variable", *dims, "seed").values
    levels = np.moveaxis(quantiles(values, (0.5, 0.25, 0.75)), 0, 1).reshape(3 * len(names), -1)
    columns = [
        name + ending for name in names for ending in ("", "_lower_quartile", "_upper_quartile")
    ]
    frame = pd.DataFrame(levels.T, index, columns)
    return frame.assign(n_seeds=np.isfinite(values[0]).sum(axis=-1).ravel()).reset_index()
