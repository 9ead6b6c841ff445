"""One identification from end to end: simulate, identify online, validate, store, draw, tell."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from omegaconf import DictConfig, OmegaConf

from experiments.automatic import AutomaticNarx
from experiments.build import build
from experiments.interrupt import deferred_interrupt
from experiments.launch import Stopped
from experiments.live import live_source
from experiments.progress import Progress
from experiments.recorded import recorded_source
from experiments.source import Source
from experiments.summary import Evidence, summarise, tell
from experiments.validation.identified import NO_TRIAL, Trial, trial_of
from experiments.validation.report import writers as report_writers
from experiments.written import write_every
from sysid import store
from sysid.identify import Identification, Settings, Step, identify
from sysid.lag_window import LagWindow
from sysid.model import Model, Prediction
from sysid.narx import Narx
from sysid.orders import Orders
from sysid.origin import Origin
from sysid.result import result_dataset, with_estimates

log = logging.getLogger(__name__)


@dataclass
class Clock:
    """Wall times of the parts of a run [s]."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time a part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = time.perf_counter() - start


def run(config: DictConfig, folder: Path) -> float:
    """Identify, validate and write everything to the folder; returns the SMSE of the validation part.

    Raises
    ------
    Stopped
        After Ctrl-C or a simulation that diverged; what was computed so far is stored and marked partial.
    """
    clock = Clock()
    with clock("setup"):
        check_values(config)
        source = source_of(config)
        identification = prepare(config, source)
        window = LagWindow(identification.narx)
        training = identification.settings.training
        source.check(identification.narx, identification.narx.max_lag + (training.n_initial or 0) + 1)
    steps: list[Step] = []
    with clock("loop"):
        stopped = stream(source, identification, window, steps)
    trial = NO_TRIAL
    try:
        with deferred_interrupt(), clock("validation"):
            evidence = gather(source, identification, window, steps, stopped)
        if stopped is None:
            with clock("free_run"):
                trial = trial_of(config, source, identification.model)
    except KeyboardInterrupt as reason:
        stopped = reason
    with deferred_interrupt():
        summary = summarise(config, evidence, clock.seconds, trial)
        write(config, folder, evidence, summary, trial)
        tell(summary, evidence, folder)
    if stopped is not None:
        raise_early_end(stopped, folder)
    return float("nan") if summary["smse"] is None else float(summary["smse"])


def raise_early_end(reason: BaseException, folder: Path) -> None:
    """Say in one line why the run ended early; a bug keeps its traceback."""
    where = f"Partial results are in {folder}"
    if isinstance(reason, KeyboardInterrupt):
        raise Stopped(f"Run interrupted. {where}", 130)
    if isinstance(reason, ArithmeticError | ValueError):
        raise Stopped(f"Run stopped: {reason}. {where}", 1)
    log.error("Run stopped by an unexpected error. %s", where)
    raise reason


def source_of(config: DictConfig) -> Source:
    """Source of the samples: the configured records, or without any the simulation."""
    return recorded_source(config) if "_target_" in config.data else live_source(config)


def check_values(config: DictConfig) -> None:
    """Refuse values of another type than the key says."""
    if isinstance(config.seed, bool) or not isinstance(config.seed, int) or config.seed < 0:
        raise ValueError(f"seed must be a whole number of >= 0, got {config.seed!r}")
    for name in ("figures", "validate"):
        if not isinstance(config[name], bool):
            raise ValueError(f"{name} must be true or false, got {config[name]!r}")


def prepare(config: DictConfig, source: Source) -> Identification:
    """Instantiate what learns."""
    settings = Settings(
        training=build(config, "training"),
        mean=build(config, "mean"),
        insertion=build(config, "insertion"),
        acceptance=build(config, "acceptance"),
        reduction=build(config, "reduction"),
        selection=build(config, "selection"),
        budget=config.budget,
        seed=config.seed,
    )
    return Identification(narx_of(config, source), settings)


def narx_of(config: DictConfig, source: Source) -> Narx:
    """Lags as configured, or those that fit the source."""
    narx = build(config, "narx")
    if isinstance(narx, AutomaticNarx):
        narx, report = source.lags(narx)
        log.info("Lags chosen: %s", report)
    if isinstance(narx, Orders):
        narx = narx.narx(source.outputs, source.inputs)
    assert isinstance(narx, Narx)
    return narx


