"""The linear view of models: derivatives and their posterior, operating points, responses."""

import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.signal
import xarray as xr

import sysid
from sysid import (
    AffineMap,
    ConstantMean,
    JointModel,
    Kernel,
    Linear,
    LinearMean,
    Matern32,
    Matern52,
    Model,
    Narx,
    OnlineGP,
    Origin,
    Product,
    SquaredExponential,
    StableSpline,
    Sum,
    UserError,
    UserTypeError,
    WithLinearPart,
)
from sysid.model.gradient import gradient_covariance_of, gradient_of, weights_of

DT = 0.5
SE = SquaredExponential(2.0, [0.8, 1.3])
KERNELS = {
    "squared exponential": SE,
    "matern 3/2": Matern32(1.5, [0.8, 1.3]),
    "matern 5/2": Matern52(1.5, [0.8, 1.3]),
    "linear": Linear(0.5, [0.7, 0.2]),
    "sum": Sum([Linear(0.5, [0.7, 0.2]), SE]),
    "product": Product([Linear(0.5, [0.7, 0.2]), SE, Matern52(1.0, [2.0, 2.0])]),
}


def plant(a=0.8, n=400, noise=0.02, seed=0):
    """Return y[k] = a y[k-1] + tanh(u[k-1]) + noise, and u."""
    rng = np.random.default_rng(seed)
    u = np.repeat(rng.uniform(-1.5, 1.5, n // 8 + 1), 8)[:n]
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = a * y[k - 1] + np.tanh(u[k - 1]) + noise * rng.normal()
    return u, y


def model_of(
    kernel=None, *, predict="value", learning="every_sample", mean=None, seed=0, linear=None, a=0.8
):
    """Return a model of `plant` with fixed hyper-parameters, and its regressors."""
    u, y = plant(a, seed=seed)
    narx = Narx({"y": 1}, {"u": 1}, predict=predict, linear=linear or {})
    rows = narx.regressors({"y": y, "u": u})
    scaling = AffineMap.fit(rows.regressor)
    kernel = kernel or SquaredExponential(4.0, [2.0, 1.0])
    if linear:
        lags = [len(lags) for lags in narx.linear_lags.values()]
        size = len(lags)
        spline = StableSpline(lags, [0.1] * size, [3.0] * size, [])
        kernel = WithLinearPart(kernel, spline)
    mean = mean or ConstantMean(0.0)
    gp = OnlineGP(kernel, noise_variance=4e-4, budget=40, learning=learning)
    model = Model(
        narx,
        scaling,
        mean,
        gp,
        Origin(
            sampling_time=DT,
            units={"y": "degC", "u": "%"},
            output_mean=float(y.mean()),
            output_variance=float(y.var()),
            output_range=(float(y.min()), float(y.max())),
        ),
    )
    model.update_many(rows.regressor, rows.target)
    return model, rows.regressor


def respond(system, frequencies):
    """Return ``C (zI - A)^-1 B + D`` of a state-space form at frequencies [cycles per unit]."""
    z = np.exp(2j * np.pi * np.asarray(frequencies) * system.dt)
    resolvent = np.linalg.inv(z[:, None, None] * np.eye(len(system.A)) - system.A)
    return system.C @ resolvent @ system.B + system.D


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_covariance_of_derivatives_is_that_of_differences_of_the_kernel(kernel):
    x = np.array([[0.3, -0.7]])
    # Matern 3/2 has one derivative only: its differences converge with the step, not its square
    step = 1e-4
    differences = np.empty((2, 2))
    for a in range(2):
        for b in range(2):
            da = step * np.eye(2)[a]
            db = step * np.eye(2)[b]
            corners = [
                sign * other * kernel(x + sign * da, x + other * db)[0, 0]
                for sign in (1, -1)
                for other in (1, -1)
            ]
            differences[a, b] = sum(corners) / (4 * step**2)
    found = kernel.gradient_covariance(x)[0]
    tolerance = 2e-3 if isinstance(kernel, Matern32) else 1e-5
    np.testing.assert_allclose(found, differences, atol=tolerance * np.abs(found).max())


@pytest.mark.parametrize("learning", ["every_sample", "stored"])
@pytest.mark.parametrize("linear", [None, {"y": [1, 2], "u": [1, 2, 3]}], ids=["plain", "linear"])
@pytest.mark.parametrize(
    "kernel", [SE, KERNELS["matern 5/2"], KERNELS["product"]], ids=["se", "matern", "product"]
)
def test_derivatives_are_differences_of_the_function_and_their_covariance_is_possible(
    kernel, linear, learning
):
    if linear and learning == "stored":
        return  # a linear part learns from every sample
    model, x = model_of(kernel, linear=linear, learning=learning)
    point = x[50:51]
    p = point.shape[1]
    step = 1e-3
    covariance = gradient_covariance_of(model, point)[0]
    assert np.linalg.eigvalsh(covariance).min() > -1e-9 * np.trace(covariance)
    gradient = gradient_of(model, weights_of(model), point)[0]
    for d in range(p):
        shift = step * np.eye(p)[d]
        ahead = model.predict(point + shift).mean - model.predict(point - shift).mean
        assert gradient[d] == pytest.approx(ahead[0] / (2 * step), rel=1e-3, abs=1e-5)
    if linear:
        of_linear = covariance[-5:, -5:]
        np.testing.assert_allclose(of_linear, model.linear_coefficients.covariance, rtol=1e-8)


def test_joint_posterior_is_that_of_an_exact_gaussian_process():
    """With all samples stored, the covariance of the derivatives is the textbook formula."""
    generator = np.random.default_rng(3)
    x = generator.uniform(-1, 1, (30, 2))
    y = np.sin(x[:, 0]) + x[:, 1]
    gp = OnlineGP(SE, noise_variance=1e-2, budget=30, learning="stored")
    gp.update_many(x, y)
    points = gp.inputs
    point = np.array([[0.2, 0.1]])
    slopes = SE.input_gradient(point, points)[0]
    K = SE(points, points) + 1e-2 * np.eye(len(points))
    expected = SE.gradient_covariance(point)[0] - slopes.T @ np.linalg.solve(K, slopes)
    np.testing.assert_allclose(gp.gradient_covariance(point)[0], expected, atol=1e-9)


@pytest.mark.parametrize("predict", ["value", "change"])
@pytest.mark.parametrize("mean", [None, "linear"])
def test_linear_view_finds_the_linearisation_of_the_plant(predict, mean):
    function = LinearMean([0.7 - (predict == "change"), 0.5], 0.0) if mean else None
    model, _ = model_of(predict=predict, mean=function)
    view = model.linearize({"u": 0.4})
    slope = 1 / np.cosh(0.4) ** 2
    assert view.poles[0].real == pytest.approx(0.8, abs=0.02)
    gain = view.static_gain.sel(output="y", input="u")
    assert float(gain["low"]) < slope / 0.2 < float(gain["high"])
    assert view.point["y"] == pytest.approx(np.tanh(0.4) / 0.2, abs=0.05)
    time = float(view.response_time["time"].squeeze())
    # one sample of dead time, then 0.8^n = 1 - 0.632 (between samples the step is a line)
    assert time == pytest.approx(DT * np.log(0.368) / np.log(0.8), rel=0.1)
    assert view.describe("y", "u").startswith(f"u: {float(gain['gain']):+.3g} K per %")


def test_frequency_and_step_response_are_those_of_scipy():
    model, _ = model_of(linear={"y": [1, 2], "u": [1, 2, 3]})
    view = model.linearize({"u": 0.4})
    f = np.array([0.01, 0.1, 0.7])
    response = view.frequency_response(f).sel(output="y", input="u")
    expected = response["magnitude"].values * np.exp(1j * np.radians(response["phase"].values))
    system = view.to_scipy()
    _, of_scipy = scipy.signal.dfreqresp(system, 2 * np.pi * f * DT)
    np.testing.assert_allclose(of_scipy, expected, rtol=1e-9)
    state_space = scipy.signal.dlti(*view.state_space(), dt=DT)
    np.testing.assert_allclose(respond(state_space, f)[:, 0, 0], expected, rtol=1e-9)
    _, (steps,) = scipy.signal.dstep(state_space, n=25)
    found = view.step_response(25).sel(output="y", input="u")["response"].values
    np.testing.assert_allclose(found, steps[:, 0], atol=1e-12)
    settled = view.step_response(400)["response"].values[0, 0, -1]
    assert settled == pytest.approx(float(view.static_gain["gain"].squeeze()), rel=1e-9)
    assert (response["magnitude_low"] <= response["magnitude"]).all()
    assert (response["phase"] <= response["phase_high"]).all()


def test_objects_of_python_control_have_the_same_response():
    pytest.importorskip("control", reason="the extra [control] is not installed")
    model, _ = model_of()
    view = model.linearize({"u": 0.4})
    system = view.to_control()
    assert system.input_labels == ["u"]
    assert system.dt == DT
    f = 0.2
    expected = float(view.frequency_response([f])["magnitude"].squeeze())
    assert abs(system(np.exp(2j * np.pi * f * DT))) == pytest.approx(expected, rel=1e-9)


def test_coefficients_of_a_feature_that_occurs_twice_are_added():
    model, x = model_of(linear={"y": [1, 2], "u": [1, 2, 3]})
    view = model.linearize(x[30])
    gradient = gradient_of(model, weights_of(model), x[30:31])[0]
    # features: y[k-1], u[k-1], then y[k-1], y[k-2], u[k-1], ... of the linear part
    assert view.coefficients["value"]["y", "y", 1] == pytest.approx(gradient[0] + gradient[2])
    assert len(view.coefficients) == 5


@pytest.fixture(scope="module")
def coupled():
    """Models of two outputs that feed each other, and their record."""
    rng = np.random.default_rng(0)
    n = 500
    u = np.repeat(rng.uniform(-1, 1, n // 5), 5)
    y = np.zeros((n, 2))
    for k in range(1, n):
        y[k, 0] = 0.7 * y[k - 1, 0] + 0.2 * y[k - 1, 1] + u[k - 1]
        y[k, 1] = 0.5 * y[k - 1, 1] - 0.3 * y[k - 1, 0] + 0.1 * u[k - 1]
        y[k] += 0.002 * rng.normal(size=2)
    models = []
    for target in ("a", "b"):
        narx = Narx({"a": 1, "b": 1}, {"u": 1}, target=target, predict="value")
        rows = narx.regressors({"a": y[:, 0], "b": y[:, 1], "u": u})
        kernel = SquaredExponential(100.0, [6.0, 6.0, 6.0])
        gp = OnlineGP(kernel, noise_variance=4e-6, budget=50)
        values = y[:, 0 if target == "a" else 1]
        model = Model(
            narx,
            AffineMap.fit(rows.regressor),
            ConstantMean(0.0),
            gp,
            Origin(output_range=(float(values.min()), float(values.max()))),
        )
        model.update_many(rows.regressor, rows.target)
        models.append(model)
    return tuple(models)


def test_view_of_several_outputs_closes_their_feedback(coupled):
    view = JointModel(coupled).linearize({"u": 0.2})
    A = np.array([[0.7, 0.2], [-0.3, 0.5]])
    B = np.array([1.0, 0.1])
    expected = np.linalg.solve(np.eye(2) - A, B)
    np.testing.assert_allclose(view.static_gain["gain"].values[:, 0], expected, rtol=0.05)
    np.testing.assert_allclose(
        sorted(np.abs(view.poles)), sorted(np.abs(np.linalg.eigvals(A))), atol=0.03
    )
    np.testing.assert_allclose([view.point["a"], view.point["b"]], 0.2 * expected, atol=0.05)
    assert view.time_unit == "samples"
    f = [0.02, 0.3]
    response = view.frequency_response(f)
    for output in ("a", "b"):
        of_scipy = np.abs(respond(view.to_scipy(output, "u"), f)[:, 0, 0])
        np.testing.assert_allclose(of_scipy, response["magnitude"].sel(output=output)[0], rtol=1e-9)


def test_an_output_without_a_model_counts_as_an_input(coupled):
    view = coupled[0].linearize({"u": 0.2, "b": 0.1})
    assert view.inputs == ("u", "b")
    assert float(view.static_gain["gain"].sel(output="a", input="b")) == pytest.approx(
        0.2 / 0.3, rel=0.1
    )


def test_operating_points_can_be_stated_in_every_form():
    model, x = model_of()
    u, y = plant()
    time = DT * np.arange(len(u))
    record = xr.Dataset(
        {"y": ("time", y), "u": ("time", u)}, coords={"time": ("time", time, {"units": "s"})}
    )
    at_time = model.linearize(51 * DT, record=record)
    same = model.linearize({"y[k-1]": y[50], "u[k-1]": u[50]})
    also = model.linearize(x[50])
    constant = model.linearize({"y": y[50], "u": u[50]})
    for view in (also, constant):
        np.testing.assert_array_equal(view.A, same.A)
    np.testing.assert_array_equal(at_time.A[0], same.A[0])  # its bands know the record, too
    grid = model.linearize([[-0.5], [0.0], [0.5]])
    by_name = model.linearize({"u": [-0.5, 0.0, 0.5]})
    assert [view.point for view in grid] == [view.point for view in by_name]
    middle = model.linearize()
    assert middle.point["u"] == pytest.approx(u[:-1].mean(), abs=1e-9)


def test_grid_of_several_inputs_has_every_combination(coupled):
    views = coupled[0].linearize({"u": [0.1, 0.2], "b": [0.0, 0.1, 0.2]})
    assert [(view.point["u"], view.point["b"]) for view in views] == [
        (u, b) for u in (0.1, 0.2) for b in (0.0, 0.1, 0.2)
    ]


WRONG = {
    "unknown signal": ({"v": 1.0}, "expected values of u for a steady state.*got v"),
    "missing feature": ({"y[k-1]": 1.0}, "expected a value for every feature, u.k-1. is missing"),
    "wrong grid": (np.zeros((3, 2)), r"expected a grid with 1 columns, the inputs u.*\(3, 2\)"),
    "empty grid": (np.zeros((0, 1)), "at least one row"),
    "wrong shape": (np.zeros((2, 1, 1)), r"got shape \(2, 1, 1\)"),
    "wrong regressor": (np.zeros(3), "one value for each of the 2 features, y.k-1., u.k-1."),
    "nan": ({"u": np.nan}, "expected finite values of u, got nan"),
    "nan in the grid": ([[np.nan]], "expected a grid of finite values"),
    "nan as time": (np.nan, "expected a finite time"),
    "empty list": ({"u": []}, "expected a number or a list of numbers for u"),
    "time without record": (3.0, "needs a record"),
    "no steady state": ({"u": 50.0, "y": [[1.0]]}, "expected a number or a list"),
}


@pytest.mark.parametrize(("at", "message"), WRONG.values(), ids=WRONG)
def test_wrong_operating_points_are_refused_with_what_was_expected(at, message):
    model, _ = model_of()
    with pytest.raises(UserError, match=message):
        model.linearize(at)


@pytest.mark.parametrize("at", [True, "u"])
def test_operating_points_of_another_type_are_refused(at):
    model, _ = model_of()
    with pytest.raises(UserTypeError, match="at must be a time"):
        model.linearize(at)


def test_times_outside_of_the_record_and_missing_samples_are_refused():
    model, _ = model_of()
    u, y = plant(n=40)
    y[10] = np.nan
    time = DT * np.arange(len(u))
    record = xr.Dataset({"y": ("time", y), "u": ("time", u)}, coords={"time": time})
    with pytest.raises(UserError, match=r"from 0\.5 to 19\.5 s, got the time 30"):
        model.linearize(30.0, record=record)
    with pytest.raises(UserError, match=r"y\[k-1\] are missing at the time 5.5"):
        model.linearize(5.5, record=record)


def test_a_point_outside_of_the_data_is_stated_with_its_distance():
    model, _ = model_of()
    outside = "u = 3 % lies outside of the stored points"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        view = model.linearize({"u": 3.0, "y": 0.0})
    assert any(outside in str(warning.message) for warning in caught)
    assert any("% of this range" in note for note in view.notes)
    assert any("knows little there" in note for note in view.notes)


def test_an_integrator_has_no_steady_state():
    flat = SquaredExponential(1e-9, [9.0, 9.0])
    model, _ = model_of(flat, predict="change", mean=LinearMean([0.0, 1.0], 0.0))
    with pytest.raises(UserError, match=r"no steady state for u = 0\.3 %.*y rises everywhere"):
        model.linearize({"u": 0.3})
    view = model.linearize({"u": 0.3, "y": 0.0})
    assert abs(view.poles[0]) == pytest.approx(1.0, abs=1e-3)
    assert "%" in view.stability or "unstable" in view.stability


def test_an_unstable_point_has_no_static_gain():
    flat = SquaredExponential(1e-9, [9.0, 9.0])
    model, _ = model_of(flat, mean=LinearMean([1.2, 1.0], 0.0))
    view = model.linearize({"u": 0.0, "y": 0.0})
    assert view.unstable_fraction > 0.9
    assert np.isnan(view.static_gain["gain"].values).all()
    assert "no static gain" in repr(view)
    assert np.isfinite(view.step_response(3000)["high"].values).all()


@dataclass(frozen=True)
class RoughMatern(Matern32):
    """A kernel whose functions have no derivative."""

    def gradient_covariance(self, points):
        return np.full((len(points), 2, 2), np.inf)


@dataclass(frozen=True)
class SilentKernel(Linear):
    """A kernel of a user that states no covariance of its derivatives."""

    gradient_covariance = Kernel.gradient_covariance


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (RoughMatern(1.0, [1.0, 1.0]), "the kernel RoughMatern have no derivative"),
        (SilentKernel(1.0, [1.0, 1.0]), "SilentKernel states no covariance of derivatives"),
    ],
    ids=["no derivative", "not stated"],
)
def test_a_kernel_without_derivatives_is_refused(kernel, message):
    model, _ = model_of()
    gp = OnlineGP(kernel, noise_variance=1e-3, budget=10)
    other = replace(model, gp=gp)
    with pytest.raises(UserTypeError, match=message):
        other.linearize({"u": 0.3, "y": 0.0})


def test_bands_cover_the_truth_about_as_often_as_they_should():
    covered = []
    f = np.geomspace(0.01, 0.9, 20)
    for seed in range(12):
        model, _ = model_of(seed=seed)
        view = model.linearize({"u": 0.4})
        response = view.frequency_response(f).sel(output="y", input="u")
        z = np.exp(2j * np.pi * f * DT)
        truth = np.abs(1 / np.cosh(0.4) ** 2 / (z - 0.8))
        covered.append(
            ((response["magnitude_low"] <= truth) & (truth <= response["magnitude_high"])).mean()
        )
    assert np.mean(covered) > 0.8


def test_identified_models_linearize_all_outputs_and_state_the_record():
    u, y = plant(n=200)
    narx = Narx({"y": 1}, {"u": 1}, predict="value")
    found = sysid.identify((u, y), narx, dt=DT, budget=30, linear_part="none")
    view = found.linearize({"u": 0.4})
    assert view.outputs == ("y",)
    assert found.identifications["y"].linearize({"u": 0.4}).point == view.point
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found.linearize({"u": 2.0, "y": 0.0})
    assert any("outside of the learned records" in str(warning.message) for warning in caught)
    test = found.recordings.test[0]
    time = float(test["time"].values[5])
    assert f"time {time:g} s" in found.linearize(time).where
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.linearize({"u": 0.0})


def test_the_joint_posterior_is_that_of_drawn_functions():
    """Derivatives of functions that are drawn from the posterior have its covariance."""
    model, x = model_of(linear={"y": [1, 2], "u": [1, 2, 3]})
    gp = model.gp
    n_draws = 4000
    draws = gp.draw_posterior(n_draws, np.random.default_rng(0))
    point = model.scaling.transform(x[50:51])
    d = gp.point_kernel.n_features
    kernel = gp.point_kernel
    points = gp.point_inputs
    K = kernel(points, points) + gp.diagonal * np.eye(len(points))
    slopes = kernel.input_gradient(point[:, :d], points)[0]
    # what the points do not determine is added, as it is the same for every draw
    of_kernel = slopes.T @ np.linalg.solve(K, draws.targets)
    residual = kernel.gradient_covariance(point[:, :d])[0] - slopes.T @ np.linalg.solve(K, slopes)
    drawn = np.cov(np.vstack([of_kernel, draws.coefficients]))
    drawn[:d, :d] += residual
    expected = gp.gradient_covariance(point)[0]
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert np.abs(drawn - expected).max() < 5 * np.sqrt(2 / n_draws) * scale.max()
    np.testing.assert_allclose(drawn / scale, expected / scale, atol=6 / np.sqrt(n_draws))


def test_too_many_poles_are_refused():
    narx = Narx({"y": [1, 1001]}, {"u": 1})
    gp = OnlineGP(SquaredExponential(1.0, [1.0] * 3), noise_variance=1e-2, budget=5)
    model = Model(narx, AffineMap(np.zeros(3), np.ones(3)), ConstantMean(0.0), gp)
    with pytest.raises(UserError, match="1001, which makes 1001 poles, expected at most 1000"):
        model.linearize({"y": 0.0, "u": 0.0})


def test_long_step_responses_use_fewer_draws(monkeypatch):
    model, _ = model_of()
    view = model.linearize({"u": 0.4})
    steps = view.step_response(50)
    monkeypatch.setattr("sysid.model.linear_view.MAX_STEP_NUMBERS", 50 * 200)
    fewer = model.linearize({"u": 0.4}).step_response(50)
    np.testing.assert_array_equal(fewer["response"], steps["response"])
    assert (fewer["high"] != steps["high"]).any()
    np.testing.assert_allclose(fewer["high"], steps["high"], rtol=0.05, atol=0.05)
