"""Work that many jobs share, done once: simulated trajectories and trained hyper-parameters on
disk, by content.

A result lies under the digest of what it depends on; one process computes it while the others wait.
"""

import hashlib
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import xarray as xr
from filelock import FileLock, Timeout

from experiments.files.identity import key_of, trajectory_key
from experiments.plant.live import Simulation
from experiments.plant.measured import Measured
from experiments.plant.plant import Plant
from experiments.plant.source import SAMPLES_PER_BLOCK
from simulators import Sample, Trajectory
from sysid import (
    Hyperparameters,
    InitialSamples,
    MeanFunction,
    Start,
    Training,
    describe,
    store,
)
from sysid.errors import UserError
from sysid.gp.training import Follower
from sysid.model.model_file import start_from_dataset, start_to_dataset

PATIENCE = 900.0  # s that another process may take to compute the same; after that both do
SHOWN = 12  # digits of a key in the log
#: what making content into a file and back may raise
UNUSABLE = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RuntimeError,
)

log = logging.getLogger(__name__)

Content = TypeVar("Content")


class Kind(NamedTuple):
    """What is kept: its name, and how it becomes a data set and back."""

    name: str  # of the folder within the cache
    title: str  # of its files
    to_dataset: Callable[[Any], xr.Dataset]
    from_dataset: Callable[[xr.Dataset], Any]


class Cache:
    """Shared results of one folder, as one job sees them.

    Nothing that is wrong with the folder stops a job or changes its result: what cannot be read is
    computed anew, what cannot be written is computed by every job, and both are said.

    Parameters
    ----------
    folder : Path
        It is made when something is kept.
    patience : float, optional
        Longest time that another process is waited for [s].

    Attributes
    ----------
    counts : dict
        By kind and what happened: ``{"trajectory": {"hits": 1}}``.
    """

    def __init__(self, folder: Path, *, patience: float = PATIENCE) -> None:
        self.folder = folder
        self.patience = patience
        self._warned = False  # that the folder cannot be written to
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def obtain(self, kind: Kind, key: str, compute: Callable[[], Content]) -> Content:
        """Content of a key: read, or computed and kept.

        Raises
        ------
        Exception
            Whatever `compute` raises; then nothing is kept.
        """
        path = self.folder / kind.name / f"{key}.nc"
        with nullcontext() if path.exists() else self._alone(path):
            if (found := self._read(kind, key, path)) is None:
                self.counts[kind.name]["misses"] += 1
                found = compute()
                self._keep(kind, key, path, found)
        return found

    def _read(self, kind: Kind, key: str, path: Path) -> Any:
        """Content of a file of which not a byte has changed; None if there is none."""
        try:
            if not store.is_sealed(path):
                raise UserError("it does not end with the digest of its content")
            dataset = store.from_file(path)
            if dataset.attrs.get("key") != key:
                raise UserError(f"it belongs to the key {dataset.attrs.get('key')!r}")
            content = kind.from_dataset(dataset)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except UNUSABLE as reason:
            log.warning(
                "Note: cache file %s is damaged (%s), its content is computed anew",
                path,
                reason,
            )
            self.counts[kind.name]["damaged"] += 1
            return None
        self.counts[kind.name]["hits"] += 1
        log.info("Cache: %s read (%s)", kind.name, key[:SHOWN])
        return content

    def _keep(self, kind: Kind, key: str, path: Path, content: Any) -> None:
        """Write a NetCDF 4 file, with a digest of all its bytes behind what ncdump and xarray
        read.
        """
        try:
            dataset = kind.to_dataset(content)
            kind.from_dataset(dataset)  # only what can be read back is kept
            path.parent.mkdir(parents=True, exist_ok=True)
            attributes = dataset.attrs | {
                "title": kind.title,
                "source": "sysid",
                "key": key,
                **store.provenance(),
            }
            body = store.to_bytes(dataset.drop_attrs(deep=False).assign_attrs(attributes))
            store.write_bytes(store.seal(body), path)
            log.info("Cache: %s computed and kept (%s)", kind.name, key[:SHOWN])
        except OSError as reason:
            self._cannot_write(reason)
        except UNUSABLE as reason:
            self.counts[kind.name]["left_out"] += 1
            log.debug("Cache: the %s is not kept: %s", kind.name, reason)

    @contextmanager
    def _alone(self, path: Path) -> Iterator[None]:
        """Wait for another process that computes the same; where nothing can be locked, or too
        long, do not.
        """
        lock = FileLock(path.with_suffix(".lock"), timeout=self.patience)
        patience = self.patience
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            log.warning(
                "Note: another process computes for %s since %g s: computed here as well",
                path,
                patience,
            )
        except (OSError, NotImplementedError) as reason:
            self._cannot_write(reason)
        try:
            yield
        finally:
            lock.release()

    def _cannot_write(self, reason: object) -> None:
        if not self._warned:
            lacks = "cannot be written to, every job computes what it lacks"
            log.warning("Note: the cache %s %s: %s", self.folder, lacks, reason)
        self._warned = True


