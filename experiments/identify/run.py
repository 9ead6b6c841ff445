"""Identification from end to end: simulate or read, identify online, validate, store, report."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import xarray as xr
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from experiments.cli.arguments import without_effect
from experiments.cli.build import build, build_one
from experiments.cli.config import to_yaml
from experiments.cli.ends import Stopped, deferred_interrupt, is_mistake
from experiments.cli.invocation import given_overrides, is_multirun
from experiments.cli.options import flag, whole
from experiments.cli.process import EXIT_CODE_INTERRUPTED
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
from experiments.identify.linear_orders import compare_orders
from experiments.identify.result import Result
from experiments.identify.settings import LagOptions, RunSettings
from experiments.identify.summary import log_result, summarise
from experiments.plant.lags import AutomaticNarx
from experiments.plant.limit import LIMIT_NOT_WANTED
from experiments.plant.live import LiveSource, live_source
from experiments.plant.physics import RESIDUAL, ResidualNarx, thin, variance_at
from experiments.plant.recorded import recorded_source
from experiments.plant.source import Source, trajectory_of
from experiments.validate.report import (
    Report,
    free_run_without_gross_errors,
    log_free_run,
    validate_on_test,
    writers,
)
from simulators import DivergenceError
from sysid import (
    DeadTimeChange,
    DeadTimeFollower,
    Identification,
    JointModel,
    LagWindow,
    MaximumLikelihood,
    Model,
    Narx,
    OnMissing,
    Orders,
    Origin,
    Prediction,
    Settings,
    Start,
    describe,
    estimate_dead_times,
    with_dead_times,
)
from sysid.errors import UserError, UserTypeError
from sysid.foreign import check_folder
from sysid.gp.dictionary import NOT_PREDICTED
from sysid.identification import AUTOMATIC_BUDGET
from sysid.progress import on_progress
from sysid.stream import Block, StreamLearner
from sysid.time_limit import TimeLimit

log = logging.getLogger(__name__)
#: groups of the configuration that are built into fields of `sysid.Settings`
LEARNER_GROUPS = (
    "training",
    "mean",
    "insertion",
    "acceptance",
    "reduction",
    "selection",
    "linear_part",
)
#: parts of the learner that the file of a model holds beside the kernel
KEPT_PARTS = ("mean", "insertion", "acceptance", "reduction")
#: values of the configuration that are fields of `sysid.Settings`
LEARNER_VALUES = ("learning", "scale", "forgetting", "gate", "budget", "seed")

#: text of the progress line during a phase, by the name of the phase in the timings
PHASE_DESCRIPTIONS = {
    "setup": "preparing",
    "record": "training",
    "loop": "identifying",
    "bands": "calibrating the bands on held-out samples",
    "validation": "predicting",
    "free_run": "validating in free run",
    "limit": "computing the limit of prediction",
    "linear": "comparing with linear models",
}


def run(config: DictConfig, folder: Path) -> float:
    """Identify the outputs that ``narx.target`` names; return the SMSE of the validation.

    If ``narx.target`` is a list or ``all``, every output is identified from the same samples, into
    a folder of its name. The joint model and its validation in free run (if there is a test record)
    are written to `folder`, and the largest SMSE is returned. Lean outputs are a single file.

    Raises
    ------
    ValueError
        If the configuration holds an invalid value, before anything is identified.
    Stopped
        After Ctrl-C or a simulation that diverged. What was computed so far is stored and marked
        partial.
    """
    settings = read_settings(config)
    cache = cache_of(config.get("cache"), in_sweep=settings.in_sweep)
    if not settings.in_sweep:  # a sweep compiles each function when it is first called
        compile_together()
    seconds: dict[str, float] = {}
    with timed(seconds, "setup"):
        source = source_of(config, cache)
    targets = settings.lags.targets(source.outputs)
    if targets is not None:
        _check_targets(settings.lags, source, targets)
        if len(targets) > 1:
            settings_by_target = {target: _for_output(settings, target) for target in targets}
            return _run_joint(settings, settings_by_target, folder, source, cache)
        settings = _for_output(settings, targets[0])
    result = identify(settings, source, cache, seconds)
    _keep(settings, folder, result)
    return _smse(result)


# --- settings -------------------------------------------------------------------------------------


def read_settings(config: DictConfig) -> RunSettings:
    """Return the checked settings of a run; `source_of` reads the rest of the configuration.

    Raises
    ------
    ValueError
        If an option has an invalid value. The message names the option.
    """
    seed = whole("seed", config.seed, 0)
    figures = flag("figures", config.figures)
    validates = flag("validate", config.validate)
    finds_limit = flag("limit", config.get("limit", True))
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
        finds_limit=finds_limit,
        validates=validates,
        propagation=partial(build_one, resolved["propagation"], "propagation"),
        files=RunFiles(
            lean=lean,
            job=lean or in_sweep,
            figures=figures,
            page=page,
            plan=not lean,
            configuration=OmegaConf.to_yaml(config, resolve=True),
            seed=seed,
        ),
        in_sweep=in_sweep,
        overrides=overrides,
        resolved=resolved,
    )


def _read_learner(config: DictConfig, lags: LagOptions, overrides: tuple[str, ...]) -> Settings:
    """Return the settings of the learner; refuse options that the training replaces."""
    parts = {name: build(config, name) for name in LEARNER_GROUPS}
    values = {name: config[name] for name in LEARNER_VALUES}
    _check_description(parts)
    replaced = parts["training"].replaces
    if lags.predicts_residual and "mean" in replaced:
        raise UserError(
            f"narx.predict={RESIDUAL}: the simulated output is the mean function, but this "
            "training brings a mean function of its own; take another training, or lags and "
            "narx.predict=change"
        )
    refused = without_effect(replaced & {"kernel", "mean"}, overrides)
    if refused:
        raise UserError(
            f"{' and '.join(refused)}: this training chooses kernel and mean itself, its mean is "
            "linear; leave it out, change training.routes.0.kernels and "
            "training.routes.1.kernel, or take another training"
        )
    return Settings(**parts, **values)


def _check_description(parts: Mapping[str, Any]) -> None:
    """Raise UserError if the file of the model could not hold a part of the learner.

    Such a part is a class of the user's own: the file would be refused after all of the work.
    """
    kept = {name: parts[name] for name in KEPT_PARTS}
    kept["kernel"] = getattr(parts["training"], "kernel", None)
    for name, part in kept.items():
        if part is None:
            continue
        try:
            describe(part)
        except (UserError, UserTypeError) as error:
            raise UserError(f"{name}: {error}") from None


def _for_output(settings: RunSettings, target: str) -> RunSettings:
    """Return the settings for one output, as if ``narx.target`` named it alone.

    A file may have given the output its name, which is not resolved.
    """
    narx = {**settings.resolved["narx"], "target": target}
    configuration = to_yaml({**settings.resolved, "narx": narx})
    files = replace(settings.files, configuration=configuration)
    return replace(settings, lags=settings.lags.of(target), files=files)


def source_of(config: DictConfig, cache: Cache | None = None) -> Source:
    """Return the source of the samples: the configured records, or else the simulated plant.

    A simulation that is in the cache is not run again.
    """
    if "_target_" in config.data:
        return recorded_source(config)
    if cache is None:
        return live_source(config)
    resolved = cast(Mapping[str, Any], OmegaConf.to_container(config, resolve=True))
    return live_source(config, simulate_once(resolved, cache))


def narx_of(lags: LagOptions, source: Source, learner: Settings) -> Narx:
    """Return the lags of the regressors, built from their description.

    Automatic lags are chosen here, from the source and for this learner.
    """
    description = lags.description
    if lags.predicts_residual:
        if source.physics is None:
            raise UserError(
                f"narx.predict={RESIDUAL} needs the physics whose residual it is: physics=<system>"
            )
        description = {**description, "predict": "value"}
    if source.has_holes:  # of which the reader of the records was told to make nothing
        description = {**description, "on_missing": OnMissing.skip.value}
    narx = build_one(description, "narx")
    if isinstance(narx, AutomaticNarx):
        with doing("choosing the lags") as add, on_progress(add):
            narx, report = source.lags(narx, learner)
        log.info("Lags chosen: %s", report)
    if isinstance(narx, Orders) and narx.has_automatic_delays:
        return _with_dead_times(narx, source)
    if isinstance(narx, Orders | ResidualNarx):
        narx = narx.narx(source.outputs, source.inputs)
    assert isinstance(narx, Narx)
    return narx


def _with_dead_times(orders: Orders, source: Source) -> Narx:
    """Return the lags of ``narx.nk=auto``: those of records begin with the dead times.

    A stream begins with lags from 1 on, and its dead times are looked for while it is learned.
    """
    inputs = orders.delayed_inputs(source.inputs)
    narx = orders.undelayed(source.inputs).narx(source.outputs, source.inputs)
    if source.recordings() is None:
        return narx
    with doing("estimating dead times"):
        source.dead_times = estimate_dead_times(source.learned(), narx.target, narx.input_names)
        moved = with_dead_times(source.learned(), narx, inputs=inputs, dead_times=source.dead_times)
    for sentence in source.dead_times._replace(warnings=[]).describe():
        log.info("Dead times: %s", sentence)
    return moved


def _check_targets(lags: LagOptions, source: Source, targets: list[str]) -> None:
    """Raise UserError unless the models of these outputs can be simulated together.

    They can if the targets are distinct, have the same lags, and are all outputs among the
    regressors.
    """
    if not targets or len(set(targets)) < len(targets):
        raise UserError(f"narx.target: expected each output once, or all, got {targets}")
    if len(targets) > 1 and lags.begin_with_dead_times:
        raise UserError(
            f"narx.target={targets}: models that are simulated together need the same lags, but "
            "narx.nk=auto finds the dead times of each output by itself; give numbers narx.nk, "
            "or identify one output at a time"
        )
    narxes = [narx_of(lags.of(target), source, Settings()) for target in targets]
    for narx in narxes:
        if narx.lags != narxes[0].lags or sorted(narx.output_names) != sorted(targets):
            raise UserError(
                f"narx.target={targets}: models that are simulated together need the same lags, "
                f"and a model for every output among the lags, got {dict(narx.lags)} for "
                f"{narx.target!r}; take narx=orders or narx=lags"
            )


# --- one output -----------------------------------------------------------------------------------


@dataclass
class LearnedOutput:
    """An output that is learned from the samples of a source, and what became of them."""

    identification: Identification
    window: LagWindow
    dead_times: DeadTimeFollower | None = None  # looks for dead times; None: nothing does
    records: list[np.ndarray] = field(default_factory=list)  # one per block, a row per sample
    n_changes_logged: int = 0  # changes of the dead times so far
    first_narx: Narx = field(init=False)  # lags before the first sample

    def __post_init__(self) -> None:
        self.first_narx = self.identification.narx

    def take(self, block: Block) -> None:
        """Keep the record of a block; its correction replaces the last row before it."""
        if block.correction is not None:
            self.records[-1][-1] = block.correction
        self.records.append(block.record)

    def finish(self) -> None:
        """Learn a sample that is still held back; there are no more samples."""
        self.identification.finish()
        if self.identification.correction is not None:
            self.records[-1][-1] = self.identification.correction

    def new_changes(self) -> list[DeadTimeChange]:
        """Return the changes of the dead times since the last call."""
        if self.dead_times is None:
            return []
        changes = self.dead_times.changes[self.n_changes_logged :]
        self.n_changes_logged += len(changes)
        return changes


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Add the wall time of the block [s] to `seconds` under the name of its phase."""
    start = time.perf_counter()
    try:
        with doing(PHASE_DESCRIPTIONS[name]) as add, on_progress(add):
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
    """Identify one output from a source at its start, and validate the model.

    Wall times are added to `seconds`. If the model is one of several (`is_alone` is false), all of
    them are validated in free run together later. The result holds the exception that ended the run
    early, if partial results exist.
    """
    with timed(seconds, "setup"):
        if not settings.in_sweep:
            _log_plan(source, settings.learner)
        learned = _begin(settings, source, cache, seconds)
        source.tell(learned.identification)
    if settings.finds_limit and not settings.in_sweep:
        source.begin_limit()
    with timed(seconds, "loop"):
        stopped = stream(source, [learned], shows_progress=not settings.in_sweep)
    return _conclude_output(settings, source, cache, seconds, learned, stopped, is_alone=is_alone)


