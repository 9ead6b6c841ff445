"""Identification from end to end: simulate or read, identify online, validate, store, draw, report."""

import logging
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from omegaconf import DictConfig, ListConfig, OmegaConf
from tqdm import tqdm

from experiments.cli.arguments import without_effect
from experiments.cli.build import build, build_one
from experiments.cli.ends import Stopped, deferred_interrupt, is_mistake
from experiments.cli.options import flag, whole
from experiments.cli.progress import doing
from experiments.files import job_file
from experiments.files.cache import Cache, CachedTraining, cache_of, cached_source, counts_of
from experiments.files.identity import code_digest
from experiments.files.outputs import attributes_of, has_page, is_lean, is_multirun, write_every
from experiments.identify import result as results
from experiments.identify.compilation import compile_together
from experiments.identify.linear import compare_linear, note_linear
from experiments.identify.result import Result
from experiments.identify.summary import summarise, tell
from experiments.plant.lags import AutomaticNarx
from experiments.plant.live import live_source
from experiments.plant.physics import RESIDUAL, ResidualNarx, thin, variance_at
from experiments.plant.recorded import recorded_source
from experiments.plant.source import Source
from experiments.validate.report import tell_free_run, validate_on_test, writers
from simulators import DivergenceError
from sysid import Identification, JointModel, LagWindow, Narx, Orders, Origin, Prediction, Settings, learn_from
from sysid.errors import UserError
from sysid.gp.dictionary import NOT_PREDICTED

log = logging.getLogger(__name__)
ALL = "all"  # value of narx.target: every output of the source
PARTS = ("training", "mean", "insertion", "acceptance", "reduction", "selection")  # of what learns, groups of options
NUMBERS = ("learning", "scale", "forgetting", "gate", "budget", "seed")  # settings that are no group


