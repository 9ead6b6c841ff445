"""One validation: read the model, find the records, predict, score, write, log the results."""

import logging
from collections.abc import Mapping, Sequence
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
from experiments.files.stated import (
    chooses_budget,
    chooses_lags,
    screens_records,
    state_alike,
    states_free_run,
)
from experiments.plant.records_or_plant import records_or_plant
from experiments.validate.assessment import (
    FREE_RUN_LABEL,
    Assessment,
    assess,
    choose_horizons,
    plan_cases,
    read_sample_counts,
)
from experiments.validate.linear_view import find_linear_views, refuse_linear_view
from experiments.validate.loop import compare_loops
from experiments.validate.material import (
    Material,
    add_physics,
    check_signals,
    find_material,
)
from experiments.validate.report import log_report, make_report, writers
from sysid import JointModel, Propagation
from sysid.data.source import RECORD_ROLES
from sysid.errors import UserError
from sysid.store import header

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ValidationSettings:
    """Settings of one validation."""

    model: Path  # file of the model
    trusted: tuple[str, ...]  # modules and classes of the user that the model file may name
    part: str | None  # part of the records; None: test, or validation if there is no test record
    duration: float | str  # duration of a simulation, in seconds or with its unit
    propagation: Propagation  # propagation of the uncertainty
    horizons: tuple[int, ...] | None  # samples ahead; None: as many as are computed quickly
    windows: tuple[int, ...] | None  # initialisation windows [samples]; None: as in the records
    left_out: tuple[str, ...]  # signals of the records that the model does not have
    seed: int  # seed of all random draws
    is_linearised: bool  # whether the model is linearised at operating points of the records
    has_figures: bool  # whether figures are drawn
    has_page: bool  # whether report.html is written
    in_sweep: bool  # whether this is a job of a sweep, so that nobody watches its output
    overrides: tuple[str, ...]  # overrides of the command line; those without effect are reported
    system: str  # settings of the plant as YAML, compared with those of the identification
    attributes: dict[str, Any]  # attributes of every NetCDF file


def run(config: DictConfig, folder: Path) -> float:
    """Validate the configured model and write all results to the folder.

    Returns
    -------
    float
        RMSE of the first output in free run (simulation).

    Raises
    ------
    ValueError, TypeError, OSError, ArithmeticError
        If no model is given, its file cannot be read, the records do not fit it, or a simulation
        diverges. Nothing is written in these cases.
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
        log.info(
            "Validate %s on %d samples of %s, up to the free run; this takes seconds to a minute",
            settings.model,
            material.n_samples,
            material.source.name,
        )
    check_signals(joint, material, settings.left_out)
    if settings.is_linearised:
        refuse_linear_view(joint, material)
    configuration = header(settings.model).get("configuration")
    assessment = replace(
        predict(joint, material, settings),
        is_trained_for_free_run=states_free_run(configuration),
        has_chosen_horizons=settings.horizons is not None,
        screens_records=screens_records(configuration),
    )
    if settings.is_linearised:
        with doing("linearising the model"):
            assessment = replace(assessment, linear_views=find_linear_views(assessment))
    notes = find_notes(material, settings)
    with doing("testing the residuals"):
        report = make_report(
            assessment,
            notes,
            has_automatic_lags=chooses_lags(configuration),
            budget_is_chosen=chooses_budget(configuration),
        )
    with deferred_interrupt():
        with doing("writing files, figures and the page"):
            write_calls = writers(report, folder, settings.attributes, figures=settings.has_figures)
            write_every(write_calls)
            if settings.has_page:
                from experiments.report.page import write_run  # imports matplotlib

                write_run(folder)
        log_report(report, folder)
    free_run = assessment.main[FREE_RUN_LABEL]
    first_output = assessment.outputs[0]
    return assessment.scores[free_run][first_output].rmse


def read_settings(config: DictConfig) -> ValidationSettings:
    """Return the checked settings of a configuration.

    The other keys of the configuration describe records or a plant (`records_or_plant`).

    Raises
    ------
    ValueError
        If an option has a value that is not allowed, with the name of the option; if no model is
        given.
    """
    horizons = None
    if config.horizons is not None:
        horizons = tuple(read_sample_counts("horizons", config.horizons))
    plan_cases(horizons or (), config.windows, 1)  # checks both options
    if config.part is not None and config.part not in RECORD_ROLES:
        raise UserError(
            f"part must be one of {', '.join(RECORD_ROLES)}, or null, got {config.part!r}"
        )
    left_out = config.left_out
    is_list = isinstance(left_out, list | ListConfig)
    if not is_list or not all(isinstance(name, str) for name in left_out):
        raise UserError(
            f"left_out must be a list of names of signals, such as [u2], got {left_out!r}"
        )
    seed = whole("seed", config.seed, 0)
    is_linearised = flag("linear", config.linear)
    figures = flag("figures", config.figures)
    page = has_page(config.get("report", False))
    configuration = OmegaConf.to_yaml(config, resolve=True)
    windows = None
    if config.windows is not None:
        windows = tuple(read_sample_counts("windows", config.windows))
    system = OmegaConf.to_container(config.system, resolve=True)
    return ValidationSettings(
        propagation=build(config, "propagation"),
        model=model_of(config),
        trusted=tuple(trusted_names(config)),
        part=config.part,
        duration=config.duration,
        horizons=horizons,
        windows=windows,
        left_out=tuple(left_out),
        seed=seed,
        is_linearised=is_linearised,
        has_figures=figures,
        has_page=page,
        in_sweep=is_multirun(),
        overrides=given_overrides(),
        system=OmegaConf.to_yaml({"system": system}),
        attributes={
            "configuration": configuration,
            "seed": seed,
            "model": config.model,
        },
    )


def predict(joint: JointModel, material: Material, settings: ValidationSettings) -> Assessment:
    """Predict the records with every horizon and window.

    If a controller closes a loop around the plant, the same loop is also closed around the model.
    """
    default_window = material.default_window(joint.models[0].narx)
    horizons: Sequence[int] | None = settings.horizons
    if horizons is None:
        main_window = default_window if settings.windows is None else settings.windows[0]
        horizons = choose_horizons(material.records_after(main_window))
    cases = plan_cases(horizons, settings.windows, default_window)
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
    """Return notes about the records, and about options that have no effect on them."""
    notes = list(material.source.notes)
    ineffective = without_effect(material.unused, settings.overrides)
    if ineffective:
        notes.append(f"without effect on {material.source.name}: {' '.join(ineffective)}")
    if material.physics is not None and material.controller is not None:
        notes.append(
            "the loop is not closed around the model, because its physics needs measured inputs"
        )
    if material.plant is not None and _is_training_data(header(settings.model), settings):
        notes.append(
            f"the simulation has the same seed {settings.seed} as the identification: "
            "the model may have learned from the same samples; choose another seed"
        )
    return notes


def _is_training_data(model_header: Mapping[str, Any], settings: ValidationSettings) -> bool:
    """Return whether the model was identified on the system and the seed of this validation."""
    if str(model_header.get("seed")) != str(settings.seed):
        return False
    return state_alike(settings.system, model_header.get("configuration"), "system")
