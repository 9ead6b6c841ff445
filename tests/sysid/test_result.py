"""The record of an identification: one entry per sample, estimates in units of the data, a file."""

import json

import numpy as np
import pytest
import xarray as xr

from sysid import (
    AffineMap,
    Estimate,
    Model,
    Narx,
    OnlineGP,
    Prediction,
    SquaredExponential,
    Target,
    UpdateReport,
    ZeroMean,
    store,
)
from sysid.gp.adaptation import Reason
from sysid.gp.dictionary import NOT_PREDICTED
from sysid.model.result import (
    INITIAL,
    ONLINE,
    VALIDATION,
    result_dataset,
    with_estimates,
)

NAN = np.nan
NOT_STORED = UpdateReport(
    mean=0.1,
    variance=0.2,
    outlier=False,
    inserted=False,
    accepted=False,
    slot=-1,
    removed=-1,
    n_points=2,
    acceptance_score=NAN,
    acceptance_minimum=NAN,
    reduction_score=NAN,
)
STORED_IN_A_FREE_SLOT = NOT_STORED._replace(
    mean=0.3,
    variance=0.4,
    inserted=True,
    accepted=True,
    slot=2,
    n_points=3,
)
STORED_FOR_ANOTHER_POINT = NOT_STORED._replace(
    mean=0.5,
    variance=0.6,
    inserted=True,
    accepted=True,
    slot=1,
    removed=1,
    n_points=3,
    acceptance_score=1.5,
    acceptance_minimum=0.5,
    reduction_score=-2.0,
)
NOT_ACCEPTED = NOT_STORED._replace(
    mean=0.7,
    variance=0.8,
    inserted=True,
    n_points=3,
    acceptance_score=0.1,
    acceptance_minimum=0.5,
)
REPORTS = [NOT_STORED, STORED_IN_A_FREE_SLOT, STORED_FOR_ANOTHER_POINT, NOT_ACCEPTED]


def record_of_six_samples():
    """Return the record of two initial samples and four updates."""
    updates = np.array([tuple(report) for report in REPORTS], dtype=NOT_PREDICTED.dtype)
    record = np.concatenate([NOT_PREDICTED, NOT_PREDICTED, updates])
    record["n_points"][1] = 2
    return record


def validation_rows(n_rows):
    """Return n lag rows of a temperature."""
    temperature = xr.Variable(
        "time",
        20 + np.sin(np.arange(n_rows + 2)),
        {"units": "degC", "long_name": "zone"},
    )
    time = 900.0 * np.arange(7, 9 + n_rows)
    data = xr.Dataset({"zone": temperature}, coords={"time": time})
    return Narx({"zone": 1}).dataset(data).isel(sample=slice(0, n_rows))


def validation_prediction(n_rows):
    """Return a prediction of n rows."""
    return Prediction(np.linspace(0, 1, n_rows), np.linspace(1, 2, n_rows))


def make_result(n_steps=6, n_rows=3):
    """Return the result of some steps of an identification and some validation rows."""
    k = np.arange(n_steps)
    steps = xr.Dataset(
        {"target": ("sample", 1.0 + k), "previous": ("sample", 20.0 + k)},
        coords={"time": ("sample", 900.0 * k), "record": ("sample", 0 * k)},
    )
    record = record_of_six_samples()[:n_steps]
    rows = validation_rows(n_rows)
    return result_dataset(steps, record, rows, validation_prediction(n_rows), Target.change)


# --- samples --------------------------------------------------------------------------------------


def expected_values():
    """Return the values of variables for two initial, four online and three validation samples."""
    rows = validation_rows(3)
    prediction = validation_prediction(3)
    return {
        "phase": [INITIAL] * 2 + [ONLINE] * 4 + [VALIDATION] * 3,
        "target": [1, 2, 3, 4, 5, 6, *rows["target"].values],
        "previous": [20, 21, 22, 23, 24, 25, *rows["previous"].values],
        "time": [0.0, 900.0, 1800.0, 2700.0, 3600.0, 4500.0, *rows["time"].values],
        "mean": [NAN, NAN, 0.1, 0.3, 0.5, 0.7, *prediction.mean],
        "variance": [NAN, NAN, 0.2, 0.4, 0.6, 0.8, *prediction.variance],
        "slot": [-1, -1, -1, 2, 1, -1, -1, -1, -1],
        "inserted": [False, False, False, True, True, True, False, False, False],
        "n_points": [0, 2, 2, 3, 3, 3, 3, 3, 3],
    }


