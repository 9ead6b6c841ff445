"""The result of an identification, and the files that keep it."""

import json
from collections.abc import Callable, Iterator, Sequence
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
from experiments.identify.limit import describe_limit, predict_rows
from experiments.plant.limit import LIMIT_OF_PART, Limit
from experiments.plant.source import Source, trajectory_of
from experiments.validate.report import Report, writers
from sysid import (
    DeadTimeChange,
    DeadTimes,
    Estimate,
    Identification,
    LagWindow,
    Model,
    Prediction,
    store,
)
from sysid.beside import SHARE_TIMEOUT, Beside
from sysid.gross_errors import are_rows_untouched
from sysid.model.result import result_dataset, with_estimates

#: names of all figures that a run, of this version or an earlier one, may have drawn
FIGURE_NAMES = (
    "signals",
    "temperatures",
    "plan",
    "prediction",
    "dictionary",
    "error",
    "linear_part",
    "dead_time",
    "comparison",
    "validation",
)
# two processes share the figures: the second one draws the figures with an even number
EVEN_FIGURES = slice(0, None, 2)
ODD_FIGURES = slice(1, None, 2)


@dataclass(eq=False)
class Result:
    """The result of the identification of one output, complete or not."""

    source: Source
    identification: Identification
    window: LagWindow
    signals: Sequence[xr.Dataset]  # of all samples, learned or not: a data set for each record
    record: np.ndarray  # one row per identified sample, as of `Identification.observe_many`
    rows: xr.Dataset | None  # lag data set of the whole trajectory
    validation: xr.Dataset | None  # its rows after the identified part
    predicted: Prediction  # of the final model for the validation rows
    predicted_initial: Prediction  # of the model before the stream, for the same rows
    stopped: BaseException | None  # ended the identification early
    interrupted: BaseException | None = None  # ended the validation of a complete identification
    report: Report | None = None  # of the free run on the test records
    notes: list[str] = field(default_factory=list)  # on the free run, for the user
    #: changes of the lags of a stream when dead times were found
    dead_time_changes: list[DeadTimeChange] = field(default_factory=list)
    limit: Limit = LIMIT_OF_PART  # of one-step prediction of the whole simulation
    linear: dict[str, Any] | None = None  # errors of linear models of the same record
    linear_orders: dict[str, Any] = field(default_factory=dict)  # of `compare_orders`
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def has_gross_errors(self) -> bool:
        """Whether the records that validate the model have gross errors."""
        screened = self.source.screened_validation
        return screened is not None and bool(screened.n_found)

    @property
    def is_untouched(self) -> np.ndarray:
        """Which validation rows have no gross error in the target and among the lags."""
        screened = self.source.screened_validation
        rows = self.validation
        n_rows = 0 if rows is None else rows.sizes["sample"]
        if rows is None or screened is None or not screened.n_found:
            return np.ones(n_rows, dtype=bool)
        numbers = rows["record"].values - len(self.source.learned())
        times = rows["time"].values
        narx = self.identification.narx
        return are_rows_untouched(screened, narx, numbers.tolist(), times.tolist())

    @property
    def is_online(self) -> np.ndarray:
        """Which rows of the record were predicted: all but the initial samples."""
        return ~np.isnan(self.record["mean"])

    @property
    def has_no_feedback(self) -> bool:
        """Whether the model has no lags of its output, but physics beside it.

        Predictions one step ahead are a free run then.
        """
        narx = self.identification.narx
        return self.source.physics is not None and not narx.lags[narx.target]

    @property
    def is_trained_for_free_run(self) -> bool:
        """Whether the training minimises the error of the free run."""
        return "kernel" in self.identification.settings.training.replaces

    @property
    def learns_a_stream(self) -> bool:
        """Whether the hyper-parameters come from the first samples, not from complete records."""
        return self.source.recordings() is None or self.identification.adaptation is not None

    @property
    def is_unfinished(self) -> bool:
        """Whether ``training.seconds`` ended the search, so that the model is the best so far."""
        return self.identification.time_limit.was_reached

    @property
    def dead_times(self) -> DeadTimes | None:
        """Dead times that the lags begin with; None if they were not looked for."""
        choice = self.source.lag_choice
        return self.source.dead_times if choice is None else choice.dead_times

    @property
    def plan(self) -> xr.Dataset | None:
        """Decisions about inputs with the model: what was decided, planned and predicted."""
        decisions = self.source.decisions
        if decisions is None:
            return None
        dt = float(np.diff(self.signals[0]["time"].values[:2])[0])
        return decisions.content(self.source.n_identified, dt)

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
        """Summary, record and model as data sets; None for those that do not exist."""
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
        feature_units = [str(unit) for unit in rows["unit"].values]
        units = {
            "target_unit": str(rows["target"].attrs.get("units", "")),
            "feature_units": json.dumps(feature_units),
        }
        return Content(self.summary, record, model.to_dataset().assign_attrs(units))


