"""An identified model: its settings as text, the map of its features, its mean function, its file,
its record.
"""

import json
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import sysid
from coupled_models import unstable
from naive import CRITERIA, INSERTIONS, insertion_rule
from sysid import (
    AffineMap,
    ConstantMean,
    JointModel,
    LinearMean,
    Model,
    Narx,
    Origin,
    SquaredExponential,
    store,
)
from sysid.gp.adaptation import Reason
from sysid.gp.dictionary import NOT_PREDICTED
from sysid.model.model import digest
from sysid.model.result import (
    INITIAL,
    ONLINE,
    VALIDATION,
    result_dataset,
    with_estimates,
)


@dataclass(frozen=True)
class Cooling(sysid.MeanFunction):
    """A user's own mean: it has neither a gradient nor anything to fit."""

    rate: float = 0.1

    def __call__(self, regressors):
        return self.rate * np.tanh(regressors[:, 1] - regressors[:, 0])


@dataclass(frozen=True)
class Square(sysid.MeanFunction):
    """Of a feature about 1e6; a slice of features gives no mean."""

    feature: object = 0

    def __call__(self, regressors):
        return 1e-6 * regressors[:, self.feature] ** 2


ACCEPTANCES = [
    sysid.AcceptAll(),
    *(
        sysid.ExceedsMinimum(criterion, reference)
        for criterion in CRITERIA
        for reference in sysid.Reference
    ),
]
RULES = [insertion_rule(rule, 0.1 + 0.2, 1e-17) for rule in INSERTIONS]
LINEAR = sysid.Linear(0.3, [1.0, 0.1, 0.2])
MATERN = sysid.Matern52(0.7, [1.0, 0.5, 2.0])
SMOOTH = SquaredExponential(1.3, [1.0, 2.0, 0.7])
NESTED = sysid.Sum([LINEAR, sysid.Product([MATERN, SMOOTH])])
KERNELS = [SMOOTH, sysid.Matern32(0.7, [1.0, 0.5, 2.0]), MATERN, LINEAR, NESTED]
MEANS = [
    sysid.ZeroMean(),
    ConstantMean(7.0),
    LinearMean([0.1, -0.2, 0.3], 0.4),
    Cooling(0.2),
]
ORIGIN = Origin(0.5, {"y1": "m", "u": "N"}, 0.1, 2.0, (-1.0, 3.0), 40)


