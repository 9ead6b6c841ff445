"""Identification from end to end: simulate or read, identify online, validate, store, draw, report."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import xarray as xr
from omegaconf import DictConfig, ListConfig, OmegaConf

from experiments import job_file, results
from experiments.automatic import AutomaticNarx
from experiments.build import build
from experiments.interrupt import deferred_interrupt
from experiments.job_file import Outputs, attributes_of, is_multirun, outputs_of
from experiments.launch import Stopped
from experiments.mistake import is_mistake
from experiments.progress import Progress
from experiments.results import Result
from experiments.sources import Source, live_source, recorded_source
from experiments.summary import summarise, tell
from experiments.sweeps.cache import Cache, CachedTraining, cache_of, cached_source, counts_of
from experiments.sweeps.identity import code_digest
from experiments.validation.report import tell_free_run, validate_on_test
from experiments.validation.report import write as write_report
from simulators import DivergenceError
from sysid import Identification, JointModel, LagWindow, Model, Narx, Orders, Origin, Prediction, Settings, learn_from
from sysid.stream import NOT_PREDICTED

log = logging.getLogger(__name__)
ALL = "all"  # value of narx.target: every output of the source


@dataclass
class Clock:
    """Wall times of the parts of a run [s]."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time a part; its times add up."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def run(config: DictConfig, folder: Path) -> float:
    """Identify the outputs that ``narx.target`` names; returns the (largest) SMSE of the validation part.

    With a list, or ``all``, every output is identified from the same samples into a folder of its name; the joint
    model, and its validation in free run if there is a test record, lie in `folder`. Lean outputs are one file.

    Raises
    ------
    ValueError
        What the configuration cannot mean, before anything is identified.
    Stopped
        After Ctrl-C or a simulation that diverged; what was computed so far is stored and marked partial.
    """
    check_values(config)
    clock, cache, named = Clock(), cache_of(config), config.narx.get("target", "")
    with clock("setup"):
        source = source_of(config, cache)
    if named == ALL or isinstance(named, ListConfig):
        targets = list(source.outputs) if named == ALL else [str(name) for name in named]
        _check_targets(config, source, targets)
        if len(targets) > 1:
            return _run_joint(config, folder, source, cache, targets)
        config = _for_output(config, targets[0], validate=True)
    result = identify(config, source, cache, clock)
    _keep(config, folder, result)
    return _score(result)


def identify(config: DictConfig, source: Source, cache: Cache | None, clock: Clock) -> Result:
    """Identify one output from a source at its start, and judge the model.

    What ends it early, once there is something to keep, stands in the result.
    """
    with clock("setup"):
        identification = prepare(config, source, cache)
        window = LagWindow(identification.narx)
        training = identification.settings.training
        source.check(identification.narx, identification.narx.max_lag + (training.n_initial or 0) + 1)
    records: list[np.ndarray] = []
    with clock("loop"):
        stopped = stream(source, identification, window, records)
    try:
        with deferred_interrupt(), clock("validation"):
            result = judge(source, identification, window, records, stopped)
        if stopped is None:
            with clock("free_run"):
                result.trial = validate_on_test(config, source, identification.model)
    except KeyboardInterrupt as reason:
        result.interrupted = reason
    result.summary = summarise(config, result, clock.seconds | counts_of(cache))
    return result


def _keep(config: DictConfig, folder: Path, result: Result, *, in_job: bool = True) -> None:
    """Write a result and report it; then say what ended it early."""
    with deferred_interrupt():
        results.write(config, folder, result, in_job=in_job)
        tell(result, folder)
    if (reason := result.stopped or result.interrupted) is not None:
        raise_early_end(reason, folder)


def _score(result: Result) -> float:
    return float("nan") if result.summary["smse"] is None else float(result.summary["smse"])


def raise_early_end(reason: BaseException, folder: Path) -> None:
    """Say in one line why the run ended early; a bug keeps its traceback."""
    where = f"Partial results are in {folder}"
    if isinstance(reason, KeyboardInterrupt):
        raise Stopped(f"Run interrupted. {where}", 130)
    if isinstance(reason, DivergenceError) or is_mistake(reason):
        raise Stopped(f"Run stopped: {reason}. {where}", 1)
    log.error("Run stopped by an unexpected error. %s", where)
    raise reason


