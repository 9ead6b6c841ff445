"""Identification from end to end: simulate or read, identify online, validate, store, report."""

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from experiments.cli.arguments import without_effect
from experiments.cli.build import build, build_one
from experiments.cli.ends import Stopped, deferred_interrupt, is_mistake
from experiments.cli.invocation import given_overrides, is_multirun
from experiments.cli.options import flag, whole
from experiments.cli.progress import doing
from experiments.files import job_file
from experiments.files.cache import (
    Cache,
    CachedTraining,
    cache_of,
    counts_of,
    simulate_once,
)
from experiments.files.identity import code_digest
from experiments.files.outputs import RunFiles, has_page, is_lean, write_every
from experiments.identify import result as results
from experiments.identify.compilation import compile_together
from experiments.identify.linear import compare_linear, note_linear
from experiments.identify.result import Result
from experiments.identify.settings import LagOptions, RunSettings
from experiments.identify.summary import summarise, tell
from experiments.plant.lags import AutomaticNarx
from experiments.plant.live import live_source
from experiments.plant.physics import RESIDUAL, ResidualNarx, thin, variance_at
from experiments.plant.recorded import recorded_source
from experiments.plant.source import Source
from experiments.validate.report import Report, log_free_run, validate_on_test, writers
from simulators import DivergenceError
from sysid import (
    Identification,
    JointModel,
    LagWindow,
    Model,
    Narx,
    Orders,
    Origin,
    Prediction,
    Settings,
    learn_from,
)
from sysid.errors import UserError
from sysid.gp.dictionary import NOT_PREDICTED

log = logging.getLogger(__name__)
#: settings of what learns: groups of options, and values
PARTS = ("training", "mean", "insertion", "acceptance", "reduction", "selection")
VALUES = ("learning", "scale", "forgetting", "gate", "budget", "seed")

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


def run(config: DictConfig, folder: Path) -> float:
    """Identify the outputs that ``narx.target`` names; return the (largest) SMSE of the validation.

    With a list, or ``all``, every output is identified from the same samples into a folder of its
    name; the joint model, and its validation in free run if there is a test record, lie in
    `folder`. Lean outputs are one file.

    Raises
    ------
    ValueError
        What the configuration cannot mean, before anything is identified.
    Stopped
        After Ctrl-C or a simulation that diverged; what was computed so far is stored and marked
        partial.
    """
    settings = read_settings(config)
    cache = cache_of(config.get("cache"), in_sweep=settings.in_sweep)
    if not settings.in_sweep:  # there everything is compiled when it is first called
        compile_together()
    seconds: dict[str, float] = {}
    with timed(seconds, "setup"):
        source = source_of(config, cache)
    targets = settings.lags.targets(source.outputs)
    if targets is not None:
        _check_targets(settings.lags, source, targets)
        if len(targets) > 1:
            own = {target: _of_several(_for_output(config, settings, target)) for target in targets}
            return _run_joint(settings, own, folder, source, cache)
        settings = _for_output(config, settings, targets[0])
    result = identify(settings, source, cache, seconds)
    _keep(settings, folder, result)
    return _score(result)


# --- what is asked for ----------------------------------------------------------------------------


def read_settings(config: DictConfig) -> RunSettings:
    """Return what a configuration asks for, checked; the rest of it is the source (`source_of`).

    Raises
    ------
    ValueError
        What an option cannot be, with its name.
    """
    seed = whole("seed", config.seed, 0)
    figures = flag("figures", config.figures)
    validates = flag("validate", config.validate)
    flag("scale", config.scale)
    in_sweep = is_multirun()
    lean = is_lean(config.outputs, in_sweep=in_sweep)
    page = has_page(config.get("report", False), lean=lean)
    resolved = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))
    narx = cast(dict[str, Any], OmegaConf.to_container(config.narx, resolve=True))
    lags = LagOptions(narx, predicts_residual=narx.get("predict") == RESIDUAL)
    overrides = given_overrides()
    return RunSettings(
        learner=_read_learner(config, lags, overrides),
        lags=lags,
        validates=validates,
        propagation=partial(build_one, resolved["propagation"], "propagation"),
        files=RunFiles(
            lean=lean,
            job=lean or in_sweep,
            figures=figures,
            page=page,
            configuration=OmegaConf.to_yaml(config, resolve=True),
            seed=seed,
        ),
        in_sweep=in_sweep,
        overrides=overrides,
        resolved=resolved,
    )


