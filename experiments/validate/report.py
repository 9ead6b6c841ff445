"""What a validation leaves behind: numbers, predictions and residuals, figures, words."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from experiments.drawing.tables import fixed, to_text, with_unit
from experiments.files.outputs import plain
from experiments.plant.source import Source
from experiments.validate.assessment import (
    FREE_RUN,
    Assessment,
    Case,
    assess,
    plan_cases,
)
from experiments.validate.loop import SIGNALS, score_loop
from experiments.validate.material import select_records
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
from sysid.errors import UserError
from sysid.simulation.residuals import most_lags

N_LAGS = 25  # largest lag of the residual tests, where the records are long enough
TITLES = {"one_step": "Residuals of one step", FREE_RUN: "Residuals of the free run"}
#: correlated by nature: what disturbed the plant stays in the simulated output
NOT_WHITE = " (not white even of a right model that is disturbed)"
LEFT_OUT = "samples of the records that n does not count: the window of each record, and what no horizon reaches"
FAR_WORSE = 3.0  # times the error of one step
POOR_FIT = 90.0  # percent: a free run that fits better is no reason to worry
OUTSIDE = 0.01  # part of the regressors that may be outside
# of the range of a coordinate among the stored points: so far beyond it is still inside
MARGIN = 0.05
UNKNOWN = 0.5  # part of the prior variance that the stored points must explain
FEW = 200  # draws: bands of fewer are rough
SHORT_OF = 10.0  # percent: by so much a band may cover less than it says

log = logging.getLogger(__name__)


class Report(NamedTuple):
    """An assessment with its residual tests, and everything said about it."""

    assessment: Assessment
    residuals: dict[
        str, ResidualReport | str
    ]  # of one step and free run; a text says why there is none
    content: dict[str, Any]  # of validation.json


def make_report(assessment: Assessment, notes: Sequence[str] = ()) -> Report:
    """Test the residuals and put everything into numbers and words; `notes` join the warnings.

    ``one_step`` and ``free_run`` hold the measures after the main window; of several outputs, by
    output. ``horizons`` lists the measures of every horizon, window and output, those two included;
    ``records`` those two of each record, where there are several. None stands for a measure that
    does not exist: not defined, not finite after a divergence, or in need of what the model does
    not know.
    """
    material = assessment.material
    loop = assessment.loop
    outputs = assessment.outputs
    residuals = {
        kind: run_residual_tests(assessment, case) for kind, case in assessment.main.items()
    }
    measures: dict[Case, dict[str, Any]] = {case: {} for case in assessment.forecasts}
    for case, scores in assessment.scores.items():
        for name, score in scores.items():
            counts = {**assessment.count(case), "unit": assessment.error_unit(name)}
            measures[case][name] = {"horizon": case.label, **score.to_dict(), **counts}
    content: dict[str, Any] = {kind: measures[case] for kind, case in assessment.main.items()}
    content["calibration"] = {
        kind: {
            name: {
                k: v.tolist()
                for k, v in calibration(*assessment.series(case, name))._asdict().items()
            }
            for name in outputs
        }
        for kind, case in assessment.main.items()
    }
    if len(outputs) == 1:
        for part in (content, content["calibration"]):
            part.update({kind: part[kind][outputs[0]] for kind in assessment.main})
    content |= {
        "horizons": [
            {"output": name, **entry}
            for found in measures.values()
            for name, entry in found.items()
        ],
        "records": [
            {
                "record": record.attrs["name"],
                "output": name,
                "horizon": case.label,
                **score.to_dict(),
            }
            for record, case, name, score in assessment.of_each_record
        ],
        "residuals": {
            k: {"skipped": [one]} if isinstance(one, str) else one.to_dict()
            for k, one in residuals.items()
        },
        "closed_loop": None if loop is None else score_loop(loop, assessment.joint.noise_variance),
        "divergences": [
            {"horizon": case.label, "window": case.window, **where._asdict()}
            for case, found in assessment.forecasts.items()
            for where in found.diverged
        ],
        "warnings": [*warn(assessment), *notes],
        "data": {
            "name": material.source.name,
            "part": material.part,
            "records": [
                {"name": r.attrs["name"], "n": int(r.sizes["time"])} for r in material.records
            ],
        },
        "units": {
            name: assessment.unit(name) for name in (*outputs, *assessment.joint.input_names)
        },
        "propagation": type(assessment.propagation).__name__,
        "left_out": LEFT_OUT,
    }
    return Report(assessment, residuals, plain(content))


def run_residual_tests(assessment: Assessment, case: Case) -> ResidualReport | str:
    """Test the residuals of a case, or say why they cannot be tested.

    Against inputs that a controller sets, from lag 1 on: their value at the same sample answers to
    the residual.
    """
    names = assessment.joint.input_names
    material = assessment.material
    records = assessment.forecasts[case].records
    n_lags = min(N_LAGS, most_lags([len(one.sample) for one in records]))
    if assessment.forecasts[case].n_lost:
        return "not tested, the prediction diverges"
    if n_lags < 1:
        return "not tested, the records are too short"
    inputs = [
        np.array([material.records[one.record][name].values[one.sample] for name in names]).T
        for one in records
    ]
    return residual_tests(
        [one.measured - one.mean for one in records],
        inputs if names else None,
        n_lags=n_lags,
        input_start=int(material.controller is not None),
        output_names=assessment.outputs,
        input_names=names if names else None,
    )


def label_case(assessment: Assessment, case: Case) -> xr.Dataset:
    """Predictions (sample, output) of one case as a labelled data set, all records behind each
    other.
    """
    found = assessment.forecasts[case]
    outputs = list(assessment.outputs)
    every = [assessment.unit(name) for name in outputs]
    unit = every[0] if len({*every}) == 1 else ""  # where they differ the coordinate has them
    squared = unit if unit in ("", "1") else f"{unit}2"

    def join(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in found.records])

    def variable(
        dims: Any, values: Any, long_name: str, units: str = ""
    ) -> tuple[Any, Any, dict[str, str]]:
        return (
            dims,
            values,
            {"long_name": long_name} | ({"units": units} if units else {}),
        )

    record = np.repeat(
        [part.record for part in found.records],
        [len(part.sample) for part in found.records],
    )
    clock = assessment.material.records[0]["time"].attrs.get("units", "s")
    latent = "latent predictive variance; add noise_variance for a measurement"
    both = ("sample", "output")
    residual = join("measured") - join("mean")
    return xr.Dataset(
        {
            "measured": variable(both, join("measured"), "measured output", unit),
            "mean": variable(
                both,
                join("mean"),
                "predicted output; nan where the prediction diverged",
                unit,
            ),
            "variance": variable(both, join("variance"), latent, squared),
            "residual": variable(both, residual, "measured minus predicted output", unit),
            "noise_variance": variable(
                "output",
                found.noise_variance,
                "noise variance of a measurement",
                squared,
            ),
        },
        coords={
            "time": variable("sample", join("time"), "time", clock),
            "record": variable("sample", record, "number of the record"),
            "number": variable("sample", join("sample"), "number of the sample in its record"),
            "output": outputs,
            "unit": variable("output", every, "unit of the output"),
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
    """One call per file: validation.json, validation.nc and the figures; everything is computed
    here.
    """
    assessment = report.assessment
    text = json.dumps(report.content, indent=2, allow_nan=False)
    groups = {case.name: label_case(assessment, case) for case in assessment.forecasts}
    for kind, found in report.residuals.items():
        if not isinstance(found, str):
            groups[f"residual_tests_{kind}"] = found.to_dataset()
    if assessment.loop is not None:
        names = {dim: assessment.loop[dim].values.tolist() for dim in SIGNALS}
        units = {
            f"{dim}_unit": (dim, list(map(assessment.unit, own))) for dim, own in names.items()
        }
        groups["closed_loop"] = assessment.loop.assign_coords(units)
    nc = partial(
        store.write_groups,
        groups,
        folder / "validation.nc",
        kind="validation",
        attributes=attributes,
    )
    files = {"validation.json": text.encode()}
    if figures:
        from experiments.validate.figures import draw_pages  # imports matplotlib

        files |= {
            f"{name}.png": page for name, page in draw_pages(assessment, report.residuals).items()
        }
    return [
        nc,
        *(partial(store.write_bytes, content, folder / name) for name, content in files.items()),
    ]


def tabulate_scores(assessment: Assessment, output: str) -> str:
    """Table of one output: a row for each horizon and window, the bands in percent of covered
    samples.

    Of several records, first of all together, then of each.
    """
    together = [
        ("all", assessment.material.n_samples, c, scores[output])
        for c, scores in assessment.scores.items()
    ]
    found = [one for one in assessment.of_each_record if one[2] == output]
    each = [
        (record.attrs["name"], record.sizes["time"], case, score)
        for record, case, _, score in found
    ]
    rows = []
    for record, n_samples, case, s in (*together, *each):
        rmse, r2, smse = (
            "-" if np.isnan(value) else f"{value:.4g}" for value in (s.rmse, s.r2, s.smse)
        )
        row = {"record": record} if each else {}
        row |= {
            "horizon": case.words,
            "window": case.window,
            "n": s.n,
            "left out": n_samples - s.n,
        }
        row |= {
            f"RMSE [{assessment.error_unit(output)}]": rmse,
            "fit %": fixed(s.fit_percent, 2),
            "R2": r2,
        }
        row |= {"SMSE": smse, "MSLL": fixed(s.msll, 2), "NLPD": fixed(s.nlpd, 2)}
        rows.append(row | {f"{level} %": fixed(share, 1) for level, share in cover(s).items()})
    return to_text(pd.DataFrame(rows))


def cover(score: Validation) -> dict[int, float]:
    """Return the share of samples that the bands cover, by level of the band; both in percent."""
    return {level: 100 * getattr(score, f"coverage_{level}") for level in (50, 90, 95)}


def tell(report: Report, folder: Path) -> None:
    """Log tables, residual tests, warnings and the folder."""
    assessment = report.assessment
    material = report.assessment.material
    n = len(material.records)
    kind = type(assessment.propagation).__name__
    counted = f"{'1 record' if n == 1 else f'{n} records'}, {material.n_samples} samples"
    log.info(
        "%s, %s: %s; uncertainty by %s",
        material.source.name,
        material.part,
        counted,
        kind,
    )
    for name in assessment.outputs:
        log.info(
            "%s; columns 50 %%, 90 %%, 95 %%: samples that the bands cover, in percent",
            name,
        )
        lines = tabulate_scores(assessment, name).splitlines()
        for kind, found in report.residuals.items():
            if isinstance(found, str):
                lines.append(f"{TITLES[kind]}: {found}")
            elif name not in found.outputs:
                lines.append(f"{TITLES[kind]}: {name} is constant, nothing to test")
            else:
                head = next(
                    sentence for sentence in found.verdict() if sentence.startswith(f"{name}: ")
                )
                is_alarm = any(test.alarm for test in found.tests if test.output == name)
                lines.append(
                    f"{TITLES[kind]}, {head}{NOT_WHITE if is_alarm and kind == FREE_RUN else ''}"
                )
        for line in lines:
            log.info("%s", line)
    loop = report.content["closed_loop"] or {"outputs": {}, "inputs": {}}
    for name, score in (loop["outputs"] | loop["inputs"]).items():
        error, fit = (
            "diverges" if score[key] is None else f"{score[key]:.4g}"
            for key in ("rmse", "fit_percent")
        )
        numbers = f"RMSE {error} {assessment.error_unit(name)}, fit {fit} %"
        log.info(
            "Loop around the model against the loop around the plant, %s: %s",
            name,
            numbers,
        )
    for warning in report.content["warnings"]:
        log.warning("Note: %s", warning)
    log.info(
        "Results: %s; next: look at its figures, sysid-export model=... writes the model as one file",
        folder,
    )


def tell_free_run(content: Mapping[str, Any], output: str) -> None:
    """Log the measures of a free run in a line, of several records each; None stands for what does
    not exist.
    """
    (main,) = (
        one for one in content["horizons"] if (one["output"], one["horizon"]) == (output, FREE_RUN)
    )
    each = [
        one for one in content["records"] if (one["output"], one["horizon"]) == (output, FREE_RUN)
    ]
    for found in (main, *each):
        told = "diverges"
        if found["rmse"] is not None:
            fit = "-" if found["fit_percent"] is None else f"{found['fit_percent']:.1f} %"
            covered = "-" if found["coverage_95"] is None else f"{100 * found['coverage_95']:.1f} %"
            told = f"RMSE {with_unit(found['rmse'], main['unit'])}, fit {fit}, 95 % band covers {covered}"
        where = (
            f"of {found['record']}"
            if "record" in found
            else f"on the test after {found['window']} samples"
        )
        log.info("Free run %s: %s", where, told)


def validate_on_test(
    source: Source,
    model: Model | JointModel | None,
    make_propagation: Callable[[], Propagation],
    seed: int,
) -> tuple[Report | None, list[str]]:
    """One step and free run on the test records of a source, and notes; neither for simulations and
    tables.

    What does not fit is told and not raised: the identification has succeeded. That includes a
    propagation that cannot be made.
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
                f"{others} are outputs among the regressors without a model; take narx.target=all"
            )
        joint = JointModel.of(model)
        material = select_records(recordings)
        cases = plan_cases([1], None, material.default_window(joint.models[0].narx))
        report = make_report(assess(joint, material, cases, make_propagation(), seed=seed))
    except (UserError, np.linalg.LinAlgError) as error:
        return None, [f"not validated in free run: {error}"]
    return report, report.content["warnings"]


