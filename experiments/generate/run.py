"""One benchmark folder: simulate the records, find the noise floor, score baselines, write."""

import json
import logging
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from experiments.cli.build import (
    build_all,
    build_one,
    targets_of,
    trusted_names,
)
from experiments.cli.config import CONF, fill_in
from experiments.cli.described import check_classes, check_description, check_texts
from experiments.cli.invocation import given_overrides, is_multirun
from experiments.cli.options import MAX_RUN_SAMPLES, flag, whole
from experiments.cli.primary import PRIMARY_NAME
from experiments.cli.progress import doing
from experiments.files.stated import ALL_OUTPUTS
from experiments.generate.baselines import BaselineSettings, choose_lags, score_models
from experiments.generate.benchmark import (
    Benchmark,
    Ranges,
    Split,
    check_size,
    count_samples,
    plan_records,
    read_ranges,
    simulate_record,
)
from experiments.generate.card import table
from experiments.generate.designed import Designer
from experiments.generate.folder import new_folder, write_benchmark
from experiments.plant.lags import AutomaticNarx
from experiments.plant.physics import ResidualNarx
from experiments.plant.plant import Plant, plant_of, warn_of_integration
from simulators import Controller, Excitation, MeasurementNoise, System, Weather
from sysid import (
    Acceptance,
    Criterion,
    DesignCriterion,
    Insertion,
    Kernel,
    MeanFunction,
    Narx,
    OnMissing,
    Orders,
    Selection,
    Settings,
    Training,
)
from sysid.data.source import RECORD_ROLES
from sysid.errors import UserError
from sysid.gp.online import MAX_BUDGET
from sysid.store import provenance

DEFAULT_UNSCORED_WINDOW = 50  # initialisation window of long records [samples]
MAX_NOISE_PATHS = 1_000_000  # simulations; more of them change the noise floor by less than 0.1 %
MIN_SECRET_SEED = 2**32  # smaller seeds can be found by trying all of them
KEYS_NOT_STORED = ("output", "figures", "trusted")  # keys that do not change the data
#: starts of overrides that the card does not show: they reveal the answer, or folders of a machine
HIDDEN_OVERRIDES = ("seed=", "output=", "trusted=", "hydra.")
#: roles of the classes that a configuration names, by their place in it
ROLES = {
    "system": System,
    "controller": Controller,
    "weather": Weather,
    "excitation": Excitation,
    "excitations.*": Excitation,
    "excitation.criterion": DesignCriterion,
    "noise": MeasurementNoise,
    "baseline.*": BaselineSettings,
    "kernel": Kernel,
    "training": Training,
    "mean": MeanFunction,
    "insertion": Insertion,
    "acceptance": Acceptance,
    "reduction": Criterion,
    "selection": Selection,
}
#: packages that are installed wherever the benchmark can be made again
PACKAGES_WITH_SYSTEMS = {"simulators", "sysid", "experiments"}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GenerateSettings:
    """Settings of one benchmark: what is simulated, what is scored, and where it is written."""

    name: str  # name of the benchmark
    folder: Path  # the folder that is written
    plant: Plant
    seed: int  # seed of all random draws
    splits: tuple[Split, ...]  # estimation, validation and test
    transient: int  # samples simulated before each record and discarded
    ranges: Ranges  # ranges of the initial states; other states start at the system's own value
    initialisation_window: int | None  # unscored samples of a test; None: `choose_window`
    noise_paths: int  # number of simulated noise paths for the noise floor in free run
    narx: Narx | Orders | AutomaticNarx  # lags of the models, or how they are found
    budget: int  # points of the model that chooses designed inputs
    baselines: Mapping[str, BaselineSettings]  # models that are scored, by key
    has_figures: bool
    stored: dict[str, Any]  # the configuration that makes the same data again


