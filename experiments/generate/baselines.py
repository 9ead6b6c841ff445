"""The baselines of a benchmark: their lags, and their scores beside noise floor and limit."""

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
from experiments.plant.limit import find_limit
from experiments.plant.plant import Plant
from sysid import Model, Narx, Orders, Settings
from sysid.arrays import Array
from sysid.errors import UserError
from sysid.simulation import baselines
from sysid.simulation.baselines import Baseline

SCORED_TASKS = ("one_step", "free_run")
#: keys of the predictions that know the system, before those of the baselines
REFERENCES = ("measurement_noise", "noise_floor", "limit")

log = logging.getLogger(__name__)


class BaselineSettings(ABC):
    """Settings of a baseline that can be fitted to the estimation records.

    Subclasses are frozen dataclasses. The first paragraph of their docstring describes the model in
    the data card, after its label.
    """

    label: ClassVar[str] = ""  # name in tables; if empty, the key of the configuration is used

    @abstractmethod
    def fit(self, narx: Narx, records: Sequence[xr.Dataset], seed: int) -> Baseline:
        """Fit a model of the target of `narx` to the estimation records.

        Raises
        ------
        ValueError
            If the records are too short.
        """


@dataclass(frozen=True)
class Mean(BaselineSettings):
    """Every prediction is the mean of the output in the estimation records."""

    label: ClassVar = "mean"

    def fit(self, narx: Narx, records: Sequence[xr.Dataset], seed: int) -> Baseline:
        return baselines.Mean.fit(narx, records)


@dataclass(frozen=True)
class Persistence(BaselineSettings):
    """Every prediction is the output one sample earlier, in free run the last measured output."""

    label: ClassVar = "persistence"

    def fit(self, narx: Narx, records: Sequence[xr.Dataset], seed: int) -> Baseline:
        return baselines.Persistence(narx)


@dataclass(frozen=True)
class Arx(BaselineSettings):
    """A linear model of the lagged signals with a constant, fitted by least squares.

    Parameters
    ----------
    ridge : float
        Penalty on the squared coefficients of the standardised features, see
        `sysid.simulation.baselines.LinearArx.fit`.
    """

    label: ClassVar = "ARX"

    ridge: float = 0.0  # -

    def fit(self, narx: Narx, records: Sequence[xr.Dataset], seed: int) -> Baseline:
        return baselines.LinearArx.fit(narx, records, ridge=self.ridge)