def _begin(
    settings: RunSettings, source: Source, cache: Cache | None, seconds: dict[str, float]
) -> LearnedOutput:
    """Return an output before its first sample is learned."""
    identification = prepare(settings, source, cache, seconds)
    return LearnedOutput(
        identification,
        LagWindow(identification.narx),
        dead_times=_dead_time_follower(settings, source),
    )


def _conclude_output(
    settings: RunSettings,
    source: Source,
    cache: Cache | None,
    seconds: dict[str, float],
    learned: LearnedOutput,
    stopped: BaseException | None,
    *,
    is_alone: bool,
) -> Result:
    """Return the result of an output whose samples have been learned; see `identify`."""
    identification = learned.identification
    dead_times = learned.dead_times
    if dead_times is not None:
        source.dead_times = dead_times.dead_times
    result: Result | None = None
    try:
        # An interrupt in this block is handled after it, when there is a result to keep.
        with deferred_interrupt():
            with timed(seconds, "bands"):
                if stopped is None:
                    source.calibrate(identification)
            with timed(seconds, "validation"):
                record = _of_final_rows(learned.records, learned.first_narx, identification.narx)
                result = validate_one_step(source, identification, learned.window, record, stopped)
                result.dead_time_changes = [] if dead_times is None else dead_times.changes
        if stopped is None and is_alone:
            with timed(seconds, "free_run"):
                result.report, result.notes = _validate_free_run(
                    settings, source, identification.model
                )
        with timed(seconds, "limit"):
            result.limit = LIMIT_NOT_WANTED
            if settings.finds_limit:
                result.limit = source.limit(identification.narx)
        if stopped is None:
            with timed(seconds, "linear"):
                result.linear = compare_linear(result, simulates=settings.validates)
                result.linear_orders = compare_orders(result, cache)
    except (KeyboardInterrupt, Exception) as reason:
        if result is None:
            raise
        result.interrupted = reason  # the identification is complete, and is kept
    result.summary = summarise(settings, result, seconds | counts_of(cache))
    return result


