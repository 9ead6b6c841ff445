"""
Your own record, from the raw file to a validated model
=======================================================

A data logger has written two files: one experiment to learn from, and another one to score the
model on. You will read them, find the lags, identify a model, test its residuals, simulate with it,
and store it.
"""

# %%
# Two files of a logger
# ---------------------
#
# So that this page needs no download, the files come from a simulated pair of tanks: a pump fills
# the upper tank, and the level of the lower tank is measured with noise. The files look like those
# of a logger: semicolons, decimal commas, a column of times. Replace this part with your own files.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from simulators import APRBS, CascadedTanks, MeasurementNoise, simulate

folder = Path(tempfile.mkdtemp())
excitation = APRBS(low=-2.5, high=2.5, shortest_hold=40.0, longest_hold=400.0, offset=3.0)
for seed, name in enumerate(("experiment.csv", "check.csv")):
    pump = excitation.signal(2000, 4.0, np.random.default_rng(seed))
    run = simulate(CascadedTanks(), pump, seed=seed, measurement=MeasurementNoise(std=0.05))
    table = pd.DataFrame({"time [s]": run.time, "pump [V]": pump, "level [V]": run.output[:, 0]})
    table.to_csv(folder / name, sep=";", decimal=",", index=False, float_format="%.4f")
print((folder / "experiment.csv").read_text()[:80])

# %%
# Read, and look
# --------------
#
# ``CsvFiles`` reads files as loggers write them: units in the names of the columns, times or time
# stamps, semicolons, decimal commas. It checks every cell: a gap, text instead of a number, or an
# irregular time is an error that names the line. Look at the data before you model them. Does the
# input move over the range that you care about? Does the output saturate?

from sysid import CsvFiles

source = CsvFiles(
    estimation=str(folder / "experiment.csv"),
    test=str(folder / "check.csv"),
    inputs=["pump"],
    outputs=["level"],
)
recordings = source.load()
record = recordings.estimation[0]
test_record = recordings.test[0]

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
# ``choose_lags`` compares lags on held-out folds of the record. It tries linear models with all
# numbers of lags up to ``max_order``, and the model itself with the best of them. ``na`` and ``nb``
# are the numbers of lags of the level and of the pump, and ``nk`` is the first lag of the pump. The
# printed numbers are errors (RMSE) in V. The lags with the smallest error of the model win, with or
# without a linear part, which has more lags (:doc:`the linear part </explanation/linear_part>`).

from sysid import choose_lags

choice = choose_lags(record, "level", ["pump"], max_order=6)
print(choice)

# %%
# Identify
# --------
#
# Unlike a stream, a record is known as a whole. Scales, trend and hyper-parameters are therefore
# estimated from samples that are spread over it. Then every sample is learned, in order. Errors on
# held-out folds determine how wide the bands are.

from sysid import identify

# learn the whole record, because there is another one to score the model on
found = identify(record, choice.narx, test=test_record)
model = found.model
print(f"{model.gp.n_points} points, noise {np.sqrt(model.gp.noise_variance):.3f} V")

# %%
# What the residuals show
# -----------------------
#
# The model predicts the test record one step ahead. The residuals are the measured values minus the
# predictions. If they are correlated with each other, the lags or the model of the noise are wrong.
# If they are correlated with the pump, the model does not describe all of its effect.
# :doc:`Residual tests </explanation/residual_tests>` explains each test.

from sysid import AboutPath, Pathwise, forecast, residual_tests, validate


def score(model, horizon, name):
    """Print the scores on the test record, and return its predictions.

    The predictions are `horizon` samples ahead; None is the free run.
    """
    propagation = AboutPath(Pathwise(n_samples=300))
    forecasts = forecast(model, test_record, horizon=horizon, window=10, propagation=propagation)
    predicted = forecasts.records[0]
    scores = validate(
        predicted.measured[:, 0],
        predicted.mean[:, 0],
        predicted.variance[:, 0],
        model.gp.noise_variance,
    )
    print(f"{name}: RMSE {scores.rmse:.3f} V, fit {scores.fit_percent:.1f} %")
    print(f"  the 95 % band covers {100 * scores.coverage_95:.0f} %")
    return predicted


