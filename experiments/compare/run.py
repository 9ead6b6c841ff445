"""The models of several runs on one test record: a table, a figure, a page."""

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
from experiments.compare.record import fit_material, read_own_record, read_window
from experiments.compare.result import draw, tabulate, write_page, write_text
from experiments.drawing.tables import to_csv
from experiments.files.job_file import JOB_FILE
from experiments.files.outputs import has_page, write_every
from experiments.files.stated import read_configuration, text_of
from experiments.plant.records_or_plant import records_or_plant
from experiments.validate.assessment import Assessment, assess, plan_cases
from experiments.validate.material import Material, find_material
from sysid import JointModel, Propagation, StoreError, store
from sysid.arrays import listed
from sysid.errors import UserError
from sysid.store import header

#: settings of a run that say what its model learned from
LEARNED = (
    *(
        "seed",
        "data",
        "identified",
        "system",
        "controller",
        "weather",
        "excitation",
        "excitations",
        "noise",
    ),
    *("interpolation", "duration"),
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CompareSettings:
    """Which models are compared, how, and what is written of it."""

    runs: tuple[str, ...]  # folders of runs, or files of models
    trusted: tuple[
        str, ...
    ]  # modules and classes that the files of the models may name besides ours
    part: str | None  # of the records; None: test, or validation where there is no test
    duration: float | str  # of a simulation, in seconds or with its unit
    window: int | None  # measured samples given to each model; None: the most a run had or needs
    propagation: Propagation  # of the uncertainty through the steps
    seed: int  # of everything random
    is_named: bool  # whether the record is named; else it is that of the runs
    has_figures: bool
    has_page: bool  # whether report.html is written
    configuration: str  # YAML, with all interpolations resolved, for the page


def run(config: DictConfig, folder: Path) -> None:
    """Compare the configured runs, write table, figure and page to the folder, and tell the table.

    Raises
    ------
    ValueError, TypeError, OSError, ArithmeticError
        Fewer than two runs, one without a model, models of other outputs, runs whose test records
        differ where no record is named, records that do not fit. Nothing is written then.
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
    about = f"{material.source.name}, {material.part}: {material.n_samples} samples"
    names = ", ".join(paths)
    log.info(
        "Compare %s on %s; all are shown the first %s of each record",
        names,
        about,
        window,
    )
    found = assess_all(settings, joints, fitted, window)
    table = tabulate(found, paths)
    notes = note_differences(paths)
    with deferred_interrupt():
        write_files(settings, found, table, notes, folder)
        tell(table, notes, folder)


def read_settings(config: DictConfig) -> CompareSettings:
    """Read and check the configuration.

    Raises
    ------
    ValueError
        With the name of the key.
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
    """Find the file of the model of each run, by a short name of the run.

    Raises
    ------
    ValueError
        Fewer than two runs, or the same twice.
    sysid.StoreError
        A folder without a model.
    """
    if len(runs) < 2 or len({Path(run).resolve() for run in runs}) < len(runs):
        raise UserError(
            f"runs: expected two or more different folders, sysid-compare RUN RUN ..., got {list(runs)}"
        )
    found = {}
    for run in runs:
        candidates = (
            [Path(run)]
            if Path(run).is_file()
            else [Path(run) / name for name in ("model.nc", JOB_FILE)]
        )
        path = next((path for path in candidates if path.is_file()), None)
        if path is None:
            what = "the folder of a run of sysid-identify, outputs/identify/..., or of a job of a sweep, multirun/.../0"
            raise StoreError(f"no model in {run}: expected {what}, or model.nc itself")
        short = Path(run).resolve().name
        found[run if [Path(other).resolve().name for other in runs].count(short) > 1 else short] = (
            path
        )
    return found


def check_outputs(joints: Mapping[str, JointModel]) -> None:
    """Refuse models of different outputs.

    Raises
    ------
    ValueError
        With the outputs of the first two that differ.
    """
    (first, outputs), *others = ((name, joint.output_names) for name, joint in joints.items())
    for name, names in others:
        if names != outputs:
            have = f"{first} has outputs {list(outputs)}, {name} has {list(names)}"
            raise UserError(f"runs: {have}: compare models of the same outputs")


def choose_window(
    settings: CompareSettings,
    paths: Mapping[str, Path],
    joints: Mapping[str, JointModel],
    given: Mapping[str, Material],
) -> int:
    """Choose how many samples all models are shown: as configured, or the most a run had or
    needs.
    """
    if settings.window is not None:
        return settings.window
    needed = [one.default_window(joints[name].models[0].narx) for name, one in given.items()]
    had = [] if settings.is_named else [read_window(path) for path in paths.values()]
    return max([*needed, *had])


def assess_all(
    settings: CompareSettings,
    joints: Mapping[str, JointModel],
    given: Mapping[str, Material],
    window: int,
) -> dict[str, Assessment]:
    """Assess every model on what it is given, one step and free run after the window."""
    cases = plan_cases([1], window, window)
    found: dict[str, Assessment] = {}
    for name, one in given.items():
        records = replace(one, records=one.records_after(window))
        found[name] = assess(joints[name], records, cases, settings.propagation, seed=settings.seed)
    return found


def note_differences(paths: Mapping[str, Path]) -> list[str]:
    """Say what the runs learned from, where it is not the same for all: their options alone do not
    explain the rest.

    A model that states no configuration is left out; one that cannot be read counts as different.
    """
    found = dict[str, dict[str, str]]()
    unknown = []
    for name, path in paths.items():
        if text := str(header(path).get("configuration", "")):
            if (settings := read_configuration(text)) is None:
                unknown.append(name)
                continue
            if isinstance(settings.get("data"), dict):
                settings["data"].pop("test", None)  # judges
            stated = {key: text_of(value) for key, value in settings.items() if key in LEARNED}
            found[name] = dict.fromkeys(LEARNED, "") | stated
    differing = []
    for key in LEARNED:
        values = {name: one[key] for name, one in found.items()}
        if len({*values.values()}) > 1:
            is_short = not any("\n" in value for value in values.values())
            told = (
                f" ({', '.join(f'{name} {value}' for name, value in values.items())})"
                if is_short
                else ""
            )
            differing.append(key + told)
    what = "in what their models learned from"
    notes = []
    if differing:
        notes.append(f"the runs differ {what}: {', '.join(differing)}")
    if unknown:
        lost = f"no configuration can be read in the file of {', '.join(unknown)}"
        notes.append(f"the runs may differ {what}: {lost}")
    return notes


def write_files(
    settings: CompareSettings,
    found: Mapping[str, Assessment],
    table: pd.DataFrame,
    notes: Sequence[str],
    folder: Path,
) -> None:
    """Write the table, and the figure and the page if they are wanted.

    Raises
    ------
    sysid.StoreError
        If a file could not be written; table and figure do not wait for each other.
    """
    files = {"comparison.csv": to_csv(table).encode()}
    if settings.has_figures:
        files["comparison.png"] = draw(found)
    write_every(
        partial(store.write_bytes, content, folder / name) for name, content in files.items()
    )
    if settings.has_page:
        write_page(
            found,
            table,
            notes,
            folder,
            configuration=settings.configuration,
            seed=settings.seed,
        )


def tell(table: pd.DataFrame, notes: Sequence[str], folder: Path) -> None:
    """Log the table, what the runs differ in, and where the files are."""
    for line in write_text(table).splitlines():
        log.info("%s", line)
    for note in notes:
        log.info("Note: %s", note)
    log.info("Results: %s", folder)
