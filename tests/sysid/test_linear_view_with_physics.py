"""The linear view of a model beside physics: two systems in series."""

import numpy as np
import pytest
import xarray as xr

from sysid import (
    AffineMap,
    ConstantMean,
    Model,
    Narx,
    OnlineGP,
    Origin,
    SquaredExponential,
    UserError,
)
from sysid.model.gradient import gradient_of, weights_of
from sysid.model.simulated_signals import LinearSignals

# the notes of a view are warnings, too
pytestmark = pytest.mark.filterwarnings("ignore:linearize at:UserWarning")

#: small change of the input, whose response is linear
STEP = 1e-5
#: features of the model: a signal of the physics at the sample itself, and one at two lags
NARX = Narx({"y": [1, 2]}, {"u": [1], "p.slow": [0], "p.fast": [1, 3]}, predict="value")


class Filters:
    """Two filters in series behind a saturation, ``fast`` and ``slow``."""

    names = ("p.slow", "p.fast")
    inputs = ("u",)
    notes = ("the filters are simple",)

    @staticmethod
    def advance(slow, fast, u):
        """Return both signals a sample later."""
        return 0.9 * slow + 0.1 * fast, 0.6 * fast + 0.4 * np.tanh(u)

    def simulate(self, u, start):
        """Return the signals (n, 2) for inputs (n,)."""
        values = [start]
        for now in u[:-1]:
            values.append(self.advance(*values[-1], now))
        return np.array(values)

    def add(self, record):
        if "p.slow" in record:
            return record
        slow, fast = self.simulate(record["u"].values, (0.0, 0.0)).T
        return record.assign({"p.slow": ("time", slow), "p.fast": ("time", fast)})

    def steady(self, inputs):
        return dict.fromkeys(self.names, float(np.tanh(inputs["u"])))

    def linear(self, values):
        A = np.array([[0.9, 0.1], [0.0, 0.6]])
        B = np.zeros((2, 2, 1))
        B[1, 1, 0] = 0.4 / np.cosh(values["u"]) ** 2
        return LinearSignals(self.names, self.inputs, A, B)


PHYSICS = Filters()