def cache_of(folder: object, *, in_sweep: bool) -> Cache | None:
    """Return the cache in a folder: of a job of a sweep, or any whose folder is named absolutely;
    else None.

    Raises
    ------
    ValueError
        If it is no folder's name.
    """
    if folder is not None and (not isinstance(folder, str) or not folder):
        raise UserError(f"cache must be the name of a folder, or null for none, got {folder!r}")
    if folder is None or not (in_sweep or Path(folder).is_absolute()):
        return None
    return Cache(Path(folder).absolute())


def counts_of(cache: Cache | None) -> dict[str, Any]:
    """Return what the cache did, to stand among the times of a job."""
    if cache is None:
        return {}
    return {
        "cache": {
            name: dict(sorted(counts.items())) for name, counts in sorted(cache.counts.items())
        }
    }


# --- trajectories


Samples = dict[str, np.ndarray]  # of a simulation: the fields of a sample, one row each


def _samples_to_dataset(samples: Samples) -> xr.Dataset:
    """One variable per field of a sample."""
    return xr.Dataset(
        {
            name: (("sample", f"of_{name}")[: values.ndim], values)
            for name, values in samples.items()
        }
    )


def _samples_from_dataset(dataset: xr.Dataset) -> Samples:
    return {name: np.array(dataset[name].values, order="C") for name in Sample._fields}


TRAJECTORY = Kind(
    "trajectory", "Samples of a simulation", _samples_to_dataset, _samples_from_dataset
)


class CachedSimulation(Simulation):
    """Samples from the cache, in the order and with the bits of the live ones.

    Parameters
    ----------
    plant, n_samples, seed
        Of the simulation.
    cache : Cache
    key : str
        Of its trajectory.
    """

    def __init__(self, plant: Plant, n_samples: int, seed: int, *, cache: Cache, key: str) -> None:
        self._plant = plant
        self._n_samples = n_samples
        self._seed = seed
        self._cache = cache
        self._key = key
        self.n_seen = 0
        self._reason: Exception | None = None  # why the simulation broke off

    def until(self, n_samples: int) -> Iterator[Measured]:
        """Deliver the next samples; where the simulation broke off, its error follows its last
        sample.
        """
        samples = self._samples
        n_there = len(self._samples["time"])
        for begin in range(self.n_seen, min(n_samples, n_there), SAMPLES_PER_BLOCK):
            self.n_seen = min(begin + SAMPLES_PER_BLOCK, n_samples, n_there)
            yield Measured(
                samples["output"][begin : self.n_seen],
                samples["input"][begin : self.n_seen],
            )
        if self.n_seen < n_samples and self._reason is not None:
            raise self._reason

    @cached_property
    def _samples(self) -> Samples:
        simulated: list[Sample] = []

        def simulate() -> Samples:
            simulated.extend(self._plant.samples(self._n_samples, self._seed))
            return stack()

        def stack() -> Samples:
            columns = map(np.array, zip(*simulated, strict=True))
            return dict(zip(Sample._fields, columns, strict=True))

        try:
            return self._cache.obtain(TRAJECTORY, self._key, simulate)
        except Exception as reason:
            if not simulated:
                raise
            self._reason = reason
            return stack()

    def record(self) -> Trajectory:
        plant = self._plant
        time, y, u, x, w, y0, clipped = (values[: self.n_seen] for values in self._samples.values())
        return Trajectory(
            plant.system,
            self._seed,
            time,
            u,
            x,
            y,
            y0,
            w,
            plant.interpolation,
            int(clipped.sum()),
        )


