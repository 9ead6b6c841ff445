"""Launchers, which run the jobs of a multirun, sweepers, which choose them, and the folder's name.

Hydra imports this file at every start.
"""

import hashlib
import importlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, ListConfig, OmegaConf

from sysid.errors import UserError

if TYPE_CHECKING:
    from experiments.sweeps.sweep import Sweep


class SweepLauncher(Launcher):
    """Launcher that runs only the jobs that are not done yet; a failed job does not end the others.

    Parameters
    ----------
    settings
        Settings of the engine, as in conf/hydra/launcher.
    """

    engine: ClassVar[str] = ""  # dotted name of the engine's class

    def __init__(self, **settings: Any) -> None:
        self._settings = plain(settings)
        self.swept: Sequence[str] = ()  # keys that the sweeper sweeps
        self.failed = False  # whether a job of the last launch failed

    def setup(
        self,
        *,
        hydra_context: HydraContext,
        task_function: TaskFunction,
        config: DictConfig,
    ) -> None:
        self._context = hydra_context
        self._task = task_function
        self._config = config

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run jobs and return their results; those that failed carry an error."""
        sweep = self.sweep()
        with in_one_line():
            outcomes = sweep.conduct(job_overrides)
        self.failed = not all(outcome.done for outcome in outcomes)
        returned = []
        for overrides, outcome in zip(job_overrides, outcomes, strict=True):
            folder = str(sweep.folder / str(outcome.number))
            job = JobReturn(overrides=overrides, working_dir=folder)
            job.status = JobStatus.COMPLETED if outcome.done else JobStatus.FAILED
            job.return_value = outcome.value if outcome.done else RuntimeError(outcome.error)
            returned.append(job)
        return returned

    def sweep(self) -> "Sweep":
        """Return the sweep that this launcher was set up for."""
        with in_one_line():
            from experiments.sweeps.sweep import Sweep

            task = f"{self._task_module()}:{self._task.__qualname__}"
            module, _, name = self.engine.rpartition(".")

            def engine(folder: Any) -> Any:
                engine_class = getattr(importlib.import_module(module), name)
                return engine_class(folder, **self._settings)

            return Sweep(self._context.config_loader, self._config, task, engine, self.swept)

    def _task_module(self) -> str:
        """Return the name of the module in which a worker finds the function of the command.

        The command may be a script.
        """
        module = self._task.__module__
        if module != "__main__":
            return module
        main = sys.modules["__main__"]
        if main.__spec__ is not None:
            return main.__spec__.name
        return Path(str(main.__file__)).stem


class InProcessLauncher(SweepLauncher):
    """Launcher that runs one job after the other, in this process."""

    engine = "experiments.sweeps.engines.InProcess"


class JoblibLauncher(SweepLauncher):
    """Launcher that runs jobs in processes of this machine."""

    engine = "experiments.sweeps.engines.JoblibPool"


class DaskLauncher(SweepLauncher):
    """Launcher that runs jobs in a Dask cluster, which it starts, or which runs already."""

    engine = "experiments.sweeps.dask_engine.DaskCluster"


class SlurmLauncher(SweepLauncher):
    """Launcher that runs jobs in Slurm, through submitit."""

    engine = "experiments.sweeps.slurm_engine.SlurmQueue"


#: options of hydra/launcher for these launchers; a plugin of another package may take such a name
LAUNCHER_NAMES = ("in_process", "joblib", "dask", "slurm")


def check_launcher(launcher: Launcher, config: DictConfig) -> None:
    """Refuse the launcher of another package under a name of ours.

    Raises
    ------
    SystemExit
        If the launcher is another package's, after a line that says what to do.
    """
    name = config.hydra.runtime.choices.get("hydra/launcher")
    module = type(launcher).__module__
    if name in LAUNCHER_NAMES and module != SweepLauncher.__module__:
        theirs = f"{module}.{type(launcher).__qualname__}"
        ours = f"{SweepLauncher.__module__}.{name.title().replace('_', '')}Launcher"
        end_with_error(
            f"hydra/launcher={name} is {theirs} of another package, which neither resumes a sweep "
            "nor keeps its jobs apart: uninstall that package, or give "
            f"hydra.launcher._target_={ours}"
        )


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with plain objects in place of those of OmegaConf."""
    return {
        name: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        for name, value in settings.items()
    }


@contextmanager
def in_one_line() -> Iterator[None]:
    """End the command with one line and exit code 1 at a mistake of the user in the block."""
    from experiments.cli.ends import is_mistake

    try:
        yield
    except Exception as error:
        if not (is_mistake(error) or isinstance(error, ImportError)):
            raise
        end_with_error(str(error))


