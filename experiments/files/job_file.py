"""The file of a job: summary, record and model of an identification, of one output or of
several.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from sysid import store
from sysid.model.model_file import JOB_SCHEMA, MODEL_GROUP
from sysid.model.result import squared_unit

FILE = "job.nc"
# groups, of several outputs with a group for each inside
SUMMARY = "summary"
RECORD = "record"
MODEL = MODEL_GROUP
ONE = "1"
UNIT = "target"
SQUARED = "target squared"
#: main numbers of a summary: unit and meaning
NUMBERS = {
    "smse": (
        ONE,
        "mean squared error of the final model on the validation part over the variance of the target",
    ),
    "smse_initial": (ONE, "the same for the model before the stream"),
    "smse_no_change": (ONE, "the same for the prediction that nothing changes"),
    "smse_stream": (
        ONE,
        "mean squared error in the stream over the variance of the target",
    ),
    "rmse": (UNIT, "root mean squared error on the validation part"),
    "mean_variance": (
        SQUARED,
        "mean latent predictive variance on the validation part",
    ),
    "coverage_95": (
        ONE,
        "fraction of the validation part within the 95 % band of a measurement",
    ),
    "nlpd": (
        ONE,
        "mean negative log predictive density of a measurement in nats, on the validation part",
    ),
    "n_validation": (ONE, "samples of the validation part"),
    "n_initial": (ONE, "samples that gave the hyper-parameters"),
    "n_seen": (ONE, "samples of the stream"),
    "n_inserted": (ONE, "samples that asked for a place"),
    "n_accepted": (ONE, "samples that the acceptance let pass"),
    "n_turned_away": (ONE, "samples that the acceptance turned away"),
    "n_revised": (ONE, "samples that entered the dictionary"),
    "n_outliers": (ONE, "samples that the gate passed over"),
    "n_estimates": (ONE, "estimates of the hyper-parameters during the stream"),
    "n_points": (ONE, "points in the dictionary at the end"),
}
TIMES = {
    "setup": "wall time before the first sample",
    "loop": "wall time of the samples and of learning from them, without training",
    "training": "wall time of the training",
    "validation": "wall time of the predictions on the validation part",
}
#: numbers that are variables, too; every one makes each reader of the file slower by 0.05 ms
VARIABLES = (
    *(
        "smse",
        "smse_initial",
        "smse_no_change",
        "smse_stream",
        "rmse",
        "mean_variance",
        "coverage_95",
        "nlpd",
    ),
    *("n_seen", "n_inserted", "n_revised", "n_points"),
)


class Content(NamedTuple):
    """What a job found about one output."""

    summary: dict[str, Any]  # of `experiments.identify.summary.summarise`
    record: xr.Dataset | None  # of `sysid.model.result.result_dataset`
    model: xr.Dataset | None  # of `sysid.Model.to_dataset`


def text_of(summary: dict[str, Any]) -> str:
    """Summary as JSON, exact to the last digit."""
    return json.dumps(summary, indent=2, allow_nan=False)


def write(contents: Mapping[str, Content], path: Path, attributes: Mapping[str, Any]) -> None:
    """Write what a job found, complete or not at all.

    Parameters
    ----------
    contents
        By output; the only one under the name "".
    path, attributes
        Of the file; `experiments.files.outputs.RunFiles.attributes`.

    Raises
    ------
    sysid.StoreError
        Missing or read-only folder, full disk; nothing is left.
    """
    groups = {}
    for output, content in contents.items():
        groups[_name(SUMMARY, output)] = _summary_dataset(content.summary)
        parts = {RECORD: content.record, MODEL: content.model}
        groups |= {_name(group, output): part for group, part in parts.items() if part is not None}
    store.write_groups(groups, path, kind=JOB_SCHEMA, attributes=attributes)


def read_summary(path: str | Path) -> dict[str, Any]:
    """Summary of a job: as in summary.json, and one level by output if there are several.

    Only attributes are read: most of the time goes into opening the file.

    Raises
    ------
    sysid.StoreError
        Missing, damaged or foreign file.
    """
    groups = store.read_attributes(path, kind=JOB_SCHEMA, under=SUMMARY)
    found = {name: _checked(attributes, path) for name, attributes in groups.items() if name}
    if not found:
        raise store.StoreError(f"{path} holds no summary: run its job again")
    return (
        found[SUMMARY]
        if SUMMARY in found
        else {name.partition("/")[2]: one for name, one in found.items()}
    )


def _name(group: str, output: str) -> str:
    return f"{group}/{output}" if output else group


def _summary_dataset(summary: dict[str, Any]) -> xr.Dataset:
    """Text of a summary as an attribute, and its main numbers as variables; nan where there is
    none.
    """
    unit = str(summary["target_unit"])
    units = {ONE: ONE, UNIT: unit, SQUARED: squared_unit(unit)}
    variables = {}
    for name in VARIABLES:
        kind, meaning = NUMBERS[name]
        value = np.nan if summary[name] is None else summary[name]
        variables[name] = ((), value, {"units": units[kind], "long_name": meaning})
    text = text_of(summary)
    return xr.Dataset(variables, attrs={"summary": text, "summary_sha256": _digest(text)})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _checked(attributes: dict[str, Any], path: str | Path) -> dict[str, Any]:
    text = str(attributes.get("summary"))
    if attributes.get("summary_sha256") != _digest(text):
        raise store.StoreError(
            f"{path} has a summary that is damaged or was edited: run its job again"
        )
    return dict(store.parse_json(text, path))
