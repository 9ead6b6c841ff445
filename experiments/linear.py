"""Linear models of a record, which a model of it must beat: of the same lags, and of the best number of lags."""

from typing import Any

import numpy as np
import xarray as xr

from experiments.results import Result
from sysid import Narx, fit_percent, rank_lags
from sysid.simulation.baselines import LinearArx

WORSE = 1.01  # times the error of a linear model: worth a note


def compare_linear(result: Result) -> dict[str, Any] | None:
    """Errors of linear models fitted to the estimation records, on the records that judge; None for other sources.

    ``same_lags`` has the lags of the model, ``best`` so many of the output and of every input, from 1 on, as have the
    smallest error on held-out fifths of the estimation records. Each has ``na``, ``nb``, ``nk``, its ``rmse`` one
    step ahead and ``free_run_rmse``, ``free_run_fit_percent``: None where the simulation diverges, is not asked for or
    needs another output.
    """
    narx, source = result.identification.narx, result.source
    recordings = source.recordings()
    if recordings is None or result.validation is None or not result.validation.sizes["sample"]:
        return None
    window = None if result.report is None else int(result.report.content["free_run"]["window"])
    models = {"same_lags": LinearArx.fit(narx, recordings.estimation)}
    if not recordings.is_static:
        try:
            ranked = rank_lags(recordings.estimation, narx.target, narx.input_names, on_missing=narx.on_missing)
        except ValueError as error:
            result.notes.append(f"no best linear model: {error}")
            ranked = []
        if order := next((row["na"] for row in ranked if row["nk"] == 1 and row["nb"] in (0, row["na"])), None):
            lags = dict.fromkeys(narx.input_names, order)
            best = Narx({narx.target: order}, lags, narx.target, predict=narx.predict, on_missing=narx.on_missing)
            models["best"] = LinearArx.fit(best, recordings.estimation)
    judges = recordings.test or recordings.validation
    return {name: {**_orders(model.narx), **_judge(model, judges, window)} for name, model in models.items()}


def _orders(narx: Narx) -> dict[str, Any]:
    """Numbers of lags of the output and of the inputs, and the first lag of these; the largest where they differ."""
    applied = [narx.lags[name] for name in narx.input_names]
    return {
        "na": len(narx.lags.get(narx.target, ())),
        "nb": max(map(len, applied), default=0),
        "nk": min((lags[0] for lags in applied if lags), default=0),
    }


def _judge(model: LinearArx, records: tuple[xr.Dataset, ...], window: int | None) -> dict[str, Any]:
    """Errors on these records; in free run if a window of measured samples is stated."""
    narx, errors, measured, simulated = model.narx, [], [], []
    for record in records:
        begin = int(record.attrs["initialisation_window"])
        rows = narx.dataset(record)
        judged = rows["time"].values >= record["time"].values[begin]
        errors.append((rows["target"].values - model.one_step(rows))[judged])
        first = None if window is None else max(window, narx.max_lag)
        if first is not None and first < record.sizes["time"] and list(narx.output_names) == [narx.target]:
            measured.append(record[narx.target].values[first:])
            simulated.append(model.free_run(dict(record), n_initial=first)[first:])
    found: dict[str, Any] = {"rmse": _rms(np.concatenate(errors)), "free_run_rmse": None, "free_run_fit_percent": None}
    if measured and np.isfinite(np.concatenate(simulated)).all():
        y, y_hat = np.concatenate(measured), np.concatenate(simulated)
        found |= {"free_run_rmse": _rms(y - y_hat), "free_run_fit_percent": float(fit_percent(y, y_hat))}
    return found


def _rms(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(error**2)))


def note_linear(summary: dict[str, Any], *, is_for_simulation: bool) -> list[str]:
    """Name the linear models that predict or simulate better than the model."""
    notes = []
    model = {"rmse": summary["rmse"], "free_run_rmse": (summary["free_run"] or {}).get("rmse", np.nan)}
    for key, what in (("rmse", "one step ahead"), ("free_run_rmse", "in free run")):
        better = [(one[key], one) for one in (summary["linear"] or {}).values() if one[key] is not None]
        error = np.inf if model[key] is None else model[key]
        if better and (key != "rmse" or not is_for_simulation):
            smallest, one = min(better, key=lambda pair: pair[0])
            if error > WORSE * smallest:
                orders = f"ARX with na={one['na']} nb={one['nb']} nk={one['nk']}"
                better_training = key != "rmse" and not is_for_simulation
                advice = "training=free_run" if better_training else "narx=auto, or more lags"
                than = f"RMSE {smallest:.4g} against {error:.4g} ({orders})"
                notes.append(f"a linear model predicts better {what}: {than}; take {advice}")
    return notes