def end_with_error(message: str) -> NoReturn:
    """Print an error, and end the command with exit code 1."""
    from experiments.cli.ends import Refused
    from experiments.cli.terminal import printable

    print(f"Error: {printable(message)}", file=sys.stderr)
    raise Refused(1) from None


class GridSweeper(BasicSweeper):
    """Hydra's own sweeper, for launchers of this package.

    No configuration is composed twice, and a failed job does not end the others.
    """

    def sweep(self, arguments: list[str]) -> Any:
        """Launch all combinations of the swept values; end with exit code 1 if a job failed."""
        assert self.config is not None
        assert self.hydra_context is not None
        assert self.launcher is not None
        check_launcher(self.launcher, self.config)
        if not isinstance(self.launcher, SweepLauncher):
            return super().sweep(arguments)
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        try:
            overrides = parser.parse_overrides([*self._parse_config(), *arguments])
            _check_sweeps(overrides)
            batches = self.split_arguments(overrides, self.max_batch_size)
        except (HydraException, UserError) as error:
            end_with_error(str(error))
        self.launcher.swept = [
            override.get_key_element() for override in overrides if override.is_sweep_override()
        ]
        returned = list[Sequence[JobReturn]]()
        n_launched = 0
        failed = False
        for batch in batches:
            jobs = self.launcher.launch(batch, n_launched)
            returned.append(jobs)
            n_launched += len(jobs)
            failed |= self.launcher.failed
        if failed:
            raise SystemExit(1)
        return returned


def sweep_name(command: str, overrides: Sequence[str]) -> str:
    """Return the name of the folder of a sweep: the same command finds the same folder.

    The name depends on the version of the code, but not on the launcher.

    Parameters
    ----------
    command : str
    overrides : sequence of str
        Overrides of the command line, without those of Hydra. Their order has no effect.
    """
    from experiments.files.identity import code_digest

    if isinstance(overrides, ListConfig):
        # interpolations are not resolved: many of them can be resolved in a job only
        overrides = OmegaConf.to_container(overrides, resolve=False)  # type: ignore[assignment]
    lines = [str(line) for line in overrides]
    title = command
    for line in lines:
        if line.startswith(("experiment=", "+experiment=")):
            title = line.partition("=")[2]
    content = json.dumps([command, sorted(lines), code_digest()])
    digest = hashlib.sha256(content.encode()).hexdigest()
    return f"{title}-{digest[:8]}"


OmegaConf.register_new_resolver("sweep_name", sweep_name, replace=True)


def _check_sweeps(overrides: Sequence[Override]) -> None:
    """Raise UserError for sweeps over an empty range, or over an interval."""
    for override in overrides:
        if override.is_interval_sweep():
            raise UserError(
                f"{override.input_line} is an interval to search in: take hydra/sweeper=optuna, or "
                "list values"
            )
        if override.is_discrete_sweep() and not _list_values(override):
            raise UserError(f"{override.input_line} sweeps over nothing: the range is empty")


def _list_values(swept: Override) -> list[str]:
    """Return the values of a sweep; raise UserError for a range without step or without end.

    Hydra checks neither before.
    """
    try:
        return list(swept.sweep_string_iterator())
    except (ValueError, ArithmeticError) as error:
        raise UserError(
            f"{swept.input_line}: expected a range of finite numbers whose step is not 0, or list "
            "the values"
        ) from error


class OptunaSweeper(Sweeper):
    """Sweeper that chooses each trial from the results of those before, with Optuna.

    Parameters
    ----------
    params
        More overrides by key, including those to search.
    settings
        Settings of the search, as in conf/hydra/sweeper/optuna.yaml.
    """

    def __init__(self, params: DictConfig | None, **settings: Any) -> None:
        self._params: Mapping[Any, Any] = params or {}
        self._settings = plain(settings)

    def setup(
        self,
        *,
        hydra_context: HydraContext,
        task_function: TaskFunction,
        config: DictConfig,
    ) -> None:
        self.hydra_context = hydra_context
        self.config = config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Search with these overrides; end with exit code 1 if a trial failed."""
        assert self.hydra_context is not None
        with in_one_line():
            from experiments.sweeps.search import Settings, search, space_of

            if not isinstance(self.launcher, SweepLauncher):
                got = f"{type(self.launcher).__module__}.{type(self.launcher).__name__}"
                raise UserError(
                    "hydra/sweeper=optuna needs hydra/launcher=in_process, joblib, dask or slurm "
                    f"of this package, which know finished jobs; got {got}"
                )
            settings = Settings(**self._settings)
            lines = [
                *(f"{key}={value}" for key, value in self._params.items()),
                *arguments,
            ]
            space = space_of(lines, settings.average_over, self.hydra_context.config_loader)
            self.launcher.swept = space.swept
            found = search(self.launcher.sweep(), settings, space)
        if found.failed:
            raise SystemExit(1)
        return found
