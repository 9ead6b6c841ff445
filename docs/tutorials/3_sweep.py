"""
A sweep, from the first look to the figure
==========================================

A sample asks for a place among the stored points where its prediction is wrong by the error
threshold or more. How large may the threshold be, and which criterion should decide which point
leaves? That is the question of the paper, whose model learns from the stored samples alone
(``learning=stored``) and holds no outlier back (``gate=none``). Two criteria, four thresholds and
three seeds are 24 runs of the building. You will start them with one command, collect them into one
data set with named dimensions, and draw the figure that answers the question.
"""

# %%
# A first look
# ------------
#
# Always run one job by itself before a hundred. It says in seconds whether the settings are what
# you meant.
#
# (``run`` calls a command as you would on the terminal; the folder is a temporary one.)

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import xarray as xr

folder = Path(tempfile.mkdtemp())


def run(command: str) -> None:
    """``sysid-<command> ...`` in the folder; prints what it says."""
    name, _, rest = command.partition(" ")
    call = [sys.executable, "-m", f"experiments.{name}", *rest.split()]
    done = subprocess.run(call, cwd=folder, env=os.environ, capture_output=True, text=True)
    lines = (done.stdout + done.stderr).strip().splitlines()
    print(f"$ sysid-{command}\n" + "\n".join(lines[-12:]))
    done.check_returncode()


run("identify duration=60d learning=stored gate=none figures=false")

# %%
# All of them
# -----------
#
# ``-m`` runs all combinations of the values that are separated by commas. The simulation is shared:
# it is done once for each seed. Say the same command again after an interruption, and only what is
# missing is run.

run(
    "identify -m duration=60d learning=stored gate=none insertion.error_threshold=0.05,0.1,0.15,0.2 "
    "reduction=mean_relevance,prior_entropy seed=range(0,3) hydra.sweep.dir=sweep"
)

# %%
# Collect
# -------
#
# One data set, a dimension for each swept parameter. A job that failed would be a gap, counted and
# named.

run("collect sweep figures=false")
results = xr.open_dataset(folder / "sweep" / "sweep.nc")
print(dict(results.sizes))
print(results["smse"].median("seed").to_pandas().round(3))

# %%
# The figure
# ----------
#
# Error and revised points against the threshold: what accuracy costs. Revised points are the
# samples that entered while another point left (``n_revised``). Lines are medians over the seeds,
# bands their range.

fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
threshold = results["error_threshold"]
for name in results["reduction"].values:
    chosen = results.sel(reduction=name)
    for axis, quantity in zip(axes, ("smse", "n_revised"), strict=True):
        values = chosen[quantity]
        axis.fill_between(threshold, values.min("seed"), values.max("seed"), alpha=0.2, linewidth=0)
        axis.plot(threshold, values.median("seed"), "o-", markersize=3, label=str(name))
axes[0].set(xlabel="error threshold [K]", ylabel="SMSE after the stream [-]")
axes[1].set(xlabel="error threshold [K]", ylabel="revised points [-]", yscale="log")
axes[0].legend(frameon=False)
plt.show()

# %%
# A larger threshold saves nearly all replacements. Up to about 0.15 K it costs little accuracy;
# beyond, the model learns too little. With a small threshold mean relevance is the safer criterion:
# its results differ less from seed to seed.
#
# ``sysid-collect`` draws such figures by itself, and writes tables (``sweep.csv``, ``sweep.md``).
# The record of a job, sample by sample, is in its own file:

record = xr.open_dataset(folder / "sweep" / "0" / "job.nc", group="record")
print(list(record.data_vars)[:8])

# %%
# With ``learning=every_sample``, the default of the toolbox, repeat the sweep: the threshold hardly
# matters any more, since every sample is learned, whether it gets a place or not.
#
# On more processors, add ``hydra/launcher=joblib``, ``dask`` or ``slurm``; to search instead of
# trying all combinations, ``hydra/sweeper=optuna``.
