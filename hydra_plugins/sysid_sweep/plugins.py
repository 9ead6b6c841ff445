"""Launchers and sweepers: how the jobs of a multirun are run, and which, and what the folder of a
sweep is called.

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
        """Run jobs; those that fail come back as failed."""
        sweep = self.sweep()
        with in_one_line():
            outcomes = sweep.conduct(job_overrides)
        self.failed = not all(outcome.done for outcome in outcomes)
        returned = []
        for overrides, outcome in zip(job_overrides, outcomes, strict=True):
            one = JobReturn(
                overrides=overrides, working_dir=str(sweep.folder / str(outcome.number))
            )
            one.status = JobStatus.COMPLETED if outcome.done else JobStatus.FAILED
            one.return_value = outcome.value if outcome.done else RuntimeError(outcome.error)
            returned.append(one)
        return returned

    def sweep(self) -> "Sweep":
        """Build the sweep: what is to be run, and where."""
        with in_one_line():
            from experiments.sweeps.sweep import Sweep

            module = self._task.__module__
            main = sys.modules["__main__"]
            if (
                module == "__main__"
            ):  # where a worker finds the function of the command, which may be a script
                module = (
                    main.__spec__.name
                    if main.__spec__ is not None
                    else Path(str(main.__file__)).stem
                )
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
        lacks = (
            f"{theirs} of another package, which neither resumes a sweep nor keeps its jobs apart"
        )
        advice = f"uninstall that package, or give hydra.launcher._target_={ours}"
        end_with_error(f"hydra/launcher={name} is {lacks}: {advice}")


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Convert objects of OmegaConf among the settings to plain ones."""
    return {
        name: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
        for name, value in settings.items()
    }


@contextmanager
def in_one_line() -> Iterator[None]:
    """Tell a mistake of the user in one line; end with the exit code of what happens inside."""
    from experiments.cli.ends import is_mistake

    try:
        yield
    except Exception as error:
        if not (is_mistake(error) or isinstance(error, ImportError)):
            raise
        end_with_error(str(error))


def end_with_error(message: str) -> NoReturn:
    """End the command with exit code 1."""
    from experiments.cli.ends import Refused

    print(f"Error: {message}", file=sys.stderr)
    raise Refused(1) from None


class GridSweeper(BasicSweeper):
    """Hydra's own sweeper for launchers of this package: nothing is composed twice, a failed job
    ends nothing.
    """

    def sweep(self, arguments: list[str]) -> Any:
        """Launch all combinations of the swept values; exit code 1 if a job has failed."""
        assert self.config is not None
        assert self.hydra_context is not None
        assert self.launcher is not None
        check_launcher(self.launcher, self.config)
        if not isinstance(self.launcher, SweepLauncher):
            return super().sweep(arguments)
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        try:
            overrides = parser.parse_overrides([*self._parse_config(), *arguments])
            _check(overrides)
            batches = self.split_arguments(overrides, self.max_batch_size)
        except (HydraException, UserError) as error:
            end_with_error(str(error))
        self.launcher.swept = [
            one.get_key_element() for one in overrides if one.is_sweep_override()
        ]
        returned = list[Sequence[JobReturn]]()
        failed = False
        for batch in batches:
            returned.append(self.launcher.launch(batch, sum(map(len, returned))))
            failed |= self.launcher.failed
        if failed:
            raise SystemExit(1)
        return returned


def sweep_name(command: str, overrides: Sequence[str]) -> str:
    """Name of the folder of a sweep: the same command finds the same folder, whatever runs it.

    Parameters
    ----------
    command : str
    overrides : sequence of str
        Of the command line, those of Hydra left out; their order does not count, the version of the
        code does.
    """
    from experiments.files.identity import code_digest

    if isinstance(
        overrides, ListConfig
    ):  # interpolations as they are: many can be looked up in a job only
        overrides = OmegaConf.to_container(overrides, resolve=False)  # type: ignore[assignment]
    lines = [str(line) for line in overrides]
    named = [
        line.partition("=")[2] for line in lines if line.startswith(("experiment=", "+experiment="))
    ]
    content = json.dumps([command, sorted(lines), code_digest()])
    return f"{named[-1] if named else command}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


OmegaConf.register_new_resolver("sweep_name", sweep_name, replace=True)


def _check(overrides: Sequence[Override]) -> None:
    """Refuse sweeps over nothing, and over what a grid cannot have."""
    for one in overrides:
        if one.is_interval_sweep():
            raise UserError(
                f"{one.input_line} is an interval to search in: take hydra/sweeper=optuna, or list values"
            )
        if one.is_discrete_sweep() and not _list_values(one):
            raise UserError(f"{one.input_line} sweeps over nothing: the range is empty")


def _list_values(swept: Override) -> list[str]:
    """Values of a sweep; Hydra learns only here that a range has no step, or ends nowhere."""
    try:
        return list(swept.sweep_string_iterator())
    except (ValueError, ArithmeticError) as error:
        wanted = "a range of finite numbers whose step is not 0"
        raise UserError(f"{swept.input_line}: expected {wanted}, or list the values") from error


class OptunaSweeper(Sweeper):
    """Chooses each trial from the results of those before, with Optuna.

    Parameters
    ----------
    params
        More overrides by key, those to search included.
    settings
        Of the search, as in conf/hydra/sweeper/optuna.yaml.
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
        make = Plugins.instance().instantiate_launcher
        self.launcher = make(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Search with these overrides; exit code 1 if a trial has failed."""
        assert self.hydra_context is not None
        with in_one_line():
            from experiments.sweeps.search import Settings, search, space_of

            if not isinstance(self.launcher, SweepLauncher):
                needed = "hydra/launcher=in_process, joblib, dask or slurm of this package, which know finished jobs"
                got = f"{type(self.launcher).__module__}.{type(self.launcher).__name__}"
                raise UserError(f"hydra/sweeper=optuna needs {needed}; got {got}")
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
