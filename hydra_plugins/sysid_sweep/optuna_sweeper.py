"""The searching sweeper: hydra/sweeper=optuna. Hydra imports this file at every start, so it imports little."""

from collections.abc import Mapping
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from hydra_plugins.sysid_sweep.launcher import SweepLauncher, told


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
        self._settings = {
            name: OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
            for name, value in settings.items()
        }

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Take what Hydra knows, and make the launcher."""
        self.hydra_context, self.config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Search with these overrides; exit code 1 if a trial has failed."""
        with told():
            from experiments.sweep.search.conduct import search
            from experiments.sweep.search.settings import settings_of
            from experiments.sweep.search.space import space_of

            assert self.hydra_context is not None
            if not isinstance(self.launcher, SweepLauncher):
                raise ValueError(
                    "hydra/sweeper=optuna needs hydra/launcher=in_process, joblib, dask or slurm, which know the "
                    f"finished jobs; got {type(self.launcher).__name__}"
                )
            settings = settings_of(**self._settings)
            lines = [*(f"{key}={value}" for key, value in self._params.items()), *arguments]
            space = space_of(lines, settings.average_over, self.hydra_context.config_loader)
            self.launcher.swept = space.swept
            found = search(self.launcher.sweep(), settings, space)
        if found.failed:
            raise SystemExit(1)
        return found
