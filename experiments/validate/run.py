"""One validation from end to end: read the model, find the records, predict, judge, store, tell."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from experiments.cli.arguments import without_effect
from experiments.cli.build import build, model_of, trusted_names
from experiments.cli.ends import deferred_interrupt
from experiments.cli.invocation import given_overrides, is_multirun
from experiments.cli.options import flag, whole
from experiments.cli.progress import doing
from experiments.files.outputs import has_page, write_every
from experiments.files.stated import state_alike
from experiments.plant.records_or_plant import records_or_plant
from experiments.validate.assessment import (
    FREE_RUN,
    Assessment,
    assess,
    plan_cases,
    read_whole,
)
from experiments.validate.loop import compare_loops
from experiments.validate.material import (
    Material,
    add_physics,
    check_signals,
    find_material,
)
from experiments.validate.report import make_report, tell, writers
from sysid import JointModel, Propagation
from sysid.data.source import RECORD_ROLES
from sysid.errors import UserError
from sysid.store import header

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ValidationSettings:
    """One validation as it is asked for."""

    model: Path  # file of it
    trusted: tuple[str, ...]  # modules and classes of the user's own that this file may name
    part: str | None  # of the records; None: test, or validation where there is no test
    duration: float | str  # of a simulation, in seconds or with its unit
    propagation: Propagation  # of the uncertainty
    horizons: tuple[int, ...]  # samples ahead, beside one step and free run
    windows: tuple[int, ...] | None  # measured samples given to the model; None: as the records say
    left_out: tuple[str, ...]  # signals of the records that the model does without
    seed: int  # of everything random
    has_figures: bool
    has_page: bool  # whether report.html is written
    in_sweep: bool  # whether it is a job of a sweep: nobody watches
    overrides: tuple[str, ...]  # given on the command line, to name those without effect
    system: str  # settings of the plant as YAML, to compare with those of the identification
    attributes: dict[str, Any]  # of every NetCDF file


def run(config: DictConfig, folder: Path) -> float:
    """Validate the configured model and write everything to the folder.

    Returns
    -------
    float
        RMSE of the free run of the first output.

    Raises
    ------
    ValueError, TypeError, OSError, ArithmeticError
        No model, a file that is none, records that do not fit it, a simulation that diverges.
        Nothing is written then.
    """
    settings = read_settings(config)
    joint = JointModel.load(settings.model, trusted=settings.trusted)
    with doing("reading, or simulating, the records"):
        given = records_or_plant(config)
        material = find_material(
            given, part=settings.part, duration=settings.duration, seed=settings.seed
        )
        material = add_physics(material, settings.model, settings.trusted)
    if not settings.in_sweep:
        counted = f"{material.n_samples} samples of {material.source.name}"
        log.info(
            "Validate %s on %s, up to the free run; takes seconds to a minute",
            settings.model,
            counted,
        )
    check_signals(joint, material, settings.left_out)
    assessment = predict(joint, material, settings)
    notes = find_notes(material, settings)
    with doing("testing the residuals"):
        report = make_report(assessment, notes)
    with deferred_interrupt():
        with doing("writing files, figures and the page"):
            write_every(writers(report, folder, settings.attributes, figures=settings.has_figures))
            if settings.has_page:
                from experiments.report.page import write_run  # imports matplotlib

                write_run(folder)
        tell(report, folder)
    return assessment.scores[assessment.main[FREE_RUN]][assessment.outputs[0]].rmse


def read_settings(config: DictConfig) -> ValidationSettings:
    """Return what a configuration asks for, checked; the rest of it are records, or a plant
    (`records_or_plant`).

    Raises
    ------
    ValueError
        What an option cannot be, with its name; no model.
    """
    plan_cases(config.horizons, config.windows, 1)
    if config.part is not None and config.part not in RECORD_ROLES:
        raise UserError(
            f"part must be one of {', '.join(RECORD_ROLES)}, or null, got {config.part!r}"
        )
    left_out = config.left_out
    if not isinstance(left_out, list | ListConfig) or not all(isinstance(n, str) for n in left_out):
        must = "a list of names of signals, such as [u2]"
        raise UserError(f"left_out must be {must}, got {left_out!r}")
    seed = whole("seed", config.seed, 0)
    figures = flag("figures", config.figures)
    page = has_page(config.get("report", False))
    configuration = OmegaConf.to_yaml(config, resolve=True)
    return ValidationSettings(
        propagation=build(config, "propagation"),
        model=model_of(config),
        trusted=tuple(trusted_names(config)),
        part=config.part,
        duration=config.duration,
        horizons=tuple(read_whole("horizons", config.horizons)),
        windows=None if config.windows is None else tuple(read_whole("windows", config.windows)),
        left_out=tuple(left_out),
        seed=seed,
        has_figures=figures,
        has_page=page,
        in_sweep=is_multirun(),
        overrides=given_overrides(),
        system=OmegaConf.to_yaml({"system": OmegaConf.to_container(config.system, resolve=True)}),
        attributes={
            "configuration": configuration,
            "seed": seed,
            "model": config.model,
        },
    )


def predict(joint: JointModel, material: Material, settings: ValidationSettings) -> Assessment:
    """Predict the records with every horizon and window, and in closed loop if the plant has
    one.
    """
    default_window = material.default_window(joint.models[0].narx)
    cases = plan_cases(settings.horizons, settings.windows, default_window)
    window = cases[0].window
    seed = settings.seed
    material = replace(material, records=material.records_after(window))
    assessment = assess(joint, material, cases, settings.propagation, seed=seed)
    controller = material.controller
    if controller is None or material.physics is not None:
        return assessment
    with doing("closing the loop around the model"):
        record = material.records[0]
        propagation = settings.propagation
        loop = compare_loops(joint, record, controller, propagation, window=window, seed=seed)
    return replace(assessment, loop=loop)


def find_notes(material: Material, settings: ValidationSettings) -> list[str]:
    """Return what a person should know of the records, and of options that do nothing with them."""
    notes = [*material.source.notes]
    if idle := without_effect(material.unused, settings.overrides):
        notes.append(f"without effect on {material.source.name}: {' '.join(idle)}")
    if material.physics is not None and material.controller is not None:
        notes.append("no closed loop with the model: its physics follows measured inputs")
    if material.plant is not None and _has_seen(header(settings.model), settings):
        same = f"the simulation has the seed {settings.seed} of the identification"
        may = "the model may have learned from these very samples; choose another seed"
        notes.append(f"{same}: {may}")
    return notes


def _has_seen(stated: Mapping[str, Any], settings: ValidationSettings) -> bool:
    """Return whether the file of a model states the system and the seed that it is validated on."""
    if str(stated.get("seed")) != str(settings.seed):
        return False
    return state_alike(settings.system, stated.get("configuration"), "system")
