"""What an identification asks of a source of samples, be it a live simulation or records."""

import json
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import xarray as xr
from omegaconf import DictConfig

from experiments.cli.build import build
from experiments.plant.lags import AutomaticNarx
from experiments.plant.physics import RESIDUAL, FittedPhysics, Physics
from sysid import Identification, LagChoice, Measurement, Narx, Recordings, Settings, Start
from sysid.errors import UserError

SAMPLES_PER_BLOCK = 1000  # samples that are delivered at a time; no result depends on it
#: keys of the configuration that belong to a simulation
SIMULATION = frozenset(
    {"system", "controller", "weather", "weather_input", "excitation", "excitations", "excited", "operating_point"}
    | {"noise", "interpolation", "duration", "identified"}
)


class Source(Protocol):
    """What an identification learns from, and what judges the model afterwards."""

    title: str  # what the source is called in words for people
    activity: str  # what it does while samples are identified: simulation, or reading
    outputs: list[str]
    inputs: list[str]
    unused: frozenset[str]  # keys of the configuration without effect on it
    physics: FittedPhysics | None  # simulated beside it
    n_samples: int
    n_identified: int  # samples that are learned; the others judge the model

    @property
    def n_seen(self) -> int:
        """Samples delivered so far."""

    @property
    def lag_choice(self) -> LagChoice | None:
        """How the lags were chosen by held-out errors, if they were."""

    def segments(self) -> Iterator[Iterator[Measurement]]:
        """Yield the samples to identify from by record: no lag reaches from one into another."""

    def restart(self) -> None:
        """Begin again with the first sample."""

    def finish(self) -> Iterator[Measurement]:
        """Deliver the samples that are not identified."""

    def is_validation(self, record: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Whether samples (n,), given by the number of their record and their time [s], are not identified."""

    def is_judged(self, record: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Whether samples (n,) count for the error of the model."""

    def records(self) -> Sequence[xr.Dataset]:
        """All samples delivered so far, record by record."""

    def recordings(self) -> Recordings | None:
        """Estimation, validation and test records; None of a live simulation."""

    def warnings(self) -> list[str]:
        """Say what a person should know of these samples."""

    def know(self, narx: Narx, settings: Settings) -> Start:
        """Return what is known before the first sample is learned."""

    def calibrate(self, identification: Identification) -> None:
        """Measure the bands of the model, where that takes held-out samples."""

    def lags(self, automatic: AutomaticNarx, settings: Settings) -> tuple[Narx, object]:
        """Choose the lags; returns them and how they were found."""

    def check(self, narx: Narx, n_needed: int) -> None:
        """Raise ValueError if the lags do not fit, or if fewer samples than needed are to be identified."""


def trajectory_of(source: Source) -> xr.Dataset:
    """All records behind each other along `time`, each sample with the number of its record and its part."""
    records = source.records()
    dataset, facts = records[0], {"inputs": json.dumps(source.inputs), "outputs": json.dumps(source.outputs)}
    if "name" in dataset.attrs:
        facts["record_names"] = json.dumps([str(one.attrs["name"]) for one in records])
    number = np.repeat(np.arange(len(records)), [record.sizes["time"] for record in records])
    if len(records) > 1:
        dataset = xr.concat(records, "time", data_vars="all", coords="minimal", combine_attrs="drop_conflicts")
    part = source.is_validation(number, dataset["time"].values).astype(np.int8)
    flags = {"flag_values": np.array([0, 1], dtype=np.int8), "flag_meanings": "identified validation"}
    return dataset.assign_attrs(facts).assign_coords(
        record=("time", number, {"long_name": "number of the record"}),
        part=("time", part, {"long_name": "part of the run", **flags}),
    )


def physics_of(config: DictConfig) -> Physics | None:
    """The configured physics, if there is one."""
    physics = build(config, "physics") if "_target_" in config.physics else None
    is_estimated = "_target_" in config.data and physics is not None and physics.free
    is_residual = config.narx.get("predict") == RESIDUAL
    if is_residual and "mean" in build(config, "training").replaces:
        why = "the residual is a mean, this training brings its own"
        raise UserError(f"narx.predict={RESIDUAL}: {why}; take another training, or lags and narx.predict=change")
    if physics is not None and physics.covariance and not (is_estimated and is_residual):
        needed = "parameters estimated from a record (data, physics.free), and narx.predict=residual"
        raise UserError(f"physics.covariance=true needs {needed}; set them, or leave the covariance out")
    return physics


def identified_share(config: DictConfig, default: float) -> float:
    """Fraction that is identified; the rest judges the model."""
    fraction = default if config.identified is None else config.identified
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction <= 1:
        raise UserError(f"identified must be a fraction above 0 and at most 1, got {fraction}")
    return float(fraction)