def _dead_time_follower(settings: RunSettings, source: Source) -> DeadTimeFollower | None:
    """Return what looks for dead times while a stream is learned; None: nothing does."""
    if not settings.lags.begin_with_dead_times or not isinstance(source, LiveSource):
        return None
    orders = build_one(settings.lags.description, "narx")
    assert isinstance(orders, Orders)
    sampling_time = float(source.plant.system.dt)
    return DeadTimeFollower(orders.delayed_inputs(source.inputs), sampling_time=sampling_time)


def _of_final_rows(records: Sequence[np.ndarray], first: Narx, final: Narx) -> np.ndarray:
    """Return the record of a stream, one row for each row of the final lags.

    The first samples, which only the final lags or only the first ones reach, are added without a
    prediction, or left out.
    """
    record = np.concatenate([NOT_PREDICTED[:0], *records])
    n_added = first.max_lag - final.max_lag
    if n_added > 0:
        return np.concatenate([np.repeat(NOT_PREDICTED, n_added), record])
    return record[-n_added:]


def prepare(
    settings: RunSettings,
    source: Source,
    cache: Cache | None = None,
    seconds: dict[str, float] | None = None,
) -> Identification:
    """Return the identification before its first sample.

    It is trained on the records of the source, if the source has any. A training in the cache is
    not repeated.
    """
    learner = settings.learner
    time_limit = TimeLimit.of(learner.training)
    with time_limit.running():
        narx, learner, start = _search(settings, source, cache, {} if seconds is None else seconds)
    identification = Identification(narx, learner, start=start, time_limit=time_limit)
    if source.screened is not None:
        found = source.screened.n_found
        identification.n_gross_errors = {
            name: found[name] for name in narx.signals if found.get(name)
        }
    return identification


