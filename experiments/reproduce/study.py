"""What a study is, how much is computed, what identifies a result, and where the results of single
units are kept.
"""

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
from experiments.reproduce.tasks import PAPER_TASKS, TASKS, YEAR
from sysid import store

UNITS = {
    "nlpd": "nat",
    "predict_us": "us",
    **dict.fromkeys(("seconds", "train_seconds"), "s"),
}
UNITS |= {"size_bytes": "byte"}  # of quantities; others have 1


class Unit(NamedTuple):
    """What is computed in one go; its result is kept in a file of its own."""

    study: str
    task: str  # "" for a study without tasks
    seed: int = 0


def digest_code() -> str:
    """Digest of the code that computes, without comments and docstrings, of the packages, and of
    the printed tables.
    """
    return key_of(
        {
            "code": code_digest(),
            "printed": [paper.read_table(name).to_csv() for name in paper.TABLES],
        }
    )


@dataclass(frozen=True)
class Plan:
    """Settings of all studies; whatever changes a number is part of `fingerprint`."""

    folder: Path
    tasks: tuple[str, ...]  # names of the tasks
    seeds: int = 10  # of the tasks that are random
    budget: int = 100  # points of the online GP
    n_initial: int = 100  # samples before the stream
    building_samples: int = YEAR
    inducing_points: int = 100
    sparse_iterations: int = 150  # of the sparse GPs, at most
    table_sizes: tuple[int, ...] = (
        20,
        50,
        100,
        200,
        500,
        1000,
        2000,
    )  # points, of table 1
    repetitions: int = 1000  # evaluations of a criterion, of table 1
    most_rows: int = 1_000_000  # of a stream, and of the test rows
    quick: bool = False  # a run that only shows that everything works
    records: tuple[
        tuple[str, str], ...
    ] = ()  # tasks with measured records, and the digest of these
    code: str = field(default_factory=digest_code)

    @property
    def fingerprint(self) -> str:
        """Digest of settings, code and packages: equal ones give equal numbers. The records stand
        in `path_of`.
        """
        settings = {
            name: value
            for name, value in asdict(self).items()
            if name not in {"folder", "tasks", "records"}
        }
        return key_of(settings)[:16]

    @property
    def parts(self) -> Path:
        """Folder of the results of single units: another version, or other settings, have another
        folder.
        """
        return self.folder / "parts" / self.fingerprint

    def shorten(self) -> "Plan":
        """Choose sizes that only show that everything works."""
        seeds = min(self.seeds, 2)
        sizes = (20, 40)
        small = replace(
            self,
            quick=True,
            seeds=seeds,
            budget=12,
            n_initial=20,
            most_rows=40,
            building_samples=1201,
        )
        return replace(
            small,
            inducing_points=10,
            sparse_iterations=5,
            table_sizes=sizes,
            repetitions=5,
        )

    def path_of(self, unit: Unit) -> Path:
        """File of a unit; other records have another name."""
        records = dict(self.records).get(unit.task)
        return (
            self.parts
            / unit.study
            / "-".join(filter(None, (unit.task or "all", records, f"{unit.seed}.nc")))
        )

    def is_kept(self, unit: Unit) -> bool:
        """Whether the result of a unit is there."""
        return self.path_of(unit).is_file()

    def read_stores(self, names: Sequence[str]) -> dict[str, xr.Dataset]:
        """Read the stores of studies that are in the folder.

        Those of another version, settings or records are left out.

        Raises
        ------
        sysid.StoreError
            A store that cannot be read.
        """
        found = {}
        for name in names:
            if (path := self.folder / f"{name}.nc").is_file():
                study = store.read(path, kind="study")
                records = dict(self.records) | json.loads(study.attrs.get("records", "{}"))
                is_same = all(records[task] == digest for task, digest in self.records)
                if is_same and study.attrs.get("fingerprint") == self.fingerprint:
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
        No file, or a damaged one.
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
    of ``ALL`` in `experiments/reproduce/studies.py`, and a text with ``$rows`` in ``text/``;
    override what shall look otherwise.
    """

    name: str  # how the configuration calls it
    title: str
    tasks: ClassVar[tuple[str, ...]] = tuple(PAPER_TASKS)  # that it looks at
    is_prepared: ClassVar[bool] = True  # whether it takes hyper-parameters that were found before
    needs: ClassVar[tuple[str, ...]] = ()  # studies whose stores it reads
    template: ClassVar[str] = ""  # name of the report's template, where it is not that of the study
    quantities: ClassVar[
        tuple[str, ...]
    ] = ()  # columns of numbers of the rows that `compute` makes
    has_random_records: ClassVar[bool] = (
        False  # whether seeds give other results of measured records too
    )

    def units(self, plan: Plan) -> list[Unit]:
        """One unit per task and seed that gives other results."""
        names = [name for name in plan.tasks if name in self.tasks]
        every = range(plan.seeds)
        seeds = {
            name: every if self.has_random_records else TASKS[name].seeds(plan.seeds)
            for name in names
        }
        return [Unit(self.name, name, seed) for name in names for seed in seeds[name]]

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Compute one unit, as rows (`part_of`) mostly; runs in a worker process of one thread."""
        raise NotImplementedError

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        """Coordinates of the store, besides the seed: columns of the rows, and their values in
        order.
        """
        return {"dataset": [TASKS[task].title for task in plan.tasks if task in self.tasks]}

    def combine(self, plan: Plan) -> xr.Dataset:
        """Store of all units that are kept, over the axes and the seed; tasks without data are
        there, with nan.
        """
        parts = {unit: read_part(unit, plan) for unit in self.units(plan) if plan.is_kept(unit)}
        store = spread_out(
            frame_of_parts(parts),
            self.axes(plan) | {"seed": range(plan.seeds)},
            self.quantities,
        )
        for name in {*self.quantities} - {
            "mean_variance",
            "threshold",
        }:  # those have the unit of the target
            store[name].attrs["units"] = UNITS.get(name, "1")
        return store

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Rows of the CSV file: medians and quartiles over seeds."""
        found = summarise(store, self.quantities)
        return found[found["n_seeds"] > 0]

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Markdown that stands in the places of these names in the template of the report."""
        rows = self.rows(store)
        names = store["dataset"].values.tolist() if "dataset" in store.dims else []
        gaps = [name for name in names if name not in set(rows["dataset"])]
        text = to_markdown(rows.map(lambda x: significant(x) if isinstance(x, float) else x))
        return {"rows": f"{text}\n\nNo data: {', '.join(gaps)}." if gaps else text}

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """File name (without ending) to the function that draws it."""
        return {}