def simulate_once(
    configuration: Mapping[str, Any], cache: Cache
) -> Callable[[Plant, int, int], CachedSimulation]:
    """Return what simulates a plant, from its number of samples and the seed, only if no job has
    done so before.

    Parameters
    ----------
    configuration
        Of `sysid-identify`, resolved, as plain data: what of it decides the trajectory is part of
        its key.
    cache
        Where trajectories are kept.
    """

    def simulation(plant: Plant, n_samples: int, seed: int) -> CachedSimulation:
        return CachedSimulation(
            plant,
            n_samples,
            seed,
            cache=cache,
            key=trajectory_key(configuration, n_samples),
        )

    return simulation


# --- training

START = Kind("start", "What a model starts from", start_to_dataset, start_from_dataset)


class CachedTraining(Training):
    """Another training, whose result is kept by the bytes of the samples, its settings and the
    code.

    A training, a mean or something known that cannot be described is not looked up: it trains every
    time.

    Parameters
    ----------
    training : Training
    cache : Cache
    code : str
        Digest of the code that trains.
    """

    def __init__(self, training: Training, cache: Cache, code: str) -> None:
        self.training = training
        self._cache = cache
        self._code = code
        self.n_initial = training.n_initial

    @property
    def replaces(self) -> frozenset[str]:  # type: ignore[override]  # of the training, not of this class
        return self.training.replaces

    @property
    def standardise(self) -> bool:
        return self.training.standardise

    def train(self, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Hyperparameters:
        """Train; only what `prepare` and `know` find is kept."""
        return self.training.train(inputs, targets, seed)

    def follow(self, seed: int) -> Follower | None:
        return self.training.follow(seed)

    def prepare(
        self,
        samples: InitialSamples,
        known: Start,
        *,
        mean: MeanFunction,
        budget: int,
        seed: int,
    ) -> Start:
        compute = partial(
            self.training.prepare, samples, known, mean=mean, budget=budget, seed=seed
        )
        arrays = samples.regressors, samples.targets, samples.follows
        return self._obtain(compute, arrays, known, mean, samples.narx.to_dict(), budget, seed)

    def know(
        self,
        regressors: np.ndarray,
        targets: np.ndarray,
        *,
        mean: MeanFunction,
        seed: int,
    ) -> Start:
        compute = partial(self.training.know, regressors, targets, mean=mean, seed=seed)
        return self._obtain(compute, (regressors, targets), Start(), mean, "record", seed)

    def _obtain(
        self,
        compute: Callable[[], Start],
        arrays: Any,
        known: Start,
        mean: MeanFunction,
        *more: Any,
    ) -> Start:
        try:
            before = start_to_dataset(known)
            numbers = {name: array_digest(v.values) for name, v in before.data_vars.items()}
            content = {
                "samples": array_digest(*arrays),
                "known": [before.attrs, numbers],
                "others": json.dumps(more),
            }
            content |= {
                "training": describe(self.training),
                "mean": describe(mean),
                "code": self._code,
            }
            key = key_of(content)
        except TypeError as reason:
            self._cache.counts[START.name]["left_out"] += 1
            log.debug("Cache: the %s is not kept: %s", START.name, reason)
            return compute()
        return self._cache.obtain(START, key, compute)


def array_digest(*arrays: np.ndarray) -> str:
    """SHA-256 of the types, shapes and bytes of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()
