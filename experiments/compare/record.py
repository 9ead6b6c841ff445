"""The test record on which models are compared: that of their runs, and what each model is given of
it.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from experiments.validate.material import (
    Material,
    add_physics,
    check_signals,
    select_records,
)
from sysid import JointModel, Recordings, store
from sysid.errors import UserError
from sysid.store import header

OTHER = "name the record for all of them: data=..., or a plant with system=..."


def read_own_record(paths: Mapping[str, Path], part: str | None) -> Material:
    """Read what the runs held back from their models, if it is the same for all.

    Raises
    ------
    ValueError
        Runs without a record of their own, with nothing held back, or with different ones.
    """
    found: dict[str, tuple[xr.Dataset, list[str], list[str]]] = {}
    for name, path in paths.items():
        trajectory = next(
            iter(sorted(path.parent.glob("**/trajectory.nc"))), None
        )  # of several outputs all are alike
        if trajectory is None:
            raise UserError(f"{name} has no record of its own (trajectory.nc): {OTHER}")
        dataset = store.read(trajectory, kind="trajectory")
        after = dataset.isel(time=np.flatnonzero(dataset["part"] == 1))
        if not after.sizes["time"]:
            raise UserError(f"{name} held back nothing to be judged by: {OTHER}")
        outputs, inputs = (json.loads(str(dataset.attrs[role])) for role in ("outputs", "inputs"))
        simulated = (
            "physics." if "physics" in header(path) else "\0"
        )  # beside the model, which does that itself
        found[name] = (
            after,
            outputs,
            [one for one in inputs if not one.startswith(simulated)],
        )
    best = max(
        found, key=lambda name: len(found[name][1] + found[name][2])
    )  # the others may know fewer signals
    base, outputs, inputs = found[best]
    for name, (other, *signals) in found.items():
        for signal in ("time", *signals[0], *signals[1]):
            if signal not in base or not np.array_equal(base[signal].values, other[signal].values):
                raise UserError(
                    f"the test records of {best} and {name} differ in {signal}: {OTHER}"
                )
    records = []
    for number, rows in base.groupby("record"):
        about = {"name": f"{best}, record {number}", "initialisation_window": 0}
        about["sampling_time"] = float(np.diff(rows["time"].values[:2]).sum()) or 1.0
        records.append(rows[[*outputs, *inputs]].drop_vars(["record", "part"]).assign_attrs(about))
    held = Recordings(f"record of {best}", tuple(inputs), tuple(outputs), test=tuple(records))
    return select_records(held, part)


def read_window(path: Path) -> int:
    """Measured samples that a run gave its model before it was validated; 1 if it was not."""
    validation = path.parent / "validation.json"
    return (
        int(json.loads(validation.read_text())["horizons"][0]["window"])
        if validation.is_file()
        else 1
    )


def fit_material(
    material: Material, joint: JointModel, path: Path, trusted: Sequence[str]
) -> Material:
    """Add the physics of a model to its material; signals that it does not know are left out."""
    material = add_physics(material, path, trusted)
    surplus = {*material.source.inputs, *material.source.outputs} - {
        *joint.output_names,
        *joint.input_names,
    }
    check_signals(joint, material, sorted(surplus))
    return material
