"""Refuses sweeps whose runs would all write to the same folder."""

import sys
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from experiments.cli.ends import Refused


class SharedOutput(Callback):
    """Hydra callback: refuses a sweep whose runs would all write to the same `output`, before the
    first of them.
    """

    def on_multirun_start(self, config: DictConfig, **options: Any) -> None:
        """Read the overrides as they were given, before they are split into runs."""
        written: Any = OmegaConf.to_container(config.hydra.overrides.task, resolve=False)
        for item in OverridesParser.create().parse_overrides([str(line) for line in written]):
            if (
                item.key_or_group == "output"
                and not item.is_sweep_override()
                and "${" not in str(item.input_line)
            ):
                advice = (
                    f"use '{item.input_line}/${{hydra:job.num}}' (in quotes), or leave output out"
                )
                print(
                    f"Error: every run of this sweep would write to {item.input_line}: {advice}",
                    file=sys.stderr,
                )
                raise Refused(1)