def run(config: DictConfig, folder: Path, *, trusted: Sequence[str] = ()) -> float:
    """Write the benchmark folder and return the free-run noise floor of the first output.

    Parameters
    ----------
    config
        Composed from conf/generate.yaml, or the `configuration.yaml` of a benchmark folder.
    folder
        Parent of the benchmark folder, if the configuration has no `output`.
    trusted
        Modules and classes that the configuration may name in addition to those of the toolbox. The
        command line needs them only with a configuration file that somebody else may have written.

    Raises
    ------
    ValueError, ArithmeticError, sysid.StoreError
        If a setting is not allowed, a simulation diverges, or the folder exists already or cannot
        be written to. No folder is left behind.
    """
    settings = read_settings(config, folder, trusted)
    if not is_multirun():
        log.info(
            "Generate a benchmark of %s: records, noise floor, baselines; "
            "this takes seconds to some minutes",
            settings.name,
        )
    with new_folder(settings.folder) as temporary_folder:
        benchmark = make_benchmark(settings)
        with doing("writing files and figures"):
            origin = describe_origin(settings.stored)
            write_benchmark(benchmark, temporary_folder, origin, figures=settings.has_figures)
    log_summary(benchmark, settings.folder)
    first_output = settings.plant.outputs[0]
    return float(benchmark.scores["free_run"]["noise_floor"][first_output]["rmse"])


def read_settings(config: DictConfig, folder: Path, trusted: Sequence[str]) -> GenerateSettings:
    """Read and check the configuration.

    Modules and classes that it names are imported only if they belong to the toolbox or are
    trusted.

    Raises
    ------
    ValueError
        If an option has a value that is not allowed, with the name of its key.
    """
    # The configuration that is stored in a benchmark folder lacks these keys.
    defaults = {"output": None, "figures": True}
    config = cast(DictConfig, OmegaConf.merge(defaults, config))
    if not starts_from_package():
        config = _check_foreign(config, trusted)
    everything = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))
    plant = plant_of(config)
    if plant.asks_a_model and not plant.design:
        raise UserError(
            "controller=mpc: the inputs of a benchmark do not depend on a controller that asks a "
            "model; identify the plant by sysid-identify, and let excitation=recorded play the "
            "inputs of its trajectory.nc"
        )
    name = type(plant.system).__name__ if config.name is None else config.name
    check_options(config, name)
    splits = read_splits(config, float(plant.system.dt))
    check_size(splits, config.transient, plant.system)
    stored = {key: value for key, value in everything.items() if key not in KEYS_NOT_STORED}
    check_texts(stored)
    return GenerateSettings(
        name=name,
        folder=Path(config.output) if config.output else folder / name,
        plant=plant,
        has_figures=config.figures,
        transient=config.transient,
        noise_paths=config.noise_paths,
        seed=whole("seed", config.seed, 0),
        splits=splits,
        ranges=read_ranges(config.initial_states, plant.system),
        initialisation_window=config.initialisation_window,
        baselines=build_all(config, "baseline"),
        narx=_read_lags(config),
        budget=whole("budget", config.budget, 2, MAX_BUDGET),
        stored=stored,
    )


def _check_foreign(config: DictConfig, trusted: Sequence[str]) -> DictConfig:
    """Return a configuration that somebody else may have written, as plain values.

    Raises
    ------
    ValueError
        If it has an interpolation of its own, or names a class that is not trusted or has not the
        role of its place.
    """
    all_trusted = list(trusted)
    if _is_trust_given_by_command():
        all_trusted += trusted_names(config)
    content = cast(dict[str, Any], OmegaConf.to_container(config, resolve=False))
    content.pop("trusted", None)
    content = fill_in(content)
    check_description(content, all_trusted)
    check_classes(content, all_trusted, ROLES)
    return OmegaConf.create(content)


def _is_trust_given_by_command() -> bool:
    """Return whether the command line sets `trusted`; a configuration file cannot trust itself."""
    return any(override.lstrip("+").startswith("trusted=") for override in given_overrides())


def starts_from_package() -> bool:
    """Return whether the configuration starts from the toolbox's own `generate.yaml`.

    Everything else that such a configuration names was given on the command line.
    """
    if not HydraConfig.initialized() or HydraConfig.get().job.config_name != "generate":
        return False
    main_paths = [
        source.path
        for source in HydraConfig.get().runtime.config_sources
        if source.provider == "main"
    ]
    return main_paths == [str(CONF)]


