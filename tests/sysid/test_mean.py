"""Mean functions: values, slopes, what is fitted of them, and the models that have one."""

from dataclasses import dataclass

import numpy as np
import pytest

from sysid.identify import Identification, Settings
from sysid.mean import ConstantMean, LinearMean, MeanFunction, ZeroMean
from sysid.model import Model
from sysid.narx import Narx
from sysid.store import StoreError
from sysid.training import Fixed, MaximumLikelihood


@dataclass(frozen=True)
class Cooling(MeanFunction):
    """A user's own: it has neither a gradient nor anything to be fitted."""

    rate: float = 0.1

    def __call__(self, regressors):
        return self.rate * np.tanh(regressors[:, 1] - regressors[:, 0])


MEANS = [ZeroMean(), ConstantMean(1.5), LinearMean([0.5, -2.0], 3.0), LinearMean(intercept=0.7), Cooling(0.3)]
X = np.random.default_rng(0).normal(size=(7, 2)) * [3.0, 200.0]


def test_values():
    np.testing.assert_array_equal(ZeroMean()(X), np.zeros(7))
    np.testing.assert_array_equal(ConstantMean(1.5)(X), np.full(7, 1.5))
    np.testing.assert_allclose(LinearMean([0.5, -2.0], 3.0)(X), 3.0 + X @ [0.5, -2.0], rtol=1e-14)
    np.testing.assert_array_equal(LinearMean(intercept=0.7)(X), np.full(7, 0.7))


@pytest.mark.parametrize("mean", MEANS, ids=repr)
def test_gradients_are_those_of_differences(mean):
    rng, step = np.random.default_rng(1), 1e-5
    x = rng.normal(size=(5, 2))
    found = mean.gradient(x)
    assert found.shape == x.shape
    for d in range(2):
        shift = step * np.eye(2)[d]
        np.testing.assert_allclose(found[:, d], (mean(x + shift) - mean(x - shift)) / (2 * step), atol=1e-7)


def test_the_step_of_a_difference_grows_with_the_feature():
    """About 1e6 a step of 1e-5 would be lost in rounding."""

    @dataclass(frozen=True)
    class Square(MeanFunction):
        def __call__(self, regressors):
            return regressors[:, 0] ** 2

    np.testing.assert_allclose(Square().gradient(np.array([[1e6], [1e-3]])), [[2e6], [2e-3]], rtol=1e-6)


def test_what_is_fitted():
    y = 4.0 + X @ [0.5, -0.01] + np.random.default_rng(2).normal(size=7)
    assert ZeroMean().fitted(X, y) == ZeroMean()
    assert Cooling(0.3).fitted(X, y) == Cooling(0.3)
    assert ConstantMean(9.0).fitted(X, y) == ConstantMean(float(y.mean()))
    intercept, *slopes = np.linalg.lstsq(np.column_stack([np.ones(7), X]), y, rcond=None)[0]
    found = LinearMean([9.0, 9.0], 9.0).fitted(X, y)
    np.testing.assert_allclose([found.intercept, *found.coefficients], [intercept, *slopes], rtol=1e-10)


def test_a_ridge_shrinks_and_is_kept():
    y = X @ [0.5, -0.01]
    free, held = LinearMean().fitted(X, y), LinearMean(ridge=50.0).fitted(X, y)
    assert held.ridge == 50.0
    assert np.all(np.abs(held.coefficients) < np.abs(free.coefficients))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ConstantMean(np.nan), "value must be finite"),
        (lambda: LinearMean([np.inf]), "must be finite"),
        (lambda: LinearMean(intercept=np.nan), "must be finite"),
        (lambda: LinearMean(ridge=-1.0), "ridge must be"),
        (lambda: LinearMean([1.0]).check(2), "expected 2 coefficients"),
        (lambda: Cooling().check(1), "asks for more"),
    ],
)
def test_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_mean_of_another_shape_is_refused():
    @dataclass(frozen=True)
    class Column(MeanFunction):
        def __call__(self, regressors):
            return regressors[:, :1]

    with pytest.raises(ValueError, match=r"\(2, 1\)"):
        Column().check(3)


NARX = Narx({"y": 1}, {"u": 1}, predict="value")
QUICK = MaximumLikelihood(n_initial=12, restarts=1, max_iterations=5)


def rows(n=36):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, 2)) * [1.0, 5.0] + [20.0, 0.0]
    return x, 0.8 * x[:, 0] + 0.1 * x[:, 1] + 0.3 * np.sin(x[:, 0]) + 0.01 * rng.normal(size=n)


def identified(mean, training=QUICK):
    return Identification(NARX, Settings(training=training, mean=mean, budget=8))


@pytest.mark.parametrize("mean", [ZeroMean(), ConstantMean(), LinearMean(), Cooling()], ids=repr)
def test_one_by_one_or_all_at_once_gives_the_same_bits(mean, tmp_path):
    x, y = rows()
    one, many = identified(mean), identified(mean)
    reports = [one.observe(point, target) for point, target in zip(x, y, strict=True)]
    together = many.observe_many(x, y)
    np.testing.assert_array_equal([report.mean for report in reports if report is not None], together.mean)
    assert one.model.mean == many.model.mean == mean.fitted(x[:12], y[:12])
    for a, b in zip(one.model.predict(x), many.model.predict(x), strict=True):
        np.testing.assert_array_equal(a, b)
    many.model.save(tmp_path / "model.nc")
    again = Model.load(tmp_path / "model.nc")
    assert again.mean == many.model.mean
    for a, b in zip(again.predict(x), many.model.predict(x), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_gaussian_process_sees_what_the_mean_leaves():
    """Prediction = mean function + that of a process trained on the residuals."""
    x, y = rows()
    mean = LinearMean().fitted(x[:12], y[:12])
    with_mean, of_residuals = identified(LinearMean()), identified(ZeroMean())
    with_mean.observe_many(x, y)
    of_residuals.observe_many(x, y - mean(x))
    np.testing.assert_allclose(
        with_mean.model.predict(x).mean, mean(x) + of_residuals.model.predict(x).mean, rtol=1e-12
    )
    np.testing.assert_allclose(with_mean.model.predict(x).variance, of_residuals.model.predict(x).variance, rtol=1e-9)


def test_fixed_training_takes_the_mean_as_it_is():
    x, y = rows()
    given = LinearMean([0.8, 0.1], 0.05)
    found = identified(given, Fixed(1.0, [1.0, 5.0], 0.01))
    found.observe_many(x, y)
    assert found.model.mean == given


def test_far_away_the_mean_is_what_is_left():
    x, y = rows()
    found = identified(LinearMean())
    found.observe_many(x, y)
    far = np.array([[1e6, -1e6]])
    assert found.model.predict(far).mean[0] == pytest.approx(found.model.mean(far)[0], rel=1e-9)


def test_a_mean_for_other_features_is_refused(tmp_path):
    x, y = rows()
    with pytest.raises(ValueError, match="expected 2 coefficients"):
        identified(LinearMean([1.0]), Fixed(1.0, 1.0, 0.01)).observe_many(x, y)


def test_a_file_whose_mean_is_not_to_be_found_is_refused(tmp_path):
    @dataclass(frozen=True)
    class Local(ZeroMean):
        pass

    x, y = rows()
    found = identified(Local())
    found.observe_many(x, y)
    found.model.save(tmp_path / "model.nc")
    with pytest.raises(StoreError, match="Local"):
        Model.load(tmp_path / "model.nc")
