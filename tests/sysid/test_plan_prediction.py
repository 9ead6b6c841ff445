"""Predicted outputs of a plan, and their derivatives by the driven inputs."""

from dataclasses import replace

import numpy as np
import pytest

from coupled_models import LENGTH_SCALES, joint_model, signals, unstable
from linear_part_models import joint_model_with_linear_parts
from sysid import (
    AboutPath,
    Identification,
    JointModel,
    ModelPredictor,
    Narx,
    Pathwise,
    Settings,
    Situation,
    SquaredExponential,
    look_ahead,
)
from sysid.errors import UserError, UserTypeError

N_KNOWN = 20  # measured samples before the plan
N_STEPS = 9  # of the plan

#: lags without the present input, which a plan cannot know
LAGS = {"outputs": {"a": [1, 2], "b": [2]}, "inputs": {"u": [1, 3]}}
LONG_LAGS = {"outputs": {"a": 5, "b": [1, 2, 4]}, "inputs": {"u": [1, 2, 3]}}

MODELS = {
    "value": lambda: joint_model("value", LAGS),
    "change": lambda: joint_model("change", LAGS),
    "linear part": lambda: joint_model_with_linear_parts(lags=LONG_LAGS),
    "linear part of a change": lambda: joint_model_with_linear_parts(
        lags=LONG_LAGS, predict="change"
    ),
}


def situation(n=N_KNOWN, seed=3):
    """Return the last samples of the coupled plant, whose next input is to be decided."""
    values = signals(n, seed)
    outputs = {"b": values["b"], "a": values["a"]}  # the order does not matter
    return Situation(0.0, outputs, {"u": values["u"][:-1]})


def plan(seed=0, n_steps=N_STEPS):
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (n_steps, 1))


@pytest.fixture(scope="module", params=sorted(MODELS))
def model(request):
    return MODELS[request.param]()


@pytest.fixture(scope="module")
def predictor(model):
    return ModelPredictor(model, situation(), {}, ["u"])


def test_the_mean_is_that_of_the_free_run(model, predictor):
    known = situation()
    inputs = np.append(known.inputs["u"], 0.0)
    outputs = np.column_stack([known.outputs[name] for name in predictor.output_names])
    driven = plan()
    inputs[-1] = driven[0, 0]
    coming = np.append(driven[1:], 0.0)  # `look_ahead` begins with the inputs of the next sample
    expected = look_ahead(model, coming, outputs, inputs)
    mean = predictor.linearise(driven).mean
    for o, name in enumerate(predictor.output_names):
        np.testing.assert_allclose(mean[:, o], expected[f"{name}_mean"], rtol=0, atol=1e-12)


def test_the_sensitivity_is_that_of_finite_differences(predictor):
    driven = plan()
    found = predictor.linearise(driven).sensitivity
    step = 1e-5
    for j in range(N_STEPS):
        up, down = driven.copy(), driven.copy()
        up[j] += step
        down[j] -= step
        change = predictor.linearise(up).mean - predictor.linearise(down).mean
        np.testing.assert_allclose(found[:, :, j, 0], change / (2 * step), rtol=0, atol=1e-8)
        assert not found[:j, :, j].any()
    assert abs(found).max() > 0.05


@pytest.mark.parametrize("predict", ["value", "change"])
def test_the_band_of_a_small_error_is_that_of_drawn_functions(predict):
    kernel = SquaredExponential(1e-4, LENGTH_SCALES)
    model = joint_model(predict, LAGS, kernel=kernel, noise_variance=1e-7)
    predictor = ModelPredictor(model, situation(), {}, ["u"], feeds_noise_back=False)
    known = situation()
    driven = plan()
    inputs = np.append(known.inputs["u"], driven[0, 0])
    outputs = np.column_stack([known.outputs[name] for name in predictor.output_names])
    coming = np.append(driven[1:], 0.0)
    drawn = look_ahead(model, coming, outputs, inputs, propagation=AboutPath(Pathwise(4000)))
    std = predictor.standard_deviation(driven)
    for o, name in enumerate(predictor.output_names):
        width = (drawn[f"{name}_high"] - drawn[f"{name}_mean"]) / 1.96
        np.testing.assert_allclose(std[:, o], width, rtol=0.06)
    assert std[-1, 0] > 3.0 * np.sqrt(1e-7)