# --- what makes the numbers doubtful --------------------------------------------------------------


def warn(assessment: Assessment) -> Iterator[str]:
    """Yield what makes the numbers of a validation doubtful, the gravest first."""
    yield from _warn_of_divergences(assessment)
    for name in assessment.outputs:
        near, far = (assessment.scores[case][name] for case in assessment.main.values())
        if (
            isfinite(far.rmse)
            and far.rmse > FAR_WORSE * near.rmse
            and not far.fit_percent > POOR_FIT
        ):
            worse, than = (
                with_unit(score.rmse, assessment.error_unit(name)) for score in (far, near)
            )
            fits = f"fit {far.fit_percent:.1f} % against {near.fit_percent:.1f} %; for simulation judge by the free run"
            yield f"the free run of {name} is far worse than one step ahead: RMSE {worse} against {than}, {fits}"
    yield from _check_coverage(assessment)
    yield from _check_region(assessment)
    for case, found in assessment.forecasts.items():
        if found.n_filled and case.horizon is None:
            lacking = f"{found.n_filled} predictions take the first value of their record for samples before it"
            yield f"the window of {case.window} samples is shorter than the largest lag: {lacking}"
    asked = assessment.propagation.n_draws
    drawn = dict[str, int]()
    for case, found in assessment.forecasts.items():
        fewest = min(
            (one.n_draws for one in found.records if one.n_draws is not None),
            default=asked,
        )
        if asked is not None and fewest is not None and fewest < min(asked, FEW):
            drawn[case.words] = min(fewest, drawn.get(case.words, asked))
    if drawn:
        fewer = ", ".join(f"{words} {n}" for words, n in drawn.items())
        yield f"bands are rough where fewer functions are drawn than {asked}, which take millions of steps: {fewer}"
    if assessment.joint.origin.sampling_time is None:
        yield "the model does not state its sampling time: that of the data was not compared"


