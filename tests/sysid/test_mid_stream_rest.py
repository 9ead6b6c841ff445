"""Plants that come to rest in mid-stream: nothing is learned of errors where nothing moves."""

import numpy as np
import pytest

from sysid import (
    Identification,
    Model,
    Narx,
    OnlineGP,
    Settings,
    SquaredExponential,
)
from sysid.arrays import NotPositiveDefiniteError
from sysid.gp.factors import carry_over

NARX = Narx({"y": 2}, {"u": 2}, predict="change")
N_BEFORE = 1200
N_AFTER = 400
#: resolution of the output, whose std is 1.4
RESOLUTIONS = {"noise-free": 0.0, "quantised": 0.006}


def rows_with_a_rest(n_at_rest, resolution, narx=NARX):
    """Return the rows of a plant that is excited, at rest, and excited again."""
    excitation = np.random.default_rng(0).normal(size=N_BEFORE + N_AFTER)
    u = np.concatenate([excitation[:N_BEFORE], np.zeros(n_at_rest), excitation[N_BEFORE:]])
    y = np.zeros(len(u))
    for k in range(1, len(u)):
        y[k] = 0.8 * y[k - 1] + np.tanh(u[k - 1])
    if resolution:
        y = np.round(y / resolution) * resolution
    return narx.regressors({"y": y, "u": u})


def identify(rows, narx, settings, first=0, last=None):
    identification = Identification(narx, settings)
    identification.observe_many(rows.regressor[first:last], rows.target[first:last])
    return identification


