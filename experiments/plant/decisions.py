"""How the decisions of a simulation about its inputs are stored."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

Variable = tuple[Any, ...]  # dimensions, values, and attributes if there are some


def decision_dataset(
    decided: Sequence[tuple[int, NamedTuple]],
    variables: Mapping[str, Variable],
    fields: Mapping[str, Mapping[str, str]],
    *,
    dt: float,
    names: Mapping[str, Sequence[str]],
    attributes: Mapping[str, Any],
) -> xr.Dataset:
    """Return decisions as a data set.

    Parameters
    ----------
    decided
        Decisions, each with the number of the first sample whose input it has decided.
    variables
        Several values for each decision, along the dimension ``decision`` and others.
    fields
        Fields of the decisions that are one value, and their attributes.
    dt
        Sampling time [s].
    names
        Names along the dimensions that have some.
    attributes
        Of the data set.
    """
    whole = dict(variables)
    for name, described in fields.items():
        whole[name] = "decision", np.array([getattr(one, name) for _, one in decided]), described
    first_samples = np.array([k for k, _ in decided], dtype=np.int64)
    whole["first_sample"] = (
        "decision",
        first_samples,
        {"long_name": "number of the first sample whose input was decided"},
    )
    time = "decision", dt * first_samples, {"units": "s", "long_name": "time of the decision"}
    return xr.Dataset(whole, coords={"time": time, **names}, attrs=dict(attributes))
