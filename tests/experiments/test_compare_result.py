"""The table of `sysid-compare` for the terminal."""

import pandas as pd
import pytest

from experiments.compare.result import write_text

SCORES = {
    "run": "a",
    "output": "y",
    "unit": "K",
    "rmse_one_step": 1.0,
    "rmse_free_run": 5.0,
    "fit_percent_free_run": 90.0,
    "nlpd_one_step": 1.0,
    "nlpd_free_run": 1.0,
    "coverage_95_one_step": 0.9,
    "coverage_95_free_run": 0.9,
    "lags": "y 1",
    "points": 3,
    "seconds": 1.0,
}


@pytest.mark.parametrize("kinds", [{}, {"one_step": 0.1}, {"one_step": 0.1, "free_run": 4.0}])
def test_each_horizon_has_its_own_error_without_gross_errors(kinds):
    without = {f"rmse_{kind}_without_gross_errors": rmse for kind, rmse in kinds.items()}
    heads, row = write_text(pd.DataFrame([SCORES | without])).splitlines()
    words = {"one_step": "1 step", "free_run": "free run"}
    assert heads.count("without gross errors") == len(kinds)
    assert all(f"{words[kind]} without gross errors" in heads for kind in kinds)
    assert all(f" {rmse:g} K" in row for rmse in kinds.values())
