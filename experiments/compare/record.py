"""The test record on which models are compared, and the signals and window that each model gets."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

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

RECORD_ADVICE = "name a record for all models: data=..., or a plant with system=..."


def read_own_record(paths: Mapping[str, Path], part: str | None) -> Material:
    """Read the test record that the runs have kept, if it is the same for all runs.

    The record has the signals of the run that has the most; the other runs may have fewer signals.

    Raises
    ------
    ValueError
        If a run has no record or no test samples, or the test records differ.
    """
    test_rows = {name: _read_test_rows(name, path) for name, path in paths.items()}
    richest = max(test_rows, key=lambda name: test_rows[name].n_signals)
    base = test_rows[richest]
    for name, other in test_rows.items():
        for signal in ("time", *other.outputs, *other.inputs):
            if not _is_equal(signal, base.dataset, other.dataset):
                raise UserError(
                    f"the test records of {richest} and {name} differ in {signal}: {RECORD_ADVICE}"
                )
    records = []
    for number, rows in base.dataset.groupby("record"):
        attributes = {
            "name": f"{richest}, record {number}",
            "initialisation_window": 0,
            "sampling_time": float(np.diff(rows["time"].values[:2]).sum()) or 1.0,
        }
        record = rows[[*base.outputs, *base.inputs]].drop_vars(["record", "part"])
        records.append(record.assign_attrs(attributes))
    recordings = Recordings(
        f"record of {richest}",
        tuple(base.inputs),
        tuple(base.outputs),
        test=tuple(records),
    )
    return select_records(recordings, part)


class HeldOutRows(NamedTuple):
    """The samples of a run that its model has not learned from."""

    dataset: xr.Dataset
    outputs: list[str]
    inputs: list[str]

    @property
    def n_signals(self) -> int:
        """Number of outputs and inputs."""
        return len(self.outputs) + len(self.inputs)


def _read_test_rows(name: str, path: Path) -> HeldOutRows:
    """Read the test samples of the run with this name and this model file.

    Signals of the physics are left out, because the model simulates them itself.
    """
    trajectories = sorted(path.parent.glob("**/trajectory.nc"))
    if not trajectories:
        raise UserError(f"{name} has no record of its own (trajectory.nc): {RECORD_ADVICE}")
    # A run with several outputs has several files, which hold the same record.
    dataset = store.read(trajectories[0], kind="trajectory")
    test = dataset.isel(time=np.flatnonzero(dataset["part"] == 1))
    if not test.sizes["time"]:
        raise UserError(
            f"{name} has no test samples that its model has not learned: {RECORD_ADVICE}"
        )
    outputs = json.loads(str(dataset.attrs["outputs"]))
    inputs = json.loads(str(dataset.attrs["inputs"]))
    if "physics" in header(path):
        inputs = [signal for signal in inputs if not signal.startswith("physics.")]
    return HeldOutRows(test, outputs, inputs)


def _is_equal(signal: str, base: xr.Dataset, other: xr.Dataset) -> bool:
    """Return whether a signal has the same values in both records."""
    return signal in base and np.array_equal(base[signal].values, other[signal].values)


def read_window(path: Path) -> int:
    """Return the initialisation window [samples] with which a run validated its model.

    It is 1 if the run did not validate the model.
    """
    validation = path.parent / "validation.json"
    if not validation.is_file():
        return 1
    content = json.loads(validation.read_text("utf-8"))
    return int(content["horizons"][0]["window"])


def fit_material(
    material: Material, joint: JointModel, path: Path, trusted: Sequence[str]
) -> Material:
    """Add the physics of a model to the records, and check that they have the model's signals.

    Signals that the model does not know are left out.
    """
    material = add_physics(material, path, trusted)
    known = {*joint.output_names, *joint.input_names}
    surplus = {*material.source.inputs, *material.source.outputs} - known
    check_signals(joint, material, sorted(surplus))
    return material
