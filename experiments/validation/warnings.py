"""What makes the numbers of a validation doubtful, in words."""

from collections.abc import Iterator
from math import isfinite
from typing import NamedTuple

import numpy as np

from experiments.validation.assessment import Assessment
from sysid import Model, Validation
from sysid.arrays import Array

FAR_WORSE = 3.0  # times the error of one step
POOR_FIT = 90.0  # percent: a free run that fits better is no reason to worry
OUTSIDE = 0.01  # part of the regressors that may be outside
MARGIN = 0.05  # of the range of a coordinate among the stored points: so far beyond it is still inside
UNKNOWN = 0.5  # part of the prior variance that the stored points must explain
LEVELS = {"coverage_50": 50, "coverage_90": 90, "coverage_95": 95}  # percent
SHORT_OF = 10.0  # percent: by so much a band may cover less than it says
TOO_WIDE = 80.0  # percent that the 50 % band may cover


def warn(assessment: Assessment) -> list[str]:
    """Sentences, the gravest first."""
    return [
        *_warn_of_divergences(assessment),
        *_compare_with_one_step(assessment),
        *_check_coverage(assessment),
        *_check_region(assessment),
        *_check_windows(assessment),
        *_name_unknowns(assessment),
    ]


def _warn_of_divergences(assessment: Assessment) -> Iterator[str]:
    records, loop = assessment.material.records, assessment.loop
    unit = str(records[0]["time"].attrs.get("units", "s"))
    clock = "samples" if unit == "1" else unit
    for case, found in assessment.forecasts.items():
        kind = "the free run" if case.horizon is None else f"the prediction {case.words} ahead"
        for where in (*found.diverged, *assessment.unbounded[case]):
            which = f"{kind} of record {records[where.record].attrs['name']!r} after a window of {case.window}"
            if where in found.diverged:
                value = _number(where.value, assessment.unit(where.output))
                yield (
                    f"{which} diverges at {where.time:g} {clock}: {where.output} leaves its bounds with {value}; what "
                    "comes after counts as infinitely wrong"
                )
            else:
                yield (
                    f"{which}: what is not known of the model is enough to let it diverge, at {where.time:g} {clock}; "
                    "from there on its band has no bounds"
                )
    if loop is not None and loop.n_lost:
        yield f"the loop around the model diverges at {loop.time[-loop.n_lost]:g} {clock}"


def _compare_with_one_step(assessment: Assessment) -> Iterator[str]:
    for name in assessment.outputs:
        near, far = (assessment.scores[case][name] for case in (assessment.one_step, assessment.free_run))
        if isfinite(far.rmse) and far.rmse > FAR_WORSE * near.rmse and not far.fit_percent > POOR_FIT:
            unit = assessment.error_unit(name)
            yield (
                f"the free run of {name} is far worse than one step ahead: RMSE {_number(far.rmse, unit)} against "
                f"{_number(near.rmse, unit)}, fit {far.fit_percent:.1f} % against {near.fit_percent:.1f} %; for "
                "simulation judge the model by the free run"
            )


def _check_coverage(assessment: Assessment) -> Iterator[str]:
    for name in assessment.outputs:
        scores = {c: assessment.scores[c][name] for c in assessment.forecasts if c.window == assessment.window}
        short = {case: found for case, score in scores.items() if (found := find_shortest_band(score))}
        if short:
            bands = ", ".join(f"{level} % band {case.words} {share:.1f} %" for case, (level, share) in short.items())
            ahead = any(case.horizon != 1 for case in short)
            may_help = ahead and vars(assessment.propagation).get("process_noise") is False
            advice = "; if the plant itself is disturbed, try propagation.process_noise=true" if may_help else ""
            yield f"the bands of {name} do not cover what they should, {bands}: do not rely on the uncertainty{advice}"
        wide = {case: 100 * score.coverage_50 for case, score in scores.items() if 100 * score.coverage_50 > TOO_WIDE}
        if wide:
            bands = ", ".join(f"50 % band {case.words} {share:.1f} %" for case, share in wide.items())
            yield f"the bands of {name} are wider than they need to be, {bands}"


