"""
A model inside your own control loop
====================================

A model is identified with the toolbox and used without it: exported as one Python file that needs
NumPy only, it runs inside a predictive controller of your own. You will also see the gradient of
its mean, from which every linearisation for control follows.
"""

# %%
# Identify the plant
# ------------------
#
# A mass on a spring that hardens: a force moves it, its position is measured every 50 ms. The
# equation serves as the plant only; the model sees signals.

import importlib.util
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import matplotlib.pyplot as plt
import numpy as np

from simulators import FilteredNoise, MeasurementNoise, Signal, System, simulate
from sysid import Narx, export_python, identify


@dataclass(frozen=True)
class Spring(System):
    """y'' + 0.8 y' + 4 y + 20 y^3 = u."""

    states: ClassVar = (
        Signal("position", "m", "position"),
        Signal("velocity", "m/s", "velocity"),
    )
    inputs: ClassVar = (Signal("force", "N/kg", "force per mass"),)
    outputs: ClassVar = (Signal("displacement", "m", "measured position"),)
    dt: float = 0.05  # s
    substeps: int = 4

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = state[1]
        derivative[1] = input[0] - 0.8 * state[1] - 4.0 * state[0] - 20.0 * state[0] ** 3

    def parameters(self):
        return np.zeros(0)

    def output(self, state):
        return state[..., :1]


plant = Spring()
rng = np.random.default_rng(0)
force = FilteredNoise(std=8.0, band=(0.0, 1.0)).signal(3000, plant.dt, rng)
trajectory = simulate(plant, force, measurement=MeasurementNoise(std=1e-4))
narx = Narx({"displacement": 2}, {"force": 2}, predict="change")
model = identify(trajectory.to_dataset(), narx, identified=1).model
print(narx.feature_names)

# %%
# The gradient of the mean
# ------------------------
#
# ``Dynamics.gradient`` returns the derivative of the predicted target with respect to all features,
# in their own units. The sum of the first two is minus the stiffness that the model sees: it is the
# harder, the farther out the mass is.

from sysid.simulation.dynamics import Dynamics

dynamics = Dynamics(model)
positions = np.linspace(-0.7, 0.7, 57)
spring = 4.0 * positions + 20.0 * positions**3  # force that holds the mass there
regressors = np.stack([positions, positions, spring, spring], axis=1)
slopes = dynamics.gradient(regressors)[:, 0, :]
stiffness = -slopes[:, :2].sum(axis=1) / slopes[:, 2:].sum(axis=1)  # N/kg per m, at rest

fig, axis = plt.subplots(figsize=(8, 3), layout="constrained")
axis.plot(positions, stiffness, label="of the gradient of the model")
axis.plot(positions, 4.0 + 60.0 * positions**2, "k:", label="of the equation")
axis.set(xlabel="position [m]", ylabel="stiffness [N/(kg m)]")
axis.legend(frameon=False)
plt.show()

# %%
# A step of the feature shows that the gradient is right:

step = np.array([1e-3, 0.0, 0.0, 0.0])
ahead, behind = (model.predict(regressors[:1] + sign * step).mean[0] for sign in (1, -1))
print(f"difference quotient {(ahead - behind) / 2e-3:.6f}, gradient {slopes[0, 0]:.6f}")

# %%
# Export
# ------
#
# One readable file. It states lags and units, and checks itself when it is run. On the machine of
# the controller only NumPy is needed.

folder = Path(tempfile.mkdtemp())
path = export_python(model, folder / "spring_model.py")
specification = importlib.util.spec_from_file_location("spring_model", path)
spring_model = importlib.util.module_from_spec(specification)
specification.loader.exec_module(spring_model)
print(len(path.read_text().splitlines()), "lines;", spring_model.__doc__.splitlines()[0])

# %%
# The loop
# --------
#
# The force that holds the mass at a target is where the predicted change is zero: a few steps of
# Newton, with the gradient. The controller tries some forces for three samples, then that holding
# force; the model simulates the next 30 samples from the last measured ones, and the best force is
# applied for one sample. The plant is simulated; put your own in its place.

HORIZON = 30
FORCES = np.linspace(-15.0, 15.0, 31)


def hold(target):
    """Force at which the model stays at the target."""
    x = np.array([[target, target, 0.0, 0.0]])
    for _ in range(5):
        x[0, 2:] -= model.predict(x).mean[0] / dynamics.gradient(x)[0, 0, 2:].sum()
    return x[0, 2]


def best_force(past_y, past_u, target, holding):
    """Force of the next three samples, the holding one after them, whose simulation comes nearest
    to the target.
    """
    costs = []
    for candidate in FORCES:
        u = np.concatenate([past_u, np.full(3, candidate), np.full(HORIZON - 3, holding)])
        predicted = spring_model.simulate(u[:, None], past_y[:, None])[len(past_y) :]
        costs.append(np.sum((predicted - target) ** 2) + 1e-4 * (candidate - holding) ** 2)
    return FORCES[int(np.argmin(costs))]


n = 200
state = np.zeros(2)
target = np.where(np.arange(n) * plant.dt % 5.0 < 2.5, 0.5, -0.2)
holding = {value: hold(value) for value in (0.5, -0.2)}
y = np.zeros(n)
u = np.zeros(n)
for k in range(n):
    y[k] = state[0]  # your sensor
    if k >= 2:
        u[k] = best_force(y[k - 2 : k + 1], u[k - 2 : k], target[k], holding[target[k]])
    state = simulate(plant, np.full(2, u[k]), initial_state=state).state[-1]  # your actuator

# %%
time = plant.dt * np.arange(n)
fig, axes = plt.subplots(2, 1, figsize=(8, 4), sharex=True, layout="constrained")
axes[0].step(time, target, "k:", where="post", label="target")
axes[0].plot(time, y, label="position")
axes[0].set(ylabel="position [m]")
axes[0].legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
axes[1].step(time, u, where="post")
axes[1].set(xlabel="time [s]", ylabel="force [N/kg]")
plt.show()

# %%
# The model knows that the spring hardens: it holds the mass at 0.5 m with more than twice the force
# of a spring of constant stiffness, 2 N/kg.

print({target: round(float(force), 2) for target, force in holding.items()})

# %%
# For gradients in a solver of your own the exported file has all points and weights as plain
# arrays; ``Dynamics.gradient`` shows their formula.
