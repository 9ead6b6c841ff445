"""The invocation of a command, as Hydra knows it: its overrides, and whether a sweep runs it."""

from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf


def is_multirun() -> bool:
    """Return whether this process runs a job of a sweep."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def given_overrides() -> tuple[str, ...]:
    """Return the overrides of the command line, or of the job of a sweep.

    They are texts as they were typed: interpolations in them are not resolved. There are none if
    Hydra started no command, as in a call from Python.
    """
    if not HydraConfig.initialized():
        return ()
    overrides: Any = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
    return tuple(map(str, overrides))
