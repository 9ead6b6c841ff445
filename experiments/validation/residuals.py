"""Residual tests of a validation, those of one step and of the free run apart."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from experiments.validation.assessment import Assessment
from experiments.validation.options import FREE_RUN, Case
from sysid import ResidualReport, residual_tests
from sysid.simulation.residuals import MEANINGS, most_lags

N_LAGS = 25  # largest lag, where the records are long enough
SHOWN = 2  # alarms told on the terminal; the files hold all
TITLES = {"one_step": "Residuals of one step", FREE_RUN: "Residuals of the free run"}
#: correlated by nature: what disturbed the plant stays in the simulated output
REMARKS = {"one_step": "", FREE_RUN: " (not white even of a right model that is disturbed)"}


@dataclass(frozen=True, eq=False)
class Residuals:
    """Reports by kind, or the reason why there is none."""

    reports: dict[str, ResidualReport]
    reasons: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the values at every lag, for JSON."""
        tested = {kind: report.to_dict() for kind, report in self.reports.items()}
        return {kind: tested.get(kind, {"skipped": [self.reasons.get(kind)]}) for kind in TITLES}

    def to_groups(self) -> dict[str, xr.Dataset]:
        """Correlations and bands by the name of their group."""
        return {f"residual_tests_{kind}": report.to_dataset() for kind, report in self.reports.items()}

    def lines(self, output: str) -> list[str]:
        """What the tests of one output say, one line per kind and one per strong alarm."""
        return [line for kind in TITLES for line in self._lines(kind, output)]

    def _lines(self, kind: str, output: str) -> list[str]:
        if kind in self.reasons:
            return [f"{TITLES[kind]}: {self.reasons[kind]}"]
        report = self.reports[kind]
        if output not in report.outputs:
            return [f"{TITLES[kind]}: {output} is constant, nothing to test"]
        head = next(sentence for sentence in report.verdict() if sentence.startswith(f"{output}: "))
        alarms = sorted((t for t in report.tests if t.output == output and t.alarm), key=lambda test: test.p_value)
        remark = REMARKS[kind] if alarms else ""
        return [f"{TITLES[kind]}, {head}{remark}", *(f"  {test}: {MEANINGS[test.name]}" for test in alarms[:SHOWN])]


def residuals_of(assessment: Assessment) -> Residuals:
    """Test the residuals of one step and of the free run after the main window.

    Against inputs that a controller sets, from lag 1 on: their value at the same sample answers to the residual.
    """
    reports, reasons = {}, {}
    for kind, case in (("one_step", assessment.one_step), (FREE_RUN, assessment.free_run)):
        records = assessment.forecasts[case].records
        n_lags = min(N_LAGS, most_lags([len(one.sample) for one in records]))
        if assessment.forecasts[case].n_lost:
            reasons[kind] = "not tested, the prediction diverges"
        elif n_lags < 1:
            reasons[kind] = "not tested, the records are too short"
        else:
            reports[kind] = _tested(assessment, case, n_lags)
    return Residuals(reports, reasons)


def _tested(assessment: Assessment, case: Case, n_lags: int) -> ResidualReport:
    names, material = assessment.joint.input_names, assessment.material
    records = assessment.forecasts[case].records
    inputs = [np.array([material.records[one.record][name].values[one.sample] for name in names]).T for one in records]
    is_closed = material.plant is not None and not material.plant.is_open_loop
    return residual_tests(
        [one.measured - one.mean for one in records],
        inputs if names else None,
        n_lags=n_lags,
        input_start=int(is_closed),
        output_names=assessment.outputs,
        input_names=names if names else None,
    )