EXPECTED_VALUES = expected_values()


@pytest.mark.parametrize("name", EXPECTED_VALUES)
def test_a_result_has_one_entry_per_sample_of_every_phase(name):
    result = make_result()
    np.testing.assert_array_equal(result[name].values, EXPECTED_VALUES[name])


def test_a_result_has_every_field_of_an_update_report():
    others = {"target", "previous", "unchanged", "phase"}
    assert set(make_result().data_vars) == others.union(UpdateReport._fields)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("target", "K"),
        ("mean", "K"),
        ("variance", "K2"),
        ("previous", "degC"),
        ("time", "s"),
    ],
)
def test_a_result_is_in_the_units_of_the_target(name, unit):
    assert make_result()[name].attrs["units"] == unit


# --- estimates of the hyper-parameters ------------------------------------------------------------

MODEL = Model(
    Narx(outputs={"zone": 1}, inputs={"power": 1}),
    AffineMap(np.array([20.0, 0.0]), np.array([2.0, 500.0])),
    ZeroMean(),
    OnlineGP(SquaredExponential(1.0, [1.0, 1.0]), noise_variance=0.1, budget=3),
)
ESTIMATES = [
    Estimate(
        sample=3,
        reason=Reason.errors,
        statistic=4.5,
        n_errors=50,
        log_density_before=-9.0,
        log_density_after=-2.0,
        n_evaluations=17,
        seconds=0.25,
        kernel=SquaredExponential(3.0, [0.5, 2.0]),
        noise_variance=0.07,
    ),
    Estimate(
        sample=6,
        reason=Reason.revised,
        statistic=1.1,
        n_errors=20,
        log_density_before=-1.0,
        log_density_after=-0.5,
        n_evaluations=9,
        seconds=0.5,
        kernel=SquaredExponential(4.0, [0.25, 4.0]),
        noise_variance=0.05,
    ),
]


@pytest.fixture(scope="module")
def result_with_estimates():
    """A result with two estimates."""
    return with_estimates(make_result(), ESTIMATES, MODEL)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("sample", [2, 5]),
        ("time", [1800.0, 4500.0]),
        ("reason", [0, 1]),
        ("statistic", [4.5, 1.1]),
        ("gain", [7.0, 0.5]),
        ("variance", [3.0, 4.0]),
        ("noise_variance", [0.07, 0.05]),
        ("length_scale", [[1.0, 1000.0], [0.5, 2000.0]]),
    ],
)
def test_estimates_are_in_the_units_of_the_data(name, values, result_with_estimates):
    np.testing.assert_array_equal(result_with_estimates[f"estimate_{name}"].values, values)


@pytest.mark.parametrize(
    ("name", "unit"), [("noise_variance", "K2"), ("variance", "K2"), ("time", "s")]
)
def test_estimates_state_their_units(name, unit, result_with_estimates):
    assert result_with_estimates[f"estimate_{name}"].attrs["units"] == unit


def test_estimates_state_their_reasons_features_and_durations(result_with_estimates):
    reasons = result_with_estimates["estimate_reason"].attrs["flag_meanings"]
    assert reasons == "errors revised doubled region"
    assert result_with_estimates["feature"].values.tolist() == ["zone[k-1]", "power[k-1]"]
    assert json.loads(result_with_estimates.attrs["estimate_seconds"]) == [0.25, 0.5]


# --- the file -------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimates", [ESTIMATES, []], ids=["two", "none"])
@pytest.mark.parametrize(("n_steps", "n_rows"), [(6, 3), (6, 0), (2, 0), (0, 3)])
def test_a_result_comes_back_from_its_file_and_every_part_may_be_empty(
    n_steps, n_rows, estimates, tmp_path, result_with_estimates
):
    """The types of the variables do not depend on the content."""
    if n_steps < 6:  # the steps of the estimates are not in the record
        estimates = []
    result = with_estimates(make_result(n_steps, n_rows), estimates, MODEL)
    assert result.sizes["sample"] == n_steps + n_rows
    path = store.write(result, tmp_path / "result.nc", kind="result")
    loaded = store.read(path, kind="result")
    for name, variable in result_with_estimates.variables.items():
        np.testing.assert_array_equal(loaded[name].values, result[name].values)
        assert loaded[name].dtype == variable.dtype, name
