"""One identification from end to end: simulate, identify online, validate, store, draw, tell."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import xarray as xr
from omegaconf import DictConfig

from experiments.automatic import AutomaticNarx
from experiments.build import build
from experiments.finding import Finding, content_of, write
from experiments.interrupt import deferred_interrupt
from experiments.job_file import is_multirun, outputs_of
from experiments.launch import Stopped
from experiments.live import live_source
from experiments.progress import Progress
from experiments.recorded import recorded_source
from experiments.source import Source
from experiments.summary import Evidence, summarise, tell
from experiments.sweeps.cache import Cache, CachedTraining, cache_of, cached_source, counts_of
from experiments.sweeps.identity import code_digest
from experiments.validation.identified import NO_TRIAL, trial_of
from sysid import Identification, LagWindow, Model, Narx, Orders, Origin, Prediction, Settings, learn_from
from sysid.stream import NOT_PREDICTED, Block

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
    return identified(config, folder, lambda finding: write(config, folder, finding, content_of(finding)))


def identified(config: DictConfig, folder: Path, keep: Callable[[Finding], None]) -> float:
    """Identify and validate, and hand what was found to `keep`; returns the SMSE of the validation part.

    Raises
    ------
    Stopped
        As `run`; what was found so far has been kept.
    """
    clock = Clock()
    with clock("setup"):
        check_values(config)
        cache = cache_of(config)
        source = source_of(config, cache)
        identification = prepare(config, source, cache)
        window = LagWindow(identification.narx)
        training = identification.settings.training
        source.check(identification.narx, identification.narx.max_lag + (training.n_initial or 0) + 1)
    blocks: list[Block] = []
    with clock("loop"):
        stopped = stream(source, identification, window, blocks)
    trial = NO_TRIAL
    try:
        with deferred_interrupt(), clock("validation"):
            evidence = gather(source, identification, window, blocks, stopped)
        if stopped is None:
            with clock("free_run"):
                trial = trial_of(config, source, identification.model)
    except KeyboardInterrupt as reason:
        stopped = reason
    with deferred_interrupt():
        summary = summarise(config, evidence, clock.seconds | counts_of(cache), trial)
        keep(Finding(evidence, summary, trial))
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


def source_of(config: DictConfig, cache: Cache | None = None) -> Source:
    """Source of the samples: the configured records, or without any the simulation, which a cache may know."""
    if "_target_" in config.data:
        return recorded_source(config)
    return live_source(config) if cache is None else cached_source(config, cache)


def check_values(config: DictConfig) -> None:
    """Refuse values of another type than the key says."""
    if isinstance(config.seed, bool) or not isinstance(config.seed, int) or config.seed < 0:
        raise ValueError(f"seed must be a whole number of >= 0, got {config.seed!r}")
    for name in ("figures", "validate"):
        if not isinstance(config[name], bool):
            raise ValueError(f"{name} must be true or false, got {config[name]!r}")
    outputs_of(config, multirun=is_multirun())


def prepare(config: DictConfig, source: Source, cache: Cache | None = None) -> Identification:
    """Instantiate what learns; a cache may know what the training finds."""
    training = build(config, "training")
    settings = Settings(
        training=training if cache is None else CachedTraining(training, cache, code_digest(config)),
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
    source: Source, identification: Identification, window: LagWindow, blocks: list[Block]
) -> BaseException | None:
    """Run the loop, then see the rest; returns what ended it early, if there is something to keep."""
    names = {"outputs": source.outputs, "inputs": source.inputs}
    try:
        with Progress(source.n_samples) as progress:
            for segment in source.segments():
                window.reset()
                samples = progress.count(segment.samples)
                for block in learn_from(samples, identification, window, **names):
                    blocks.append(block)
                    progress.show(block)
            identification.finish()
            for _ in progress.count(source.finish()):
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
    blocks: list[Block],
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
        record=np.concatenate([NOT_PREDICTED[:0], *(block.record for block in blocks)]),
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
