"""What came out of an identification: numbers for files, words for people."""

import logging
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from experiments.files import plain
from experiments.results import Result
from experiments.validation.report import tell_free_run
from sysid import Always, standardised_mean_squared_error, validate

log = logging.getLogger(__name__)


def summarise(config: DictConfig, result: Result, times: dict[str, Any]) -> dict[str, Any]:
    """Summary as plain numbers, texts, lists and dicts; None where there is no number.

    Whatever differs from one run to the next of the same code and settings stands in its `times`.
    """
    summary = {
        "system": result.source.title,
        "target": _target_name(result),
        "target_unit": "" if result.rows is None else result.rows["target"].attrs.get("units", ""),
        "partial": result.stopped is not None,
        "seed": int(config.seed),
        **_validation_scores(result),
        **_stream_counts(result),
        **_model_facts(result),
        "free_run": None if result.trial.report is None else result.trial.report.content["free_run"],
    }
    summary["training"] = result.identification.report
    training = result.identification.training_seconds
    summary["times"] = {**times, "loop": times["loop"] - training, "training": training}
    if result.identification.adaptation is not None:
        summary["times"]["adaptation"] = sum(estimate.seconds for estimate in result.estimates)  # part of the loop
    summary["warnings"] = _warnings(summary, result) + result.trial.notes
    return plain(summary)


def _target_name(result: Result) -> str:
    narx = result.identification.narx
    return narx.predict.describe(narx.target)


def _validation_scores(result: Result) -> dict[str, Any]:
    model, validation = result.identification.model, result.validation
    target = np.zeros(0) if validation is None else validation["target"].values
    previous = np.zeros(0) if validation is None else validation["previous"].values
    noise = model.gp.noise_variance if model is not None else math.nan
    mean, variance = result.predicted
    final = validate(target, mean, variance, noise)
    unchanged = np.broadcast_to(result.identification.narx.predict.of(previous, previous), target.shape)
    is_online = result.is_online
    seen = np.zeros(0) if result.identified is None else result.identified["target"].values[is_online]
    return {
        "smse": final.smse,
        "smse_initial": standardised_mean_squared_error(target, result.predicted_initial.mean),
        "smse_no_change": standardised_mean_squared_error(target, unchanged),
        "smse_stream": standardised_mean_squared_error(seen, result.record["mean"][is_online]),
        "rmse": final.rmse,
        "mean_variance": float(np.mean(variance)) if len(variance) else math.nan,
        "coverage_95": final.coverage_95,
        "nlpd": final.nlpd,
        "n_validation": final.n,
    }


def _stream_counts(result: Result) -> dict[str, int]:
    record = result.record[result.is_online]
    return {
        "n_initial": len(result.record) - len(record),
        "n_seen": len(record),
        "n_inserted": int(record["inserted"].sum()),
        "n_accepted": int(record["accepted"].sum()),
        "n_turned_away": int((record["inserted"] & ~record["accepted"]).sum()),
        "n_revised": int((record["slot"] >= 0).sum()),
        "n_estimates": len(result.estimates),
    }


def _model_facts(result: Result) -> dict[str, Any]:
    model = result.identification.model
    skipped = {"missing_samples": result.window.n_missing, "skipped_rows": result.window.n_skipped}
    if model is None:
        return {"n_points": 0, "hyperparameters": None, "repairs": skipped, "constant_features": []}
    names = result.identification.narx.feature_names
    constant = [names[i] for i in model.constant_features]
    repairs = {**model.gp.repairs, **skipped, "constant_features": len(constant)}
    return {
        "n_points": model.gp.n_points,
        "hyperparameters": model.hyperparameters,
        "repairs": repairs,
        "constant_features": constant,
    }


def _warnings(summary: dict[str, Any], result: Result) -> list[str]:
    found = []
    inserted, away = summary["n_inserted"], summary["n_turned_away"]
    always = isinstance(result.identification.settings.insertion, Always)  # then to turn away is the idea
    if inserted and away > 0.5 * inserted and not always:
        found.append(
            f"acceptance turned away {away} of {inserted} inserted samples: the insertion threshold cannot be "
            f"met with this acceptance and a budget of {result.identification.settings.budget} points; raise "
            "the threshold or the budget, or try acceptance=none or acceptance.reference=in_sample"
        )
    found += result.source.warnings()
    training = result.identification.settings.training
    if idle := without_effect(result.source.unused | training.replaces):
        found.append(f"without effect on {summary['system']}: {' '.join(idle)}")
    if summary["n_seen"] and not inserted:
        found.append("no sample asked for a place, the model did not learn from the stream; lower the threshold")
    if summary["n_validation"]:
        can_follow = result.identification.adaptation is None and not training.replaces
        found += _quality_warnings(summary, can_follow=can_follow)
    found += [f"training: {note}" for note in _training_notes(result)]
    if summary["constant_features"]:
        found.append(f"constant in the initial samples, not scaled: {', '.join(summary['constant_features'])}")
    if summary["repairs"]["missing_samples"]:
        found.append(
            f"{summary['repairs']['missing_samples']} samples were not finite; "
            f"{summary['repairs']['skipped_rows']} rows were left out"
        )
    for count, what in (
        ("near_duplicates", "points that entered equal a stored one"),
        ("clipped_variances", "variances were negative by rounding and set to 0"),
    ):
        if summary["repairs"].get(count):
            found.append(f"{summary['repairs'][count]} {what}")
    if summary["repairs"].get("refactorisations"):
        found.append(f"the factor was repaired {summary['repairs']['refactorisations']} times")
    return found


