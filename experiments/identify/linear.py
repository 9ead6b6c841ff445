"""Linear models of a record, which a model of it must beat: of the same lags, and of the best
lags.
"""

from typing import Any

import numpy as np
import xarray as xr

from experiments.identify.result import Result
from experiments.validate.material import select_records
from sysid import fit_percent
from sysid.errors import UserError
from sysid.lag_choice import best_arx
from sysid.simulation.baselines import LinearArx
from sysid.simulation.dynamics import MAX_EXCURSION_IN_RANGES

WORSE = 1.01  # times the error of a linear model: worth a note


def compare_linear(result: Result, *, simulates: bool) -> dict[str, Any] | None:
    """Errors of linear models fitted to the estimation records, on the records that judge; None for
    other sources.

    ``same_lags`` has the lags of the model, ``best`` those of the smallest error on held-out fifths
    of the estimation records (`sysid.rank_lags`), of all measured inputs: without the signals of
    physics beside the model. Each has ``na``, ``nb``, ``nk``, its ``rmse`` one step ahead,
    ``free_run_rmse`` and ``free_run_fit_percent``: None where ``free_run_diverges``, and where it
    is not simulated, for want of samples or because it needs another output.
    """
    narx = result.identification.narx
    source = result.source
    recordings = source.recordings()
    if recordings is None or result.validation is None or not result.validation.sizes["sample"]:
        return None
    learned = recordings.estimation
    models = {"same_lags": LinearArx.fit(narx, learned)}
    if not recordings.is_static:
        own = {} if source.physics is None else source.physics.physics.signals
        try:
            inputs = [name for name in recordings.inputs if name not in own]
            models["best"] = best_arx(
                learned,
                narx.target,
                inputs,
                predict=narx.predict,
                on_missing=narx.on_missing,
            )
        except (UserError, np.linalg.LinAlgError) as error:
            result.notes.append(f"no best linear model: {error}")
    judges = select_records(recordings)
    window = None
    if simulates and not recordings.is_static:
        window = judges.default_window(narx)
    known = np.concatenate([record[narx.target].values for record in learned])
    return {
        name: {**_orders(one), **_judge(one, judges.records, window, known)}
        for name, one in models.items()
    }


def _orders(model: LinearArx) -> dict[str, Any]:
    """Numbers of lags of the output and of the inputs, and the first lag of these; the largest
    where they differ.
    """
    narx = model.narx
    applied = [narx.lags[name] for name in narx.input_names]
    return {
        "na": len(narx.lags.get(narx.target, ())),
        "nb": max(map(len, applied), default=0),
        "nk": min((lags[0] for lags in applied if lags), default=0),
    }


def _judge(
    model: LinearArx,
    records: tuple[xr.Dataset, ...],
    window: int | None,
    known: np.ndarray,
) -> dict[str, Any]:
    """Errors on these records; in free run if a window of measured samples is stated, within reach
    of known outputs.
    """
    narx = model.narx
    errors = []
    measured = []
    simulated = []
    for record in records:
        begin = int(record.attrs["initialisation_window"])
        rows = narx.dataset(record)
        judged = rows["time"].values >= record["time"].values[begin]
        errors.append((rows["target"].values - model.one_step(rows))[judged])
        first = None if window is None else max(window, narx.max_lag)
        if (
            first is not None
            and first < record.sizes["time"]
            and list(narx.output_names) == [narx.target]
        ):
            measured.append(record[narx.target].values[first:])
            simulated.append(model.free_run(dict(record), n_initial=first)[first:])
    found: dict[str, Any] = {"rmse": _rms(np.concatenate(errors))}
    found |= {
        "free_run_rmse": None,
        "free_run_fit_percent": None,
        "free_run_diverges": False,
    }
    if measured:
        y = np.concatenate(measured)
        y_hat = np.concatenate(simulated)
        if not (np.abs(y_hat - known.mean()) <= MAX_EXCURSION_IN_RANGES * np.ptp(known)).all():
            return found | {"free_run_diverges": True}
        found |= {
            "free_run_rmse": _rms(y - y_hat),
            "free_run_fit_percent": float(fit_percent(y, y_hat)),
        }
    return found


def _rms(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(error**2)))


def note_linear(summary: dict[str, Any], result: Result) -> list[str]:
    """Name the linear models that predict or simulate better than the model."""
    recordings = result.source.recordings()
    linear = summary["linear"] or {}
    notes = []
    is_static = recordings is not None and recordings.is_static
    is_for_simulation = (
        "kernel" in result.identification.settings.training.replaces or result.has_no_feedback
    )
    lags = "" if is_static or result.has_no_feedback else "; take narx=auto, or more lags"
    kinds = [
        (
            "free_run_rmse",
            " in free run",
            (summary["free_run"] or {}).get("rmse", np.nan),
        )
    ]
    if not is_for_simulation:
        kinds.insert(0, ("rmse", "" if is_static else " one step ahead", summary["rmse"]))
    for key, where, error in kinds:
        one = min(
            (one for one in linear.values() if one[key] is not None),
            key=lambda one: one[key],
            default=None,
        )
        if one is None:
            continue
        smallest = f"RMSE {one[key]:.4g}"
        orders = f"(ARX with na={one['na']} nb={one['nb']} nk={one['nk']})"
        advice = lags if key == "rmse" or is_for_simulation else "; take training=free_run"
        if error is None:
            notes.append(
                f"the model diverges{where}, a linear model does not: {smallest} {orders}{advice}"
            )
        elif error > WORSE * one[key]:
            notes.append(
                f"a linear model predicts better{where}: {smallest} against {error:.4g} {orders}{advice}"
            )
    return notes
