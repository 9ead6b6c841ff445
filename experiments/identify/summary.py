"""What came out of an identification: numbers for files, words for people."""

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.cli.arguments import without_effect
from experiments.drawing.tables import with_unit
from experiments.files.outputs import plain
from experiments.identify.linear import note_linear
from experiments.identify.result import Result
from experiments.identify.settings import RunSettings
from experiments.plant.physics import PREFIX
from experiments.validate.report import log_free_run
from simulators import Signal
from sysid import Always, standardised_mean_squared_error, validate

log = logging.getLogger(__name__)
#: settings of a training that act on streams alone, and on records alone
PRIOR_OF_STREAMS, PRIOR_OF_RECORDS = (
    {f"training.{kind}_prior_{value}" for value in ("median", "std")}
    for kind in ("length_scale", "record_length")
)
OF_STREAMS = PRIOR_OF_STREAMS | {
    f"training.{name}"
    for name in (
        *("restarts", "interval", "significance", "window"),
        *("sample_size", "after_revised", "max_updates", "tolerance"),
    )
}
OF_RECORDS = PRIOR_OF_RECORDS | {"training.record_samples", "training.on_records"}
#: settings of what is learned online; a training for the free run may leave nothing to be
OF_ONLINE = {"insertion", "acceptance", "reduction", "gate", "scale", "forgetting"}
LEAST_STREAM = 1000  # samples in which a drift can be told from chance
# SMSE at the end of a stream: over that at its start, and at least
DRIFT = 3.0
WORST_LATE = 0.02
#: by the kind of repair: what to say of so many
REPAIRS = {
    "near_duplicates": "{} points that entered equal a stored one",
    "clipped_variances": "{} variances were negative by rounding and set to 0",
    "refactorisations": "the factor was repaired {} times",
    "initial_outliers": "initial samples that contradicted the others and were left out of the training: {}",
    "mended_lags": "{} values of inputs and other outputs were taken for gross errors and replaced among the lags",
}


def summarise(settings: RunSettings, result: Result, times: dict[str, Any]) -> dict[str, Any]:
    """Summary as plain numbers, texts, lists and dicts; None where there is no number.

    Whatever differs from one run to the next of the same code and settings stands in its `times`.
    """
    identification = result.identification
    rows = result.rows
    model = identification.model
    narx = identification.narx
    training = identification.training_seconds
    times = {**times, "loop": times["loop"] - training, "training": training}
    if identification.adaptation is not None:
        times["adaptation"] = sum(
            estimate.seconds for estimate in result.estimates
        )  # part of the loop
    repairs = {
        "missing_samples": result.window.n_missing,
        "skipped_rows": result.window.n_skipped,
    }
    constant = [] if model is None else [narx.feature_names[i] for i in model.constant_features]
    repairs["initial_outliers"] = identification.n_initial_outliers
    repairs["mended_lags"] = sum(identification.n_mended.values())
    if model is not None:
        repairs = {**model.gp.repairs, **repairs, "constant_features": len(constant)}
    online = result.record[result.is_online]
    choice = result.source.lag_choice
    summary = {
        "system": result.source.title,
        "target": narx.predict.describe(narx.target),
        "target_unit": "" if rows is None else rows["target"].attrs.get("units", ""),
        "partial": result.stopped is not None,
        "seed": settings.learner.seed,
        **_validation_scores(result),
        "n_initial": len(result.record) - len(online),
        "n_seen": len(online),
        "n_inserted": int(online["inserted"].sum()),
        "n_accepted": int(online["accepted"].sum()),
        "n_turned_away": int((online["inserted"] & ~online["accepted"]).sum()),
        "n_revised": int((online["slot"] >= 0).sum()),
        "n_outliers": int(online["outlier"].sum()),
        "n_estimates": len(result.estimates),
        "n_points": 0 if model is None else model.gp.n_points,
        "hyperparameters": None if model is None else model.hyperparameters,
        "repairs": repairs,
        "constant_features": constant,
        "free_run": None if result.report is None else result.report.content["free_run"],
        "linear": result.linear,
        "lags": None if choice is None else {"criterion": choice.criterion, "tried": choice.tried},
        "training": identification.report,
        "physics": None if result.source.physics is None else result.source.physics.estimates(),
        "times": times,
    }
    notes = [
        *_warnings(settings, summary, result),
        *result.notes,
        *note_linear(summary, result),
    ]
    return plain({**summary, "warnings": notes})


