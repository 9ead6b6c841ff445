"""Six simulated plants of different kinds, with noise: records to identify and to validate.

They are written apart from `simulators`, so that a test of the identification does not depend on
it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Samples of a record.
N_PLANT_SAMPLES = 3000
# Samples that are simulated before a record begins.
N_SETTLING_SAMPLES = 300
# Standard deviation of the measurement noise, as a share of that of the output [-].
RELATIVE_NOISE_STD = 0.015


class InputRange(NamedTuple):
    """Steps of an input between two levels."""

    low: float
    high: float
    mean_hold: float  # samples between two steps, on average


class PlantModel(NamedTuple):
    """Equations of a plant, in plain arrays with one column for each of m realisations."""

    # derivatives of the states for states (n_x, m) and inputs (n_u, m)
    drift: Callable[[np.ndarray, np.ndarray], list[np.ndarray]]
    initial: tuple[float, ...]
    inputs: tuple[InputRange, ...]
    dt: float  # s
    output: int  # number of the state that is measured
    substeps: int = 4  # Runge-Kutta steps per sample


# --- equations ------------------------------------------------------------------------------------


def dead_zone(x, half_width):
    """Return x beyond a dead zone about 0, and 0 within it."""
    return np.sign(x) * np.maximum(np.abs(x) - half_width, 0.0)


def heat_exchanger(x, u):
    """Valve [-] with a dead zone, inlet temperature; water, wall and outlet."""
    water, wall, outlet = x
    valve, inlet = u
    flow = 0.02 + 0.25 * np.maximum(valve - 0.2, 0.0)
    return [
        flow * (inlet - water) - 0.15 * (water - wall),
        0.12 * (water - wall) - 0.10 * (wall - outlet),
        0.20 * (wall - outlet) - 0.06 * (outlet - 15.0),
    ]


def motor(x, u):
    """Voltage with a dead zone, load; current, speed with Coulomb and quadratic friction."""
    current, speed = x
    voltage, load = u
    friction = 0.25 * np.tanh(speed / 0.1) + 0.05 * speed * np.abs(speed)
    return [
        4.0 * (dead_zone(voltage, 0.4) - current - 0.5 * speed),
        1.5 * (current - friction - load) - 0.2 * speed,
    ]


def bouc_wen(x, u):
    """Force; position, velocity and hysteretic force."""
    position, velocity, z = x
    nonlinear = 0.8 * np.abs(velocity) * z - 1.1 * velocity * np.abs(z)
    return [
        velocity,
        (u[0] - 10.0 * velocity - 5e4 * position - z) / 2.0,
        5e4 * velocity - 1e3 * nonlinear,
    ]


def tanks(x, u):
    """Inflow; levels of two tanks below each other, of which the lower one is measured."""
    upper_outflow, lower_outflow = (0.05 * np.sqrt(np.maximum(level, 0.0)) for level in x)
    return [0.035 * u[0] - upper_outflow, upper_outflow - lower_outflow]


def duffing(x, u):
    """Force; position and velocity."""
    position, velocity = x
    return [velocity, u[0] - 0.4 * velocity - 4.0 * position - 5.0 * position**3]


def two_masses(x, u):
    """Torque; motor and load coupled by a spring with backlash: twist and both speeds."""
    twist, motor_speed, load_speed = x
    is_engaged = np.abs(twist) > 0.03
    damping = 0.5 * (motor_speed - load_speed) * is_engaged
    torque = 40.0 * dead_zone(twist, 0.03) + damping
    return [
        motor_speed - load_speed,
        (u[0] - torque - 0.3 * motor_speed) / 0.4,
        (torque - 0.5 * load_speed) / 0.8,
    ]


PLANTS = {
    "heat_exchanger": PlantModel(
        heat_exchanger,
        initial=(40.0, 35.0, 30.0),
        inputs=(InputRange(0.0, 1.0, 25), InputRange(50.0, 80.0, 60)),
        dt=1.0,
        output=2,
    ),
    "motor": PlantModel(
        motor,
        initial=(0.0, 0.0),
        inputs=(InputRange(-3.0, 3.0, 10), InputRange(-0.3, 0.3, 40)),
        dt=0.1,
        output=1,
    ),
    "bouc_wen": PlantModel(
        bouc_wen,
        initial=(0.0, 0.0, 0.0),
        inputs=(InputRange(-120.0, 120.0, 6),),
        dt=1 / 750,
        output=0,
        substeps=8,
    ),
    "tanks": PlantModel(
        tanks,
        initial=(4.0, 4.0),
        inputs=(InputRange(0.5, 4.5, 15),),
        dt=4.0,
        output=1,
    ),
    "duffing": PlantModel(
        duffing,
        initial=(0.0, 0.0),
        inputs=(InputRange(-4.0, 4.0, 12),),
        dt=0.1,
        output=0,
    ),
    "two_masses": PlantModel(
        two_masses,
        initial=(0.0, 0.0, 0.0),
        inputs=(InputRange(-2.0, 2.0, 15),),
        dt=0.05,
        output=2,
        substeps=8,
    ),
}


# --- records --------------------------------------------------------------------------------------


def draw_steps(
    generator: np.random.Generator, n: int, low: float, high: float, mean_hold: float
) -> np.ndarray:
    """Return levels (n,) that are drawn anew at random times."""
    are_changes = generator.random(n) < 1.0 / mean_hold
    levels = generator.uniform(low, high, size=n)
    last_change = np.maximum.accumulate(np.where(are_changes, np.arange(n), 0))
    return levels[last_change]


def runge_kutta_step(plant: PlantModel, x: np.ndarray, u: np.ndarray, h: float) -> np.ndarray:
    """Return the states after one step of h seconds."""
    k1 = np.array(plant.drift(x, u))
    k2 = np.array(plant.drift(x + 0.5 * h * k1, u))
    k3 = np.array(plant.drift(x + 0.5 * h * k2, u))
    k4 = np.array(plant.drift(x + h * k3, u))
    return x + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)


def simulate_output(name: str, u: np.ndarray) -> np.ndarray:
    """Return the output (n, m) of a plant for inputs (n_u, n, m)."""
    plant = PLANTS[name]
    _, n, n_realisations = u.shape
    x = np.tile(np.array(plant.initial)[:, None], (1, n_realisations))
    y = np.empty((n, n_realisations))
    h = plant.dt / plant.substeps
    for k in range(n):
        y[k] = x[plant.output]
        for _ in range(plant.substeps):
            x = runge_kutta_step(plant, x, u[:, k], h)
            if name == "tanks":
                x = np.clip(x, 0.0, 10.0)
    return y


def records(
    name: str, seeds: int = 1, n: int = N_PLANT_SAMPLES
) -> list[dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Return the measured records ``estimation`` and ``test`` of each seed.

    A record is a pair of inputs (n, n_u) and output (n,).
    """
    plant = PLANTS[name]
    n_simulated = n + N_SETTLING_SAMPLES
    generators = []
    for seed in range(seeds):
        for part in (0, 1):
            generators.append(np.random.default_rng([seed, part, len(name)]))
    realisations = []
    for generator in generators:
        realisations.append([draw_steps(generator, n_simulated, *steps) for steps in plant.inputs])
    u = np.stack(realisations, axis=-1)  # (n_u, n_simulated, m)
    y = simulate_output(name, u)
    noise = np.stack([generator.normal(size=n_simulated) for generator in generators], axis=1)
    y = y + RELATIVE_NOISE_STD * y[N_SETTLING_SAMPLES:].std(axis=0) * noise

    pairs = []
    for i in range(len(generators)):
        pairs.append((u[:, N_SETTLING_SAMPLES:, i].T, y[N_SETTLING_SAMPLES:, i]))
    by_seed = []
    for seed in range(seeds):
        by_seed.append({"estimation": pairs[2 * seed], "test": pairs[2 * seed + 1]})
    return by_seed
