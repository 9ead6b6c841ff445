"""Which files a run writes, what all of them carry, and that as many as possible are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.cli.options import flag
from sysid import store
from sysid.errors import UserError

if TYPE_CHECKING:  # slow to import, and whoever collects or reports does without
    from experiments.plant.physics import FittedPhysics


@dataclass(frozen=True)
class RunFiles:
    """Which files an identification writes, and what all of them carry."""

    lean: bool  # whether job.nc is the only one
    job: bool  # whether job.nc is written: of lean outputs, and of every job of a sweep
    figures: bool  # whether figures are drawn; lean outputs have none
    page: bool  # whether report.html is written
    configuration: str  # all settings of the run as YAML, resolved
    seed: int  # of everything random

    def attributes(self, physics: FittedPhysics | None, *, partial: bool) -> dict[str, Any]:
        """Return the attributes of every NetCDF file, with the physics beside the model, if any."""
        stated = {
            "configuration": self.configuration,
            "seed": self.seed,
            "partial": int(partial),
        }
        return stated if physics is None else {**stated, "physics": physics.describe()}


def is_lean(outputs: object, *, in_sweep: bool) -> bool:
    """Return whether a run writes job.nc alone: as ``outputs`` says, null in a sweep only.

    Full outputs are a file for each thing, and figures; in a sweep job.nc, too.

    Raises
    ------
    ValueError
        Neither lean, full nor null.
    """
    if outputs not in (None, "lean", "full"):
        raise UserError(f"outputs must be one of lean, full, got {outputs!r}")
    return outputs == "lean" or (outputs is None and in_sweep)


def has_page(report: object, *, lean: bool = False) -> bool:
    """Return whether a run writes report.html: as ``report`` says, null where Bokeh is installed.

    Beside lean outputs there never is one.

    Raises
    ------
    ValueError
        Another value; a page is asked for, and Bokeh is not there.
    """
    is_there = find_spec("bokeh") is not None
    wanted = is_there if report is None else flag("report", report)
    if wanted and not is_there:
        raise UserError('report.html needs Bokeh: pip install -e ".[report]"')
    return wanted and not lean


def plain(value: Any) -> Any:
    """JSON knows no nan: it becomes None; NumPy numbers become Python's."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_every(jobs: Iterable[Callable[[], object]]) -> None:
    """Write every file that can be written; then report those that could not.

    Raises
    ------
    sysid.StoreError
        If a file could not be written; the others are there.
    """
    failures = []
    for job in jobs:
        try:
            job()
        except store.StoreError as error:
            failures.append(str(error))
    if failures:
        raise store.StoreError("; ".join(failures))
