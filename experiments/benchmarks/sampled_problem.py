"""What simulations are compared on: systems with a record of their input."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from simulators import PI, BoucWen, Building, Interpolation, SyntheticWeather, System, Trajectory, closed_loop, simulate

PERIOD = 8192  # samples of the force of the Bouc-Wen oscillator
STEPS = 20  # integration steps per sample of it: 750 Hz to 15 kHz
FREQUENCIES = (5.0, 150.0)  # Hz
FORCE_RMS = 50.0  # N


@dataclass(frozen=True, eq=False)
class SampledProblem:
    """System, input and what the input does between its samples: held or linear."""

    name: str
    system: System
    input: NDArray[np.float64]  # (n, n_u)
    interpolation: Interpolation
    seed: int  # of the process noise

    def simulate(self) -> Trajectory:
        """Simulate the record our way."""
        return simulate(self.system, self.input, interpolation=self.interpolation, seed=self.seed)

    @cached_property
    def trajectory(self) -> Trajectory:
        """The record, simulated our way."""
        return self.simulate()

    @cached_property
    def scale(self) -> NDArray[np.float64]:
        """Standard deviations (n_x,) of the states over the record."""
        return self.trajectory.state.std(axis=0)

    @cached_property
    def rows(self) -> NDArray[np.float64]:
        """All that the drift needs in the interval after sample k, as row k of (n - 1, ...).

        The columns are time, input, slope of the input, noise and parameters; with the state they say x'.
        """
        made, slope = self.trajectory, np.diff(self.input, axis=0) / self.system.dt
        if self.interpolation is Interpolation.held:
            slope = np.zeros_like(slope)
        parameters = np.tile(self.system.parameters(), (len(slope), 1))
        return np.hstack([made.time[:-1, np.newaxis], self.input[:-1], slope, made.noise[:-1], parameters])


def building_problem(duration: float, seed: int) -> SampledProblem:
    """The building over a duration [s] with the flow that its controller has set, held over the samples."""
    system = Building()
    time = system.dt * np.arange(math.floor(duration / system.dt * (1 + 1e-12)) + 1)
    weather = SyntheticWeather().temperature(time, seed=seed)
    samples = closed_loop(system, PI(), {"ambient_temperature": weather}, seed=seed)
    record = np.array([sample.input for sample in samples])
    return SampledProblem("building", system, record, Interpolation.held, seed)


def bouc_wen_problem(seed: int, *, restarts: int = 1) -> SampledProblem:
    """One period of the Bouc-Wen oscillator in steps of 15 kHz under a multisine, linear between its samples.

    Parameters
    ----------
    seed : int
        Seed of the phases.
    restarts : int
        Samples of the force per observed sample: 1 at 750 Hz, with 20 steps each, and 20 at 15 kHz, with one.
    """
    system = BoucWen()
    system = replace(system, dt=system.dt / restarts, substeps=STEPS // restarts)
    force = multisine(PERIOD * restarts, system.dt, seed)
    name = f"Bouc-Wen, force at {1 / system.dt:.0f} Hz"
    return SampledProblem(name, system, force[:, np.newaxis], Interpolation.linear, seed)


def multisine(n_samples: int, dt: float, seed: int) -> NDArray[np.float64]:
    """One period (n,) of a random-phase multisine of 5 to 150 Hz and 50 N rms, sampled every `dt` [s].

    The same seed and period give the same signal at every sampling rate.
    """
    frequencies = np.fft.rfftfreq(n_samples, dt)
    lines = np.flatnonzero((frequencies >= FREQUENCIES[0]) & (frequencies <= FREQUENCIES[1]))
    spectrum = np.zeros(len(frequencies), dtype=complex)
    spectrum[lines] = np.exp(2j * np.pi * np.random.default_rng(seed).uniform(size=len(lines)))
    return FORCE_RMS * n_samples / np.sqrt(2 * len(lines)) * np.fft.irfft(spectrum, n_samples)