def find_shortest_band(score: Validation) -> tuple[int, float] | None:
    """Level and coverage [percent] of the band that falls short most; None if none does by `SHORT_OF`."""
    short = {level: level - 100 * getattr(score, name) for name, level in LEVELS.items()}
    worst = max(short, key=lambda level: short[level])
    return (worst, worst - short[worst]) if short[worst] > SHORT_OF else None


class Outside(NamedTuple):
    """Regressors outside the region of the stored points, and the feature that lies farthest outside."""

    n: int  # outside
    n_regressors: int
    feature: int | None = None  # its number; None if only combinations of values are new
    low: float = np.nan  # smallest value of the feature among the stored points
    high: float = np.nan  # largest
    farthest: float = np.nan  # of the regressors the one farthest beyond them


def find_outside(model: Model, regressors: Array) -> Outside:
    """Regressors (n, p) outside the region that a model has learned.

    A regressor is outside if a coordinate of the kernel (a feature, unless the model combines them) lies beyond the
    range of the stored points by more than `MARGIN` of it, or if the points leave more than half of the prior
    variance there, ``variance(x) > UNKNOWN k(x, x)``. Regressors that are not finite, after a divergence, do
    not count.
    """
    x = regressors[np.isfinite(regressors).all(axis=1)]
    points = model.gp.inputs
    if not len(x) or not len(points):
        return Outside(len(x), len(x))
    z = model.scaling.transform(x)
    low, high = points.min(axis=0), points.max(axis=0)
    beyond = np.maximum(low - z, z - high) / np.where(high > low, high - low, 1.0)
    unknown = model.predict(x).variance > UNKNOWN * model.gp.kernel.diagonal(z)
    n = int(((beyond > MARGIN).any(axis=1) | unknown).sum())
    row, column = np.unravel_index(int(beyond.argmax()), beyond.shape)
    if beyond[row, column] <= MARGIN or model.scaling.matrix is not None:
        return Outside(n, len(x))
    first, last = model.scaling.inverse(np.stack([low, high]))[:, column].tolist()
    return Outside(n, len(x), int(column), first, last, float(x[row, column]))


def _check_region(assessment: Assessment) -> Iterator[str]:
    for case in (assessment.one_step, assessment.free_run):
        for name, model in zip(assessment.outputs, assessment.joint.models, strict=True):
            found = [find_outside(model, one.regressors) for one in assessment.forecasts[case].records]
            n, total = sum(one.n for one in found), sum(one.n_regressors for one in found)
            if total and n > OUTSIDE * total:
                worst = max(found, key=lambda one: (one.feature is not None, one.n))
                where = "in combinations of values that no stored point has"
                if worst.feature is not None:
                    unit = model.origin.unit(model.narx.features[worst.feature][0])
                    reached = f"{model.narx.feature_names[worst.feature]} reaches {_number(worst.farthest, unit)}"
                    where = f"{reached}, the stored points {worst.low:.4g} to {worst.high:.4g}"
                yield (
                    f"{n} of {total} regressors leave the region of the dictionary of {name}, {case.words}: {where}; "
                    "there the model extrapolates"
                )


def _check_windows(assessment: Assessment) -> Iterator[str]:
    largest = assessment.joint.models[0].narx.max_lag
    for case, found in assessment.forecasts.items():
        if found.n_filled and case.horizon is None:
            yield (
                f"the window of {case.window} samples is shorter than the largest lag {largest}: {found.n_filled} "
                "predictions take the first value of their record for samples before it"
            )


def _name_unknowns(assessment: Assessment) -> Iterator[str]:
    origin = assessment.joint.origin
    if origin.output_mean is None:
        yield "the model does not say what it was identified from: MSLL is not defined"
    if origin.sampling_time is None:
        yield "the model does not state its sampling time: that of the data was not compared"
    for name in (*assessment.outputs, *assessment.joint.input_names):
        known = origin.unit(name), str(assessment.material.records[0][name].attrs.get("units", ""))
        if any(known) and not all(known):
            who, other = ("model", "data") if known[0] else ("data", "model")
            yield f"the {who} states the unit of {name}, {known[0] or known[1]}, the {other} does not: not compared"


def _number(value: float, unit: str) -> str:
    return f"{value:.4g} {'' if unit == '1' else unit}".rstrip()
