"""
Your own record, from the raw file to a validated model
=======================================================

A data logger has written two files: an experiment to learn from, and another one to judge by. You
will read them, find the lags, identify a model, look at its residuals, let it run freely, and keep
it.
"""

# %%
# Two files of a logger
# ---------------------
#
# So that this page needs no download, the files come from a simulated pair of tanks: a pump fills
# the upper tank, the level of the lower one is measured with noise. They look as loggers write:
# semicolons, decimal commas, a column of time. Replace this part with your own files.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from simulators import APRBS, CascadedTanks, MeasurementNoise, simulate

folder = Path(tempfile.mkdtemp())
for seed, name in enumerate(("experiment.csv", "check.csv")):
    rng = np.random.default_rng(seed)
    pump = APRBS(low=-2.5, high=2.5, shortest_hold=40.0, longest_hold=400.0, offset=3.0).signal(
        2000, 4.0, rng
    )
    run = simulate(CascadedTanks(), pump, seed=seed, measurement=MeasurementNoise(std=0.05))
    table = pd.DataFrame({"time [s]": run.time, "pump [V]": pump, "level [V]": run.output[:, 0]})
    table.to_csv(folder / name, sep=";", decimal=",", index=False, float_format="%.4f")
print((folder / "experiment.csv").read_text()[:80])

# %%
# Read, and look
# --------------
#
# ``CsvFiles`` reads files as they come: units in the names of the columns, times or time stamps,
# semicolons, decimal commas. It checks every cell: a gap, a text or an irregular time is an error
# that names the line. Look at the data before you model them. Does the input move over the range
# that you care about? Does the output saturate?

from sysid import CsvFiles

source = CsvFiles(
    estimation=str(folder / "experiment.csv"),
    test=str(folder / "check.csv"),
    inputs=["pump"],
    outputs=["level"],
)
recordings = source.load()
(record,), (test,) = recordings.estimation, recordings.test

fig, axes = plt.subplots(2, 1, figsize=(8, 4), sharex=True, layout="constrained")
for axis, name in zip(axes, ("level", "pump"), strict=True):
    axis.plot(record["time"] / 60, record[name], linewidth=0.8)
    axis.set(ylabel=f"{name} [V]")
axes[1].set(xlabel="time [min]")
plt.show()

# %%
# Lags
# ----
#
# ``choose_lags`` compares lags on parts of the record that were held out: linear models of all
# numbers of lags, and the model itself for the best of them. ``na`` and ``nb`` are the numbers of
# lags of the level and of the pump, ``nk`` is the first one of the pump. The numbers are errors
# (RMSE) in V; the smallest one of the model wins.

from sysid import choose_lags

choice = choose_lags(record, "level", ["pump"])
print(choice)

# %%
# Identify
# --------
#
# A record is known as a whole: scales, trend and hyper-parameters come from samples spread over it,
# then every sample is learned in its order, and the bands are made as wide as the errors on
# held-out parts.

from sysid import identify

model = identify(record, choice.narx, identified=1).model  # there is another record to judge by
print(f"{model.gp.n_points} points, noise {np.sqrt(model.gp.noise_variance):.3f} V")

# %%
# What the residuals still know
# -----------------------------
#
# Predict the other record one step ahead. What is measured minus what is predicted are the
# residuals. If they are correlated with themselves, lags or noise are wrong; if they are correlated
# with the pump, the model has missed a part of its effect. :doc:`Residual tests
# </explanation/residual_tests>` says what each test looks for.

from sysid import AboutPath, Pathwise, forecast, residual_tests, validate


def judge(model, horizon):
    """Prediction of the other record `horizon` samples ahead, or in free run, and its scores."""
    predicted = forecast(model, test, horizon=horizon, window=10, propagation=AboutPath(Pathwise()))
    (one,) = predicted.records
    scores = validate(
        one.measured[:, 0], one.mean[:, 0], one.variance[:, 0], model.gp.noise_variance
    )
    print(
        f"{f'{horizon} ahead' if horizon else 'free run'}: RMSE {scores.rmse:.3f} V, fit {scores.fit_percent:.1f} %, "
        f"95 % band covers {100 * scores.coverage_95:.0f} %"
    )
    return one


one = judge(model, 1)
residual = one.measured[:, 0] - one.mean[:, 0]
report = residual_tests(
    residual,
    test["pump"].values[-len(residual) :],
    output_names=["level"],
    input_names=["pump"],
)
print("\n".join(report.verdict()))

# %%
# They find a lot. The levels among the lags are measured with noise, and a one-step model of few
# lags cannot take it out; a record of this length shows that clearly. How large it is counts more
# than how certain it is: the largest correlation is 0.26.
#
# One step ahead is not enough
# ----------------------------
#
# Now ten steps ahead, and in free run: the model sees the pump and the first samples, and after
# these only its own predictions. A model that is excellent one step ahead may be poor here, because
# small errors add up. The path is the mean fed back; ``AboutPath(Pathwise())`` puts the calibrated
# band of functions drawn from the model about it.

judge(model, 10)
poor = judge(model, None)

# %%
# Train for the free run
# ----------------------
#
# ``FreeRun`` chooses the model by the error of its simulation on held-out parts of the record. It
# has several ways to do so and by default tries them all, which takes minutes; here it is given one
# of them, with few steps.

from sysid import FreeRun, OutputErrorRefinement, Settings

routes = (OutputErrorRefinement(stages=2),)
settings = Settings(training=FreeRun(routes=routes, folds=3))
model = identify(record, choice.narx, settings, identified=1).model
good = judge(model, None)

# %%
fig, axis = plt.subplots(figsize=(8, 3.4), layout="constrained")
minutes = good.time / 60
half_width = 1.96 * np.sqrt(good.variance[:, 0] + model.gp.noise_variance)
axis.fill_between(
    minutes,
    good.mean[:, 0] - half_width,
    good.mean[:, 0] + half_width,
    alpha=0.25,
    linewidth=0,
)
axis.plot(minutes, good.mean[:, 0], label="trained for the free run, 95 % band")
axis.plot(minutes, poor.mean[:, 0], ":", label="trained one step ahead")
axis.plot(minutes, good.measured[:, 0], "k", linewidth=0.7, label="measured")
axis.set(xlabel="time [min]", ylabel="level [V]", xlim=(0, 60))
axis.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.15))
plt.show()

# %%
# Keep it
# -------
#
# The file has the model bit for bit, its lags, units and hyper-parameters. ``export_python`` writes
# one readable file that predicts and simulates with NumPy alone.

from sysid import Model, export_python

model.save(folder / "model.nc")
export_python(Model.load(folder / "model.nc"), folder / "tanks.py")
print(sorted(path.name for path in folder.iterdir()))

# %%
# The same from the command line
# ------------------------------
#
# .. code-block:: bash
#
#    sysid-identify data=csv data.estimation=experiment.csv data.test=check.csv data.inputs=[pump] \
#        data.outputs=[level]
#
# It chooses the lags, compares the model with linear ones, validates it on the other record and
# draws all this. With ``training=free_run`` it trains for the free run, all ways, and chooses the
# lags for it too.
#
# In Python one call does the same, from files or tables; ``purpose="simulation"`` trains for the
# free run:

found = identify(
    folder / "experiment.csv",
    inputs=["pump"],
    outputs=["level"],
    test=folder / "check.csv",
)
print(found.compare().round(3))

# %%
# One step ahead the model is the best of the three. In free run a linear model (ARX) is better,
# because this model was not trained for it: see above for what ``purpose="simulation"`` brings.
