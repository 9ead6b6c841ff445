"""Results that many jobs share, computed once and kept on disk, such as trajectories and trainings.

A result is stored under the digest of its dependencies. One process computes it while the others
wait.
"""

import hashlib
import json
import logging
import os
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
from experiments.plant.limit import Limit
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

# longest time to wait for another process that computes the same result [s]; then both compute it
MAX_WAIT_FOR_RESULT = 900.0
LOCK_SUFFIX = ".lock"  # ending of the file that is locked while a result is computed
N_KEY_DIGITS_LOGGED = 12  # digits of a key that log lines show
#: errors of a file that cannot be read, or of content that cannot be converted
CONTENT_ERRORS = (
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
    """A kind of results: its name, and its conversion to a data set and back."""

    name: str  # name of the folder within the cache
    title: str  # title of the files in it
    to_dataset: Callable[[Any], xr.Dataset]
    from_dataset: Callable[[xr.Dataset], Any]


class Cache:
    """Shared results in a folder, from the view of one job.

    Problems with the folder never stop a job or change its result: the content of a damaged file is
    computed again, and without access to the folder every job computes its results. Both are
    logged. Another user who shares the folder may have closed it, or files in it.

    Parameters
    ----------
    folder : Path
        Folder of the cache. It is made when the first result is stored.
    patience : float, optional
        Longest time to wait for another process [s].

    Attributes
    ----------
    counts : dict
        Number of events, by kind and event: ``{"trajectory": {"hits": 1}}``.
    """

    def __init__(self, folder: Path, *, patience: float = MAX_WAIT_FOR_RESULT) -> None:
        self.folder = folder
        self.patience = patience
        self._has_warned = False  # whether a warning states that the folder cannot be used
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def obtain(self, kind: Kind, key: str, compute: Callable[[], Content]) -> Content:
        """Return the content of a key: read, or computed and stored.

        Raises
        ------
        Exception
            Any error of `compute`. Nothing is stored then.
        """
        path = self.folder / kind.name / f"{key}.nc"
        if os.path.islink(path.parent) or os.path.islink(path.with_suffix(LOCK_SUFFIX)):
            self._warn_once("used", f"{path.parent} or its lock is a link, which is not followed")
            self.counts[kind.name]["misses"] += 1
            return compute()
        with nullcontext() if os.path.exists(path) else self._locked(path):
            content: Any = self._read(kind, key, path)
            if content is None:
                self.counts[kind.name]["misses"] += 1
                content = compute()
                self._store(kind, key, path, content)
        return content

    def _read(self, kind: Kind, key: str, path: Path) -> Any:
        """Return the content of a file; None if there is none, or if it was changed or damaged."""
        try:
            if path.is_symlink() or (path.exists() and not path.is_file()):
                raise UserError("it is a link or no file")
            if not store.is_sealed(path):
                raise UserError("it does not end with the digest of its content")
            dataset = store.from_file(path)
            if dataset.attrs.get("key") != key:
                raise UserError(f"it belongs to the key {dataset.attrs.get('key')!r}")
            content = kind.from_dataset(dataset)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError as reason:
            self._warn_once("read", reason)
            return None
        except CONTENT_ERRORS as reason:
            log.warning(
                "Note: cache file %s is damaged (%s), its content is computed again",
                path,
                reason,
            )
            self.counts[kind.name]["damaged"] += 1
            return None
        self.counts[kind.name]["hits"] += 1
        log.info("Cache: %s read (%s)", kind.name, key[:N_KEY_DIGITS_LOGGED])
        return content

    def _store(self, kind: Kind, key: str, path: Path, content: Any) -> None:
        """Write a NetCDF 4 file that ends with a digest of all its bytes.

        The digest is behind the part that ncdump and xarray read.
        """
        try:
            dataset = kind.to_dataset(content)
            kind.from_dataset(dataset)  # raises an error if the content could not be read back
            path.parent.mkdir(parents=True, exist_ok=True)
            attributes = dataset.attrs | {
                "title": kind.title,
                "source": "sysid",
                "key": key,
                **store.provenance(),
            }
            body = store.to_bytes(dataset.drop_attrs(deep=False).assign_attrs(attributes))
            store.write_bytes(store.seal(body), path)
            log.info("Cache: %s computed and kept (%s)", kind.name, key[:N_KEY_DIGITS_LOGGED])
        except OSError as reason:
            self._warn_once("written to", reason)
        except CONTENT_ERRORS as reason:
            self.counts[kind.name]["left_out"] += 1
            log.debug("Cache: the %s is not kept: %s", kind.name, reason)

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        """Lock a result, or wait until another process has computed it.

        The block also runs without the lock if locking fails, or if the wait takes too long.
        """
        lock = FileLock(path.with_suffix(LOCK_SUFFIX), timeout=self.patience)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout:
            log.warning(
                "Note: another process has been computing %s for %g s: computed here as well",
                path,
                self.patience,
            )
        except (OSError, NotImplementedError) as reason:
            self._warn_once("written to", reason)
        try:
            yield
        finally:
            lock.release()

    def _warn_once(self, use: str, reason: object) -> None:
        """Warn that the folder cannot be used, once per cache; `use` is what fails."""
        if not self._has_warned:
            log.warning(
                "Note: the cache %s cannot be %s, every job computes what it lacks: %s",
                self.folder,
                use,
                reason,
            )
        self._has_warned = True


def cache_of(folder: object, *, in_sweep: bool) -> Cache | None:
    """Return the cache in a folder; None if there is none.

    A single run has a cache only if the name of the folder is absolute.

    Raises
    ------
    ValueError
        If it is neither the name of a folder nor null.
    """
    if folder is not None and (not isinstance(folder, str) or not folder):
        raise UserError(f"cache must be the name of a folder, or null for none, got {folder!r}")
    if folder is None or not (in_sweep or Path(folder).is_absolute()):
        return None
    return Cache(Path(folder).absolute())


def counts_of(cache: Cache | None) -> dict[str, Any]:
    """Return the counts of a cache in a dict that is merged into the times of a job."""
    if cache is None:
        return {}
    counts = {name: dict(sorted(events.items())) for name, events in sorted(cache.counts.items())}
    return {"cache": counts}


# --- trajectories ---------------------------------------------------------------------------------


Samples = dict[str, np.ndarray]  # fields of the samples of a simulation, one row per sample


def _samples_to_dataset(samples: Samples) -> xr.Dataset:
    """Return a data set with a variable per field of a sample."""
    variables = {}
    for name, values in samples.items():
        dims = ("sample", f"of_{name}")[: values.ndim]
        variables[name] = (dims, values)
    return xr.Dataset(variables)


def _samples_from_dataset(dataset: xr.Dataset) -> Samples:
    return {name: np.array(dataset[name].values, order="C") for name in Sample._fields}


TRAJECTORY = Kind(
    "trajectory", "Samples of a simulation", _samples_to_dataset, _samples_from_dataset
)


def _limit_to_dataset(limit: Limit) -> xr.Dataset:
    """Return a data set with the predictions, or with the reason why there are none."""
    variables = {} if limit.mean is None else {"mean": (("sample", "output"), limit.mean)}
    others = {"sampling_time": limit.sampling_time, "reason": limit.reason}
    return xr.Dataset(variables, attrs=others)


def _limit_from_dataset(dataset: xr.Dataset) -> Limit:
    mean = np.array(dataset["mean"].values) if "mean" in dataset else None
    attributes = dataset.attrs
    return Limit(mean, float(attributes["sampling_time"]), str(attributes["reason"]))


LIMIT = Kind("limit", "Limit of one-step prediction", _limit_to_dataset, _limit_from_dataset)


class CachedSimulation(Simulation):
    """Samples from the cache, in the order and with the bits of the live ones.

    Parameters
    ----------
    plant, n_samples, seed
        Plant, number of samples and seed of the simulation.
    cache : Cache
    key : str
        Key of the trajectory in the cache.
    """

    def __init__(self, plant: Plant, n_samples: int, seed: int, *, cache: Cache, key: str) -> None:
        self._plant = plant
        self._n_samples = n_samples
        self._seed = seed
        self._cache = cache
        self._key = key
        self.n_seen = 0
        self._reason: Exception | None = None  # error that ended the simulation early

    def until(self, n_samples: int) -> Iterator[Measured]:
        """Yield blocks of samples until `n_samples` have been delivered in all.

        An error that ended the simulation early is raised after its last sample.
        """
        samples = self._samples
        n_available = len(samples["time"])
        for begin in range(self.n_seen, min(n_samples, n_available), SAMPLES_PER_BLOCK):
            self.n_seen = min(begin + SAMPLES_PER_BLOCK, n_samples, n_available)
            rows = slice(begin, self.n_seen)
            yield Measured(samples["output"][rows], samples["input"][rows])
        if self.n_seen < n_samples and self._reason is not None:
            raise self._reason

    @cached_property
    def _samples(self) -> Samples:
        """All samples of the simulation, up to the error that ended it, if any."""
        simulated: list[Sample] = []

        def stack() -> Samples:
            columns = map(np.array, zip(*simulated, strict=True))
            return dict(zip(Sample._fields, columns, strict=True))

        def simulate() -> Samples:
            simulated.extend(self._plant.samples(self._n_samples, self._seed))
            return stack()

        try:
            return self._cache.obtain(TRAJECTORY, self._key, simulate)
        except Exception as reason:
            if not simulated:
                raise
            self._reason = reason
            return stack()

    def record(self) -> Trajectory:
        """Return all samples delivered so far."""
        plant = self._plant
        delivered = {name: values[: self.n_seen] for name, values in self._samples.items()}
        return Trajectory(
            plant.system,
            self._seed,
            delivered["time"],
            delivered["input"],
            delivered["state"],
            delivered["output"],
            delivered["noise_free_output"],
            delivered["noise"],
            plant.interpolation,
            int(delivered["n_clipped"].sum()),
        )

    def begin_limit(self) -> None:
        """Do nothing: the limit may be in the cache."""

    def limit(self) -> Limit:
        """Return the limit of one-step prediction, computed once for all jobs."""
        return self._cache.obtain(LIMIT, self._key, super().limit)


def simulate_once(
    configuration: Mapping[str, Any], cache: Cache
) -> Callable[[Plant, int, int], Simulation]:
    """Return a function that makes the cached simulation of a plant.

    Its arguments are the plant, the number of samples and the seed. The simulation of a plant about
    whose inputs a model decides is not cached, because it depends on the settings of the model.

    Parameters
    ----------
    configuration
        Resolved configuration of `sysid-identify`, as plain data. The key of a trajectory covers
        the settings that have an effect on it.
    cache
        Cache of the trajectories.
    """

    def simulation(plant: Plant, n_samples: int, seed: int) -> Simulation:
        if plant.asks_a_model:
            return Simulation(plant, n_samples, seed)
        key = trajectory_key(configuration, n_samples)
        return CachedSimulation(plant, n_samples, seed, cache=cache, key=key)

    return simulation


# --- trainings ------------------------------------------------------------------------------------

TRAINING_START = Kind("start", "What a model starts from", start_to_dataset, start_from_dataset)


class CachedTraining(Training):
    """Another training, whose results are stored in a cache.

    The key covers the bytes of the samples, the settings of the training and the code. If the
    training, the mean or the start cannot be described, the training runs every time.

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

    # a property here, since the training decides it; an attribute of the class elsewhere
    @property
    def replaces(self) -> frozenset[str]:  # type: ignore[override]
        return self.training.replaces

    @property
    def standardise(self) -> bool:
        return self.training.standardise

    def train(self, inputs: np.ndarray, targets: np.ndarray, seed: int) -> Hyperparameters:
        """Train without the cache: only results of `prepare` and `know` are stored."""
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
        arrays = [samples.regressors, samples.targets, samples.follows]
        for segment in known.segments or ():
            arrays += [segment.regressors, segment.values, segment.past, segment.measured]
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
        *others: Any,
    ) -> Start:
        """Return the result of a training, from the cache if all arguments can be described."""
        try:
            before = start_to_dataset(known)
            numbers = {
                name: array_digest(variable.values) for name, variable in before.data_vars.items()
            }
            key = key_of(
                {
                    "samples": array_digest(*arrays),
                    "known": [before.attrs, numbers],
                    "others": json.dumps(others),
                    "training": describe(self.training),
                    "mean": describe(mean),
                    "code": self._code,
                }
            )
        except TypeError as reason:
            self._cache.counts[TRAINING_START.name]["left_out"] += 1
            log.debug("Cache: the %s is not kept: %s", TRAINING_START.name, reason)
            return compute()
        return self._cache.obtain(TRAINING_START, key, compute)


def array_digest(*arrays: np.ndarray) -> str:
    """Return the SHA-256 of the types, shapes and bytes of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()