#: what a part of a run does, by the name of its time
WORDS = {
    "setup": "preparing",
    "record": "training",
    "loop": "identifying",
    "bands": "measuring the bands on held-out parts",
    "validation": "predicting",
    "free_run": "validating in free run",
    "linear": "comparing with linear models",
}


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Time a part of a run [s]; its times add up."""
    start = time.perf_counter()
    try:
        with doing(WORDS[name]):
            yield
    finally:
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start


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
    whole("seed", config.seed, 0)
    flag("figures", config.figures)
    flag("validate", config.validate)
    flag("scale", config.scale)
    is_lean(config)  # refuses what it does not know
    has_page(config)
    compile_together()
    cache, named = cache_of(config), config.narx.get("target", "")
    seconds: dict[str, float] = {}
    with timed(seconds, "setup"):
        source = source_of(config, cache)
    if named == ALL or isinstance(named, ListConfig):
        targets = list(source.outputs) if named == ALL else [str(name) for name in named]
        _check_targets(config, source, targets)
        if len(targets) > 1:
            return _run_joint(config, folder, source, cache, targets)
        config = _for_output(config, targets[0])
    result = identify(config, source, cache, seconds)
    _keep(config, folder, result)
    return _score(result)


def identify(
    config: DictConfig, source: Source, cache: Cache | None, seconds: dict[str, float], *, is_alone: bool = True
) -> Result:
    """Identify one output from a source at its start, and judge the model; adds wall times to `seconds`.

    A model that is not alone runs freely with the others later. What ends it early, once there is something to keep,
    stands in the result.
    """
    with timed(seconds, "setup"):
        identification = prepare(config, source, cache, seconds)
        window = LagWindow(identification.narx)
    records: list[np.ndarray] = []
    with timed(seconds, "loop"):
        stopped = stream(source, identification, window, records)
    try:
        with deferred_interrupt(), timed(seconds, "bands"):
            if stopped is None:
                source.calibrate(identification)
        with deferred_interrupt(), timed(seconds, "validation"):
            result = judge(source, identification, window, records, stopped)
        if stopped is None and is_alone:
            with timed(seconds, "free_run"):
                result.report, result.notes = validate_on_test(config, source, identification.model)
        if stopped is None:
            with timed(seconds, "linear"):
                result.linear = compare_linear(result, simulates=config.validate)
    except KeyboardInterrupt as reason:
        result.interrupted = reason
    result.summary = summarise(config, result, seconds | counts_of(cache))
    return result


def _keep(config: DictConfig, folder: Path, result: Result, *, in_job: bool = True) -> None:
    """Write a result and report it; then say in one line what ended it early; a bug keeps its traceback."""
    with deferred_interrupt():
        with doing("writing files, figures and the page"):
            results.write(config, folder, result, in_job=in_job)
            if in_job:
                write_page(config, folder)
        tell(result, folder)
    reason, where = result.stopped or result.interrupted, f"Partial results are in {folder}"
    if isinstance(reason, KeyboardInterrupt):
        raise Stopped(f"Run interrupted. {where}", 130)
    if reason is not None and (isinstance(reason, DivergenceError) or is_mistake(reason)):
        raise Stopped(f"Run stopped: {reason}. {where}", 1)
    if reason is not None:
        log.error("Run stopped by an unexpected error. %s", where)
        raise reason


def write_page(config: DictConfig, folder: Path) -> None:
    """Write the page of the run, if there is to be one."""
    if has_page(config):
        from experiments.report.page import write_run  # imports matplotlib

        write_run(folder)


def _score(result: Result) -> float:
    return float("nan") if result.summary["smse"] is None else float(result.summary["smse"])


def _run_joint(config: DictConfig, folder: Path, source: Source, cache: Cache | None, targets: list[str]) -> float:
    """Identify several outputs from the same samples, then join their models."""
    lean = is_lean(config)
    found: dict[str, Result] = {}
    try:
        for target in targets:
            log.info("Output %s", target)
            source.restart()
            single = _for_output(config, target)
            found[target] = result = identify(single, source, cache, {}, is_alone=False)
            own = folder if lean else folder / target
            own.mkdir(exist_ok=True)
            _keep(single, own, result, in_job=False)
    except BaseException:
        with deferred_interrupt():
            _write_job(config, folder, found, attributes_of(config, source.physics, partial=True))
        raise
    _conclude(config, source, folder, found)
    return max(map(_score, found.values()))


def _conclude(config: DictConfig, source: Source, folder: Path, found: dict[str, Result]) -> None:
    """Join the models, validate them in free run, write both and report them."""
    models = [result.identification.model for result in found.values()]
    joint = JointModel(tuple(model for model in models if model is not None))
    attributes, lean = attributes_of(config, source.physics, partial=False), is_lean(config)
    if not lean:
        joint.save(folder / "model.nc", attributes=attributes)
    report, notes = validate_on_test(config, source, joint)
    measures = {} if report is None else report.content["free_run"]
    linear = dict[str, list[str]]()
    for target, result in found.items():
        result.summary["free_run"] = measures.get(target)
        known = result.summary["warnings"]
        linear[target] = [note for note in note_linear(result.summary, result) if note not in known]
        known += [*notes, *linear[target]]
    with deferred_interrupt():
        _write_job(config, folder, found, attributes)
        for target, result in found.items() if not lean else ():
            results.write_again(folder / target, result, figures=config.figures)
    if report is not None and not lean:
        write_every(writers(report, folder, attributes, figures=config.figures))
    write_page(config, folder)
    if report is not None:
        for target in joint.output_names:
            log.info("Output %s", target)
            tell_free_run(report.content, target)
            for note in linear[target]:
                log.warning("Note: %s", note)
    for note in notes:
        log.warning("Note: %s", note)
    log.info("Joint model of %s: %s", ", ".join(found), folder / (job_file.FILE if lean else "model.nc"))


def _write_job(config: DictConfig, folder: Path, found: dict[str, Result], attributes: dict[str, Any]) -> None:
    """Write what was found to the file of the job, if there is to be one."""
    if found and (is_lean(config) or is_multirun()):
        contents = {target: result.content for target, result in found.items()}
        job_file.write(contents, folder / job_file.FILE, attributes)


def _for_output(config: DictConfig, target: str) -> DictConfig:
    """The configuration for one output."""
    return cast(DictConfig, OmegaConf.merge(config, {"narx": {"target": target}}))


def _check_targets(config: DictConfig, source: Source, targets: list[str]) -> None:
    """Refuse targets that are not exactly the outputs among the regressors, or whose lags differ."""
    if not targets or len(set(targets)) < len(targets):
        raise UserError(f"narx.target: expected each output once, or all, got {targets}")
    lags = [narx_of(_for_output(config, target), source) for target in targets]
    for narx in lags:
        if narx.lags != lags[0].lags or sorted(narx.output_names) != sorted(targets):
            needed = "to be simulated together the models need the same lags and a model for every output among them"
            got = f"got {dict(narx.lags)} for {narx.target!r}; take narx=orders or narx=lags"
            raise UserError(f"narx.target={targets}: {needed}, {got}")


def source_of(config: DictConfig, cache: Cache | None = None) -> Source:
    """Source of the samples: the configured records, or without any the simulation, which a cache may know."""
    if "_target_" in config.data:
        return recorded_source(config)
    return live_source(config) if cache is None else cached_source(config, cache)


def prepare(
    config: DictConfig, source: Source, cache: Cache | None = None, seconds: dict[str, float] | None = None
) -> Identification:
    """Instantiate what learns, from all that a record says; a cache may know what the training finds."""
    parts = {name: build(config, name) for name in PARTS}
    if refused := without_effect(parts["training"].replaces & {"kernel", "mean"}):
        why = "this training chooses kernel and mean itself, its mean is linear"
        advice = "leave it out, change training.routes.0.kernels and training.routes.1.kernel, or take another training"
        raise UserError(f"{' and '.join(refused)}: {why}; {advice}")
    settings = Settings(**parts, **{name: config[name] for name in NUMBERS})
    if not is_multirun():
        rest, how_long = source.n_samples - source.n_identified, "seconds to a minute"
        if "kernel" in settings.training.replaces:
            how_long = "some minutes, most of them to train for the free run"
        counted = f"{source.n_identified} samples are learned, {rest} judge the model"
        log.info("Identify %s with %d points: %s; takes %s", source.title, settings.budget, counted, how_long)
    narx = narx_of(config, source, settings)
    source.check(narx, narx.max_lag + (settings.training.n_initial or 0) + 1)
    changes: dict[str, Any] = {}
    if config.narx.get("predict") == RESIDUAL and source.physics is not None:
        changes["mean"] = source.physics.physics.mean(narx)
        if (recordings := source.recordings()) is not None:
            changes["training"] = thin(settings.training, recordings, narx.target)
    if cache is not None:
        changes["training"] = CachedTraining(changes.get("training", settings.training), cache, code_digest(config))
    settings = replace(settings, **changes)
    with timed({} if seconds is None else seconds, "record"):
        start = source.know(narx, settings)
    return Identification(narx, settings, start=start)


def narx_of(config: DictConfig, source: Source, settings: Settings | None = None) -> Narx:
    """Lags as configured, or those that fit the source and the settings of the identification, or the physics."""
    is_residual = config.narx.get("predict") == RESIDUAL
    if is_residual and source.physics is None:
        raise UserError(f"narx.predict={RESIDUAL} needs the physics whose residual it is: physics=<system>")
    narx = build_one({**config.narx, "predict": "value"} if is_residual else config.narx, "narx")
    if isinstance(narx, AutomaticNarx):
        with doing("choosing the lags"):
            narx, report = source.lags(narx, Settings() if settings is None else settings)
        log.info("Lags chosen: %s", report)
    if isinstance(narx, Orders | ResidualNarx):
        narx = narx.narx(source.outputs, source.inputs)
    assert isinstance(narx, Narx)
    return narx


def stream(
    source: Source, identification: Identification, window: LagWindow, records: list[np.ndarray]
) -> BaseException | None:
    """Run the loop, collect records, see the rest; returns what ended it early, if there is something to keep."""
    names = {"outputs": source.outputs, "inputs": source.inputs}
    silent = True if is_multirun() else None  # None: unless it is a terminal
    bar = tqdm(total=source.n_samples, unit=" samples", disable=silent, desc="identifying", mininterval=0.2)

    def count(samples: Any) -> Iterator[Any]:
        for sample in samples:
            bar.update(1 if sample.output.ndim == 1 else len(sample.output))
            yield sample

    try:
        with bar:
            for samples in source.segments():
                window.reset()
                for block in learn_from(count(samples), identification, window, **names):
                    records.append(block.record)
                    bar.set_postfix_str(f"{block.record['n_points'][-1]} points", refresh=False)
            identification.finish()
            deque(count(source.finish()), maxlen=0)
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
    model, first = identification.model, identification.initial
    if rows is not None and model is not None:
        place = rows["record"].values, rows["time"].values
        origin = Origin.of(rows.isel(sample=np.flatnonzero(~source.is_validation(*place))))
        model = identification.model = replace(model, origin=origin)
        after = np.flatnonzero(source.is_judged(*place))
    validation = None if rows is None else rows.isel(sample=after)
    predicted = initial = Prediction(np.zeros(0), np.zeros(0))
    if validation is not None and len(after) and model is not None and first is not None:
        limits = [narx.predict.of(limit, validation["previous"].values) for limit in model.limits]  # of the target
        mean, variance = model.predict(validation["regressor"].values)
        added = variance_at(validation, source.records(), narx.target)
        predicted = Prediction(np.clip(mean, *limits), model.calibrated(variance + added))
        initial = first.predict(validation["regressor"].values)
        initial = initial._replace(mean=np.clip(initial.mean, *limits))
    record = np.concatenate([NOT_PREDICTED[:0], *records])
    return Result(source, identification, window, record, rows, validation, predicted, initial, stopped)