def samples(n, seed=0):
    """Regressors in odd units and a target that is far from centred."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)) * [10.0, 0.1, 3.0] + [300.0, 0.0, -5.0]
    return x, 7.0 + np.sin(x[:, 0] / 5) + 3 * x[:, 1] * x[:, 2] + 0.05 * rng.normal(size=n)


def learned(kernel=KERNELS[0], mean=MEANS[1], n_outputs=1, target=0, n=20, scaling=None, **rules):
    """Model of one of the outputs y1, y2, ... with features y1[k-1], ..., u[k-1], ... after n
    updates.
    """
    names = [f"y{i + 1}" for i in range(n_outputs)]
    narx = Narx(dict.fromkeys(names, 1), {"u": 3 - n_outputs}, names[target])
    x, y = samples(6 + n, seed=target)
    scaling = AffineMap.fit(samples(30)[0]) if scaling is None else scaling
    gp = sysid.OnlineGP(kernel, noise_variance=0.01, budget=12, **rules)
    found = Model(narx, scaling, mean, gp.fit(scaling.transform(x[:6]), (y - mean(x))[:6]), ORIGIN)
    found.update_many(x[6:], y[6:] + target)
    return found


def joint(n_outputs, **options):
    return JointModel(
        tuple(learned(n_outputs=n_outputs, target=i, **options) for i in range(n_outputs))
    )


# settings as text


@dataclass(frozen=True)
class Odd:
    """Settings with a field that may have no text."""

    value: object


def test_settings_come_back_from_their_text():
    scales = np.random.default_rng(0).lognormal(size=9) * np.logspace(-12, 12, 9)
    for role, settings in {
        sysid.Acceptance: ACCEPTANCES,
        sysid.Criterion: CRITERIA,
        sysid.Insertion: RULES,
        sysid.Training: [
            sysid.Fixed(1.0, [1.0, 2.0], 0.1),
            sysid.MaximumLikelihood(n_initial=7),
        ],
        sysid.Kernel: [SquaredExponential(np.pi, scales)],
    }.items():
        for one in settings:
            assert sysid.build(sysid.describe(one), role) == one
    content = {
        "class": "sysid.ExceedsMinimum",
        "criterion": {"class": "sysid.MeanRelevance"},
    }
    assert json.loads(sysid.describe(sysid.ExceedsMinimum(sysid.MeanRelevance()))) == content | {
        "reference": "leave_one_out"
    }
    for value in ({}, np.zeros(2), len, Odd):
        with pytest.raises(TypeError, match="expected a dataclass"):
            sysid.describe(Odd(value))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no json", "Expecting value"),
        ('{"class": "os.getcwd"}', "dataclass"),
        ('{"class": "no_such_module.Rule"}', "no_such_module"),
        (sysid.describe(sysid.MeanRelevance()), "Insertion"),
        ('{"class": "sysid.ErrorThreshold", "threshold": 1}', "threshold"),
        ('{"class": "sysid.ErrorThreshold", "error_threshold": -1}', "at least 0"),
    ],
)
def test_foreign_texts_are_refused(text, words):
    with pytest.raises((TypeError, ValueError), match=words):
        sysid.build(text, sysid.Insertion)


# what it was identified from


@pytest.mark.parametrize("predict", ["change", "value"])
def test_the_origin_holds_facts_of_the_output_in_the_rows(predict):
    """Those of y, not of the target: y[1] to y[4], as the first sample only is a lag."""
    y = np.array([1.0, 3.0, 2.0, 6.0, 4.0])
    units = {"y": "degC", "u": "V"}
    one, two = (
        sysid.make_record({"y": y + d, "u": y}, name="r", sampling_time=0.5, units=units)
        for d in (0, 10)
    )
    narx = Narx({"y": 1}, {"u": [0]}, predict=predict)
    origin = Origin.of(narx.dataset(one))
    assert (origin.sampling_time, origin.n_samples, origin.output_range) == (
        0.5,
        4,
        (2.0, 6.0),
    )
    assert origin.units == (("u", "V"), ("y", "degC"))
    assert (origin.output_mean, origin.output_variance) == pytest.approx(
        (np.mean(y[1:]), np.var(y[1:]))
    )
    for each in (origin, Origin()):
        assert Origin(**json.loads(json.dumps(each.to_dict()))) == each
    both = Origin.of(narx.dataset([one, two]))
    assert (both.n_samples, both.output_range) == (8, (2.0, 16.0))
    table = Origin.of(Narx({"y": []}, {"u": [0]}, predict="value").dataset(one))
    assert (table.unit("y"), table.unit("z"), table.output_range) == (
        "degC",
        "",
        (1.0, 6.0),
    )


# maps from features to coordinates

MATRIX = np.array([[1.0, 0.5, 0.0], [0.3, -2.0, 1.0]])
OFFSET = np.array([300.0, -2.0, 0.5])


def test_a_scaling_takes_mean_and_population_standard_deviation():
    x = np.random.default_rng(0).normal(3.0, 7.0, size=(50, 4))
    scaling = AffineMap.fit(x)
    np.testing.assert_allclose(scaling.offset, x.mean(axis=0), rtol=1e-15)
    np.testing.assert_allclose(scaling.scale, x.std(axis=0, ddof=0), rtol=1e-15)
    np.testing.assert_allclose(
        scaling.transform(x), (x - x.mean(axis=0)) / x.std(axis=0), atol=1e-14
    )
    assert scaling.constant == AffineMap.identity(4).constant == ()
    assert (
        AffineMap.identity(4).transform(x).tobytes()
        == AffineMap.identity(4).inverse(x).tobytes()
        == x.tobytes()
    )


@given(arrays(np.float64, (7, 3), elements=st.floats(-1e6, 1e6)))
def test_one_row_gives_the_bits_of_the_batch(x):
    scaling = AffineMap.fit(x)
    mixed = AffineMap.of_matrix(OFFSET, MATRIX)
    np.testing.assert_allclose(
        scaling.inverse(scaling.transform(x)),
        x,
        rtol=1e-12,
        atol=1e-12 * np.abs(x).max(),
    )
    np.testing.assert_allclose(mixed.transform(x), (x - OFFSET) @ MATRIX.T, rtol=1e-12, atol=1e-9)
    for convert in (scaling.transform, scaling.inverse, mixed.transform):
        batch = convert(x)
        for row, found in zip(x, batch, strict=True):
            assert convert(row).tobytes() == convert(row[None]).tobytes() == found.tobytes()
        assert (
            convert(x.tolist()).tobytes()
            == convert(np.asfortranarray(x)).tobytes()
            == batch.tobytes()
        )


def test_a_map_takes_a_checked_array_at_once():
    """A live sample goes through it: one call of a Python function."""
    calls = []
    x = np.ones((1, 3))
    for one in (AffineMap.identity(3), AffineMap.of_matrix(OFFSET, MATRIX)):
        sys.setprofile(
            lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None
        )
        one.transform(x)
        sys.setprofile(None)
    assert calls == ["transform", "transform"]


@pytest.mark.parametrize("value", [0.0, 0.1, -3.7e8, 5e-324])
@pytest.mark.parametrize("n", [1, 3, 200_000])
def test_a_constant_feature_has_scale_one_and_is_reported(value, n):
    x = np.column_stack([np.arange(n), np.full(n, value)])
    scaling = AffineMap.fit(x)
    assert 1 in scaling.constant
    assert (scaling.scale[1], scaling.offset[1]) == (1.0, value)
    np.testing.assert_array_equal(scaling.transform(x)[:, 1], 0.0)


def test_rounding_is_constant_and_a_small_signal_of_any_magnitude_is_not():
    rng = np.random.default_rng(1)
    rounding = 273.15 * (1 + np.finfo(float).eps * rng.integers(-2, 3, size=200))
    small = 273.15 + 1e-6 * rng.normal(size=200)
    assert [AffineMap.fit(x[:, None]).constant for x in (rounding, small)] == [(0,), ()]
    for magnitude in (1e-300, 1e-160, 1e99):
        scaling = AffineMap.fit(magnitude * np.array([[1.0], [2.0], [4.0]]))
        assert scaling.scale[0] / magnitude == pytest.approx(np.std([1.0, 2.0, 4.0]), rel=1e-14)


def test_maps_are_values_that_nobody_changes():
    x = np.random.default_rng(3).normal(size=(9, 3))
    for make in (AffineMap.fit, lambda x: AffineMap.of_matrix(x[0], x[:2])):
        one = make(x)
        same = make(x.copy())
        assert (one, hash(one)) == (same, hash(same))
        assert one not in (make(x + 1e-9), "map")
        with pytest.raises(ValueError, match="read-only"):
            one.offset[0] = 2.0
    offset = np.zeros(1)
    kept = AffineMap(offset, np.ones(1))
    offset[0] = 9.0
    assert kept.offset[0] == 0.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AffineMap([0.0], [1.0, 2.0]), r"AffineMap\(scale\)"),
        (lambda: AffineMap([0.0], [0.0]), r"AffineMap\(scale\) must be positive"),
        (lambda: AffineMap([np.nan], [1.0]), r"AffineMap\(offset\).* finite"),
        (lambda: AffineMap([0.0], [1.0], (1,)), "constant"),
        (lambda: AffineMap.fit(np.zeros(3)), r"\(3,\)"),
        (
            lambda: AffineMap.fit([[1.0, 2.0], [1.0, np.nan], [2.0, np.inf]]),
            r"2 of 6 .* \(1, 1\)",
        ),
        (lambda: AffineMap.identity(3).transform(np.zeros(2)), r"\(2,\)"),
        (lambda: AffineMap.identity(3).transform(np.zeros((1, 1, 3))), r"\(1, 1, 3\)"),
        (
            lambda: AffineMap.of_matrix([0.0], [[1.0, 2.0]]),
            r"AffineMap\(matrix\).*\(n, 1\)",
        ),
        (
            lambda: AffineMap.of_matrix([0.0], np.zeros((0, 1))),
            r"AffineMap\(matrix\) must have rows",
        ),
        (lambda: AffineMap([0.0], [2.0], matrix=[[1.0]]), "scale must be 1"),
        (lambda: AffineMap.of_matrix([0.0], [[1.0]]).inverse([1.0]), "matrix"),
        (
            lambda: replace(learned(), scaling=AffineMap.of_matrix(OFFSET, MATRIX)),
            r"coordinates, got \(2, 3\)",
        ),
        (
            lambda: replace(learned(), limits=(2.0, 1.0)),
            r"low < high .* got \(2.0, 1.0\)",
        ),
        (lambda: replace(learned(), mean=LinearMean([1.0])), "expected 3 coefficients"),
        (lambda: ConstantMean(np.nan), "value must be finite"),
        (lambda: LinearMean(intercept=np.nan), "finite"),
        (lambda: LinearMean(ridge=-1.0), "ridge must be"),
        (lambda: Cooling().check(1), "asks for more"),
        (lambda: Square(slice(1)).check(3), r"\(2, 1\)"),
        (lambda: Origin(sampling_time=np.nan), "sampling_time"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# mean functions


@pytest.mark.parametrize(
    ("mean", "value", "slopes"),
    [
        (sysid.ZeroMean(), lambda a, b: 0.0 * a, lambda a, b: (0.0 * a, 0.0 * a)),
        (
            ConstantMean(1.5),
            lambda a, b: 1.5 + 0.0 * a,
            lambda a, b: (0.0 * a, 0.0 * a),
        ),
        (
            LinearMean([0.5, -2.0], 3.0),
            lambda a, b: 3 + 0.5 * a - 2 * b,
            lambda a, b: (0.5 + 0 * a, -2 + 0 * a),
        ),
        (
            LinearMean(intercept=0.7),
            lambda a, b: 0.7 + 0.0 * a,
            lambda a, b: (0.0 * a, 0.0 * a),
        ),
        (
            Cooling(0.3),
            lambda a, b: 0.3 * np.tanh(b - a),
            lambda a, b: np.array([[-0.3], [0.3]]) / np.cosh(b - a) ** 2,
        ),
        (Square(), lambda a, b: 1e-6 * a**2, lambda a, b: (2e-6 * a, 0.0 * a)),
    ],
    ids=lambda value: repr(value) if isinstance(value, sysid.MeanFunction) else "",
)
def test_values_and_gradient_of_a_mean(mean, value, slopes):
    x = np.random.default_rng(1).normal(size=(5, 2)) * (1e6 if isinstance(mean, Square) else 1.0)
    np.testing.assert_allclose(mean(x), value(*x.T), rtol=1e-14)
    np.testing.assert_allclose(mean.gradient(x).T, slopes(*x.T), rtol=1e-7, atol=1e-7)


def test_a_mean_is_fitted_by_least_squares():
    x = np.random.default_rng(0).normal(size=(7, 2)) * [3.0, 200.0]
    y = 4.0 + x @ [0.5, -0.01] + np.random.default_rng(2).normal(size=7)
    for mean in (sysid.ZeroMean(), Cooling(0.3)):
        assert mean.fitted(x, y) == mean
    assert ConstantMean(9.0).fitted(x, y) == ConstantMean(float(y.mean()))
    expected = np.linalg.lstsq(np.column_stack([x, np.ones(7)]), y, rcond=None)[0]
    free = LinearMean().fitted(x, y)
    held = LinearMean(ridge=50.0).fitted(x, y)
    assert LinearMean([9.0, 9.0], 9.0).fitted(x, y) == LinearMean(
        [9.0, 9.0], 9.0
    )  # given ones stay
    np.testing.assert_allclose([*free.coefficients, free.intercept], expected, rtol=1e-10)
    assert held.ridge == 50.0
    assert np.all(np.abs(held.coefficients) < np.abs(free.coefficients))


def identified(mean):
    training = sysid.MaximumLikelihood(n_initial=12, restarts=1, max_iterations=5)
    return sysid.Identification(
        Narx({"y": 1}, {"u": 2}), sysid.Settings(training=training, mean=mean, budget=8)
    )


@pytest.mark.parametrize(
    "mean", [sysid.ZeroMean(), ConstantMean(), LinearMean(), Cooling()], ids=repr
)
def test_a_mean_is_fitted_to_the_first_samples_and_kept(mean):
    """One by one or all at once, the same bits."""
    x, y = samples(36)
    one = identified(mean)
    many = identified(mean)
    reports = [one.observe(point, target) for point, target in zip(x, y, strict=True)]
    np.testing.assert_array_equal(
        [r.mean if r else np.nan for r in reports], many.observe_many(x, y)["mean"]
    )
    assert one.model.mean == many.model.mean == mean.fitted(x[:12], y[:12])
    np.testing.assert_array_equal(one.model.predict(x), many.model.predict(x))


# predictions


@pytest.mark.parametrize(
    "scaling",
    [AffineMap(OFFSET, np.array([2.0, 3.0, 0.5])), AffineMap.of_matrix(OFFSET, MATRIX)],
)
def test_the_model_is_a_gp_with_the_metric_of_its_map(scaling):
    x, y, x_new = *samples(30), samples(8, seed=1)[0]
    q = scaling.n_coordinates
    gp = sysid.OnlineGP(SquaredExponential(1.5, [3.0] * q), noise_variance=0.01, budget=30)
    model = Model(
        Narx({"y": 1}, {"u": 2}),
        scaling,
        ConstantMean(0.25),
        gp.fit(scaling.transform(x), y - 0.25),
    )
    metric = scaling.linear_part().T @ scaling.linear_part() / 9.0

    def kernel(a, b):
        difference = a[:, None, :] - b[None, :, :]
        return 1.5 * np.exp(-0.5 * np.einsum("ijp,pq,ijq->ij", difference, metric, difference))

    ky = kernel(x, x) + 0.01 * np.eye(30)
    k = kernel(x_new, x)
    mean, variance = model.predict(x_new)
    np.testing.assert_allclose(mean, 0.25 + k @ np.linalg.solve(ky, y - 0.25), rtol=1e-7)
    np.testing.assert_allclose(
        variance,
        1.5 - np.sum(k * np.linalg.solve(ky, k.T).T, axis=1),
        rtol=1e-6,
        atol=1e-8,
    )
    expected = (
        {"z1": 3.0, "z2": 3.0}
        if q == 2
        else dict(zip(model.narx.feature_names, 3 * scaling.scale, strict=True))
    )
    described = json.loads(json.dumps(model.hyperparameters, allow_nan=False))
    assert described["kernel"]["length_scales"] == expected
    assert (described["noise_variance"], described["mean"]) == (
        0.01,
        {"class": "ConstantMean", "value": 0.25},
    )


def test_an_update_reports_what_the_model_predicts():
    model, (x, y) = learned(mean=MEANS[2]), samples(2, seed=5)
    expected = model.predict(x)
    report = model.update(x[0], y[0])
    np.testing.assert_allclose(
        [report.mean, report.variance], [part[0] for part in expected], rtol=1e-9
    )
    expected = model.predict(x)
    reports = model.update_many(x[1:], y[1:])
    np.testing.assert_allclose(
        [reports["mean"], reports["variance"]],
        [part[1:] for part in expected],
        rtol=1e-9,
    )


def test_limits_bound_the_simulation_only():
    free = unstable(1.3)
    bounded = replace(free, limits=(-np.inf, 20.0))
    assert bounded.predict([[100.0, 0.0]]).mean == free.predict([[100.0, 0.0]]).mean
    held, runs_away = (
        sysid.free_run(each, np.zeros((40, 1)), np.ones((1, 1))) for each in (bounded, free)
    )
    assert held.mean.max() == 20.0
    assert np.nanmax(runs_away.mean) > 300.0
    assert (held.n_held, runs_away.n_held) == (np.sum(held.mean == 20.0), 0)
    below = sysid.free_run(
        replace(free, limits=(-20.0, np.inf)), np.zeros((40, 1)), -np.ones((1, 1))
    )
    assert below.n_held == np.sum(below.mean == -20.0) > 0
    known = replace(
        bounded, origin=sysid.Origin(output_range=(0.0, 20.0))
    )  # saturates as the data does
    assert sysid.free_run(known, np.zeros((40, 1)), np.ones((1, 1))).n_held == 0


@dataclass(frozen=True)
class Bent(LinearMean):
    """A linear mean with a formula of its own."""

    def __call__(self, regressors):
        return np.tanh(super().__call__(regressors))


def test_a_linear_mean_with_another_formula_is_simulated_by_it():
    model = replace(unstable(1.3), mean=Bent((1.3, 0.0), 0.0))
    found = sysid.free_run(model, np.zeros((9, 1)), np.ones((1, 1))).mean[:, 0]
    y = [1.0]
    for _ in range(8):
        y.append(model.predict([[y[-1], 0.0]]).mean[0])
    np.testing.assert_allclose(found, y[1:], rtol=1e-12)
    with pytest.raises(ValueError, match="Bent"):
        sysid.free_run(model, np.zeros((9, 1)), np.ones((1, 1)), propagation=sysid.MomentMatching())


# several outputs


def test_models_come_in_the_order_of_the_outputs():
    first, second = joint(2).models
    found = JointModel((second, first))
    assert found.models == (first, second)
    assert (found.output_names, found.input_names, found.origin) == (
        ("y1", "y2"),
        ("u",),
        ORIGIN,
    )
    assert JointModel.of(found) is found


def change(one, part, **facts):
    return replace(one, **{part: replace(getattr(one, part), **facts)})


@pytest.mark.parametrize(
    ("choose", "words"),
    [
        (lambda first, second: (), "got none"),
        (lambda first, second: (first,), r"models of \['y1'\]"),
        (lambda first, second: (first, first), r"models of \['y1', 'y1'\]"),
        (
            lambda first, second: (first, change(second, "origin", sampling_time=2.0)),
            r"sampling time .* 0.5 .* 2.0",
        ),
        (
            lambda first, second: (first, change(second, "origin", units={"u": "kN"})),
            "units",
        ),
        (
            lambda first, second: (first, change(second, "narx", predict="value")),
            "kind of target",
        ),
        (
            lambda first, second: (first, change(second, "narx", inputs={"u": [2]})),
            "lags",
        ),
    ],
)
def test_models_that_do_not_belong_together_are_refused(choose, words):
    with pytest.raises(ValueError, match=words):
        JointModel(choose(*joint(2).models))


# files


def assert_same_future(one, *others):
    """All are equal, predict and learn the same bits from here on."""
    x, y = samples(12, seed=2)
    for other in others:
        xr.testing.assert_equal(other.to_dataset(), one.to_dataset())
        for name in ("narx", "scaling", "mean", "origin", "limits", "hyperparameters"):
            assert getattr(other, name) == getattr(one, name)
    for point, target in zip(x, y, strict=True):
        expected = one.predict(x)
        report = one.update(point, target)
        for other in others:
            np.testing.assert_array_equal(other.predict(x), expected)
            np.testing.assert_equal(other.update(point, target), report)


@pytest.mark.parametrize("i", range(len(ACCEPTANCES)))
def test_a_file_gives_back_every_kernel_mean_rule_and_number_of_outputs(i, tmp_path):
    """They take turns; saving changes nothing."""
    rules = {"insertion": RULES[i % len(RULES)], "acceptance": ACCEPTANCES[i]}
    rules["reduction"] = CRITERIA[(i + i // len(KERNELS)) % len(CRITERIA)]
    parts = {
        "kernel": KERNELS[i % len(KERNELS)],
        "mean": MEANS[(i // 2) % len(MEANS)],
        "n_outputs": 1 + i % 2,
    }
    saved = joint(**parts, **rules)
    twin = joint(**parts, **rules)
    saved.save(tmp_path / "model.nc")
    loaded = JointModel.load(tmp_path / "model.nc")
    for again, one, other in zip(loaded.models, saved.models, twin.models, strict=True):
        assert {name: getattr(again.gp, name) for name in rules} == rules
        assert_same_future(one, again, other)


MIXED = AffineMap.of_matrix(OFFSET, MATRIX)
SPECIAL = {
    "not full": lambda: learned(n=1),
    "limited": lambda: replace(learned(), limits=(-np.inf, 20.0)),
    "constant feature": lambda: learned(scaling=AffineMap.fit(samples(30)[0] * [1.0, 1.0, 0.0])),
    "empty": lambda: replace(
        learned(),
        gp=sysid.OnlineGP(KERNELS[0], noise_variance=0.01, budget=5),
        origin=Origin(),
    ),
    "combinations": lambda: learned(SquaredExponential(1.0, [1.0, 2.0]), scaling=MIXED),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_a_file_gives_back_special_models(name, tmp_path):
    model = SPECIAL[name]()
    model.save(tmp_path / "model.nc", attributes={"seed": 7})
    assert store.read(tmp_path / "model.nc", kind="model").attrs["seed"] == 7
    again = Model.load(tmp_path / "model.nc")
    assert again.constant_features == ((2,) if name == "constant feature" else ())
    assert_same_future(model, again)


DATASET = learned().to_dataset()


def test_files_that_hold_no_such_model_are_refused(tmp_path):
    path = tmp_path / "model.nc"
    store.write(xr.Dataset({"a": ("x", [1.0])}), path, kind="result")
    for load in (Model.load, JointModel.load):
        with pytest.raises(sysid.StoreError, match="result"):
            load(path)
    joint(2).save(path)
    with pytest.raises(sysid.StoreError, match="JointModel"):
        Model.load(path)
    store.write_groups({"y1": joint(2).models[0].to_dataset()}, path, kind="model")
    with pytest.raises(sysid.StoreError, match=r"model\.nc cannot be simulated"):
        JointModel.load(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(sysid.StoreError, match=r"model\.nc"):
        JointModel.load(path)


WRONG = {
    "budget": ["many", float("inf"), 10**6, 10**15],
    "pending": ["[1]", "[" * 10**5 + "]" * 10**5],
    "noise_variance": [-1.0, 0.5, "small"],
    "kernel": [
        "no json",
        '{"class": "os.path.join"}',
        sysid.describe(SquaredExponential(1.0, [1.0])),
    ],
    "insertion": [sysid.describe(sysid.MeanRelevance())],
    "narx": [
        "{}",
        "[1]",
        '{"outputs": {"y": 2}, "hidden": 3}',
        json.dumps(Narx({"y1": 2}).to_dict()),
    ],
    "counts": ["3", '{"points": "a"}'],
    "constant_features": ["[99]", "null"],
    "mean": [
        "zero",
        sysid.describe(ConstantMean(0.0)).replace("0.0", "NaN"),
        sysid.describe(LinearMean([1.0])),
    ],
    "bands": ["[[3, 1.0], [1, 1.0]]", "[[1, 0.0]]", "[[0, 1.0]]", "[3]", "wide"],
    "output_limits": [[2.0, 1.0], 3.0, "none", [float("nan"), 1.0]],
    "origin": ["none", "[]", '{"sampling_time": -1}', '{"unknown": 1}'],
}
FACTORS = dict.fromkeys(
    (
        "inputs",
        "targets",
        "cholesky",
        "factor",
        "weights",
        "whitened",
        "pivots",
        "precision",
    ),
    1.01,
)
FACTORS |= {"order": 0, "feature_scale": -1.0}


def test_a_file_whose_content_does_not_fit_together_is_refused():
    """Whatever its digest says: a model whose factor is not that of its points predicts
    nonsense.
    """
    damaged = [DATASET.drop_vars(name) for name in DATASET.data_vars]
    damaged += [
        DATASET.assign(number=DATASET["number"] + 10**9),
        DATASET.assign(errors=-DATASET["errors"]),
    ]
    damaged += [DATASET.assign({name: factor * DATASET[name]}) for name, factor in FACTORS.items()]
    damaged += [
        DATASET.assign_attrs({name: value}) for name, values in WRONG.items() for value in values
    ]
    for name in DATASET.attrs.keys() - {"digest"}:
        damaged.append(DATASET.copy())
        del damaged[-1].attrs[name]
    for dataset in damaged:
        with pytest.raises(sysid.StoreError, match=r"model\.nc is not a complete model") as found:
            Model.restored(dataset.assign_attrs(digest=digest(dataset)), "model.nc")
        assert "digest" not in str(found.value)


def test_what_fits_but_was_edited_is_refused():
    offset = DATASET["feature_offset"] + 1e-9
    narx = DATASET.attrs["narx"].replace("change", "value")
    facts = [{"output_limits": [0.0, 10.0]}, {"narx": narx}, {"digest": ""}]
    for edited in (
        DATASET.assign(feature_offset=offset),
        *(DATASET.assign_attrs(fact) for fact in facts),
    ):
        with pytest.raises(sysid.StoreError, match="edited after it was saved"):
            Model.restored(edited, "model.nc")
    assert Model.restored(DATASET.assign_attrs(history="looked at"), "model.nc").gp.n_points == 12


# the record of an identification

REPORTS = [
    sysid.UpdateReport(0.1, 0.2, False, False, False, -1, -1, 2, np.nan, np.nan, np.nan),
    sysid.UpdateReport(0.3, 0.4, False, True, True, 2, -1, 3, np.nan, np.nan, np.nan),
    sysid.UpdateReport(0.5, 0.6, False, True, True, 1, 1, 3, 1.5, 0.5, -2.0),
    sysid.UpdateReport(0.7, 0.8, False, True, False, -1, -1, 3, 0.1, 0.5, np.nan),
]
RECORD = np.concatenate(
    [
        NOT_PREDICTED,
        NOT_PREDICTED,
        np.array([*map(tuple, REPORTS)], dtype=NOT_PREDICTED.dtype),
    ]
)
RECORD["n_points"][1] = 2


def result_of(n_steps=6, n=3):
    """Record of so many steps and n validation rows of a temperature."""
    k = np.arange(n_steps)
    signals = {"target": ("sample", 1.0 + k), "previous": ("sample", 20.0 + k)}
    steps = xr.Dataset(signals, {"time": ("sample", 900.0 * k), "record": ("sample", 0 * k)})
    zone = xr.Variable(
        "time", 20 + np.sin(np.arange(n + 2)), {"units": "degC", "long_name": "zone"}
    )
    data = xr.Dataset({"zone": zone}, coords={"time": 900.0 * np.arange(7, 9 + n)})
    rows = Narx({"zone": 1}).dataset(data).isel(sample=slice(0, n))
    predicted = sysid.Prediction(np.linspace(0, 1, n), np.linspace(1, 2, n))
    return (
        result_dataset(steps, RECORD[:n_steps], rows, predicted, sysid.Target.change),
        rows,
        predicted,
    )


def test_a_result_has_one_entry_per_sample_of_every_phase_in_the_units_of_the_target():
    result, rows, predicted = result_of()
    expected = {
        "phase": [INITIAL] * 2 + [ONLINE] * 4 + [VALIDATION] * 3,
        "target": [1, 2, 3, 4, 5, 6, *rows["target"].values],
        "previous": [20, 21, 22, 23, 24, 25, *rows["previous"].values],
        "time": [*(900.0 * np.arange(6)), *rows["time"].values],
        "mean": [np.nan, np.nan, *(report.mean for report in REPORTS), *predicted.mean],
        "variance": [
            np.nan,
            np.nan,
            *(report.variance for report in REPORTS),
            *predicted.variance,
        ],
        "slot": [-1, -1, *(report.slot for report in REPORTS), -1, -1, -1],
        "inserted": [
            False,
            False,
            *(report.inserted for report in REPORTS),
            False,
            False,
            False,
        ],
        "n_points": [0, 2, 2, 3, 3, 3, 3, 3, 3],
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(result[name].values, values)
    assert set(result.data_vars) == {
        *sysid.UpdateReport._fields,
        "target",
        "previous",
        "unchanged",
        "phase",
    }
    units = {
        "target": "K",
        "mean": "K",
        "variance": "K2",
        "previous": "degC",
        "time": "s",
    }
    assert {name: result[name].attrs["units"] for name in units} == units


MODEL = Model(
    Narx(outputs={"zone": 1}, inputs={"power": 1}),
    AffineMap(np.array([20.0, 0.0]), np.array([2.0, 500.0])),
    sysid.ZeroMean(),
    sysid.OnlineGP(SquaredExponential(1.0, [1.0, 1.0]), noise_variance=0.1, budget=3),
)
ESTIMATES = [
    sysid.Estimate(
        3,
        Reason.errors,
        4.5,
        50,
        -9.0,
        -2.0,
        17,
        0.25,
        SquaredExponential(3.0, [0.5, 2.0]),
        0.07,
    ),
    sysid.Estimate(
        6,
        Reason.revised,
        1.1,
        20,
        -1.0,
        -0.5,
        9,
        0.5,
        SquaredExponential(4.0, [0.25, 4.0]),
        0.05,
    ),
]


def test_estimates_are_in_the_units_of_the_data():
    found = with_estimates(result_of()[0], ESTIMATES, MODEL)
    expected = {
        "sample": [2, 5],
        "time": [1800.0, 4500.0],
        "reason": [0, 1],
        "statistic": [4.5, 1.1],
        "gain": [7.0, 0.5],
        "variance": [3.0, 4.0],
        "noise_variance": [0.07, 0.05],
        "length_scale": [[1.0, 1000.0], [0.5, 2000.0]],
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(found[f"estimate_{name}"].values, values)
    units = {"noise_variance": "K2", "variance": "K2", "time": "s"}
    assert {name: found[f"estimate_{name}"].attrs["units"] for name in units} == units
    assert found["estimate_reason"].attrs["flag_meanings"] == "errors revised doubled"
    assert found["feature"].values.tolist() == ["zone[k-1]", "power[k-1]"]
    assert json.loads(found.attrs["estimate_seconds"]) == [0.25, 0.5]


@pytest.mark.parametrize("estimates", [ESTIMATES, []], ids=["two", "none"])
@pytest.mark.parametrize(("n_steps", "n"), [(6, 3), (6, 0), (2, 0), (0, 3)])
def test_a_result_comes_back_from_its_file_and_every_part_may_be_empty(
    n_steps, n, estimates, tmp_path
):
    """The types do not depend on the content."""
    full = with_estimates(result_of()[0], ESTIMATES, MODEL)
    result = with_estimates(result_of(n_steps, n)[0], estimates if n_steps == 6 else [], MODEL)
    assert result.sizes["sample"] == n_steps + n
    again = store.read(store.write(result, tmp_path / "result.nc", kind="result"), kind="result")
    for name in full.variables:
        np.testing.assert_array_equal(again[name].values, result[name].values)
        assert again[name].dtype == full[name].dtype, name
