"""
A new benchmark of your own equation
====================================

A benchmark is more than a file with two signals: it needs records to learn from and to judge by,
the best that any model could do, and a way to score that nobody can misread. You will write down an
equation, make a benchmark folder of it with one command, and take part in it with a model.
"""

# %%
# The equation
# ------------
#
# A pendulum with friction, driven by a torque. A system states its signals, its parameters and its
# drift; one yaml file names the class.

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

folder = Path(tempfile.mkdtemp())
(folder / "mine" / "conf" / "system").mkdir(parents=True)
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
for name, text in (
    ("pendulum.py", PENDULUM),
    ("conf/system/pendulum.yaml", "_target_: mine.pendulum.Pendulum\nfriction: 0.5\n"),
):
    (folder / "mine" / name).write_text(text)

# %%
# Simulate it once, before anything is published: does the excitation reach the nonlinear region?

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
# One record of each kind, measured with noise at a signal-to-noise ratio of 40 dB, and a few
# baselines. ``narx=orders`` gives the baselines two lags of each signal.

command = (
    "--config-dir mine/conf system=pendulum excitation.rms=2 excitation.band=[0.05,1] noise.snr_db=40 "
    "estimation=2000 validation=500 test=1000 narx=orders output=pendulum_benchmark seed=7"
)
call = [sys.executable, "-m", "experiments.generate", *command.split()]
done = subprocess.run(call, cwd=folder, env=os.environ, capture_output=True, text=True)
print(f"$ sysid-generate {command}\n" + (done.stdout + done.stderr).strip())
done.check_returncode()
benchmark = folder / "pendulum_benchmark"
print(
    *sorted(str(path.relative_to(benchmark)) for path in benchmark.rglob("*") if path.is_file()),
    sep="\n",
)

# %%
# ``CARD.md`` tells a stranger what there is to know, in words; ``scores.json`` has its numbers: the
# noise floor, which is the best that any model can do, and the baselines. These were identified one
# step ahead, which is why they simulate badly (``free_run``).

scores = json.loads((benchmark / "scores.json").read_text())
for task in ("one_step", "free_run"):
    for name, outputs in scores[task].items():
        print(f"{task:10} {name:20} RMSE {outputs['measured_angle']['rmse']:.4f} rad")

# %%
# Take part
# ---------
#
# Another group has ``benchmark.nc`` or the CSV files, and ``score.py``, which needs NumPy only.
# Learn from the estimation record, simulate the test, write the prediction, score it. The model is
# trained for the simulation, by one quick way of several (see the tutorial on your own record). In
# the score NRMSE is the RMSE over the standard deviation of the output, and the fit what is left of
# 100 %.

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
(estimation,), (test,) = recordings.estimation, recordings.test
narx = Narx({"measured_angle": 2}, {"torque": 2}, predict="change")
training = FreeRun(routes=(OutputErrorRefinement(stages=2),), folds=2)
model = identify(estimation, narx, Settings(training=training), identified=1).model

given = int(test.attrs["initialisation_window"])
y = test["measured_angle"].values[:, None]
u = test["torque"].values[:, None]
simulated = free_run(model, u, y[:given]).mean
np.save(folder / "prediction.npy", np.concatenate([y[:given], simulated])[:, 0])
score = [sys.executable, str(benchmark / "score.py"), "prediction.npy"]
print(subprocess.run(score, cwd=folder, capture_output=True, text=True, check=True).stdout)

# %%
fig, axis = plt.subplots(figsize=(8, 2.8), layout="constrained")
time = test["time"].values[given:]
axis.plot(time, y[given:], "k", linewidth=0.8, label="measured")
axis.plot(time, simulated, label="free run")
axis.plot(time, y[given:] - simulated, linewidth=0.8, label="error")
axis.set(xlabel="time [s]", ylabel="angle [rad]")
axis.legend(frameon=False, ncols=3)
plt.show()