@pytest.mark.parametrize("n_at_rest", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("linear_part", ["none", "auto"])
@pytest.mark.parametrize("measurement", RESOLUTIONS)
def test_the_bands_after_a_rest_are_as_wide_as_before(measurement, linear_part, n_at_rest):
    settings = Settings(budget=50, linear_part=linear_part)
    narx = settings.with_linear_lags(NARX)
    rows = rows_with_a_rest(n_at_rest, RESOLUTIONS[measurement], narx)
    before = len(rows.target) - N_AFTER
    identification = identify(rows, narx, settings, last=before)
    gp = identification.model.gp
    records = identification.observe_many(
        rows.regressor[before : before + 100], rows.target[before : before + 100]
    )
    std = np.sqrt(records["variance"] + gp.noise_variance)
    is_covered = np.abs(records["mean"] - rows.target[before : before + 100]) < 1.96 * std
    assert is_covered.mean() > 0.88


def test_a_rest_causes_no_estimate_by_the_errors():
    settings = Settings(budget=50, linear_part="none")
    rows = rows_with_a_rest(3000, 0.006)
    identification = identify(rows, NARX, settings, last=N_BEFORE + 3000)
    reasons = [e.reason for e in identification.adaptation.estimates if e.sample > N_BEFORE + 50]
    assert set(reasons) <= {"doubled"}


def test_a_model_that_is_saved_at_rest_goes_on_bit_for_bit(tmp_path):
    settings = Settings(budget=50, linear_part="none")
    rows = rows_with_a_rest(300, 0.006)
    identification = identify(rows, NARX, settings, last=N_BEFORE + 133)
    identification.model.save(tmp_path / "model.nc")
    resumed = Identification.resume(Model.load(tmp_path / "model.nc"))
    later = slice(N_BEFORE + 133, None)
    expected = identification.observe_many(rows.regressor[later], rows.target[later])
    actual = resumed.observe_many(rows.regressor[later], rows.target[later])
    for name in expected.dtype.names:
        np.testing.assert_array_equal(actual[name], expected[name], err_msg=name)
    assert resumed.model.gp.noise_variance == identification.model.gp.noise_variance


# --- scale of the variances -----------------------------------------------------------------------


def make_gp():
    return OnlineGP(
        SquaredExponential(1.0, [1.0]), noise_variance=0.01, budget=10, learning="every_sample"
    )


def test_samples_that_repeat_the_one_before_do_not_teach_the_scale():
    x = np.random.default_rng(0).normal(size=(1050, 1))
    x[1:1001:2] = x[:1000:2]
    y = np.sin(x[:, 0])
    gp = make_gp()
    gp.update_many(x[:1], y[:1])
    gp.update_many(np.repeat(x[:1], 1000, axis=0), np.repeat(y[:1], 1000))
    assert gp.noise_variance == 0.01
    one_by_one = make_gp()
    at_once = make_gp()
    at_once.update_many(x, y)
    for point, target in zip(x, y, strict=True):
        one_by_one.update(point, target)
    np.testing.assert_equal(one_by_one.state(), at_once.state())
    n_moving = 550
    assert at_once.state()["errors"][1] == n_moving % 100


def test_repeated_inputs_with_noisy_targets_teach_the_scale():
    x = np.zeros((2000, 1))
    y = 0.3 * np.random.default_rng(0).normal(size=2000)
    gp = make_gp()
    gp.update_many(x, y)
    assert gp.noise_variance == pytest.approx(0.09, rel=0.3)


def test_a_last_sample_that_does_not_fit_is_refused():
    gp = make_gp()
    gp.update_many(np.ones((5, 1)), np.ones(5))
    state = gp.state()
    state["last_sample"] = np.zeros(3)
    with pytest.raises(ValueError, match="last_sample"):
        make_gp().restore(state, state["counts"])


# --- new hyper-parameters -------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1.0, 30.0])
@pytest.mark.parametrize("smallest_std", [1e-3, 1e-6, 1e-8, 3e-9, 1e-10])
def test_what_is_known_to_many_digits_is_carried_over(smallest_std, factor):
    """The new prior of every value has `factor` times the old std, so directions stay as they are.

    With the old std s and mean m along a direction, ``1 + factor^2 (1/s^2 - 1)`` is the new
    precision, and ``factor m / s^2`` is the precision times the mean.
    """
    n = 20
    gp = OnlineGP(
        SquaredExponential(1.0, [0.01]), noise_variance=1e-8, budget=n, learning="every_sample"
    )
    points = np.arange(float(n))[:, None]
    gp.fit(points, np.zeros(n))
    other = OnlineGP(
        SquaredExponential(factor**2, [0.01]),
        noise_variance=1e-8 * factor**2,
        budget=n,
        learning="every_sample",
    )
    other.fit(points, np.zeros(n))
    random = np.random.default_rng(1)
    directions, _ = np.linalg.qr(random.normal(size=(n, n)))
    std = np.geomspace(smallest_std, 0.999, n)
    along = random.normal(size=n) * std
    upper = np.linalg.qr(std[:, None] * directions.T, mode="r")
    gp._state.root[:n, :n] = upper * np.sign(np.diag(upper))[:, None]
    gp._state.whitened[:n] = directions @ along
    no_linear_part = np.zeros((0, 0))
    carry_over(gp._state, other._state, no_linear_part, no_linear_part)
    precision = 1.0 + factor**2 * (1.0 / std**2 - 1.0)
    expected = directions @ (factor * along / std**2 / precision)
    np.testing.assert_allclose(other._state.whitened[:n], expected, rtol=0, atol=1e-4)
    new_std = np.linalg.svd(other.state()["root"], compute_uv=False)
    np.testing.assert_allclose(new_std, np.sort(precision**-0.5)[::-1], rtol=1e-4)


def test_hyperparameters_that_cannot_be_taken_over_are_reported_and_the_old_ones_kept(monkeypatch):
    def refuse(*_args):
        raise NotPositiveDefiniteError("the covariance is not positive definite")

    settings = Settings(budget=20, linear_part="none")
    rows = rows_with_a_rest(0, 0.0)
    identification = identify(rows, NARX, settings, last=150)
    kernel = identification.model.gp.kernel
    n_estimates = len(identification.adaptation.estimates)
    monkeypatch.setattr(OnlineGP, "with_hyperparameters", refuse)
    identification.observe_many(rows.regressor[150:250], rows.target[150:250])
    estimate = identification.adaptation.estimates[n_estimates]
    assert "kept, because the covariance is not positive definite" in estimate.warnings[-1]
    assert estimate.kernel.length_scales == kernel.length_scales
