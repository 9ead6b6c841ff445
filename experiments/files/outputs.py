"""Which files a run writes, what all of them carry, and that as many as possible are written."""

import math
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from experiments.cli.options import flag
from sysid import store
from sysid.errors import UserError


def is_lean(config: DictConfig) -> bool:
    """Whether a run writes job.nc alone: as configured, else in a multirun only.

    Full outputs are a file for each thing, and figures; in a multirun job.nc, too.

    Raises
    ------
    ValueError
        Neither lean, full nor null.
    """
    if config.outputs not in (None, "lean", "full"):
        raise UserError(f"outputs must be one of lean, full, got {config.outputs!r}")
    return config.outputs == "lean" or (config.outputs is None and is_multirun())


def is_multirun() -> bool:
    """Whether this process runs a job of a sweep."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def has_page(config: DictConfig) -> bool:
    """Whether a run writes report.html: as configured, null where Bokeh is installed; never beside lean outputs.

    Raises
    ------
    ValueError
        Another value; a page is asked for, and Bokeh is not there.
    """
    asked, is_there = config.get("report", False), find_spec("bokeh") is not None
    wanted = is_there if asked is None else flag("report", asked)
    if wanted and not is_there:
        raise UserError('report.html needs Bokeh: pip install -e ".[report]"')
    return wanted and not ("outputs" in config and is_lean(config))


def attributes_of(config: DictConfig, physics: Any, *, partial: bool) -> dict[str, Any]:
    """Attributes that every NetCDF file of a run carries, with the `FittedPhysics` beside the model, if any."""
    configuration = OmegaConf.to_yaml(config, resolve=True)
    described = {} if physics is None else {"physics": physics.describe()}
    return {"configuration": configuration, "seed": int(config.seed), "partial": int(partial), **described}


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
