"""Linear models of a record, of the same lags and of the best lags, and notes on better ones."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from experiments.identify.compared_errors import (
    ERRORS,
    errors_of_model,
    errors_to_compare,
    known_value,
    without_gross_errors,
)
from experiments.identify.result import Result
from experiments.validate.material import select_records
from sysid import (
    AutomaticMean,
    ConstantMean,
    Kernel,
    LinearMean,
    SquaredExponential,
    Training,
    WithLinearPart,
    ZeroMean,
    fit_percent,
)
from sysid.dead_time import MAX_UNDELAYED
from sysid.errors import UserError
from sysid.gross_errors import Screened, are_untouched
from sysid.lag_choice import best_arx
from sysid.simulation.baselines import LinearArx
from sysid.simulation.dynamics import MAX_EXCURSION_IN_RANGES

# a note is written if the error of the model exceeds that of a linear model by this factor
MAX_ERROR_OVER_LINEAR = 1.01


def compare_linear(result: Result, *, simulates: bool) -> dict[str, Any] | None:
    """Return the errors of linear models on the test records; None if nothing was recorded.

    The models are fitted to the estimation records. ``same_lags`` has the lags of the model.
    ``best`` has the lags of the smallest error on held-out fifths of the estimation records
    (`sysid.rank_lags`), of all measured inputs: without the signals of physics beside the model.

    Each entry has ``na``, ``nb``, ``nk`` (a list with a number for each input if they differ), its
    ``rmse`` one step ahead, ``free_run_rmse`` and ``free_run_fit_percent``. The same names with
    ``_without_gross_errors`` leave out samples that have a gross error in the output or among the
    lags; they are None if the records have no gross errors. The errors in free run are None if the
    simulation diverges (``free_run_diverges``), or if the model is not simulated. It is not
    simulated if `simulates` is false, if the records are too short, or if the model needs another
    output.
    """
    narx = result.identification.narx.without_linear()
    source = result.source
    recordings = source.recordings()
    if recordings is None or result.validation is None or not result.validation.sizes["sample"]:
        return None
    estimation = source.learned()
    models = {"same_lags": LinearArx.fit(narx, estimation)}
    if not recordings.is_static:
        physics_signals = {} if source.physics is None else source.physics.physics.signals
        try:
            inputs = [name for name in recordings.inputs if name not in physics_signals]
            models["best"] = best_arx(
                estimation,
                narx.target,
                inputs,
                predict=narx.predict,
                on_missing=narx.on_missing,
                dead_times=result.dead_times,
            )
        except (UserError, np.linalg.LinAlgError) as error:
            result.notes.append(f"no best linear model: {error}")
    material = select_records(recordings)
    window = None
    if simulates and not recordings.is_static:
        window = material.default_window(result.identification.narx)
    known_outputs = np.concatenate([record[narx.target].values for record in estimation])
    known_outputs = known_outputs[np.isfinite(known_outputs)]
    screened = source.screened_validation
    entries: dict[str, Any] = {}
    for name, model in models.items():
        errors = _errors(model, material.records, window, known_outputs, screened)
        entries[name] = _orders(model) | errors
    return entries


def _orders(model: LinearArx) -> dict[str, Any]:
    """Return na, nb and nk: the numbers of lags of the output and of the inputs, and the dead time.

    nb is a list if the inputs differ in it. nk is a list if inputs differ in their dead time, of
    which there is none where all of them begin with 0 or 1.
    """
    narx = model.narx
    input_lags = [narx.lags[name] for name in narx.input_names]
    n_input_lags = [len(lags) for lags in input_lags]
    first_lags = [lags[0] for lags in input_lags if lags]
    has_dead_times = max(first_lags, default=0) > MAX_UNDELAYED
    is_list = has_dead_times and len(set(first_lags)) > 1
    return {
        "na": len(narx.lags.get(narx.target, ())),
        "nb": n_input_lags if len(set(n_input_lags)) > 1 else max(n_input_lags, default=0),
        "nk": first_lags if is_list else min(first_lags, default=0),
    }


def _errors(
    model: LinearArx,
    records: tuple[xr.Dataset, ...],
    window: int | None,
    known_outputs: np.ndarray,
    screened: Screened | None,
) -> dict[str, Any]:
    """Return the errors of a model on these records: one step ahead, and in free run.

    `screened` are the same records without their gross errors; None: these were not looked for.
    A free run starts after an initialisation window of measured samples; there is none if `window`
    is None. It diverges if an output goes farther from the known outputs than a multiple of their
    range.
    """
    narx = model.narx
    needs_no_other_output = list(narx.output_names) == [narx.target]
    first = None if window is None else max(window, narx.max_lag)
    errors = []
    are_kept = []  # rows without gross errors
    measured = []
    simulated = []
    are_kept_in_free_run = []
    for number, record in enumerate(records):
        begin = int(record.attrs["initialisation_window"])
        times = record["time"].values
        is_untouched = np.ones(len(times), dtype=bool)
        if screened is not None and screened.n_found:
            is_untouched = are_untouched(screened.marks[number], narx)
        rows = narx.dataset(record)
        is_after_window = rows["time"].values >= times[begin]
        errors.append((rows["target"].values - model.one_step(rows))[is_after_window])
        are_kept.append(is_untouched[np.searchsorted(times, rows["time"].values[is_after_window])])
        if first is not None and first < record.sizes["time"] and needs_no_other_output:
            values = record[narx.target].values
            of_record, is_scored = model.simulate_record(record, first)
            measured.append(values[is_scored])
            simulated.append(of_record[is_scored])
            are_kept_in_free_run.append(is_untouched[is_scored])
    error = np.concatenate(errors)
    is_kept = np.concatenate(are_kept)
    scores: dict[str, Any] = {
        "rmse": _rms(error),
        "free_run_rmse": None,
        "free_run_fit_percent": None,
        "free_run_diverges": False,
    }
    scores |= dict.fromkeys(map(without_gross_errors, ERRORS))
    has_gross_errors = screened is not None and bool(screened.n_found)
    if has_gross_errors and is_kept.any():
        scores[without_gross_errors("rmse")] = _rms(error[is_kept])
    if measured:
        y = np.concatenate(measured)
        y_hat = np.concatenate(simulated)
        distance = np.abs(y_hat - known_outputs.mean())
        max_distance = MAX_EXCURSION_IN_RANGES * np.ptp(known_outputs)
        if (distance <= max_distance).all():
            scores["free_run_rmse"] = _rms(y - y_hat)
            scores["free_run_fit_percent"] = float(fit_percent(y, y_hat))
            is_kept = np.concatenate(are_kept_in_free_run)
            if has_gross_errors and is_kept.any():
                y = y[is_kept]
                y_hat = y_hat[is_kept]
                scores[without_gross_errors("free_run_rmse")] = _rms(y - y_hat)
                fit = float(fit_percent(y, y_hat))
                scores[without_gross_errors("free_run_fit_percent")] = fit
        else:
            scores["free_run_diverges"] = True
    return scores


def _rms(error: np.ndarray) -> float:
    return float(np.sqrt(np.mean(error**2)))


def note_linear(
    summary: dict[str, Any], result: Result, *, has_automatic_lags: bool = False
) -> list[str]:
    """Return notes on linear models that predict or simulate better than the model.

    `has_automatic_lags`: whether the configuration leaves the lags to the toolbox; these are not
    recommended then.
    """
    narx = result.identification.narx
    recordings = result.source.recordings()
    is_static = recordings is not None and recordings.is_static
    is_for_simulation = result.is_trained_for_free_run or result.has_no_feedback
    more_lags = partial(_advise_lags, summary, result, has_automatic_lags)
    if is_static or result.has_no_feedback:
        more_lags = partial(str)
    notes = []
    if not is_for_simulation:
        where = "" if is_static else " one step ahead"
        one_step = _compare_with_best(summary, "rmse", where, more_lags)
        notes.append(one_step)
        if is_static or narx.lags[narx.target]:
            # errors of all orders include the samples with gross errors
            has_gross_errors = known_value(summary.get("smse_without_gross_errors")) is not None
            is_noted = bool(one_step) or has_gross_errors
            notes.append(_compare_with_orders(summary, is_noted_after_stream=is_noted))
    advice = more_lags if is_for_simulation else partial(_advise_free_run, result)
    notes.append(_compare_with_best(summary, "free_run_rmse", " in free run", advice))
    return [note for note in notes if note]


def _advise_lags(summary: dict[str, Any], result: Result, has_automatic_lags: bool) -> str:
    """Return what to do about the lags of a model that is worse than the best linear one.

    The text begins with a semicolon unless it is empty. Lags that were chosen automatically need no
    advice, nor does a linear part that held-out errors spoke against. More lags are no advice if
    the linear model has no more of them.
    """
    narx = result.identification.narx
    settings = result.identification.settings
    best = (summary["linear"] or {}).get("best")
    options = []
    if result.source.lag_choice is None and not has_automatic_lags:
        if len(narx.output_names) == 1:  # models of several outputs need the same lags
            options.append("take narx=auto")
        n_input_lags = max((len(narx.lags[name]) for name in narx.input_names), default=0)
        if best and (best["na"] > len(narx.lags[narx.target]) or _most(best["nb"]) > n_input_lags):
            options.append("more lags" if options else "take more lags")
    with_auto = replace(settings, linear_part="auto")
    is_excluded = not narx.linear and not settings.with_linear_lags(narx).linear
    if is_excluded and with_auto.with_linear_lags(narx).linear:
        options.append("linear_part=auto" if options else "take linear_part=auto")
    return f"; {', or '.join(options)}" if options else ""


def _most(n_lags: int | list[int]) -> int:
    """Return the largest number of lags of one or several inputs."""
    return max(n_lags) if isinstance(n_lags, list) else n_lags


def _advise_free_run(result: Result) -> str:
    """Return the advice to train for the free run, unless this model cannot be trained so.

    The text begins with a semicolon unless it is empty.
    """
    settings = result.identification.settings
    is_known = isinstance(settings.mean, AutomaticMean | ConstantMean | LinearMean | ZeroMean)
    may_be_physics = result.source.physics is not None and settings.mean != AutomaticMean()
    if not is_known or may_be_physics:
        return ""  # the mean is the physics beside the model, which this training refuses
    left_out = []
    if result.source.lag_choice is None:  # automatic lags bring a kernel and a mean with them
        if settings.mean != AutomaticMean():
            left_out.append("mean")
        if _kernel_of(settings.training) != SquaredExponential():
            left_out.append("kernel")
    without = f" without a setting of {' and '.join(left_out)}" if left_out else ""
    return f"; take training=free_run{without}"


def _kernel_of(training: Training) -> Kernel:
    """Return the prototype of a training without its linear part."""
    within_cache = getattr(training, "training", training)
    kernel = getattr(within_cache, "kernel", SquaredExponential())
    return kernel.kernel if isinstance(kernel, WithLinearPart) else kernel


def _compare_with_orders(summary: dict[str, Any], *, is_noted_after_stream: bool) -> str:
    """Return a note if the best linear models of all orders are clearly better, or an empty text.

    The error after the stream is left out if another note states it already.
    """
    lags = summary["linear_lags"]
    if lags is None:
        return ""
    better = []
    if not is_noted_after_stream and _is_worse(summary["smse"], summary["smse_linear"]):
        better.append(
            f"after the stream (SMSE {summary['smse_linear']:.3g} against {summary['smse']:.3g}, "
            f"{write_lags(lags['after_stream'])})"
        )
    if _is_worse(summary["smse_stream"], summary["smse_stream_linear"]):
        better.append(
            f"in the stream (SMSE {summary['smse_stream_linear']:.3g} against "
            f"{summary['smse_stream']:.3g}, {write_lags(lags['in_stream'])})"
        )
    return f"a linear model predicts better {' and '.join(better)}" if better else ""


def _is_worse(smse: float | None, linear_smse: float | None) -> bool:
    """Whether the RMSE of the model exceeds that of a linear model clearly, given both SMSE."""
    if smse is None or linear_smse is None:
        return False
    return smse > MAX_ERROR_OVER_LINEAR**2 * linear_smse


def write_lags(n_lags: int) -> str:
    """Return the order of a linear model as text; 0 stands for the features of static data."""
    if n_lags == 0:
        return "the same features"
    return "1 lag" if n_lags == 1 else f"{n_lags} lags"


def _compare_with_best(
    summary: dict[str, Any],
    key: str,
    where: str,
    advise: Callable[[], str],
) -> str:
    """Return a note if the best linear model has a clearly smaller error, else an empty text.

    Samples with gross errors do not count.

    Parameters
    ----------
    summary
        Summary of the identification, with the linear models.
    key
        Name of the error in the entries of the linear models.
    where
        Words for the note that name the kind of prediction.
    advise
        Function that returns the end of the note.
    """
    models = (summary["linear"] or {}).values()
    own = errors_of_model(summary)
    key = errors_to_compare([own, *models], key)
    error = own[key]
    if error is None and not own["free_run_diverges"]:
        return ""  # it was not simulated
    known = [model for model in models if model[key] is not None]
    if not known:
        return ""
    best = min(known, key=lambda model: model[key])
    smallest = f"RMSE {best[key]:.4g}"
    orders = f"(ARX with na={best['na']} nb={best['nb']} nk={best['nk']})"
    if error is None:
        return f"the model diverges{where}, a linear model does not: {smallest} {orders}{advise()}"
    if error > MAX_ERROR_OVER_LINEAR * best[key]:
        return (
            f"a linear model predicts better{where}: {smallest} against {error:.4g} {orders}"
            f"{advise()}"
        )
    return ""
