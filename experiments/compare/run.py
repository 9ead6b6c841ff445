"""Compare the models of several runs on one test record, in a table, a figure and a page."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd
from omegaconf import DictConfig, OmegaConf

from experiments.cli.build import build, trusted_names
from experiments.cli.ends import deferred_interrupt
from experiments.cli.options import flag, whole
from experiments.cli.plain_yaml import text_of
from experiments.compare.record import fit_material, read_own_record, read_window
from experiments.compare.result import (
    draw,
    tabulate,
    tabulate_own_scores,
    write_own_scores,
    write_page,
    write_text,
)
from experiments.drawing.tables import to_csv
from experiments.files.job_file import JOB_FILE
from experiments.files.outputs import has_page, write_every
from experiments.files.stated import read_configuration, screens_records, states_free_run
from experiments.plant.records_or_plant import records_or_plant
from experiments.validate.assessment import Assessment, assess, plan_cases
from experiments.validate.material import Material, find_material
from sysid import JointModel, Propagation, StoreError, store
from sysid.arrays import listed
from sysid.errors import UserError
from sysid.store import header

#: keys of the configuration of a run that determine the data from which its model learned
TRAINING_DATA_KEYS = (
    "seed",
    "data",
    "identified",
    "system",
    "controller",
    "weather",
    "excitation",
    "excitations",
    "noise",
    "interpolation",
    "duration",
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CompareSettings:
    """Settings of one comparison: the models, the record, and the files that are written."""

    runs: tuple[str, ...]  # folders of runs, or files of models
    trusted: tuple[str, ...]  # modules and classes of the user that the model files may name
    part: str | None  # part of the records; None: test, or validation if there is no test record
    duration: float | str  # duration of a simulation, in seconds or with its unit
    window: int | None  # initialisation window [samples]; None: the longest that a run had or needs
    propagation: Propagation  # propagation of the uncertainty
    seed: int  # seed of all random draws
    is_named: bool  # whether the user names the record; otherwise it is that of the runs
    has_figures: bool  # whether a figure is drawn
    has_page: bool  # whether report.html is written
    configuration: str  # resolved configuration as YAML, for the page


def run(config: DictConfig, folder: Path) -> None:
    """Compare the configured runs, write table, figure and page to the folder, and log the table.

    Raises
    ------
    ValueError, TypeError, OSError, ArithmeticError
        If there are fewer than two runs, a run has no model, the models have different outputs, the
        records do not fit, or no record is named and the test records of the runs differ. Nothing
        is written in these cases.
    """
    settings = read_settings(config)
    paths = find_models(settings.runs)
    joints = {name: JointModel.load(path, trusted=settings.trusted) for name, path in paths.items()}
    check_outputs(joints)
    if settings.is_named:
        given = records_or_plant(config)
        material = find_material(
            given, part=settings.part, duration=settings.duration, seed=settings.seed
        )
    else:
        material = read_own_record(paths, settings.part)
    fitted = {
        name: fit_material(material, joints[name], path, settings.trusted)
        for name, path in paths.items()
    }
    window = choose_window(settings, paths, joints, fitted)
    log.info(
        "Compare %s on %s, %s: %d samples; "
        "every model is given the first %d samples of each record",
        ", ".join(paths),
        material.source.name,
        material.part,
        material.n_samples,
        window,
    )
    assessments = assess_all(settings, joints, fitted, paths, window)
    table = tabulate(assessments, paths)
    notes = note_differences(paths)
    with deferred_interrupt():
        write_files(settings, assessments, table, notes, folder)
        log_results(table, tabulate_own_scores(joints, paths), notes, folder)


def read_settings(config: DictConfig) -> CompareSettings:
    """Read and check the configuration.

    Raises
    ------
    ValueError
        If an option has a value that is not allowed, with the name of its key.
    """
    return CompareSettings(
        has_figures=flag("figures", config.figures),
        seed=whole("seed", config.seed, 0),
        window=None if config.window is None else whole("window", config.window, 1),
        has_page=has_page(config.report),
        runs=tuple(
            str(name) for name in listed(config.runs, "runs", "folders or files of models, [a,b]")
        ),
        trusted=tuple(trusted_names(config)),
        part=config.part,
        duration=config.duration,
        propagation=build(config, "propagation"),
        is_named="_target_" in config.data or "_target_" in config.system,
        configuration=OmegaConf.to_yaml(config, resolve=True),
    )


def find_models(runs: Sequence[str]) -> dict[str, Path]:
    """Find the model file of each run, by a short name of the run.

    The short name is the name of its folder, or the path if several folders have the same name.

    Raises
    ------
    ValueError
        If there are fewer than two runs, or a run is given twice.
    sysid.StoreError
        If a folder has no model.
    """
    paths = [Path(run).resolve() for run in runs]
    if len(runs) < 2 or len(set(paths)) < len(runs):
        raise UserError(
            "runs: expected two or more different folders, sysid-compare RUN RUN ..., "
            f"got {list(runs)}"
        )
    short_names = [path.name for path in paths]
    models = {}
    for run, short_name in zip(runs, short_names, strict=True):
        is_unique = short_names.count(short_name) == 1
        models[short_name if is_unique else run] = _find_model(Path(run))
    return models


def _find_model(run: Path) -> Path:
    """Return the model file of a run, which is its folder or the file itself."""
    if run.is_file():
        return run
    for name in ("model.nc", JOB_FILE):
        if (run / name).is_file():
            return run / name
    raise StoreError(
        f"no model in {run}: expected the folder of a run of sysid-identify "
        "(outputs/identify/...), the folder of a job of a sweep (multirun/.../0), "
        "or the file model.nc itself"
    )


def check_outputs(joints: Mapping[str, JointModel]) -> None:
    """Raise ValueError unless all models have the same outputs."""
    first = next(iter(joints))
    outputs = joints[first].output_names
    for name, joint in joints.items():
        if joint.output_names != outputs:
            raise UserError(
                f"runs: {first} has outputs {list(outputs)}, "
                f"{name} has {list(joint.output_names)}: compare models of the same outputs"
            )


def choose_window(
    settings: CompareSettings,
    paths: Mapping[str, Path],
    joints: Mapping[str, JointModel],
    materials: Mapping[str, Material],
) -> int:
    """Choose the initialisation window [samples] of all models.

    It is the configured window, or the longest window that a run had or needs.
    """
    if settings.window is not None:
        return settings.window
    windows = [
        material.default_window(joints[name].models[0].narx) for name, material in materials.items()
    ]
    if not settings.is_named:
        windows += [read_window(path) for path in paths.values()]
    return max(windows)


def assess_all(
    settings: CompareSettings,
    joints: Mapping[str, JointModel],
    materials: Mapping[str, Material],
    paths: Mapping[str, Path],
    window: int,
) -> dict[str, Assessment]:
    """Assess every model on its records, one step ahead and in free run after the window.

    The files of the models state which of them were trained for the free run.
    """
    cases = plan_cases([1], window, window)
    assessments = {}
    for name, material in materials.items():
        records = replace(material, records=material.records_after(window))
        assessment = assess(joints[name], records, cases, settings.propagation, seed=settings.seed)
        configuration = header(paths[name]).get("configuration")
        assessments[name] = replace(
            assessment,
            is_trained_for_free_run=states_free_run(configuration),
            screens_records=screens_records(configuration),
        )
    return assessments


def note_differences(paths: Mapping[str, Path]) -> list[str]:
    """Return notes on differences between the data from which the models learned.

    If there are such differences, the options of the runs alone do not explain their results. A
    model that states no configuration is ignored. A configuration that cannot be read is noted.
    """
    data_settings: dict[str, dict[str, str]] = {}
    unreadable = []
    for name, path in paths.items():
        text = str(header(path).get("configuration", ""))
        if not text:
            continue
        configuration = read_configuration(text)
        if configuration is None:
            unreadable.append(name)
            continue
        if isinstance(configuration.get("data"), dict):
            configuration["data"].pop("test", None)  # the model has not learned from these records
        data_settings[name] = {
            key: text_of(configuration[key]) if key in configuration else ""
            for key in TRAINING_DATA_KEYS
        }
    differing = []
    for key in TRAINING_DATA_KEYS:
        values = {name: settings[key] for name, settings in data_settings.items()}
        if len(set(values.values())) > 1:
            differing.append(_describe_difference(key, values))
    notes = []
    if differing:
        notes.append(f"the runs differ in what their models learned from: {', '.join(differing)}")
    if unreadable:
        notes.append(
            "the runs may differ in what their models learned from: "
            f"no configuration can be read in the file of {', '.join(unreadable)}"
        )
    return notes


def _describe_difference(key: str, values: Mapping[str, str]) -> str:
    """Return a key with its value in every run, or the key alone if a value has several lines."""
    if any("\n" in value for value in values.values()):
        return key
    shown_values = ", ".join(f"{name} {value}" for name, value in values.items())
    return f"{key} ({shown_values})"


def write_files(
    settings: CompareSettings,
    assessments: Mapping[str, Assessment],
    table: pd.DataFrame,
    notes: Sequence[str],
    folder: Path,
) -> None:
    """Write the table, and the figure and the page if they are wanted.

    Raises
    ------
    sysid.StoreError
        If a file could not be written. The figure is written even if the table cannot be.
    """
    files = {"comparison.csv": to_csv(table).encode()}
    if settings.has_figures:
        files["comparison.png"] = draw(assessments)
    write_every(
        partial(store.write_bytes, content, folder / name) for name, content in files.items()
    )
    if settings.has_page:
        write_page(
            assessments,
            table,
            notes,
            folder,
            configuration=settings.configuration,
            seed=settings.seed,
        )


def log_results(
    table: pd.DataFrame, own_scores: pd.DataFrame, notes: Sequence[str], folder: Path
) -> None:
    """Log both tables, the notes on differences between the runs, and the folder of the files."""
    lines = [*write_text(table).splitlines(), *write_own_scores(own_scores).splitlines()]
    for line in lines:
        log.info("%s", line)
    for note in notes:
        log.info("Note: %s", note)
    log.info("Results: %s", folder)
