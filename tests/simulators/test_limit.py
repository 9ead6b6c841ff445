"""The limit of one-step prediction, compared with dense Kalman filters and with particle filters.

The references are plain NumPy: equations, Runge-Kutta steps and filters of their own.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from plants import Basin, Lag, Runaway, random_input
from simulators import (
    PI,
    BoucWen,
    Building,
    CascadedTanks,
    Interpolation,
    MeasurementNoise,
    Multisine,
    Signal,
    SimulationError,
    SyntheticWeather,
    VanDerPol,
    closed_loop,
    collect,
    excite,
    predict_one_step,
    simulate,
)

READING_STD = 0.05  # unit of the output


@dataclass(frozen=True)
class TwoTaps(Lag):
    """Two lags in a row, with two outputs that see both of them."""

    states: ClassVar = (Signal("first", "V", "first lag"), Signal("second", "V", "second lag"))
    outputs: ClassVar = (Signal("sum", "V", "their sum"), Signal("end", "V", "second lag"))
    noises: ClassVar = (
        Signal("first_noise", "V/s", "process noise on the first lag"),
        Signal("second_noise", "V/s", "process noise on the second lag"),
    )

    rate_noise_std: float = 0.4
    second_noise_std: float = 0.2

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = (input[0] - state[0]) / parameters[0] + noise[0]
        derivative[1] = 2.0 * (state[0] - state[1]) + noise[1]

    def initial_state(self):
        return np.array([0.3, -0.2])

    def noise_std(self):
        return np.array([self.rate_noise_std, self.second_noise_std])

    def output(self, state):
        return np.stack([state[..., 0] + state[..., 1], state[..., 1]], axis=-1)


@dataclass(frozen=True)
class Echo(Lag):
    """A lag whose second output repeats the first."""

    outputs: ClassVar = (Signal("reading", "V", "level"), Signal("echo", "V", "level again"))

    def output(self, state):
        return np.concatenate([state, state], axis=-1)


@dataclass(frozen=True)
class Squared(Lag):
    """A lag whose output is not linear in the state."""

    initial_level: float = 3.0

    def output(self, state):
        return state[..., :1] ** 2


# --- naive references -----------------------------------------------------------------------------


def runge_kutta_matrices(A, dt, substeps):
    """Return F and G of x[k+1] = F x[k] + G r for x' = A x + r, r held, by RK4 steps."""
    h = dt / substeps
    identity = np.eye(len(A))
    hA = h * A
    step = identity + hA + hA @ hA / 2 + hA @ hA @ hA / 6 + hA @ hA @ hA @ hA / 24
    gain = h * (identity + hA / 2 + hA @ hA / 6 + hA @ hA @ hA / 24)
    F = identity
    G = np.zeros_like(A)
    for _ in range(substeps):
        F = step @ F
        G = step @ G + gain
    return F, G


def dense_kalman(trajectory, rates_at, C, measurement_std):
    """Return the one-step predictions (n, n_y), and their variances, of a dense Kalman filter.

    `rates_at(k)` returns A and r of x' = A x + r + w over sample k.
    """
    system = trajectory.system
    Q = np.diag(system.noise_std() ** 2)
    R = np.diag(np.broadcast_to(measurement_std, len(C)) ** 2)
    x = trajectory.state[0]
    P = np.zeros((len(x), len(x)))
    predictions = [C @ x]
    variances = [np.diag(R)]
    for k in range(len(trajectory.time) - 1):
        A, r = rates_at(k)
        F, G = runge_kutta_matrices(A, system.dt, system.substeps)
        x = F @ x + G @ r
        P = F @ P @ F.T + G @ Q @ G.T
        S = C @ P @ C.T + R
        predictions.append(C @ x)
        variances.append(np.diag(S))
        K = P @ C.T @ np.linalg.inv(S)
        x = x + K @ (trajectory.output[k + 1] - C @ x)
        keep = np.eye(len(x)) - K @ C
        P = keep @ P @ keep.T + K @ R @ K.T
    return np.array(predictions), np.array(variances)


