"""What decides about the inputs of a simulation, and how its decisions are stored."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from sysid import Identification, JointModel
from sysid.errors import UserError
from sysid.identification import joint_model

Variable = tuple[Any, ...]  # dimensions, values, and attributes if there are some


def check_outputs_known(identifications: Sequence[Identification], option: str) -> None:
    """Raise UserError unless every output among the lags has a model that predicts it.

    Parameters
    ----------
    identifications
        Those whose models decide together, one for each output.
    option
        Of the command line that asks for the decisions.
    """
    targets = [one.narx.target for one in identifications]
    lagged = identifications[0].narx.output_names
    if sorted(targets) != sorted(lagged):
        raise UserError(
            f"{option}: a plan needs a model for each output among the lags, {list(lagged)}, got "
            f"models of {targets}; take narx.target=all, or leave the other outputs out of the lags"
        )


def deciding_model(
    identifications: Sequence[Identification],
) -> Identification | JointModel | None:
    """Return what decides: the identification of one output, or the models of several together.

    None: nothing is known about the plant, or not all models are trained yet.
    """
    if not identifications:
        return None
    if len(identifications) == 1:
        return identifications[0]
    return joint_model(identifications)


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
