"""The per-sample record as a data set."""

import json

import numpy as np
import pytest
import xarray as xr

from sysid import OnlineGP, SquaredExponential, store
from sysid.adaptation import Estimate, Reason
from sysid.identify import Step
from sysid.mean import ZeroMean
from sysid.model import Model, Prediction
from sysid.narx import Narx, Target
from sysid.online import UpdateReport
from sysid.result import INITIAL, MEANINGS, NO_REPORT, ONLINE, VALIDATION, result_dataset, with_estimates
from sysid.scaling import Scaling

REPORTS = [
    UpdateReport(0.1, 0.2, False, False, -1, -1, 2, np.nan, np.nan, np.nan),
    UpdateReport(0.3, 0.4, True, True, 2, -1, 3, np.nan, np.nan, np.nan),
    UpdateReport(0.5, 0.6, True, True, 1, 1, 3, 1.5, 0.5, -2.0),
    UpdateReport(0.7, 0.8, True, False, -1, -1, 3, 0.1, 0.5, np.nan),
]
STEPS = [Step(900.0 * k, 1.0 + k, 20.0 + k, None, 2 * k) for k in range(2)] + [
    Step(900.0 * (2 + k), 3.0 + k, 22.0 + k, report, report.n_points) for k, report in enumerate(REPORTS)
]


def rows(n):
    """Lag data set with n rows, of a temperature."""
    time = 900.0 * np.arange(7, 7 + n + 2)
    zone = xr.Variable("time", 20 + np.sin(np.arange(n + 2)), {"units": "degC", "long_name": "zone"})
    record = xr.Dataset({"zone": zone}, coords={"time": time})
    return Narx(outputs={"zone": 1}).dataset(record).isel(sample=slice(0, n))


def prediction(n):
    return Prediction(np.linspace(0, 1, n), np.linspace(1, 2, n))


@pytest.fixture
def result():
    return result_dataset(STEPS, rows(3), prediction(3), Target.change)


def test_one_entry_per_sample(result):
    assert dict(result.sizes) == {"sample": 9}
    assert result["phase"].values.tolist() == [INITIAL] * 2 + [ONLINE] * 4 + [VALIDATION] * 3
    assert set(result.data_vars) == {*UpdateReport._fields, "target", "previous", "unchanged", "phase"}


@pytest.mark.parametrize("name", UpdateReport._fields)
def test_reports_are_taken_over(name, result):
    np.testing.assert_array_equal(result[name].values[2:6], [getattr(report, name) for report in REPORTS])


def test_validation_part_is_the_prediction_of_the_final_model(result):
    np.testing.assert_array_equal(result["mean"].values[6:], prediction(3).mean)
    np.testing.assert_array_equal(result["variance"].values[6:], prediction(3).variance)
    np.testing.assert_array_equal(result["target"].values[6:], rows(3)["target"])
    np.testing.assert_array_equal(result["previous"].values[6:], rows(3)["previous"])
    np.testing.assert_array_equal(result["time"].values[6:], rows(3)["time"])
    assert (result["n_points"].values[6:] == 3).all()
    assert (result["slot"].values[6:] == -1).all()
    assert not result["inserted"].values[6:].any()


def test_initial_samples_have_no_prediction(result):
    assert np.isnan(result["mean"].values[:2]).all()
    assert (result["slot"].values[:2] == -1).all()
    np.testing.assert_array_equal(result["target"].values[:2], [1.0, 2.0])
    np.testing.assert_array_equal(result["previous"].values[:2], [20.0, 21.0])


def test_types_do_not_depend_on_the_content():
    full, empty = (
        result_dataset(STEPS, rows(3), prediction(3), Target.change),
        result_dataset([], rows(0), prediction(0), Target.change),
    )
    for name in full.variables:
        assert full[name].dtype == empty[name].dtype, name
    assert full["inserted"].dtype == bool
    assert full["slot"].dtype.kind == "i"


