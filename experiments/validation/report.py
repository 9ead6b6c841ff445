"""What a validation leaves behind: numbers, predictions and residuals, figures, words."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from omegaconf import DictConfig

from experiments.build import build
from experiments.files import plain, write_every
from experiments.plots.frames import fixed, to_text
from experiments.sources import Source
from experiments.validation.assessment import FREE_RUN, Assessment, Case, assess, default_window, plan_cases
from experiments.validation.loop import LoopComparison
from experiments.validation.material import select_records
from experiments.validation.warnings import warn
from sysid import JointModel, Model, ResidualReport, calibration, residual_tests, store
from sysid.simulation.residuals import MEANINGS, most_lags

N_LAGS = 25  # largest lag of the residual tests, where the records are long enough
SHOWN = 2  # alarms on the terminal; the files hold all
TITLES = {"one_step": "Residuals of one step", FREE_RUN: "Residuals of the free run"}
#: correlated by nature: what disturbed the plant stays in the simulated output
NOT_WHITE = " (not white even of a right model that is disturbed)"
LEFT_OUT = "samples of the records that n does not count: the window of each record, and what no horizon reaches"

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Report:
    """An assessment with its residual tests, and everything said about it."""

    assessment: Assessment
    residuals: dict[str, ResidualReport | str]  # of one step and free run; a text says why there is none
    warnings: list[str]
    content: dict[str, Any]  # of validation.json


def make_report(assessment: Assessment, notes: Sequence[str] = ()) -> Report:
    """Test the residuals and put everything into numbers and words; `notes` join the warnings."""
    main = (("one_step", assessment.one_step), (FREE_RUN, assessment.free_run))
    residuals = {kind: run_residual_tests(assessment, case) for kind, case in main}
    warnings = [*warn(assessment), *notes]
    return Report(assessment, residuals, warnings, collect_numbers(assessment, residuals, warnings))


def run_residual_tests(assessment: Assessment, case: Case) -> ResidualReport | str:
    """Test the residuals of a case, or say why they cannot be tested.

    Against inputs that a controller sets, from lag 1 on: their value at the same sample answers to the residual.
    """
    names, material, records = assessment.joint.input_names, assessment.material, assessment.forecasts[case].records
    n_lags = min(N_LAGS, most_lags([len(one.sample) for one in records]))
    if assessment.forecasts[case].n_lost:
        return "not tested, the prediction diverges"
    if n_lags < 1:
        return "not tested, the records are too short"
    inputs = [np.array([material.records[one.record][name].values[one.sample] for name in names]).T for one in records]
    return residual_tests(
        [one.measured - one.mean for one in records],
        inputs if names else None,
        n_lags=n_lags,
        input_start=int(material.controller is not None),
        output_names=assessment.outputs,
        input_names=names if names else None,
    )


def collect_numbers(
    assessment: Assessment, residuals: Mapping[str, ResidualReport | str], warnings: list[str]
) -> dict[str, Any]:
    """Content of validation.json as plain values.

    ``one_step`` and ``free_run`` hold the measures after the main window; of several outputs, by output. ``horizons``
    lists the measures of every horizon, window and output, those two included. None stands for a measure that does not
    exist: not defined, not finite after a divergence, or in need of what the model does not know.
    """
    material, loop = assessment.material, assessment.loop
    main = {"one_step": assessment.one_step, FREE_RUN: assessment.free_run}
    measures: dict[Case, dict[str, Any]] = {case: {} for case in assessment.forecasts}
    for case, scores in assessment.scores.items():
        for name, score in scores.items():
            measures[case][name] = {
                "horizon": case.label,
                **score.to_dict(),
                **assessment.count(case),
                "unit": assessment.error_unit(name),
            }

    def by_output(entries: Mapping[str, Any]) -> Any:
        return entries if len(entries) > 1 else entries[assessment.outputs[0]]

    def calibrate(case: Case) -> Any:
        curves = {name: calibration(*assessment.series(case, name)) for name in assessment.outputs}
        return by_output({name: {k: v.tolist() for k, v in curve._asdict().items()} for name, curve in curves.items()})

    content = {
        **{kind: by_output(measures[case]) for kind, case in main.items()},
        "horizons": [{"output": name, **entry} for found in measures.values() for name, entry in found.items()],
        "residuals": {
            kind: {"skipped": [found]} if isinstance(found, str) else found.to_dict()
            for kind, found in residuals.items()
        },
        "calibration": {kind: calibrate(case) for kind, case in main.items()},
        "closed_loop": None if loop is None else loop.collect_scores(),
        "divergences": [
            {"horizon": case.label, "window": case.window, **where._asdict()}
            for case, found in assessment.forecasts.items()
            for where in found.diverged
        ],
        "warnings": warnings,
        "data": {
            "name": material.title,
            "part": material.part,
            "records": [{"name": r.attrs["name"], "n": int(r.sizes["time"])} for r in material.records],
        },
        "units": {name: assessment.unit(name) for name in (*assessment.outputs, *assessment.joint.input_names)},
        "propagation": type(assessment.propagation).__name__,
        "left_out": LEFT_OUT,
    }
    numbers: dict[str, Any] = plain(content)
    return numbers


def label_case(assessment: Assessment, case: Case) -> xr.Dataset:
    """Predictions (sample, output) of one case as a labelled data set, all records behind each other."""
    found, outputs = assessment.forecasts[case], list(assessment.outputs)
    units = {assessment.unit(name) for name in outputs}
    unit = units.pop() if len(units) == 1 else ""  # where they differ the coordinate has them
    plain_unit = {"units": unit} if unit else {}
    squared = {"units": unit if unit == "1" else f"{unit}2"} if unit else {}

    def join(name: str) -> np.ndarray:
        return np.concatenate([getattr(one, name) for one in found.records])

    def label(values: np.ndarray, meaning: str, units: Mapping[str, str]) -> tuple[Any, ...]:
        return (("sample", "output")[2 - values.ndim :], values, {"long_name": meaning, **units})

    measured, mean = join("measured"), join("mean")
    record = np.repeat([one.record for one in found.records], [len(one.sample) for one in found.records])
    clock = {"units": assessment.material.records[0]["time"].attrs.get("units", "s"), "long_name": "time"}
    latent = "latent predictive variance; add noise_variance for a measurement"
    return xr.Dataset(
        {
            "measured": label(measured, "measured output", plain_unit),
            "mean": label(mean, "predicted output; nan where the prediction diverged", plain_unit),
            "variance": label(join("variance"), latent, squared),
            "residual": label(measured - mean, "measured minus predicted output", plain_unit),
            "noise_variance": label(found.noise_variance, "noise variance of a measurement", squared),
        },
        coords={
            "time": ("sample", join("time"), clock),
            "record": ("sample", record, {"long_name": "number of the record"}),
            "number": ("sample", join("sample"), {"long_name": "number of the sample in its record"}),
            "output": outputs,
            "unit": ("output", [assessment.unit(name) for name in outputs], {"long_name": "unit of the output"}),
        },
        attrs={"horizon": str(case.label), "window": case.window, **assessment.count(case)},
    )


def label_loop(assessment: Assessment, loop: LoopComparison) -> xr.Dataset:
    """Signals of both loops as a labelled data set."""
    variables: dict[str, Any] = {}
    coordinates: dict[str, Any] = {"time": ("time", loop.time, {"units": "s", "long_name": "time"})}
    of_model = "over the functions of the model"
    for dim, plant, model, variance, what in (
        ("output", "measured", "mean", "variance", "output"),
        ("driven", "applied", "commanded", "commanded_variance", "input that the controller sets"),
    ):
        signals = [signal for signal in loop.signals if signal.is_output == (dim == "output")]
        columns: dict[str, tuple[Any, str]] = {
            plant: ([s.plant for s in signals], f"{what} in the loop around the plant"),
            model: ([s.model for s in signals], f"{what} in the loop around the model"),
        }
        if loop.n_paths:
            meaning = f"latent variance {of_model}" if dim == "output" else f"variance {of_model}"
            columns[variance] = ([s.variance for s in signals], meaning)
        for name, (values, meaning) in columns.items():
            variables[name] = (("time", dim), np.array(values).T, {"long_name": meaning})
        coordinates[dim] = [s.name for s in signals]
        coordinates[f"{dim}_unit"] = (dim, [assessment.unit(s.name) for s in signals])
    return xr.Dataset(variables, coords=coordinates, attrs={"window": loop.window, "n_paths": loop.n_paths})


def writers(
    report: Report, folder: Path, attributes: Mapping[str, Any], *, figures: bool
) -> list[Callable[[], object]]:
    """One call per file: validation.json, validation.nc and the figures; everything is computed here."""
    assessment, text = report.assessment, json.dumps(report.content, indent=2, allow_nan=False)
    groups = {case.name: label_case(assessment, case) for case in assessment.forecasts}
    for kind, found in report.residuals.items():
        if not isinstance(found, str):
            groups[f"residual_tests_{kind}"] = found.to_dataset()
    if assessment.loop is not None:
        groups["closed_loop"] = label_loop(assessment, assessment.loop)
    pages: dict[str, bytes] = {}
    if figures:
        from experiments.validation.figures import draw_pages  # imports matplotlib

        pages = draw_pages(assessment, report.residuals)
    return [
        lambda: store.write_bytes(text.encode(), folder / "validation.json"),
        lambda: store.write_groups(groups, folder / "validation.nc", kind="validation", attributes=attributes),
        *(lambda name=name, page=page: store.write_bytes(page, folder / f"{name}.png") for name, page in pages.items()),
    ]


def write(report: Report, folder: Path, attributes: Mapping[str, Any], *, figures: bool) -> None:
    """Write every file.

    Raises
    ------
    sysid.StoreError
        If a file could not be written; the others are there.
    """
    write_every(writers(report, folder, attributes, figures=figures))


def tabulate_scores(assessment: Assessment, output: str) -> str:
    """Table of one output: a row for each horizon and window, the bands in percent of covered samples."""
    rows = []
    for case, scores in assessment.scores.items():
        s = scores[output]
        rmse, r2, smse = ("-" if np.isnan(value) else f"{value:.4g}" for value in (s.rmse, s.r2, s.smse))
        row = {"horizon": case.words, "window": case.window, "n": s.n, "left out": assessment.count(case)["left_out"]}
        row |= {f"RMSE [{assessment.error_unit(output)}]": rmse, "fit %": fixed(s.fit_percent, 2), "R2": r2}
        row |= {"SMSE": smse, "MSLL": fixed(s.msll, 2), "NLPD": fixed(s.nlpd, 2)}
        for level in (50, 90, 95):
            row[f"{level} %"] = fixed(100 * getattr(s, f"coverage_{level}"), 1)
        rows.append(row)
    return to_text(pd.DataFrame(rows))


def describe_tests(residuals: Mapping[str, ResidualReport | str], output: str) -> list[str]:
    """What the residual tests of one output say: a line per kind and one per strong alarm."""
    lines = []
    for kind, found in residuals.items():
        if isinstance(found, str):
            lines.append(f"{TITLES[kind]}: {found}")
        elif output not in found.outputs:
            lines.append(f"{TITLES[kind]}: {output} is constant, nothing to test")
        else:
            head = next(sentence for sentence in found.verdict() if sentence.startswith(f"{output}: "))
            alarms = sorted((t for t in found.tests if t.output == output and t.alarm), key=lambda test: test.p_value)
            remark = NOT_WHITE if alarms and kind == FREE_RUN else ""
            lines += [f"{TITLES[kind]}, {head}{remark}"]
            lines += [f"  {test}: {MEANINGS[test.name]}" for test in alarms[:SHOWN]]
    return lines


def tell(report: Report, folder: Path) -> None:
    """Log tables, residual tests, warnings and the folder."""
    assessment, material = report.assessment, report.assessment.material
    n, kind = len(material.records), type(assessment.propagation).__name__
    counted = f"{'1 record' if n == 1 else f'{n} records'}, {material.n_samples} samples"
    log.info("%s, %s: %s; uncertainty by %s", material.title, material.part, counted, kind)
    for name in assessment.outputs:
        log.info("%s; columns 50 %%, 90 %%, 95 %%: samples that the bands cover, in percent", name)
        for line in (*tabulate_scores(assessment, name).splitlines(), *describe_tests(report.residuals, name)):
            log.info("%s", line)
    for signal in () if assessment.loop is None else assessment.loop.signals:
        score = report.content["closed_loop"]["outputs" if signal.is_output else "inputs"][signal.name]
        error, fit = ("diverges" if score[key] is None else f"{score[key]:.4g}" for key in ("rmse", "fit_percent"))
        error = f"{error} {assessment.error_unit(signal.name)}"
        log.info(
            "Loop around the model against the loop around the plant, %s: RMSE %s, fit %s %%", signal.name, error, fit
        )
    for warning in report.warnings:
        log.warning("Note: %s", warning)
    log.info("Results: %s", folder)


# --- right after an identification ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ValidationOnTest:
    """Validation of a model on the test records that its identification has not seen, or why there is none."""

    report: Report | None = None
    reason: str = ""

    @property
    def notes(self) -> list[str]:
        """What a person should know."""
        if self.report is not None:
            return self.report.warnings
        return [f"not validated in free run: {self.reason}"] if self.reason else []


def validate_on_test(config: DictConfig, source: Source, model: Model | JointModel | None) -> ValidationOnTest:
    """One step and free run on the test records of a source; nothing for simulations, tables, or without a test.

    What does not fit is told and not raised: the identification has succeeded.
    """
    recordings = source.recordings()
    if not config.validate or model is None or recordings is None or recordings.is_static:
        return ValidationOnTest()
    if not (recordings.test or recordings.validation):
        return ValidationOnTest()
    if isinstance(model, Model) and len(model.narx.output_names) > 1:
        others = [name for name in model.narx.output_names if name != model.narx.target]
        reason = f"{others} are outputs among the regressors without a model; take narx.target=all"
        return ValidationOnTest(reason=reason)
    try:
        joint, material = JointModel.of(model), select_records(recordings)
        cases = plan_cases([1], None, default_window(joint, material))
        return ValidationOnTest(
            make_report(assess(joint, material, cases, build(config, "propagation"), seed=config.seed))
        )
    except ValueError as error:
        return ValidationOnTest(reason=str(error))


def tell_free_run(found: Mapping[str, Any]) -> None:
    """Log the measures of a free run in a line; None stands for what does not exist."""
    start = f"Free run on the test after {found['window']} samples"
    if found["rmse"] is None:
        log.info("%s: diverges", start)
        return
    fit = "-" if found["fit_percent"] is None else f"{found['fit_percent']:.1f} %"
    covered = "-" if found["coverage_95"] is None else f"{100 * found['coverage_95']:.1f} %"
    error = f"{found['rmse']:.4g} {found['unit']}".removesuffix(" 1").rstrip()
    log.info("%s: RMSE %s, fit %s, 95 %% band covers %s", start, error, fit, covered)