def _training_notes(result: Result) -> tuple[str, ...]:
    """Warnings of the hyper-parameters that the model has: of the last estimate, or of the training."""
    trained = result.identification.hyperparameters
    if result.estimates:
        return result.estimates[-1].warnings
    return () if trained is None else trained.warnings


def without_effect(unused: Collection[str]) -> list[str]:
    """Overrides of the command line that name unused keys."""
    if not HydraConfig.initialized():
        return []
    given = {override: override.lstrip("+~").split("=")[0] for override in HydraConfig.get().overrides.task}
    return [o for o, key in given.items() if key.split("@")[0].split(".")[0] in unused]


def _quality_warnings(summary: dict[str, Any], *, can_follow: bool = True) -> list[str]:
    found = []
    smse, unchanged, coverage = summary["smse"], summary["smse_no_change"], summary["coverage_95"]
    if not math.isfinite(smse):
        return ["the target is constant in the validation part: its SMSE is not defined"]
    advice = "; training=adaptive lets the hyper-parameters follow the stream" if can_follow else ""
    reference, value = ("no change", unchanged) if math.isfinite(unchanged) else ("the mean", 1.0)  # static: no past
    if not smse < 0.95 * value:
        found.append(
            f"the final model predicts no better than {reference} (SMSE {smse:.3g} against {value:.3g}); the "
            f"initial samples may not represent the rest: raise training.n_initial or the duration{advice}"
        )
    if not 0.85 <= coverage <= 0.99:
        found.append(
            f"the 95 % band covers {100 * coverage:.1f} %: the hyper-parameters do not fit, do not rely on the "
            f"uncertainty{advice}"
        )
    return found


def tell(result: Result, folder: Path) -> None:
    """Log the summary of a result in a few lines."""
    summary = result.summary
    times, unit = summary["times"], _unit(summary)
    n = result.source.n_seen
    rate = n / times["loop"] if times["loop"] > 0 else math.nan
    _tell_stream(summary, result.identification.settings.budget)
    _tell_scores(summary)
    if summary["free_run"] is not None:
        tell_free_run(summary["free_run"])
    if "adaptation" in times:
        _tell_adaptation(summary, result)
    for tried in (summary["training"] or {}).get("tried", []):
        log.info(
            "Tried %s: RMSE %s in free run on held-out parts", tried["route"], _shown(tried["held_out_rmse"], unit)
        )
    log.info(
        "Training %.2f s; %s and identification of %s samples %.2f s (%.0f samples/s)",
        times["training"],
        result.source.activity,
        n,
        times["loop"],
        rate,
    )
    for warning in summary["warnings"]:
        log.warning("Note: %s", warning)
    log.info("Results: %s", folder)


def _tell_adaptation(summary: dict[str, Any], result: Result) -> None:
    """Log how often the hyper-parameters were estimated anew, and what that changed."""
    initial, final = result.identification.initial, result.identification.model
    if initial is None or final is None:
        return
    log.info(
        "Hyper-parameters estimated anew %s times in %.2f s; noise std %.3g before and %s after",
        summary["n_estimates"],
        summary["times"]["adaptation"],
        math.sqrt(initial.gp.noise_variance),
        f"{math.sqrt(final.gp.noise_variance):.3g} {_unit(summary)}".rstrip(),
    )


def _shown(rmse: float | None, unit: str) -> str:
    """Error of a free run with its unit."""
    return "diverges" if rmse is None else f"{rmse:.4g} {unit}".rstrip()


def _unit(summary: dict[str, Any]) -> str:
    return "" if summary["target_unit"] == "1" else str(summary["target_unit"])


def _tell_stream(summary: dict[str, Any], budget: int) -> None:
    """Log what became of the samples that were learned from one by one."""
    if summary["training"] is not None and not summary["n_seen"]:
        log.info(
            "%s: trained on all samples at once, %s of %s points kept", summary["target"], summary["n_points"], budget
        )
        return
    log.info(
        "%s: %s samples identified online, %s asked for a place, %s entered; %s of %s points kept",
        summary["target"],
        summary["n_seen"],
        summary["n_inserted"],
        summary["n_revised"],
        summary["n_points"],
        budget,
    )


def _tell_scores(summary: dict[str, Any]) -> None:
    """Log how good the predictions are, as far as there are any."""
    unit = _unit(summary)
    if summary["smse"] is None and summary["n_validation"]:
        log.info("RMSE %s on a constant target", f"{summary['rmse']:.4g} {unit}".rstrip())
    if summary["smse"] is not None:
        log.info(
            "One-step SMSE on the %s samples after: %.3g (model before the stream %.3g%s)",
            summary["n_validation"],
            summary["smse"],
            summary["smse_initial"],
            "" if summary["smse_no_change"] is None else f", no change {summary['smse_no_change']:.3g}",
        )
        log.info(
            "RMSE %s, 95 %% band covers %.1f %%%s",
            f"{summary['rmse']:.4g} {unit}".rstrip(),
            100 * summary["coverage_95"],
            "" if summary["smse_stream"] is None else f", SMSE in the stream {summary['smse_stream']:.3g}",
        )
    if not summary["n_validation"] and summary["smse_stream"] is not None:
        log.info("SMSE in the stream %.3g; no samples after it to judge the final model by", summary["smse_stream"])