def stream(
    source: Source, identification: Identification, window: LagWindow, steps: list[Step]
) -> BaseException | None:
    """Run the loop, then see the rest; returns what ended it early, if there is something to keep."""
    names = {"outputs": source.outputs, "inputs": source.inputs}
    try:
        with Progress(source.n_samples) as progress:
            for segment in source.segments():
                window.reset()
                samples = progress.counted(segment.samples)
                for step in identify(samples, identification, window, **names, record=segment.record):
                    steps.append(step)
                    progress.step(step)
            identification.finish()
            for _ in progress.counted(source.finish()):
                pass
    except (KeyboardInterrupt, Exception) as reason:
        if not source.n_seen:
            raise
        return reason
    return None


def gather(
    source: Source,
    identification: Identification,
    window: LagWindow,
    steps: list[Step],
    stopped: BaseException | None,
) -> Evidence:
    """Predict what was not identified, by the final and by the initial model, and label everything."""
    narx = identification.narx
    rows = narx.dataset(source.records()) if source.n_seen > narx.max_lag else None
    after = np.zeros(0, dtype=int)
    if rows is not None and identification.model is not None:
        identification.model = with_origin(identification.model, source, rows)
        after = np.flatnonzero(source.is_judged(rows["record"].values, rows["time"].values))
    validation = None if rows is None else rows.isel(sample=after)
    nothing = Prediction(np.zeros(0), np.zeros(0))
    predicted = {"final": nothing, "initial": nothing}
    if validation is not None and len(after):
        for name, model in (("final", identification.model), ("initial", identification.initial)):
            assert model is not None
            predicted[name] = model.predict(validation["regressor"].values)
    return Evidence(
        source=source,
        identification=identification,
        window=window,
        steps=steps,
        trajectory=source.trajectory(),
        rows=rows,
        validation=validation,
        predicted=predicted["final"],
        predicted_initial=predicted["initial"],
        stopped=stopped,
    )


def with_origin(model: Model, source: Source, rows: xr.Dataset) -> Model:
    """The model, with what the rows that it was identified from say about its signals."""
    identified = ~source.is_validation(rows["record"].values, rows["time"].values)
    return replace(model, origin=Origin.of(rows.isel(sample=np.flatnonzero(identified))))


def write(config: DictConfig, folder: Path, evidence: Evidence, summary: dict[str, Any], trial: Trial) -> None:
    """Write every file that can be written, the most valuable first; then report those that could not.

    Raises
    ------
    sysid.store.StoreError
        If a file could not be written; the others are there.
    """
    write_every(writers(config, folder, evidence, summary, trial))


def writers(
    config: DictConfig, folder: Path, evidence: Evidence, summary: dict[str, Any], trial: Trial
) -> list[Callable[[], object]]:
    """One call per file."""
    attributes = {
        "configuration": OmegaConf.to_yaml(config, resolve=True),
        "seed": int(config.seed),
        "partial": int(evidence.stopped is not None),
        "timings": json.dumps(summary["times"]),
    }
    text = json.dumps(summary, indent=2, allow_nan=False)
    jobs: list[Callable[[], object]] = [lambda: store.write_bytes(text.encode(), folder / "summary.json")]
    model = evidence.identification.model
    if model is not None and evidence.rows is not None:
        units = {
            "target_unit": str(evidence.rows["target"].attrs.get("units", "")),
            "feature_units": json.dumps([str(unit) for unit in evidence.rows["unit"].values]),
        }
        jobs.append(lambda: model.save(folder / "model.nc", attributes=attributes | units))
    datasets: dict[str, xr.Dataset] = {"trajectory": evidence.trajectory}
    if evidence.rows is not None and evidence.validation is not None:
        datasets["result"] = result_dataset(
            evidence.steps, evidence.validation, evidence.predicted, evidence.identification.narx.predict
        )
        if (adaptation := evidence.identification.adaptation) is not None and model is not None:
            datasets["result"] = with_estimates(datasets["result"], adaptation.estimates, model)
        datasets["narx"] = evidence.rows
    for kind, dataset in datasets.items():
        jobs.append(
            lambda kind=kind, dataset=dataset: store.write(  # type: ignore[misc]
                dataset, folder / f"{kind}.nc", kind=kind, attributes=attributes
            )
        )
    if trial.report is not None:
        jobs += report_writers(trial.report, folder, attributes, figures=config.figures)
    if config.figures and "result" in datasets:
        jobs += figure_writers(folder, datasets["trajectory"], datasets["result"], model)
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
