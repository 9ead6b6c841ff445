"""
A building, identified while it is heated
=========================================

A zone with a wall and a radiator is controlled by a PI controller for a year, with one sample every
15 minutes. The model gets each sample as soon as it is measured. You will see how a model of 100
points learns a year, which samples it keeps, and how it predicts afterwards.

The command ``sysid-identify`` does all this and writes files and figures. Here it is done step by
step, to show the parts.
"""

# %%
# The plant and its loop
# ----------------------
#
# ``closed_loop`` is lazy: it simulates a sample only when the sample is requested, just as a real
# plant would deliver it.

import matplotlib.pyplot as plt
import numpy as np

from simulators import PI, Building, SyntheticWeather, closed_loop

system = Building()
n_samples = 35041  # samples of 15 minutes: a year
time = system.dt * np.arange(n_samples)
weather = SyntheticWeather().temperature(time, seed=0)
samples = closed_loop(system, PI(), {"ambient_temperature": weather}, seed=0)

# %%
# The model
# ---------
#
# The model predicts the change of the zone temperature over the next sample. It is the sum of two
# parts: a Gaussian process of three lags of each signal, which are its last three values, and a
# linear part of fourteen lags. The hyper-parameters are estimated from the first 100 samples. From
# then on every sample is learned. A sample whose prediction is wrong by 0.1 K or more is a
# candidate for one of the 100 stored points.

from sysid import ErrorThreshold, Identification, LagWindow, Narx, Settings

narx = Narx(
    outputs={"zone_temperature": 3},
    inputs={"ambient_temperature": 3, "mass_flow": 3},
    predict="change",
)
settings = Settings(budget=100, insertion=ErrorThreshold(0.1), seed=0)
narx = settings.with_linear_lags(narx)  # adds the lags of the linear part
identification = Identification(narx, settings)
window = LagWindow(narx)

# %%
# Live in the loop
# ----------------
#
# The first half of the year is identified. ``window`` keeps the lags. For each sample it returns a
# row: the regressor, which consists of the lags, and the target that belongs to them. ``observe``
# predicts the target, and only then learns it. In the second half of the year the same controller
# goes on, and the samples of this half are kept to score the model.

reports = []
test_rows = []
for k, sample in enumerate(samples):
    row = window.observe(sample.output, sample.input)
    if row is None:
        continue  # there are not enough past samples for all lags
    if k > n_samples // 2:
        test_rows.append(row)
        continue
    report = identification.observe(row.regressor, row.target)
    if report is not None:
        reports.append(report)  # the first 100 samples have no report

model = identification.model
was_stored = [report.accepted for report in reports]
print(f"{len(reports)} samples learned, {sum(was_stored)} of them stored")
print(f"{model.gp.n_points} points kept")

# %%
# What it predicts
# ----------------
#
# The model at the end of the first half of the year predicts the second half one step ahead.
# ``variance`` is the uncertainty of the function; a measurement has the variance of the noise in
# addition. SMSE is the mean squared error divided by the variance of the target: a model that
# always predicts no change has an SMSE of 1.

from sysid import validate

x = np.array([row.regressor for row in test_rows])
y = np.array([row.target for row in test_rows])
mean, variance = model.predict(x)
function_variance = model.calibrated(variance)
noise_variance = model.gp.noise_variance
scores = validate(y, mean, function_variance, noise_variance)
print(f"SMSE {scores.smse:.3f}, RMSE {scores.rmse:.4f} K")
print(f"the 95 % band covers {100 * scores.coverage_95:.1f} % of the measurements")

# %%
# The figure shows the last two days of December, with the band in which 95 % of the measurements
# should lie. The jumps follow changes of the set-point in the morning of a working day and at
# night:

two_days = slice(len(y) - 2 * 96, len(y))
hours = np.arange(2 * 96) / 4
half_width = 1.96 * np.sqrt(function_variance + noise_variance)
lower = mean - half_width
upper = mean + half_width
fig, axis = plt.subplots(figsize=(8, 3.2), layout="constrained")
axis.fill_between(
    hours,
    lower[two_days],
    upper[two_days],
    alpha=0.25,
    linewidth=0,
    label="95 % band",
)
axis.plot(hours, mean[two_days], label="predicted")
axis.plot(hours, y[two_days], "k.", markersize=3, label="measured")
axis.set(xlabel="time [h]", ylabel="change over 15 min [K]")
axis.legend(ncols=3, frameon=False)
plt.show()

# %%
# Which samples it keeps
# ----------------------
#
# Now and then a sample becomes a stored point, and another point is removed. In this way the stored
# points cover the region that the loop has visited. All other samples change the values at these
# points. The stored points outside the grey region are samples of the first day, when the zone was
# still cold.

n_stored = np.cumsum(was_stored)
weeks = np.arange(len(n_stored)) / (7 * 96)
fig, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
axes[0].plot(weeks, n_stored)
axes[0].set(xlabel="week", ylabel="samples stored so far")

# columns of the regressor with the latest value of each temperature
ZONE = 0
AMBIENT = 3
axes[1].plot(
    x[:, AMBIENT],
    x[:, ZONE],
    ".",
    color="0.8",
    markersize=1,
    label="second half of the year",
)
points = model.scaling.inverse(model.gp.inputs)  # the model keeps them standardised
axes[1].plot(points[:, AMBIENT], points[:, ZONE], "o", markersize=3, label="stored points")
axes[1].set(
    xlabel="ambient temperature [\N{DEGREE SIGN}C]", ylabel="zone temperature [\N{DEGREE SIGN}C]"
)
axes[1].legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, markerscale=1.5)
plt.show()

# %%
# Where to go on
# --------------
#
# ``sysid-identify`` does the same and writes files, figures and a summary. It counts some more
# stored samples: the gate holds a sample back if its prediction is wrong by more than four standard
# deviations, and some of these samples are stored one sample later.
# ``reduction=marginal_log_likelihood`` chooses another criterion. With ``learning=stored
# gate=none`` the model learns from the stored points alone, as in the paper.
#
# The :doc:`glossary </explanation/glossary>` explains our words.
