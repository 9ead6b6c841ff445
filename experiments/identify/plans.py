"""Inputs that were chosen to learn, in numbers and in words."""

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
        "fallbacks": dict(zip(reasons.tolist(), counts.tolist(), strict=True)),
        "outside": outside,
    }


def say_design(design: dict[str, Any]) -> str:
    """Return in words how the inputs were chosen."""
    words = f"Inputs chosen to learn: {design['decisions']} decisions"
    reasons = [f"{reason} ({count})" for reason, count in design["fallbacks"].items()]
    if reasons:
        words += f", without the best plan: {'; '.join(reasons)}"
    for name, share in design["outside"].items():
        if share["with_model"] is not None:
            low, high = share["limits"]
            percentage = 100 * share["with_model"]
            words += (
                f"; {name} beyond {low:g} to {high:g} in {percentage:.1f} % of the samples since "
                "there is a model"
            )
    return words