def check_options(config: DictConfig, name: Any) -> None:
    """Check the options that no other object checks.

    Raises
    ------
    ValueError
        If an option has a value that is not allowed, with the name of its key.
    """
    texts = {"name": name, "licence": config.licence}
    if config.output is not None:
        texts["output"] = config.output
    for key, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"{key} must be a text that is not empty, got {text!r}; change {key}")
    if "/" in name or name.startswith("."):
        raise UserError(
            f"name must be suitable for a folder, without '/' and without '.' at its start, "
            f"got {name!r}; change name"
        )
    flag("figures", config.figures)
    whole("transient", config.transient, 0, MAX_RUN_SAMPLES)
    if whole("noise_paths", config.noise_paths, 4) > MAX_NOISE_PATHS:
        raise UserError(
            f"noise_paths is {config.noise_paths}, expected at most {MAX_NOISE_PATHS}, which give "
            "the noise floor within 0.1 %; change noise_paths"
        )


def read_splits(config: DictConfig, dt: float) -> tuple[Split, ...]:
    """Read the number of records and their length for each split; `dt` is the sampling time [s].

    Raises
    ------
    ValueError
        If a length or a number of realisations is not possible, with the name of its key.
    """
    if not isinstance(config.realisations, DictConfig):
        raise UserError(
            f"realisations must map {', '.join(RECORD_ROLES)} to numbers, "
            f"got {config.realisations!r}"
        )
    splits = []
    for role in RECORD_ROLES:
        n_samples = count_samples(role, config[role], dt)
        n_records = whole(f"realisations.{role}", config.realisations[role], 1)
        splits.append(Split(role, n_samples, n_records))
    return tuple(splits)


def _read_lags(config: DictConfig) -> Narx | Orders | AutomaticNarx:
    """Return the lags of the models, or how they are found.

    Raises
    ------
    ValueError
        If the models would need physics beside them.
    """
    description = cast(dict[str, Any], OmegaConf.to_container(config.narx, resolve=True))
    if description.get("target") == ALL_OUTPUTS:
        description["target"] = ""  # every output has a model in any case
    narx: Narx | Orders | AutomaticNarx | ResidualNarx = build_one(description, "narx")
    if isinstance(narx, ResidualNarx):
        raise UserError(
            "narx=residual needs physics beside the model, which the baselines do not have: "
            "set other lags, for example narx=auto"
        )
    return narx


def make_benchmark(settings: GenerateSettings) -> Benchmark:
    """Simulate the records and score the baselines."""
    plant = settings.plant
    plans = plan_records(settings.seed, settings.splits)
    with doing("choosing the lags"):
        lags, notes = choose_lags(settings.narx, plant, plans[0].n_samples, plans[0].seed)
    if getattr(plant.measurement, "missing", 0):  # as the records say
        lags = {name: replace(narx, on_missing=OnMissing.skip) for name, narx in lags.items()}
    scored_lengths = [plan.n_samples for plan in plans if plan.role != "estimation"]
    largest_lag = max(narx.max_lag for narx in lags.values())
    window = choose_window(settings.initialisation_window, min(scored_lengths), largest_lag)
    with doing("simulating"):
        simulate = partial(
            simulate_record,
            transient=settings.transient,
            window=window,
            designer=make_designer(settings, lags),
        )
        records = [simulate(plan, plant, settings.ranges) for plan in plans]
    notes += warn_of_integration([record.trajectory for record in records])
    with doing("computing the noise floor and the baselines"):
        scores, score_notes = score_models(
            records,
            lags,
            settings.baselines,
            plant,
            seed=settings.seed,
            noise_paths=settings.noise_paths,
        )
    return Benchmark(
        name=settings.name,
        settings=settings.stored,
        plant=plant,
        ranges=settings.ranges,
        records=records,
        lags=lags,
        baselines=settings.baselines,
        scores=scores,
        notes=notes + score_notes,
    )


