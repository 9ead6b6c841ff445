"""One benchmark folder from end to end: simulate every record, bound what can be reached, score
baselines, write.
"""

import json
import logging
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from experiments.cli.build import (
    build,
    build_all,
    check_trusted,
    targets_of,
    trusted_names,
)
from experiments.cli.config import CONF
from experiments.cli.invocation import is_multirun
from experiments.cli.options import flag, whole
from experiments.cli.progress import doing
from experiments.generate.baselines import BaselineSettings, choose_lags, score_models
from experiments.generate.benchmark import (
    Benchmark,
    Ranges,
    Split,
    count_samples,
    plan_records,
    read_ranges,
    simulate_record,
)
from experiments.generate.card import table
from experiments.generate.folder import new_folder, write_benchmark
from experiments.plant.lags import AutomaticNarx
from experiments.plant.plant import Plant, plant_of, warn_of_integration
from sysid import Narx, Orders
from sysid.data.source import RECORD_ROLES
from sysid.errors import UserError
from sysid.store import provenance

WINDOW = 50  # samples that are not judged, in records that are long enough
GUESSABLE = 2**32  # seeds below it can be tried one by one
NOT_STORED = (
    "output",
    "figures",
    "trusted",
)  # keys that are no part of what makes the data
HIDDEN = (
    "seed=",
    "output=",
    "trusted=",
    "hydra.",
)  # overrides that tell the answer, or folders of this machine
OWN = {"simulators", "sysid", "experiments"}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GenerateSettings:
    """What is simulated, what is scored, and where it is written."""

    name: str  # of the benchmark
    folder: Path  # to make
    plant: Plant
    seed: int  # of everything random
    splits: tuple[Split, ...]  # estimation, validation and test
    transient: int  # samples simulated before each record and discarded
    ranges: Ranges  # of the initial states; without one a state starts from the system's own value
    initialisation_window: (
        int | None
    )  # samples of a test that are not judged; None: `choose_window`
    noise_paths: int  # simulated to find what no model can beat in free run
    narx: Narx | Orders | AutomaticNarx  # lags of the models, or how they are found
    baselines: Mapping[str, BaselineSettings]  # models that are scored, by key
    has_figures: bool
    stored: dict[str, Any]  # the configuration that makes the same data again


def run(config: DictConfig, folder: Path, *, trusted: Sequence[str] = ()) -> float:
    """Write the benchmark folder; returns the free-run noise floor of the first output.

    Parameters
    ----------
    config
        Composed from conf/generate.yaml, or the `configuration.yaml` of a benchmark folder.
    folder
        Where the benchmark goes, under its name, if the configuration has no `output`.
    trusted
        Modules and classes that the configuration may name besides those of the toolbox. Not needed
        on the command line, unless it starts from a file that somebody else may have written.

    Raises
    ------
    ValueError, ArithmeticError, sysid.StoreError
        Bad settings, a simulation that diverges, a folder that is there already or cannot be
        written to. No folder is left behind.
    """
    settings = read_settings(config, folder, trusted)
    if not is_multirun():
        name = settings.name
        log.info(
            "Generate a benchmark of %s: records, noise floor, baselines; takes seconds to some minutes",
            name,
        )
    with new_folder(settings.folder) as place:
        benchmark = make_benchmark(settings)
        with doing("writing files and figures"):
            origin = describe_origin(settings.stored)
            write_benchmark(benchmark, place, origin, figures=settings.has_figures)
    tell(benchmark, settings.folder)
    first_output = settings.plant.outputs[0]
    return float(benchmark.scores["free_run"]["noise_floor"][first_output]["rmse"])


def read_settings(config: DictConfig, folder: Path, trusted: Sequence[str]) -> GenerateSettings:
    """Read and check the configuration; what it names is imported only if it is ours or trusted.

    Raises
    ------
    ValueError
        With the name of the key.
    """
    config = cast(
        DictConfig, OmegaConf.merge({"output": None, "figures": True}, config)
    )  # a kept one lacks them
    everything = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))
    if not starts_from_package():
        given = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
        by_command = any(
            item.lstrip("+").startswith("trusted=") for item in given
        )  # a file cannot trust itself
        check_trusted(everything, [*trusted, *(trusted_names(config) if by_command else [])])
    plant = plant_of(config)
    name = type(plant.system).__name__ if config.name is None else config.name
    check_options(config, name)
    return GenerateSettings(
        name=name,
        folder=Path(config.output) if config.output else folder / name,
        plant=plant,
        has_figures=config.figures,
        transient=config.transient,
        noise_paths=config.noise_paths,
        seed=whole("seed", config.seed, 0),
        splits=read_splits(config, float(plant.system.dt)),
        ranges=read_ranges(config.initial_states, plant.system),
        initialisation_window=config.initialisation_window,
        baselines=build_all(config, "baseline"),
        narx=build(config, "narx"),
        stored={key: value for key, value in everything.items() if key not in NOT_STORED},
    )


def starts_from_package() -> bool:
    """Whether the command composes its configuration from ours: what else it names stands on its
    command line.
    """
    if not HydraConfig.initialized() or HydraConfig.get().job.config_name != "generate":
        return False
    main = [
        source.path
        for source in HydraConfig.get().runtime.config_sources
        if source.provider == "main"
    ]
    return main == [str(CONF)]


