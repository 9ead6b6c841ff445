"""The invocation of a command, as Hydra knows it: its overrides, and whether a sweep runs it."""

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode


def is_multirun() -> bool:
    """Return whether this process runs a job of a sweep."""
    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN


def given_overrides() -> tuple[str, ...]:
    """Return the overrides of the command line, or of the job of a sweep.

    There are none if Hydra started no command, as in a call from Python.
    """
    return tuple(HydraConfig.get().overrides.task) if HydraConfig.initialized() else ()
