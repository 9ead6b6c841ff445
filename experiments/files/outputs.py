"""The files of a run: which ones it writes, and the attributes that all of them carry."""

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

if TYPE_CHECKING:  # slow to import, and not needed to collect or to report
    from experiments.plant.physics import FittedPhysics


@dataclass(frozen=True)
class RunFiles:
    """Settings of the files that an identification writes."""

    lean: bool  # whether job.nc is the only file
    job: bool  # whether job.nc is written: for lean outputs, and for every job of a sweep
    figures: bool  # whether figures are drawn; lean outputs have none
    page: bool  # whether report.html is written
    plan: bool  # whether decided inputs are written: with several outputs once for all of them
    configuration: str  # all settings of the run as YAML, resolved
    seed: int  # of everything random

    def attributes(
        self, physics: FittedPhysics | None, *, partial: bool, unfinished: bool
    ) -> dict[str, Any]:
        """Return the attributes of every NetCDF file, including the physics beside the model.

        Parameters
        ----------
        physics
            Physics beside the model; None: there is none.
        partial
            Whether the run was stopped early.
        unfinished
            Whether the search was ended by ``training.seconds``: the model is the best so far.
        """
        attributes: dict[str, Any] = {
            "configuration": self.configuration,
            "seed": self.seed,
            "partial": int(partial),
            "unfinished": int(unfinished),
        }
        if physics is not None:
            attributes["physics"] = physics.describe()
        return attributes


def is_lean(outputs: object, *, in_sweep: bool) -> bool:
    """Return whether a run writes job.nc alone, by the value of ``outputs``.

    lean: job.nc alone. full: several files, and figures; in a sweep job.nc, too. null: lean in a
    sweep, full in a single run.

    Raises
    ------
    ValueError
        If the value is neither lean, full nor null.
    """
    if outputs not in (None, "lean", "full"):
        raise UserError(f"outputs must be one of lean, full, got {outputs!r}")
    return outputs == "lean" or (outputs is None and in_sweep)


def has_page(report: object, *, lean: bool = False) -> bool:
    """Return whether a run writes report.html, by the value of ``report``.

    null: if Bokeh is installed. Lean outputs have no page.

    Raises
    ------
    ValueError
        If the value is neither a flag nor null, or is true without Bokeh.
    """
    is_installed = find_spec("bokeh") is not None
    is_wanted = is_installed if report is None else flag("report", report)
    if is_wanted and not is_installed:
        raise UserError('report.html needs Bokeh: pip install -e ".[report]"')
    return is_wanted and not lean


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it: None for nan and infinity, Python's own numbers."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_every(jobs: Iterable[Callable[[], object]]) -> None:
    """Call functions that write a file each; one that fails does not stop the others.

    Raises
    ------
    sysid.StoreError
        At the end, if some files could not be written. The message names all of them.
    """
    failures = []
    for job in jobs:
        try:
            job()
        except store.StoreError as error:
            failures.append(str(error))
    if failures:
        raise store.StoreError("; ".join(failures))