def part_of(rows: Sequence[Mapping[str, object]]) -> xr.Dataset:
    """Rows of outcomes as a data set over ``run``: texts and numbers that a file gives back as they
    were.
    """
    columns = {name: values.to_numpy() for name, values in pd.DataFrame(list(rows)).items()}
    return xr.Dataset(
        {n: ("run", x if x.dtype.kind in "fib" else x.astype(str)) for n, x in columns.items()}
    )


def frame_of_parts(parts: Mapping[Unit, xr.Dataset]) -> pd.DataFrame:
    """Rows of all parts in long form, with ``seed`` and, where the rows have none, ``dataset``
    (title of the task).
    """
    known = [
        ({"dataset": TASKS[unit.task].title, "seed": unit.seed}, part)
        for unit, part in parts.items()
    ]
    frames = [pd.DataFrame(own | part.to_dataframe().to_dict("series")) for own, part in known]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def spread_out(
    frame: pd.DataFrame, coordinates: Mapping[str, Sequence[Any]], names: Sequence[str]
) -> xr.Dataset:
    """Columns of a long frame over coordinates; nan, or an empty text, where it has no row."""
    index = pd.MultiIndex.from_product(coordinates.values(), names=[*coordinates])
    shape = [len(values) for values in coordinates.values()]
    wide = frame.reindex(columns=[*coordinates, *names]).set_index([*coordinates]).reindex(index)
    found = {}
    for name in names:
        is_text = name in frame and not pd.api.types.is_numeric_dtype(frame[name])
        values = wide[name].fillna("").astype(str) if is_text else wide[name].astype(float)
        found[name] = (
            [*coordinates],
            values.to_numpy().reshape(shape).astype(str if is_text else float),
        )
    return xr.Dataset(found, coords={name: [*values] for name, values in coordinates.items()})


def mark_least(
    rows: pd.DataFrame, texts: Sequence[str], by: Sequence[str], name: str = "smse"
) -> list[str]:
    """Texts of rows, bold where a column is the least of its group, up to rounding."""
    is_least = rows[name] <= rows.groupby(list(by))[name].transform("min") * (1 + 1e-6)
    return [f"**{text}**" if bold else text for text, bold in zip(texts, is_least, strict=True)]


def with_quartiles(rows: pd.DataFrame, name: str) -> list[str]:
    """``median [lower quartile, upper quartile]`` of summarised rows; the median alone for one
    seed.
    """
    levels = rows[[name, f"{name}_lower_quartile", f"{name}_upper_quartile"]].map(significant)
    texts = zip(levels.itertuples(index=False), rows["n_seeds"], strict=True)
    return [f"{middle} [{low}, {high}]" if n > 1 else middle for (middle, low, high), n in texts]


def pivot(rows: pd.DataFrame, index: Sequence[str], columns: str) -> str:
    """Markdown table of the column ``text``, in the order of the rows, criteria by their labels."""
    wide = rows.pivot_table("text", list(index), columns, aggfunc="first", sort=False)
    return to_markdown(wide.rename(index=LABELS, columns=LABELS).reset_index().fillna(""))


def pivot_by(rows: pd.DataFrame, by: Sequence[str], index: Sequence[str], columns: str) -> str:
    """One Markdown section with its `pivot` for each group of rows."""
    groups = rows.groupby(list(by), sort=False)
    return "\n\n".join(
        f"## {', '.join(map(str, name))}\n\n{pivot(part, index, columns)}" for name, part in groups
    )


def summarise(store: xr.Dataset, names: Sequence[str]) -> pd.DataFrame:
    """One row per place of a store: median of the variables, ``<name>_lower_quartile``,
    ``<name>_upper_quartile``, and ``n_seeds`` with a value of the first variable; places without
    any value are there, with nan."""
    dims = [str(dim) for dim in store[names[0]].dims if dim != "seed"]
    index = pd.MultiIndex.from_product([store[dim].values.tolist() for dim in dims], names=dims)
    values = store[[*names]].to_array().transpose("variable", *dims, "seed").values
    levels = np.moveaxis(quantiles(values, (0.5, 0.25, 0.75)), 0, 1).reshape(3 * len(names), -1)
    columns = [
        name + ending for name in names for ending in ("", "_lower_quartile", "_upper_quartile")
    ]
    frame = pd.DataFrame(levels.T, index, columns)
    return frame.assign(n_seeds=np.isfinite(values[0]).sum(axis=-1).ravel()).reset_index()
