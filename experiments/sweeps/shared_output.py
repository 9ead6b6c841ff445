"""Refuses sweeps whose runs would all write to the same folder."""

import sys
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from experiments.cli.ends import Refused


class SharedOutput(Callback):
    """Hydra callback that refuses a sweep whose runs would all write to the same `output`."""

    def on_multirun_start(self, config: DictConfig, **options: Any) -> None:
        """Check the overrides before Hydra splits them into runs."""
        given: Any = OmegaConf.to_container(config.hydra.overrides.task, resolve=False)
        lines = [str(line) for line in given]
        for override in OverridesParser.create().parse_overrides(lines):
            if override.key_or_group != "output" or override.is_sweep_override():
                continue
            if "${" in str(override.input_line):
                continue
            print(
                f"Error: every run of this sweep would write to {override.input_line}: "
                f"use '{override.input_line}/${{hydra:job.num}}' (in quotes), or leave output out",
                file=sys.stderr,
            )
            raise Refused(1)
