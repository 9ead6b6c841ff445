"""Folders of sweeps that were written without running a job, with numbers from simple formulas."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import xarray as xr

from experiments.files.job_file import Content, write
from experiments.sweeps.store import Entry, Job, Manifest, Outcome, write_outcome
from helpers.searches import EMPTY_SUMMARY

THRESHOLD_KEY = "insertion.error_threshold"

SWEPT_VALUES = {
    THRESHOLD_KEY: [0.2, 0.05],
    "reduction": ["prior_entropy", "a|b"],
    "seed": [0, 1, 2],
}


def read_planned_jobs(folder):
    """Return the jobs of sweep.json."""
    return json.loads((folder / "sweep.json").read_text())["jobs"]


def write_sweep(folder, values, metric, skip=(), fail=(), several=False):
    """Write the folder of a sweep, and return it.

    Parameters
    ----------
    folder
        That of the sweep; made if it is missing.
    values
        Swept key to the list of its values, of which all combinations are jobs; or the list of the
        values of each job (dicts).
    metric
        Function from the values of a job to its summary (dict); with `several` to a dict of
        summaries, by output.
    skip, fail
        Numbers of jobs that were not run, and that have failed.
    several
        Whether `metric` returns the summaries of several outputs.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(values, dict):
        combinations = itertools.product(*values.values())
        values = [dict(zip(values, combination, strict=True)) for combination in combinations]
    write_manifest(folder, values)
    for number, job in enumerate(read_planned_jobs(folder)):
        if number in fail:
            error = "ValueError: it did not work\n| twice"
            end_job(folder, job, done=False, error=error, traceback="Traceback")
        elif number not in skip:
            write_job(folder, job, metric(job["values"]), several=several)
    return folder


def write_manifest(folder, values_of_jobs):
    """Write sweep.json for jobs with these values."""
    entries = {}
    for number, values in enumerate(values_of_jobs):
        identity = f"x{number}"
        overrides = ("budget=20", *(f"{key}={value}" for key, value in values.items()))
        entries[identity] = Entry(number, identity, overrides, values)
    swept = [key for values in values_of_jobs for key in values]
    Manifest(folder, "identify", swept, entries, "0.1.0", "c0de").write()


def write_job(folder, job, summary, several=False):
    """Write the results of a finished job: its summary, or with `several` one for each output."""
    job_folder = folder / str(job["number"])
    job_folder.mkdir(exist_ok=True)
    mean = ("sample", np.arange(4.0) + job["number"], {"units": "K"})
    record = xr.Dataset({"mean": mean, "variance": ("sample", np.ones(4))})
    summaries = summary if several else {"": summary}
    contents = {
        output: Content(EMPTY_SUMMARY | output_summary, record, None)
        for output, output_summary in summaries.items()
    }
    write(contents, job_folder / "job.nc", {"seed": 0, "partial": 0, "configuration": ""})
    end_job(folder, job, done=True, value=0.5)


def end_job(folder, job, **outcome):
    """Write the outcome of a job; `outcome` holds fields of `Outcome`."""
    number = job["number"]
    ended = Job(
        number,
        str(folder / str(number)),
        job["identity"],
        tuple(job["overrides"]),
        task="",
        configuration="{}",
    )
    write_outcome(Outcome(number, **outcome, seconds=1.5), ended)


def make_summary(values):
    """Return the summary of an identification, whose numbers follow from the values of its job."""
    seed = int(values.get("seed", 0))
    threshold = float(values.get("insertion.error_threshold", 0.1))
    name_length = len(str(values.get("reduction", "")))
    smse = 0.1 + threshold + 0.01 * name_length + 0.003 * math.sin(seed)
    return {
        "smse": smse,
        "rmse": math.sqrt(smse) / 10,
        "coverage_95": 0.9 + 0.01 * math.cos(seed),
        "nlpd": None if seed == 7 else -1.5 + threshold,
        "n_revised": round(50 / threshold) + seed,
        "n_points": 100,
        "hyperparameters": {
            "kernel": {"class": "K", "length_scales": {"y[k-1]": 1.5}},
            "noise_variance": 0.01,
        },
        "free_run": {"rmse": 0.3, "fit_percent": 80.0, "unit": "K"},
        "times": {"setup": 0.1, "loop": 0.5 / threshold + 0.1 * seed, "training": 0.2},
    }
