"""
A model inside your own control loop
====================================

A model is identified with the toolbox and used without it: it is exported as one Python file that
needs NumPy only, and runs inside a predictive controller of your own. You will also compute the
gradient of its mean, from which every linearisation for control follows.
"""

# %%
# Identify the plant
# ------------------
#
# The plant is a mass on a spring that hardens. A force moves the mass, and its position is measured
# every 50 ms. The equation only simulates the plant; the model is given the signals alone.

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
    """A mass on a spring that hardens: y'' + 0.8 y' + 4 y + 20 y^3 = u."""

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

# without a linear part of more lags: the four features are the state of the loop
model = identify(trajectory.to_dataset(), narx, identified=1, linear_part="none").model
print(narx.feature_names)

# %%
# The gradient of the mean
# ------------------------
#
# ``Dynamics.gradient`` returns the derivatives of the predicted target with respect to all
# features, in their own units. The first two features are the lags of the displacement, the last
# two those of the force. At rest, the stiffness of the spring is minus the sum of the first two
# derivatives divided by the sum of the last two. This stiffness grows with the distance of the mass
# from the origin.

from sysid.simulation.dynamics import Dynamics

dynamics = Dynamics(model)
positions = np.linspace(-0.7, 0.7, 57)
holding_forces = 4.0 * positions + 20.0 * positions**3  # hold the mass at these positions
regressors = np.stack([positions, positions, holding_forces, holding_forces], axis=1)
gradients = dynamics.gradient(regressors)[:, 0, :]
displacement_slopes = gradients[:, :2].sum(axis=1)
force_slopes = gradients[:, 2:].sum(axis=1)
stiffness = -displacement_slopes / force_slopes  # N/kg per m, at rest

fig, axis = plt.subplots(figsize=(8, 3), layout="constrained")
axis.plot(positions, stiffness, label="from the gradient of the model")
axis.plot(positions, 4.0 + 60.0 * positions**2, "k:", label="from the equation")
axis.set(xlabel="position [m]", ylabel="stiffness [N/(kg m)]")
axis.legend(frameon=False)
plt.show()

# %%
# A small step of the first feature in both directions shows that its derivative is right:

first = regressors[:1]
step = np.array([1e-3, 0.0, 0.0, 0.0])
above = model.predict(first + step).mean[0]
below = model.predict(first - step).mean[0]
difference_quotient = (above - below) / 2e-3
print(f"difference quotient {difference_quotient:.6f}, gradient {gradients[0, 0]:.6f}")

# %%
# Export
# ------
#
# The export writes one readable file. The file states lags and units, and it checks itself when it
# is run. The machine of the controller needs only NumPy.

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
# A force holds the mass at a target if it makes the predicted change zero. A few steps of Newton's
# method, with the gradient, find this force.
#
# The controller tries several forces. It assumes that each of them acts for three samples, and the
# holding force after that, and the model simulates the next 30 samples from the last measured ones.
# The best force is applied for one sample. Here the plant is simulated; replace it with your own.

HORIZON = 30  # samples
N_TRIED = 3  # samples for which a force is tried
FORCES = np.linspace(-15.0, 15.0, 31)  # N/kg


def find_holding_force(target):
    """Return the force at which the model stays at the target."""
    x = np.array([[target, target, 0.0, 0.0]])
    for _ in range(5):
        force_slope = dynamics.gradient(x)[0, 0, 2:].sum()
        x[0, 2:] -= model.predict(x).mean[0] / force_slope
    return x[0, 2]


def find_best_force(past_y, past_u, target, holding_force):
    """Return the force whose simulation is nearest to the target."""
    held = np.full(HORIZON - N_TRIED, holding_force)
    costs = []
    for force in FORCES:
        u = np.concatenate([past_u, np.full(N_TRIED, force), held])
        predicted = spring_model.simulate(u[:, None], past_y[:, None])[len(past_y) :]
        squared_error = np.sum((predicted - target) ** 2)
        costs.append(squared_error + 1e-4 * (force - holding_force) ** 2)
    return FORCES[int(np.argmin(costs))]


n = 200
time = plant.dt * np.arange(n)
target = np.where(time % 5.0 < 2.5, 0.5, -0.2)
holding_force = {0.5: find_holding_force(0.5), -0.2: find_holding_force(-0.2)}
state = np.zeros(2)
y = np.zeros(n)
u = np.zeros(n)
for k in range(n):
    # your sensor
    y[k] = state[0]
    if k >= 2:
        past_y = y[k - 2 : k + 1]
        past_u = u[k - 2 : k]
        u[k] = find_best_force(past_y, past_u, target[k], holding_force[target[k]])
    # your actuator
    state = simulate(plant, np.full(2, u[k]), initial_state=state).state[-1]

# %%
# The figure shows the position of the mass with its target, and the force:

fig, axes = plt.subplots(2, 1, figsize=(8, 4), sharex=True, layout="constrained")
axes[0].step(time, target, "k:", where="post", label="target")
axes[0].plot(time, y, label="position")
axes[0].set(ylabel="position [m]")
axes[0].legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
axes[1].step(time, u, where="post")
axes[1].set(xlabel="time [s]", ylabel="force [N/kg]")
plt.show()

# %%
# The model has learned that the spring hardens: it holds the mass at 0.5 m with more than twice the
# force of a spring of constant stiffness, which is 2 N/kg.

for position, force in holding_force.items():
    print(f"{position} m is held with {force:.2f} N/kg")

# %%
# To compute gradients in a solver of your own, use the exported file: it has all points and weights
# as plain arrays. ``Dynamics.gradient`` shows the formula.
#
# The :doc:`glossary </explanation/glossary>` explains our words.