def _search(
    settings: RunSettings, source: Source, cache: Cache | None, seconds: dict[str, float]
) -> tuple[Narx, Settings, Start]:
    """Return the lags, the settings and the start of an identification, as they are found."""
    learner = settings.learner
    narx = narx_of(settings.lags, source, learner)
    if source.lag_choice is not None:
        learner = source.lag_choice.settings
    source.check(narx, _n_needed(narx, learner))
    changes: dict[str, Any] = {}
    if settings.lags.predicts_residual and source.physics is not None:
        changes["mean"] = source.physics.physics.mean(narx)
        recordings = source.recordings()
        if recordings is not None:
            changes["training"] = thin(learner.training, recordings, narx.target)
    learner = replace(learner, **changes)
    narx = _with_linear_lags(narx, source, learner)
    if source.screened is not None:
        narx = source.screened.for_rows(narx)
    if source.lag_choice is None:
        learner = source.with_budget(narx, learner)
        if source.budget_choice is not None:
            log.info("Budget chosen: %s", source.budget_choice)
    if source.recordings() is not None:
        learner = learner.in_time()
    learner = learner.for_linear_lags(narx)
    has_limit = getattr(learner.training, "seconds", None) is not None
    if cache is not None and not has_limit:  # another run may find another result in the same time
        training = CachedTraining(learner.training, cache, code_digest(settings.resolved))
        learner = replace(learner, training=training)
    with timed(seconds, "record"):
        source.estimate_missing(narx, learner)
        start = source.know(narx, learner)
    return narx, learner, start


