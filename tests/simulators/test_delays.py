"""Inputs that act late: the heater, and every way of simulating it."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from plants import Lag, random_input
from simulators import (
    Heater,
    Interpolation,
    MeasurementNoise,
    OpenLoop,
    Signal,
    closed_loop,
    collect,
    simulate,
    simulate_many,
)
from simulators.interpolation import late_rows
from simulators.limit import predict_one_step
from simulators.reference_solution import solve_reference, substep_error

RANGES = ((10.0, 90.0), (2.0, 6.0))
N_SAMPLES = 60


def heater_input():
    return random_input(RANGES, N_SAMPLES)


def test_rates_of_the_heater():
    """The equations per capacity, which the class states."""
    w, x, q, flow = 130.0, 110.0, 60.0, 3.5
    rates = Heater().derivative(0.0, np.array([w, x]), np.array([q, flow]), np.empty(0))
    of_wall = (0.09 * q * (1 - 0.003 * q) + 0.35 * (x - w)) / 4
    of_oil = (0.02 * flow * (15 - x) + 1.05 * (w - x)) / 6
    np.testing.assert_allclose(rates, [of_wall, of_oil], rtol=1e-12)


@pytest.mark.parametrize("delay", [0, 1, 7])
def test_a_step_of_the_heat_acts_after_its_delay(delay):
    u = np.tile([20.0, 4.0], (N_SAMPLES, 1))
    stepped = u.copy()
    stepped[20:, 0] = 60.0
    system = Heater(heat_delay=delay)
    difference = np.abs(simulate(system, stepped).state - simulate(system, u).state).max(axis=1)
    assert difference.nonzero()[0][0] == 21 + delay


@pytest.mark.parametrize("interpolation", Interpolation, ids=lambda kind: kind.value)
def test_a_delayed_input_is_the_shifted_one(interpolation):
    """At first it is that of the first sample; a band-limited one is periodic."""
    u = heater_input()
    shifted = u.copy()
    shifted[:, 0] = np.roll(u[:, 0], 7)
    if interpolation is not Interpolation.band_limited:
        shifted[:7, 0] = u[0, 0]
    late = simulate(Heater(), u, interpolation=interpolation)
    direct = simulate(Heater(heat_delay=0), shifted, interpolation=interpolation)
    np.testing.assert_array_equal(late.state, direct.state)
    np.testing.assert_array_equal(late.input, u)


def test_trajectories_of_different_delays():
    u = heater_input()
    delays = [0, 3, 7]
    ensemble = simulate_many(Heater(), u, parameters={"heat_delay": delays})
    for i, delay in enumerate(delays):
        alone = simulate(Heater(heat_delay=delay), u)
        np.testing.assert_array_equal(ensemble[i].state, alone.state)


def test_the_reference_solution_knows_the_delay():
    u = heater_input()
    path = simulate(Heater(), u)
    exact = solve_reference(Heater(), path.state[0], u, path.noise)
    np.testing.assert_allclose(path.state, exact, rtol=1e-6)
    assert substep_error(path) < 1e-3


def test_the_limit_knows_the_delay():
    noisy = simulate(Heater(), heater_input(), measurement=MeasurementNoise(std=0.1))
    limit = predict_one_step(noisy, 0.1)
    np.testing.assert_allclose(limit.mean, noisy.noise_free_output, rtol=1e-12)


@dataclass(frozen=True)
class LateLag(Lag):
    """A lag whose drive acts late."""

    outputs = (Signal("reading", "V", "measured level"),)
    delay: int = 3

    def input_delays(self):
        return (self.delay,)


class Proportional(OpenLoop):
    """u = 1 - y."""

    inputs_driven = ("drive",)
    outputs_read = ("reading",)

    def control(self, time, readings, memory):
        return [1.0 - readings[0]], memory


def test_a_controller_drives_a_late_input():
    """The recorded input acts late in an open loop, too."""
    system = LateLag()
    samples = closed_loop(system, Proportional(dt=system.dt), {}, n_samples=50)
    loop = collect(samples, system, seed=0)
    open_loop = simulate(system, loop.input)
    np.testing.assert_array_equal(loop.state, open_loop.state)
    limit = predict_one_step(loop, 0.01, driven=["drive"])
    np.testing.assert_allclose(limit.mean, loop.noise_free_output, atol=1e-12)


@pytest.mark.parametrize("delays", [(), (1, 2), (-1,), (1.5,)], ids=repr)
def test_impossible_delays_are_refused(delays):
    @dataclass(frozen=True)
    class Odd(LateLag):
        def input_delays(self):
            return delays

    with pytest.raises(ValueError, match=r"Odd.input_delays\(\) returned"):
        simulate(Odd(), np.zeros(5))


def test_rows_before_the_record_are_the_first_one():
    assert late_rows(5, [2, 0, 9], [0, 1, 2]) == [3, 5, 0]
    assert late_rows(5, [2, 0, 9], [2]) == [0]
    assert replace(Heater(), heat_delay=2).input_delays() == (2, 0)
