"""
A sweep, from the first run to the figure
=========================================

A sample is a candidate for a stored point if its prediction is wrong by the error threshold or
more. How large may the threshold be, and which criterion should choose the point that leaves? This
is the question of the paper, whose model learns from the stored samples alone
(``learning=stored``) and has no outlier test (``gate=none``). Two criteria, four thresholds and
three seeds are 24 runs of the building. You will start them with one command, collect them as one
data set with named dimensions, and draw the figure that answers the question.
"""

# %%
# A first run
# -----------
#
# Always run one job by itself before you run a hundred. This job shows within seconds whether the
# settings are what you meant.
#
# (``run`` calls a command as you would in a terminal. The folder is a temporary one.)

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import xarray as xr

folder = Path(tempfile.mkdtemp())


def run(command: str) -> None:
    """Run ``sysid-<command>`` in the folder, and print the last lines of its output."""
    name, *arguments = command.split()
    call = [sys.executable, "-m", f"experiments.{name}", *arguments]
    done = subprocess.run(call, cwd=folder, env=os.environ, capture_output=True, text=True)
    lines = (done.stdout + done.stderr).strip().splitlines()
    print(f"$ sysid-{command}")
    print("\n".join(lines[-12:]))
    done.check_returncode()


run("identify duration=60d learning=stored gate=none figures=false")

# %%
# All of them
# -----------
#
# ``-m`` runs all combinations of the values that are separated by commas. The simulation depends on
# the seed only, so jobs with the same seed share it. After an interruption, start the same command
# again: it runs only the jobs that are missing.

run(
    "identify -m duration=60d learning=stored gate=none "
    "insertion.error_threshold=0.05,0.1,0.15,0.2 "
    "reduction=mean_relevance,prior_entropy seed=range(0,3) hydra.sweep.dir=sweep"
)

# %%
# Collect
# -------
#
# The result is one data set with a dimension for each swept parameter. A job that failed would be a
# missing value, and the output would count and name such jobs.

run("collect sweep figures=false")
results = xr.open_dataset(folder / "sweep" / "sweep.nc")
print(dict(results.sizes))
print(results["smse"].median("seed").to_pandas().round(3))

# %%
# The figure
# ----------
#
# The figure shows the error and its price, the number of revised points, against the threshold.
# Revised points are samples that were stored while another point left (``n_revised``). Lines are
# medians over the seeds, and bands are their range.

fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
threshold = results["error_threshold"]
for criterion in results["reduction"].values:
    runs = results.sel(reduction=criterion)
    for axis, quantity in zip(axes, ("smse", "n_revised"), strict=True):
        values = runs[quantity]
        axis.fill_between(threshold, values.min("seed"), values.max("seed"), alpha=0.2, linewidth=0)
        axis.plot(threshold, values.median("seed"), "o-", markersize=3, label=str(criterion))
axes[0].set(xlabel="error threshold [K]", ylabel="SMSE after the stream [1]")
axes[1].set(xlabel="error threshold [K]", ylabel="revised points [1]", yscale="log")
axes[0].legend(frameon=False)
plt.show()

# %%
# A larger threshold saves nearly all replacements of points. Up to about 0.15 K it costs little
# accuracy. Above 0.15 K, the model learns too little. With a small threshold, mean relevance is the
# safer criterion: its results differ less from seed to seed.
#
# ``sysid-collect`` draws such figures by itself, and writes tables (``sweep.csv``, ``sweep.md``).
# The record of each job, sample by sample, is in a file of its own:

record = xr.open_dataset(folder / "sweep" / "0" / "job.nc", group="record")
print(list(record.data_vars)[:8])

# %%
# Repeat the sweep with ``learning=every_sample``, the default of the toolbox. The threshold then
# hardly matters, because every sample is learned, whether it is stored or not.
#
# For more processors, add ``hydra/launcher=joblib``, ``dask`` or ``slurm``. To search instead of
# running all combinations, add ``hydra/sweeper=optuna``.
#
# The :doc:`glossary </explanation/glossary>` explains our words.
