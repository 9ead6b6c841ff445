"""What models reach on a benchmark: its baselines, the lags that they take, their scores beside the
noise floor.
"""

import logging
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, ClassVar

import numpy as np
import xarray as xr

import sysid
from experiments.cli.ends import REFUSALS
from experiments.generate.benchmark import SimulatedRecord
from experiments.generate.floor import find_floor
from experiments.plant.lags import AutomaticNarx
from experiments.plant.plant import Plant
from sysid import Model, Narx, Orders, Settings
from sysid.arrays import Array
from sysid.errors import UserError
from sysid.simulation import baselines
from sysid.simulation.baselines import Baseline

TASKS = ("one_step", "free_run")

log = logging.getLogger(__name__)


class BaselineSettings(ABC):
    """What is needed to fit a baseline to the estimation records; a frozen dataclass.

    The first paragraph of its docstring describes the model in the data card, under its label.
    """

    label: ClassVar[str] = ""  # in tables; empty: the key in the configuration

    @abstractmethod
    def fit(self, narx: Narx, records: Sequence[xr.Dataset], seed: int) -> Baseline:
        """Model of the target of `narx`, from the estimation records.

        Raises
        ------
        ValueError
            If the records are too short for it.
        """


@dataclass(frozen=True)
class Mean(BaselineSettings):
    """The mean of the estimation output, always."""

    label: ClassVar = "mean"

    def fit(self, narx: Narx, records: Sequence[xr.Dataset], seed: int) -> Baseline:
        return baselines.Mean.fit(narx, records)


@dataclass(frozen=True)
class Persistence(BaselineSettings):
    """The output one sample earlier; in free run the last measured one."""

    label: ClassVar = "persistence"

    def fit(self, narx: Narx, records: Sequence[xr.Dataset], seed: int) -> Baseline:
        return baselines.Persistence(narx)


@dataclass(frozen=True)
class Arx(BaselineSettings):
    """A linear model of the lags with a constant, by least squares.

    Parameters
    ----------
    ridge : float
        Penalty on the coefficients of the standardised features, see
        `sysid.simulation.baselines.LinearArx.fit`.
    """

    label: ClassVar = "ARX"

    ridge: float = 0.0  # -

    def fit(self, narx: Narx, records: Sequence[xr.Dataset], seed: int) -> Baseline:
        return baselines.LinearArx.fit(narx, records, ridge=self.ridge)


@dataclass(frozen=True)
class OnlineGp(BaselineSettings):
    """The online Gaussian process of the toolbox: a fixed number of points, one pass over the
    estimation records.

    Parameters
    ----------
    budget : int
        Points of the dictionary.
    training, mean, insertion, acceptance, reduction, selection
        As in `sysid.Settings`.
    """

    label: ClassVar = "online GP"

    budget: int = 100  # points
    training: sysid.Training = field(default_factory=sysid.MaximumAPosteriori)
    mean: sysid.MeanFunction = field(default_factory=sysid.ConstantMean)
    insertion: sysid.Insertion = field(default_factory=sysid.Always)
    acceptance: sysid.Acceptance = field(default_factory=sysid.AcceptAll)
    reduction: sysid.Criterion = field(default_factory=sysid.MeanRelevance)
    selection: sysid.Selection = field(default_factory=sysid.Backward)

    def fit(self, narx: Narx, records: Sequence[xr.Dataset], seed: int) -> Baseline:
        settings = Settings(**vars(self), seed=seed)
        identification = sysid.Identification.of_records(
            records, narx, settings, start=sysid.Start()
        )
        return IdentifiedBaseline(narx, identification.require_model())


@dataclass(frozen=True, eq=False)
class IdentifiedBaseline(Baseline):
    """Predictive mean of an identified model."""

    narx: Narx
    model: Model

    def predict(self, regressors: Array, previous: Array) -> Array:
        return np.asarray(self.model.predict(regressors).mean)


def label_baselines(settings: Mapping[str, BaselineSettings]) -> dict[str, str]:
    """Names for people, by key in the scores; with the key in brackets where two baselines share a
    label.
    """
    given = [baseline.label for baseline in settings.values()]
    labels = {key: key.replace("_", " ") for key in ("measurement_noise", "noise_floor", *settings)}
    for key, label in zip(settings, given, strict=True):
        labels[key] = f"{label} ({labels[key]})" if given.count(label) > 1 else label or labels[key]
    return labels


