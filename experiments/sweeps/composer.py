"""Configurations of many jobs, composed once for each combination of options.

Hydra composes options first and sets values afterwards. Composing takes it a tenth of a second; so
it is done once for each combination of options, and each job sets its values on a copy.
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
        Of the command.
    master : DictConfig
        Configuration of the sweep, whose overrides of Hydra hold for every job.
    """

    def __init__(self, loader: ConfigLoader, master: DictConfig) -> None:
        self._loader = loader
        self._master = master
        self._hydra = [str(line) for line in master.hydra.overrides.hydra]
        self.parser = OverridesParser.create(config_loader=loader)
        #: by the overrides that choose options: the configuration, and whether their files look up something of Hydra
        self._loaded: dict[tuple[str, ...], tuple[DictConfig, bool]] = {}

    def job(
        self, overrides: Sequence[str], number: int = 0
    ) -> tuple[dict[str, Any], dict[str, Any], bool]:
        """Compose and check the configuration of the job with these overrides and this number.

        Returns
        -------
        configuration : dict
            Plain data, the command's part resolved.
        values : dict
            What the overrides of the job set, by key.
        numbered : bool
            Whether the job may ask for its own number or folder, as ``${hydra:job.num}`` does.

        Raises
        ------
        ValueError
            Options and keys that do not exist, with the nearest that do; interpolations that lead
            nowhere.
        """
        parsed = self.parser.parse_overrides(list(overrides))
        lines = self._options(parsed)
        try:
            config = self.compose(parsed)
            hydra = config.hydra
            folder = Path(str(self._master.hydra.sweep.dir)).absolute()
            with open_dict(hydra):
                hydra.job.num, hydra.job.id = number, str(number)
                hydra.sweep.dir, hydra.sweep.subdir = str(folder), str(number)
                hydra.runtime.output_dir = str(folder / str(number))
            content = resolve(config)
        except (HydraException, OmegaConfBaseException) as error:
            composable, _ = self._load(())
            with suppress(HydraException, OmegaConfBaseException):
                composable, _ = self._load(lines)
            raise UserError(explain(error, parsed, composable, self._loader)) from error
        check_keys(config, str(self._master.hydra.job.config_name))
        check_added(parsed, config)
        values = {one.key_or_group: _value(one) for one in parsed if not one.is_hydra_override()}
        numbered = self._load(lines)[1] or any("hydra" in str(one.input_line) for one in parsed)
        return content, values, numbered

    def compose(self, parsed: Sequence[Override]) -> DictConfig:
        """Compose the configuration that Hydra makes of these overrides.

        Raises
        ------
        hydra.errors.HydraException, omegaconf.errors.OmegaConfBaseException
            Options and keys that do not exist.
        """
        config = deepcopy(self._load(self._options(parsed))[0])
        ConfigLoaderImpl._apply_overrides_to_config(
            [one for one in parsed if not self._is_option(one)], config
        )
        own = [one for one in parsed if not one.is_hydra_override()]
        form = config.hydra.job.config.override_dirname
        with open_dict(config.hydra):
            config.hydra.overrides.task = [one.input_line for one in own]
            config.hydra.overrides.hydra = self._hydra + [
                one.input_line for one in parsed if one.is_hydra_override()
            ]
            config.hydra.job.override_dirname = get_overrides_dirname(
                own, list(form.exclude_keys), form.item_sep, form.kv_sep
            )
        OmegaConf.copy_cache(from_config=self._master, to_config=config)
        return config

    def _options(self, parsed: Sequence[Override]) -> tuple[str, ...]:
        """Those overrides that choose options."""
        return tuple(one.input_line or "" for one in parsed if self._is_option(one))

    def _is_option(self, override: Override) -> bool:
        """Whether an override chooses an option of a group, and does not set values."""
        repository = self._loader.repository  # type: ignore[attr-defined]
        return not isinstance(override._value, dict) and repository.group_exists(
            override.key_or_group
        )

    def _load(self, lines: tuple[str, ...]) -> tuple[DictConfig, bool]:
        if lines not in self._loaded:
            name = self._master.hydra.job.config_name
            try:
                config = self._loader.load_configuration(name, [*self._hydra, *lines], RunMode.RUN)
            except ValueError as error:  # Hydra's own, of an option that is no name
                raise UserError(f"{' '.join(lines)}: {error}") from error
            task = OmegaConf.masked_copy(config, [str(name) for name in config if name != "hydra"])
            self._loaded[lines] = config, "${hydra" in OmegaConf.to_yaml(task)
        return self._loaded[lines]


def resolve(config: DictConfig) -> dict[str, Any]:
    """Turn the configuration of a job into plain data.

    The command's part is resolved, Hydra's stays as it is.

    Raises
    ------
    omegaconf.errors.OmegaConfBaseException
        An interpolation that leads nowhere.
    """
    before = HydraConfig.instance().cfg
    HydraConfig.instance().cfg = config  # type: ignore[assignment]  # for ${hydra:...}; set_config would copy it
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
    """Value of an override: a number, a flag, None, or else text."""
    value = override.value()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return override.get_value_element_as_str()
