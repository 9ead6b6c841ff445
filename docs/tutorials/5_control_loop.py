"""
A model inside your own control loop
====================================

A model is identified with the toolbox and used without it: it is exported as functions of `CasADi
<https://web.casadi.org>`_, which differentiates them exactly, and runs inside a predictive
controller of your own. You will also compute the gradient of its mean, from which every
linearisation for control follows.
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

import casadi
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import lsq_linear

from simulators import FilteredNoise, MeasurementNoise, Signal, System, simulate
from sysid import Narx, export_casadi, identify


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
# Export
# ------
#
# The export writes one readable file, which needs CasADi and NumPy. It states lags and units, and
# checks itself when it is run. All numbers that change while a model learns are one vector,
# ``PARAMETERS``, which is the last argument of every function.

folder = Path(tempfile.mkdtemp())
path = export_casadi(model, folder / "spring_model.py")
specification = importlib.util.spec_from_file_location("spring_model", path)
spring_model = importlib.util.module_from_spec(specification)
specification.loader.exec_module(spring_model)
parameters = spring_model.PARAMETERS
print(spring_model.predict)

# %%
# The gradient of the mean
# ------------------------
#
# ``predict`` returns the mean of the target, and CasADi differentiates it with respect to all
# features, in their own units. The first two features are the lags of the displacement, the last
# two those of the force. At rest, the stiffness of the spring is minus the sum of the first two
# derivatives divided by the sum of the last two. This stiffness grows with the distance of the mass
# from the origin.

x = casadi.MX.sym("x", 4)
p = casadi.MX.sym("p", parameters.shape[0])
mean, _, _ = spring_model.predict(x, p)
gradient = casadi.Function("gradient", [x, p], [mean, casadi.jacobian(mean, x)])

positions = np.linspace(-0.7, 0.7, 57)
holding_forces = 4.0 * positions + 20.0 * positions**3  # hold the mass at these positions
regressors = np.stack([positions, positions, holding_forces, holding_forces], axis=1)
gradients = np.vstack([gradient(row, parameters)[1].full() for row in regressors])
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
# A small step of the first feature in both directions shows that its derivative is right, and that
# the file predicts as the model does:

first = regressors[:1]
step = np.array([1e-3, 0.0, 0.0, 0.0])
above = model.predict(first + step).mean[0]
below = model.predict(first - step).mean[0]
difference_quotient = (above - below) / 2e-3
print(f"difference quotient {difference_quotient:.6f}, gradient {gradients[0, 0]:.6f}")

# %%
# The loop
# --------
#
# A force holds the mass at a target if it makes the predicted change zero. A few steps of Newton's
# method, with the gradient, find this force.
#
# The controller plans the forces of the next 20 samples. ``simulation(20)`` is a function of a
# state and of forces. The state are the last two outputs and the last two forces
# (``STATE_FEATURES``), of which the newest force is the first of the plan. CasADi puts both
# together, and differentiates the outputs with respect to the plan. The controller linearises them
# at the plan of the sample before, solves a least squares problem with bounds, and applies the
# first force. Here the plant is simulated; replace it with your own.

HORIZON = 20  # samples
LARGEST_FORCE = 15.0  # N/kg
FORCE_WEIGHT = 1e-2  # m per N/kg: cost of a force other than the holding force

known = casadi.MX.sym("known", 3)  # the last two displacements, and the force of the last sample
plan = casadi.MX.sym("plan", HORIZON)
p = casadi.MX.sym("p", parameters.shape[0])
state = casadi.vertcat(known[0], known[1], plan[0], known[2])
later_forces = casadi.vertcat(plan[1:], plan[-1]).T
outputs, _ = spring_model.simulation(HORIZON)(state, later_forces, p)
linearised = casadi.Function(
    "linearised", [known, plan, p], [outputs.T, casadi.jacobian(outputs, plan)]
)


def find_holding_force(target):
    """Return the force at which the model stays at the target."""
    x = np.array([target, target, 0.0, 0.0])
    for _ in range(5):
        change, slopes = gradient(x, parameters)
        x[2:] -= float(change) / float(slopes[2] + slopes[3])
    return x[2]


def improve_plan(plan, known, target, holding_force):
    """Return a better plan of forces (HORIZON,), by one step of Gauss and Newton."""
    predicted, slopes = (result.full() for result in linearised(known, plan, parameters))
    matrix = np.vstack([slopes, FORCE_WEIGHT * np.eye(HORIZON)])
    errors = np.concatenate([target - predicted[:, 0], FORCE_WEIGHT * (holding_force - plan)])
    bounds = (-LARGEST_FORCE - 1e-9 - plan, LARGEST_FORCE + 1e-9 - plan)
    return plan + lsq_linear(matrix, errors, bounds).x


n = 200
time = plant.dt * np.arange(n)
target = np.where(time % 5.0 < 2.5, 0.5, -0.2)
holding_force = {0.5: find_holding_force(0.5), -0.2: find_holding_force(-0.2)}
state = np.zeros(2)
plan = np.zeros(HORIZON)
y = np.zeros(n)
u = np.zeros(n)
for k in range(n):
    # your sensor
    y[k] = state[0]
    if k >= 2:
        known = [y[k], y[k - 1], u[k - 1]]
        plan = np.append(plan[1:], holding_force[target[k]])
        plan = improve_plan(plan, known, target[k], holding_force[target[k]])
        u[k] = plan[0]
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

for position, holding in holding_force.items():
    print(f"{position} m is held with {holding:.2f} N/kg")

# %%
# A model that goes on learning
# -----------------------------
#
# The functions stay while the model learns. Only the vector changes: ``parameters`` of the file
# takes the numbers of a model beside the loop, and a controller without the toolbox gets the vector
# alone.

rows = narx.regressors({"displacement": y, "force": u})  # of the loop
model.update_many(rows.regressor, rows.target)
parameters = spring_model.parameters(model)
print(
    f"{parameters.shape[0]} parameters; {find_holding_force(0.5):.2f} N/kg hold the mass at 0.5 m"
)

# %%
# :doc:`Where a model runs </how_to/deploy>` compares this file with those for NumPy and C. The
# :doc:`glossary </explanation/glossary>` explains our words.
