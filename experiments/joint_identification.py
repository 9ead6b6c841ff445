"""Identification of one output, or of several: a model for each over the same regressors, kept in one file."""

import logging
from pathlib import Path

from omegaconf import DictConfig, ListConfig, OmegaConf

from experiments import identification
from experiments.source import Source
from experiments.validation.identified import tell_free_run, trial_of
from experiments.validation.report import write
from sysid.joint import JointModel
from sysid.model import Model
from sysid.narx import Narx

log = logging.getLogger(__name__)
ALL = "all"  # every output of the source


def run(config: DictConfig, folder: Path) -> float:
    """Identify the outputs that ``narx.target`` names; returns the (largest) SMSE of the validation part.

    With a list, or ``all``, every output is identified from the same stream into a folder of its name; the joint
    model, and its validation in free run if there is a test record, lie in `folder`.

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
    source = identification.source_of(config)
    targets = list(source.outputs) if named == ALL else [str(name) for name in named]
    _check(config, source, targets)
    if len(targets) == 1:
        return identification.run(_of(config, targets[0], validate=True), folder)
    scores = []
    for target in targets:
        log.info("Output %s", target)
        own = folder / target
        own.mkdir()
        try:
            scores.append(identification.run(_of(config, target, validate=False), own))
        finally:
            if not any(own.iterdir()):  # refused before anything was computed
                own.rmdir()
    joint = JointModel(tuple(Model.load(folder / target / "model.nc") for target in targets))
    attributes = {"configuration": OmegaConf.to_yaml(config, resolve=True), "seed": int(config.seed)}
    joint.save(folder / "model.nc", attributes=attributes)
    trial = trial_of(config, source, joint)
    if trial.report is not None:
        write(trial.report, folder, attributes, figures=config.figures)
        for target, found in trial.report.content["free_run"].items():
            log.info("Output %s", target)
            tell_free_run(found)
    for note in trial.notes:
        log.warning("Note: %s", note)
    log.info("Joint model of %s: %s", ", ".join(targets), folder / "model.nc")
    return max(scores)


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
