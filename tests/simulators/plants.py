"""Small systems with known solutions, random inputs and units for the tests of the simulators."""

import importlib
import inspect
import pkgutil
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simulators import OpenLoop, Signal, System, closed_loop, simulate, simulate_many

HOUR = 3600.0  # s
DAY = 86400.0  # s


def concrete_classes(package, role):
    """Return every concrete class of a role that a module of a package defines, by name."""
    classes = set()
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for member in vars(importlib.import_module(module.name)).values():
            if not inspect.isclass(member) or not issubclass(member, role):
                continue
            if not inspect.isabstract(member):
                classes.add(member)
    return sorted(classes, key=lambda member: member.__name__)


def random_input(ranges, n, seed=0):
    """Return smooth signals (n, n_u), each a sine of random phase between the ends of its range."""
    generator = np.random.default_rng(seed)
    columns = []
    for low, high in ranges:
        frequency = generator.uniform(0.2, 0.8)  # radians per sample
        phase = generator.uniform(0, 2 * np.pi)
        wave = np.sin(np.arange(n) * frequency + phase)
        columns.append(low + (high - low) * (0.5 + 0.5 * wave))
    if not columns:
        return np.zeros((n, 0))
    return np.stack(columns, axis=1)


def ways_to_simulate(system, u, **options):
    """Return functions that simulate a system of at most one input: alone, in a set, in a loop."""
    exogenous = {} if u is None else {system.inputs[0].name: u}
    dt = getattr(system, "dt", 1.0)
    return [
        lambda: simulate(system, u, **options),
        lambda: simulate_many(system, u, n_trajectories=2, **options),
        lambda: closed_loop(system, OpenLoop(dt=dt), exogenous, **options),
    ]


@dataclass(frozen=True)
class Lag(System):
    """x' = (u - x) / T + w, y = x: a linear system of first order."""

    states: ClassVar = (Signal("level", "V", "state of the lag"),)
    inputs: ClassVar = (Signal("drive", "V", "input of the lag"),)
    outputs: ClassVar = (Signal("reading", "V", "measured level"),)
    noises: ClassVar = (Signal("drift_noise", "V/s", "process noise on the rate"),)

    dt: float = 0.1  # s
    substeps: int = 4
    time_constant: float = 1.0  # T, s
    rate_noise_std: float = 0.0  # V/s
    initial_level: float = 0.0  # V

    def __post_init__(self):
        super().__post_init__()
        if not self.time_constant > 0:
            raise ValueError(
                f"{type(self).__name__}(time_constant={self.time_constant}): expected a number > 0"
            )

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = (input[0] - state[0]) / parameters[0] + noise[0]

    def parameters(self):
        return np.array([self.time_constant])

    def initial_state(self):
        return np.array([self.initial_level])

    def noise_std(self):
        return np.array([self.rate_noise_std])

    def output(self, state):
        return state[..., :1]


@dataclass(frozen=True)
class Basin(Lag):
    """x' = u + w within limits: a container that is full at 1 and empty at 0."""

    states: ClassVar = (Signal("level", "m", "level of the basin"),)

    dt: float = 1.0  # s
    substeps: int = 10
    initial_level: float = 0.5  # m
    depth: float = 1.0  # m

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = input[0] + noise[0]

    def state_limits(self):
        return np.array([0.0]), np.array([self.depth])


@dataclass(frozen=True)
class Runaway(Lag):
    """x' = x^2 / T + w: reaches infinity at time T / x(0)."""

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = state[0] * state[0] / parameters[0] + noise[0]