def check_options(config: DictConfig, name: Any) -> None:
    """Check what is not an object of its own.

    Raises
    ------
    ValueError
        With the name of the key.
    """
    texts = {"name": name, "licence": config.licence} | (
        {} if config.output is None else {"output": config.output}
    )
    for key, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"{key} must be a text that is not empty, got {text!r}; change {key}")
    if "/" in name or name.startswith("."):
        raise UserError(
            f"name must be fit for a folder: no '/' and no '.' in front, got {name!r}; change name"
        )
    flag("figures", config.figures)
    whole("transient", config.transient, 0)
    whole("noise_paths", config.noise_paths, 4)


def read_splits(config: DictConfig, dt: float) -> tuple[Split, ...]:
    """Read how many records of how many samples each split has, for a sampling interval dt [s].

    Raises
    ------
    ValueError
        A length or a number of realisations that is not possible, with the name of its key.
    """
    if not isinstance(config.realisations, DictConfig):
        raise UserError(
            f"realisations must map {', '.join(RECORD_ROLES)} to numbers, got {config.realisations!r}"
        )
    splits = []
    for role in RECORD_ROLES:
        n_samples = count_samples(role, config[role], dt)
        n_records = whole(f"realisations.{role}", config.realisations[role], 1)
        splits.append(Split(role, n_samples, n_records))
    return tuple(splits)


def make_benchmark(settings: GenerateSettings) -> Benchmark:
    """Simulate the records and score the baselines."""
    plant = settings.plant
    plans = plan_records(settings.seed, settings.splits)
    with doing("choosing the lags"):
        lags, notes = choose_lags(settings.narx, plant, plans[0].n_samples, plans[0].seed)
    shortest = min(plan.n_samples for plan in plans if plan.role != "estimation")
    largest_lag = max(narx.max_lag for narx in lags.values())
    window = choose_window(settings.initialisation_window, shortest, largest_lag)
    with doing("simulating"):
        simulate = partial(simulate_record, transient=settings.transient, window=window)
        records = [simulate(plan, plant, settings.ranges) for plan in plans]
    notes += warn_of_integration([record.trajectory for record in records])
    with doing("computing the noise floor and the baselines"):
        scores = score_models(
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
        notes=notes,
    )


def choose_window(given: int | None, shortest: int, largest_lag: int) -> int:
    """Choose how many samples at the start of validation and test records are not judged.

    Without a number of the configuration `WINDOW`, in records of less than ten times as many a
    tenth of the shortest, but never less than the largest lag.

    Raises
    ------
    ValueError
        A number below the largest lag, or records with nothing left to judge.
    """
    default = max(min(WINDOW, shortest // 10), largest_lag, 1)
    window = default if given is None else whole("initialisation_window", given, 1)
    if not largest_lag <= window <= shortest - 2:
        bounds = f"at least the largest lag of narx, {largest_lag}, and leave 2 of {shortest} samples to judge"
        advice = "change it, choose smaller lags, or lengthen validation and test"
        raise UserError(f"initialisation_window={window} must be {bounds}: {advice}")
    return window


def describe_origin(settings: dict[str, Any]) -> dict[str, Any]:
    """Facts of the card on how a folder was made: command line without seed and folders, time,
    versions, commit.
    """
    stamp = provenance()
    versions = ", ".join(
        f"{name} {version}" for name, version in json.loads(stamp["package_versions"]).items()
    )
    made = [("made", stamp["creation_time"]), ("versions", versions)]
    made.append(("source commit", stamp.get("source_commit", "unknown")))
    facts = {"made": table(("", ""), made), "command": "", "needs": ""}
    if HydraConfig.initialized():
        overrides = [
            item
            for item in HydraConfig.get().overrides.task
            if not item.lstrip("+~").startswith(HIDDEN)
        ]
        for source in HydraConfig.get().runtime.config_sources:
            if (
                source.provider == "command-line"
            ):  # the user's own files, relative to where the command ran
                below = Path(os.path.relpath(source.path))
                place = f"path/to/{below.name}" if ".." in below.parts else below.as_posix()
                overrides = ["--config-dir", place, *overrides]
        facts["command"] = shlex.join(["sysid-generate", *overrides])
        modules = {target.rpartition(".")[0] for target in targets_of(settings).values()}
        if foreign := sorted(module for module in modules if module.partition(".")[0] not in OWN):
            names = ", ".join(f"`{module}`" for module in foreign)
            facts["needs"] = f"Run it in the folder from which {names} is imported"
    return facts


def tell(benchmark: Benchmark, target: Path) -> None:
    """Log what came out in a few lines."""
    log.info("%s: %s", type(benchmark.plant.system).__name__, benchmark.count())
    for note in benchmark.notes:
        log.info("Note: %s", note.replace("`", ""))
    seed = benchmark.settings["seed"]
    if seed < GUESSABLE:
        log.info(
            "Note: seed %s can be guessed; to publish without the answer take a secret one of 63 bits",
            seed,
        )
    log.info(
        "Benchmark: %s; next: read CARD.md; python %s/score.py predictions.csv scores a model",
        target,
        target,
    )
