"""The limit of one-step prediction beside the errors of a model of a simulated plant."""

import math
from typing import Any

import numpy as np
import xarray as xr

from experiments.plant.limit import LIMIT_OF_NOTHING, Limit
from sysid import Narx, standardised_mean_squared_error

# An SMSE below this one is a rounding error: nothing is random, and no ratio to it is formed.
MIN_SMSE_OF_NOISE = 1e-18


def score_limit(
    limit: Limit, narx: Narx, output: int, validation: xr.Dataset | None, smse: float
) -> dict[str, Any]:
    """Return the scores of the limit on the validation rows, or why there are none.

    Parameters
    ----------
    limit
        Predictions of the outputs of the whole simulation.
    narx
        Lags of the model, which state its target.
    output
        Number of the output that the model predicts.
    validation
        Rows that the model is scored on, as a lag data set.
    smse
        SMSE of the model on these rows.
    """
    scores = {
        "smse_limit": math.nan,
        "rmse_limit": math.nan,
        "times_the_limit": math.nan,
        "no_limit": limit.reason or None,
    }
    if limit.mean is None:
        return scores
    if validation is None or not validation.sizes["sample"]:
        return scores | {"no_limit": LIMIT_OF_NOTHING.reason}
    mean = predict_rows(limit, narx, output, validation)
    target = validation["target"].values
    smse_limit = standardised_mean_squared_error(target, mean)
    scores["smse_limit"] = smse_limit
    scores["rmse_limit"] = float(np.sqrt(np.mean((target - mean) ** 2)))
    if smse_limit > MIN_SMSE_OF_NOISE:
        scores["times_the_limit"] = smse / smse_limit
    return scores


def predict_rows(limit: Limit, narx: Narx, output: int, rows: xr.Dataset) -> np.ndarray:
    """Return the predictions (n,) of a known limit for the rows of a lag data set."""
    assert limit.mean is not None
    samples = np.rint(rows["time"].values / limit.sampling_time).astype(int)
    return narx.predict.of(limit.mean[samples, output], rows["previous"].values)


def describe_limit(summary: dict[str, Any]) -> str:
    """Return the limit in words, from the summary of an identification; empty without a limit."""
    limit = summary.get("smse_limit")
    if limit is None or summary["smse"] is None:
        return ""
    ratio = summary["times_the_limit"]
    if ratio is None:
        return f"the limit is {limit:.3g}"
    shown_ratio = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.3g}"
    return f"{shown_ratio} times the limit of {limit:.3g}"