def _n_needed(narx: Narx, learner: Settings) -> int:
    """Return how many samples the lags and the training need."""
    return narx.max_lag + (learner.training.n_initial or 0) + 1


def _with_linear_lags(narx: Narx, source: Source, learner: Settings) -> Narx:
    """Return the lags with those of the linear part, if the source has enough samples for them.

    Raises
    ------
    ValueError
        The source has too few samples, and the linear part or its number of lags is given; or a
        linear part is demanded where it is impossible.
    """
    extended = source.linear_lags(narx, learner)
    try:
        source.check(extended, _n_needed(extended, learner))
    except UserError:
        if learner.demands_linear_part or learner.gives_linear_lags:
            raise
        return narx
    return extended


def _log_plan(source: Source, learner: Settings) -> None:
    """Log how many samples are identified, and about how long it takes."""
    n_validation = source.n_samples - source.n_identified
    if "kernel" in learner.training.replaces:
        how_long = "some minutes, most of them to train for the free run"
    else:
        how_long = "seconds to a minute"
    chooses_budget = (
        learner.budget == AUTOMATIC_BUDGET
        and source.recordings() is not None
        and isinstance(learner.training, MaximumLikelihood)
    )
    log.info(
        "Identify %s with %d points%s: %d samples are learned, %d validate the model; this takes "
        "%s",
        source.title,
        learner.max_points,
        " or more" if chooses_budget else "",
        source.n_identified,
        n_validation,
        how_long,
    )


