"""The Van der Pol oscillator: limit cycle, energy, the settings of the paper."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators import simulate, simulate_many
from simulators.runge_kutta import PLAIN
from simulators.systems.van_der_pol import VanDerPol
from sysid.narx import Narx
from sysid.training import MaximumLikelihood

PAPER = VanDerPol()
PUBLISHED = 0.0002  # SMSE of a full Gaussian process
states = st.tuples(st.floats(-3, 3), st.floats(-5, 5))


@given(state=states, mu=st.floats(0, 8), w=st.floats(-2, 2))
def test_energy_grows_within_the_unit_strip_and_shrinks_outside(state, mu, w):
    """d/dt (x^2 + v^2)/2 = mu (1 - x^2) v^2 + v w."""
    x, v = state
    rates = VanDerPol(damping=mu).derivative(0.0, np.array(state), np.empty(0), np.array([w]))
    assert rates[0] == v
    assert np.array(state) @ rates == pytest.approx(mu * (1 - x * x) * v * v + v * w, abs=1e-9)


@pytest.mark.parametrize("start", [[0.1, 0.0], [2.0, -2.0], [-3.0, 4.0]])
def test_every_start_reaches_the_limit_cycle(start):
    """Its amplitude and period for mu = 2 are 2.0199 m and 7.6299 s."""
    n = 2000 if PLAIN else 6000
    x = simulate(VanDerPol(), n_samples=n, dt=0.01, substeps=1, initial_state=start, noise=False).state[n // 3 :, 0]
    assert np.abs(x).max() == pytest.approx(2.01989, abs=2e-4)
    up = np.flatnonzero((x[:-1] < 0) & (x[1:] >= 0))
    crossings = 0.01 * (up - x[up] / (x[up + 1] - x[up]))
    if len(crossings) > 1:
        np.testing.assert_allclose(np.diff(crossings), 7.62987, atol=1e-3)


def test_without_damping_it_is_the_harmonic_oscillator():
    trajectory = simulate(VanDerPol(damping=0.0), n_samples=100, initial_state=[1.0, 0.5], noise=False)
    t = trajectory.time
    np.testing.assert_allclose(trajectory.state[:, 0], np.cos(t) + 0.5 * np.sin(t), atol=1e-7)
    np.testing.assert_allclose(trajectory.state[:, 1], -np.sin(t) + 0.5 * np.cos(t), atol=1e-7)


def test_defaults_are_those_of_the_paper():
    system = VanDerPol()
    assert (system.dt, system.damping) == (0.1, 2.0)
    assert system.noise_std() ** 2 == pytest.approx(0.1)
    assert system.inputs == ()


def rows_of(system, seed, purpose):
    """Regressors and changes of 20 trajectories of 5 s from random starts; no row spans two of them."""
    starts = np.random.default_rng([seed, purpose]).uniform(-2, 2, size=(20, 2))
    ensemble = simulate_many(system, n_samples=52, initial_states=starts, seed=2 * seed + purpose)
    narx = Narx(outputs={"displacement": 2})
    rows = narx.dataset([trajectory.to_dataset() for trajectory in ensemble])
    assert rows["regressor"].shape == (1000, 2)
    return rows["regressor"].values, rows["target"].values


def full_gp_smse(seed, n_trained, restarts, system=PAPER):
    """SMSE on 1000 new rows of an exact GP on all 1000, with hyper-parameters trained on some of them."""
    X, y = rows_of(system, seed, purpose=0)
    new, truth = rows_of(system, seed, purpose=1)
    mean, std, centre = X.mean(axis=0), X.std(axis=0), y.mean()
    X, new = (X - mean) / std, (new - mean) / std
    some = np.random.default_rng(seed).permutation(len(y))[:n_trained]
    training = MaximumLikelihood(n_initial=n_trained, restarts=restarts)
    found = training.train(X[some], y[some] - centre, seed)

    def kernel(first, second):
        squared = (((first[:, None] - second) / np.array(found.kernel.length_scales)) ** 2).sum(axis=-1)
        return found.kernel.variance * np.exp(-0.5 * squared)

    factor = np.linalg.cholesky(kernel(X, X) + found.noise_variance * np.eye(len(y)))
    weights = np.linalg.solve(factor.T, np.linalg.solve(factor, y - centre))
    return np.mean((truth - centre - kernel(new, X) @ weights) ** 2) / np.var(truth)


def test_a_full_gp_comes_close_to_the_published_error():
    assert full_gp_smse(seed=0, n_trained=60, restarts=1) == pytest.approx(PUBLISHED, rel=0.3)


@pytest.mark.slow
def test_median_error_of_a_full_gp_is_the_published_one():
    errors = [full_gp_smse(seed, n_trained=150, restarts=2) for seed in range(10)]
    assert 0.00017 <= np.median(errors) <= 0.00026


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "lowest", "highest"),
    [({"damping": 1.0}, 0.00023, 0.00031), ({"acceleration_noise_std": 0.1}, 0.00001, 0.00005)],
)
def test_other_readings_of_the_paper_give_other_errors(options, lowest, highest):
    """With mu = 1, or with 0.1 as a standard deviation."""
    system = VanDerPol(**options)
    errors = [full_gp_smse(seed, n_trained=150, restarts=2, system=system) for seed in range(5)]
    assert lowest <= np.median(errors) <= highest


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("damping", -1.0, "expected a number >= 0"),
        ("acceleration_noise_std", np.nan, "expected a finite number"),
        ("initial_velocity", np.inf, "expected a finite number"),
        ("substeps", 1.5, "expected an integer from 1"),
    ],
)
def test_impossible_settings_are_refused(field, value, expected):
    with pytest.raises(ValueError, match=rf"VanDerPol\({field}=.*{expected}.*change {field}"):
        VanDerPol(**{field: value})
