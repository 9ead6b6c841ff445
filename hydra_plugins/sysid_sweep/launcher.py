"""Launchers: how the jobs of a multirun are run. Hydra imports this file at every start, so it imports little."""

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

if TYPE_CHECKING:
    from experiments.sweeps.sweep import Sweep


class SweepLauncher(Launcher):
    """Runs only what is missing, one result per job, whatever fails.

    Parameters
    ----------
    settings
        Of the engine, as in conf/hydra/launcher.
    """

    engine: ClassVar[str] = ""  # dotted name of its class

    def __init__(self, **settings: Any) -> None:
        self._settings = plain(settings)
        self.swept: Sequence[str] = ()  # keys that the sweeper sweeps
        self.failed = False  # whether a job of the last launch has

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self._context, self._task, self._config = hydra_context, task_function, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run jobs; those that fail come back as failed."""
        sweep = self.sweep()
        with in_one_line():
            outcomes = sweep.conduct(job_overrides)
        self.failed = not all(outcome.done for outcome in outcomes)
        returned = []
        for overrides, outcome in zip(job_overrides, outcomes, strict=True):
            one = JobReturn(overrides=overrides, working_dir=str(sweep.folder / str(outcome.number)))
            one.status = JobStatus.COMPLETED if outcome.done else JobStatus.FAILED
            one.return_value = outcome.value if outcome.done else RuntimeError(outcome.error)
            returned.append(one)
        return returned

    def sweep(self) -> "Sweep":
        """What is to be run, and where."""
        with in_one_line():
            from experiments.sweeps.sweep import Sweep

            module, main = self._task.__module__, sys.modules["__main__"]
            if module == "__main__":  # where a worker finds the function of the command, which may be a script
                module = main.__spec__.name if main.__spec__ is not None else Path(str(main.__file__)).stem
            task = f"{module}:{self._task.__qualname__}"
            file, _, name = self.engine.rpartition(".")

            def engine(folder: Any) -> Any:
                return getattr(importlib.import_module(file), name)(folder, **self._settings)

            return Sweep(self._context.config_loader, self._config, task, engine, self.swept)


class InProcessLauncher(SweepLauncher):
    """One job after the other, in this process."""

    engine = "experiments.sweeps.engines.InProcess"


class JoblibLauncher(SweepLauncher):
    """Processes of this machine."""

    engine = "experiments.sweeps.engines.JoblibPool"


class DaskLauncher(SweepLauncher):
    """A Dask cluster: one that is started, or one that runs."""

    engine = "experiments.sweeps.dask_engine.DaskCluster"


class SlurmLauncher(SweepLauncher):
    """Slurm, through submitit."""

    engine = "experiments.sweeps.slurm_engine.SlurmQueue"


#: names under which these launchers are chosen; the plugin of another package may take one of them
NAMES = ("in_process", "joblib", "dask", "slurm")


def check_launcher(launcher: Launcher, config: DictConfig) -> None:
    """Refuse the launcher of another package that was taken for one of ours.

    Raises
    ------
    SystemExit
        In one line.
    """
    name = config.hydra.runtime.choices.get("hydra/launcher")
    module = type(launcher).__module__
    if name in NAMES and module != SweepLauncher.__module__:
        theirs = f"{module}.{type(launcher).__qualname__}"
        ours = f"{SweepLauncher.__module__}.{name.title().replace('_', '')}Launcher"
        end_with_error(
            f"hydra/launcher={name} is {theirs} of another package, which neither resumes a sweep nor keeps its jobs "
            f"apart: uninstall that package, or give hydra.launcher._target_={ours}"
        )


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without objects of OmegaConf."""
    return {
        name: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        for name, value in settings.items()
    }


@contextmanager
def in_one_line() -> Iterator[None]:
    """Tell a mistake of the user in one line; end with the exit code of what happens inside."""
    from experiments.launch import is_mistake

    try:
        yield
    except Exception as error:
        if not (is_mistake(error) or isinstance(error, ImportError)):
            raise
        end_with_error(str(error))


def end_with_error(message: str) -> NoReturn:
    """End the command with exit code 1."""
    from experiments.launch import Refused

    print(f"Error: {message}", file=sys.stderr)
    raise Refused(1) from None
