"""What a study is, how much is computed, what identifies a result, and where the results of single units are kept."""

import ast
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib.figure import Figure

from experiments.plots.frames import quantiles, significant
from experiments.studies.tasks import TASKS, YEAR
from sysid import store

STREAM_STUDIES = ("table_2", "table_3", "table_4", "figure_van_der_pol", "figure_building", "grid")  # share their runs
ROOT = Path(__file__).parents[2]
#: what decides a number, as paths of the toolbox: folders with their modules and tables, single files
COMPUTING = ("sysid", "simulators", "experiments/studies", "experiments/benchmarks")
#: modules of the studies that only show or judge what was computed
SHOWING = {f"experiments/studies/{name}.py" for name in ("claims", "guidelines", "report", "verdict")}
#: what `quick` computes
QUICK: dict[str, Any] = {
    "budget": 12,
    "n_initial": 20,
    "most_rows": 40,
    "building_samples": 1201,
    "inducing_points": 10,
    "sparse_iterations": 5,
    "table_sizes": (20, 40),
    "repetitions": 5,
}
QUICK_SEEDS = 2  # at most


class Unit(NamedTuple):
    """What is computed in one go; its result is kept in a file of its own."""

    study: str
    task: str  # "" for a study without tasks
    seed: int = 0


@cache
def digest_code(root: Path = ROOT) -> str:
    """Digest of the code that computes, without comments and docstrings, of the printed tables, and of the packages."""
    found = hashlib.sha256(json.dumps(store.package_versions(), sort_keys=True).encode())
    for path in sorted(path for folder in COMPUTING for path in (root / folder).rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.suffix == ".csv":
            found.update(name.encode() + path.read_bytes())
        elif path.suffix == ".py" and name not in SHOWING:
            found.update(f"{name} {_dump(path.read_text(encoding='utf-8'))}".encode())
    return found.hexdigest()


def _dump(source: str) -> str:
    """Syntax tree of a module as text, docstrings left out."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


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
    table_sizes: tuple[int, ...] = (20, 50, 100, 200, 500, 1000, 2000)  # points, of table 1
    repetitions: int = 1000  # evaluations of a criterion, of table 1
    most_rows: int = 1_000_000  # of a stream, and of the test rows
    quick: bool = False  # a run that only shows that everything works
    records: tuple[tuple[str, str], ...] = ()  # tasks with measured records, and the digest of these
    code: str = field(default_factory=digest_code)

    @property
    def fingerprint(self) -> str:
        """Digest of settings, code and packages: equal ones give equal numbers. The records stand in `path_of`."""
        settings = {name: value for name, value in asdict(self).items() if name not in {"folder", "tasks", "records"}}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def parts(self) -> Path:
        """Folder of the results of single units: another version, or other settings, have another folder."""
        return self.folder / "parts" / self.fingerprint

    def shorten(self) -> "Plan":
        """Choose sizes that only show that everything works."""
        return replace(self, quick=True, seeds=min(self.seeds, QUICK_SEEDS), **QUICK)

    def select(self, tasks: Sequence[str]) -> "Plan":
        """Choose tasks."""
        return replace(self, tasks=tuple(tasks))

    def path_of(self, unit: Unit) -> Path:
        """File of a unit; other records have another name."""
        records = dict(self.records).get(unit.task)
        return self.parts / unit.study / "-".join(filter(None, (unit.task or "all", records, f"{unit.seed}.nc")))

    def read_stores(self, names: Sequence[str]) -> dict[str, xr.Dataset]:
        """Stores of studies that are in the folder; those of another version or of other settings are left out.

        Raises
        ------
        sysid.StoreError
            A store that cannot be read.
        """
        paths = {name: self.folder / f"{name}.nc" for name in names}
        found = {name: store.read(path, kind="study") for name, path in paths.items() if path.is_file()}
        return {name: each for name, each in found.items() if self.is_mine(each)}

    def is_mine(self, study: xr.Dataset) -> bool:
        """Whether a store is of this version, these settings and these records."""
        records = json.loads(study.attrs.get("records", "{}"))
        own = dict(self.records)
        has_same = all(own.get(task, digest) == digest for task, digest in records.items())
        return study.attrs.get("fingerprint") == self.fingerprint and has_same

    def is_kept(self, unit: Unit) -> bool:
        """Whether the result of a unit is there."""
        return self.path_of(unit).is_file()


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
        raise store.StoreError(f"{error}; or delete it, and the same command computes it again") from error


# --- studies --------------------------------------------------------------------------------------


class Study(ABC):
    """One table or figure of the paper."""

    name: ClassVar[str]  # how the configuration calls it
    title: ClassVar[str]
    tasks: ClassVar[tuple[str, ...]] = tuple(TASKS)  # that it looks at; none: one unit without a task
    weight: ClassVar[float] = 1.0  # about how long one seed of a static function takes [s]
    needs: ClassVar[tuple[str, ...]] = ()  # studies whose stores it reads
    template: ClassVar[str] = ""  # name of the report's template, where it is not that of the study

    def units(self, plan: Plan) -> list[Unit]:
        """One unit per task and seed that gives other rows."""
        names = [name for name in plan.tasks if name in self.tasks]
        return [Unit(self.name, name, seed) for name in names for seed in TASKS[name].seeds(plan.seeds)]

    @abstractmethod
    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Compute one unit; runs in a worker process of one thread."""

    @abstractmethod
    def combine(self, plan: Plan) -> xr.Dataset:
        """Store of all units that are kept; tasks without data are there, with nan."""

    @abstractmethod
    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Rows of the CSV file: medians over seeds."""

    @abstractmethod
    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Markdown that stands in the places of these names in the template of the report."""

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """File name (without ending) to the function that draws it."""
        return {}

    def kept(self, plan: Plan) -> dict[Unit, xr.Dataset]:
        """Results of the units that are kept."""
        return {unit: read_part(unit, plan) for unit in self.units(plan) if plan.is_kept(unit)}


def frame_of_parts(parts: Mapping[Unit, xr.Dataset]) -> pd.DataFrame:
    """Outcomes of all parts in long form, with the columns ``dataset`` (title) and ``seed``."""
    frames = [
        part.to_dataframe().assign(dataset=TASKS[unit.task].title, seed=unit.seed) for unit, part in parts.items()
    ]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def spread_out(frame: pd.DataFrame, coordinates: Mapping[str, Sequence[Any]], names: Sequence[str]) -> xr.Dataset:
    """Columns of a long frame over coordinates; nan, or an empty text, where it has no row."""
    shape = [len(values) for values in coordinates.values()]
    places = [] if frame.empty else [pd.Index(x).get_indexer(frame[dim]) for dim, x in coordinates.items()]
    found = {}
    for name in names:
        is_text = name in frame and not pd.api.types.is_numeric_dtype(frame[name])
        values = np.full(shape, "", dtype=object) if is_text else np.full(shape, np.nan)
        if not frame.empty:
            values[tuple(places)] = frame[name].to_numpy()
        found[name] = ([*coordinates], values.astype(str) if is_text else values)
    return xr.Dataset(found, coords=coordinates)


def mark_least(rows: pd.DataFrame, texts: Sequence[str], by: Sequence[str], name: str = "smse") -> list[str]:
    """Texts of rows, bold where a column is the least of its group."""
    is_least = rows[name] == rows.groupby(list(by))[name].transform("min")
    return [f"**{text}**" if bold else text for text, bold in zip(texts, is_least, strict=True)]


def part_of(rows: Sequence[Mapping[str, object]]) -> xr.Dataset:
    """Rows of outcomes as a data set over ``run``: texts and numbers that a file gives back as they were."""
    columns = {name: values.to_numpy() for name, values in pd.DataFrame(list(rows)).items()}
    is_text = {name: values.dtype.kind not in "fib" for name, values in columns.items()}
    return xr.Dataset({n: ("run", x.astype(str) if is_text[n] else x) for n, x in columns.items()})


def summarise(store: xr.Dataset, names: Sequence[str], *, over: str = "seed") -> pd.DataFrame:
    """One row per place of a store: median of the variables, ``<name>_lower_quartile``, ``<name>_upper_quartile``,
    and ``n_seeds`` with a value of the first variable; places without any value are there, with nan."""
    dims = [str(dim) for dim in store[names[0]].dims if dim != over]
    index = pd.MultiIndex.from_product([store[dim].values.tolist() for dim in dims], names=dims)
    columns: dict[str, np.ndarray] = {}
    for name in names:
        low, middle, high = quantiles(store[name].transpose(*dims, over).values)
        columns |= {name: middle.ravel(), f"{name}_lower_quartile": low.ravel(), f"{name}_upper_quartile": high.ravel()}
    columns["n_seeds"] = store[names[0]].transpose(*dims, over).notnull().sum(over).values.ravel()
    return pd.DataFrame(columns, index=index).reset_index()


def with_quartiles(row: pd.Series, name: str) -> str:
    """``median [lower quartile, upper quartile]``; the median alone for one seed."""
    if not row["n_seeds"]:
        return "no data"
    texts = [significant(row[name + ending]) for ending in ("", "_lower_quartile", "_upper_quartile")]
    return f"{texts[0]} [{texts[1]}, {texts[2]}]" if row["n_seeds"] > 1 else texts[0]
