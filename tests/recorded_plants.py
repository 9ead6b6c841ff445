"""Six simulated plants of different kinds, with noise: a record to identify and one to judge by,
for each seed.

Written apart from `simulators`, so that a test of the identification does not depend on it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# of a record; simulated before it begins
N_SAMPLES = 3000
N_BEFORE = 300
NOISE = 0.015  # standard deviation of the output


class PlantModel(NamedTuple):
    """Equations of a plant, in plain arrays with one column for each realisation."""

    drift: Callable[
        [np.ndarray, np.ndarray], list[np.ndarray]
    ]  # states (n_x, m), inputs (n_u, m) -> derivatives
    initial: tuple[float, ...]
    inputs: tuple[
        tuple[float, float, float], ...
    ]  # lowest and highest level, mean samples between two steps
    dt: float  # s
    output: int  # state that is measured
    substeps: int = 4


def dead_zone(x, half):
    return np.sign(x) * np.maximum(np.abs(x) - half, 0.0)


def heat_exchanger(x, u):
    """Valve [-] with a dead zone, inlet temperature; water, wall and outlet."""
    flow = 0.02 + 0.25 * np.maximum(u[0] - 0.2, 0.0)
    return [
        flow * (u[1] - x[0]) - 0.15 * (x[0] - x[1]),
        0.12 * (x[0] - x[1]) - 0.10 * (x[1] - x[2]),
        0.20 * (x[1] - x[2]) - 0.06 * (x[2] - 15.0),
    ]


def motor(x, u):
    """Voltage with a dead zone, load; current, speed with Coulomb and quadratic friction."""
    current, speed = x
    friction = 0.25 * np.tanh(speed / 0.1) + 0.05 * speed * np.abs(speed)
    return [
        4.0 * (dead_zone(u[0], 0.4) - current - 0.5 * speed),
        1.5 * (current - friction - u[1]) - 0.2 * speed,
    ]


def bouc_wen(x, u):
    position, velocity, z = x
    nonlinear = 0.8 * np.abs(velocity) * z - 1.1 * velocity * np.abs(z)
    return [
        velocity,
        (u[0] - 10.0 * velocity - 5e4 * position - z) / 2.0,
        5e4 * velocity - 1e3 * nonlinear,
    ]


def tanks(x, u):
    """Two tanks below each other; the lower level is measured."""
    out = [0.05 * np.sqrt(np.maximum(level, 0.0)) for level in x]
    return [0.035 * u[0] - out[0], out[0] - out[1]]


def duffing(x, u):
    return [x[1], u[0] - 0.4 * x[1] - 4.0 * x[0] - 5.0 * x[0] ** 3]


def two_masses(x, u):
    """Motor and load, coupled by a spring with backlash; twist, speed of the motor, speed of the
    load.
    """
    twist, motor_speed, load_speed = x
    torque = 40.0 * dead_zone(twist, 0.03) + 0.5 * (motor_speed - load_speed) * (
        np.abs(twist) > 0.03
    )
    return [
        motor_speed - load_speed,
        (u[0] - torque - 0.3 * motor_speed) / 0.4,
        (torque - 0.5 * load_speed) / 0.8,
    ]


PLANTS = {
    "heat_exchanger": PlantModel(
        heat_exchanger, (40.0, 35.0, 30.0), ((0.0, 1.0, 25), (50.0, 80.0, 60)), 1.0, 2
    ),
    "motor": PlantModel(motor, (0.0, 0.0), ((-3.0, 3.0, 10), (-0.3, 0.3, 40)), 0.1, 1),
    "bouc_wen": PlantModel(bouc_wen, (0.0, 0.0, 0.0), ((-120.0, 120.0, 6),), 1 / 750, 0, 8),
    "tanks": PlantModel(tanks, (4.0, 4.0), ((0.5, 4.5, 15),), 4.0, 1),
    "duffing": PlantModel(duffing, (0.0, 0.0), ((-4.0, 4.0, 12),), 0.1, 0),
    "two_masses": PlantModel(two_masses, (0.0, 0.0, 0.0), ((-2.0, 2.0, 15),), 0.05, 2, 8),
}


def steps(
    generator: np.random.Generator, n: int, low: float, high: float, mean_hold: float
) -> np.ndarray:
    """Levels drawn anew at random times, (n,)."""
    changes = generator.random(n) < 1.0 / mean_hold
    levels = generator.uniform(low, high, size=n)
    return levels[np.maximum.accumulate(np.where(changes, np.arange(n), 0))]


def records(
    name: str, seeds: int = 1, n: int = N_SAMPLES
) -> list[dict[str, tuple[np.ndarray, np.ndarray]]]:
    """For each seed the measured records ``estimation`` and ``test``: inputs (n, n_u), output
    (n,).
    """
    plant = PLANTS[name]
    total = n + N_BEFORE
    generators = [
        np.random.default_rng([seed, part, len(name)]) for seed in range(seeds) for part in (0, 1)
    ]
    u = np.stack(
        [[steps(g, total, *level) for level in plant.inputs] for g in generators],
        axis=-1,
    )  # (n_u, total, m)
    x = np.tile(np.array(plant.initial)[:, None], (1, len(generators)))
    y = np.empty((total, len(generators)))
    h = plant.dt / plant.substeps
    for k in range(total):
        y[k] = x[plant.output]
        for _ in range(plant.substeps):
            k1 = np.array(plant.drift(x, u[:, k]))
            k2 = np.array(plant.drift(x + 0.5 * h * k1, u[:, k]))
            k3 = np.array(plant.drift(x + 0.5 * h * k2, u[:, k]))
            x = x + h / 6.0 * (
                k1 + 2.0 * k2 + 2.0 * k3 + np.array(plant.drift(x + h * k3, u[:, k]))
            )
            if name == "tanks":
                x = np.clip(x, 0.0, 10.0)
    noise = np.stack([g.normal(size=total) for g in generators], axis=1)
    y = y + NOISE * y[N_BEFORE:].std(axis=0) * noise
    pairs = [(u[:, N_BEFORE:, i].T, y[N_BEFORE:, i]) for i in range(len(generators))]
    return [{"estimation": pairs[2 * seed], "test": pairs[2 * seed + 1]} for seed in range(seeds)]
