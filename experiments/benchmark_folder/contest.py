"""Who reaches what on the test records: the noise floor and the baselines."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from experiments.benchmark_folder.baselines.contestant import Contestant
from experiments.benchmark_folder.floor import reachable
from experiments.benchmark_folder.record import SimulatedRecord
from experiments.plant import Plant
from simulators import Signal
from sysid.baselines.baseline import Baseline
from sysid.narx import Narx

TASKS = ("one_step", "free_run")


def scores_of(
    records: list[SimulatedRecord], narx: Narx, contestants: Mapping[str, Contestant], plant: Plant, seed: int
) -> dict[str, Any]:
    """RMSE on the test records by task, model and output.

    ``scores["free_run"]["noise_floor"]["displacement"]["rmse"]``; None stands for a run that leaves the finite
    numbers. The floor has every output, baselines have the target of `narx`, and they have no free run if the
    lags need other outputs, which would have to be measured.
    """
    test = [record for record in records if record.role == "test"]
    estimation = [record.measured for record in records if record.role == "estimation"]
    window = test[0].window
    found = _of_the_truth(test, plant)
    target = next(signal for signal in plant.system.outputs if signal.name == narx.target)
    measured = [record.measured[[*narx.signals]] for record in test]
    y = [record[target.name].values[:, np.newaxis] for record in measured]
    for name, contestant in contestants.items():
        model = contestant.fit(narx, estimation, seed)
        predicted = {"one_step": [one_step(model, record) for record in measured]}
        if len(narx.output_names) == 1:
            predicted["free_run"] = [model.free_run(dict(record), n_initial=window) for record in measured]
        for task in TASKS:
            columns = [values[:, np.newaxis] for values in predicted.get(task, [])]
            found[task][name] = _labelled((target,), rmse(y, columns, window)) if columns else {}
    return {"initialisation_window": window, **found}


def one_step(model: Baseline, record: xr.Dataset) -> np.ndarray:
    """Output (n,) predicted from the measured past; the first `max_lag` samples are the measured ones."""
    rows = model.narx.dataset(record)
    predicted = record[model.narx.target].values.copy()
    values = model.narx.predict.to_value(model.one_step(rows), rows["previous"].values)
    predicted[model.narx.max_lag :] = values
    return predicted


def rmse(measured: Sequence[np.ndarray], predicted: Sequence[np.ndarray], window: int) -> np.ndarray:
    """Root mean squared error (n_y,) over all records together, each without its first `window` samples."""
    with np.errstate(over="ignore"):
        errors = np.concatenate([(p - y)[window:] for y, p in zip(measured, predicted, strict=True)])
        return np.sqrt(np.mean(errors**2, axis=0))


def _of_the_truth(test: list[SimulatedRecord], plant: Plant) -> dict[str, dict[str, Any]]:
    """Error of the noise-free output, and the floor of both tasks."""
    measured, noise_free, best = [], [], []
    for record in test:
        shown = slice(record.transient, None)
        measured.append(record.trajectory.output[shown])
        noise_free.append(record.trajectory.noise_free_output[shown])
        last = record.transient + record.window - 1
        reached = reachable(record.trajectory, plant.controller.inputs_driven, last)
        best.append({"one_step": reached.one_step[shown], "free_run": reached.free_run[shown]})
    window, outputs = test[0].window, plant.system.outputs
    noise = _labelled(outputs, rmse(measured, noise_free, window))
    return {
        task: {
            "measurement_noise": noise,
            "noise_floor": _labelled(outputs, rmse(measured, [found[task] for found in best], window)),
        }
        for task in TASKS
    }


def _labelled(signals: Sequence[Signal], errors: np.ndarray) -> dict[str, Any]:
    return {
        signal.name: {"rmse": float(error) if np.isfinite(error) else None, "unit": signal.unit}
        for signal, error in zip(signals, errors, strict=True)
    }