def _read_learner(config: DictConfig, lags: LagOptions, overrides: tuple[str, ...]) -> Settings:
    """Return what learns, built from its groups; refuse options that the training brings itself."""
    parts = {name: build(config, name) for name in PARTS}
    replaced = parts["training"].replaces
    if lags.predicts_residual and "mean" in replaced:
        why = "the residual is a mean, this training brings its own"
        advice = "take another training, or lags and narx.predict=change"
        raise UserError(f"narx.predict={RESIDUAL}: {why}; {advice}")
    if refused := without_effect(replaced & {"kernel", "mean"}, overrides):
        why = "this training chooses kernel and mean itself, its mean is linear"
        kernels = "training.routes.0.kernels and training.routes.1.kernel"
        advice = f"leave it out, change {kernels}, or take another training"
        raise UserError(f"{' and '.join(refused)}: {why}; {advice}")
    return Settings(**parts, **{name: config[name] for name in VALUES})


def _for_output(config: DictConfig, settings: RunSettings, target: str) -> RunSettings:
    """Return the settings for one output, as if ``narx.target`` named it alone."""
    alone = OmegaConf.merge(config, {"narx": {"target": target}})
    files = replace(settings.files, configuration=OmegaConf.to_yaml(alone, resolve=True))
    return replace(settings, lags=settings.lags.of(target), files=files)


def _of_several(settings: RunSettings) -> RunSettings:
    """Return the settings of one output among several: job.nc and the page are those of all."""
    return replace(settings, files=replace(settings.files, job=False, page=False))


def source_of(config: DictConfig, cache: Cache | None = None) -> Source:
    """Return the source of the samples: the configured records, or else the simulated plant.

    A simulation that a cache knows is not run again.
    """
    if "_target_" in config.data:
        return recorded_source(config)
    if cache is None:
        return live_source(config)
    resolved = cast(Mapping[str, Any], OmegaConf.to_container(config, resolve=True))
    return live_source(config, simulate_once(resolved, cache))


def narx_of(lags: LagOptions, source: Source, learner: Settings) -> Narx:
    """Return the lags as described, or those that fit the source, its physics and what learns."""
    description = lags.description
    if lags.predicts_residual:
        if source.physics is None:
            needed = "the physics whose residual it is: physics=<system>"
            raise UserError(f"narx.predict={RESIDUAL} needs {needed}")
        description = {**description, "predict": "value"}
    narx = build_one(description, "narx")
    if isinstance(narx, AutomaticNarx):
        with doing("choosing the lags"):
            narx, report = source.lags(narx, learner)
        log.info("Lags chosen: %s", report)
    if isinstance(narx, Orders | ResidualNarx):
        narx = narx.narx(source.outputs, source.inputs)
    assert isinstance(narx, Narx)
    return narx


def _check_targets(lags: LagOptions, source: Source, targets: list[str]) -> None:
    """Refuse targets that are not all outputs among the regressors, or whose lags differ."""
    if not targets or len(set(targets)) < len(targets):
        raise UserError(f"narx.target: expected each output once, or all, got {targets}")
    found = [narx_of(lags.of(target), source, Settings()) for target in targets]
    for narx in found:
        if narx.lags != found[0].lags or sorted(narx.output_names) != sorted(targets):
            needed = "the same lags and a model for every output among them"
            got = f"got {dict(narx.lags)} for {narx.target!r}; take narx=orders or narx=lags"
            why = f"to be simulated together the models need {needed}"
            raise UserError(f"narx.target={targets}: {why}, {got}")


