"""The estimate of a model's weights from its simulation, and the bands of linear views by it."""

import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
import xarray as xr

import sysid
from sysid import (
    AffineMap,
    ConstantMean,
    JointModel,
    LinearMean,
    MeanFunction,
    Model,
    Narx,
    OnlineGP,
    Origin,
    SquaredExponential,
    StableSpline,
    WithLinearPart,
)
from sysid.model import simulation_estimate
from sysid.model.gradient import gradient_covariance_of
from sysid.model.operating_point import linearize
from sysid.model.simulation_estimate import N_SCORE_BLOCKS, estimate_by_simulation

DT = 0.5
POLE = 0.9


def record_of(n=600, noise=0.0, disturbance=0.0, seed=0):
    """Return a record of x[k] = 0.9 x[k-1] + tanh(u[k-1]) + disturbance, y = x + noise."""
    rng = np.random.default_rng(seed)
    u = np.repeat(rng.uniform(-1.5, 1.5, n // 6 + 1), 6)[:n]
    x = np.zeros(n)
    for k in range(1, n):
        x[k] = POLE * x[k - 1] + np.tanh(u[k - 1]) + disturbance * rng.normal()
    y = x + noise * rng.normal(size=n)
    time = ("time", DT * np.arange(n), {"units": "s"})
    return xr.Dataset({"y": ("time", y), "u": ("time", u)}, coords={"time": time})


def model_of(record, *, predict="value", learning="every_sample", y_lags=1, budget=12):
    """Return a model of a record with fixed hyper-parameters."""
    narx = Narx({"y": y_lags}, {"u": 1}, target="y", predict=predict)
    rows = narx.regressors({"y": record["y"].values, "u": record["u"].values})
    x = rows.regressor
    kernel = SquaredExponential(40.0, [3.0] * x.shape[1])
    gp = OnlineGP(kernel, noise_variance=0.05, budget=budget, learning=learning)
    model = Model(
        narx, AffineMap.fit(x), ConstantMean(0.0), gp, Origin(sampling_time=DT, units={"y": "m"})
    )
    model.update_many(x, rows.target)
    return model


def simulate_naively(model, record, weights):
    """Return the errors of a simulation of a first-order model, sample by sample."""
    y = record["y"].values
    u = record["u"].values
    simulated = y.copy()
    for k in range(1, len(y)):
        z = model.scaling.transform(np.array([[simulated[k - 1], u[k - 1]]]))
        value = model.gp.whitened_functions(z)[:, 0] @ weights
        if model.narx.predict.value == "change":
            value += simulated[k - 1]
        simulated[k] = value
    return (y - simulated)[1:]


def differentiate_naively(model, record, weights):
    """Return the derivatives (n, q) of the simulated output by the weights, by differences."""
    size = 1e-4
    columns = []
    for direction in np.eye(len(weights)):
        above = simulate_naively(model, record, weights + size * direction)
        below = simulate_naively(model, record, weights - size * direction)
        columns.append((below - above) / (2 * size))
    return np.array(columns).T


def estimate_naively(model, record):
    """Return weights and their covariance by the docstring, with J by finite differences."""
    weights = model.gp.whitened_mean
    identity = np.eye(len(weights))
    errors = simulate_naively(model, record, weights)
    J = differentiate_naively(model, record, weights)
    for _ in range(simulation_estimate.MAX_STEPS):
        s2 = np.mean(errors**2)
        step = np.linalg.solve(J.T @ J / s2 + identity, J.T @ errors / s2 - weights)
        known = errors @ errors / s2 + weights @ weights
        for fraction in (1.0, 0.5, 0.25, 0.125):
            tried = weights + fraction * step
            new = simulate_naively(model, record, tried)
            criterion = new @ new / s2 + tried @ tried
            if criterion < known:
                weights = tried
                errors = new
                break
        else:
            break
        J = differentiate_naively(model, record, weights)
        if known - criterion < simulation_estimate.LEAST_DECREASE * known:
            break
    s2 = np.mean(errors**2)
    inverse = np.linalg.inv(J.T @ J / s2 + identity)
    scores = J * errors[:, None] / s2
    middle = identity.copy()
    for block in np.array_split(scores, N_SCORE_BLOCKS):
        middle += np.outer(block.sum(axis=0), block.sum(axis=0))
    return weights, inverse @ middle @ inverse


@pytest.mark.parametrize("predict", ["value", "change"])
def test_the_estimate_is_that_of_a_naive_version(predict):
    record = record_of(noise=0.3, n=300)
    model = model_of(record, predict=predict)
    found = estimate_by_simulation(model, record)
    weights, covariance = estimate_naively(model, record)
    expected = weights - model.gp.whitened_mean
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(found.change, expected, atol=1e-3 * np.abs(expected).max())
    np.testing.assert_allclose(
        found.root @ found.root.T, covariance, atol=1e-3 * np.abs(covariance).max()
    )


@pytest.mark.parametrize("learning", ["every_sample", "stored"])
def test_functions_and_weights_make_the_mean_of_a_model(learning):
    record = record_of(noise=0.1)
    model = model_of(record, learning=learning)
    x = model.narx.regressors({"y": record["y"].values, "u": record["u"].values}).regressor[:20]
    z = model.scaling.transform(x)
    gp = model.gp
    np.testing.assert_allclose(
        gp.whitened_mean @ gp.whitened_functions(z), model.predict(x).mean, atol=1e-9
    )
    size = 1e-5
    for column in range(z.shape[1]):
        shift = size * np.eye(z.shape[1])[column]
        difference = gp.whitened_functions(z + shift) - gp.whitened_functions(z - shift)
        np.testing.assert_allclose(
            gp.whitened_slopes(z)[:, :, column], difference.T / (2 * size), atol=1e-5
        )


@dataclass(frozen=True)
class Drift(MeanFunction):
    """A user's own mean, which the compiled loop does not know."""

    def __call__(self, regressors):
        return 0.003 + 0.002 * regressors[:, 0]


@pytest.mark.parametrize("predict", ["value", "change"])
@pytest.mark.parametrize("limits", [(-np.inf, np.inf), (-2.0, 3.0)], ids=["free", "limited"])
def test_a_model_with_a_mean_of_a_user_has_the_same_estimate(predict, limits):
    record = record_of(noise=0.3, n=300)
    if np.isfinite(limits[0]):
        record["y"] = record["y"].clip(*limits)
    model = replace(model_of(record, predict=predict), limits=limits)
    compiled = estimate_by_simulation(replace(model, mean=LinearMean([0.002, 0.0], 0.003)), record)
    interpreted = estimate_by_simulation(replace(model, mean=Drift()), record)
    np.testing.assert_allclose(compiled.change, interpreted.change, atol=1e-7)
    np.testing.assert_allclose(compiled.root, interpreted.root, atol=1e-6)
    without = estimate_by_simulation(model, record)
    assert np.abs(without.change - compiled.change).max() > 1e-4
    if np.isfinite(limits[0]):
        unlimited = estimate_by_simulation(replace(model, limits=(-np.inf, np.inf)), record)
        assert np.abs(unlimited.change - without.change).max() > 1e-4


def test_a_simulation_that_runs_away_has_no_estimate():
    record = record_of(noise=0.3, n=300)
    model = replace(model_of(record), mean=LinearMean([0.5, 0.0], 0.0))
    assert estimate_by_simulation(model, record) is None


@pytest.mark.parametrize("linear", [None, StableSpline([2], [0.7], [3.0])], ids=["plain", "linear"])
def test_a_weighted_sum_of_functions_is_a_sum_of_kernels(linear):
    rng = np.random.default_rng(1)
    kernel = SquaredExponential(1.0, [1.0, 2.0])
    x = rng.normal(size=(30, 2))
    if linear is not None:
        kernel = WithLinearPart(kernel, linear)
        x = np.hstack([x, rng.normal(size=(30, 2))])
    gp = OnlineGP(kernel, noise_variance=0.01, budget=12, learning="every_sample")
    gp.update_many(x, np.sin(x[:, 0]))
    phi = gp.whitened_functions(x)
    weights = rng.normal(size=len(phi))
    coefficients, weights_of_points = gp.kernel_weights(weights)
    k = gp.point_kernel(x[:, :2], gp.point_inputs)
    sums = k @ weights_of_points
    if linear is not None:
        sums += x[:, 2:] @ coefficients
    np.testing.assert_allclose(sums, weights @ phi, atol=1e-8)


def view_of(model, record):
    """Return the linear view at a steady state, without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.linearize({"u": 0.3}, record=record)


def test_noise_among_the_lags_biases_the_model_but_not_the_view_by_simulation():
    record = record_of(noise=0.8, n=1500)
    view = view_of(model_of(record, budget=30), record)
    of_steps = POLE - view.poles[0].real
    of_simulation = POLE - view.by_simulation.poles[0].real
    assert of_steps > 0.03
    assert abs(of_simulation) < 0.4 * of_steps
    assert any("noise among the lags" in note for note in view.notes)
    f = np.geomspace(0.01, 0.2, 20)
    response = view.frequency_response(f).sel(output="y", input="u")
    z = np.exp(2j * np.pi * f * DT)
    truth = np.abs(1 / np.cosh(0.3) ** 2 / (z - POLE))
    is_covered = (response["magnitude_low"] <= truth) & (truth <= response["magnitude_high"])
    assert is_covered.mean() > 0.9


def test_without_noise_among_the_lags_both_estimates_agree():
    record = record_of(disturbance=0.1, n=1500)
    view = view_of(model_of(record, budget=30), record)
    assert not view.notes
    assert view.by_simulation.poles[0].real == pytest.approx(view.poles[0].real, abs=0.02)


def test_half_of_the_draws_belong_to_each_estimate():
    record = record_of(noise=0.5, n=1500)
    view = view_of(model_of(record, budget=30), record)
    of_steps = view.A[1:, 0, 0, 0][0::2]
    of_simulation = view.A[1:, 0, 0, 0][1::2]
    other = view.by_simulation
    std = other.coefficients["std"]["y", "y", 1]
    n = len(of_simulation)
    assert len(of_steps) == n
    assert of_steps.mean() == pytest.approx(view.A[0, 0, 0, 0], abs=0.01)
    assert of_simulation.mean() == pytest.approx(other.A[0, 0, 0, 0], abs=4 * std / np.sqrt(n))
    mixed = view.A[1:, 0, 0, 0].std()
    assert view.coefficients["std"]["y", "y", 1] == pytest.approx(mixed, rel=0.1)
    assert model_of(record).linearize({"u": 0.3}).by_simulation is None


def test_no_estimate_without_feedback_or_samples_or_a_simulation():
    record = record_of(noise=0.1)
    assert estimate_by_simulation(model_of(record, y_lags=[]), record) is None
    short = record.isel(time=slice(0, 60))
    assert estimate_by_simulation(model_of(record), short) is None
    wrong = record.assign(y=-record["y"])
    assert estimate_by_simulation(model_of(record), wrong) is None


def test_the_longest_part_without_missing_samples_is_simulated(monkeypatch):
    record = record_of(noise=0.1)
    model = model_of(record)
    holed = record.copy(deep=True)
    holed["u"][{"time": 200}] = np.nan
    rest = record.isel(time=slice(201, None))
    found = estimate_by_simulation(model, holed)
    np.testing.assert_array_equal(found.change, estimate_by_simulation(model, rest).change)
    monkeypatch.setattr(simulation_estimate, "MAX_SAMPLES_OF_ESTIMATE", 150)
    last = record.isel(time=slice(-151, None))
    found = estimate_by_simulation(model, record)
    np.testing.assert_array_equal(found.change, estimate_by_simulation(model, last).change)


def test_identified_models_simulate_the_learned_record():
    record = record_of(noise=0.3)
    found = sysid.identify(
        record, Narx({"y": 1}, {"u": 1}, predict="value"), budget=20, linear_part="none"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        view = found.linearize({"u": 0.3})
        of_model = found.model.linearize({"u": 0.3}, record=found.recordings.estimation[0])
        joint = JointModel((found.model,)).linearize(
            {"u": 0.3}, record=found.recordings.estimation[0]
        )
    np.testing.assert_array_equal(view.A, of_model.A)
    np.testing.assert_array_equal(joint.A, of_model.A)
    assert view.by_simulation is not None


def test_an_output_without_an_estimate_keeps_the_factor_of_its_bands():
    record = record_of(noise=0.3)
    model = replace(model_of(record), bands=((1, 1.0), (10, 3.0)))
    other = replace(model, narx=Narx({"b": 1}, {"u": 1}, target="b", predict="value"))
    estimates = {"y": estimate_by_simulation(model, record), "b": None}
    values = {"u": 0.3, "y": 0.0, "b": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        view = linearize([model, other], values, estimates=estimates)
        alone = other.linearize({"u": 0.3, "b": 0.0})
    std = view.coefficients["std"]
    assert std["b", "b", 1] == pytest.approx(alone.coefficients["std"]["b", "b", 1])
    posterior = gradient_covariance_of(other, np.array([[0.0, 0.3]]))[0]
    assert std["b", "b", 1] == pytest.approx(3.0 * np.sqrt(posterior[0, 0]))
    both = view.by_simulation
    assert both.coefficients["value"]["b", "b", 1] == view.coefficients["value"]["b", "b", 1]
    assert both.coefficients["value"]["y", "y", 1] != view.coefficients["value"]["y", "y", 1]
    of_other = view.A[1:, 0, 1, 1]
    assert of_other.std() == pytest.approx(std["b", "b", 1], rel=0.1)
