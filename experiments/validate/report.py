"""The report of a validation: numbers, predictions, residual tests, figures and log messages."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from experiments.drawing.tables import error_unit, fixed, to_text, with_unit
from experiments.files.outputs import plain
from experiments.plant.source import Source
from experiments.validate.assessment import (
    FREE_RUN_LABEL,
    Assessment,
    Case,
    assess,
    choose_horizons,
    plan_cases,
)
from experiments.validate.linear_view import CLOSE_DECIBELS, CLOSE_DEGREES
from experiments.validate.loop import LOOP_VARIABLES, score_loop
from experiments.validate.material import Material, select_records
from sysid import (
    JointModel,
    Model,
    Propagation,
    ResidualReport,
    Validation,
    calibration,
    residual_tests,
    store,
)
from sysid.arrays import Array
from sysid.data.holes import may_have_holes
from sysid.errors import UserError
from sysid.simulation.forecast import RecordForecast
from sysid.simulation.residual_advice import Choices, advise, find_remedies
from sysid.simulation.residuals import most_lags
from sysid.units import squared_unit

MAX_RESIDUAL_LAG = 25  # largest lag of the residual tests [samples]; shorter records have fewer
#: shorter parts of a record between missing samples are not tested [samples]
MIN_TESTED_PART_SAMPLES = 4 * MAX_RESIDUAL_LAG
RESIDUAL_TITLES = {"one_step": "Residuals of one step", FREE_RUN_LABEL: "Residuals of the free run"}
#: text added to alarms of the free run, whose residuals contain the disturbances of the plant
NOT_WHITE_NOTE = " (even a correct model of a disturbed plant does not have white residuals here)"
#: text of validation.json that explains the numbers of samples
LEFT_OUT_NOTE = (
    "samples of the records that are not scored, and not counted by n: "
    "the window of each record, and samples that no horizon reaches"
)
BAND_LEVELS = (50, 90, 95)  # levels of the scored bands [%]

# Limits beyond which the report warns.
MAX_FREE_RUN_ERROR_RATIO = 3.0  # RMSE of the free run over RMSE of one step
GOOD_FIT_PERCENT = 90.0  # a free run with a better fit is not compared with one step [%]
MAX_MISSING_COVERAGE = 10.0  # nominal minus observed coverage of a band [percentage points]
MIN_DRAWS = 200  # the bands of fewer draws are rough
MAX_OUTSIDE_FRACTION = 0.01  # fraction of the regressors outside the region of the stored points

# Limits beyond which a regressor is not covered by the stored points.
MAX_BEYOND_RANGE = 0.05  # distance beyond the range of the stored points, as a fraction of it
# the same where a model that learned every sample determines the function as well as at its points
MAX_BEYOND_RANGE_OF_LEARNED = 0.5
# such a model knows less than at its points where the function is determined less than at this
# fraction of them
LESS_KNOWN_QUANTILE = 0.1
MIN_DETERMINED = 0.5  # how far the points determine the function, relative to that at themselves

log = logging.getLogger(__name__)


class Report(NamedTuple):
    """An assessment, its residual tests, and the content of validation.json."""

    assessment: Assessment
    # residual tests of one step and of the free run, or the reason why there are none
    residuals: dict[str, ResidualReport | str]
    content: dict[str, Any]  # content of validation.json, with the warnings


def make_report(
    assessment: Assessment,
    notes: Sequence[str] = (),
    *,
    has_automatic_lags: bool | None = None,
    budget_is_chosen: bool = False,
) -> Report:
    """Test the residuals and collect all numbers and warnings; `notes` are added to the warnings.

    So are sentences on what to do about the errors one step ahead. They depend on whether the lags
    of the model (`has_automatic_lags`; without it there are no sentences) and its number of points
    (`budget_is_chosen`) were chosen automatically.

    In the content, ``one_step`` and ``free_run`` hold the scores with the main window. If the model
    has several outputs, each of them holds the scores by output. ``horizons`` lists the scores of
    every horizon, window and output. ``records`` lists the scores of each record one step ahead and
    in free run, if there are several records. None stands for a score that is not defined, is not
    finite after a divergence, or needs moments of the output that the model does not state.
    """
    outputs = assessment.outputs
    material = assessment.material
    residuals = {
        kind: run_residual_tests(assessment, case) for kind, case in assessment.main.items()
    }
    scores = _scores_by_case(assessment)
    content: dict[str, Any] = {kind: scores[case] for kind, case in assessment.main.items()}
    content["calibration"] = {
        kind: {name: _calibration_content(assessment, case, name) for name in outputs}
        for kind, case in assessment.main.items()
    }
    if len(outputs) == 1:
        for by_output in (content, content["calibration"]):
            for kind in assessment.main:
                by_output[kind] = by_output[kind][outputs[0]]
    content["horizons"] = [
        {"output": name, **entry}
        for by_output in scores.values()
        for name, entry in by_output.items()
    ]
    content["records"] = [
        {
            "record": record.attrs["name"],
            "output": name,
            "horizon": case.label,
            **score.to_dict(),
        }
        for record, case, name, score in assessment.of_each_record
    ]
    content["gross_errors"] = _gross_error_content(assessment)
    content["residuals"] = {kind: _residual_content(tests) for kind, tests in residuals.items()}
    content["closed_loop"] = None
    if assessment.loop is not None:
        noise_variance = assessment.joint.noise_variance
        content["closed_loop"] = score_loop(assessment.loop, noise_variance)
    content["linear_view"] = None
    if assessment.linear_views is not None:
        content["linear_view"] = assessment.linear_views.content()
    content["divergences"] = [
        {"horizon": case.label, "window": case.window, **divergence._asdict()}
        for case, forecast in assessment.forecasts.items()
        for divergence in forecast.diverged
    ]
    content["warnings"] = [*find_warnings(assessment), *notes]
    if assessment.linear_views is not None:
        content["warnings"] += assessment.linear_views.notes
    if has_automatic_lags is not None:
        content["warnings"] += _advise_on_errors(
            assessment,
            residuals,
            has_automatic_lags=has_automatic_lags,
            budget_is_chosen=budget_is_chosen,
        )
    content["data"] = {
        "name": material.source.name,
        "part": material.part,
        "records": [
            {"name": record.attrs["name"], "n": int(record.sizes["time"])}
            for record in material.records
        ],
    }
    signals = (*outputs, *assessment.joint.input_names)
    content["units"] = {name: assessment.unit(name) for name in signals}
    content["propagation"] = type(assessment.propagation).__name__
    content["left_out"] = LEFT_OUT_NOTE
    return Report(assessment, residuals, plain(content))


def _scores_by_case(assessment: Assessment) -> dict[Case, dict[str, dict[str, Any]]]:
    """Return the scores, counts and units of every case, by output."""
    entries: dict[Case, dict[str, dict[str, Any]]] = {case: {} for case in assessment.forecasts}
    for case, scores in assessment.scores.items():
        for name, score in scores.items():
            entries[case][name] = {
                "horizon": case.label,
                **score.to_dict(),
                **assessment.count(case),
                "unit": assessment.error_unit(name),
            }
    return entries


def _gross_error_content(assessment: Assessment) -> dict[str, Any]:
    """Return the numbers of gross errors of the records, and the scores without them, by output.

    Without gross errors there are no scores.
    """
    return {
        "n_found": dict(assessment.screened.n_found),
        "scores_without": {
            kind: {name: score.to_dict() for name, score in by_output.items()}
            for kind, by_output in assessment.scores_without_gross_errors.items()
        },
    }


def _calibration_content(assessment: Assessment, case: Case, output: str) -> dict[str, list[float]]:
    """Return the nominal and observed coverage of the bands as lists."""
    coverage = calibration(*assessment.series(case, output))
    return {name: values.tolist() for name, values in coverage._asdict().items()}


def _residual_content(tests: ResidualReport | str) -> dict[str, Any]:
    """Return residual tests, or the reason why there are none, for validation.json."""
    if isinstance(tests, str):
        return {"skipped": [tests]}
    return tests.to_dict()


def _advise_on_errors(
    assessment: Assessment,
    residuals: Mapping[str, ResidualReport | str],
    *,
    has_automatic_lags: bool,
    budget_is_chosen: bool,
) -> list[str]:
    """Return what the errors one step ahead of each output still contain, and what to do."""
    advice = []
    for kind, case in assessment.main.items():
        tests = residuals[kind]
        if case.horizon != 1 or isinstance(tests, str):
            continue
        for model in assessment.joint.models:
            remedies = find_remedies(
                model,
                budget_is_chosen=budget_is_chosen,
                kernel_is_chosen=has_automatic_lags,
            )
            choices = Choices(
                has_automatic_lags,
                remedies=remedies,
                is_for_free_run=assessment.is_trained_for_free_run,
            )
            advice += advise(tests, model.narx, choices)
    return advice


def run_residual_tests(assessment: Assessment, case: Case) -> ResidualReport | str:
    """Test the residuals of a case, or return the reason why they cannot be tested.

    The tests against inputs that a controller sets start at lag 1, because the value of such an
    input at the same sample depends on the residual.
    """
    names = assessment.joint.input_names
    material = assessment.material
    records = assessment.forecasts[case].records
    are_kept = [
        np.all(assessment.are_untouched(record.record)[record.sample], axis=1) for record in records
    ]
    parts = [
        part
        for record, is_kept in zip(records, are_kept, strict=True)
        for part in _complete_parts(record, material, names, is_kept)
    ]
    n_lags = 0
    if parts:
        n_lags = min(MAX_RESIDUAL_LAG, most_lags([len(rows) for _, rows in parts]))
    if assessment.forecasts[case].n_lost:
        return "not tested, the prediction diverges"
    if not parts:
        return (
            f"not tested, no part of {MIN_TESTED_PART_SAMPLES} samples is without missing samples"
        )
    if n_lags < 1:
        return "not tested, the records are too short"
    inputs = [
        np.array(
            [material.records[part.record][name].values[part.sample[rows]] for name in names]
        ).T
        for part, rows in parts
    ]
    return residual_tests(
        [(record.measured - record.mean)[rows] for record, rows in parts],
        inputs if names else None,
        n_lags=n_lags,
        input_start=0 if material.controller is None else 1,
        output_names=assessment.outputs,
        input_names=names if names else None,
    )


def _complete_parts(
    record: RecordForecast, material: Material, inputs: Sequence[str], is_kept: np.ndarray
) -> list[tuple[RecordForecast, np.ndarray]]:
    """Return the rows of a forecast in parts without missing values, each with the forecast.

    Rows that are not kept (n,) do not count, because a gross error touches them: a single one would
    hide what the other errors contain. Of a record with holes or with such rows, parts of fewer
    than `MIN_TESTED_PART_SAMPLES` are left out.
    """
    if not may_have_holes(material.records[record.record]) and is_kept.all():
        return [(record, np.arange(len(record.sample)))]
    is_known = np.isfinite(record.measured).all(axis=1) & is_kept
    for name in inputs:
        is_known &= np.isfinite(material.records[record.record][name].values[record.sample])
    rows = np.flatnonzero(is_known)
    ends = np.flatnonzero(np.diff(record.sample[rows]) > 1) + 1
    parts = [part for part in np.split(rows, ends) if len(part) >= MIN_TESTED_PART_SAMPLES]
    return [(record, part) for part in parts]


# --- files ----------------------------------------------------------------------------------------


def label_case(assessment: Assessment, case: Case) -> xr.Dataset:
    """Return the predictions (sample, output) of one case as a data set.

    The samples of all records follow each other.
    """
    forecast = assessment.forecasts[case]
    outputs = list(assessment.outputs)
    output_units = [assessment.unit(name) for name in outputs]
    # If the outputs have different units, only the coordinate "unit" states them.
    unit = output_units[0] if len(set(output_units)) == 1 else ""
    unit_of_square = squared_unit(unit)
    time_unit = assessment.material.records[0]["time"].attrs.get("units", "s")

    def join(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in forecast.records])

    def variable(
        dims: str | tuple[str, ...], values: Any, long_name: str, units: str = ""
    ) -> tuple[str | tuple[str, ...], Any, dict[str, str]]:
        attributes = {"long_name": long_name}
        if units:
            attributes["units"] = units
        return dims, values, attributes

    record = np.repeat(
        [part.record for part in forecast.records],
        [len(part.sample) for part in forecast.records],
    )
    measured = join("measured")
    mean = join("mean")
    dims = ("sample", "output")
    return xr.Dataset(
        {
            "measured": variable(dims, measured, "measured output", unit),
            "mean": variable(
                dims,
                mean,
                "predicted output; nan where the prediction diverged",
                unit,
            ),
            "variance": variable(
                dims,
                join("variance"),
                "latent predictive variance; add noise_variance for a measurement",
                unit_of_square,
            ),
            "residual": variable(
                dims, measured - mean, "measured minus predicted output", error_unit(unit)
            ),
            "noise_variance": variable(
                "output",
                forecast.noise_variance,
                "noise variance of a measurement",
                unit_of_square,
            ),
        },
        coords={
            "time": variable("sample", join("time"), "time", time_unit),
            "record": variable("sample", record, "number of the record"),
            "number": variable("sample", join("sample"), "number of the sample in its record"),
            "output": outputs,
            "unit": variable("output", output_units, "unit of the output"),
        },
        attrs={
            "horizon": str(case.label),
            "window": case.window,
            **assessment.count(case),
        },
    )


def writers(
    report: Report, folder: Path, attributes: Mapping[str, Any], *, figures: bool
) -> list[Callable[[], object]]:
    """Return one call for each file: validation.nc, validation.json and the figures.

    The content of all files is computed here; the calls only write it.
    """
    assessment = report.assessment
    json_text = json.dumps(report.content, indent=2, allow_nan=False)
    groups = {case.name: label_case(assessment, case) for case in assessment.forecasts}
    for kind, tests in report.residuals.items():
        if not isinstance(tests, str):
            groups[f"residual_tests_{kind}"] = tests.to_dataset()
    if assessment.loop is not None:
        groups["closed_loop"] = _with_units(assessment.loop, assessment)
    if assessment.linear_views is not None:
        groups |= assessment.linear_views.groups()
    write_netcdf = partial(
        store.write_groups,
        groups,
        folder / "validation.nc",
        kind="validation",
        attributes=attributes,
    )
    files = {"validation.json": json_text.encode()}
    if figures:
        from experiments.validate.figures import draw_pages  # imports matplotlib

        pages = draw_pages(assessment, report.residuals)
        for name, png_bytes in pages.items():
            files[f"{name}.png"] = png_bytes
    write_files = [
        partial(store.write_bytes, content, folder / name) for name, content in files.items()
    ]
    return [write_netcdf, *write_files]


def _with_units(loop: xr.Dataset, assessment: Assessment) -> xr.Dataset:
    """Return the result of `compare_loops` with the units of its signals as coordinates."""
    units = {}
    for dim in LOOP_VARIABLES:
        names = loop[dim].values.tolist()
        units[f"{dim}_unit"] = (dim, [assessment.unit(name) for name in names])
    return loop.assign_coords(units)


# --- log ------------------------------------------------------------------------------------------


def tabulate_scores(assessment: Assessment, output: str) -> str:
    """Return the table of one output: a row for each horizon and window.

    If there are several records, the rows of all records together come first, then those of each
    record. The columns of the bands show the covered samples in percent.
    """
    scored = [
        ("all", assessment.material.n_samples, case, scores[output])
        for case, scores in assessment.scores.items()
    ]
    has_several_records = len(assessment.material.records) > 1
    for record, case, name, score in assessment.of_each_record:
        if name == output:
            scored.append((record.attrs["name"], record.sizes["time"], case, score))
    rows = []
    for record_name, n_samples, case, score in scored:
        row: dict[str, Any] = {}
        if has_several_records:
            row["record"] = record_name
        row["horizon"] = case.words
        row["window"] = case.window
        row["n"] = score.n
        row["left out"] = n_samples - score.n
        row[f"RMSE [{assessment.error_unit(output)}]"] = _four_digits(score.rmse)
        row["fit %"] = fixed(score.fit_percent, 2)
        row["R2"] = _four_digits(score.r2)
        row["SMSE"] = _four_digits(score.smse)
        row["MSLL"] = fixed(score.msll, 2)
        row["NLPD"] = fixed(score.nlpd, 2)
        for level, covered in coverage_percents(score).items():
            row[f"{level} %"] = fixed(covered, 1)
        rows.append(row)
    return to_text(pd.DataFrame(rows))


def _four_digits(value: float) -> str:
    """Return a number with four significant digits, a dash for nan."""
    return "-" if np.isnan(value) else f"{value:.4g}"


def coverage_percents(score: Validation) -> dict[int, float]:
    """Return the samples that a band covers [%], by the level of the band [%]."""
    return {level: 100 * getattr(score, f"coverage_{level}") for level in BAND_LEVELS}


def log_report(report: Report, folder: Path) -> None:
    """Log the tables, residual tests and warnings of a report, and the folder of its files."""
    assessment = report.assessment
    material = assessment.material
    n_records = len(material.records)
    log.info(
        "%s, %s: %s, %d samples; uncertainty by %s",
        material.source.name,
        material.part,
        "1 record" if n_records == 1 else f"{n_records} records",
        material.n_samples,
        type(assessment.propagation).__name__,
    )
    for name in assessment.outputs:
        log.info(
            "%s; the columns 50 %%, 90 %% and 95 %% show how many samples the bands cover [%%]",
            name,
        )
        lines = tabulate_scores(assessment, name).splitlines()
        for kind, tests in report.residuals.items():
            lines.append(_describe_residuals(kind, tests, name))
        for line in lines:
            log.info("%s", line)
    _log_loop(report)
    _log_linear_views(report)
    for warning in report.content["warnings"]:
        log.warning("Note: %s", warning)
    log.info(
        "Results: %s; next: look at the figures, or write the model as one file with "
        "sysid-export model=...",
        folder,
    )


def _describe_residuals(kind: str, tests: ResidualReport | str, output: str) -> str:
    """Return one line about the residual tests of one output."""
    title = RESIDUAL_TITLES[kind]
    if isinstance(tests, str):
        return f"{title}: {tests}"
    if output not in tests.outputs:
        return f"{title}: {output} is constant, nothing to test"
    sentences = [line for line in tests.verdict() if line.startswith(f"{output}: ")]
    line = f"{title}, {sentences[0]}"
    has_alarm = any(test.alarm for test in tests.tests if test.output == output)
    if has_alarm and kind == FREE_RUN_LABEL:
        line += NOT_WHITE_NOTE
    return line


def _log_loop(report: Report) -> None:
    """Log the scores of the loop around the model, if a loop was closed."""
    loop = report.content["closed_loop"]
    if not loop:
        return
    for name, score in (loop["outputs"] | loop["inputs"]).items():
        error = "diverges" if score["rmse"] is None else f"{score['rmse']:.4g}"
        fit = "diverges" if score["fit_percent"] is None else f"{score['fit_percent']:.4g}"
        log.info(
            "Loop around the model against the loop around the plant, %s: RMSE %s %s, fit %s %%",
            name,
            error,
            report.assessment.error_unit(name),
            fit,
        )


def _log_linear_views(report: Report) -> None:
    """Log tables of the gains and response times at the operating points, and of their errors."""
    entries = report.content["linear_view"] or ()
    pairs = dict.fromkeys((entry["output"], entry["input"]) for entry in entries)
    for output, input in pairs:
        of_pair = [e for e in entries if (e["output"], e["input"]) == (output, input)]
        unit = of_pair[0]["gain_unit"]
        log.info("Linear view of %s by %s%s", output, input, f", gain in {unit}" if unit else "")
        has_truth = any(entry.get("max_error_db") is not None for entry in of_pair)
        if has_truth:
            low, high = of_pair[0]["excited_band"]
            log.info(
                "Median errors from %.3g to %.3g Hz; frequencies [%%] close (%g dB, %g deg), and "
                "in the bands",
                low,
                high,
                CLOSE_DECIBELS,
                CLOSE_DEGREES,
            )
        for line in tabulate_linear_views(of_pair, has_truth=has_truth).splitlines():
            log.info("%s", line)


def tabulate_linear_views(entries: Sequence[Mapping[str, Any]], *, has_truth: bool) -> str:
    """Return the table of one output and one input: a row for each operating point.

    The columns are the input there, the gain and its 95 % band, and the time to 63 % of the gain.
    With a truth there are columns of the true gain, of the errors, of the frequencies [%] at which
    these are small, and of those where the bands of magnitude |G| and phase cover the truth.
    """
    rows = []
    for entry in entries:
        at = entry["operating_point"].get(entry["input"])
        row = {"at": f"{100 * entry['quantile']:.0f} %" if at is None else f"{at:.4g}"}
        row["gain"] = _signed(entry["static_gain"])
        row["from"] = _signed(entry["static_gain_low"])
        row["to"] = _signed(entry["static_gain_high"])
        time = entry["response_time"]
        row[f"time [{entry['time_unit']}]"] = "-" if time is None else f"{time:.3g}"
        if has_truth:
            row["truth"] = _signed(entry["true_static_gain"])
            row["dB"] = _two_digits(entry["median_error_db"])
            row["deg"] = _two_digits(entry["median_error_deg"])
            row["close"] = _percent(entry["close"])
            row["|G|"] = _percent(entry["coverage_magnitude"])
            row["phase"] = _percent(entry["coverage_phase"])
        rows.append(row)
    return to_text(pd.DataFrame(rows))


def _signed(value: float | None) -> str:
    """Return a number with its sign and three significant digits; a dash for None."""
    return "-" if value is None else f"{value:+.3g}"


def _two_digits(value: float | None) -> str:
    """Return a number with two significant digits; a dash for None."""
    return "-" if value is None else f"{value:.2g}"


def _percent(share: float | None) -> str:
    """Return a share in percent without decimals; a dash for None."""
    return "-" if share is None else f"{100 * share:.0f}"


def free_run_without_gross_errors(content: Mapping[str, Any], output: str) -> dict[str, Any] | None:
    """Return the scores of a free run on the samples that no gross error touches; None: no errors.

    `content` is that of validation.json.
    """
    scores: Mapping[str, Any] = content["gross_errors"]["scores_without"]
    of_output: dict[str, Any] | None = scores.get("free_run", {}).get(output)
    return of_output


def log_free_run(content: Mapping[str, Any], output: str) -> None:
    """Log the scores of a free run in one line, and one line for each of several records.

    In the content of validation.json, None stands for a score that does not exist.
    """

    def is_free_run(entry: Mapping[str, Any]) -> bool:
        return bool(entry["output"] == output and entry["horizon"] == FREE_RUN_LABEL)

    (overall,) = (entry for entry in content["horizons"] if is_free_run(entry))
    each_record = [entry for entry in content["records"] if is_free_run(entry)]
    for entry in (overall, *each_record):
        where = f"on the test after {entry['window']} samples"
        if "record" in entry:
            where = f"of {entry['record']}"
        text = _describe_free_run(entry, overall["unit"])
        without = free_run_without_gross_errors(content, output)
        if entry is overall and without is not None and without["rmse"] is not None:
            text = f"{_describe_free_run(without, overall['unit'])}, without gross errors ({text})"
        log.info("Free run %s: %s", where, text)


def _describe_free_run(entry: Mapping[str, Any], unit: str) -> str:
    """Return the error, fit and coverage of a free run in words."""
    if entry["rmse"] is None:
        return "diverges"
    fit = "-"
    if entry["fit_percent"] is not None:
        fit = f"{entry['fit_percent']:.1f} %"
    covered = "-"
    if entry["coverage_95"] is not None:
        covered = f"{100 * entry['coverage_95']:.1f} %"
    return f"RMSE {with_unit(entry['rmse'], unit)}, fit {fit}, 95 % band covers {covered}"


# --- validation as part of an identification ------------------------------------------------------


def validate_on_test(
    source: Source,
    model: Model | JointModel | None,
    make_propagation: Callable[[], Propagation],
    seed: int,
    *,
    is_trained_for_free_run: bool = False,
    screens_records: bool = True,
    draws_figures: bool = True,
) -> tuple[Report | None, list[str]]:
    """Validate one step and free run on the test records of a source.

    If figures are drawn, so are the horizons between them (`choose_horizons`). Simulations and
    tables are not validated. Gross errors of the records are looked for unless `screens_records` is
    False.

    Returns
    -------
    Report or None
        None if there is nothing to validate, or the validation fails.
    list of str
        Warnings. A mistake of the user is reported here and not raised, because the identification
        has succeeded. This includes a propagation that cannot be made.
    """
    recordings = source.recordings()
    if model is None or recordings is None or recordings.is_static:
        return None, []
    if not (recordings.test or recordings.validation):
        return None, []
    try:
        if isinstance(model, Model) and len(model.narx.output_names) > 1:
            others = [name for name in model.narx.output_names if name != model.narx.target]
            raise UserError(
                f"the regressors contain the outputs {others}, which no model predicts: "
                "take narx.target=all"
            )
        joint = JointModel.of(model)
        material = select_records(recordings)
        window = material.default_window(joint.models[0].narx)
        horizons = choose_horizons(material.records_after(window)) if draws_figures else [1]
        cases = plan_cases(horizons, None, window)
        assessment = assess(joint, material, cases, make_propagation(), seed=seed)
        assessment = replace(
            assessment,
            is_trained_for_free_run=is_trained_for_free_run,
            screens_records=screens_records,
        )
        report = make_report(assessment)
    except (UserError, np.linalg.LinAlgError) as error:
        return None, [f"not validated in free run: {error}"]
    return report, report.content["warnings"]


# --- reasons to doubt the numbers -----------------------------------------------------------------


def find_warnings(assessment: Assessment) -> Iterator[str]:
    """Yield reasons to doubt the numbers of a validation, the most serious first."""
    yield from _warn_of_divergences(assessment)
    yield from _warn_of_gross_errors(assessment)
    yield from _warn_of_free_run_errors(assessment)
    yield from _warn_of_coverage(assessment)
    yield from _warn_of_extrapolation(assessment)
    for case, forecast in assessment.forecasts.items():
        if forecast.n_filled and case.horizon is None:
            yield (
                f"the window of {case.window} samples is shorter than the largest lag: "
                f"{forecast.n_filled} predictions use the first value of their record in place of "
                "the samples before it"
            )
    yield from _warn_of_few_draws(assessment)
    if assessment.joint.origin.sampling_time is None:
        yield (
            "the model does not state its sampling time, so it was not compared with that of the "
            "data"
        )


def _warn_of_gross_errors(assessment: Assessment) -> Iterator[str]:
    """Yield how many gross errors the records have, and the scores with and without them."""
    screened = assessment.screened
    if not screened.n_found:
        return
    found = f"the records have gross errors ({screened.counts})"
    described = {name: _describe_gross_errors(assessment, name) for name in assessment.outputs}
    if not any(described.values()):  # all predictions diverge
        yield found
    for name, words in described.items():
        if words:
            yield f"{found}; {name}: {words}"


def _describe_gross_errors(assessment: Assessment, output: str) -> str:
    """Return the errors of an output with and without gross errors, those that are finite."""
    without = {
        case: assessment.scores_without_gross_errors[kind][output]
        for kind, case in assessment.main.items()
    }
    if not any(score.n for score in without.values()):
        return "no sample is free of them"
    unit = assessment.error_unit(output)
    errors = []
    for case, score in without.items():
        rmse = assessment.scores[case][output].rmse
        if isfinite(rmse) and isfinite(score.rmse):
            errors.append(
                f"RMSE {case.words} {with_unit(rmse, unit)} with them, "
                f"{with_unit(score.rmse, unit)} without the samples that they touch"
            )
    return "; ".join(errors)


def _warn_of_divergences(assessment: Assessment) -> Iterator[str]:
    """Yield predictions and loops that diverge, have no bounds, or run into a limit."""
    records = assessment.material.records
    unit = str(records[0]["time"].attrs.get("units", "s"))
    time_unit = "samples" if unit == "1" else unit
    for case, forecast in assessment.forecasts.items():
        kind = "the free run"
        if case.horizon is not None:
            kind = f"the prediction {case.words} ahead"

        for divergence in forecast.diverged:
            name = records[divergence.record].attrs["name"]
            value = with_unit(divergence.value, assessment.unit(divergence.output))
            yield (
                f"{kind} of record {name!r} after a window of {case.window} diverges at "
                f"{divergence.time:g} {time_unit}: {divergence.output} leaves its bounds with "
                f"{value}; all later samples count as infinitely wrong"
            )
        for divergence in assessment.unbounded[case]:
            name = records[divergence.record].attrs["name"]
            yield (
                f"{kind} of record {name!r} after a window of {case.window} has a band without "
                f"bounds from {divergence.time:g} {time_unit} on: within its uncertainty, the "
                "model may diverge there"
            )
        if forecast.n_held:
            n = sum(len(record.sample) for record in forecast.records)
            yield (
                f"{kind} after a window of {case.window} runs into a limit that the data of the "
                f"model never reached, at {forecast.n_held} of {n} samples: without the limit it "
                "would run away there, and these samples are not predictions"
            )
    if assessment.loop is not None:
        n_missing = int(assessment.loop["mean"].isnull().any("output").sum())
        if n_missing:
            time = assessment.loop["time"].values[-n_missing]
            yield f"the loop around the model diverges at {time:g} {time_unit}"


def _warn_of_free_run_errors(assessment: Assessment) -> Iterator[str]:
    """Yield outputs whose free run has a much larger error than one step ahead."""
    one_step_case, free_run_case = assessment.main.values()
    for name in assessment.outputs:
        one_step = assessment.scores[one_step_case][name]
        free_run = assessment.scores[free_run_case][name]
        if not isfinite(free_run.rmse):
            continue
        is_far_worse = free_run.rmse > MAX_FREE_RUN_ERROR_RATIO * one_step.rmse
        has_good_fit = free_run.fit_percent > GOOD_FIT_PERCENT
        if is_far_worse and not has_good_fit:
            unit = assessment.error_unit(name)
            advice = "; if you want to simulate with the model, look at the free run"
            if assessment.is_trained_for_free_run:
                advice = ", although the model is trained for the free run"
            yield (
                f"the free run of {name} is far worse than one step ahead: "
                f"RMSE {with_unit(free_run.rmse, unit)} against {with_unit(one_step.rmse, unit)}, "
                f"fit {free_run.fit_percent:.1f} % against {one_step.fit_percent:.1f} %{advice}"
            )


def _warn_of_coverage(assessment: Assessment) -> Iterator[str]:
    """Yield outputs whose bands cover too few samples after the main window.

    Only those horizons count that the user has named, one step and the free run. A band covers too
    few samples if `MAX_MISSING_COVERAGE` is exceeded. Noise that is fed back
    widens the bands from the second step on, so that it is no advice where those of one step fail.
    """
    cases = [case for case in _chosen_cases(assessment) if case.window == assessment.window]
    for name in assessment.outputs:
        short_cases = []
        descriptions = []
        for case in cases:
            covered = coverage_percents(assessment.scores[case][name])
            missing = {level: level - percent for level, percent in covered.items()}
            level = max(missing, key=lambda level: missing[level])
            if missing[level] > MAX_MISSING_COVERAGE:
                short_cases.append(case)
                descriptions.append(f"{level} % band {case.words} {covered[level]:.1f} %")
        if not short_cases:
            continue
        advice = ""
        lacks_process_noise = vars(assessment.propagation).get("process_noise") is False
        covers_one_step = all(case.horizon != 1 for case in short_cases)
        if covers_one_step and lacks_process_noise:
            advice = "; if the plant itself is disturbed, try propagation.process_noise=true"
        yield (
            f"the bands of {name} do not cover what they should, {', '.join(descriptions)}: "
            f"do not rely on the uncertainty{advice}"
        )


def _chosen_cases(assessment: Assessment) -> list[Case]:
    """Return the cases with horizons that the user has named, one step and the free run."""
    if assessment.has_chosen_horizons:
        return [*assessment.forecasts]
    main = assessment.main.values()
    return [case for case in assessment.forecasts if case in main]


def _warn_of_few_draws(assessment: Assessment) -> Iterator[str]:
    """Yield the horizons whose bands are computed from too few drawn functions.

    Only those count that the user has named, one step and the free run.
    """
    requested = assessment.propagation.n_draws
    if requested is None:
        return
    few_draws: dict[str, int] = {}
    for case in _chosen_cases(assessment):
        records = assessment.forecasts[case].records
        n_draws = [record.n_draws for record in records if record.n_draws is not None]
        fewest = min(n_draws, default=requested)
        if fewest < min(requested, MIN_DRAWS):
            few_draws[case.words] = min(fewest, few_draws.get(case.words, requested))
    if few_draws:
        horizons = ", ".join(f"{words} {n}" for words, n in few_draws.items())
        yield (
            "bands are rough at these horizons, where fewer functions are drawn than the requested "
            f"{requested} to limit the computing time: {horizons}"
        )


class Outside(NamedTuple):
    """Regressors that a model does not know, and how many were looked at."""

    n_beyond: int  # beyond the range of the stored points
    n_unknown: int  # within the range, but farther from all points than the length scales reach
    n_finite: int  # of all regressors that are finite
    where: str  # the regressor that is farthest beyond the range, in words; empty if there is none


def find_outside(model: Model, regressors: Array) -> Outside:
    """Count the regressors (n, p) that the stored points of a model do not cover.

    One of the coordinates (a feature, unless the model combines features) of a regressor may be
    beyond the range of the stored points by more than `MAX_BEYOND_RANGE` of this range. If the
    model learned every sample, it has learned samples beyond that range too. The regressor then
    counts only if the points determine the function less there than they determine it at most of
    themselves, or if it is beyond by more than `MAX_BEYOND_RANGE_OF_LEARNED`.

    Within the range, the points z_j may leave the function at the regressor x undetermined::

        determined(x) = k(x, Z) (K + d I)^-1 k(Z, x) / k(x, x)
                      < MIN_DETERMINED * median_j determined(z_j)

    with d the variance on the diagonal. This is so if all points are farther away than the length
    scales reach. The features of a linear part have no such region, because all samples determine
    its coefficients; k is the kernel without it. Regressors that are not finite, after a
    divergence, are ignored.
    """
    x = regressors[np.isfinite(regressors).all(axis=1)]
    gp = model.gp
    n_features = gp.point_kernel.n_features
    if not len(x) or not len(gp.inputs):
        return Outside(0, len(x), len(x), "")
    z = model.scaling.transform(x)[:, :n_features]
    points = gp.inputs[:, :n_features]
    low = points.min(axis=0)
    high = points.max(axis=0)
    distance = np.maximum(low - z, z - high)
    relative_distance = distance / np.where(high > low, high - low, 1.0)
    determined = _determined(model, z)
    determined_at_points = _determined(model, points)
    is_beyond = (relative_distance > MAX_BEYOND_RANGE).any(axis=1)
    if gp.learns_every_sample:
        is_far = (relative_distance > MAX_BEYOND_RANGE_OF_LEARNED).any(axis=1)
        is_less_known = determined < np.quantile(determined_at_points, LESS_KNOWN_QUANTILE)
        is_beyond &= is_far | is_less_known
    is_unknown = determined < MIN_DETERMINED * np.median(determined_at_points)
    where = ""
    if is_beyond.any():
        rows = np.flatnonzero(is_beyond)
        farthest, column = np.unravel_index(
            int(relative_distance[rows].argmax()), relative_distance[rows].shape
        )
        where = _describe_distance(model, x[rows[farthest]], int(column), low, high)
    return Outside(int(is_beyond.sum()), int((is_unknown & ~is_beyond).sum()), len(x), where)


def _determined(model: Model, z: Array) -> Array:
    """Return by which fraction (n,) the stored points determine the function at z (n, d).

    It is 1 where they determine it completely, and 0 where they say nothing about it.
    """
    kernel = model.gp.point_kernel
    points = model.gp.inputs[:, : kernel.n_features]
    eigenvalues, eigenvectors = np.linalg.eigh(kernel(points, points))
    projections = kernel(z, points) @ eigenvectors
    explained = projections**2 @ (1.0 / (np.maximum(eigenvalues, 0.0) + model.gp.diagonal))
    return np.asarray(explained / kernel.diagonal(z))


def _describe_distance(model: Model, x: Array, column: int, low: Array, high: Array) -> str:
    """Return in words which feature of a regressor x (p,) is beyond the range of the points."""
    n_others = len(x) - len(low)
    corners = np.pad(np.stack([low, high]), ((0, 0), (0, n_others)))
    first, last = model.scaling.inverse(corners)[:, column]
    signal, _ = model.narx.features[column]
    farthest = with_unit(x[column], model.origin.unit(signal))
    return (
        f"{model.narx.feature_names[column]} reaches {farthest}, "
        f"the stored points {first:.4g} to {last:.4g}"
    )


def _warn_of_extrapolation(assessment: Assessment) -> Iterator[str]:
    """Yield models that are evaluated where their stored points do not cover the regressors."""
    for case in assessment.main.values():
        records = assessment.forecasts[case].records
        regressors = np.concatenate([record.regressors for record in records])
        for name, model in zip(assessment.outputs, assessment.joint.models, strict=True):
            if model.scaling.matrix is not None:
                # With a learned metric, points are stored only where the function is not linear.
                continue
            n_beyond, n_unknown, n, where = find_outside(model, regressors)
            if n_beyond > MAX_OUTSIDE_FRACTION * n:
                yield (
                    f"{n_beyond} of {n} regressors leave the region of the dictionary of {name}, "
                    f"{case.words}: {where}; there the model extrapolates"
                )
            if n_unknown > MAX_OUTSIDE_FRACTION * n:
                is_full = model.gp.n_points >= model.gp.budget
                advice = "; a larger budget may cover them" if is_full else ""
                yield (
                    f"{n_unknown} of {n} regressors lie within that region of {name}, but farther "
                    f"from all stored points than the length scales reach, {case.words}: there the "
                    f"model knows little more than its mean{advice}"
                )