def building_rates(building, u):
    """Return A and r of the building for an input (ambient temperature, mass flow)."""
    zone, wall, radiator = (
        1 / building.zone_capacity,
        1 / building.wall_capacity,
        1 / building.radiator_capacity,
    )
    to_wall = 1 / building.zone_resistance
    to_ambient = 1 / building.wall_resistance
    to_radiator = 1 / building.radiator_resistance
    flow = building.water_heat_capacity * u[1]
    A = np.array(
        [
            [-zone * (to_wall + to_radiator), zone * to_wall, zone * to_radiator],
            [wall * to_wall, -wall * (to_wall + to_ambient), 0.0],
            [radiator * to_radiator, 0.0, -radiator * (to_radiator + flow)],
        ]
    )
    heat = radiator * flow * building.supply_temperature
    return A, np.array([0.0, wall * to_ambient * u[0], heat])


def heated(n_samples, seed=0, *, building=None, **options):
    """Return a simulation of the building under its controller."""
    building = Building() if building is None else building
    ambient = SyntheticWeather().temperature(building.dt * np.arange(n_samples), seed=seed)
    exogenous = {"ambient_temperature": ambient}
    samples = closed_loop(building, PI(), exogenous, seed=seed, **options)
    interpolation = Interpolation(options.get("interpolation", "held"))
    return collect(samples, building, seed=seed, interpolation=interpolation)


def two_taps(n_samples=200, **options):
    """Return a simulation of the two lags."""
    return simulate(TwoTaps(), random_input([(-1, 1)], n_samples), **options)


# --- linear systems: exact ------------------------------------------------------------------------


@pytest.mark.parametrize("std", [0.0, READING_STD], ids=["exact sensor", "noisy sensor"])
def test_the_building_is_predicted_by_a_dense_kalman_filter(std):
    record = heated(500, measurement=MeasurementNoise(std=std))
    building = record.system
    expected, variances = dense_kalman(
        record,
        lambda k: building_rates(building, record.input[k]),
        np.array([[1.0, 0.0, 0.0]]),
        std,
    )
    found = predict_one_step(record, std, driven=["mass_flow"])
    np.testing.assert_allclose(found.mean, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.std**2, variances, rtol=1e-7)


@pytest.mark.parametrize("std", [[0.0, 0.0], [0.1, 0.0], [0.1, 0.03]], ids=str)
def test_several_outputs_are_predicted_together(std):
    record = two_taps(measurement=MeasurementNoise(std=std))
    A = np.array([[-1.0, 0.0], [2.0, -2.0]])
    expected, variances = dense_kalman(
        record,
        lambda k: (A, np.array([record.input[k, 0], 0.0])),
        np.array([[1.0, 1.0], [0.0, 1.0]]),
        np.array(std),
    )
    found = predict_one_step(record, std)
    np.testing.assert_allclose(found.mean, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.std**2, variances, rtol=1e-7)


def test_a_parameter_that_changes_is_known():
    changes = [{"parameter": "time_constant", "to": 0.3, "start": 4.0, "end": 8.0}]
    system = Lag(rate_noise_std=0.4, changes=changes)
    record = simulate(system, random_input([(-1, 1)], 120), measurement=MeasurementNoise(std=0.1))
    time_constants = system.values_over(record.time)["time_constant"]

    def rates_at(k):
        T = time_constants[k]
        return np.array([[-1 / T]]), record.input[k] / T

    expected, _ = dense_kalman(record, rates_at, np.eye(1), 0.1)
    np.testing.assert_allclose(predict_one_step(record, 0.1).mean, expected, rtol=0, atol=1e-9)


def test_an_output_that_repeats_another_changes_nothing():
    u = random_input([(-1, 1)], 100)
    record = simulate(Echo(rate_noise_std=0.4), u)
    alone = simulate(Lag(rate_noise_std=0.4), u)
    expected = predict_one_step(alone, 0.0).mean
    found = predict_one_step(record, 0.0).mean
    np.testing.assert_allclose(found, np.repeat(expected, 2, axis=1), rtol=0, atol=1e-9)


# --- noise that is not there ----------------------------------------------------------------------


