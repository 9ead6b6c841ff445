"""Frequency responses of records by averaged spectra, and the linear view of an ARX model."""

import numpy as np
import pytest

from sysid import Narx, UserError
from sysid.simulation.baselines import LinearArx
from sysid.simulation.empirical_response import empirical_response

DT = 0.1


def two_input_record(n=6000, noise=0.05, seed=0):
    rng = np.random.default_rng(seed)
    u, v = rng.normal(size=(2, n))
    y = np.zeros(n)
    for k in range(2, n):
        y[k] = 0.6 * y[k - 1] + u[k - 1] - 0.5 * v[k - 2]
    return {"u": u, "v": v, "y": y + noise * rng.normal(size=n)}


def truth(f):
    z = np.exp(2j * np.pi * f * DT)
    return np.stack([1 / (z - 0.6), -0.5 / (z * (z - 0.6))], axis=1)


def test_response_of_two_inputs_lies_within_its_spread_of_the_truth():
    record = two_input_record()
    halves = [{name: values[:3000] for name, values in record.items()}]
    halves.append({name: values[3000:] for name, values in record.items()})
    found = empirical_response(halves, "y", ["u", "v"], DT)
    expected = truth(found.frequency)
    deviations = (np.abs(found.response) - np.abs(expected)) / found.std
    # of 600 averages the leakage of the window counts a little, too
    assert np.mean(np.abs(deviations) < 1.96) > 0.85
    assert found.excited.all()
    assert found.coherence.min() > 0.9
    assert found.band(0) == (found.frequency[0], found.frequency[-1])


def test_noise_without_input_is_not_excited():
    record = two_input_record()
    record["y"] = np.random.default_rng(1).normal(size=6000)
    found = empirical_response([record], "y", ["u", "v"], DT)
    assert found.band(0) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"u": np.zeros(6000)}, "u does not move"),
        ({"y": np.full(6000, np.nan)}, "not finite"),
    ],
)
def test_records_that_show_no_response_are_refused(change, message):
    with pytest.raises(UserError, match=message):
        empirical_response([two_input_record() | change], "y", ["u", "v"], DT)


def test_short_records_are_refused():
    short = {name: values[:20] for name, values in two_input_record().items()}
    with pytest.raises(UserError, match="at least 32 samples and an input, got 20 samples"):
        empirical_response([short], "y", ["u", "v"], DT)


@pytest.mark.parametrize("predict", ["value", "change"])
def test_linear_view_of_an_arx_model_is_its_transfer_function(predict):
    narx = Narx({"y": 1}, {"u": [1], "v": [2]}, predict=predict)
    coefficients = np.array([0.6 - (predict == "change"), 1.0, -0.5])
    arx = LinearArx(narx, coefficients, 0.3, 3, 1.0)
    view = arx.linearize(units={"y": "m"}, sampling_time=DT)
    f = np.array([0.1, 1.0, 4.0])
    response = view.frequency_response(f).sel(output="y")
    expected = truth(f)
    np.testing.assert_allclose(response["magnitude"].sel(input="u"), np.abs(expected[:, 0]))
    np.testing.assert_allclose(response["magnitude"].sel(input="v"), np.abs(expected[:, 1]))
    assert (response["magnitude_low"] == response["magnitude_high"]).all()
    assert view.describe("y", "u") == "u: +2.5 m per unit, 0.197 s"