one_step = score(model, 1, "1 ahead")
residual = one_step.measured[:, 0] - one_step.mean[:, 0]
pump = test_record["pump"].values[-len(residual) :]
report = residual_tests(residual, pump, output_names=["level"], input_names=["pump"])
print("\n".join(report.verdict()))

# %%
# The tests reject the model clearly. The lags of the level contain noise of the measurement, which
# a one-step model cannot remove completely, and a record of this length suffices to detect this.
# But the size of a correlation matters more than its significance: the largest one is 0.1.
#
# One step ahead is not enough
# ----------------------------
#
# The next predictions are ten steps ahead, and in free run: the model is given the pump and the
# first samples of the level, and after these it uses its own predictions. A model that is excellent
# one step ahead may be poor here, because small errors add up. The predicted path is that of the
# mean, fed back. ``AboutPath(Pathwise(n_samples=300))`` draws 300 functions from the model to
# compute the calibrated band about this path.

score(model, 10, "10 ahead")
trained_one_step_ahead = score(model, None, "free run")

# %%
# Train for the free run
# ----------------------
#
# ``FreeRun`` chooses the model by the error of its simulation on held-out folds of the record. It
# has several routes, and by default it tries all of them, which takes minutes. Here it is given one
# route, with few stages. This training estimates no linear part, so ``without_linear`` removes the
# lags of the linear part.

from sysid import FreeRun, OutputErrorRefinement, Settings

routes = (OutputErrorRefinement(stages=2),)
settings = Settings(training=FreeRun(routes=routes, folds=2))
model = identify(record, choice.narx.without_linear(), settings, identified=1).model
trained_for_free_run = score(model, None, "free run, trained for it")

# %%
# The figure compares the free runs of both models with the measured level, over the first hour:

minutes = trained_for_free_run.time / 60
mean = trained_for_free_run.mean[:, 0]
half_width = 1.96 * np.sqrt(trained_for_free_run.variance[:, 0] + model.gp.noise_variance)
measured = trained_for_free_run.measured[:, 0]
fig, axis = plt.subplots(figsize=(8, 3.4), layout="constrained")
axis.fill_between(minutes, mean - half_width, mean + half_width, alpha=0.25, linewidth=0)
axis.plot(minutes, mean, label="trained for the free run, 95 % band")
axis.plot(minutes, trained_one_step_ahead.mean[:, 0], ":", label="trained one step ahead")
axis.plot(minutes, measured, "k", linewidth=0.7, label="measured")
axis.set(xlabel="time [min]", ylabel="level [V]", xlim=(0, 60))
axis.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.15))
plt.show()

# %%
# Store it
# --------
#
# The file contains the model bit for bit, with its lags, units and hyper-parameters.
# ``export_python`` writes one readable file that predicts and simulates with NumPy alone.

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
# This command chooses the lags, compares the model with linear ones, validates it on the test
# record and draws all these figures. With ``training=free_run`` it trains for the free run by all
# routes, and chooses the lags for the free run too.
#
# In Python ``identify`` does the same in one call. It reads the files, and chooses the lags if none
# are given; ``purpose="simulation"`` trains for the free run:
#
# .. code-block:: python
#
#    found = identify("experiment.csv", inputs=["pump"], outputs=["level"], test="check.csv")
#
# ``compare`` scores the model on the test record, beside linear ones. Here it is the model that was
# identified first:

print(found.compare().round(3))

# %%
# The model is the best of the four, one step ahead and in free run, although it was not trained for
# the free run. The section above shows how much ``purpose="simulation"`` improves the free run.
#
# The :doc:`glossary </explanation/glossary>` explains our words.