# --- one output -----------------------------------------------------------------------------------


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Time a part of a run [s]; its times add up."""
    start = time.perf_counter()
    try:
        with doing(WORDS[name]):
            yield
    finally:
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start


def identify(
    settings: RunSettings,
    source: Source,
    cache: Cache | None,
    seconds: dict[str, float],
    *,
    is_alone: bool = True,
) -> Result:
    """Identify one output from a source at its start, and judge the model.

    Wall times are added to `seconds`. A model that is not alone runs freely with the others later.
    What ends it early, once there is something to keep, stands in the result.
    """
    with timed(seconds, "setup"):
        identification = prepare(settings, source, cache, seconds)
        window = LagWindow(identification.narx)
    records: list[np.ndarray] = []
    with timed(seconds, "loop"):
        is_watched = not settings.in_sweep
        stopped = stream(source, identification, window, records, shows_progress=is_watched)
    result: Result | None = None
    try:
        with (
            deferred_interrupt()
        ):  # whatever arrives while the bands are measured: there is a result to keep
            with timed(seconds, "bands"):
                if stopped is None:
                    source.calibrate(identification)
            with timed(seconds, "validation"):
                result = judge(source, identification, window, records, stopped)
        if stopped is None and is_alone:
            with timed(seconds, "free_run"):
                result.report, result.notes = _run_freely(settings, source, identification.model)
        if stopped is None:
            with timed(seconds, "linear"):
                result.linear = compare_linear(result, simulates=settings.validates)
    except (
        KeyboardInterrupt,
        Exception,
    ) as reason:  # the identification is complete, and is kept
        if result is None:
            raise
        result.interrupted = reason
    result.summary = summarise(settings, result, seconds | counts_of(cache))
    return result


def prepare(
    settings: RunSettings,
    source: Source,
    cache: Cache | None = None,
    seconds: dict[str, float] | None = None,
) -> Identification:
    """Begin what learns, with all that a record says; a cache may know what the training finds."""
    learner = settings.learner
    if not settings.in_sweep:
        rest = source.n_samples - source.n_identified
        how_long = "seconds to a minute"
        if "kernel" in learner.training.replaces:
            how_long = "some minutes, most of them to train for the free run"
        counted = f"{source.n_identified} samples are learned, {rest} judge the model"
        log.info(
            "Identify %s with %d points: %s; takes %s",
            source.title,
            learner.budget,
            counted,
            how_long,
        )
    narx = narx_of(settings.lags, source, learner)
    source.check(narx, narx.max_lag + (learner.training.n_initial or 0) + 1)
    changes: dict[str, Any] = {}
    if settings.lags.predicts_residual and source.physics is not None:
        changes["mean"] = source.physics.physics.mean(narx)
        if (recordings := source.recordings()) is not None:
            changes["training"] = thin(learner.training, recordings, narx.target)
    if cache is not None:
        training = changes.get("training", learner.training)
        changes["training"] = CachedTraining(training, cache, code_digest(settings.resolved))
    learner = replace(learner, **changes)
    with timed({} if seconds is None else seconds, "record"):
        start = source.know(narx, learner)
    return Identification(narx, learner, start=start)


def stream(
    source: Source,
    identification: Identification,
    window: LagWindow,
    records: list[np.ndarray],
    *,
    shows_progress: bool = True,
) -> BaseException | None:
    """Identify all segments and append the record of each block to `records`; then see the rest.

    Returns
    -------
    BaseException or None
        What ended it early, if there is something to keep.
    """
    names = {"outputs": source.outputs, "inputs": source.inputs}
    silent = None if shows_progress else True  # None: unless it is a terminal
    bar = tqdm(
        total=source.n_samples,
        unit=" samples",
        disable=silent,
        desc="identifying",
        mininterval=0.2,
    )

    def count(samples: Any) -> Iterator[Any]:
        for sample in samples:
            bar.update(1 if sample.output.ndim == 1 else len(sample.output))
            yield sample

    try:
        with bar:
            for samples in source.segments():
                window.reset()
                for block in learn_from(count(samples), identification, window, **names):
                    if block.correction is not None:
                        records[-1][-1] = block.correction
                    records.append(block.record)
                    bar.set_postfix_str(f"{block.record['n_points'][-1]} points", refresh=False)
            identification.finish()
            if identification.correction is not None:
                records[-1][-1] = identification.correction
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
    """Predict what was not identified, by the final and by the initial model, and label
    everything.
    """
    narx = identification.narx
    rows = narx.dataset(source.records()) if source.n_seen > narx.max_lag else None
    after = np.zeros(0, dtype=int)
    model = identification.model
    first = identification.initial
    if rows is not None and model is not None:
        place = rows["record"].values, rows["time"].values
        origin = Origin.of(rows.isel(sample=np.flatnonzero(~source.is_validation(*place))))
        model = identification.model = replace(model, origin=origin)
        after = np.flatnonzero(source.is_judged(*place))
    validation = None if rows is None else rows.isel(sample=after)
    predicted = initial = Prediction(np.zeros(0), np.zeros(0))
    if validation is not None and len(after) and model is not None and first is not None:
        limits = [
            narx.predict.of(limit, validation["previous"].values) for limit in model.limits
        ]  # of the target
        mean, variance = model.predict(validation["regressor"].values)
        added = variance_at(validation, source.records(), narx.target)
        predicted = Prediction(np.clip(mean, *limits), model.calibrated(variance + added))
        initial = first.predict(validation["regressor"].values)
        initial = initial._replace(mean=np.clip(initial.mean, *limits))
    record = np.concatenate([NOT_PREDICTED[:0], *records])
    return Result(
        source,
        identification,
        window,
        record,
        rows,
        validation,
        predicted,
        initial,
        stopped,
    )


def _run_freely(
    settings: RunSettings, source: Source, model: Model | JointModel | None
) -> tuple[Report | None, list[str]]:
    """Validate a model in free run on the test records, if that is asked for; and what to note."""
    if not settings.validates:
        return None, []
    return validate_on_test(source, model, settings.propagation, settings.learner.seed)


def _keep(settings: RunSettings, folder: Path, result: Result) -> None:
    """Write a result and report it; then say in one line what ended it early.

    Raises
    ------
    Stopped
        If the user, or a mistake of the user, ended it early.
    Exception
        If a bug did: with its traceback.
    """
    with deferred_interrupt():
        with doing("writing files, figures and the page"):
            results.write(settings.files, folder, result)
            _write_page(settings.files, folder)
        tell(result, folder, advises=not settings.in_sweep)
    reason = result.stopped or result.interrupted
    where = f"Partial results are in {folder}"
    if isinstance(reason, KeyboardInterrupt):
        raise Stopped(f"Run interrupted. {where}", 130)
    if reason is not None and (isinstance(reason, DivergenceError) or is_mistake(reason)):
        raise Stopped(f"Run stopped: {reason}. {where}", 1)
    if reason is not None:
        log.error("Run stopped by an unexpected error. %s", where)
        raise reason


def _write_page(files: RunFiles, folder: Path) -> None:
    """Write the page of the run, if there is to be one."""
    if files.page:
        from experiments.report.page import write_run  # imports matplotlib

        write_run(folder)


def _score(result: Result) -> float:
    return float("nan") if result.summary["smse"] is None else float(result.summary["smse"])


# --- several outputs ------------------------------------------------------------------------------


def _run_joint(
    settings: RunSettings,
    own: Mapping[str, RunSettings],
    folder: Path,
    source: Source,
    cache: Cache | None,
) -> float:
    """Identify several outputs from the same samples, by settings of their own; join the models."""
    found: dict[str, Result] = {}
    try:
        for target, single in own.items():
            log.info("Output %s", target)
            source.restart()
            found[target] = result = identify(single, source, cache, {}, is_alone=False)
            place = folder if settings.files.lean else folder / target
            place.mkdir(exist_ok=True)
            _keep(single, place, result)
    except BaseException:
        attributes = settings.files.attributes(source.physics, partial=True)
        with deferred_interrupt():
            _write_job(settings.files, folder, found, attributes)
        raise
    _conclude(settings, source, folder, found)
    return max(map(_score, found.values()))


def _conclude(
    settings: RunSettings, source: Source, folder: Path, found: dict[str, Result]
) -> None:
    """Join the models, validate them in free run, write both and report them."""
    models = [result.identification.model for result in found.values()]
    joint = JointModel(tuple(model for model in models if model is not None))
    files = settings.files
    attributes = files.attributes(source.physics, partial=False)
    if not files.lean:
        joint.save(folder / "model.nc", attributes=attributes)
    try:
        report, notes = _run_freely(settings, source, joint)
    except BaseException:
        with deferred_interrupt():
            _write_job(files, folder, found, files.attributes(source.physics, partial=True))
        raise
    measures = {} if report is None else report.content["free_run"]
    linear = dict[str, list[str]]()
    for target, result in found.items():
        result.summary["free_run"] = measures.get(target)
        known = result.summary["warnings"]
        linear[target] = [note for note in note_linear(result.summary, result) if note not in known]
        known += [*notes, *linear[target]]
    with deferred_interrupt():
        _write_job(files, folder, found, attributes)
        for target, result in found.items() if not files.lean else ():
            results.write_again(folder / target, result, figures=files.figures)
    if report is not None and not files.lean:
        write_every(writers(report, folder, attributes, figures=files.figures))
    _write_page(files, folder)
    if report is not None:
        for target in joint.output_names:
            log.info("Output %s", target)
            log_free_run(report.content, target)
            for note in linear[target]:
                log.warning("Note: %s", note)
    for note in notes:
        log.warning("Note: %s", note)
    written = folder / (job_file.FILE if files.lean else "model.nc")
    log.info("Joint model of %s: %s", ", ".join(found), written)


def _write_job(
    files: RunFiles, folder: Path, found: dict[str, Result], attributes: dict[str, Any]
) -> None:
    """Write what was found to the file of the job, if there is to be one."""
    if found and files.job:
        contents = {target: result.content for target, result in found.items()}
        job_file.write(contents, folder / job_file.FILE, attributes)
