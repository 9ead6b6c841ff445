"""What an identification found, and the files that keep it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import xarray as xr
from omegaconf import DictConfig

from experiments import job_file
from experiments.job_file import Content, Outputs, attributes_of, is_multirun, outputs_of, text_of
from experiments.summary import Evidence
from experiments.validation.report import TestValidation
from experiments.validation.report import writers as report_writers
from experiments.written import write_every
from sysid import store
from sysid.model.result import result_dataset, with_estimates


class Finding(NamedTuple):
    """What an identification found, complete or not."""

    evidence: Evidence
    summary: dict[str, Any]
    trial: TestValidation


def content_of(finding: Finding) -> Content:
    """Record and model of a finding as data sets, as far as there are any."""
    evidence = finding.evidence
    model, rows, validation = evidence.identification.model, evidence.rows, evidence.validation
    if rows is None or validation is None:
        return Content(finding.summary, None, None)
    identified = rows.isel(sample=slice(0, len(evidence.record)))
    predicted, target = evidence.predicted, evidence.identification.narx.predict
    record = result_dataset(identified, evidence.record, validation, predicted, target)
    if model is None:
        return Content(finding.summary, record, None)
    if (adaptation := evidence.identification.adaptation) is not None:
        record = with_estimates(record, adaptation.estimates, model)
    units = {
        "target_unit": str(rows["target"].attrs.get("units", "")),
        "feature_units": json.dumps([str(unit) for unit in rows["unit"].values]),
    }
    return Content(finding.summary, record, model.to_dataset().assign_attrs(units))


def write(config: DictConfig, folder: Path, finding: Finding, content: Content, *, in_job: bool = True) -> None:
    """Write every file that can be written, the most valuable first; then report those that could not.

    `in_job` says whether the file of the job is among them: not where a job has several findings.

    Raises
    ------
    sysid.StoreError
        If a file could not be written; the others are there.
    """
    partial, multirun = finding.evidence.stopped is not None, is_multirun()
    attributes = attributes_of(config, partial=partial) | {"timings": json.dumps(finding.summary["times"])}
    lean = outputs_of(config, multirun=multirun) is Outputs.lean
    jobs: list[Callable[[], object]] = []
    if in_job and (lean or multirun):
        jobs.append(lambda: job_file.write({"": content}, folder / job_file.FILE, attributes))
    if not lean:
        jobs += writers(config, folder, finding, content, attributes)
    write_every(jobs)


def writers(
    config: DictConfig, folder: Path, finding: Finding, content: Content, attributes: dict[str, Any]
) -> list[Callable[[], object]]:
    """One call per file of the full outputs, but job.nc."""
    text = text_of(content.summary)
    jobs: list[Callable[[], object]] = [lambda: store.write_bytes(text.encode(), folder / "summary.json")]
    trajectory = finding.evidence.source.trajectory()
    parts = {"model": content.model, "trajectory": trajectory, "result": content.record, "narx": finding.evidence.rows}
    for kind, dataset in parts.items():
        if dataset is not None:
            jobs.append(
                lambda kind=kind, dataset=dataset: store.write(  # type: ignore[misc]
                    dataset, folder / f"{kind}.nc", kind=kind, attributes=attributes
                )
            )
    if finding.trial.report is not None:
        jobs += report_writers(finding.trial.report, folder, attributes, figures=config.figures)
    if config.figures and content.record is not None:
        jobs += figure_writers(folder, trajectory, content.record, finding.evidence.identification.model)
    return jobs


def figure_writers(folder: Path, trajectory: xr.Dataset, result: xr.Dataset, model: Any) -> list[Callable[[], object]]:
    """One call per figure; matplotlib is imported only here."""
    from experiments import figures

    noise_variance = model.gp.noise_variance if model is not None else 0.0
    drawings = figures.drawings(trajectory, result, noise_variance)
    return [
        lambda name=name, draw=draw: store.write_bytes(figures.png(draw()), folder / f"{name}.png")  # type: ignore[misc]
        for name, draw in drawings.items()
    ]