def _warn_of_divergences(assessment: Assessment) -> Iterator[str]:
    records = assessment.material.records
    loop = assessment.loop
    unit = str(records[0]["time"].attrs.get("units", "s"))
    clock = "samples" if unit == "1" else unit
    for case, found in assessment.forecasts.items():
        kind = "the free run" if case.horizon is None else f"the prediction {case.words} ahead"
        for where in (*found.diverged, *assessment.unbounded[case]):
            which = f"{kind} of record {records[where.record].attrs['name']!r} after a window of {case.window}"
            when = f"at {where.time:g} {clock}"
            if where in found.diverged:
                out = f"{where.output} leaves its bounds with {with_unit(where.value, assessment.unit(where.output))}"
                yield f"{which} diverges {when}: {out}; what comes after counts as infinitely wrong"
            else:
                why = f"what is not known of the model is enough to let it diverge, {when}"
                yield f"{which}: {why}; from there on its band has no bounds"
        if found.n_held:
            n = sum(len(one.sample) for one in found.records)
            after = f"after a window of {case.window}"
            limit = "a limit that the data of the model never reached"
            held = (
                f"at {found.n_held} of {n} samples: it would run away there, and is no prediction"
            )
            yield f"{kind} {after} runs into {limit}, {held}"
    if loop is not None and (
        n_lost := int(loop["mean"].isnull().any("output").sum())
    ):  # samples without a prediction
        yield f"the loop around the model diverges at {loop['time'].values[-n_lost]:g} {clock}"


