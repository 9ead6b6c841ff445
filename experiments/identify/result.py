"""What an identification found, and the files that keep it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from experiments.files import job_file
from experiments.files.job_file import Content, text_of
from experiments.files.outputs import RunFiles, write_every
from experiments.plant.source import Source, trajectory_of
from experiments.validate.report import Report, writers
from sysid import Estimate, Identification, LagWindow, Prediction, store
from sysid.beside import SHARE_TIMEOUT, Beside
from sysid.model.result import result_dataset, with_estimates

#: files of the full outputs that a run may leave out
FIGURES = (
    "signals",
    "temperatures",
    "prediction",
    "dictionary",
    "error",
    "comparison",
    "validation",
)
# of the figures: a second process draws the former
EVEN = slice(0, None, 2)
ODD = slice(1, None, 2)


@dataclass(eq=False)
class Result:
    """What an identification of one output found, complete or not."""

    source: Source
    identification: Identification
    window: LagWindow
    # what became of each row of the identified part, as of `Identification.observe_many`
    record: np.ndarray
    rows: xr.Dataset | None  # lag data set of the whole trajectory
    validation: xr.Dataset | None  # its rows after the identified part
    predicted: Prediction  # of the final model for the validation rows
    predicted_initial: Prediction  # of the model before the stream
    stopped: BaseException | None  # what ended the run early
    interrupted: BaseException | None = (
        None  # what ended the validation early; the identification is complete
    )
    report: Report | None = None  # of the free run on the test records
    notes: list[str] = field(default_factory=list)  # on it
    linear: dict[str, Any] | None = None  # errors of linear models of the same record
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def is_online(self) -> np.ndarray:
        """Which rows of the identified part were predicted, as all after the initial ones."""
        return ~np.isnan(self.record["mean"])

    @property
    def has_no_feedback(self) -> bool:
        """Whether a simulation beside the model takes the place of the past of its output: one step
        is a free run.
        """
        narx = self.identification.narx
        return self.source.physics is not None and not narx.lags[narx.target]

    @property
    def identified(self) -> xr.Dataset | None:
        """Lag data set of the identified part."""
        return None if self.rows is None else self.rows.isel(sample=slice(0, len(self.record)))

    @property
    def estimates(self) -> list[Estimate]:
        """Estimates of the hyper-parameters during the stream."""
        adaptation = self.identification.adaptation
        return [] if adaptation is None else adaptation.estimates

    @cached_property
    def content(self) -> Content:
        """Summary, record and model as data sets, as far as there are any."""
        model = self.identification.model
        rows = self.rows
        identified = self.identified
        if rows is None or identified is None or self.validation is None:
            return Content(self.summary, None, None)
        target = self.identification.narx.predict
        record = result_dataset(identified, self.record, self.validation, self.predicted, target)
        if model is None:
            return Content(self.summary, record, None)
        if self.identification.adaptation is not None:
            record = with_estimates(record, self.estimates, model)
        feature_units = json.dumps([str(unit) for unit in rows["unit"].values])
        units = {
            "target_unit": str(rows["target"].attrs.get("units", "")),
            "feature_units": feature_units,
        }
        return Content(self.summary, record, model.to_dataset().assign_attrs(units))


def write(files: RunFiles, folder: Path, result: Result) -> None:
    """Write every file that can be written, the most valuable first; then report those that could
    not.

    Raises
    ------
    sysid.StoreError
        If a file could not be written; the others are there.
    """
    content = result.content
    attributes = files.attributes(result.source.physics, partial=result.stopped is not None)
    attributes["timings"] = json.dumps(result.summary["times"])
    jobs: list[Callable[[], object]] = []
    if files.job:
        jobs.append(lambda: job_file.write({"": content}, folder / job_file.FILE, attributes))
    if files.lean:
        return write_every(jobs)
    jobs.append(
        lambda: store.write_bytes(text_of(content.summary).encode(), folder / "summary.json")
    )
    trajectory = trajectory_of(result.source)
    datasets = {
        "model": content.model,
        "trajectory": trajectory,
        "result": content.record,
        "narx": result.rows,
    }
    for kind, dataset in datasets.items():
        if dataset is not None:
            jobs.append(
                partial(
                    store.write,
                    dataset,
                    folder / f"{kind}.nc",
                    kind=kind,
                    attributes=attributes,
                )
            )
    if result.report is not None:
        jobs += writers(result.report, folder, attributes, figures=files.figures)
    for name in FIGURES:  # of an earlier run in the same folder
        (folder / f"{name}.png").unlink(missing_ok=True)
    if not files.figures or (record := content.record) is None:
        return write_every(jobs)

    def draw(chosen: slice) -> Iterator[Callable[[], object]]:
        from experiments.drawing.style import png
        from experiments.identify.figures import (
            comparison,
            drawings,
        )  # imports matplotlib

        model = result.identification.model
        drawn = drawings(trajectory, record, 0.0 if model is None else model.gp.noise_variance)
        if result.linear is not None:
            drawn["comparison"] = partial(comparison, result.summary)
        for name, make in [*drawn.items()][chosen]:
            yield lambda name=name, make=make: store.write_bytes(
                png(make()), folder / f"{name}.png"
            )  # type: ignore[misc]

    half = Beside(lambda: write_every(draw(EVEN)))
    write_every(chain(jobs, draw(ODD), [partial(half.result, SHARE_TIMEOUT)]))


def write_again(folder: Path, result: Result, *, figures: bool) -> None:
    """Write summary.json and comparison.png once more, after the free run of several outputs
    together.
    """
    store.write_bytes(text_of(result.summary).encode(), folder / "summary.json")
    if figures and result.linear is not None:
        from experiments.drawing.style import png
        from experiments.identify.figures import comparison  # imports matplotlib

        store.write_bytes(png(comparison(result.summary)), folder / "comparison.png")