def _validation_scores(result: Result) -> dict[str, Any]:
    model = result.identification.model
    validation = result.validation
    names = ("target", "previous")
    target, previous = (
        np.zeros(0) if validation is None else validation[name].values for name in names
    )
    mean, variance = result.predicted
    final = validate(
        target,
        mean,
        variance,
        model.gp.noise_variance if model is not None else math.nan,
    )
    unchanged = np.broadcast_to(
        result.identification.narx.predict.of(previous, previous), target.shape
    )
    seen = (
        np.zeros(0)
        if result.identified is None
        else result.identified["target"].values[result.is_online]
    )
    return {
        "smse": final.smse,
        "smse_initial": standardised_mean_squared_error(target, result.predicted_initial.mean),
        "smse_no_change": standardised_mean_squared_error(target, unchanged),
        "smse_stream": standardised_mean_squared_error(
            seen, result.record["mean"][result.is_online]
        ),
        "rmse": final.rmse,
        "mean_variance": float(np.mean(variance)) if len(variance) else math.nan,
        "coverage_95": final.coverage_95,
        "nlpd": final.nlpd,
        "n_validation": final.n,
    }


def _warnings(asked: RunSettings, summary: dict[str, Any], result: Result) -> list[str]:
    identification = result.identification
    repairs = summary["repairs"]
    settings = identification.settings
    training = identification.settings.training
    inserted = summary["n_inserted"]
    away = summary["n_turned_away"]
    found = []
    needs_a_place = (
        identification.model is None or not identification.model.gp.learns_every_sample
    )  # to be learned
    is_asked = needs_a_place and not isinstance(
        settings.insertion, Always
    )  # there to turn away is the idea
    if is_asked and inserted and away > 0.5 * inserted:
        why = f"cannot be met with this acceptance and a budget of {settings.budget} points"
        advice = "raise the threshold or the budget, or try acceptance=none or acceptance.reference=in_sample"
        turned = f"acceptance turned away {away} of {inserted} inserted samples"
        found.append(f"{turned}: the insertion threshold {why}; {advice}")
    if summary["n_outliers"] > 0.05 * summary["n_seen"]:
        outliers = f"{summary['n_outliers']} of {summary['n_seen']} samples were taken for outliers and not learned"
        why = f"gate={settings.gate} is too narrow for this plant, or its sensor fails; gate=none learns all"
        found.append(f"{outliers}: {why}")
    found += result.source.warnings()
    no_gate = {"gate"} if identification.gate != settings.gate else set()  # for want of lags
    is_stream = (
        result.source.recordings() is None or identification.adaptation is not None
    )  # first samples count
    unused = (
        result.source.unused | training.replaces | no_gate | (set() if is_stream else OF_STREAMS)
    )
    unused |= OF_ONLINE if summary["training"] is not None and not summary["n_seen"] else set()
    unused |= {"scale"} if needs_a_place else set()
    if (
        asked.lags.predicts_residual
    ):  # the simulated output is the mean; the prior is that of a stream
        unused = unused.union({"mean"}, PRIOR_OF_RECORDS) - PRIOR_OF_STREAMS
    unused |= set() if result.source.recordings() is not None else OF_RECORDS
    if idle := without_effect(unused, asked.overrides):
        found.append(f"without effect on {summary['system']}: {' '.join(idle)}")
    narx = identification.narx
    physics = result.source.physics
    if physics is not None and not any(
        name in physics.physics.signals for name, _ in narx.features
    ):
        advice = f"take narx=residual, or add {PREFIX}{narx.target}: [0] to narx.inputs"
        found.append(
            f"the model does not use the physics, none of whose signals is among its regressors: {advice}"
        )
    if needs_a_place and summary["n_seen"] and not inserted:
        found.append(
            "no sample asked for a place, the model did not learn from the stream; lower the threshold"
        )
    if identification.settings.forgetting is None and (told := _tell_drift(result)):
        found.append(told)
    if summary["n_validation"]:
        past = {"smse_no_change": math.nan} if result.has_no_feedback else {}
        found += _quality_warnings(summary | past, is_stream=is_stream)
    trained = result.estimates[-1] if result.estimates else identification.hyperparameters
    found += [] if trained is None else [f"training: {note}" for note in trained.warnings]
    for name in (summary["physics"] or {}).get("at_bounds", ()):
        ended = f"{name} ended on its bound {summary['physics']['parameters'][name]['value']:.4g}"
        key = f"physics.{'initial' if '[' in name else 'free'}.{name.split('[')[0]}"
        found.append(f"physics: {ended}: widen {key}, or the equations do not fit")
    if summary["constant_features"]:
        found.append(
            f"constant in the initial samples, not scaled: {', '.join(summary['constant_features'])}"
        )
    if missing := repairs["missing_samples"]:
        found.append(
            f"{missing} samples were not finite; {repairs['skipped_rows']} rows were left out"
        )
    return found + [
        text.format(repairs[name]) for name, text in REPAIRS.items() if repairs.get(name)
    ]


