"""Inputs about which a model has decided, in numbers and in words."""

import json
from typing import Any

import numpy as np
import xarray as xr


def describe_design(plan: xr.Dataset, learned: xr.Dataset) -> dict[str, Any]:
    """Return how the inputs of the samples that were learned have been chosen, in numbers.

    ``outside`` is the fraction of these samples in which an output was beyond its limits: of all,
    and of those since a model has chosen the inputs.
    """
    is_planned = np.isfinite(plan["gain"].values)
    first = int(plan["first_sample"].values[is_planned.argmax()]) if is_planned.any() else None
    outside = {}
    for name, (low, high) in json.loads(str(plan.attrs["output_limits"])).items():
        is_outside = (learned[name].values < low) | (learned[name].values > high)
        with_model = None if first is None else float(is_outside[first:].mean())
        outside[name] = {
            "limits": [low, high],
            "with_model": with_model,
            "all": float(is_outside.mean()),
        }
    reasons, counts = np.unique(
        [text.partition(";")[0] for text in plan["fallback"].values if text], return_counts=True
    )
    return {
        "decisions": plan.sizes["decision"],
        "ended_early": int(plan.attrs["n_ended_early"]),
        "fallbacks": dict(zip(reasons.tolist(), counts.tolist(), strict=True)),
        "outside": outside,
    }


def say_design(design: dict[str, Any]) -> str:
    """Return in words how the inputs were chosen."""
    words = f"Inputs chosen to learn: {design['decisions']} decisions"
    reasons = [f"{reason} ({count})" for reason, count in design["fallbacks"].items()]
    if reasons:
        words += f", without the best plan: {'; '.join(reasons)}"
    if design["ended_early"]:
        words += f"; {design['ended_early']} stretches ended early to keep the outputs in limits"
    for name, share in design["outside"].items():
        if share["with_model"] is not None:
            low, high = share["limits"]
            percentage = 100 * share["with_model"]
            words += (
                f"; {name} beyond {low:g} to {high:g} in {percentage:.1f} % of the samples since "
                "there is a model"
            )
    return words


def describe_control(plan: xr.Dataset, trajectory: xr.Dataset) -> dict[str, Any]:
    """Return how inputs were planned by a predictive controller, in numbers.

    ``outside`` is, for each planned output, the fraction of the samples beyond its limits, of all
    samples for which a plan was applied. ``error`` is the root mean square error of these plans
    one sample ahead, and of the last sample before the next decision.
    """
    reasons, counts = np.unique(
        [text for text in plan["reason"].values if text], return_counts=True
    )
    is_planned = plan["reason"].values == ""
    planned = np.flatnonzero(is_planned)
    n_applied = int(plan.attrs["n_applied"])
    n_samples = trajectory.sizes["time"]
    outside = {}
    error = {}
    first = plan["first_sample"].values[planned]
    for name in plan["output"].values.tolist():
        one = plan.sel(output=name)
        measured = trajectory[name].values
        of_steps = []
        beyond = []
        for step in range(n_applied):
            samples = first + 1 + step
            is_there = samples < n_samples
            values = measured[samples[is_there]]
            rows = planned[is_there]
            of_steps.append(values - one["planned_mean"].values[rows, step])
            lower = one["planned_lower"].values[rows, step]
            upper = one["planned_upper"].values[rows, step]
            beyond.append((values < lower) | (values > upper))
        error[name] = [_root_mean_square(of_steps[0]), _root_mean_square(of_steps[-1])]
        all_beyond = np.concatenate(beyond)
        outside[name] = float(all_beyond.mean()) if len(all_beyond) else None
    return {
        "decisions": plan.sizes["decision"],
        "planned": int(is_planned.sum()),
        "fallbacks": dict(zip(reasons.tolist(), counts.tolist(), strict=True)),
        "outside": outside,
        "error": error,
    }


def _root_mean_square(values: np.ndarray) -> float | None:
    """Return the root mean square of values (n,); None if there are none."""
    return float(np.sqrt(np.mean(np.square(values)))) if len(values) else None


def say_control(control: dict[str, Any]) -> str:
    """Return in words how the inputs were planned."""
    n_decisions = control["decisions"]
    words = f"Predictive control: {control['planned']} of {n_decisions} decisions follow a plan"
    reasons = [f"{reason} ({count})" for reason, count in control["fallbacks"].items()]
    if reasons:
        words += f", the fallback made the others: {'; '.join(reasons)}"
    for name, share in control["outside"].items():
        if share is not None:
            words += f"; {name} beyond its limits in {100 * share:.1f} % of these samples"
    return words
