"""Linear models of several orders: their features and recursion against naive loops and batches."""

import numpy as np
import pytest

from sysid.simulation.linear_models import HeldOutErrors, lag_signals, recursive_least_squares

SIZES = [1, 3, 4]


# --- features


def naive_lags(signals, first_lags, n_lags, k):
    """Return the features of sample k, and the number of lags that all signals have."""
    features = np.empty((n_lags, len(first_lags)))
    n_known = n_lags
    for column, (name, first_lag) in enumerate(first_lags.items()):
        values = signals[name]
        known = []
        for lag in range(first_lag, first_lag + n_lags):
            if k - lag < 0 or not np.isfinite(values[k - lag]):
                break
            known.append(values[k - lag])
        missing = [known[-1] if known else np.nan] * (n_lags - len(known))
        features[:, column] = known + missing
        n_known = min(n_known, len(known))
    return features.ravel(), n_known


def test_no_lag_crosses_the_start_of_a_record_or_a_gap():
    rng = np.random.default_rng(0)
    signals = {name: rng.normal(size=60) for name in ("y", "u", "unused")}
    signals["y"][[20, 21, 40]] = np.nan
    signals["u"][[0, 33]] = np.inf
    samples = np.setdiff1d(np.arange(1, 60), [7])
    first_lags = {"u": 0, "y": 1}

    lagged = lag_signals(signals, first_lags, 5, samples)

    expected = [naive_lags(signals, first_lags, 5, k) for k in samples]
    features, n_known = zip(*expected, strict=True)
    is_measured = np.isfinite(features)
    np.testing.assert_array_equal(np.isfinite(lagged.features), is_measured)
    np.testing.assert_array_equal(lagged.features[is_measured], np.array(features)[is_measured])
    np.testing.assert_array_equal(lagged.n_known, n_known)
    assert {*n_known} == set(range(6))


def test_lags_before_the_start_of_a_record_are_not_known():
    signals = {"u": np.arange(12.0), "y": np.arange(12.0)}
    first_lags = {"u": 7, "y": 1}
    samples = np.arange(2, 12)
    lagged = lag_signals(signals, first_lags, 3, samples)
    expected = [naive_lags(signals, first_lags, 3, k) for k in samples]
    np.testing.assert_array_equal(lagged.features, [features for features, _ in expected])
    np.testing.assert_array_equal(lagged.n_known, [n_known for _, n_known in expected])


def test_held_out_errors_of_many_models_are_those_of_each():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 5))
    y = x[:, 0] - 0.5 * x[:, 3] + 0.1 * rng.normal(size=60)
    held_out = HeldOutErrors(x, y, 5)
    models = np.array([[0, 1], [0, 3], [2, 4]])
    expected = [held_out.rmse(list(model)) for model in models]
    np.testing.assert_allclose(held_out.rmse_of_many(models), expected, rtol=1e-6)


def test_rows_that_are_left_out_are_predicted_but_not_learned():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 3))
    y = x[:, 0] - 0.5 * x[:, 2] + 0.1 * rng.normal(size=60)
    y[[7, 40]] += 20.0
    is_left_out = y > 10.0
    held_out = HeldOutErrors(x, y, 5)
    assert held_out.rmse([0, 2]) == pytest.approx(np.sqrt(np.mean(held_out.residuals([0, 2]) ** 2)))

    held_out.leave_out(is_left_out)

    expected = np.empty(60)
    design = np.column_stack([np.ones(60), x[:, [0, 2]]])
    for rows in np.array_split(np.arange(60), 5):
        learned = np.setdiff1d(np.flatnonzero(~is_left_out), rows)
        theta = np.linalg.lstsq(design[learned], y[learned], rcond=None)[0]
        expected[rows] = y[rows] - design[rows] @ theta
    np.testing.assert_allclose(held_out.residuals([0, 2]), expected, rtol=1e-9)
    assert held_out.rmse([0, 2]) == pytest.approx(np.sqrt(np.mean(expected**2)))
    models = np.array([[0, 2], [1, 2]])
    each = [held_out.rmse(list(model)) for model in models]
    np.testing.assert_allclose(held_out.rmse_of_many(models), each, rtol=1e-6)
    cut = np.clip(expected, -0.15, 0.15)
    assert held_out.rmse([0, 2], 0.15) == pytest.approx(np.sqrt(np.mean(cut**2)))


# --- recursion


def regularised_batch(x, t, ridge):
    """Return the minimiser of ``ridge |theta|^2 + |t - x theta|^2`` by the normal equations."""
    return np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ t)


@pytest.mark.parametrize("ridge", [1e-6, 0.1, 10.0])
def test_each_prediction_is_that_of_the_batch_of_all_samples_before(ridge):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(80, 4))
    t = 2.0 + x @ [1.0, -2.0, 0.5, 3.0] + rng.normal(size=80)
    is_learned = rng.uniform(size=80) < 0.8

    predicted = recursive_least_squares(x, t, SIZES, is_learned=is_learned, ridge=ridge)

    expected = np.empty((80, len(SIZES)))
    for k in range(80):
        before = np.flatnonzero(is_learned[:k])
        for j, size in enumerate(SIZES):
            expected[k, j] = x[k, :size] @ regularised_batch(x[before, :size], t[before], ridge)
    np.testing.assert_allclose(predicted, expected, rtol=1e-6, atol=1e-9)


def test_features_that_are_almost_the_same_do_not_harm_the_recursion():
    """The normal equations of these features have no correct digit."""
    rng = np.random.default_rng(2)
    base = rng.normal(size=(3000, 1))
    x = np.column_stack([base, base + 1e-7 * rng.normal(size=(3000, 1)), np.ones(3000)])
    t = x @ [1.0, 2.0, 3.0]
    predicted = recursive_least_squares(x, t, [3], ridge=1e-20)[:, 0]
    np.testing.assert_allclose(predicted[100:], t[100:], atol=1e-7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": []}, "expected increasing sizes from 1 to 4"),
        ({"sizes": [0, 2]}, "expected increasing sizes from 1 to 4"),
        ({"sizes": [3, 3]}, "expected increasing sizes from 1 to 4"),
        ({"sizes": [5]}, "expected increasing sizes from 1 to 4"),
        ({"ridge": 0.0}, "expected a finite number above 0"),
        ({"is_learned": [True]}, "expected is_learned with 9 values"),
        ({"targets": np.ones(8)}, "targets"),
        ({"targets": np.full(9, np.nan)}, "targets: 9 of 9 values are not finite"),
    ],
)
def test_a_mistake_is_refused(changes, message):
    given = {"features": np.ones((9, 4)), "targets": np.ones(9), "sizes": SIZES} | changes
    with pytest.raises(ValueError, match=message):
        recursive_least_squares(**given)
