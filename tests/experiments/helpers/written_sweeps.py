"""Folders of sweeps that no sweep has made: jobs whose numbers follow from simple formulas."""

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
    return json.loads((folder / "sweep.json").read_text())["jobs"]


def write_sweep(folder, values, metric, skip=(), fail=(), several=False):
    """Write a sweep over all combinations of values.

    Parameters
    ----------
    folder
        That of the sweep; made if it is missing.
    values
        Swept key to the list of its values, or a list of the values of each job (dicts).
    metric
        From the values of a job to its summary (dict); with `several` to a dict of summaries, by
        output.
    skip, fail
        Numbers of jobs that were not run, and that have failed.
    """
    (folder := Path(folder)).mkdir(parents=True, exist_ok=True)
    if isinstance(values, dict):
        values = [
            dict(zip(values, one, strict=True)) for one in itertools.product(*values.values())
        ]
    overrides = [("budget=20", *(f"{key}={value}" for key, value in one.items())) for one in values]
    entries = {
        f"x{n}": Entry(n, f"x{n}", *both)
        for n, both in enumerate(zip(overrides, values, strict=True))
    }
    Manifest(
        folder,
        "identify",
        [key for one in values for key in one],
        entries,
        "0.1.0",
        "c0de",
    ).write()
    for number, job in enumerate(read_planned_jobs(folder)):
        if number in fail:
            end_job(
                folder,
                job,
                done=False,
                error="ValueError: it did not work\n| twice",
                traceback="Traceback",
            )
        elif number not in skip:
            write_job(folder, job, metric(job["values"]), several=several)
    return folder


def write_job(folder, job, summary, several=False):
    """A finished job."""
    (own := folder / str(job["number"])).mkdir(exist_ok=True)
    mean = ("sample", np.arange(4.0) + job["number"], {"units": "K"})
    record = xr.Dataset({"mean": mean, "variance": ("sample", np.ones(4))})
    found = summary if several else {"": summary}
    contents = {output: Content(EMPTY_SUMMARY | one, record, None) for output, one in found.items()}
    write(contents, own / "job.nc", {"seed": 0, "partial": 0, "configuration": ""})
    end_job(folder, job, done=True, value=0.5)


def end_job(folder, job, **how):
    number = job["number"]
    overrides = tuple(job["overrides"])
    one = Job(
        number,
        str(folder / str(number)),
        job["identity"],
        overrides,
        task="",
        configuration="{}",
    )
    write_outcome(Outcome(number, **how, seconds=1.5), one)


def make_summary(values):
    """A summary of an identification whose numbers follow from the values of its job."""
    seed = int(values.get("seed", 0))
    threshold = float(values.get("insertion.error_threshold", 0.1))
    worse = len(str(values.get("reduction", "")))
    smse = 0.1 + threshold + 0.01 * worse + 0.003 * math.sin(seed)
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
