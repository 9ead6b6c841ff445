"""The grid sweeper: all combinations, checked before the first job, whatever fails."""

import sys
from collections.abc import Sequence
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn
from hydra.errors import HydraException

from hydra_plugins.sysid_sweep.launcher import SweepLauncher


class GridSweeper(BasicSweeper):
    """Hydra's own sweeper for launchers of this package: nothing is composed twice, a failed job ends nothing."""

    def sweep(self, arguments: list[str]) -> Any:
        """Launch all combinations of the swept values."""
        assert self.config is not None
        assert self.hydra_context is not None
        if not isinstance(self.launcher, SweepLauncher):
            return super().sweep(arguments)
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        try:
            overrides = parser.parse_overrides([*self._parse_config(), *arguments])
            _check(overrides)
            batches = self.split_arguments(overrides, self.max_batch_size)
        except (HydraException, ValueError) as error:
            print(f"Error: {error}", file=sys.stderr)
            raise SystemExit(1) from None
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