@pytest.mark.parametrize("interpolation", Interpolation)
def test_without_process_noise_the_prediction_has_the_bits_of_the_simulation(interpolation):
    force = 50 * np.sin(np.arange(64) * (2 * np.pi / 16))
    record = simulate(
        BoucWen(),
        force,
        interpolation=interpolation,
        measurement=MeasurementNoise(snr_db=20.0),
    )
    std = MeasurementNoise(snr_db=20.0).std_of(record.noise_free_output)
    found = predict_one_step(record, std)
    np.testing.assert_array_equal(found.mean, record.noise_free_output)
    np.testing.assert_array_equal(found.std, np.tile(std, (64, 1)))


@pytest.mark.parametrize("interpolation", ["held", "linear"])
def test_a_closed_loop_without_noise_is_predicted_without_error(interpolation):
    record = heated(200, noise=False, interpolation=interpolation)
    found = predict_one_step(record, 0.0, driven=["mass_flow"], noise=False)
    np.testing.assert_array_equal(found.mean, record.output)
    assert not found.std.any()


# --- properties -----------------------------------------------------------------------------------


def test_a_prediction_uses_no_later_output_and_no_later_state():
    record = two_taps(60, measurement=MeasurementNoise(std=0.1))
    output = record.output.copy()
    output[30:] = 7.0
    state = np.full_like(record.state, np.nan)
    state[0] = record.state[0]
    nothing = np.full_like(record.noise, np.nan)
    changed = replace(record, output=output, state=state, noise=nothing, noise_free_output=nothing)
    found = predict_one_step(changed, 0.1).mean
    expected = predict_one_step(record, 0.1).mean
    np.testing.assert_array_equal(found[:31], expected[:31])
    assert (found[31] != expected[31]).all()


@pytest.mark.parametrize(
    ("system", "std"),
    [(VanDerPol(), 0.05), (Squared(rate_noise_std=0.3), 0.5)],
    ids=["state", "output"],
)
def test_errors_of_nonlinear_systems_are_as_large_as_predicted_and_white(system, std):
    n_samples = 4000
    u = None if not system.inputs else 3.0 + random_input([(-1, 1)], n_samples)
    measurement = MeasurementNoise(std=std)
    record = simulate(system, u, n_samples=n_samples, measurement=measurement)
    found = predict_one_step(record, std)
    z = ((record.output - found.mean) / found.std)[1:, 0]
    assert z.std() == pytest.approx(1.0, abs=0.05)
    assert abs(np.mean(z[1:] * z[:-1])) < 0.05


def test_states_stay_within_their_limits():
    system = Basin(rate_noise_std=0.02)
    u = np.full(100, 0.05)
    measurement = MeasurementNoise(std=0.01)
    record = simulate(system, u, measurement=measurement)
    found = predict_one_step(record, 0.01).mean
    assert found.max() <= 1.0 + 1e-12
    assert found[-1, 0] > 0.98


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("std", [-0.1, np.nan, np.inf, [0.1], [0.1, 0.1, 0.1], [[0.1, 0.1]]])
def test_an_impossible_standard_deviation_is_refused(std):
    with pytest.raises(ValueError, match=r"measurement_std.*\['sum', 'end'\]"):
        predict_one_step(two_taps(5), std)


def test_an_input_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"driven=\['pump'\]: expected inputs among \['drive'\]"):
        predict_one_step(two_taps(5), 0.1, driven=["pump"])


def test_a_filter_that_diverges_names_the_samples():
    quiet = Runaway(initial_level=1.0)
    record = simulate(quiet, np.zeros(9))
    noisy = replace(record, system=replace(quiet, rate_noise_std=50.0))
    with pytest.raises(
        SimulationError, match="Runaway: the filter diverged between samples 2 and 3"
    ):
        predict_one_step(noisy, 10.0)


# --- particle filters -----------------------------------------------------------------------------

N_PARTICLES = 3000


