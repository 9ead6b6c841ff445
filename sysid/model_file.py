"""The models in a file, be it that of a model, of several, or the result of a whole job."""

from __future__ import annotations

from os import PathLike

import xarray as xr

from sysid import store

JOB, GROUP = "job", "model"  # kind of a file that holds more than models, and where they lie in it


def read_models(path: str | PathLike[str]) -> dict[str, xr.Dataset]:
    """Models of a file by output, or the only one under the name "".

    Parameters
    ----------
    path
        File of `Model.save` or of `JointModel.save`, or of a job, whose models lie in the group "model": one data set,
        or one for each output.

    Raises
    ------
    sysid.store.StoreError
        Missing, damaged or foreign file, or a job that ended before there was a model.
    """
    if store.header(path).get("schema") != JOB:
        return store.read_any(path, kind="model")
    found = store.read_groups(path, kind=JOB, under=GROUP)
    if not found:
        raise store.StoreError(
            f"{path} holds no model: its job ended before the model was trained; run it again, or name another file"
        )
    return {name.removeprefix(GROUP).removeprefix("/"): dataset for name, dataset in found.items()}
