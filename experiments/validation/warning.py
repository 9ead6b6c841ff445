"""What makes the numbers doubtful, in words."""

from collections.abc import Iterator
from math import isfinite

from experiments.validation.assessment import Assessment
from experiments.validation.options import Case
from experiments.validation.region import Departures, departures
from sysid import Divergence, Validation

FAR_WORSE = 3.0  # times the error of one step
POOR_FIT = 90.0  # percent: a free run that fits better is no reason to worry
OUTSIDE = 0.01  # part of the regressors that may be outside
LEVELS = {"coverage_50": 50, "coverage_90": 90, "coverage_95": 95}  # percent
SHORT_OF = 0.10  # by so much a band may cover less than it says
TOO_WIDE = 0.30  # by so much the 50 % band may cover more


def warnings_of(assessment: Assessment) -> list[str]:
    """Sentences, the gravest first."""
    return [
        *_divergences(assessment),
        *_far_worse(assessment),
        *_uncovered(assessment),
        *_outside(assessment),
        *_held(assessment),
        *_unknown(assessment),
    ]


def _divergences(assessment: Assessment) -> Iterator[str]:
    for case, found in assessment.forecasts.items():
        for where in found.diverged:
            yield (
                f"{_which(assessment, case, where)} diverges at {where.time:g} {_clock(assessment)}: "
                f"{where.output} leaves its bounds with {_number(where.value, assessment.unit(where.output))}; "
                "what comes after counts as infinitely wrong"
            )
        for where in assessment.unbounded[case]:
            yield (
                f"{_which(assessment, case, where)}: what is not known of the model is enough to let it diverge, "
                f"at {where.time:g} {_clock(assessment)}; from there on its band has no bounds"
            )
    if assessment.loop is not None and assessment.loop.n_lost:
        first = assessment.loop.time[-assessment.loop.n_lost]
        yield f"the loop around the model diverges at {first:g} {_clock(assessment)}"


def _far_worse(assessment: Assessment) -> Iterator[str]:
    for name in assessment.outputs:
        near, far = (assessment.scores[case][name] for case in (assessment.one_step, assessment.free_run))
        if isfinite(far.rmse) and far.rmse > FAR_WORSE * near.rmse and not far.fit_percent > POOR_FIT:
            unit = assessment.error_unit(name)
            yield (
                f"the free run of {name} is far worse than one step ahead: RMSE {_number(far.rmse, unit)} against "
                f"{_number(near.rmse, unit)}, fit {far.fit_percent:.1f} % against {near.fit_percent:.1f} %; for "
                "simulation judge the model by the free run"
            )


def _uncovered(assessment: Assessment) -> Iterator[str]:
    main = [case for case in assessment.forecasts if case.window == assessment.window]
    for name in assessment.outputs:
        short = {case: found for case in main if (found := _shortest(assessment.scores[case][name]))}
        if short:
            told = ", ".join(f"{level} % band {case.words} {share:.1f} %" for case, (level, share) in short.items())
            advice = "; if the plant itself is disturbed, try propagation.process_noise=true"
            ahead = any(case.horizon != 1 for case in short)
            may_help = ahead and vars(assessment.propagation).get("process_noise") is False
            yield (
                f"the bands of {name} do not cover what they should, {told}: do not rely on the uncertainty"
                f"{advice if may_help else ''}"
            )
        wide = {case: share for case in main if (share := assessment.scores[case][name].coverage_50) > 0.5 + TOO_WIDE}
        if wide:
            told = ", ".join(f"50 % band {case.words} {100 * share:.1f} %" for case, share in wide.items())
            yield f"the bands of {name} are wider than they need to be, {told}"


def _shortest(score: Validation) -> tuple[int, float] | None:
    """Level and coverage [percent] of the band that falls short most; None if none does by `SHORT_OF`."""
    short = {level: level - 100 * getattr(score, name) for name, level in LEVELS.items()}
    worst = max(short, key=lambda level: short[level])
    return (worst, worst - short[worst]) if short[worst] > 100 * SHORT_OF else None


def _outside(assessment: Assessment) -> Iterator[str]:
    for case in (assessment.one_step, assessment.free_run):
        regressors = [one.regressors for one in assessment.forecasts[case].records]
        for name, model in zip(assessment.outputs, assessment.joint.models, strict=True):
            found = [departures(model, one) for one in regressors]
            n, total = sum(one.n for one in found), sum(one.n_regressors for one in found)
            if total and n > OUTSIDE * total:
                yield (
                    f"{n} of {total} regressors leave the region of the dictionary of {name}, {case.words}: "
                    f"{_farthest(found)}; there the model extrapolates"
                )


def _farthest(found: list[Departures]) -> str:
    """The feature farthest outside in the record with most departures that has one."""
    worst = max(found, key=lambda one: (one.farthest is not None, one.n)).farthest
    if worst is None:
        return "in combinations of values that no stored point has"
    reach = _number(worst.farthest, worst.unit)
    return f"{worst.feature} reaches {reach}, the stored points {worst.low:.4g} to {worst.high:.4g}"


def _held(assessment: Assessment) -> Iterator[str]:
    largest = assessment.joint.models[0].narx.max_lag
    for case, found in assessment.forecasts.items():
        if found.n_filled and case.horizon is None:
            yield (
                f"the window of {case.window} samples is shorter than the largest lag {largest}: {found.n_filled} "
                "predictions take the first value of their record for samples before it"
            )


def _unknown(assessment: Assessment) -> Iterator[str]:
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


def _which(assessment: Assessment, case: Case, where: Divergence) -> str:
    name = assessment.material.records[where.record].attrs["name"]
    return f"{_prediction(case)} of record {name!r} after a window of {case.window}"


def _prediction(case: Case) -> str:
    return f"the {case.words}" if case.horizon is None else f"the prediction {case.words} ahead"


def _clock(assessment: Assessment) -> str:
    unit = assessment.material.records[0]["time"].attrs.get("units", "s")
    return "samples" if unit == "1" else str(unit)


def _number(value: float, unit: str) -> str:
    return f"{value:.4g} {'' if unit == '1' else unit}".rstrip()