def stream(
    source: Source, learned: Sequence[LearnedOutput], *, shows_progress: bool = True
) -> BaseException | None:
    """Learn all segments, then read the samples of the source that are not learned.

    All outputs learn a block of samples before the next one is delivered. Changes of the dead
    times are logged at once.

    Returns
    -------
    BaseException or None
        The exception that ended the run early if partial results exist.
    """
    progress_bar = tqdm(
        total=source.n_samples,
        unit=" samples",
        disable=None if shows_progress else True,  # None: shown on a terminal only
        desc="identifying",
        mininterval=0.2,
    )

    def counted(samples: Any) -> Iterator[Any]:
        for sample in samples:
            is_single = sample.output.ndim == 1
            progress_bar.update(1 if is_single else len(sample.output))
            yield sample

    def learn(samples: Any) -> None:
        learners = [
            StreamLearner(
                one.identification,
                one.window,
                outputs=source.outputs,
                inputs=source.inputs,
                dead_times=one.dead_times,
            )
            for one in learned
        ]
        for measurement in counted(samples):
            for one, learner in zip(learned, learners, strict=True):
                for block in learner.learn(measurement):
                    one.take(block)
                    n_points = block.record["n_points"][-1]
                    progress_bar.set_postfix_str(f"{n_points} points", refresh=False)
                    for change in one.new_changes():
                        with progress_bar.external_write_mode():
                            log.info("Dead times: %s", change.describe())

    try:
        with progress_bar:
            for samples in source.segments():
                for one in learned:
                    one.window.reset()
                learn(samples)
            for one in learned:
                one.finish()
            for _ in counted(source.finish()):
                pass  # the source keeps these samples; nothing is learned from them
    except (KeyboardInterrupt, Exception) as reason:
        if not source.n_seen:
            raise
        return reason
    return None


def validate_one_step(
    source: Source,
    identification: Identification,
    window: LagWindow,
    record: np.ndarray,
    stopped: BaseException | None,
) -> Result:
    """Predict the validation samples one step ahead, and return the result of the identification.

    Two models predict them: the final model, and the initial one before it learned from the stream.
    The final model also gets its origin, which describes the data that it was identified from.
    """
    narx = identification.narx
    signals = source.records() if source.n_seen else ()
    rows: xr.Dataset | None = None
    validation: xr.Dataset | None = None
    predicted = Prediction(np.zeros(0), np.zeros(0))
    predicted_initial = predicted
    if source.n_seen > narx.max_lag:
        rows = narx.dataset(signals)
        validated = np.zeros(0, dtype=int)
        if identification.model is not None:
            record_numbers = rows["record"].values
            times = rows["time"].values
            is_learned = ~source.is_validation(record_numbers, times)
            origin = Origin.of(rows.isel(sample=np.flatnonzero(is_learned)))
            identification.model = replace(identification.model, origin=origin)
            validated = np.flatnonzero(source.is_scored(record_numbers, times))
        validation = rows.isel(sample=validated)
        model = identification.model
        initial_model = identification.initial
        if len(validated) and model is not None and initial_model is not None:
            predicted, predicted_initial = _predict(signals, model, initial_model, validation)
    return Result(
        source=source,
        identification=identification,
        window=window,
        signals=signals,
        record=record,
        rows=rows,
        validation=validation,
        predicted=predicted,
        predicted_initial=predicted_initial,
        stopped=stopped,
    )


def _predict(
    signals: Sequence[xr.Dataset], model: Model, initial_model: Model, validation: xr.Dataset
) -> tuple[Prediction, Prediction]:
    """Return the predictions of the final and of the initial model, clipped to the output limits.

    The variance of the final model contains that of the parameters of the physics, if any.
    """
    predicted = results.predict_within_limits(model, model, validation)
    parameter_variance = variance_at(validation, signals, model.narx.target)
    variance = model.calibrated(predicted.variance + parameter_variance)
    initial = results.predict_within_limits(initial_model, model, validation)
    return predicted._replace(variance=variance), initial


