"""Lags of the models of a benchmark: one `Narx` for every output that has any."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from omegaconf import DictConfig

from experiments.automatic import AutomaticNarx
from experiments.benchmark_folder.split import Split
from experiments.build import build
from experiments.plant import Plant
from sysid import Narx, Orders

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lags:
    """Lags by output, and why some outputs have none."""

    by_output: Mapping[str, Narx]  # at least that of the target of the configuration, which is the first
    absent: Mapping[str, str]  # output to the reason

    @property
    def first(self) -> Narx:
        """Lags of the target of the configuration."""
        return next(iter(self.by_output.values()))

    @property
    def largest(self) -> int:
        """Largest lag of all."""
        return max(narx.max_lag for narx in self.by_output.values())

    @property
    def left_out(self) -> list[str]:
        """What the models of these lags cannot do, in sentences."""
        lines = [f"Not computed: baselines of `{output}`; {reason}" for output, reason in self.absent.items()]
        for output, narx in self.by_output.items():
            if others := [name for name in narx.output_names if name != output]:
                needed = ", ".join(f"`{name}`" for name in others)
                lines.append(
                    f"Not computed: free runs of the baselines of `{output}`; its lags need {needed}, which would "
                    "have to be measured all the time"
                )
        return lines


def lags_of(config: DictConfig, plant: Plant, split: Split) -> Lags:
    """Lags of the configuration, or those of the dynamics along a simulation as long as a record of a split.

    Raises
    ------
    ValueError
        As `Narx`; where lags are to be chosen, none for the target.
    """
    given = build(config, "narx")
    if isinstance(given, Orders):
        given = given.narx(plant.outputs, plant.inputs)
    return Lags(*(_chosen(given, plant, split) if isinstance(given, AutomaticNarx) else _named(given, plant)))


def _chosen(automatic: AutomaticNarx, plant: Plant, split: Split) -> tuple[dict[str, Narx], dict[str, str]]:
    """Lags of every output from the dynamics."""
    first, report = automatic.of_plant(plant, split.n_samples, split.seeds[0])
    log.info("Lags chosen: %s", report)
    found, absent = {first.target: first}, {}
    for output in plant.outputs:
        if output not in found:
            try:
                own = replace(automatic, target=output)
                found[output], report = own.of_plant(plant, split.n_samples, split.seeds[0])
            except ValueError as error:
                absent[output] = str(error)
            else:
                log.info("Lags chosen: %s", report)
    return found, absent


def _named(narx: Narx, plant: Plant) -> tuple[dict[str, Narx], dict[str, str]]:
    """Lags of the configuration for every output that they name."""
    found, absent = {narx.target: narx}, {}
    for output in plant.outputs:
        if output not in narx.output_names:
            absent[output] = "narx names no lags of it (narx=auto finds lags for every output)"
        elif output not in found:
            try:
                found[output] = replace(narx, target=output)
            except ValueError as error:
                absent[output] = str(error)
    return found, absent
