"""
A building, identified while it is heated
=========================================

A zone with a wall and a radiator runs under its PI controller for a year, one sample every 15
minutes. Each sample is handed to the model the moment it is measured. You will see how a model of
100 points learns a year, which samples it keeps, and how it predicts afterwards.

The command ``sysid-identify`` does all this and writes files and figures. Here it is done by hand,
to show the parts.
"""

# %%
# The plant and its loop
# ----------------------
#
# ``closed_loop`` is lazy: it simulates the next sample when it is asked for one, as a real plant
# would deliver it.

import matplotlib.pyplot as plt
import numpy as np

from simulators import PI, Building, SyntheticWeather, closed_loop

system = Building()
n = 35041  # samples of 15 minutes: a year
time = system.dt * np.arange(n)
weather = SyntheticWeather().temperature(time, seed=0)
samples = closed_loop(system, PI(), {"ambient_temperature": weather}, seed=0)

# %%
# The model
# ---------
#
# It predicts the change of the zone temperature over the next sample from three lags of each
# signal: its last three values. The first 100 samples give the hyper-parameters. From then on every
# sample is learned, and one whose prediction is wrong by 0.1 K or more asks for a place among the
# 100 stored points.

from sysid import ErrorThreshold, Identification, LagWindow, Narx, Settings

narx = Narx(
    outputs={"zone_temperature": 3},
    inputs={"ambient_temperature": 3, "mass_flow": 3},
    predict="change",
)
identification = Identification(narx, Settings(budget=100, insertion=ErrorThreshold(0.1), seed=0))
window = LagWindow(narx)

# %%
# Live in the loop
# ----------------
#
# One half of the year is identified. ``window`` keeps the lags and hands out a pair: the lags, and
# the target that belongs to them. ``observe`` predicts the target, and only then learns it. The
# second half goes on under the same controller and is kept to judge the model.

reports = []
judged = []
for k, sample in enumerate(samples):
    pair = window.observe(sample.output, sample.input)
    if pair is None:  # the lags are not there yet
        continue
    if k > n // 2:
        judged.append(pair)
    else:
        report = identification.observe(*pair)
        if report is not None:  # the first 100 samples only train
            reports.append(report)

model = identification.model
print(
    f"{len(reports)} samples learned, {sum(r.accepted for r in reports)} entered, {model.gp.n_points} points kept"
)

# %%
# What it predicts
# ----------------
#
# The model as it stands at the end of the first half predicts the second half one step ahead.
# ``variance`` says how unsure the model is of the function; the noise of a measurement comes on top
# of it. SMSE is the mean squared error over the variance of the target: 1 is as good as "no
# change".

from sysid import validate

x = np.array([row.regressor for row in judged])
y = np.array([row.target for row in judged])
mean, variance = model.predict(x)
scores = validate(y, mean, model.calibrated(variance), model.gp.noise_variance)
print(
    f"SMSE {scores.smse:.3f}, RMSE {scores.rmse:.4f} K, the 95 % band covers {100 * scores.coverage_95:.1f} %"
)

# %%
# The last two days of December, with the band in which 95 % of the measurements should lie. The
# jumps are the set-point, in the morning of a working day and at night:

days = slice(len(y) - 2 * 96, len(y))
half_width = 1.96 * np.sqrt(model.calibrated(variance) + model.gp.noise_variance)
hours = np.arange(2 * 96) / 4
fig, axis = plt.subplots(figsize=(8, 3.2), layout="constrained")
axis.fill_between(
    hours,
    (mean - half_width)[days],
    (mean + half_width)[days],
    alpha=0.25,
    label="95 % band",
    linewidth=0,
)
axis.plot(hours, mean[days], label="predicted")
axis.plot(hours, y[days], "k.", markersize=3, label="measured")
axis.set(xlabel="time [h]", ylabel="change over 15 min [K]")
axis.legend(ncols=3, frameon=False)
plt.show()

# %%
# Which samples it keeps
# ----------------------
#
# Now and then a sample is worth a place, and another one leaves for it: the points cover what the
# loop has seen. All other samples move the values at these points. Points outside the grey ones are
# of the first day, when the zone was still cold.

entered = np.cumsum([report.accepted for report in reports])
weeks = np.arange(len(entered)) / (7 * 96)
fig, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
axes[0].plot(weeks, entered)
axes[0].set(xlabel="week", ylabel="samples that entered")
# columns: the first lag of the zone temperature, the first one of the ambient temperature
now = 0
outside = 3
axes[1].plot(
    x[:, outside],
    x[:, now],
    ".",
    color="0.8",
    markersize=1,
    label="second half of the year",
)
points = model.scaling.inverse(model.gp.inputs)  # the model keeps them standardised
axes[1].plot(points[:, outside], points[:, now], "o", markersize=3, label="stored points")
axes[1].set(xlabel="ambient temperature [degC]", ylabel="zone temperature [degC]")
axes[1].legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2, markerscale=1.5)
plt.show()

# %%
# Where to go on
# --------------
#
# ``sysid-identify`` is this script with files, figures and a summary. It counts some more samples
# that entered: the gate holds a sample back that is wrong by more than four standard deviations,
# and some of these enter one sample later. Take another criterion with
# ``reduction=marginal_log_likelihood``, or learn from the stored points alone, as the paper does,
# with ``learning=stored gate=none``.