def _check_coverage(assessment: Assessment) -> Iterator[str]:
    """Bands of the main window that cover too little by `SHORT_OF` at some level."""
    for name in assessment.outputs:
        covered = {
            c: cover(assessment.scores[c][name])
            for c in assessment.forecasts
            if c.window == assessment.window
        }
        worst = {
            case: max(shares, key=lambda level: level - shares[level])
            for case, shares in covered.items()
        }
        short = [case for case, level in worst.items() if level - covered[case][level] > SHORT_OF]
        if short:
            bands = ", ".join(
                f"{worst[case]} % band {case.words} {covered[case][worst[case]]:.1f} %"
                for case in short
            )
            may_help = (
                short[-1].horizon != 1
                and vars(assessment.propagation).get("process_noise") is False
            )
            advice = (
                "; if the plant itself is disturbed, try propagation.process_noise=true"
                if may_help
                else ""
            )
            yield f"the bands of {name} do not cover what they should, {bands}: do not rely on the uncertainty{advice}"


def find_outside(model: Model, regressors: Array) -> tuple[int, int, str]:
    """Count regressors (n, p) outside the region that a model has learned, and those that count;
    say where they are.

    A regressor is outside if a coordinate of the kernel (a feature, unless the model combines them)
    lies beyond the range of the stored points by more than `MARGIN` of it, or if the points tell of
    it less than half as much as of themselves, ``1 - variance(x) / k(x, x) < UNKNOWN (1 -
    variance(z_j) / k(z_j, z_j))``, median over the points z_j. Regressors that are not finite,
    after a divergence, do not count.
    """
    x = regressors[np.isfinite(regressors).all(axis=1)]
    points = model.gp.inputs
    where = "in combinations of values that no stored point has"
    if not len(x) or not len(points):
        return len(x), len(x), where
    z = model.scaling.transform(x)
    low = points.min(axis=0)
    high = points.max(axis=0)
    beyond = np.maximum(low - z, z - high) / np.where(high > low, high - low, 1.0)
    explained, known = (
        1.0 - model.gp.predict(at)[1] / model.gp.kernel.diagonal(at) for at in (z, points)
    )
    unknown = explained < UNKNOWN * np.median(known)
    row, column = np.unravel_index(int(beyond.argmax()), beyond.shape)
    if beyond[row, column] > MARGIN and model.scaling.matrix is None:
        first, last = model.scaling.inverse(np.stack([low, high]))[:, column]
        farthest = with_unit(x[row, column], model.origin.unit(model.narx.features[column][0]))
        where = f"{model.narx.feature_names[column]} reaches {farthest}, the stored points {first:.4g} to {last:.4g}"
    return int(((beyond > MARGIN).any(axis=1) | unknown).sum()), len(x), where


def _check_region(assessment: Assessment) -> Iterator[str]:
    for case in assessment.main.values():
        regressors = np.concatenate([one.regressors for one in assessment.forecasts[case].records])
        for name, model in zip(assessment.outputs, assessment.joint.models, strict=True):
            if (
                model.scaling.matrix is not None
            ):  # a learned metric: its points stand where the function bends alone
                continue
            n, total, where = find_outside(model, regressors)
            if n > OUTSIDE * total:
                left = f"{n} of {total} regressors leave the region of the dictionary of {name}, {case.words}"
                yield f"{left}: {where}; there the model extrapolates"