def test_units_follow_the_target(result):
    assert result["target"].attrs["units"] == result["mean"].attrs["units"] == "K"
    assert result["variance"].attrs["units"] == "K2"
    assert result["previous"].attrs["units"] == "degC"
    assert result["time"].attrs["units"] == "s"
    assert result["phase"].attrs["flag_meanings"] == "initial online validation"
    assert all(variable.attrs["long_name"] for variable in result.variables.values())


def test_every_field_has_a_meaning():
    assert set(MEANINGS) == set(UpdateReport._fields) == set(NO_REPORT._fields)


@pytest.mark.parametrize(("n_steps", "n"), [(6, 3), (6, 0), (2, 0), (0, 3), (0, 0)])
def test_every_part_may_be_empty_and_the_file_gives_it_back(n_steps, n, tmp_path):
    result = result_dataset(STEPS[:n_steps], rows(n), prediction(n), Target.change)
    assert result.sizes["sample"] == n_steps + n
    path = store.write(result, tmp_path / "result.nc", kind="result")
    again = store.read(path, kind="result")
    for name in result.variables:
        np.testing.assert_array_equal(again[name].values, result[name].values)
        assert again[name].dtype == result[name].dtype


TWO = Narx(outputs={"zone": 1}, inputs={"power": 1})
MODEL = Model(
    TWO,
    Scaling(np.array([20.0, 0.0]), np.array([2.0, 500.0])),
    ZeroMean(),
    OnlineGP(SquaredExponential(1.0, [1.0, 1.0]), noise_variance=0.1, budget=3),
)
ESTIMATES = [
    Estimate(3, Reason.errors, 4.5, 50, -9.0, -2.0, 17, 0.25, SquaredExponential(3.0, [0.5, 2.0]), 0.07),
    Estimate(6, Reason.revised, 1.1, 20, -1.0, -0.5, 9, 0.5, SquaredExponential(4.0, [0.25, 4.0]), 0.05),
]


def test_estimates_are_told_in_the_units_of_the_data(result):
    told = with_estimates(result, ESTIMATES, MODEL)
    expected = {
        "sample": [2, 5],
        "time": [1800.0, 4500.0],
        "reason": [0, 1],
        "statistic": [4.5, 1.1],
        "n_errors": [50, 20],
        "gain": [7.0, 0.5],
        "variance": [3.0, 4.0],
        "noise_variance": [0.07, 0.05],
        "n_evaluations": [17, 9],
        "length_scale": [[1.0, 1000.0], [0.5, 2000.0]],
    }
    assert {name for name in told.data_vars if name not in result} == {f"estimate_{name}" for name in expected}
    for name, values in expected.items():
        np.testing.assert_array_equal(told[f"estimate_{name}"].values, values)
        assert told[f"estimate_{name}"].attrs["long_name"]
    assert told["estimate_noise_variance"].attrs["units"] == told["estimate_variance"].attrs["units"] == "K2"
    assert told["estimate_time"].attrs["units"] == "s"
    assert told["estimate_reason"].attrs["flag_meanings"] == "errors revised"
    assert told["estimate_length_scale"].dims == ("estimate", "feature")
    assert told["feature"].values.tolist() == ["zone[k-1]", "power[k-1]"]
    assert json.loads(told.attrs["estimate_seconds"]) == [0.25, 0.5]
    for name in result.variables:
        np.testing.assert_array_equal(told[name].values, result[name].values)


@pytest.mark.parametrize("estimates", [ESTIMATES, []])
def test_estimates_come_back_from_a_file(estimates, result, tmp_path):
    told = with_estimates(result, estimates, MODEL)
    assert dict(told.sizes) == {"sample": 9, "estimate": len(estimates), "feature": 2}
    again = store.read(store.write(told, tmp_path / "result.nc", kind="result"), kind="result")
    for name in told.variables:
        np.testing.assert_array_equal(again[name].values, told[name].values)
        assert again[name].dtype == told[name].dtype == with_estimates(result, ESTIMATES, MODEL)[name].dtype