@dataclass(frozen=True)
class OnlineGp(BaselineSettings):
    """The online Gaussian process of the toolbox, trained in one pass over the estimation records.

    Parameters
    ----------
    budget : int
        Number of points in the dictionary.
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

    def __post_init__(self) -> None:
        """Check the settings before anything is simulated."""
        Settings(**vars(self))

    def fit(self, narx: Narx, records: Sequence[xr.Dataset], seed: int) -> Baseline:
        settings = Settings(**vars(self), seed=seed)
        identification = sysid.Identification.of_records(
            records, narx, settings, start=sysid.Start()
        )
        for note in identification.time_limit.describe("training.seconds"):
            log.warning("Note: baseline %s of %s: %s", self.label, narx.target, note)
        return IdentifiedBaseline(narx, identification.require_model())


@dataclass(frozen=True, eq=False)
class IdentifiedBaseline(Baseline):
    """The predictive mean of an identified model."""

    narx: Narx
    model: Model

    def predict(self, regressors: Array, previous: Array) -> Array:
        return np.asarray(self.model.predict(regressors).mean)


def label_baselines(settings: Mapping[str, BaselineSettings]) -> dict[str, str]:
    """Return the names of the baselines in tables, by their key in the scores.

    If two baselines have the same label, the key follows it in brackets.
    """
    given_labels = [baseline.label for baseline in settings.values()]
    labels = {key: key.replace("_", " ") for key in (*REFERENCES, *settings)}
    for key, label in zip(settings, given_labels, strict=True):
        if given_labels.count(label) > 1:
            labels[key] = f"{label} ({labels[key]})"
        elif label:
            labels[key] = label
    return labels


def choose_lags(
    given: Narx | Orders | AutomaticNarx, plant: Plant, n_samples: int, seed: int
) -> tuple[dict[str, Narx], list[str]]:
    """Return the lags of the models of every output.

    They are the given lags. With `AutomaticNarx` they are chosen from the dynamics along a
    simulation of `n_samples` samples.

    Returns
    -------
    dict of Narx
        Lags by output, those of the target first. An output without lags is missing.
    list of str
        Notes on what cannot be computed with these lags.

    Raises
    ------
    ValueError
        If the given lags are not allowed, or no lags can be chosen for the target.
    """
    if isinstance(given, Orders):
        given = given.narx(plant.outputs, plant.inputs)

    lags: dict[str, Narx] = {}
    notes = []
    for output in (given.target, *plant.outputs):  # if the target is None, it is the first output
        if output in lags:
            continue
        try:
            narx = _lags_of_output(output, given, plant, n_samples, seed)
        except REFUSALS as error:
            if not lags:
                raise
            notes.append(f"Not computed: baselines of `{output}`; {error}")
        else:
            lags[narx.target] = narx
    for output, narx in lags.items():
        others = [f"`{name}`" for name in narx.output_names if name != output]
        if others:
            notes.append(
                f"Not computed: free runs of the baselines of `{output}`; "
                f"its lags need {', '.join(others)}, which would have to be measured all the time"
            )
    return lags, notes


def _lags_of_output(
    output: str, given: Narx | AutomaticNarx, plant: Plant, n_samples: int, seed: int
) -> Narx:
    """Return the lags of the model of one output."""
    if isinstance(given, AutomaticNarx):
        narx, report = replace(given, target=output).of_plant(plant, n_samples, seed)
        log.info("Lags chosen: %s", report)
        return narx
    if output not in given.output_names:
        raise UserError("narx names no lags of this output (narx=auto finds lags for every output)")
    return replace(given, target=output)


def score_models(
    records: list[SimulatedRecord],
    lags: Mapping[str, Narx],
    settings: Mapping[str, BaselineSettings],
    plant: Plant,
    *,
    seed: int,
    noise_paths: int,
) -> tuple[dict[str, Any], list[str]]:
    """Return the RMSE on the test records, without their windows, by task, model and output.

    An example is ``scores["free_run"]["noise_floor"]["displacement"]["rmse"]``. None stands for a
    run whose error is not finite. The noise floor has scores for every output, the limit one step
    ahead only. Baselines have scores for the outputs that have lags, in free run only if these need
    no other output.

    Returns
    -------
    dict
        The scores.
    list of str
        Notes on scores that cannot be computed.
    """
    test = [record for record in records if record.role == "test"]
    estimation = [record.measured for record in records if record.role == "estimation"]
    units = {name: unit for name, unit, _ in plant.system.outputs}
    window = test[0].window
    models: dict[tuple[str, str], Baseline] = {}
    for output in units:
        if output not in lags:
            continue
        for key, baseline in settings.items():
            models[key, output] = baseline.fit(lags[output], estimation, seed)
    # errors of every record, by task, model and output
    errors: dict[tuple[str, ...], list[Array]] = defaultdict(list)
    for record in test:
        trajectory = record.trajectory
        first = record.transient + window
        floor = find_floor(trajectory, plant.driven, first - 1, noise_paths)
        noise = trajectory.noise_free_output - trajectory.output
        for i, name in enumerate(units):
            for task in SCORED_TASKS:
                floor_errors = getattr(floor, task) - trajectory.output
                errors[task, "measurement_noise", name].append(noise[first:, i])
                errors[task, "noise_floor", name].append(floor_errors[first:, i])
        for (key, name), model in models.items():
            narx = model.narx
            measured = record.measured[list(narx.signals)]
            rows = narx.dataset(measured)
            error = rows["target"].values - model.one_step(rows)
            errors["one_step", key, name].append(error[window - narx.max_lag :])
            if len(narx.output_names) == 1:
                error = model.free_run(dict(measured), n_initial=window) - measured[name].values
                errors["free_run", key, name].append(error[window:])
    limit_errors, notes = _errors_of_limit(test, plant)
    for name, record_errors in limit_errors.items():
        errors["one_step", "limit", name] = record_errors
    keys = (*REFERENCES, *settings)
    scores: dict[str, Any] = {task: {key: {} for key in keys} for task in SCORED_TASKS}
    for (task, key, name), record_errors in errors.items():
        with np.errstate(over="ignore"):
            rms = float(np.sqrt(np.mean(np.concatenate(record_errors) ** 2)))
        scores[task][key][name] = {
            "unit": units[name],
            "rmse": rms if isfinite(rms) else None,
        }
    return {"initialisation_window": window, **scores}, notes


def _errors_of_limit(
    test: list[SimulatedRecord], plant: Plant
) -> tuple[dict[str, list[Array]], list[str]]:
    """Return the errors of the limit one step ahead by output, a list of arrays for the records.

    There are none, but a note, if it is not known on one of the records.
    """
    errors: dict[str, list[Array]] = {name: [] for name in plant.outputs}
    for record in test:
        trajectory = record.trajectory
        limit = find_limit(plant, trajectory, transient=record.transient)
        if limit.mean is None:
            return {}, [f"Not computed: the limit of {record.name}; {limit.reason}"]
        scored = slice(record.transient + record.window, None)
        for i, name in enumerate(plant.outputs):
            errors[name].append((limit.mean - trajectory.output)[scored, i])
    return errors, []