def make_designer(settings: GenerateSettings, lags: Mapping[str, Narx]) -> Designer | None:
    """Return what chooses the designed inputs by models of the first output and of those it needs.

    They learn by the default settings of the toolbox. The model of an output whose lags contain
    other outputs cannot be simulated without models of these. All models then have the same lags,
    each signal those that any of them has. None: no inputs are designed.

    Raises
    ------
    ValueError
        If an output that is needed has no lags.
    """
    if not settings.plant.design:
        return None
    learner = Settings(budget=settings.budget, seed=settings.seed)
    first = next(iter(lags.values()))
    if first.output_names == (first.target,):
        return Designer([first], learner)
    outputs = {name: _lags_in_any(lags, name) for name in settings.plant.outputs if name in lags}
    inputs = {name: _lags_in_any(lags, name) for name in settings.plant.inputs}
    inputs = {name: of_input for name, of_input in inputs.items() if of_input}
    narxes = [replace(first, outputs=outputs, inputs=inputs, target=name) for name in outputs]
    return Designer(narxes, learner)


def _lags_in_any(lags: Mapping[str, Narx], signal: str) -> list[int]:
    """Return the lags of a signal in any of the models."""
    return sorted({lag for narx in lags.values() for lag in narx.lags.get(signal, ())})


def choose_window(given: int | None, shortest: int, largest_lag: int) -> int:
    """Choose the number of samples at the start of validation and test records that are not scored.

    If the configuration does not set it, it is `DEFAULT_UNSCORED_WINDOW`, but at most a tenth of
    the shortest record and at least the largest lag.

    Raises
    ------
    ValueError
        If the number is below the largest lag, or leaves fewer than two samples to score.
    """
    default = max(min(DEFAULT_UNSCORED_WINDOW, shortest // 10), largest_lag, 1)
    window = default if given is None else whole("initialisation_window", given, 1)
    if not largest_lag <= window <= shortest - 2:
        raise UserError(
            f"initialisation_window={window} must be at least the largest lag of narx, "
            f"{largest_lag}, and leave at least 2 of {shortest} samples to score: "
            "change it, choose smaller lags, or lengthen validation and test"
        )
    return window


def describe_origin(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of the card on how the folder was made.

    These are the command line without seed and folders, the time, the versions of the packages, and
    the commit.
    """
    stamp = provenance()
    package_versions = json.loads(stamp["package_versions"])
    rows = [
        ("made", stamp["creation_time"]),
        ("versions", ", ".join(f"{name} {n}" for name, n in package_versions.items())),
        ("source commit", stamp.get("source_commit", "unknown")),
    ]
    facts = {"made": table(("", ""), rows), "command": "", "needs": ""}
    if HydraConfig.initialized():
        facts["command"] = _describe_command()
        modules = {target.rpartition(".")[0] for target in targets_of(settings).values()}
        foreign = [name for name in modules if name.partition(".")[0] not in PACKAGES_WITH_SYSTEMS]
        if foreign:
            names = ", ".join(f"`{name}`" for name in sorted(foreign))
            facts["needs"] = f"Run it in the folder from which {names} is imported"
    return facts


def _describe_command() -> str:
    """Return the command line without its seed and its folders."""
    arguments = [
        override
        for override in given_overrides()
        if not override.lstrip("+~").startswith(HIDDEN_OVERRIDES)
    ]
    for source in HydraConfig.get().runtime.config_sources:
        if source.provider == "command-line":
            # The user's own configuration files, relative to the folder of the command.
            path = Path(os.path.relpath(source.path))
            shown_path = f"path/to/{path.name}" if ".." in path.parts else path.as_posix()
            arguments = ["--config-dir", shown_path, *arguments]
    if HydraConfig.get().job.config_name == PRIMARY_NAME:
        arguments = [
            "--config-dir",
            "path/to/benchmark",
            "--config-name",
            "configuration",
            *arguments,
        ]
    return shlex.join(["sysid-generate", *arguments])


def log_summary(benchmark: Benchmark, target: Path) -> None:
    """Log the size of the benchmark, its notes, and its folder."""
    log.info("%s: %s", type(benchmark.plant.system).__name__, benchmark.count())
    for note in benchmark.notes:
        log.info("Note: %s", note.replace("`", ""))
    seed = benchmark.settings["seed"]
    if seed < MIN_SECRET_SEED:
        log.info(
            "Note: seed %s can be guessed; to publish the benchmark without its answer, "
            "choose a secret seed of 63 bits",
            seed,
        )
    log.info(
        "Benchmark: %s; next: read CARD.md, or score a model with python %s/score.py "
        "predictions.csv",
        target,
        target,
    )
