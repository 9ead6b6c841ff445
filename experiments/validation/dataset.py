"""Predictions and residuals of a validation as labelled data sets; schema "validation" of the store."""

from typing import Any

import numpy as np
import xarray as xr

from experiments.validation.assessment import Assessment
from experiments.validation.loop_comparison import LoopComparison
from experiments.validation.options import Case
from experiments.validation.residuals import Residuals

LOOP = "closed_loop"


def groups_of(assessment: Assessment, residuals: Residuals) -> dict[str, xr.Dataset]:
    """Data sets by the name of their group: one for each horizon and window, one for the residual tests, the loop."""
    groups = {case.name: _case_dataset(assessment, case) for case in assessment.forecasts}
    groups |= residuals.to_groups()
    if assessment.loop is not None:
        groups[LOOP] = _loop_dataset(assessment, assessment.loop)
    return groups


def _case_dataset(assessment: Assessment, case: Case) -> xr.Dataset:
    """Predictions (sample, output) of one case, all records behind each other."""
    found = assessment.forecasts[case]
    columns = {
        name: np.concatenate([getattr(one, name) for one in found.records])
        for name in ("time", "sample", "measured", "mean", "variance")
    }
    record = np.repeat([one.record for one in found.records], [len(one.sample) for one in found.records])
    meanings = {
        "measured": "measured output",
        "mean": "predicted output; nan where the prediction diverged",
        "variance": "latent predictive variance; add noise_variance for a measurement",
    }
    variables: dict[str, Any] = {
        name: (("sample", "output"), columns[name], {"long_name": meaning} | _units(assessment, name == "variance"))
        for name, meaning in meanings.items()
    }
    residual = columns["measured"] - columns["mean"]
    variables["residual"] = (
        ("sample", "output"),
        residual,
        {"long_name": "measured minus predicted output"} | _units(assessment, squared=False),
    )
    noise = {"long_name": "noise variance of a measurement"} | _units(assessment, squared=True)
    variables["noise_variance"] = (("output",), found.noise_variance, noise)
    clock = {"units": assessment.material.records[0]["time"].attrs.get("units", "s"), "long_name": "time"}
    coordinates: dict[str, Any] = {
        "time": ("sample", columns["time"], clock),
        "record": ("sample", record, {"long_name": "number of the record"}),
        "number": ("sample", columns["sample"], {"long_name": "number of the sample in its record"}),
        "output": list(assessment.outputs),
        "unit": ("output", [assessment.unit(name) for name in assessment.outputs], {"long_name": "unit of the output"}),
    }
    attributes = {
        "horizon": str(case.label),
        "window": case.window,
        "left_out": assessment.n_left_out(case),
        "n_filled": found.n_filled,
        "n_diverged": found.n_lost,
    }
    return xr.Dataset(variables, coords=coordinates, attrs=attributes)


def _units(assessment: Assessment, squared: bool) -> dict[str, str]:
    """Unit of all outputs; empty if they differ, the coordinate ``unit`` has them."""
    units = {assessment.unit(name) for name in assessment.outputs}
    unit = units.pop() if len(units) == 1 else ""
    return {} if not unit else {"units": f"{unit}2" if squared and unit != "1" else unit}


def _loop_dataset(assessment: Assessment, loop: LoopComparison) -> xr.Dataset:
    signals: dict[str, Any] = {
        "measured": ("output", loop.measured, "output in the loop around the plant"),
        "mean": ("output", loop.mean, "output in the loop around the model"),
        "applied": ("driven", loop.applied, "input that the controller sets in the loop around the plant"),
        "commanded": ("driven", loop.commanded, "input that the controller sets in the loop around the model"),
    }
    if loop.variance is not None and loop.commanded_variance is not None:
        signals["variance"] = ("output", loop.variance, "latent variance over the functions of the model")
        signals["commanded_variance"] = ("driven", loop.commanded_variance, "variance over the functions of the model")
    variables = {
        name: (("time", kind), values, {"long_name": meaning}) for name, (kind, values, meaning) in signals.items()
    }
    coordinates: dict[str, Any] = {
        "time": ("time", loop.time, {"units": "s", "long_name": "time"}),
        "output": list(assessment.outputs),
        "driven": list(loop.driven),
        "output_unit": ("output", [assessment.unit(name) for name in assessment.outputs]),
        "driven_unit": ("driven", [assessment.unit(name) for name in loop.driven]),
    }
    attributes = {"window": loop.window, "n_paths": loop.n_paths}
    return xr.Dataset(variables, coords=coordinates, attrs=attributes)