def choose_lags(
    given: Narx | Orders | AutomaticNarx, plant: Plant, n_samples: int, seed: int
) -> tuple[dict[str, Narx], list[str]]:
    """Lags of every output that has any, that of the target first, and sentences on what cannot be
    computed with them.

    They are the given ones, or those of the dynamics along a simulation of so many samples.

    Raises
    ------
    ValueError
        As `Narx`; where lags are to be chosen, none for the target.
    """
    if isinstance(given, Orders):
        given = given.narx(plant.outputs, plant.inputs)

    lags: dict[str, Narx] = {}
    notes = []
    for output in (
        given.target,
        *plant.outputs,
    ):  # the target may be None: the first output
        try:
            if output in lags:
                continue
            if isinstance(given, AutomaticNarx):
                narx, report = replace(given, target=output).of_plant(plant, n_samples, seed)
                log.info("Lags chosen: %s", report)
            elif output in given.output_names:
                narx = replace(given, target=output)
            else:
                raise UserError("narx names no lags of it (narx=auto finds lags for every output)")
            lags[narx.target] = narx
        except REFUSALS as error:
            if not lags:
                raise
            notes.append(f"Not computed: baselines of `{output}`; {error}")
    for output, narx in lags.items():
        if others := ", ".join(f"`{name}`" for name in narx.output_names if name != output):
            why = f"its lags need {others}, which would have to be measured all the time"
            notes.append(f"Not computed: free runs of the baselines of `{output}`; {why}")
    return lags, notes


def score_models(
    records: list[SimulatedRecord],
    lags: Mapping[str, Narx],
    settings: Mapping[str, BaselineSettings],
    plant: Plant,
    *,
    seed: int,
    noise_paths: int,
) -> dict[str, Any]:
    """RMSE on the test records, without their windows, by task, model and output.

    ``scores["free_run"]["noise_floor"]["displacement"]["rmse"]``; None stands for a run that leaves
    the finite numbers. The floor has every output, baselines those that have lags, and a free run
    where the lags need no other output.
    """
    test = [record for record in records if record.role == "test"]
    estimation = [record.measured for record in records if record.role == "estimation"]
    units = {name: unit for name, unit, _ in plant.system.outputs}
    window = test[0].window
    models = {
        (key, o): one.fit(lags[o], estimation, seed)
        for o in units
        if o in lags
        for key, one in settings.items()
    }
    errors: dict[tuple[str, ...], list[Array]] = defaultdict(
        list
    )  # by task, model, output: of every record
    for record in test:
        trajectory = record.trajectory
        first = record.transient + window
        floor = find_floor(trajectory, plant.controller.inputs_driven, first - 1, noise_paths)
        noise = trajectory.noise_free_output - trajectory.output
        for i, name in enumerate(units):
            for task in TASKS:
                errors[task, "measurement_noise", name].append(noise[first:, i])
                errors[task, "noise_floor", name].append(
                    (getattr(floor, task) - trajectory.output)[first:, i]
                )
        for (key, name), model in models.items():
            narx = model.narx
            measured = record.measured[[*model.narx.signals]]
            rows = narx.dataset(measured)
            error = rows["target"].values - model.one_step(rows)
            errors["one_step", key, name].append(error[window - narx.max_lag :])
            if len(narx.output_names) == 1:
                error = model.free_run(dict(measured), n_initial=window) - measured[name].values
                errors["free_run", key, name].append(error[window:])
    keys = ("measurement_noise", "noise_floor", *settings)
    scores: dict[str, Any] = {task: {key: {} for key in keys} for task in TASKS}
    for (task, key, name), found in errors.items():
        with np.errstate(over="ignore"):
            rms = float(np.sqrt(np.mean(np.concatenate(found) ** 2)))
        scores[task][key][name] = {
            "unit": units[name],
            "rmse": rms if isfinite(rms) else None,
        }
    return {"initialisation_window": window, **scores}
