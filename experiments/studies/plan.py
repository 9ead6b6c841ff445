"""How much is computed, where it is kept, and what identifies it."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import simulators
import sysid
from experiments.sweeps.identity import source_digest

REVISION = 1  # raised when the studies compute something else


@dataclass(frozen=True)
class Plan:
    """Settings of all studies; whatever changes a number is part of `fingerprint`; the records are pinned."""

    folder: Path
    tasks: tuple[str, ...]  # names of the tasks
    seeds: int = 10  # of the tasks that are random
    budget: int = 100  # points of the online GP
    n_initial: int = 100  # samples before the stream
    building_samples: int = 35041  # a year
    inducing_points: int = 100
    sparse_iterations: int = 150  # of the sparse GPs, at most
    table_sizes: tuple[int, ...] = (20, 50, 100, 200, 500, 1000, 2000)  # points, of table 1
    repetitions: int = 1000  # evaluations of a criterion, of table 1
    most_rows: int = 1_000_000  # of a stream, and of the test rows
    quick: bool = False  # a run that only shows that everything works

    @property
    def fingerprint(self) -> str:
        """Digest of the settings and of the code that computes; parts that were stored under another do not fit."""
        settings = {name: value for name, value in asdict(self).items() if name not in {"folder", "tasks"}}
        settings |= {"revision": REVISION, "numerics": digest_of_the_numerics()}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def parts(self) -> Path:
        """Folder of what single units computed."""
        return self.folder / "parts"

    def quickened(self) -> "Plan":
        """The same with sizes that only show that everything works."""
        return replace(self, quick=True, **QUICK)


#: what `quick` computes
QUICK: dict[str, Any] = {
    "seeds": 2,
    "budget": 12,
    "n_initial": 20,
    "most_rows": 40,
    "building_samples": 1201,
    "inducing_points": 10,
    "sparse_iterations": 5,
    "table_sizes": (20, 40),
    "repetitions": 5,
}


@cache
def digest_of_the_numerics() -> str:
    """Digest of the source of `sysid` and `simulators`, which decide the numbers."""
    return source_digest(sysid, simulators)