def _tell_drift(result: Result) -> str:
    """Warn of predictions that get worse and worse while the model learns; empty if they do not.

    Every criterion but the entropies keeps points that surprise: those of a plant that was, too.
    With an acceptance, the entropies keep them all the more.
    """
    if result.identified is None or (n := int(result.is_online.sum())) < LEAST_STREAM:
        return ""
    target = result.identified["target"].values[result.is_online]
    mean = result.record["mean"][result.is_online]
    parts = slice(n // 10), slice(-(n // 4), None)
    early, late = (standardised_mean_squared_error(target[part], mean[part]) for part in parts)
    if not late > max(DRIFT * early, WORST_LATE):
        return ""
    worse = f"SMSE {early:.3g} in the first tenth of the stream, {late:.3g} in its last quarter"
    advice = "let them go with forgetting=<samples> that the plant stays the same for"
    why = f"If the plant drifts, points of long ago keep their places: {advice}"
    least = "without, reduction=prior_entropy acceptance=none suffers least"
    return f"the predictions get worse while the model learns: {worse}. {why}; {least}"


def _quality_warnings(summary: dict[str, Any], *, is_stream: bool = True) -> list[str]:
    found = []
    smse = summary["smse"]
    unchanged = summary["smse_no_change"]
    coverage = summary["coverage_95"]
    if not math.isfinite(smse):
        return ["the target is constant in the validation part: its SMSE is not defined"]
    reference, value = (
        ("no change", unchanged) if math.isfinite(unchanged) else ("the mean", 1.0)
    )  # static: no past
    if not smse < 0.95 * value:
        advice = "; the initial samples may not represent the rest: raise training.n_initial or the duration"
        worse = f"no better than {reference} (SMSE {smse:.3g} against {value:.3g})"
        found.append(f"the final model predicts {worse}{advice if is_stream else ''}")
    if not 0.85 <= coverage <= 0.99:
        covered = f"the 95 % band covers {100 * coverage:.1f} %"
        found.append(f"{covered}: the hyper-parameters do not fit, do not rely on the uncertainty")
    return found


def tell(result: Result, folder: Path, *, advises: bool) -> None:
    """Log the summary of a result in a few lines, and with `advises` what to do next."""
    summary = result.summary
    unit = result.summary["target_unit"]
    for line in _describe_stream(summary, result):
        log.info("%s", line)
    if result.report is not None:
        log_free_run(result.report.content, result.identification.narx.target)
    if (fitted := result.source.physics) is not None and summary["physics"]:
        log.info("%s", _describe_physics(summary["physics"], fitted.physics.system.outputs))
    for name, one in (summary["linear"] or {}).items():
        simulated = one["free_run_rmse"]
        fit = one["free_run_fit_percent"]
        free = ", diverges in free run" if one["free_run_diverges"] else ""
        free += "" if simulated is None else f", in free run {with_unit(simulated, unit)}"
        free += "" if fit is None or not math.isfinite(fit) else f", fit {fit:.1f} %"
        orders = f"{name.replace('_', ' ')}, na={one['na']} nb={one['nb']} nk={one['nk']}"
        log.info("Linear ARX (%s): RMSE %s%s", orders, with_unit(one["rmse"], unit), free)
    for line in _describe_training(summary, result):
        log.info("%s", line)
    for warning in summary["warnings"]:
        log.warning("Note: %s", warning)
    log.info("Results: %s", folder)
    model = folder / "model.nc"
    if advises and model.is_file():
        shown = model.relative_to(Path.cwd()) if model.is_relative_to(Path.cwd()) else model
        look = "look at its figures; " if any(folder.glob("*.png")) else ""
        log.info(
            "Next: %ssysid-export model=%s writes the model as one Python file",
            look,
            shown,
        )
        log.info(
            "and sysid-validate model=%s, with data=... or system=..., judges it on other data",
            shown,
        )


def _describe_stream(summary: dict[str, Any], result: Result) -> list[str]:
    """Say what became of the samples, and how good the predictions are, as far as there are any."""
    kept = f"{summary['n_points']} of {result.identification.settings.budget} points kept"
    online = "{target}: {n_seen} samples identified online, {n_inserted} asked for a place, {n_revised} entered; "
    if summary["n_outliers"]:
        online += "{n_outliers} outliers passed over; "
    if summary["training"] is not None and not summary["n_seen"]:
        online = "{target}: trained on all samples at once, "
    lines = [online.format(**summary) + kept]
    stream = summary["smse_stream"]
    n = summary["n_validation"]
    unit = summary["target_unit"]
    if summary["smse"] is not None:
        unchanged = summary["smse_no_change"]
        compared = "" if unchanged is None else f", no change {unchanged:.3g}"
        before = (
            f"model before the stream {summary['smse_initial']:.3g}" if summary["n_seen"] else ""
        )
        told = f"{before}{compared}".removeprefix(", ")
        lines.append(
            f"One-step SMSE on the {n} samples after: {summary['smse']:.3g}{told and f' ({told})'}"
        )
        covered = f"95 % band covers {100 * summary['coverage_95']:.1f} %"
        learned = "" if stream is None else f", SMSE in the stream {stream:.3g}"
        lines.append(f"RMSE {with_unit(summary['rmse'], unit)}, {covered}{learned}")
    elif n:
        lines.append(f"RMSE {with_unit(summary['rmse'], unit)} on a constant target")
    elif stream is not None:
        lines.append(
            f"SMSE in the stream {stream:.3g}; no samples after it to judge the final model by"
        )
    return lines


def _describe_physics(physics: dict[str, Any], outputs: Sequence[Signal]) -> str:
    """How wrong the equations are without the model, and what was estimated of them; initial states
    are left out.
    """
    wrong = ", ".join(f"{y.name} {with_unit(physics['rmse'][y.name], y.unit)}" for y in outputs)
    found = []
    for name, one in physics["parameters"].items():
        why = "on its bound" if name in physics["at_bounds"] else "not determined"
        sure = f"({why})" if one["std"] is None else f"+- {one['std']:.2g}"
        found += [] if "[" in name else [f"{name} {one['value']:.4g} {sure}"]
    shown = ", ".join(found[:6]) + ", ..." * (len(found) > 6)
    return f"Physics alone, on the estimation records: RMSE of {wrong}; {shown}".rstrip("; ")


def _describe_training(summary: dict[str, Any], result: Result) -> list[str]:
    """How the hyper-parameters were found, and how long everything took."""
    identification = result.identification
    times = summary["times"]
    unit = summary["target_unit"]
    lines = []
    initial = identification.initial
    final = identification.model
    if "adaptation" in times and initial is not None and final is not None:
        before, after = (math.sqrt(model.gp.noise_variance) for model in (initial, final))
        longest = max((estimate.seconds for estimate in result.estimates), default=0.0)
        count = f"{summary['n_estimates']} times in {times['adaptation']:.2f} s, one in {longest:.2f} s at most"
        noise = f"noise std {before:.3g} before and {with_unit(after, unit, 3)} after"
        lines.append(f"Hyper-parameters estimated anew {count}; {noise}")
    for tried in (summary["training"] or {}).get("tried", []):
        error = tried["held_out_rmse"]
        route = tried["route"]
        n_parts = len(tried.get("folds", ()))
        shown = "diverges" if error is None else with_unit(error, unit)
        # fewer where it could not win any more
        parts = f"{n_parts} held-out part{'s' * (n_parts > 1)}"
        found = f"RMSE {shown} in free run on {parts}"
        reason = tried["refusal"].removeprefix(f"{route}: ")
        lines.append(f"Tried {route}: {found if n_parts else 'not taken'}; {reason}".rstrip("; "))
    n = result.source.n_seen
    rate = result.source.n_seen / times["loop"] if times["loop"] > 0 else math.nan
    loop = f"{result.source.activity} and identification of {n} samples {times['loop']:.2f} s ({rate:.0f} samples/s)"
    return [
        *lines,
        f"Training {times['training'] + times.get('record', 0.0):.2f} s; {loop}",
    ]
