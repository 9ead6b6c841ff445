"""An identified model: the facts of its data, its predictions, its limits, several outputs."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest

from coupled_models import unstable
from small_models import (
    MEANS,
    MIXED_FEATURES,
    OFFSET,
    ORIGIN,
    learned_joint_model,
    learned_model,
    samples,
)
from sysid import (
    AffineMap,
    ConstantMean,
    JointModel,
    LinearMean,
    Model,
    MomentMatching,
    Narx,
    OnlineGP,
    Origin,
    SquaredExponential,
    free_run,
    make_record,
)

# --- the data that a model was identified from ----------------------------------------------------

OUTPUT = np.array([1.0, 3.0, 2.0, 6.0, 4.0])
UNITS = {"y": "degC", "u": "V"}


def make_record_with_offset(offset):
    """Return a record of five samples whose output is raised by an offset."""
    signals = {"y": OUTPUT + offset, "u": OUTPUT}
    return make_record(signals, name="r", sampling_time=0.5, units=UNITS)


@pytest.mark.parametrize("predict", ["change", "value"])
def test_the_origin_holds_facts_of_the_output_in_the_rows(predict):
    """They are facts of y[1] to y[4], not of the target: y[0] is only a lag."""
    narx = Narx({"y": 1}, {"u": [0]}, predict=predict)
    origin = Origin.of(narx.dataset(make_record_with_offset(0)))
    assert origin.sampling_time == 0.5
    assert origin.n_samples == 4
    assert origin.output_range == (2.0, 6.0)
    assert origin.units == (("u", "V"), ("y", "degC"))
    assert origin.output_mean == pytest.approx(np.mean(OUTPUT[1:]))
    assert origin.output_variance == pytest.approx(np.var(OUTPUT[1:]))


@pytest.mark.parametrize("predict", ["change", "value"])
def test_the_origin_of_two_records_covers_the_rows_of_both(predict):
    narx = Narx({"y": 1}, {"u": [0]}, predict=predict)
    records = [make_record_with_offset(0), make_record_with_offset(10)]
    origin = Origin.of(narx.dataset(records))
    assert origin.n_samples == 8
    assert origin.output_range == (2.0, 16.0)


def test_the_origin_of_a_static_model_covers_every_sample():
    narx = Narx({"y": []}, {"u": [0]}, predict="value")
    origin = Origin.of(narx.dataset(make_record_with_offset(0)))
    assert origin.unit("y") == "degC"
    assert origin.unit("z") == ""
    assert origin.output_range == (1.0, 6.0)


@pytest.mark.parametrize("origin", [Origin(), ORIGIN], ids=["empty", "full"])
def test_an_origin_comes_back_from_json(origin):
    text = json.dumps(origin.to_dict())
    assert Origin(**json.loads(text)) == origin


# --- wrong parts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(
            lambda: replace(learned_model(), scaling=MIXED_FEATURES),
            r"coordinates, got \(2, 3\)",
            id="map",
        ),
        pytest.param(
            lambda: replace(learned_model(), limits=(2.0, 1.0)),
            r"low < high .* got \(2.0, 1.0\)",
            id="limits",
        ),
        pytest.param(
            lambda: replace(learned_model(), mean=LinearMean([1.0])),
            "expected 3 coefficients",
            id="mean",
        ),
        pytest.param(lambda: Origin(sampling_time=np.nan), "sampling_time", id="origin"),
    ],
)
def test_parts_that_do_not_fit_the_model_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- predictions ----------------------------------------------------------------------------------


@pytest.fixture(params=["scaling", "matrix"])
def affine_map(request):
    """A map of three features to three or two coordinates."""
    if request.param == "scaling":
        return AffineMap(OFFSET, np.array([2.0, 3.0, 0.5]))
    return MIXED_FEATURES


def model_with_all_samples(affine_map, x, y):
    """Return a model of length scale 3 and constant mean 0.25 that stores all samples."""
    length_scales = [3.0] * affine_map.n_coordinates
    gp = OnlineGP(SquaredExponential(1.5, length_scales), noise_variance=0.01, budget=30)
    gp.fit(affine_map.transform(x), y - 0.25)
    return Model(Narx({"y": 1}, {"u": 2}), affine_map, ConstantMean(0.25), gp)


def test_the_model_is_a_gp_with_the_metric_of_its_map(affine_map):
    x, y = samples(30)
    x_new, _ = samples(8, seed=1)
    model = model_with_all_samples(affine_map, x, y)
    metric = affine_map.linear_part().T @ affine_map.linear_part() / 9.0

    def kernel(a, b):
        difference = a[:, None, :] - b[None, :, :]
        squared = np.einsum("ijp,pq,ijq->ij", difference, metric, difference)
        return 1.5 * np.exp(-0.5 * squared)

    ky = kernel(x, x) + 0.01 * np.eye(30)
    k = kernel(x_new, x)
    expected_mean = 0.25 + k @ np.linalg.solve(ky, y - 0.25)
    expected_variance = 1.5 - np.sum(k * np.linalg.solve(ky, k.T).T, axis=1)
    mean, variance = model.predict(x_new)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-7)
    np.testing.assert_allclose(variance, expected_variance, rtol=1e-6, atol=1e-8)


def test_a_model_describes_its_hyperparameters_in_json(affine_map):
    """In the units of the features, or of the coordinates if the map combines features."""
    model = model_with_all_samples(affine_map, *samples(30))
    if affine_map is MIXED_FEATURES:
        length_scales = {"z1": 3.0, "z2": 3.0}
    else:
        scales = 3 * affine_map.scale
        length_scales = dict(zip(model.narx.feature_names, scales, strict=True))
    text = json.dumps(model.hyperparameters, allow_nan=False)
    described = json.loads(text)
    assert described["kernel"]["length_scales"] == length_scales
    assert described["noise_variance"] == 0.01
    assert described["mean"] == {"class": "ConstantMean", "value": 0.25}


def test_an_update_reports_what_the_model_predicts():
    model = learned_model(mean=MEANS[2])
    x, y = samples(2, seed=5)
    predicted = model.predict(x[:1])
    report = model.update(x[0], y[0])
    reported = [report.mean, report.variance]
    np.testing.assert_allclose(reported, np.ravel(predicted), rtol=1e-9)

    predicted = model.predict(x[1:])
    record = model.update_many(x[1:], y[1:])
    reported = [record["mean"], record["variance"]]
    np.testing.assert_allclose(reported, predicted, rtol=1e-9)


# --- limits and means in a simulation -------------------------------------------------------------

NO_INPUT = np.zeros((40, 1))
ONE_FIRST = np.ones((1, 1))


@pytest.fixture
def growing_model():
    """An unstable model: each output is 1.3 times the one before it."""
    return unstable(1.3)


@pytest.fixture
def limited_model(growing_model):
    """The unstable model with an upper limit of 20."""
    return replace(growing_model, limits=(-np.inf, 20.0))


def test_limits_do_not_change_a_prediction(growing_model, limited_model):
    x = [[100.0, 0.0]]
    assert limited_model.predict(x).mean == growing_model.predict(x).mean


def test_an_upper_limit_holds_a_simulation(growing_model, limited_model):
    free = free_run(growing_model, NO_INPUT, ONE_FIRST)
    held = free_run(limited_model, NO_INPUT, ONE_FIRST)
    assert np.nanmax(free.mean) > 300.0
    assert free.n_held == 0
    assert held.mean.max() == 20.0
    assert held.n_held == np.sum(held.mean == 20.0)


def test_a_lower_limit_holds_a_simulation(growing_model):
    limited = replace(growing_model, limits=(-20.0, np.inf))
    held = free_run(limited, NO_INPUT, -ONE_FIRST)
    assert held.n_held > 0
    assert held.n_held == np.sum(held.mean == -20.0)


def test_a_limit_that_the_data_reach_counts_no_sample_as_held(limited_model):
    """The plant saturates there too."""
    saturated = replace(limited_model, origin=Origin(output_range=(0.0, 20.0)))
    assert free_run(saturated, NO_INPUT, ONE_FIRST).n_held == 0


@dataclass(frozen=True)
class BentMean(LinearMean):
    """A linear mean with a formula of its own."""

    def __call__(self, regressors):
        return np.tanh(super().__call__(regressors))


def test_a_linear_mean_with_another_formula_is_simulated_by_that_formula(growing_model):
    model = replace(growing_model, mean=BentMean((1.3, 0.0), 0.0))
    simulated = free_run(model, NO_INPUT[:9], ONE_FIRST).mean[:, 0]
    y = [1.0]
    for _ in range(8):
        y.append(model.predict([[y[-1], 0.0]]).mean[0])
    np.testing.assert_allclose(simulated, y[1:], rtol=1e-12)
    with pytest.raises(ValueError, match="BentMean"):
        free_run(model, NO_INPUT[:9], ONE_FIRST, propagation=MomentMatching())


# --- several outputs ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_models():
    """The models of the outputs y1 and y2, which no test changes."""
    return learned_joint_model(2).models


def test_models_come_in_the_order_of_the_outputs(two_models):
    first, second = two_models
    joint = JointModel((second, first))
    assert joint.models == (first, second)
    assert joint.output_names == ("y1", "y2")
    assert joint.input_names == ("u",)
    assert joint.origin == ORIGIN
    assert JointModel.of(joint) is joint


def change_part(model, part, **facts):
    """Return the model with other facts in one of its parts."""
    changed = replace(getattr(model, part), **facts)
    return replace(model, **{part: changed})


@pytest.mark.parametrize(
    ("choose", "words"),
    [
        pytest.param(lambda first, second: (), "got none", id="none"),
        pytest.param(lambda first, second: (first,), r"models of \['y1'\]", id="one"),
        pytest.param(
            lambda first, second: (first, first), r"models of \['y1', 'y1'\]", id="one_twice"
        ),
        pytest.param(
            lambda first, second: (first, change_part(second, "origin", sampling_time=2.0)),
            r"sampling time .* 0.5 .* 2.0",
            id="sampling_time",
        ),
        pytest.param(
            lambda first, second: (first, change_part(second, "origin", units={"u": "kN"})),
            "units",
            id="units",
        ),
        pytest.param(
            lambda first, second: (first, change_part(second, "narx", predict="value")),
            "kind of target",
            id="kind_of_target",
        ),
        pytest.param(
            lambda first, second: (first, change_part(second, "narx", inputs={"u": [2]})),
            "lags",
            id="lags",
        ),
        pytest.param(
            lambda first, second: (
                first,
                change_part(second, "narx", outputs={"y2": [1], "y1": [1]}),
            ),
            "list of features",
            id="order_of_outputs",
        ),
    ],
)
def test_models_that_do_not_belong_together_are_refused(choose, words, two_models):
    with pytest.raises(ValueError, match=words):
        JointModel(choose(*two_models))


@pytest.mark.parametrize("regressors", [np.zeros((2, 1)), [["a"]], np.full((1, 2), np.nan)])
def test_few_regressors_are_checked_as_many_are(regressors):
    """Compiled code would read beyond an array of another shape."""
    model = learned_model()
    for predict in (model.predict, model.predict_few, model.gp.predict, model.gp.predict_few):
        with pytest.raises((ValueError, TypeError), match=r"regressors|inputs"):
            predict(regressors)
