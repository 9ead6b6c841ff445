"""Results on disk by the digest of what they depend on: computed by one process while the others wait."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import xarray as xr
from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from experiments.cache import sealed
from experiments.job_file import is_multirun

PATIENCE = 900.0  # s that another process may take to compute the same; after that both do

SHOWN = 12  # digits of a key in the log

#: what making content into a file and back may raise
UNUSABLE = (OSError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError)

log = logging.getLogger(__name__)

Content = TypeVar("Content")


def cache_of(config: DictConfig) -> "Cache | None":
    """Cache of a job of a sweep, or of a call from Python that names an absolute folder; else None.

    Raises
    ------
    ValueError
        If it is no folder's name.
    """
    folder = config.get("cache")
    if folder is not None and (not isinstance(folder, str) or not folder):
        raise ValueError(f"cache must be the name of a folder, or null for none, got {folder!r}")
    if folder is None or not (is_multirun() or (Path(folder).is_absolute() and not HydraConfig.initialized())):
        return None
    return Cache(Path(folder).absolute())


def counts_of(cache: "Cache | None") -> dict[str, Any]:
    """What the cache did, to stand among the times of a job."""
    return {} if cache is None else {"cache": cache.summary()}


@dataclass(frozen=True)
class Kind(Generic[Content]):
    """What is kept: its name, and how it becomes a data set and back."""

    name: str  # of the folder within the cache
    title: str  # of its files
    to_dataset: Callable[[Content], xr.Dataset]
    from_dataset: Callable[[xr.Dataset], Content]


class Cache:
    """Shared results of one folder, as one job sees them.

    Nothing that is wrong with the folder stops a job or changes its result: what cannot be read is computed anew,
    what cannot be written is computed by every job, and both are said.

    Parameters
    ----------
    folder : Path
        It is made when something is kept.
    patience : float, optional
        Longest time that another process is waited for [s].

    Attributes
    ----------
    counts : Counter
        By kind and what happened: ``("trajectory", "hits")``.
    """

    def __init__(self, folder: Path, *, patience: float = PATIENCE) -> None:
        self.folder, self.patience = folder, patience
        self.counts: Counter[tuple[str, str]] = Counter()
        self._said: set[str] = set()

    def obtain(self, kind: Kind[Content], key: str, compute: Callable[[], Content]) -> Content:
        """Content of a key: read, or computed and kept.

        Raises
        ------
        Exception
            Whatever `compute` raises; then nothing is kept.
        """
        path = self.folder / kind.name / f"{key}.nc"
        found = self._read(kind, key, path)
        if found is not None:
            return found
        with self._alone(path):
            found = self._read(kind, key, path)  # of the one that was waited for
            if found is not None:
                return found
            self.counts[kind.name, "misses"] += 1
            content = compute()
            self._keep(kind, key, path, content)
            return content

    def summary(self) -> dict[str, dict[str, int]]:
        """Counts by kind."""
        found: dict[str, dict[str, int]] = {}
        for (kind, what), count in sorted(self.counts.items()):
            found.setdefault(kind, {})[what] = count
        return found

    def left_out(self, name: str, reason: object) -> None:
        """Count and note content of a kind that cannot be kept."""
        self.counts[name, "left_out"] += 1
        log.debug("Cache: the %s is not kept: %s", name, reason)

    def _read(self, kind: Kind[Content], key: str, path: Path) -> Content | None:
        try:
            content = kind.from_dataset(sealed.read(path, key=key))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except UNUSABLE as reason:
            if self._say(f"cache file {path} is damaged ({reason}), its content is computed anew"):
                self.counts[kind.name, "damaged"] += 1
            return None
        self.counts[kind.name, "hits"] += 1
        log.info("Cache: %s read (%s)", kind.name, key[:SHOWN])
        return content

    def _keep(self, kind: Kind[Content], key: str, path: Path, content: Content) -> None:
        try:
            dataset = kind.to_dataset(content)
            kind.from_dataset(dataset)  # only what can be read back is kept
            path.parent.mkdir(parents=True, exist_ok=True)
            sealed.write(dataset, path, key=key, title=kind.title)
        except OSError as reason:
            self._cannot_write(reason)
        except UNUSABLE as reason:
            self.left_out(kind.name, reason)
        else:
            log.info("Cache: %s computed and kept (%s)", kind.name, key[:SHOWN])

    @contextmanager
    def _alone(self, path: Path) -> Iterator[None]:
        """Wait for another process that computes the same; where nothing can be locked, or too long, do not."""
        lock = self._locked(path.with_suffix(".lock"))
        try:
            yield
        finally:
            if lock is not None:
                lock.release()

    def _locked(self, path: Path) -> Any:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path, timeout=self.patience)
            lock.acquire()
        except Timeout:
            self._say(f"another process has been computing for {path} for {self.patience:g} s: computed here as well")
            return None
        except (OSError, NotImplementedError) as reason:
            self._cannot_write(reason)
            return None
        return lock

    def _cannot_write(self, reason: object) -> None:
        self._say(
            f"the cache {self.folder} cannot be written to, what it lacks is computed by every job: {reason}", "w"
        )

    def _say(self, message: str, once_as: str = "") -> bool:
        """Warn, once per job about the same; returns whether it was new."""
        about = once_as or message
        new = about not in self._said
        if new:
            self._said.add(about)
            log.warning("Note: %s", message)
        return new