def _validate_free_run(
    settings: RunSettings, source: Source, model: Model | JointModel | None
) -> tuple[Report | None, list[str]]:
    """Validate a model in free run on the test records, if the settings ask for it.

    Returns the report, if there is one, and notes for the user.
    """
    if not settings.validates:
        return None, []
    return validate_on_test(
        source,
        model,
        settings.propagation,
        settings.learner.seed,
        is_trained_for_free_run="kernel" in settings.learner.training.replaces,
        screens_records=settings.learner.gate is not None,
        draws_figures=settings.files.figures,
    )


def _keep(settings: RunSettings, folder: Path, result: Result) -> None:
    """Write and report a result, then raise the error that ended the run early, if any.

    Raises
    ------
    Stopped
        If Ctrl-C, a simulation that diverged or a mistake of the user ended the run early.
    Exception
        If a bug ended the run early: the error itself, with its traceback.
    """
    with deferred_interrupt():
        with doing("writing files, figures and the page"):
            results.write(settings.files, folder, result)
            _write_page(settings.files, folder)
        log_result(result, folder, advises=not settings.in_sweep)
    reason = result.stopped or result.interrupted
    if reason is None:
        return
    where = f"Partial results are in {folder}"
    if isinstance(reason, KeyboardInterrupt):
        raise Stopped(f"Run interrupted. {where}", EXIT_CODE_INTERRUPTED)
    if isinstance(reason, DivergenceError) or is_mistake(reason):
        raise Stopped(f"Run stopped: {reason}. {where}", 1)
    log.error("Run stopped by an unexpected error. %s", where)
    raise reason


def _write_page(files: RunFiles, folder: Path) -> None:
    """Write the page of the run, if there is to be one."""
    if files.page:
        from experiments.report.page import write_run  # imports matplotlib

        write_run(folder)


def _smse(result: Result) -> float:
    """Return the SMSE of the validation, nan if there is none."""
    smse = result.summary["smse"]
    return float("nan") if smse is None else float(smse)


# --- several outputs ------------------------------------------------------------------------------


def _run_joint(
    settings: RunSettings,
    settings_by_target: Mapping[str, RunSettings],
    folder: Path,
    source: Source,
    cache: Cache | None,
) -> float:
    """Identify several outputs from the same samples, join the models; return the largest SMSE."""
    for target in settings_by_target:
        check_folder(folder, target)  # a link in place of the output's folder would lead elsewhere
    settings_by_target = {
        target: _without_joint_files(complete) for target, complete in settings_by_target.items()
    }
    found: dict[str, Result] = {}
    try:
        if source.decisions is None:
            results_by_target = _identify_in_turn(settings_by_target, source, cache)
        else:
            results_by_target = _identify_together(settings_by_target, source, cache)
        for target, result in results_by_target:
            found[target] = result
            target_folder = folder if settings.files.lean else folder / target
            target_folder.mkdir(exist_ok=True)
            _keep(settings_by_target[target], target_folder, result)
    except BaseException:
        _write_partial_job(settings.files, folder, source, found)
        raise
    _conclude(settings, source, folder, found)
    return max(map(_smse, found.values()))


def _identify_in_turn(
    settings_by_target: Mapping[str, RunSettings], source: Source, cache: Cache | None
) -> Iterator[tuple[str, Result]]:
    """Yield the result of each output; the samples are delivered once more for each."""
    for target, settings in settings_by_target.items():
        log.info("Output %s", target)
        source.restart()
        yield target, identify(settings, source, cache, {}, is_alone=False)


def _identify_together(
    settings_by_target: Mapping[str, RunSettings], source: Source, cache: Cache | None
) -> Iterator[tuple[str, Result]]:
    """Yield the result of each output; all learn each sample before the next one is simulated.

    Their models decide about the inputs together.
    """
    seconds: dict[str, float] = {}
    first = next(iter(settings_by_target.values()))
    with timed(seconds, "setup"):
        if not first.in_sweep:
            _log_plan(source, first.learner)
        learned = {
            target: _begin(settings, source, cache, seconds)
            for target, settings in settings_by_target.items()
        }
        source.tell(*(one.identification for one in learned.values()))
    with timed(seconds, "loop"):
        stopped = stream(source, list(learned.values()), shows_progress=not first.in_sweep)
    for target, settings in settings_by_target.items():
        log.info("Output %s", target)
        result = _conclude_output(
            settings, source, cache, dict(seconds), learned[target], stopped, is_alone=False
        )
        yield target, result