def make_record(n=400):
    """Return a record of a nonlinear plant behind the filters, without their signals."""
    rng = np.random.default_rng(0)
    u = np.repeat(rng.uniform(-1.2, 1.2, n // 10), 10)
    slow, fast = PHYSICS.simulate(u, (0.0, 0.0)).T
    y = np.zeros(n)
    for k in range(3, n):
        y[k] = 0.5 * y[k - 1] + 0.2 * y[k - 2] + 0.6 * np.sin(slow[k]) - 0.1 * fast[k - 3]
        y[k] += 0.1 * fast[k - 1] + 0.05 * u[k - 1]
    signals = {"y": ("time", y + 0.001 * rng.normal(size=n)), "u": ("time", u)}
    return xr.Dataset(signals, coords={"time": ("time", np.arange(n, dtype=float), {"units": "s"})})


def make_model(narx):
    """Return a model with these features that learned the record, with fixed hyper-parameters."""
    record = PHYSICS.add(make_record())
    rows = narx.regressors({name: record[name].values for name in narx.signals})
    y = record["y"].values
    gp = OnlineGP(SquaredExponential(4.0, [4.0] * narx.n_features), noise_variance=1e-5, budget=60)
    origin = Origin(
        sampling_time=1.0,
        output_mean=float(y.mean()),
        output_range=(float(y.min()), float(y.max())),
    )
    model = Model(narx, AffineMap.fit(rows.regressor), ConstantMean(0.0), gp, origin)
    model.update_many(rows.regressor, rows.target)
    return model


@pytest.fixture(scope="module")
def model():
    """Return the model of the features `NARX`."""
    return make_model(NARX)


def simulate_step(model, u, point, n):
    """Return the outputs (n,) of filters and model after a step to u from a steady state."""
    n_past = model.narx.max_lag
    inputs = np.concatenate([np.full(n_past, point["u"]), np.full(n, u)])
    start = PHYSICS.steady(point)
    slow, fast = PHYSICS.simulate(inputs, (start["p.slow"], start["p.fast"])).T
    signals = {"u": inputs, "p.slow": slow, "p.fast": fast, "y": np.full(len(inputs), point["y"])}
    for k in range(n_past, len(inputs)):
        row = np.array([[signals[name][k - lag] for name, lag in model.narx.features]])
        signals["y"][k] = model.predict(row).mean[0]
    return signals["y"][n_past:]


def test_the_step_response_is_that_of_both_simulations_in_series(model):
    view = model.linearize({"u": 0.4}, physics=PHYSICS)
    n = 60
    above = simulate_step(model, 0.4 + STEP, view.point, n)
    below = simulate_step(model, 0.4 - STEP, view.point, n)
    step = view.step_response(n)
    response = step["response"].sel(output="y", input="u").values
    np.testing.assert_allclose(response, (above - below) / (2 * STEP), atol=1e-5)
    assert (step["low"] <= step["response"]).all()
    assert view.inputs == ("u",)
    assert view.outputs == ("y",)
    assert view.simulated == PHYSICS.names


def test_the_frequency_response_is_that_of_the_transfer_functions(model):
    view = model.linearize({"u": 0.4}, physics=PHYSICS)
    f = np.array([0.003, 0.05, 0.4])
    z = np.exp(2j * np.pi * f)
    of_fast = 0.4 / np.cosh(0.4) ** 2 / (z - 0.6)
    of_slow = 0.1 / (z - 0.9) * of_fast
    c = view.coefficients["value"]["y"]
    numerator = c["u", 1] / z + c["p.slow", 0] * of_slow
    numerator = numerator + (c["p.fast", 1] / z + c["p.fast", 3] / z**3) * of_fast
    expected = numerator / (1 - c["y", 1] / z - c["y", 2] / z**2)
    np.testing.assert_allclose(view.mean_response(f)[:, 0, 0], expected, rtol=1e-10)
    found = view.frequency_response(f).sel(output="y", input="u")
    np.testing.assert_allclose(found["magnitude"], np.abs(expected), rtol=1e-10)
    gain = float(view.static_gain["gain"].item())
    np.testing.assert_allclose(gain, view.mean_response(np.array([1e-9]))[0, 0, 0].real, rtol=1e-6)


def test_poles_are_those_of_the_physics_and_of_the_feedback(model):
    view = model.linearize({"u": 0.4}, physics=PHYSICS)
    c = view.coefficients["value"]["y"]
    of_feedback = np.roots([1.0, -c["y", 1], -c["y", 2]])
    expected = np.sort_complex(np.concatenate([of_feedback, [0.9, 0.6]]))
    found = view.poles[np.abs(view.poles) > 1e-3]
    np.testing.assert_allclose(np.sort_complex(found), expected, atol=1e-9)


def test_the_state_space_form_has_the_same_response(model):
    view = model.linearize({"u": 0.4}, physics=PHYSICS)
    system = view.to_scipy("y", "u")
    f = np.array([0.003, 0.05, 0.4])
    z = np.exp(2j * np.pi * f)
    resolvent = np.linalg.inv(z[:, None, None] * np.eye(len(system.A)) - system.A)
    response = (system.C @ resolvent @ system.B + system.D)[:, 0, 0]
    np.testing.assert_allclose(response, view.mean_response(f)[:, 0, 0], rtol=1e-9)


def test_the_coefficients_are_the_derivatives_of_the_model(model):
    view = model.linearize({"u": 0.4}, physics=PHYSICS)
    values = {**view.point, **PHYSICS.steady({"u": 0.4})}
    x = np.array([[values[name] for name, _ in model.narx.features]])
    gradient = gradient_of(model, weights_of(model), x)[0]
    np.testing.assert_allclose(view.coefficients["value"], gradient, rtol=1e-12)


def test_operating_points_beside_physics_can_be_stated_in_every_form(model):
    record = make_record()
    with_signals = PHYSICS.add(record)
    at_time = model.linearize(153.0, record=record, physics=PHYSICS)
    same = model.linearize(153.0, record=with_signals, physics=PHYSICS)
    np.testing.assert_array_equal(at_time.A, same.A)
    k = 153
    x = [with_signals[name].values[k - lag] for name, lag in model.narx.features]
    by_features = model.linearize(x, physics=PHYSICS)
    np.testing.assert_array_equal(by_features.A[0], at_time.A[0])
    # the features tell u[k-1], the record u[k], about which the filters are linearised
    is_held = float(record["u"][k]) == float(record["u"][k - 1])
    assert is_held
    np.testing.assert_array_equal(by_features.B[0], at_time.B[0])
    views = model.linearize({"u": [-0.5, 0.5]}, physics=PHYSICS)
    assert [view.point["p.slow"] for view in views] == [np.tanh(-0.5), np.tanh(0.5)]
    assert "p.slow" not in views[0].where
    constant = model.linearize({"u": 0.5, "y": views[1].point["y"]}, physics=PHYSICS)
    np.testing.assert_array_equal(constant.A, views[1].A)
    mean = model.linearize(physics=PHYSICS)
    assert mean.point["u"] == pytest.approx(record["u"].values[2:-1].mean(), abs=0.01)


def test_the_draws_of_both_estimates_have_the_physics(model):
    view = model.linearize({"u": 0.4}, record=make_record(), physics=PHYSICS)
    assert view.by_simulation is not None
    for one in (view, view.by_simulation):
        m = len(one.outputs)
        assert (one.A[:, 0, m:, m:] == one.A[0, 0, m:, m:]).all()
        assert one.A[1:, 0, 0, 1].std() > 0
    assert "the filters are simple" in view.notes


def test_without_the_physics_its_signals_are_inputs(model):
    view = model.linearize({"u": 0.4, "p.slow": 0.3, "p.fast": 0.3})
    assert view.inputs == ("u", "p.slow", "p.fast")
    assert view.simulated == ()


def test_a_model_without_lags_of_its_output_has_the_poles_of_the_physics():
    model = make_model(Narx({"y": []}, {"p.slow": [0], "p.fast": [0]}, predict="value"))
    view = model.linearize({"u": 0.3}, physics=PHYSICS)
    poles = np.sort(np.abs(view.poles))
    np.testing.assert_allclose(poles[-2:], [0.6, 0.9], atol=1e-9)
    assert view.inputs == ("u",)


def test_an_input_of_the_physics_alone_must_be_given():
    model = make_model(Narx({"y": 1}, {"p.slow": [0]}, predict="value"))
    with pytest.raises(UserError, match="the mean of u, an input of the physics alone"):
        model.linearize(physics=PHYSICS)
    with pytest.raises(UserError, match="the physics needs a value of u, which is no feature"):
        model.linearize([0.1, 0.2], physics=PHYSICS)
    assert model.linearize({"u": 0.3}, physics=PHYSICS).inputs == ("u",)