def _run_joint(config: DictConfig, folder: Path, source: Source, cache: Cache | None, targets: list[str]) -> float:
    """Identify several outputs from the same samples, then join their models."""
    lean = _is_lean(config)
    found: dict[str, Result] = {}
    try:
        for target in targets:
            log.info("Output %s", target)
            source.restart()
            single = _for_output(config, target, validate=False)
            found[target] = result = identify(single, source, cache, Clock())
            own = folder if lean else folder / target
            own.mkdir(exist_ok=True)
            _keep(single, own, result, in_job=False)
    except BaseException:
        with deferred_interrupt():
            _write_job(config, folder, found, partial=True)
        raise
    _conclude(config, source, folder, found)
    return max(map(_score, found.values()))


def _conclude(config: DictConfig, source: Source, folder: Path, found: dict[str, Result]) -> None:
    """Join the models, validate them in free run, write both and report them."""
    models = [result.identification.model for result in found.values()]
    joint = JointModel(tuple(model for model in models if model is not None))
    attributes = {"configuration": OmegaConf.to_yaml(config, resolve=True), "seed": int(config.seed)}
    lean = _is_lean(config)
    if not lean:
        joint.save(folder / "model.nc", attributes=attributes)
    trial = validate_on_test(config, source, joint)
    measures = {} if trial.report is None else trial.report.content["free_run"]
    for target, result in found.items():
        result.summary["free_run"] = measures.get(target)
        result.summary["warnings"] += trial.notes
    with deferred_interrupt():
        _write_job(config, folder, found, partial=False)
    if trial.report is not None:
        if not lean:
            write_report(trial.report, folder, attributes, figures=config.figures)
        for target, measured in measures.items():
            log.info("Output %s", target)
            tell_free_run(measured)
    for note in trial.notes:
        log.warning("Note: %s", note)
    log.info("Joint model of %s: %s", ", ".join(found), folder / (job_file.FILE if lean else "model.nc"))


def _write_job(config: DictConfig, folder: Path, found: dict[str, Result], *, partial: bool) -> None:
    """Write what was found to the file of the job, if there is to be one."""
    if found and (_is_lean(config) or is_multirun()):
        contents = {target: result.content for target, result in found.items()}
        job_file.write(contents, folder / job_file.FILE, attributes_of(config, partial=partial))


def _is_lean(config: DictConfig) -> bool:
    return outputs_of(config, multirun=is_multirun()) is Outputs.lean


def _for_output(config: DictConfig, target: str, *, validate: bool) -> DictConfig:
    """The configuration for one output."""
    single = config.copy()
    OmegaConf.set_readonly(single, False)
    OmegaConf.update(single, "narx.target", target)
    OmegaConf.update(single, "validate", validate and config.validate)
    return single


def _check_targets(config: DictConfig, source: Source, targets: list[str]) -> None:
    """Refuse targets that are not exactly the outputs among the regressors, or whose lags differ."""
    if not targets or len(set(targets)) < len(targets):
        raise ValueError(f"narx.target: expected each output once, or all, got {targets}")
    lags: dict[str, Narx] = {}
    for target in targets:
        lags[target] = narx_of(_for_output(config, target, validate=False), source)
    first = lags[targets[0]]
    for target, narx in lags.items():
        if narx.lags != first.lags or sorted(narx.output_names) != sorted(targets):
            raise ValueError(
                f"narx.target={targets}: to be simulated together the models need the same lags and a model for every "
                f"output among them, got {dict(narx.lags)} for {target!r}; take narx=orders or narx=lags with lags of "
                "all these outputs"
            )


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
        training=training if cache is None else CachedTraining(training, cache, code_digest(config)),  # type: ignore[arg-type]
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
    source: Source, identification: Identification, window: LagWindow, records: list[np.ndarray]
) -> BaseException | None:
    """Run the loop, collect records, see the rest; returns what ended it early, if there is something to keep."""
    names = {"outputs": source.outputs, "inputs": source.inputs}
    try:
        with Progress(source.n_samples) as progress:
            for samples in source.segments():
                window.reset()
                for block in learn_from(progress.count(samples), identification, window, **names):
                    records.append(block.record)
                    progress.show(block)
            identification.finish()
            for _ in progress.count(source.finish()):
                pass
    except (KeyboardInterrupt, Exception) as reason:
        if not source.n_seen:
            raise
        return reason
    return None


def judge(
    source: Source,
    identification: Identification,
    window: LagWindow,
    records: list[np.ndarray],
    stopped: BaseException | None,
) -> Result:
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
    return Result(
        source=source,
        identification=identification,
        window=window,
        record=np.concatenate([NOT_PREDICTED[:0], *records]),
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
