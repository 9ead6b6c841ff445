"""
A new benchmark of your own equation
====================================

A benchmark is more than a file with two signals. It needs records to learn from and a test record,
the smallest error that any model could reach, and a way to score that nobody can misread. You will
write down an equation, make a benchmark folder of it with one command, and take part in the
benchmark with a model.
"""

# %%
# The equation
# ------------
#
# The plant is a pendulum with friction that is driven by a torque. A system states its signals, its
# parameters and its drift. One yaml file names its class.

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

folder = Path(tempfile.mkdtemp())
PENDULUM = '''
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simulators import Signal, System, parameter


@dataclass(frozen=True)
class Pendulum(System):
    """A pendulum with viscous friction: q'' + c q' + w^2 sin(q) = u."""

    states: ClassVar = (Signal("angle", "rad", "angle"), Signal("rate", "rad/s", "angular rate"))
    inputs: ClassVar = (Signal("torque", "rad/s^2", "torque over inertia"),)
    outputs: ClassVar = (Signal("measured_angle", "rad", "measured angle"),)

    dt: float = 0.05
    substeps: int = 4
    friction: float = parameter(0.5, "1/s", symbol="c")
    frequency: float = parameter(3.0, "rad/s", symbol="w")

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        c, w = parameters[0], parameters[1]
        derivative[0] = state[1]
        derivative[1] = input[0] - c * state[1] - w * w * np.sin(state[0])

    def parameters(self):
        return np.array([self.friction, self.frequency])

    def output(self, state):
        return state[..., :1]
'''
PENDULUM_YAML = """
_target_: mine.pendulum.Pendulum
friction: 0.5
"""
(folder / "mine" / "conf" / "system").mkdir(parents=True)
(folder / "mine" / "pendulum.py").write_text(PENDULUM)
(folder / "mine" / "conf" / "system" / "pendulum.yaml").write_text(PENDULUM_YAML)

# %%
# Simulate the system once before you publish anything. Does the excitation reach the nonlinear
# region?

sys.path.insert(0, str(folder))
from mine.pendulum import Pendulum

from simulators import Multisine, simulate

torque = Multisine(rms=2.0, band=(0.05, 1.0)).signal(1024, 0.05, np.random.default_rng(0))
trajectory = simulate(Pendulum(), torque)
fig, axis = plt.subplots(figsize=(8, 2.8), layout="constrained")
axis.plot(trajectory.time, trajectory.output[:, 0])
axis.set(xlabel="time [s]", ylabel="angle [rad]")
plt.show()

# %%
# The folder
# ----------
#
# The folder contains one record of each kind, measured with noise at a signal-to-noise ratio of
# 40 dB, and a few baselines. ``narx=orders`` gives the baselines two lags of each signal.

command = (
    "--config-dir mine/conf system=pendulum excitation.rms=2 excitation.band=[0.05,1] "
    "noise.snr_db=40 estimation=2000 validation=500 test=1000 narx=orders "
    "output=pendulum_benchmark seed=7"
)
call = [sys.executable, "-m", "experiments.generate", *command.split()]
done = subprocess.run(call, cwd=folder, env=os.environ, capture_output=True, text=True)
print(f"$ sysid-generate {command}")
print((done.stdout + done.stderr).strip())
done.check_returncode()

# %%
# These files are in the folder:

benchmark = folder / "pendulum_benchmark"
for path in sorted(benchmark.rglob("*")):
    if path.is_file():
        print(path.relative_to(benchmark))

# %%
# ``CARD.md`` describes the benchmark in words, for new readers. ``scores.json`` has the numbers:
# the noise floor, which is the error of a model that knows the true state, the limit, which is the
# smallest error that is possible from measured signals (one step ahead only), and the errors of the
# baselines. The baselines were identified one step ahead, so their simulations (``free_run``) are
# bad.

scores = json.loads((benchmark / "scores.json").read_text())
for task in ("one_step", "free_run"):
    for name, outputs in scores[task].items():
        if outputs:
            print(f"{task:10} {name:20} RMSE {outputs['measured_angle']['rmse']:.4f} rad")

# %%
# Take part
# ---------
#
# Another group gets ``benchmark.nc`` or the CSV files, and ``score.py``, which needs NumPy only.
# You now take the place of this group: learn from the estimation record, simulate the test record,
# write the prediction to a file, and score it. The model is trained for the free run by one quick
# route (the tutorial on your own record explains the routes). In the scores, NRMSE is the RMSE
# divided by the standard deviation of the output, and the fit is 100 % minus the NRMSE in percent.

from sysid import (
    FreeRun,
    Narx,
    OutputErrorRefinement,
    Settings,
    StoredRecordings,
    free_run,
    identify,
)

recordings = StoredRecordings(path=str(benchmark / "benchmark.nc")).load()
estimation = recordings.estimation[0]
test = recordings.test[0]
narx = Narx({"measured_angle": 2}, {"torque": 2}, predict="change")
training = FreeRun(routes=(OutputErrorRefinement(stages=2),), folds=2)
model = identify(estimation, narx, Settings(training=training), identified=1).model

# the measured samples that initialise the model
n_window = int(test.attrs["initialisation_window"])
y = test["measured_angle"].values[:, None]
u = test["torque"].values[:, None]
simulated = free_run(model, u, y[:n_window]).mean
prediction = np.concatenate([y[:n_window], simulated])
np.save(folder / "prediction.npy", prediction[:, 0])
call = [sys.executable, str(benchmark / "score.py"), "prediction.npy"]
done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=True)
print(done.stdout)

# %%
# The figure shows the free run on the test record, and its error:

fig, axis = plt.subplots(figsize=(8, 2.8), layout="constrained")
time = test["time"].values[n_window:]
axis.plot(time, y[n_window:], "k", linewidth=0.8, label="measured")
axis.plot(time, simulated, label="free run")
axis.plot(time, y[n_window:] - simulated, linewidth=0.8, label="error")
axis.set(xlabel="time [s]", ylabel="angle [rad]")
axis.legend(frameon=False, ncols=3)
plt.show()

# %%
# The :doc:`glossary </explanation/glossary>` explains our words.
