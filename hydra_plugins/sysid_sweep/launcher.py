"""Launchers: how the jobs of a multirun are run. Hydra imports this file at every start, so it imports little."""

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

if TYPE_CHECKING:
    from experiments.sweep.conduct import Sweep


class SweepLauncher(Launcher):
    """Runs only what is missing, one result per job, whatever fails.

    Parameters
    ----------
    settings
        Of the engine, as in conf/hydra/launcher.
    """

    engine: ClassVar[str] = ""  # dotted name of its class

    def __init__(self, **settings: Any) -> None:
        self._settings = {
            name: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
            for name, value in settings.items()
        }
        self.swept: Sequence[str] = ()  # keys that the sweeper sweeps
        self.failed = False  # whether a job of the last launch has

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Take what Hydra knows."""
        self._context, self._task, self._config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run jobs; those that fail come back as failed."""
        sweep = self.sweep()
        with told():
            outcomes = sweep.conduct(job_overrides)
        self.failed = not all(outcome.done for outcome in outcomes)
        return [
            _returned(overrides, outcome, sweep.folder)
            for overrides, outcome in zip(job_overrides, outcomes, strict=True)
        ]

    def sweep(self) -> "Sweep":
        """What is to be run, and where."""
        from experiments.sweep.conduct import Sweep

        return Sweep(self._context.config_loader, self._config, self._name(), self._engine, self.swept)

    def _engine(self, folder: Path) -> Any:
        module, _, name = self.engine.rpartition(".")
        return getattr(importlib.import_module(module), name)(folder, **self._settings)

    def _name(self) -> str:
        """Where a worker finds the function of the command."""
        module = self._task.__module__
        if module == "__main__" and (spec := sys.modules["__main__"].__spec__) is not None:
            module = spec.name
        return f"{module}:{self._task.__qualname__}"


class InProcessLauncher(SweepLauncher):
    """One job after the other, in this process."""

    engine = "experiments.sweep.engines.in_process.InProcess"


class JoblibLauncher(SweepLauncher):
    """Processes of this machine."""

    engine = "experiments.sweep.engines.joblib_pool.JoblibPool"


class DaskLauncher(SweepLauncher):
    """A Dask cluster: one that is started, or one that runs."""

    engine = "experiments.sweep.engines.dask_cluster.DaskCluster"


class SlurmLauncher(SweepLauncher):
    """Slurm, through submitit."""

    engine = "experiments.sweep.engines.slurm_queue.SlurmQueue"


@contextmanager
def told() -> Iterator[None]:
    """Tell a mistake of the user in one line; end with the exit code of what happens inside."""
    from experiments.mistake import is_mistake
    from experiments.sweep.conduct import Ended

    try:
        yield
    except Ended as end:
        raise SystemExit(end.exit_code) from None
    except Exception as error:
        if not (is_mistake(error) or isinstance(error, ImportError)):
            raise
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def _returned(overrides: Sequence[str], outcome: Any, folder: Path) -> JobReturn:
    returned = JobReturn(overrides=overrides, working_dir=str(folder / str(outcome.number)))
    returned.status = JobStatus.COMPLETED if outcome.done else JobStatus.FAILED
    returned.return_value = outcome.value if outcome.done else RuntimeError(outcome.error)
    return returned