def particle_predictions(record, rates, output, std, limits=(-np.inf, np.inf)):
    """Return the one-step predictions (n,) of a bootstrap particle filter.

    Parameters
    ----------
    rates : callable
        ``rates(x, u, w)`` returns x' for states, inputs and noises with particles as columns.
    output : int
        Number of the state that is measured.
    std : float
        Standard deviation of the readings.
    """
    system = record.system
    generator = np.random.default_rng(1)
    h = system.dt / system.substeps
    x = np.repeat(record.state[0][:, np.newaxis], N_PARTICLES, axis=1)
    predictions = [x[output, 0]]
    for k in range(len(record.time) - 1):
        u = record.input[k]
        noise_std = system.noise_std()[:, np.newaxis]
        w = noise_std * generator.standard_normal((len(noise_std), N_PARTICLES))
        for _ in range(system.substeps):
            k1 = rates(x, u, w)
            k2 = rates(x + h / 2 * k1, u, w)
            k3 = rates(x + h / 2 * k2, u, w)
            k4 = rates(x + h * k3, u, w)
            x = np.clip(x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), *limits)
        predictions.append(x[output].mean())
        distance = (record.output[k + 1, 0] - x[output]) / std
        weights = np.exp(-0.5 * (distance**2 - np.min(distance**2)))
        places = (np.arange(N_PARTICLES) + generator.uniform()) / N_PARTICLES
        chosen = np.searchsorted(np.cumsum(weights / weights.sum()), places)
        x = x[:, np.minimum(chosen, N_PARTICLES - 1)]
    return np.array(predictions)


def oscillator_case():
    system = VanDerPol()
    measurement = MeasurementNoise(std=0.1)
    record = simulate(system, n_samples=1500, measurement=measurement)

    def rates(x, u, w):
        return np.stack([x[1], system.damping * (1 - x[0] ** 2) * x[1] - x[0] + w[0]])

    return record, rates, 0, 0.1, (-np.inf, np.inf)


def hysteresis_case():
    system = BoucWen(force_noise_std=10.0)
    force = Multisine(rms=50.0, band=(5, 150))
    u = excite({"force": force}, 600, system.dt, 0)["force"]
    record = simulate(system, u, measurement=MeasurementNoise(std=3e-5))

    def rates(x, u, w):
        y, v, z = x
        acceleration = (u[0] + w[0] - system.damping * v - system.stiffness * y - z) / system.mass
        loop = system.gamma * np.abs(v) * z + system.delta * v * np.abs(z)
        return np.stack([v, acceleration, system.alpha * v - system.beta * loop])

    return record, rates, 0, 3e-5, (-np.inf, np.inf)


def tanks_case():
    system = CascadedTanks(upper_noise_std=0.02, lower_noise_std=0.01)
    u = np.repeat(np.random.default_rng(0).uniform(1.0, 6.0, 60), 25)
    record = simulate(system, u, measurement=MeasurementNoise(std=READING_STD))

    def rates(x, u, w):
        roots = np.sqrt(np.maximum(x, 0.0))
        pump = system.pump_gain * max(u[0] - system.pump_threshold, 0.0)
        net = pump - system.upper_outflow * roots[0] + w[0]
        depth = system.overflow_depth
        fraction = np.clip((x[0] - system.upper_height + depth) / depth, 0.0, 1.0)
        overflow = np.maximum(net, 0.0) * fraction
        returned = system.lower_inflow / system.upper_outflow * system.overflow_fraction * overflow
        lower = system.lower_inflow * roots[0] + returned - system.lower_outflow * roots[1] + w[1]
        return np.stack([net - overflow, lower])

    return record, rates, 1, READING_STD, (0.0, 10.0)


def building_case():
    record = heated(700, measurement=MeasurementNoise(std=READING_STD))

    def rates(x, u, w):
        A, r = building_rates(record.system, u)
        return A @ x + r[:, np.newaxis] + w

    return record, rates, 0, READING_STD, (-np.inf, np.inf)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [oscillator_case, hysteresis_case, tanks_case, building_case],
    ids=["van der pol", "bouc-wen", "tanks", "building"],
)
def test_a_particle_filter_predicts_as_well(case):
    record, rates, output, std, limits = case()
    n_inputs = record.input.shape[1]
    limit = predict_one_step(record, std, driven=["mass_flow"] if n_inputs == 2 else [])
    particles = particle_predictions(record, rates, output, std, limits)
    scored = slice(len(record.time) // 2, None)
    measured = record.output[scored, 0]
    ours = np.mean((limit.mean[scored, 0] - measured) ** 2)
    theirs = np.mean((particles[scored] - measured) ** 2)
    assert ours == pytest.approx(theirs, rel=0.01)
    assert ours < 0.9 * np.mean(np.diff(record.output[scored, 0]) ** 2)
