"""Sweepers: all combinations, or a search. Hydra imports this file at every start, so it imports little."""

from collections.abc import Mapping, Sequence
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from hydra_plugins.sysid_sweep.launcher import SweepLauncher, check_launcher, end_with_error, in_one_line, plain


class GridSweeper(BasicSweeper):
    """Hydra's own sweeper for launchers of this package: nothing is composed twice, a failed job ends nothing."""

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
        except (HydraException, ValueError) as error:
            end_with_error(str(error))
        self.launcher.swept = [one.get_key_element() for one in overrides if one.is_sweep_override()]
        returned, failed = list[Sequence[JobReturn]](), False
        for batch in batches:
            returned.append(self.launcher.launch(batch, sum(map(len, returned))))
            failed |= self.launcher.failed
        if failed:
            raise SystemExit(1)
        return returned


def _check(overrides: Sequence[Override]) -> None:
    """Refuse sweeps over nothing, and over what a grid cannot have."""
    for one in overrides:
        if one.is_interval_sweep():
            raise ValueError(f"{one.input_line} is an interval to search in: take hydra/sweeper=optuna, or list values")
        if one.is_discrete_sweep() and not list(one.sweep_string_iterator()):
            raise ValueError(f"{one.input_line} sweeps over nothing: the range is empty")


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

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.hydra_context, self.config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Search with these overrides; exit code 1 if a trial has failed."""
        assert self.hydra_context is not None
        with in_one_line():
            from experiments.sweeps.search import Settings, search, space_of

            if not isinstance(self.launcher, SweepLauncher):
                raise ValueError(
                    "hydra/sweeper=optuna needs hydra/launcher=in_process, joblib, dask or slurm of this package, "
                    f"which know finished jobs; got {type(self.launcher).__module__}.{type(self.launcher).__name__}"
                )
            settings = Settings(**self._settings)
            lines = [*(f"{key}={value}" for key, value in self._params.items()), *arguments]
            space = space_of(lines, settings.average_over, self.hydra_context.config_loader)
            self.launcher.swept = space.swept
            found = search(self.launcher.sweep(), settings, space)
        if found.failed:
            raise SystemExit(1)
        return found
