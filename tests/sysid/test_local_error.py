"""The local model error model: what errors of a simulation near a point have to do with inputs."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from sysid import AffineMap, ConstantMean, Linear, Model, Narx, OnlineGP, Origin, make_record
from sysid.model import local_error
from sysid.model.local_error import (
    LOCAL_WIDTH,
    N_CORRECTED_LAGS,
    WHITENING_ORDER,
    SimulatedErrors,
    local_correction,
)

FEEDBACK = np.array([0.7, -0.1])
FIRST_LAGS = {"u": 1, "v": 0}
NOISE = 0.05


def simulate_errors(n=600, size=0.3, seed=0):
    """Return errors that depend on u[k-2] behind the feedback, by `size`, and not on v."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=n + 3)
    v = rng.normal(size=n + 3)
    errors = np.zeros(n)
    for k in range(n):
        now = k + 3
        errors[k] = size * u[now - 2] + NOISE * rng.normal()
        errors[k] += sum(a * errors[k - 1 - i] for i, a in enumerate(FEEDBACK) if k > i)
    regressors = np.column_stack([u[2:-1], v[3:]])
    return SimulatedErrors(errors, regressors, {"u": u, "v": v})


def correct_naively(found, decay, variance, point):
    """Return log evidence, mean and covariance by sums over samples and the formulas of Gauss."""
    n = len(found.errors)
    features = [
        (name, FIRST_LAGS[name] + j) for name in FIRST_LAGS for j in range(N_CORRECTED_LAGS)
    ]
    responses = np.zeros((n, len(features)))
    for column, (name, lag) in enumerate(features):
        values = found.inputs[name] - found.inputs[name].mean()
        n_past = len(values) - n
        for k in range(n):
            now = values[n_past + k - lag] if n_past + k >= lag else 0.0
            past = sum(a * responses[k - 1 - i, column] for i, a in enumerate(FEEDBACK) if k > i)
            responses[k, column] = now + past
    errors = found.errors - found.errors.mean()
    padded = np.concatenate([np.zeros(WHITENING_ORDER), errors])
    lagged = np.array([padded[k : k + WHITENING_ORDER][::-1] for k in range(n)])
    whitening = np.linalg.lstsq(lagged, errors, rcond=None)[0]
    columns = [errors, *responses.T]
    white = []
    for values in columns:
        whitened = values.copy()
        for k in range(n):
            for i, coefficient in enumerate(whitening):
                if k > i:
                    whitened[k] -= coefficient * values[k - 1 - i]
        white.append(whitened[WHITENING_ORDER + N_CORRECTED_LAGS :])
    y, X = white[0], np.array(white[1:]).T
    distances = (found.regressors - point) / found.regressors.std(axis=0)
    g = np.exp(-0.5 * (distances**2).mean(axis=1) / LOCAL_WIDTH**2)[-len(y) :]
    noise = np.sum(g * y**2) / g.sum()
    prior = np.zeros((len(features), len(features)))
    for i, (name, _) in enumerate(features):
        for j, (other, _) in enumerate(features):
            if name == other:
                largest = max(i % N_CORRECTED_LAGS, j % N_CORRECTED_LAGS)
                size = found.errors.std() / found.inputs[name].std()
                prior[i, j] = variance * size**2 * decay**largest
    # a weight g is a noise of variance noise / g
    covariance = X @ prior @ X.T + np.diag(noise / g)
    evidence = multivariate_normal.logpdf(y, cov=covariance)
    evidence -= multivariate_normal.logpdf(y, cov=np.diag(noise / g))
    gain = prior @ X.T @ np.linalg.inv(covariance)
    return evidence, gain @ y, prior - gain @ X @ prior


def test_the_correction_is_that_of_a_naive_version(monkeypatch):
    decays = (0.5, 0.8)
    variances = (1e-3, 0.3, 5.0)
    monkeypatch.setattr(local_error, "DECAYS", decays)
    monkeypatch.setattr(local_error, "VARIANCES", variances)
    found = simulate_errors(n=220)
    point = np.array([0.2, -0.1])
    correction = local_correction(found, FIRST_LAGS, point, FEEDBACK)
    tried = [
        correct_naively(found, decay, variance, point) for decay in decays for variance in variances
    ]
    _, mean, covariance = max(tried, key=lambda one: one[0])
    np.testing.assert_allclose(correction.mean, mean, atol=1e-9)
    np.testing.assert_allclose(correction.root @ correction.root.T, covariance, atol=1e-9)


def test_the_correction_finds_what_the_errors_have_to_do_with_an_input():
    found = simulate_errors()
    correction = local_correction(found, FIRST_LAGS, np.zeros(2), FEEDBACK)
    assert correction.features[:2] == (("u", 1), ("u", 2))
    assert correction.features[N_CORRECTED_LAGS] == ("v", 0)
    expected = np.array([0.3 * (feature == ("u", 2)) for feature in correction.features])
    std = np.sqrt(np.square(correction.root).sum(axis=1))
    assert (np.abs(correction.mean - expected) < 4 * std + 1e-12).all()
    assert std.max() < 0.06


def test_errors_without_the_inputs_have_no_correction():
    for seed in range(5):
        found = simulate_errors(size=0.0, seed=seed)
        correction = local_correction(found, FIRST_LAGS, np.zeros(2), FEEDBACK)
        if correction is not None:
            assert np.abs(correction.mean).max() < 0.02


def test_no_correction_far_from_all_samples_or_with_an_unstable_feedback():
    found = simulate_errors()
    assert local_correction(found, FIRST_LAGS, np.full(2, 9.0), FEEDBACK) is None
    assert local_correction(found, FIRST_LAGS, np.zeros(2), np.array([1.2])) is None


@pytest.fixture(scope="module")
def saturated():
    """A linear model of a saturated plant, and its record."""
    rng = np.random.default_rng(0)
    n = 2500
    u = np.repeat(rng.uniform(-1.2, 1.2, n // 25), 25)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = 0.8 * y[k - 1] + np.tanh(u[k - 1])
    measured = y + 0.01 * rng.normal(size=n)
    record = make_record({"u": u, "y": measured}, name="saturated", sampling_time=1.0)
    narx = Narx({"y": 1}, {"u": 1}, predict="value")
    rows = narx.regressors({"u": u, "y": measured})
    gp = OnlineGP(Linear(1.0, [1.0, 1.0]), noise_variance=0.04, budget=20)
    origin = Origin(sampling_time=1.0, output_range=(float(y.min()), float(y.max())))
    model = Model(narx, AffineMap.fit(rows.regressor), ConstantMean(0.0), gp, origin)
    model.update_many(rows.regressor, rows.target)
    return model, record


@pytest.mark.filterwarnings("ignore:linearize at:UserWarning")
def test_the_view_by_simulation_is_nearer_to_the_local_gain_than_an_average_is(saturated):
    model, record = saturated
    view = model.linearize({"u": 0.0, "y": 0.0}, record=record)
    truth = 1.0 / 0.2
    of_model = abs(float(view.static_gain["gain"].item()) - truth)
    of_simulation = abs(float(view.by_simulation.static_gain["gain"].item()) - truth)
    assert of_simulation < 0.75 * of_model
    added = view.coefficients.loc[("y", "u", 5)]
    assert added["value"] == 0.0
    assert added["std"] > 0.0
