"""The file of a job, job.nc: summary, record and model of one or of several outputs."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from sysid import store
from sysid.foreign import MAX_JSON_LEVELS, is_deeper
from sysid.model.model_file import JOB_SCHEMA, MODEL_GROUP
from sysid.units import squared_unit

JOB_FILE = "job.nc"  # file name
# groups of the file; with several outputs each holds a group per output
SUMMARY_GROUP = "summary"
RECORD_GROUP = "record"
# kinds of units of the summary's numbers
DIMENSIONLESS = "1"
TARGET_UNIT = "target"
TARGET_SQUARED = "target squared"
#: main numbers of a summary: kind of unit, and meaning
SUMMARY_NUMBERS = {
    "smse": (
        DIMENSIONLESS,
        "mean squared error of the final model on the validation part over the variance of the "
        "target",
    ),
    "smse_linear_part": (
        DIMENSIONLESS,
        "the same for the mean function and the linear part of the model alone",
    ),
    "smse_limit": (
        DIMENSIONLESS,
        "the same for a filter that knows the equations and the noise of the simulated plant",
    ),
    "times_the_limit": (DIMENSIONLESS, "smse over smse_limit"),
    "rmse_limit": (TARGET_UNIT, "root mean squared error of this filter on the validation part"),
    "smse_initial": (DIMENSIONLESS, "the same for the model before the stream"),
    "smse_no_change": (DIMENSIONLESS, "the same for the prediction that nothing changes"),
    "smse_linear": (
        DIMENSIONLESS,
        "the same for the best linear ARX model of 1 to 12 lags of each signal, fitted to the "
        "samples that the model learned",
    ),
    "smse_stream": (
        DIMENSIONLESS,
        "mean squared error in the stream over the variance of the target",
    ),
    "smse_stream_linear": (
        DIMENSIONLESS,
        "the same for recursive least squares, of the best of 1 to 12 lags of each signal",
    ),
    "rmse": (TARGET_UNIT, "root mean squared error on the validation part"),
    "smse_without_gross_errors": (
        DIMENSIONLESS,
        "smse without the rows that contain a gross error of the validation part, if there are any",
    ),
    "rmse_without_gross_errors": (
        TARGET_UNIT,
        "rmse without the rows that contain a gross error of the validation part, if there are any",
    ),
    "mean_variance": (
        TARGET_SQUARED,
        "mean latent predictive variance on the validation part",
    ),
    "coverage_95": (
        DIMENSIONLESS,
        "fraction of the validation part within the 95 % band of a measurement",
    ),
    "nlpd": (
        DIMENSIONLESS,
        "mean negative log predictive density of a measurement in nats, on the validation part",
    ),
    "n_validation": (DIMENSIONLESS, "samples of the validation part"),
    "n_initial": (DIMENSIONLESS, "samples that gave the hyper-parameters"),
    "n_waited": (DIMENSIONLESS, "first samples, at rest, which were not learned"),
    "n_seen": (DIMENSIONLESS, "samples of the stream"),
    "n_inserted": (DIMENSIONLESS, "candidates: samples that the insertion rule selected"),
    "n_accepted": (DIMENSIONLESS, "candidates that the acceptance accepted"),
    "n_turned_away": (DIMENSIONLESS, "candidates that the acceptance rejected"),
    "n_revised": (DIMENSIONLESS, "samples that became stored points"),
    "n_outliers": (DIMENSIONLESS, "outliers, and gross errors of records, which were not learned"),
    "n_estimates": (DIMENSIONLESS, "estimates of the hyper-parameters during the stream"),
    "n_points": (DIMENSIONLESS, "stored points at the end"),
}
#: times of a summary [s] and their meanings
SUMMARY_TIMES = {
    "setup": "wall time before the first sample",
    "loop": "wall time of the samples and of learning from them, without training",
    "training": "wall time of the training",
    "validation": "wall time of the predictions on the validation part",
}
#: numbers that are also variables of the file; each one costs every reader 0.05 ms
SUMMARY_VARIABLES = (
    "smse",
    "smse_initial",
    "smse_no_change",
    "smse_stream",
    "rmse",
    "mean_variance",
    "coverage_95",
    "nlpd",
    "n_seen",
    "n_inserted",
    "n_revised",
    "n_points",
)


class Content(NamedTuple):
    """Results of a job for one output."""

    summary: dict[str, Any]  # of `experiments.identify.summary.summarise`
    record: xr.Dataset | None  # of `sysid.model.result.result_dataset`
    model: xr.Dataset | None  # of `sysid.Model.to_dataset`


def text_of(summary: dict[str, Any]) -> str:
    """Return a summary as JSON, with all digits of its numbers."""
    return json.dumps(summary, indent=2, allow_nan=False)


def write(contents: Mapping[str, Content], path: Path, attributes: Mapping[str, Any]) -> None:
    """Write the results of a job, completely or not at all.

    Parameters
    ----------
    contents
        Content of each output, by its name; a single output has the name "".
    path
        Path of the file.
    attributes
        Attributes of the file, as from `experiments.files.outputs.RunFiles.attributes`.

    Raises
    ------
    sysid.StoreError
        If the folder is missing or read-only, or the disk is full. No file is left then.
    """
    groups = {}
    for output, content in contents.items():
        groups[_group_name(SUMMARY_GROUP, output)] = _summary_dataset(content.summary)
        if content.record is not None:
            groups[_group_name(RECORD_GROUP, output)] = content.record
        if content.model is not None:
            groups[_group_name(MODEL_GROUP, output)] = content.model
    store.write_groups(groups, path, kind=JOB_SCHEMA, attributes=attributes)


def read_summary(path: str | Path) -> dict[str, Any]:
    """Return the summary of a job, as in summary.json; a dict of summaries by output if several.

    Only attributes are read. Most of the time is spent on opening the file.

    Raises
    ------
    sysid.StoreError
        If the file is missing, damaged, or no file of a job.
    """
    groups = store.read_attributes(path, kind=JOB_SCHEMA, under=SUMMARY_GROUP)
    summaries = {
        name: _checked_summary(attributes, path) for name, attributes in groups.items() if name
    }
    if not summaries:
        raise store.StoreError(f"{path} holds no summary: run its job again")
    if SUMMARY_GROUP in summaries:
        return summaries[SUMMARY_GROUP]
    return {name.partition("/")[2]: summary for name, summary in summaries.items()}


def _group_name(group: str, output: str) -> str:
    return f"{group}/{output}" if output else group


def _summary_dataset(summary: dict[str, Any]) -> xr.Dataset:
    """Return the text of a summary as an attribute, and its main numbers as variables, or nan."""
    target_unit = str(summary["target_unit"])
    units = {
        DIMENSIONLESS: DIMENSIONLESS,
        TARGET_UNIT: target_unit,
        TARGET_SQUARED: squared_unit(target_unit),
    }
    variables = {}
    for name in SUMMARY_VARIABLES:
        kind, meaning = SUMMARY_NUMBERS[name]
        value = np.nan if summary[name] is None else summary[name]
        variables[name] = ((), value, {"units": units[kind], "long_name": meaning})
    text = text_of(summary)
    return xr.Dataset(variables, attrs={"summary": text, "summary_sha256": _digest(text)})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _checked_summary(attributes: dict[str, Any], path: str | Path) -> dict[str, Any]:
    """Return the summary that attributes hold; raise StoreError if its digest does not match."""
    text = str(attributes.get("summary"))
    if attributes.get("summary_sha256") != _digest(text):
        raise store.StoreError(
            f"{path} has a summary that is damaged or was edited: run its job again"
        )
    summary = store.parse_json(text, path)
    if not isinstance(summary, dict) or is_deeper(summary, MAX_JSON_LEVELS):
        raise store.StoreError(f"{path} has a summary of another form: run its job again")
    return summary
