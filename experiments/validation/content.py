"""The numbers of a validation for `validation.json`."""

from collections.abc import Mapping
from typing import Any

from experiments.plain import plain
from experiments.validation.assessment import Assessment
from experiments.validation.loop_comparison import loop_scores
from experiments.validation.options import FREE_RUN, Case
from experiments.validation.residuals import Residuals
from sysid import calibration

LEFT_OUT = "samples of the records that n does not count: the window of each record, and what no horizon reaches"


def content_of(assessment: Assessment, residuals: Residuals, warnings: list[str]) -> dict[str, Any]:
    """Everything as plain values.

    ``one_step`` and ``free_run`` hold the measures after the main window; of several outputs, by output. ``horizons``
    lists the measures of every horizon, window and output, those two included. None stands for a measure that does not
    exist: not defined, not finite after a divergence, or in need of what the model does not know.
    """
    material = assessment.material
    content = {
        "one_step": _by_output(assessment, _entries(assessment, assessment.one_step)),
        "free_run": _by_output(assessment, _entries(assessment, assessment.free_run)),
        "horizons": [
            {"output": name, **entry}
            for case in assessment.forecasts
            for name, entry in _entries(assessment, case).items()
        ],
        "residuals": residuals.to_dict(),
        "calibration": {
            kind: _by_output(assessment, {name: _calibration(assessment, case, name) for name in assessment.outputs})
            for kind, case in (("one_step", assessment.one_step), (FREE_RUN, assessment.free_run))
        },
        "closed_loop": None if assessment.loop is None else loop_scores(assessment.loop, assessment.joint),
        "divergences": _divergences(assessment),
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
    return plain(content)


def _entries(assessment: Assessment, case: Case) -> dict[str, dict[str, Any]]:
    """Measures of one case by output."""
    found = assessment.forecasts[case]
    return {
        name: {
            "horizon": case.label,
            **score.to_dict(),
            "left_out": assessment.n_left_out(case),
            "n_filled": found.n_filled,
            "n_diverged": found.n_lost,
            "unit": assessment.error_unit(name),
        }
        for name, score in assessment.scores[case].items()
    }


def _by_output(assessment: Assessment, entries: Mapping[str, Any]) -> Any:
    """The entry of the only output, or all by output."""
    return dict(entries) if len(assessment.outputs) > 1 else entries[assessment.outputs[0]]


def _calibration(assessment: Assessment, case: Case, output: str) -> dict[str, list[float]]:
    s = assessment.series(case, output)
    curve = calibration(s.measured, s.mean, s.variance, s.noise_variance)
    return {"nominal": curve.nominal.tolist(), "observed": curve.observed.tolist()}


def _divergences(assessment: Assessment) -> list[dict[str, Any]]:
    return [
        {"horizon": case.label, "window": case.window, **where._asdict()}
        for case, found in assessment.forecasts.items()
        for where in found.diverged
    ]