def write(files: RunFiles, folder: Path, result: Result) -> None:
    """Write all files of a result, the most valuable first.

    A file that cannot be written does not stop the others.

    Raises
    ------
    sysid.StoreError
        At the end, if some files could not be written.
    """
    content = result.content
    attributes = files.attributes(
        result.source.physics,
        partial=result.stopped is not None,
        unfinished=result.is_unfinished,
    )
    attributes["timings"] = json.dumps(result.summary["times"])
    jobs: list[Callable[[], object]] = []
    if files.job:
        contents = {"": content}
        jobs.append(partial(job_file.write, contents, folder / job_file.JOB_FILE, attributes))
    if files.lean:
        return write_every(jobs)
    trajectory = trajectory_of(result.source)
    jobs.append(partial(_write_summary, folder, result))
    datasets = {
        "model": content.model,
        "trajectory": trajectory,
        "result": content.record,
        "narx": result.rows,
        "plan": result.plan if files.plan else None,
    }
    for kind, dataset in datasets.items():
        if dataset is not None:
            path = folder / f"{kind}.nc"
            of_file = attributes
            if kind == "result":
                of_file = attributes | {"narx_orders": json.dumps(result.summary["narx"])}
            jobs.append(partial(store.write, dataset, path, kind=kind, attributes=of_file))
    if result.report is not None:
        jobs += writers(result.report, folder, attributes, figures=files.figures)
    for name in FIGURE_NAMES:
        (folder / f"{name}.png").unlink(missing_ok=True)  # of an earlier run in the same folder
    if not files.figures or content.record is None:
        return write_every(jobs)
    record = content.record
    plan = datasets["plan"]

    def draw(chosen: slice) -> Iterator[Callable[[], object]]:
        return _draw(chosen, folder, result, trajectory, record, plan)

    drawing = Beside(lambda: write_every(draw(EVEN_FIGURES)))
    odd_figures = draw(ODD_FIGURES)
    write_every(chain(jobs, odd_figures, [partial(drawing.result, SHARE_TIMEOUT)]))


def _draw(
    chosen: slice,
    folder: Path,
    result: Result,
    trajectory: xr.Dataset,
    record: xr.Dataset,
    plan: xr.Dataset | None,
) -> Iterator[Callable[[], object]]:
    """Yield functions that draw and write one figure each, for the chosen ones."""
    from experiments.identify.figures import (  # imports matplotlib
        comparison,
        dead_times,
        drawings,
        linear_part,
    )

    model = result.identification.model
    noise_variance = 0.0 if model is None else model.gp.noise_variance
    record = _with_limit(record, result)
    before = None
    if result.identification.initial is not None and result.is_online.any():
        before = partial(_predict_before_stream, result)
    words = describe_limit(result.summary)
    makers = drawings(trajectory, record, noise_variance, words, before)
    if plan is not None:
        makers["plan"] = partial(_draw_plan, trajectory, plan)
    if model is not None and model.gp.n_linear:
        makers["linear_part"] = partial(linear_part, model, result.summary["target_unit"])
    found = result.dead_times
    if found is not None and found.has_any:
        by_input = found.to_dict()["by_input"]
        makers["dead_time"] = partial(dead_times, by_input, found.output_unit)
    if result.linear is not None:
        makers["comparison"] = partial(comparison, result.summary)
    for name, make in list(makers.items())[chosen]:
        yield partial(_write_figure, folder / f"{name}.png", make)


def _draw_plan(trajectory: xr.Dataset, plan: xr.Dataset) -> Any:
    """Draw the figure of decisions about inputs."""
    from experiments.identify.control_figure import draw_control  # imports matplotlib
    from experiments.identify.plan_figure import draw_plans

    draw = draw_control if plan.attrs["kind"] == "control" else draw_plans
    return draw(trajectory, plan)


def write_plan(
    folder: Path,
    plan: xr.Dataset,
    trajectory: xr.Dataset,
    attributes: dict[str, Any],
    *,
    figures: bool,
) -> None:
    """Write plan.nc and plan.png, the decisions about inputs for all outputs together."""
    store.write(plan, folder / "plan.nc", kind="plan", attributes=attributes)
    if figures and plan.sizes["decision"]:
        _write_figure(folder / "plan.png", partial(_draw_plan, trajectory, plan))


def _with_limit(record: xr.Dataset, result: Result) -> xr.Dataset:
    """Return the record of a run with the predictions ``limit`` (sample,), if they have an error.

    Without noise their errors are rounding errors, which no figure shows.
    """
    if result.summary["times_the_limit"] is None:
        return record
    narx = result.identification.narx
    output = result.source.outputs.index(narx.target)
    return record.assign(limit=("sample", predict_rows(result.limit, narx, output, record)))


def _predict_before_stream(result: Result) -> np.ndarray:
    """Return the predictions (sample,) of the model before the stream for all rows of the record.

    They are clipped to the limits of the output that the final model knows.
    """
    model = result.identification.model
    initial = result.identification.initial
    identified = result.identified
    assert model is not None
    assert initial is not None
    assert identified is not None
    mean = predict_within_limits(initial, model, identified).mean
    return np.append(mean, result.predicted_initial.mean)


def predict_within_limits(model: Model, final: Model, rows: xr.Dataset) -> Prediction:
    """Return the predictions of a model for rows, clipped to the output limits of the final one."""
    previous = rows["previous"].values
    lower, upper = (final.narx.predict.of(limit, previous) for limit in final.limits)
    predicted = model.predict(rows["regressor"].values)
    return predicted._replace(mean=np.clip(predicted.mean, lower, upper))


def _write_figure(path: Path, make: Callable[[], Any]) -> None:
    """Draw a figure and write it as PNG."""
    from experiments.drawing import style  # imports matplotlib

    store.write_bytes(style.png(make()), path)


def _write_summary(folder: Path, result: Result) -> None:
    """Write the summary as summary.json."""
    store.write_bytes(text_of(result.summary).encode(), folder / "summary.json")


def write_again(folder: Path, result: Result, *, figures: bool) -> None:
    """Write summary.json and comparison.png again, after the joint free run of several outputs."""
    _write_summary(folder, result)
    if figures and result.linear is not None:
        from experiments.identify.figures import comparison  # imports matplotlib

        _write_figure(folder / "comparison.png", partial(comparison, result.summary))
