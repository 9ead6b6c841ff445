"""Composes the configurations of many jobs, once for each combination of options.

Hydra first composes the options and then sets values. As composing takes a tenth of a second, it is
done only once for each combination of options, and each job sets its values on a copy.
"""

from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from experiments.cli.config import check_keys
from experiments.cli.mistakes import check_added, explain
from sysid.errors import UserError


class Composer:
    """Composes the configurations of the jobs of one sweep.

    Parameters
    ----------
    loader : ConfigLoader
        Loader of the command's configuration.
    master : DictConfig
        Configuration of the sweep. Its overrides of Hydra's own settings hold for every job.
    """

    def __init__(self, loader: ConfigLoader, master: DictConfig) -> None:
        self._loader = loader
        self._master = master
        self._hydra_overrides = [str(line) for line in master.hydra.overrides.hydra]
        self.parser = OverridesParser.create(config_loader=loader)
        #: the composed configuration, and whether it refers to Hydra's own values
        #: (``${hydra:...}``), by the overrides that choose options
        self._loaded: dict[tuple[str, ...], tuple[DictConfig, bool]] = {}

    def job(
        self, overrides: Sequence[str], number: int = 0
    ) -> tuple[dict[str, Any], dict[str, Any], bool]:
        """Compose and check the configuration of the job with these overrides and this number.

        Returns
        -------
        configuration : dict
            The configuration as plain data; the command's part of it is resolved.
        values : dict
            The values that the overrides of the job set, by key.
        numbered : bool
            Whether the configuration may depend on the number or the folder of the job, for example
            through ``${hydra:job.num}``.

        Raises
        ------
        ValueError
            If an option or a key does not exist (the message names the nearest one), or an
            interpolation refers to something that does not exist.
        """
        parsed = self.parser.parse_overrides(list(overrides))
        option_lines = self._option_lines(parsed)
        try:
            config = self.compose(parsed)
            hydra = config.hydra
            folder = Path(str(self._master.hydra.sweep.dir)).absolute()
            with open_dict(hydra):
                hydra.job.num = number
                hydra.job.id = str(number)
                hydra.sweep.dir = str(folder)
                hydra.sweep.subdir = str(number)
                hydra.runtime.output_dir = str(folder / str(number))
            content = resolve(config)
        except (HydraException, OmegaConfBaseException) as error:
            composable, _ = self._load(())
            with suppress(HydraException, OmegaConfBaseException):
                composable, _ = self._load(option_lines)
            raise UserError(explain(error, parsed, composable, self._loader)) from error
        check_keys(config, str(self._master.hydra.job.config_name))
        check_added(parsed, config)
        values = {
            override.key_or_group: _value(override)
            for override in parsed
            if not override.is_hydra_override()
        }
        _, refers_to_hydra = self._load(option_lines)
        numbered = refers_to_hydra or any("hydra" in str(item.input_line) for item in parsed)
        return content, values, numbered

    def compose(self, parsed: Sequence[Override]) -> DictConfig:
        """Compose the configuration in the same way as Hydra does from these overrides.

        Raises
        ------
        hydra.errors.HydraException, omegaconf.errors.OmegaConfBaseException
            If an option or a key does not exist.
        """
        loaded, _ = self._load(self._option_lines(parsed))
        config = deepcopy(loaded)
        settings = [override for override in parsed if not self._is_option(override)]
        ConfigLoaderImpl._apply_overrides_to_config(settings, config)
        task_overrides = [item for item in parsed if not item.is_hydra_override()]
        hydra_overrides = [item for item in parsed if item.is_hydra_override()]
        form = config.hydra.job.config.override_dirname
        with open_dict(config.hydra):
            config.hydra.overrides.task = [item.input_line for item in task_overrides]
            config.hydra.overrides.hydra = self._hydra_overrides + [
                item.input_line for item in hydra_overrides
            ]
            config.hydra.job.override_dirname = get_overrides_dirname(
                task_overrides, list(form.exclude_keys), form.item_sep, form.kv_sep
            )
        OmegaConf.copy_cache(from_config=self._master, to_config=config)
        return config

    def _option_lines(self, parsed: Sequence[Override]) -> tuple[str, ...]:
        """Return the overrides that choose options, as text."""
        return tuple(item.input_line or "" for item in parsed if self._is_option(item))

    def _is_option(self, override: Override) -> bool:
        """Return whether an override chooses an option of a group instead of setting values."""
        if isinstance(override._value, dict):
            return False
        repository = self._loader.repository  # type: ignore[attr-defined]
        return bool(repository.group_exists(override.key_or_group))

    def _load(self, option_lines: tuple[str, ...]) -> tuple[DictConfig, bool]:
        """Return the configuration with these options, and whether it refers to Hydra's values."""
        if option_lines not in self._loaded:
            name = self._master.hydra.job.config_name
            lines = [*self._hydra_overrides, *option_lines]
            try:
                config = self._loader.load_configuration(name, lines, RunMode.RUN)
            except ValueError as error:  # raised by Hydra if an option is not a name
                raise UserError(f"{' '.join(option_lines)}: {error}") from error
            content = OmegaConf.to_container(config)
            assert isinstance(content, dict)
            refers_to_hydra = "${hydra" in repr(content | {"hydra": None})
            self._loaded[option_lines] = config, refers_to_hydra
        return self._loaded[option_lines]


def resolve(config: DictConfig) -> dict[str, Any]:
    """Turn the configuration of a job into plain data.

    The command's part is resolved; Hydra's part stays as it is.

    Raises
    ------
    omegaconf.errors.OmegaConfBaseException
        If an interpolation refers to something that does not exist.
    """
    before = HydraConfig.instance().cfg
    # ${hydra:...} is looked up here. `set_config` would copy the configuration.
    HydraConfig.instance().cfg = config  # type: ignore[assignment]
    try:
        content = {str(name): config[name] for name in config}
        for name, value in content.items():
            if OmegaConf.is_config(value):
                content[name] = OmegaConf.to_container(
                    value, resolve=name != "hydra", enum_to_str=True
                )
        return content
    finally:
        HydraConfig.instance().cfg = before


def _value(override: Override) -> Any:
    """Return the value of an override: a number, a flag or None, and everything else as text."""
    value = override.value()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return override.get_value_element_as_str()