def _without_joint_files(settings: RunSettings) -> RunSettings:
    """Return the settings without the files that are written once for all outputs."""
    return replace(settings, files=replace(settings.files, job=False, page=False, plan=False))


def _conclude(
    settings: RunSettings, source: Source, folder: Path, found: dict[str, Result]
) -> None:
    """Join the models, validate them in free run, write both and report them."""
    models = [result.identification.model for result in found.values()]
    joint = JointModel(tuple(model for model in models if model is not None))
    files = settings.files
    is_unfinished = any(result.is_unfinished for result in found.values())
    attributes = files.attributes(source.physics, partial=False, unfinished=is_unfinished)
    if not files.lean:
        joint.save(folder / "model.nc", attributes=attributes)
    try:
        report, notes = _validate_free_run(settings, source, joint)
    except BaseException:
        _write_partial_job(files, folder, source, found)
        raise
    linear_notes = {
        target: _add_free_run(result, target, report, notes) for target, result in found.items()
    }
    with deferred_interrupt():
        _write_job(files, folder, found, attributes)
        _write_plan(files, folder, source, found, attributes)
        if not files.lean:
            for target, result in found.items():
                results.write_again(folder / target, result, figures=files.figures)
    if report is not None and not files.lean:
        write_every(writers(report, folder, attributes, figures=files.figures))
    _write_page(files, folder)
    if report is not None:
        for target in joint.output_names:
            log.info("Output %s", target)
            log_free_run(report.content, target)
            for note in linear_notes[target]:
                log.warning("Note: %s", note)
    for note in notes:
        log.warning("Note: %s", note)
    written = folder / (job_file.JOB_FILE if files.lean else "model.nc")
    log.info("Joint model of %s: %s", ", ".join(found), written)


def _add_free_run(
    result: Result, target: str, report: Report | None, notes: list[str]
) -> list[str]:
    """Add the measures of the joint free run and the notes on it to the summary of one output.

    Returns the new notes that compare the model with linear ones.
    """
    summary = result.summary
    if report is not None:
        summary["free_run"] = report.content["free_run"].get(target)
        summary["free_run_without_gross_errors"] = free_run_without_gross_errors(
            report.content, target
        )
    warnings = summary["warnings"]
    linear_notes = [note for note in note_linear(summary, result) if note not in warnings]
    warnings += notes
    warnings += linear_notes
    return linear_notes


def _write_partial_job(
    files: RunFiles, folder: Path, source: Source, found: dict[str, Result]
) -> None:
    """Write what was found so far to the file of the job, and the plans, marked as partial."""
    is_unfinished = any(result.is_unfinished for result in found.values())
    attributes = files.attributes(source.physics, partial=True, unfinished=is_unfinished)
    with deferred_interrupt():
        _write_job(files, folder, found, attributes)
        _write_plan(files, folder, source, found, attributes)


def _write_job(
    files: RunFiles, folder: Path, found: dict[str, Result], attributes: dict[str, Any]
) -> None:
    """Write what was found to the file of the job, if there is to be one."""
    if found and files.job:
        contents = {target: result.content for target, result in found.items()}
        job_file.write(contents, folder / job_file.JOB_FILE, attributes)


def _write_plan(
    files: RunFiles,
    folder: Path,
    source: Source,
    found: dict[str, Result],
    attributes: dict[str, Any],
) -> None:
    """Write the decisions about inputs, if there are some; they are the same for all outputs."""
    plan = next((result.plan for result in found.values()), None)
    if plan is not None and files.plan:
        trajectory = trajectory_of(source)
        results.write_plan(folder, plan, trajectory, attributes, figures=files.figures)