def test_noise_that_is_fed_back_accumulates():
    model = unstable(0.9)
    known = Situation(0.0, {"y": np.full(3, 0.5)}, {"u": np.zeros(2)})
    noise = model.gp.noise_variance
    without = ModelPredictor(model, known, {}, ["u"], feeds_noise_back=False)
    fed_back = ModelPredictor(model, known, {}, ["u"])
    driven = np.zeros((4, 1))
    found = fed_back.standard_deviation(driven)[:, 0] ** 2
    found -= without.standard_deviation(driven)[:, 0] ** 2
    powers = 0.9 ** (2 * np.arange(4))
    expected = noise * (np.cumsum(powers) - 1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=1e-14)


def test_an_output_at_its_limit_does_not_answer():
    joint = joint_model(lags=LAGS)
    free = ModelPredictor(joint, situation(), {}, ["u"])
    driven = plan()
    limit = float(np.sort(free.linearise(driven).mean[:, 0])[N_STEPS // 2])
    models = [replace(joint.models[0], limits=(-np.inf, limit)), joint.models[1]]
    bounded = ModelPredictor(JointModel(tuple(models)), situation(), {}, ["u"])
    found = bounded.linearise(driven)
    is_at_limit = found.mean[:, 0] == limit
    assert 0 < is_at_limit.sum() < N_STEPS
    assert not found.sensitivity[is_at_limit, 0].any()


def test_forecasts_are_the_inputs_that_are_not_driven():
    rng = np.random.default_rng(0)
    u, d = rng.normal(size=(2, 260))
    y = np.zeros(260)
    for k in range(259):
        y[k + 1] = 0.5 * y[k] + u[k] + 2.0 * d[k]
    narx = Narx({"y": 1}, {"u": 1, "d": 1}, predict="value")
    rows = narx.regressors({"y": y, "u": u, "d": d})
    identification = Identification(narx, Settings(budget=30))
    identification.observe_many(rows.regressor, rows.target)
    known = Situation(0.0, {"y": y[-4:]}, {"u": u[-4:-1], "d": d[-4:-1]})
    forecast = {"d": np.array([0.3, -0.2, 0.1, 7.0]), "comfort": np.zeros(1)}
    mean = ModelPredictor(identification, known, forecast, ["u"]).linearise(np.zeros((3, 1))).mean
    expected = [y[-1]]
    for value in forecast["d"][:3]:
        expected.append(0.5 * expected[-1] + 2.0 * value)
    np.testing.assert_allclose(mean[:, 0], expected[1:], atol=0.05)
    held = ModelPredictor(identification, known, {}, ["u"]).linearise(np.zeros((1, 1))).mean
    assert held[0, 0] == pytest.approx(0.5 * y[-1] + 2.0 * d[-2], abs=0.05)


def test_bad_input_is_refused():
    model = joint_model(lags=LAGS)
    known = situation()
    with pytest.raises(UserError, match="contain the present u, which is decided after"):
        ModelPredictor(joint_model(), known, {}, ["u"])
    with pytest.raises(UserError, match="'v' is to be planned"):
        ModelPredictor(model, known, {}, ["v"])
    with pytest.raises(UserTypeError, match="one without a model yet"):
        ModelPredictor(Identification(Narx({"y": 1}), Settings()), known, {}, ["u"])
    with pytest.raises(UserError, match=r"inputs lack \['u'\]"):
        ModelPredictor(model, known._replace(inputs={}), {}, ["u"])
    with pytest.raises(UserError, match="one input less than outputs"):
        ModelPredictor(model, known._replace(inputs={"u": np.zeros(N_KNOWN)}), {}, ["u"])
    short = Situation(0.0, {"a": np.zeros(1), "b": np.zeros(1)}, {"u": np.zeros(0)})
    with pytest.raises(UserError, match="as many as the longest lag, got 1"):
        ModelPredictor(model, short, {}, ["u"])


def test_a_forecast_that_ends_too_early_is_refused():
    joint = joint_model(lags=LAGS)
    predictor = ModelPredictor(joint, situation(), {"u": np.zeros(3)}, [])
    with pytest.raises(UserError, match="forecast of 'u': a plan of 9 samples needs 10 values"):
        predictor.linearise(np.zeros((9, 0)))
