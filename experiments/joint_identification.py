"""Identification of one output, or of several: a model for each over the same regressors, kept in one file."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from experiments import finding, identification, job_file
from experiments.finding import Finding, content_of
from experiments.interrupt import deferred_interrupt
from experiments.job_file import Content, Outputs, attributes_of, is_multirun, outputs_of
from experiments.source import Source
from experiments.sweeps.cache import cache_of
from experiments.validation.identified import Trial, tell_free_run, trial_of
from experiments.validation.report import write
from sysid import JointModel, Model, Narx

log = logging.getLogger(__name__)
ALL = "all"  # every output of the source


def run(config: DictConfig, folder: Path) -> float:
    """Identify the outputs that ``narx.target`` names; returns the (largest) SMSE of the validation part.

    With a list, or ``all``, every output is identified from the same stream into a folder of its name; the joint
    model, and its validation in free run if there is a test record, lie in `folder`. Lean outputs are one file.

    Raises
    ------
    ValueError
        Outputs that cannot be simulated together, before anything is identified.
    Stopped
        As `experiments.identification.run`; then there is no joint model.
    """
    named = config.narx.get("target", "")
    if named != ALL and not isinstance(named, ListConfig):
        return identification.run(config, folder)
    identification.check_values(config)
    source = identification.source_of(config, cache_of(config))
    targets = list(source.outputs) if named == ALL else [str(name) for name in named]
    _check(config, source, targets)
    if len(targets) == 1:
        return identification.run(_of(config, targets[0], validate=True), folder)
    contents: dict[str, Content] = {}
    try:
        score = max([_identified(config, target, folder, contents) for target in targets])
    except BaseException:
        with deferred_interrupt():
            _write_job(config, folder, contents, partial=True)
        raise
    _conclude(config, source, folder, contents)
    return score


def _identified(config: DictConfig, target: str, folder: Path, contents: dict[str, Content]) -> float:
    """Identify one output; with full outputs its files lie in a folder of its name."""
    log.info("Output %s", target)
    single = _of(config, target, validate=False)
    if _is_lean(config):
        return identification.identified(single, folder, lambda found: _collect(target, found, contents))
    own = folder / target
    own.mkdir()

    def keep(found: Finding) -> None:
        _collect(target, found, contents)
        finding.write(single, own, found, contents[target], in_job=False)

    try:
        return identification.identified(single, own, keep)
    finally:
        if not any(own.iterdir()):  # refused before anything was computed
            own.rmdir()


def _collect(target: str, found: Finding, contents: dict[str, Content]) -> None:
    contents[target] = content_of(found)


def _conclude(config: DictConfig, source: Source, folder: Path, contents: Mapping[str, Content]) -> None:
    """Join the models, validate them in free run, write both and tell."""
    datasets = [content.model for content in contents.values() if content.model is not None]
    joint = JointModel(tuple(Model.from_dataset(dataset) for dataset in datasets))
    attributes = {"configuration": OmegaConf.to_yaml(config, resolve=True), "seed": int(config.seed)}
    lean = _is_lean(config)
    if not lean:
        joint.save(folder / "model.nc", attributes=attributes)
    trial = trial_of(config, source, joint)
    with deferred_interrupt():
        _write_job(config, folder, _with_trial(contents, trial), partial=False)
    if trial.report is not None:
        if not lean:
            write(trial.report, folder, attributes, figures=config.figures)
        for target, measures in trial.report.content["free_run"].items():
            log.info("Output %s", target)
            tell_free_run(measures)
    for note in trial.notes:
        log.warning("Note: %s", note)
    log.info("Joint model of %s: %s", ", ".join(contents), folder / (job_file.FILE if lean else "model.nc"))


def _with_trial(contents: Mapping[str, Content], trial: Trial) -> dict[str, Content]:
    """The contents, whose summaries say what the free run of the joint model found about their output."""
    found: dict[str, Any] = {} if trial.report is None else trial.report.content["free_run"]
    return {
        target: content._replace(
            summary=content.summary
            | {"free_run": found.get(target), "warnings": [*content.summary["warnings"], *trial.notes]}
        )
        for target, content in contents.items()
    }


def _write_job(config: DictConfig, folder: Path, contents: Mapping[str, Content], *, partial: bool) -> None:
    """Write what was found to the file of the job, if there is to be one."""
    if contents and (_is_lean(config) or is_multirun()):
        job_file.write(contents, folder / job_file.FILE, attributes_of(config, partial=partial))


def _is_lean(config: DictConfig) -> bool:
    return outputs_of(config, multirun=is_multirun()) is Outputs.lean


def _of(config: DictConfig, target: str, *, validate: bool) -> DictConfig:
    """The configuration for one output."""
    single = config.copy()
    OmegaConf.set_readonly(single, False)
    OmegaConf.update(single, "narx.target", target)
    OmegaConf.update(single, "validate", validate and config.validate)
    return single


def _check(config: DictConfig, source: Source, targets: list[str]) -> None:
    """Refuse targets that are not exactly the outputs among the regressors, or whose lags differ."""
    if not targets or len(set(targets)) < len(targets):
        raise ValueError(f"narx.target: expected each output once, or all, got {targets}")
    lags: dict[str, Narx] = {}
    for target in targets:
        lags[target] = identification.narx_of(_of(config, target, validate=False), source)
    first = lags[targets[0]]
    for target, narx in lags.items():
        if narx.lags != first.lags or sorted(narx.output_names) != sorted(targets):
            raise ValueError(
                f"narx.target={targets}: to be simulated together the models need the same lags and a model for every "
                f"output among them, got {dict(narx.lags)} for {target!r}; take narx=orders or narx=lags with lags of "
                "all these outputs"
            )
