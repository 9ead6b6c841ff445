"""Who reaches what on the test records: the noise floor and the baselines."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from experiments.benchmark_folder.baselines.contestant import Contestant
from experiments.benchmark_folder.floor import reachable
from experiments.benchmark_folder.lags import Lags
from experiments.benchmark_folder.record import SimulatedRecord
from experiments.plant import Plant
from simulators import Signal
from sysid import Narx
from sysid.simulation.baselines import Baseline

TASKS = ("one_step", "free_run")


def scores_of(
    records: list[SimulatedRecord],
    lags: Lags,
    contestants: Mapping[str, Contestant],
    plant: Plant,
    *,
    seed: int,
    noise_paths: int,
) -> dict[str, Any]:
    """RMSE on the test records by task, model and output.

    ``scores["free_run"]["noise_floor"]["displacement"]["rmse"]``; None stands for a run that leaves the finite
    numbers. The floor has every output, baselines those that have lags, and a free run where the lags need no
    other output. With process noise the floor of the free run also has ``expected_rmse``, the mean over all
    noise paths instead of the one that was recorded, and ``standard_error``, by the finite number of paths.
    """
    test = [record for record in records if record.role == "test"]
    estimation = [record.measured for record in records if record.role == "estimation"]
    found = _of_the_truth(test, plant, noise_paths)
    for name, contestant in contestants.items():
        for task in TASKS:
            found[task][name] = {}
        for output, narx in lags.by_output.items():
            (signal,) = (signal for signal in plant.system.outputs if signal.name == output)
            for task, error in _errors(contestant.fit(narx, estimation, seed), narx, test).items():
                found[task][name] |= _labelled((signal,), error)
    return {"initialisation_window": test[0].window, **found}


def _errors(model: Baseline, narx: Narx, test: list[SimulatedRecord]) -> dict[str, np.ndarray]:
    """RMSE (1,) of a fitted model by task."""
    window = test[0].window
    measured = [record.measured[[*narx.signals]] for record in test]
    y = [record[narx.target].values[:, np.newaxis] for record in measured]
    predicted = {"one_step": [one_step(model, record) for record in measured]}
    if len(narx.output_names) == 1:
        predicted["free_run"] = [model.free_run(dict(record), n_initial=window) for record in measured]
    return {task: rmse(y, [p[:, np.newaxis] for p in values], window) for task, values in predicted.items()}


def one_step(model: Baseline, record: xr.Dataset) -> np.ndarray:
    """Output (n,) predicted from the measured past; the first `max_lag` samples are the measured ones."""
    rows = model.narx.dataset(record)
    predicted = record[model.narx.target].values.copy()
    values = model.narx.predict.to_value(model.one_step(rows), rows["previous"].values)
    predicted[model.narx.max_lag :] = values
    return predicted


def rmse(measured: Sequence[np.ndarray], predicted: Sequence[np.ndarray], window: int) -> np.ndarray:
    """Root mean squared error (n_y,) over all records together, each without its first `window` samples."""
    return _rms([p - y for y, p in zip(measured, predicted, strict=True)], window)


def _rms(errors: Sequence[np.ndarray], window: int) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.sqrt(np.mean(np.concatenate([error[window:] for error in errors]) ** 2, axis=0))


def _of_the_truth(test: list[SimulatedRecord], plant: Plant, noise_paths: int) -> dict[str, dict[str, Any]]:
    """Error of the noise-free output, and the floor of both tasks."""
    measured, noise_free, best = [], [], []
    for record in test:
        shown = slice(record.transient, None)
        measured.append(record.trajectory.output[shown])
        noise_free.append(record.trajectory.noise_free_output[shown])
        last = record.transient + record.window - 1
        reached = reachable(record.trajectory, plant.controller.inputs_driven, last, noise_paths)
        best.append(type(reached)(*(values[shown] for values in reached)))
    window, outputs = test[0].window, plant.system.outputs
    noise = rmse(measured, noise_free, window)
    more = {}
    if plant.system.noise_std().any():
        spread = _rms([np.sqrt(found.variance) for found in best], window)
        more = {
            "expected_rmse": np.hypot(spread, noise),
            "standard_error": _rms([np.sqrt(found.error_variance) for found in best], window),
        }
    one_step, free_run = (rmse(measured, [getattr(found, task) for found in best], window) for task in TASKS)
    floors = {"one_step": _labelled(outputs, one_step), "free_run": _labelled(outputs, free_run, more)}
    return {
        task: {"measurement_noise": _labelled(outputs, noise), "noise_floor": floor} for task, floor in floors.items()
    }


def _labelled(
    signals: Sequence[Signal], errors: np.ndarray, more: Mapping[str, np.ndarray] | None = None
) -> dict[str, Any]:
    """Numbers by the name of the output; None for what is not finite."""
    found: dict[str, Any] = {}
    for i, signal in enumerate(signals):
        numbers = {"rmse": errors[i]} | {name: values[i] for name, values in (more or {}).items()}
        plain = {name: float(value) if np.isfinite(value) else None for name, value in numbers.items()}
        found[signal.name] = {**plain, "unit": signal.unit}
    return found
