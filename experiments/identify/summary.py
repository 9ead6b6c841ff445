"""Summary of an identification: the numbers of summary.json, warnings, and log lines."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import bdtr

from experiments.cli.arguments import without_effect
from experiments.drawing.tables import error_unit, with_unit
from experiments.files.outputs import plain
from experiments.identify.causes import (
    UNKNOWN_CAUSE,
    WorseningCause,
    explain_coverage,
    find_worsening_cause,
)
from experiments.identify.closed_loop import note_closed_loop
from experiments.identify.compared_errors import without_gross_errors
from experiments.identify.limit import describe_limit, score_limit
from experiments.identify.linear import note_linear, write_lags
from experiments.identify.linear_orders import NO_ORDERS
from experiments.identify.plans import (
    describe_control,
    describe_design,
    say_control,
    say_design,
)
from experiments.identify.residual_notes import note_residuals
from experiments.identify.result import Result
from experiments.identify.settings import RunSettings
from experiments.plant.limit import LIMIT_NOT_WANTED, LIMIT_OF_RECORDS
from experiments.plant.physics import SIGNAL_PREFIX
from experiments.validate.report import free_run_without_gross_errors, log_free_run
from simulators import Signal
from sysid import (
    AcceptAll,
    Always,
    BudgetChoice,
    ExceedsMinimum,
    LagChoice,
    Learning,
    Model,
    Narx,
    PriorEntropy,
    Reference,
    standardised_mean_squared_error,
    validate,
)

log = logging.getLogger(__name__)
#: keys of the prior of the length scales of a stream
STREAM_PRIOR_KEYS = {
    "training.length_scale_prior_median",
    "training.length_scale_prior_std",
}
#: keys of the priors of records
RECORD_PRIOR_KEYS = {
    "training.record_length_prior_median",
    "training.record_length_prior_std",
    "training.record_variance_factor",
}
#: keys of a training that affect streams only
STREAM_KEYS = STREAM_PRIOR_KEYS | {
    "training.restarts",
    "training.interval",
    "training.significance",
    "training.window",
    "training.sample_size",
    "training.after_revised",
    "training.max_updates",
    "training.tolerance",
}
#: keys of a training that affect records only
RECORD_KEYS = RECORD_PRIOR_KEYS | {
    "training.record_samples",
    "training.record_robust",
    "training.on_records",
}
#: keys of online learning, without effect if a training for the free run has used all samples
ONLINE_LEARNING_KEYS = {"insertion", "acceptance", "reduction", "gate", "scale", "forgetting"}

# a warning follows if acceptance turns away more than this fraction of the candidates
MAX_TURNED_AWAY_FRACTION = 0.5
# a warning follows if more than this fraction of the samples are outliers
MAX_OUTLIER_FRACTION = 0.05
MIN_SAMPLES_FOR_DRIFT = 1000  # with fewer samples drift cannot be distinguished from chance
# drift is reported if the SMSE at the end of a stream is larger than that at its start by this
# factor, and is larger than the following value
DRIFT_SMSE_RATIO = 3.0
MIN_DRIFT_SMSE = 0.02
# a warning follows unless the SMSE is below this fraction of that of a trivial prediction
MAX_SMSE_OVER_TRIVIAL = 0.95
# a warning follows if the fraction of the validation samples within the 95 % band is outside these
# limits
MIN_COVERAGE = 0.85
MAX_COVERAGE = 0.99
# such a coverage is left to chance if a correct band has one as extreme with this probability
CHANCE_PROBABILITY = 0.01
# a model that is trained for the free run simulates well above this fit [%]
MIN_FREE_RUN_FIT_PERCENT = 50.0
NEAR_LIMIT = 1.1  # a model has reached the limit of prediction within this factor of its SMSE
# more initial samples are advised if they are at most this fraction of the samples
MAX_INITIAL_FRACTION = 0.5
# no line states why there is no limit of prediction in these cases
EXPECTED_WITHOUT_LIMIT = (LIMIT_OF_RECORDS, LIMIT_NOT_WANTED)
MAX_PARAMETERS_LOGGED = 6  # estimated parameters of the physics that the log lists

#: warnings about repairs, by the kind of repair; the number of repairs is filled in
REPAIR_WARNINGS = {
    "near_duplicates": "{} points that were stored equal another stored point",
    "clipped_variances": "{} variances were negative by rounding and set to 0",
    "refactorisations": "the Cholesky factor was repaired {} times",
    "initial_outliers": (
        "initial samples that contradicted the others and were left out of the training: {}"
    ),
    "undone_samples": (
        "{} samples of bursts of wrong measurements looked like a plant that has changed; what "
        "they taught was forgotten when the plant of before returned"
    ),
    "clipped_replacements": (
        "{} predictions in place of rejected measurements were far outside the outputs learned "
        "before, and were cut to their range (a tenth wider on each side) before they became lags"
    ),
    "mended_lags": (
        "{} values of inputs and other outputs were taken for gross errors and replaced among the "
        "lags"
    ),
}


def summarise(settings: RunSettings, result: Result, times: dict[str, Any]) -> dict[str, Any]:
    """Return the summary as plain numbers, texts, lists and dicts; None where there is no number.

    Two runs of the same code and settings differ only in the values under `times`.
    """
    identification = result.identification
    rows = result.rows
    model = identification.model
    narx = identification.narx
    training_seconds = identification.training_seconds
    times = {**times, "loop": times["loop"] - training_seconds, "training": training_seconds}
    if identification.adaptation is not None:
        # these seconds are also part of the loop
        times["adaptation"] = sum(estimate.seconds for estimate in result.estimates)
    constant = [] if model is None else [narx.feature_names[i] for i in model.constant_features]
    n_gross_errors = sum(identification.n_gross_errors.values())
    screened_validation = result.source.screened_validation
    of_validation = {} if screened_validation is None else screened_validation.n_found
    repairs = {
        "missing_samples": result.window.n_missing - _n_samples_with_gross_errors(result),
        "skipped_rows": result.window.n_skipped,
        "rows_with_estimates": result.window.n_with_estimates,
        "initial_outliers": identification.n_initial_outliers,
        "mended_lags": sum(identification.n_mended.values()),
        "undone_samples": identification.n_undone,
        "clipped_replacements": identification.n_clipped,
    }
    if model is not None:
        repairs = {**model.gp.repairs, **repairs, "constant_features": len(constant)}
    online = result.record[result.is_online]
    choice = result.source.lag_choice
    budget_choice = result.source.budget_choice
    time_limit = identification.time_limit
    summary = {
        "system": result.source.title,
        "target": narx.predict.describe(narx.target),
        "target_unit": "" if rows is None else rows["target"].attrs.get("units", ""),
        "partial": result.stopped is not None,
        "unfinished": result.is_unfinished if math.isfinite(time_limit.seconds) else None,
        "seed": settings.learner.seed,
        **_validation_scores(result),
        "hyperparameters_from": "stream" if result.learns_a_stream else "record",
        "n_initial": len(result.record) - len(online),
        "n_waited": identification.n_waited,
        "n_seen": len(online),
        "n_inserted": int(online["inserted"].sum()),
        "n_accepted": int(online["accepted"].sum()),
        "n_turned_away": int((online["inserted"] & ~online["accepted"]).sum()),
        "n_revised": int((online["slot"] >= 0).sum()),
        "n_outliers": int(online["outlier"].sum()) + n_gross_errors,
        "gross_errors": {"learned": identification.n_gross_errors, "validation": of_validation},
        "n_estimates": len(result.estimates),
        "n_points": 0 if model is None else model.gp.n_points,
        "hyperparameters": None if model is None else model.hyperparameters,
        "repairs": repairs,
        "constant_features": constant,
        "free_run": None if result.report is None else result.report.content["free_run"],
        "free_run_without_gross_errors": None
        if result.report is None
        else free_run_without_gross_errors(result.report.content, narx.target),
        "linear": result.linear,
        **{key: result.linear_orders.get(key) for key in NO_ORDERS},
        "narx": orders_of(narx),
        "lags": None if choice is None else _describe_choice(choice),
        "dead_times": _describe_dead_times(result),
        "budget_choice": None if budget_choice is None else _describe_budget(budget_choice),
        "training": identification.report,
        "physics": None if result.source.physics is None else result.source.physics.estimates(),
        "times": times,
    }
    plan = result.plan
    if plan is not None and plan.attrs["kind"] == "control":
        summary["control"] = describe_control(plan, result.signals[0])
    elif plan is not None:
        learned = result.signals[0].isel(time=slice(result.source.n_identified))
        summary["design"] = describe_design(plan, learned)
    warnings = [
        *_warnings(settings, summary, result),
        *result.notes,
        *note_linear(summary, result, has_automatic_lags=settings.lags.are_automatic),
        *note_closed_loop(result),
    ]
    return plain({**summary, "warnings": warnings})


def _n_samples_with_gross_errors(result: Result) -> int:
    """Return how many of the samples to learn lack a value that was a gross error.

    They are missing samples for the lags, and are reported as gross errors. Values that were
    replaced are not missing.
    """
    screened = result.source.screened
    if screened is None or not screened.n_found or not result.window.n_missing:
        return 0
    names = result.identification.narx.signals
    n_samples = 0
    for marks, record in zip(screened.marks, screened.records, strict=True):
        of_signals = [
            marks[name] & ~np.isfinite(record[name].values) for name in names if name in marks
        ]
        n_samples += int(np.any(of_signals, axis=0).sum())
    return min(n_samples, result.window.n_missing)


def orders_of(narx: Narx) -> dict[str, Any]:
    """Return how many lags each signal has, and the first lag of each input.

    Outputs have ``na`` lags, inputs ``nb`` lags from lag ``nk`` on; all are lists in the order of
    ``outputs`` and ``inputs``.
    """
    input_lags = [narx.lags[name] for name in narx.input_names]
    return {
        "outputs": list(narx.output_names),
        "inputs": list(narx.input_names),
        "na": [len(narx.lags[name]) for name in narx.output_names],
        "nb": [len(lags) for lags in input_lags],
        "nk": [lags[0] for lags in input_lags],
    }


def _describe_choice(choice: LagChoice) -> dict[str, Any]:
    """Return how automatic lags were chosen, as plain numbers."""
    description: dict[str, Any] = {"criterion": choice.criterion, "tried": choice.tried}
    if choice.dead_times is not None:
        description["dead_times"] = choice.dead_times.to_dict()
    return description


def _describe_dead_times(result: Result) -> dict[str, Any] | None:
    """Return the dead times that ``narx.nk=auto`` found, and when the lags of a stream changed."""
    found = result.source.dead_times
    if found is None:
        return None
    changes = [change.to_dict() for change in result.dead_time_changes]
    return found.to_dict() | {"changes": changes}


def _describe_budget(choice: BudgetChoice) -> dict[str, Any]:
    """Return how the number of points was chosen for given lags, as plain numbers."""
    tried = [
        {"points": budget, "rmse": error.rmse, "parts": error.n_folds}
        for budget, error in choice.errors.items()
    ]
    return {"points": choice.settings.max_points, "tried": tried}


def _validation_scores(result: Result) -> dict[str, Any]:
    """Return the scores of the predictions one step ahead, of the validation and of the stream."""
    model = result.identification.model
    noise_variance = math.nan if model is None else model.gp.noise_variance
    target = np.zeros(0)
    previous = np.zeros(0)
    if result.validation is not None:
        target = result.validation["target"].values
        previous = result.validation["previous"].values
    mean, variance = result.predicted
    final = validate(target, mean, variance, noise_variance)
    no_change = result.identification.narx.predict.of(previous, previous)
    stream_target = np.zeros(0)
    if result.identified is not None:
        stream_target = result.identified["target"].values[result.is_online]
    narx = result.identification.narx
    output = result.source.outputs.index(narx.target)
    return {
        "smse": final.smse,
        "smse_linear_part": _score_linear_part(result),
        **score_limit(result.limit, narx, output, result.validation, final.smse),
        "smse_initial": standardised_mean_squared_error(target, result.predicted_initial.mean),
        "smse_no_change": standardised_mean_squared_error(
            target, np.broadcast_to(no_change, target.shape)
        ),
        "smse_stream": standardised_mean_squared_error(
            stream_target, result.record["mean"][result.is_online]
        ),
        "rmse": final.rmse,
        **_scores_without_gross_errors(result),
        "mean_variance": float(np.mean(variance)) if len(variance) else math.nan,
        "coverage_95": final.coverage_95,
        "nlpd": final.nlpd,
        "n_validation": final.n,
    }


def _scores_without_gross_errors(result: Result) -> dict[str, float]:
    """Return scores on the validation rows without gross errors; nan if there are none.

    They are SMSE and RMSE, and the SMSE of the prediction that nothing changes.

    Neither the target nor any lag of these rows is a gross error of the validating records.
    """
    measures_without = ("smse", "smse_no_change", "rmse")
    scores = dict.fromkeys(map(without_gross_errors, measures_without), math.nan)
    model = result.identification.model
    validation = result.validation
    if validation is None or model is None or not len(result.predicted.mean):
        return scores
    if not result.has_gross_errors:
        return scores
    is_untouched = result.is_untouched
    mean, variance = result.predicted
    target = validation["target"].values
    measures = validate(
        target[is_untouched],
        mean[is_untouched],
        variance[is_untouched],
        model.gp.noise_variance,
    )
    scores["smse_without_gross_errors"] = measures.smse
    scores["rmse_without_gross_errors"] = measures.rmse
    previous = validation["previous"].values[is_untouched]
    no_change = result.identification.narx.predict.of(previous, previous)
    scores["smse_no_change_without_gross_errors"] = standardised_mean_squared_error(
        target[is_untouched], np.broadcast_to(no_change, previous.shape)
    )
    return scores


def _score_linear_part(result: Result) -> float:
    """Return the SMSE on the validation rows of mean function and linear part alone.

    It is nan without a linear part.
    """
    model = result.identification.model
    if model is None or not model.gp.n_linear or result.validation is None:
        return math.nan
    previous = result.validation["previous"].values
    lower, upper = (model.narx.predict.of(limit, previous) for limit in model.limits)
    mean = model.predict_linear_part(result.validation["regressor"].values)
    target = result.validation["target"].values
    return standardised_mean_squared_error(target, np.clip(mean, lower, upper))


# --- warnings -------------------------------------------------------------------------------------


def _warnings(run_settings: RunSettings, summary: dict[str, Any], result: Result) -> list[str]:
    """Return the warnings of a run, a sentence each."""
    identification = result.identification
    trained = result.estimates[-1] if result.estimates else identification.hyperparameters
    warnings = [
        *identification.time_limit.describe("training.seconds"),
        *_warn_of_refused_samples(summary, result),
        *result.source.warnings(),
        *([] if result.dead_times is None else result.dead_times.warnings),
        *_warn_without_effect(run_settings, summary, result),
        *_warn_of_unused_physics(result),
    ]
    warnings += _warn_of_no_candidates(summary, result)
    if identification.settings.forgetting is None:
        warnings += _warn_of_drift(result)
    if summary["n_seen"] and identification.model is not None:
        warnings += filter(None, [identification.model.gp.unreached_memory])
    if summary["n_validation"]:
        scores = dict(summary)
        if math.isfinite(summary["smse_without_gross_errors"]):
            scores["smse"] = summary["smse_without_gross_errors"]
            scores["smse_no_change"] = summary["smse_no_change_without_gross_errors"]
        if result.has_no_feedback:
            scores["smse_no_change"] = math.nan
        free_run = summary["free_run_without_gross_errors"] or summary["free_run"] or {}
        free_run_fit = free_run.get("fit_percent")
        simulates_well = free_run_fit is not None and free_run_fit > MIN_FREE_RUN_FIT_PERCENT
        warnings += _quality_warnings(
            scores,
            is_for_one_step=not (result.is_trained_for_free_run and simulates_well),
            advice=_advise_samples(result),
            explain_coverage=partial(explain_coverage, result),
        )
    if trained is not None:
        warnings += [f"training: {warning}" for warning in trained.warnings]
    warnings += _warn_of_gross_errors(summary, result)
    warnings += _warn_of_bounds(summary)
    warnings += _warn_of_data(summary, identification.model, is_stream=result.learns_a_stream)
    warnings += note_residuals(result, run_settings.lags)
    return warnings


def _learns_stored_points_only(result: Result) -> bool:
    """Whether a sample must be stored as a point to be learned."""
    model = result.identification.model
    return model is None or not model.gp.learns_every_sample


def _warn_of_no_candidates(summary: dict[str, Any], result: Result) -> list[str]:
    """Warn of a stream from which nothing was learned, as no sample became a candidate."""
    if not _learns_stored_points_only(result) or not summary["n_seen"] or summary["n_inserted"]:
        return []
    learned = "no sample became a candidate, so the model did not learn from the stream"
    if _n_online_outliers(summary) == summary["n_seen"]:
        return [f"{learned}: all of them were taken for outliers"]
    if isinstance(result.identification.settings.insertion, Always):
        return [learned]
    return [f"{learned}: lower the threshold of the insertion"]


def _warn_of_gross_errors(summary: dict[str, Any], result: Result) -> list[str]:
    """Warn of gross errors among the samples that validate the model.

    A validation in free run warns of them, too, for both predictions.
    """
    if result.report is not None:
        return []
    screened = result.source.screened_validation
    if screened is None or not screened.n_found:
        return []
    found = f"the samples that validate the model have gross errors ({screened.counts})"
    if not math.isfinite(summary["rmse"]):  # nothing was predicted
        return [found]
    rmse = summary["rmse_without_gross_errors"]
    if not math.isfinite(rmse):
        return [f"{found}: no row is free of them"]
    unit = error_unit(summary["target_unit"])
    return [
        f"{found}: RMSE {with_unit(summary['rmse'], unit)} with them, {with_unit(rmse, unit)} "
        "without the rows that contain one"
    ]


def _n_online_outliers(summary: dict[str, Any]) -> int:
    """Return how many samples of the stream were outliers, without the gross errors of records."""
    gross_errors = summary.get("gross_errors", {}).get("learned", {})
    return int(summary["n_outliers"]) - sum(gross_errors.values())


def _warn_of_refused_samples(summary: dict[str, Any], result: Result) -> list[str]:
    """Warn of many samples that the acceptance or the outlier test refused."""
    settings = result.identification.settings
    n_inserted = summary["n_inserted"]
    n_turned_away = summary["n_turned_away"]
    n_outliers = _n_online_outliers(summary)
    n_seen = summary["n_seen"]
    warnings = []
    # an insertion rule that accepts every sample leaves the choice to the acceptance on purpose
    chooses = _learns_stored_points_only(result) and not isinstance(settings.insertion, Always)
    others = ["acceptance=none"]
    acceptance = settings.acceptance
    if isinstance(acceptance, ExceedsMinimum) and acceptance.reference is not Reference.in_sample:
        others.append("acceptance.reference=in_sample")
    if chooses and n_inserted and n_turned_away > MAX_TURNED_AWAY_FRACTION * n_inserted:
        warnings.append(
            f"acceptance turned away {n_turned_away} of {n_inserted} inserted samples: the "
            "insertion threshold cannot be met with this acceptance and a budget of "
            f"{settings.max_points} points; raise the threshold or the budget, or try "
            f"{' or '.join(others)}"
        )
    if n_outliers > MAX_OUTLIER_FRACTION * n_seen:
        warnings.append(
            f"{n_outliers} of {n_seen} samples were taken for outliers and not learned: "
            f"gate={settings.gate} is too narrow for this plant, or its sensor fails; gate=none "
            "learns all samples"
        )
    return warnings


def _warn_without_effect(
    run_settings: RunSettings, summary: dict[str, Any], result: Result
) -> list[str]:
    """Warn of overrides on the command line that had no effect on this run."""
    identification = result.identification
    unused = set(result.source.unused | identification.settings.training.replaces)
    if identification.gate != identification.settings.gate:
        unused.add("gate")  # the model has too few lags for an outlier test
    if not result.learns_a_stream:
        unused |= STREAM_KEYS
    if summary["training"] is not None and not summary["n_seen"]:
        unused |= ONLINE_LEARNING_KEYS
    if _learns_stored_points_only(result):
        unused.add("scale")
    if run_settings.lags.predicts_residual:
        # the mean is the simulated output, and the prior is that of a stream (`physics.thin`)
        unused |= {"mean"} | RECORD_PRIOR_KEYS
        unused -= STREAM_PRIOR_KEYS
    if result.source.recordings() is None:
        unused |= RECORD_KEYS
    idle = without_effect(unused, run_settings.overrides)
    return [f"without effect on {summary['system']}: {' '.join(idle)}"] if idle else []


def _warn_of_unused_physics(result: Result) -> list[str]:
    """Warn if there is physics beside the model, but none of its signals among the regressors."""
    narx = result.identification.narx
    physics = result.source.physics
    if physics is None or any(name in physics.physics.signals for name, _ in narx.features):
        return []
    return [
        "the model does not use the physics, none of whose signals is among its regressors: take "
        f"narx=residual, or add {SIGNAL_PREFIX}{narx.target}: [0] to narx.inputs"
    ]


def _warn_of_drift(result: Result) -> list[str]:
    """Warn of predictions that get worse while the model learns.

    All criteria but the entropies keep points that surprise the model, and these include points of
    a plant that has changed since. With an acceptance, the entropies keep even more of them.
    """
    n_online = int(result.is_online.sum())
    if result.identified is None or n_online < MIN_SAMPLES_FOR_DRIFT:
        return []
    target = result.identified["target"].values[result.is_online]
    mean = result.record["mean"][result.is_online]
    start = slice(n_online // 10)
    end = slice(-(n_online // 4), None)
    smse_start = standardised_mean_squared_error(target[start], mean[start])
    smse_end = standardised_mean_squared_error(target[end], mean[end])
    if not smse_end > max(DRIFT_SMSE_RATIO * smse_start, MIN_DRIFT_SMSE):
        return []
    # a signal that varies less has a larger SMSE although it is predicted as well as before
    if np.mean((target - mean)[end] ** 2) <= np.mean((target - mean)[start] ** 2):
        return []
    return [
        f"the predictions get worse while the model learns: SMSE {smse_start:.3g} in the first "
        f"tenth of the stream, {smse_end:.3g} in its last quarter. {_explain_drift(result)}"
    ]


def _explain_drift(result: Result) -> str:
    """Return why the predictions of a stream get worse, and what to do about it."""
    settings = result.identification.settings
    model = result.identification.model
    cause = WorseningCause.unclear
    if model is not None and result.identified is not None:
        is_online = result.is_online & ~result.record["outlier"]
        inputs = result.identified["regressor"].values[is_online]
        targets = result.identified["target"].values[is_online]
        cause = find_worsening_cause(model, inputs, targets)
    if cause is WorseningCause.new_region:
        return (
            "The recent samples are where there are no old ones, so the model had to learn anew: "
            "excite the plant over its whole range from the start"
        )
    if cause is WorseningCause.other:
        return (
            "Old samples describe the recent ones as well as other recent ones do, so forgetting "
            "would not help: the noise has grown, or the regressors do not suffice there"
        )
    advice = "set forgetting=<samples> to the time over which the plant stays the same"
    suffers_least = isinstance(settings.reduction, PriorEntropy) and isinstance(
        settings.acceptance, AcceptAll
    )
    if settings.learning is Learning.stored and not suffers_least:
        advice += "; without forgetting, reduction=prior_entropy acceptance=none suffers least"
    has_changed = "The plant has changed, and old samples no longer describe it"
    if cause is WorseningCause.unclear:
        has_changed = "If the plant drifts, old samples no longer describe it"
    return f"{has_changed}: {advice}"


def _advise_samples(result: Result) -> str:
    """Return an advice for a model that learned too little from its first samples, if it may have.

    It begins with a semicolon. A record has no duration, and its hyper-parameters follow from the
    whole record unless the training re-estimates them.
    """
    if not result.learns_a_stream:
        return ""
    options = []
    n_initial = result.identification.settings.training.n_initial
    n_learned = len(result.record)
    if n_initial is not None and n_initial < MAX_INITIAL_FRACTION * n_learned:
        options.append("raise training.n_initial")
    if result.source.recordings() is None:
        options.append("raise the duration")
    if not options:
        return ""
    return f"; the initial samples may not represent the rest: {' or '.join(options)}"


def _quality_warnings(
    summary: dict[str, Any],
    *,
    is_for_one_step: bool = True,
    advice: str = "",
    explain_coverage: Callable[[], str] = lambda: UNKNOWN_CAUSE,
) -> list[str]:
    """Warn of a final model that predicts poorly, or whose bands do not fit its errors.

    Parameters
    ----------
    summary
        Scores of the final model.
    is_for_one_step
        Whether a poor prediction one step ahead matters: not for a model that is trained for the
        free run and simulates well.
    advice
        What to do about a model that predicts poorly; begins with a semicolon unless it is empty.
    explain_coverage
        Function that returns why the bands do not cover.
    """
    smse = summary["smse"]
    no_change = summary["smse_no_change"]
    coverage = summary["coverage_95"]
    if not math.isfinite(smse):
        return ["the target is constant in the validation part: its SMSE is not defined"]
    trivial = "no change"
    trivial_smse = no_change
    if not math.isfinite(no_change):  # static data have no previous value
        trivial = "the mean"
        trivial_smse = 1.0
    warnings = []
    if is_for_one_step and not smse < MAX_SMSE_OVER_TRIVIAL * trivial_smse:
        limit = summary.get("smse_limit", math.nan)
        if smse <= NEAR_LIMIT * limit:
            advice = (
                f", but nothing can: the limit of one-step prediction is {limit:.3g}, as the noise "
                "hides what changes in one sample"
            )
        warnings.append(
            f"the final model predicts no better than {trivial} (SMSE {smse:.3g} against "
            f"{trivial_smse:.3g}){advice}"
        )
    is_beyond_limits = not MIN_COVERAGE <= coverage <= MAX_COVERAGE
    if is_beyond_limits and not _is_by_chance(coverage, summary["n_validation"]):
        width = "narrow" if coverage < MIN_COVERAGE else "wide"
        warnings.append(
            f"the 95 % band covers {100 * coverage:.1f} % and is too {width}: "
            f"{explain_coverage()}; do not rely on the uncertainty"
        )
    return warnings


def _is_by_chance(coverage: float, n: int) -> bool:
    """Whether a correct 95 % band may cover this fraction of n samples."""
    n_covered = round(coverage * n)
    if coverage < MIN_COVERAGE:
        return bool(bdtr(n_covered, n, 0.95) > CHANCE_PROBABILITY)
    return bool(1.0 - bdtr(n_covered - 1, n, 0.95) > CHANCE_PROBABILITY)


def _warn_of_bounds(summary: dict[str, Any]) -> list[str]:
    """Warn of parameters of the physics whose estimates are on their bounds."""
    physics = summary["physics"] or {}
    warnings = []
    for name in physics.get("at_bounds", ()):
        value = physics["parameters"][name]["value"]
        is_initial = "[" in name  # as in level[0], the initial level of the first record
        group = "initial" if is_initial else "free"
        key = f"physics.{group}.{name.split('[')[0]}"
        warnings.append(
            f"physics: {name} ended on its bound {value:.4g}: widen {key}, or the equations do not "
            "fit"
        )
    return warnings


def _warn_of_data(summary: dict[str, Any], model: Model | None, *, is_stream: bool) -> list[str]:
    """Warn of constant regressors, missing samples, and repairs.

    `is_stream`: whether the initial samples are the first ones; else they are those of all records.
    """
    repairs = summary["repairs"]
    n_missing = repairs["missing_samples"]
    initial = "initial samples" if is_stream else "records"
    warnings = [] if model is None else _warn_of_constant_features(model, initial)
    if n_missing:
        warnings.append(
            f"{n_missing} samples were not finite; {repairs['skipped_rows']} rows were left out"
        )
    if repairs.get("rows_with_estimates"):
        warnings.append(
            f"in {repairs['rows_with_estimates']} rows the lags contain estimates of missing "
            "outputs, by a first model"
        )
    for kind, text in REPAIR_WARNINGS.items():
        if repairs.get(kind):
            shown = (
                text if is_stream else text.replace("initial samples", "samples of the training")
            )
            warnings.append(shown.format(repairs[kind]))
    return warnings


def _warn_of_constant_features(model: Model, initial: str) -> list[str]:
    """Warn of regressors that did not move in the training, with each signal named once.

    `initial` names the samples of the training.
    """
    features = model.narx.features
    is_constant = np.zeros(len(features), dtype=bool)
    is_constant[list(model.constant_features)] = True
    names = dict[str, None]()  # in order, without repetition
    for i in model.constant_features:
        signal = features[i][0]
        is_constant_at_all_lags = all(
            is_constant[j] for j, (name, _) in enumerate(features) if name == signal
        )
        names[signal if is_constant_at_all_lags else model.narx.feature_names[i]] = None
    warnings = []
    if names:
        warnings.append(f"constant in the {initial}, and therefore not scaled: {', '.join(names)}")
    without_effect_yet = [
        name
        for name, block in model.linear_blocks.items()
        if not model.gp.coefficients[block].any()
    ]
    if without_effect_yet:
        warnings.append(
            f"the linear part does not use {', '.join(without_effect_yet)}: its coefficients stay "
            "zero for a signal that never moved while the model learned"
        )
    return warnings


# --- log lines ------------------------------------------------------------------------------------


def log_result(result: Result, folder: Path, *, advises: bool) -> None:
    """Log the summary of a result in a few lines, and with `advises` what to do next.

    The free run comes first if the model was trained for it.
    """
    summary = result.summary
    learned, *of_one_step = _describe_stream(summary, result)
    log.info("%s", learned)
    is_for_free_run = result.is_trained_for_free_run
    if result.report is not None and is_for_free_run:
        log_free_run(result.report.content, result.identification.narx.target)
    for line in of_one_step:
        log.info("%s", line)
    if result.stopped is None and result.interrupted is None:
        log.info("%s", _describe_linear_orders(summary, result.identification.narx))
    if result.report is not None and not is_for_free_run:
        log_free_run(result.report.content, result.identification.narx.target)
    if "design" in summary:
        log.info("%s", say_design(summary["design"]))
    if "control" in summary:
        log.info("%s", say_control(summary["control"]))
    fitted = result.source.physics
    if fitted is not None and summary["physics"]:
        log.info("%s", _describe_physics(summary["physics"], fitted.physics.system.outputs))
    for name, model in (summary["linear"] or {}).items():
        log.info("%s", _describe_linear(name, model, error_unit(summary["target_unit"])))
    for line in _describe_training(summary, result):
        log.info("%s", line)
    for warning in summary["warnings"]:
        log.warning("Note: %s", warning)
    log.info("Results: %s", folder)
    model_file = folder / "model.nc"
    if advises and model_file.is_file():
        _log_next_steps(model_file, has_figures=any(folder.glob("*.png")))


def _log_next_steps(model_file: Path, *, has_figures: bool) -> None:
    """Log the commands that use a model."""
    if model_file.is_relative_to(Path.cwd()):
        model_file = model_file.relative_to(Path.cwd())
    figures_hint = "look at its figures; " if has_figures else ""
    log.info(
        "Next: %ssysid-export model=%s writes the model as one Python file",
        figures_hint,
        model_file,
    )
    log.info(
        "and sysid-validate model=%s, with data=... or system=..., validates it on other data",
        model_file,
    )


def _describe_stream(summary: dict[str, Any], result: Result) -> list[str]:
    """Describe in a few lines how many samples were learned, and the scores of the predictions."""
    target = summary["target"]
    kept = f"{summary['n_points']} of {result.identification.settings.max_points} points kept"
    if summary["training"] is not None and not summary["n_seen"]:
        learned = f"{target}: trained on all samples at once, "
        if summary["n_outliers"]:
            learned += f"{summary['n_outliers']} gross errors not learned; "
    else:
        how = "identified online" if result.learns_a_stream else "learned in order"
        learned = (
            f"{target}: {summary['n_seen']} samples {how}, "
            f"{summary['n_inserted']} candidates, {summary['n_revised']} stored; "
        )
        if summary["n_outliers"]:
            learned += f"{summary['n_outliers']} outliers not learned; "
    lines = [learned + kept]
    smse = summary["smse"]
    smse_stream = summary["smse_stream"]
    n = summary["n_validation"]
    unit = error_unit(summary["target_unit"])
    if smse is not None:
        compared = []
        if summary["n_seen"]:
            first = "model before the stream"
            if not result.learns_a_stream:
                first = "model of the first samples"
            compared.append(f"{first} {summary['smse_initial']:.3g}")
        if summary["smse_linear_part"] is not None:
            compared.append(f"linear part alone {summary['smse_linear_part']:.3g}")
        if summary["smse_no_change"] is not None:
            compared.append(f"no change {summary['smse_no_change']:.3g}")
        comparison = f" ({', '.join(compared)})" if compared else ""
        limit = describe_limit(summary)
        with_limit = f"{smse:.3g}, {limit}" if limit else f"{smse:.3g}"
        without = summary["smse_without_gross_errors"]
        if without is not None:
            with_limit += f" ({without:.3g} without gross errors)"
        lines.append(f"One-step SMSE on the {n} samples after: {with_limit}{comparison}")
        is_expected = any(result.limit is expected for expected in EXPECTED_WITHOUT_LIMIT)
        if summary["no_limit"] and not is_expected:
            lines.append(f"The limit of one-step prediction is not known: {summary['no_limit']}")
        covered = f"95 % band covers {100 * summary['coverage_95']:.1f} %"
        in_stream = "" if smse_stream is None else f", SMSE in the stream {smse_stream:.3g}"
        rmse = describe_error(summary, "rmse", unit)
        lines.append(f"RMSE {rmse}, {covered}{in_stream}")
    elif n:
        lines.append(f"RMSE {with_unit(summary['rmse'], unit)} on a constant target")
    elif smse_stream is not None:
        lines.append(
            f"SMSE in the stream {smse_stream:.3g}; there are no samples after it to validate the "
            "final model"
        )
    return lines


def _describe_linear_orders(summary: dict[str, Any], narx: Narx) -> str:
    """Describe the errors of the best linear models of all orders in one line."""
    lags = summary["linear_lags"]
    if lags is None:
        return "No linear model to compare with: too few samples, or no signal that varies"
    is_static = lags["after_stream"] == 0
    errors = []
    if summary["smse_linear"] is not None:
        name = "least squares" if is_static else f"best ARX ({write_lags(lags['after_stream'])})"
        errors.append(f"{name} {summary['smse_linear']:.3g}")
    if summary["smse_stream_linear"] is not None:
        name = "recursive least squares"
        if not is_static:
            name += f" of the best order ({write_lags(lags['in_stream'])})"
        errors.append(f"{name} {summary['smse_stream_linear']:.3g} in the stream")
    if not errors:
        return "No linear model to compare with: no sample is predicted, or no target varies"
    line = f"SMSE of linear models: {', '.join(errors)}"
    if summary["smse_linear"] is not None and summary["smse_without_gross_errors"] is not None:
        line += "; the samples after it include gross errors"
    if not is_static and not narx.lags[narx.target]:
        line += "; they know past outputs, the model does not"
    return line


def _describe_linear(name: str, model: dict[str, Any], unit: str) -> str:
    """Describe the errors of a linear model in one line."""
    orders = f"{name.replace('_', ' ')}, na={model['na']} nb={model['nb']} nk={model['nk']}"
    line = f"Linear ARX ({orders}): RMSE {describe_error(model, 'rmse', unit)}"
    fit = model["free_run_fit_percent"]
    without = model.get(without_gross_errors("free_run_fit_percent"))
    if without is not None:
        fit = without
    if model["free_run_diverges"]:
        line += ", diverges in free run"
    if model["free_run_rmse"] is not None:
        line += f", in free run {describe_error(model, 'free_run_rmse', unit)}"
    if fit is not None and math.isfinite(fit):
        line += f", fit {fit:.1f} %"
    return line


def describe_error(errors: Mapping[str, Any], key: str, unit: str) -> str:
    """Return an error with its unit, first that without gross errors if there is one."""
    text = with_unit(errors[key], unit)
    without = errors.get(without_gross_errors(key))
    if without is None:
        return text
    return f"{with_unit(without, unit)} without gross errors ({text} with them)"


def _describe_physics(physics: dict[str, Any], outputs: Sequence[Signal]) -> str:
    """Describe in one line the error of the equations without the model, and their parameters.

    Estimated initial states are left out.
    """
    errors = ", ".join(
        f"{y.name} {with_unit(physics['rmse'][y.name], error_unit(y.unit))}" for y in outputs
    )
    estimates = []
    for name, estimate in physics["parameters"].items():
        if "[" in name:  # an initial state of a record, such as level[0]
            continue
        if estimate["std"] is not None:
            spread = f"+- {estimate['std']:.2g}"
        elif name in physics["at_bounds"]:
            spread = "(on its bound)"
        else:
            spread = "(not determined)"
        estimates.append(f"{name} {estimate['value']:.4g} {spread}")
    line = f"Physics alone, on the estimation records: RMSE of {errors}"
    if estimates:
        line += f"; {', '.join(estimates[:MAX_PARAMETERS_LOGGED])}"
    if len(estimates) > MAX_PARAMETERS_LOGGED:
        line += ", ..."
    return line


def _describe_training(summary: dict[str, Any], result: Result) -> list[str]:
    """Describe how the hyper-parameters were found, and how long everything took."""
    identification = result.identification
    times = summary["times"]
    unit = error_unit(summary["target_unit"])
    lines = []
    if identification.n_waited:
        lines.append(
            f"The plant was at rest at first: {identification.n_waited} samples were not learned"
        )
    initial = identification.initial
    final = identification.model
    if "adaptation" in times and initial is not None and final is not None:
        noise_before = math.sqrt(initial.gp.noise_variance)
        noise_after = math.sqrt(final.gp.noise_variance)
        longest = max((estimate.seconds for estimate in result.estimates), default=0.0)
        n_estimates = summary["n_estimates"]
        took = f"in {times['adaptation']:.2f} s"
        if n_estimates == 0:
            estimated = "The first hyper-parameters were kept"
        elif n_estimates == 1:
            estimated = f"Hyper-parameters estimated again once {took}"
        else:
            estimated = (
                f"Hyper-parameters estimated again {n_estimates} times {took}, one in "
                f"{longest:.2f} s at most"
            )
        lines.append(
            f"{estimated}; noise std {noise_before:.3g} before and "
            f"{with_unit(noise_after, unit, 3)} after"
        )
    for route in (summary["training"] or {}).get("tried", []):
        lines.append(_describe_route(route, unit))
    n = result.source.n_seen
    rate = n / times["loop"] if times["loop"] > 0 else math.nan
    training_seconds = times["training"] + times.get("record", 0.0)
    search = ""
    if summary.get("lags") is not None:
        search = f"Preparation and choice of lags {times['setup']:.1f} s; training "
    lines.append(
        f"{search or 'Training '}{training_seconds:.2f} s; {result.source.activity} and "
        f"identification of {n} samples {times['loop']:.2f} s ({rate:.0f} samples/s)"
    )
    return lines


def _describe_route(tried: dict[str, Any], unit: str) -> str:
    """Describe in one line a route of a training for the free run, and its held-out error."""
    route = tried["route"]
    error = tried["held_out_rmse"]
    n_folds = len(tried.get("folds", ()))  # fewer than planned if the route could not win any more
    # without a limit of the time, every route that refuses nothing simulates at least one fold
    found = "not taken" if tried["refusal"] else "not compared, as the time was up"
    if n_folds:
        shown = "diverges" if error is None else with_unit(error, unit)
        folds = "fold" if n_folds == 1 else "folds"
        found = f"RMSE {shown} in free run on {n_folds} held-out {folds}"
    reason = tried["refusal"].removeprefix(f"{route}: ")
    version = " (quick version)" if tried.get("is_quick") else ""
    return f"Tried {route}{version}: {found}; {reason}".rstrip("; ")
