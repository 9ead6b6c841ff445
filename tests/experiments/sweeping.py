"""Folders of sweeps that no sweep has made: manifest, outcomes and results in the format of real ones."""

import hashlib
import itertools
import json
import math
from pathlib import Path

import numpy as np
import xarray as xr

from experiments.job_file import NUMBERS, Content, write

FULL = dict.fromkeys((*NUMBERS, "free_run", "training")) | {
    "system": "Building",
    "target": "y",
    "target_unit": "K",
    "partial": False,
    "seed": 0,
    "times": {},
    "warnings": [],
}


def write_sweep(folder, values, metric, skip=(), fail=(), several=False):
    """Write a sweep over all combinations of values.

    Parameters
    ----------
    folder
        That of the sweep; made if it is missing.
    values
        Swept key to the list of its values, or a list of the values of each job (dicts).
    metric
        From the values of a job to its summary (dict); with `several` to a dict of summaries, by output.
    skip, fail
        Numbers of jobs that were not run, and that have failed.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(values, dict):
        values = [dict(zip(values, one, strict=True)) for one in itertools.product(*values.values())]
    swept = list(dict.fromkeys(key for one in values for key in one))
    jobs = [
        {
            "number": number,
            "identity": hashlib.sha256(json.dumps([number, one]).encode()).hexdigest(),
            "overrides": ["budget=20", *(f"{key}={value}" for key, value in one.items())],
            "values": one,
        }
        for number, one in enumerate(values)
    ]
    content = {"schema": "sweep", "schema_version": 1, "project": "sysid", "version": "0.1.0", "code": "c0de"}
    content |= {"command": "identify", "swept": swept, "jobs": jobs}
    (folder / "sweep.json").write_text(json.dumps(content))
    for job in jobs:
        if job["number"] in fail:
            (own := folder / str(job["number"])).mkdir(exist_ok=True)
            error = "ValueError: it did not work\n| twice"
            write_outcome(own, job, status="failed", error=error, traceback="Traceback", configuration="seed: 0\n")
        elif job["number"] not in skip:
            write_job(folder, job, metric(job["values"]), several=several)
    return folder


def write_job(folder, job, summary, several=False, pid=1):
    """A finished job."""
    own = folder / str(job["number"])
    own.mkdir(exist_ok=True)
    record = xr.Dataset(
        {"mean": ("sample", np.arange(4.0) + job["number"], {"units": "K"}), "variance": ("sample", np.ones(4))}
    )
    found = summary if several else {"": summary}
    contents = {output: Content(FULL | one, record, None) for output, one in found.items()}
    write(contents, own / "job.nc", {"seed": 0, "partial": 0, "configuration": ""})
    content = (own / "job.nc").read_bytes()
    facts = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    write_outcome(own, job, status="done", value=0.5, files={"job.nc": facts}, pid=pid)


def write_outcome(own, job, **content):
    told = {"schema": "outcome", "schema_version": 1, "seconds": 1.5, "host": "here", "pid": 1}
    told |= {name: job[name] for name in ("identity", "number", "overrides")}
    (own / "outcome.json").write_text(json.dumps(told | content))


def summary_like(values):
    """A summary of an identification whose numbers follow from the values of its job."""
    seed, threshold = int(values.get("seed", 0)), float(values.get("insertion.error_threshold", 0.1))
    worse = len(str(values.get("reduction", "")))
    smse = 0.1 + threshold + 0.01 * worse + 0.003 * math.sin(seed)
    return {
        "system": "Building",
        "target": "change of zone_temperature over one sample",
        "target_unit": "K",
        "partial": False,
        "seed": seed,
        "smse": smse,
        "rmse": math.sqrt(smse) / 10,
        "coverage_95": 0.9 + 0.01 * math.cos(seed),
        "nlpd": None if seed == 7 else -1.5 + threshold,
        "n_revised": round(50 / threshold) + seed,
        "n_points": 100,
        "hyperparameters": {"kernel": {"class": "K", "length_scales": {"y[k-1]": 1.5}}, "noise_variance": 0.01},
        "constant_features": [],
        "free_run": {"rmse": 0.3, "fit_percent": 80.0, "unit": "K"},
        "training": None,
        "times": {"setup": 0.1, "loop": 0.5 / threshold + 0.1 * seed, "training": 0.2},
        "warnings": [],
    }
