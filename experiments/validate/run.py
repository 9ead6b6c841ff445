"""One validation from end to end: read the model, find the records, predict, judge, store, draw, tell."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig, ListConfig, OmegaConf

from experiments.cli.arguments import without_effect
from experiments.cli.build import build, model_of, trusted_names
from experiments.cli.ends import deferred_interrupt
from experiments.cli.options import flag, whole
from experiments.cli.progress import doing
from experiments.files.outputs import has_page, is_multirun, write_every
from experiments.files.stated import state_alike
from experiments.plant.physics import read_physics
from experiments.validate.assessment import FREE_RUN, Material, assess, check_signals, plan_cases, read_material
from experiments.validate.loop import compare_loops
from experiments.validate.report import make_report, tell, writers
from sysid import JointModel
from sysid.data.source import ROLES
from sysid.errors import UserError
from sysid.store import header

log = logging.getLogger(__name__)


def run(config: DictConfig, folder: Path) -> float:
    """Validate the configured model and write everything to the folder; returns the free-run RMSE of the first output.

    Raises
    ------
    ValueError, TypeError, OSError, ArithmeticError
        No model, a file that is none, records that do not fit it, a simulation that diverges. Nothing is written then.
    """
    check_options(config)
    propagation = build(config, "propagation")
    path = model_of(config)
    joint = JointModel.load(path, trusted=trusted_names(config))
    with doing("reading, or simulating, the records"):
        material = read_material(config)
        material, stated = add_physics(material, str(path), trusted_names(config)), header(path)
    if not is_multirun():
        counted = f"{material.n_samples} samples of {material.source.name}"
        log.info("Validate %s on %s, up to the free run; takes seconds to a minute", path, counted)
    check_signals(joint, material, config.left_out)
    cases = plan_cases(config.horizons, config.windows, material.default_window(joint.models[0].narx))
    material = replace(material, records=material.records_after(cases[0].window))
    assessment = assess(joint, material, cases, propagation, seed=config.seed)
    if (controller := material.controller) is not None and material.physics is None:
        settings = {"window": cases[0].window, "seed": config.seed}
        with doing("closing the loop around the model"):
            loop = compare_loops(joint, material.records[0], controller, propagation, **settings)
        assessment = replace(assessment, loop=loop)
    idle = without_effect(material.unused)
    notes = [*material.source.notes]
    notes += [f"without effect on {material.source.name}: {' '.join(idle)}"] if idle else []
    if material.physics is not None and material.controller is not None:
        notes.append("no closed loop with the model: its physics follows measured inputs")
    if material.plant is not None and str(stated.get("seed")) == str(config.seed) and "configuration" in stated:
        system = OmegaConf.to_yaml({"system": OmegaConf.to_container(config.system, resolve=True)})
        if state_alike(system, stated["configuration"], "system"):
            same = f"the simulation has the seed {config.seed} of the identification"
            notes.append(f"{same}: the model may have learned from these very samples; choose another seed")
    with doing("testing the residuals"):
        report = make_report(assessment, notes)
    attributes = {"configuration": OmegaConf.to_yaml(config, resolve=True), "seed": config.seed, "model": config.model}
    with deferred_interrupt():
        with doing("writing files, figures and the page"):
            write_every(writers(report, folder, attributes, figures=config.figures))
            if has_page(config):
                from experiments.report.page import write_run  # imports matplotlib

                write_run(folder)
        tell(report, folder)
    return assessment.scores[assessment.main[FREE_RUN]][assessment.outputs[0]].rmse


def add_physics(material: Material, model: str | Path, trusted: Sequence[str]) -> Material:
    """Add the physics that the file of a model states to what the model is validated on.

    Raises
    ------
    ValueError
        Signals that the physics does not fit.
    """
    if "physics" not in (stated := header(model)):
        return material
    physics = read_physics(str(stated["physics"]), list(trusted))
    physics.physics.check(material.source.inputs, material.source.outputs, material.source.name)
    return replace(material, physics=physics)


def check_options(config: DictConfig) -> None:
    """Check what is not an object of its own, before anything is read.

    Raises
    ------
    ValueError
        With the name of the key.
    """
    plan_cases(config.horizons, config.windows, 1)
    if config.part is not None and config.part not in ROLES:
        raise UserError(f"part must be one of {', '.join(ROLES)}, or null, got {config.part!r}")
    if not isinstance(config.left_out, list | ListConfig) or not all(isinstance(n, str) for n in config.left_out):
        raise UserError(f"left_out must be a list of names of signals, such as [u2], got {config.left_out!r}")
    whole("seed", config.seed, 0)
    flag("figures", config.figures)
    has_page(config)
