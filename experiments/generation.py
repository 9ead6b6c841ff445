"""One benchmark folder from end to end: simulate every record, bound what can be reached, score baselines, write."""

import json
import logging
import shlex
from dataclasses import dataclass
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from experiments.automatic import AutomaticNarx
from experiments.benchmark_folder.benchmark import Benchmark
from experiments.benchmark_folder.contest import scores_of
from experiments.benchmark_folder.folder import new_folder
from experiments.benchmark_folder.record import SimulatedRecord
from experiments.benchmark_folder.split import Split, splits_of, whole
from experiments.benchmark_folder.writer import write
from experiments.build import build, build_all
from experiments.plant import Plant, plant_of
from sysid.narx import Narx
from sysid.provenance import provenance

GUESSABLE = 2**32  # seeds below it can be tried one by one

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """Checked values of the configuration."""

    name: str
    licence: str
    transient: int
    window: int
    figures: bool
    splits: tuple[Split, ...]


def run(config: DictConfig, folder: Path) -> float:
    """Write the benchmark folder; returns the free-run noise floor of the first output.

    Parameters
    ----------
    config
        Composed from conf/generate.yaml.
    folder
        Where the benchmark goes, under its name, if the configuration has no `output`.

    Raises
    ------
    ValueError, ArithmeticError, sysid.store.StoreError
        Bad settings, a simulation that diverges, a folder that is there already or cannot be written to. No
        folder is left behind.
    """
    plant = plant_of(config)
    options = options_of(config, plant)
    target = Path(config.output) if config.output else folder / options.name
    with new_folder(target) as place:
        benchmark = benchmark_of(config, plant, options)
        write(benchmark, origin(), place, figures=options.figures)
    tell(benchmark, int(config.seed), target)
    return float(benchmark.scores["free_run"]["noise_floor"][plant.outputs[0]]["rmse"])


def options_of(config: DictConfig, plant: Plant) -> Options:
    """Check what is not an object of its own.

    Raises
    ------
    ValueError
        With the name of the key.
    """
    name = type(plant.system).__name__ if config.name is None else config.name
    for key, text in (("name", name), ("licence", config.licence)):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{key} must be a text that is not empty, got {text!r}; change {key}")
    if "/" in name or name.startswith("."):
        raise ValueError(f"name must be fit for a folder: no '/' and no '.' in front, got {name!r}; change name")
    if not isinstance(config.figures, bool):
        raise ValueError(f"figures must be true or false, got {config.figures!r}")
    if not (config.output is None or (isinstance(config.output, str) and config.output)):
        raise ValueError(f"output must be the name of a folder, or null, got {config.output!r}")
    window = whole("initialisation_window", config.initialisation_window, 1)
    splits = splits_of(config, float(plant.system.dt))
    short = min(split.n_samples for split in splits if split.role != "estimation")
    if window + 2 > short:
        raise ValueError(
            f"initialisation_window={window} leaves nothing to judge of records of {short} samples: lower it, or "
            "lengthen validation and test"
        )
    return Options(name, config.licence, whole("transient", config.transient, 0), window, config.figures, splits)


def benchmark_of(config: DictConfig, plant: Plant, options: Options) -> Benchmark:
    """Simulate the records and score the baselines."""
    baselines = build_all(config, "baseline")
    records = simulated(plant, options)
    narx = narx_of(config, plant, records)
    if options.window < narx.max_lag:
        raise ValueError(
            f"initialisation_window={options.window} must be at least the largest lag of narx, {narx.max_lag}: "
            "raise it, or choose smaller lags"
        )
    return Benchmark(
        name=options.name,
        licence=options.licence,
        records=records,
        narx=narx,
        baselines=baselines,
        scores=scores_of(records, narx, baselines, plant, config.seed),
        settings=OmegaConf.to_container(config, resolve=True),  # type: ignore[arg-type]
    )


def simulated(plant: Plant, options: Options) -> list[SimulatedRecord]:
    """Simulate every record.

    Raises
    ------
    ValueError, ArithmeticError
        What the simulation raises, with the name of the record.
    """
    records = []
    for split in options.splits:
        for name, seed in zip(split.names, split.seeds, strict=True):
            try:
                trajectory = plant.trajectory(options.transient + split.n_samples, seed)
            except (ValueError, ArithmeticError) as error:
                raise type(error)(f"record {name}: {error}") from error
            window = 0 if split.role == "estimation" else options.window
            records.append(SimulatedRecord(name, split.role, trajectory, options.transient, window))
    return records


def narx_of(config: DictConfig, plant: Plant, records: list[SimulatedRecord]) -> Narx:
    """Lags of the configuration, chosen from the dynamics of the plant if it does not name them."""
    narx = build(config, "narx")
    if isinstance(narx, AutomaticNarx):
        first = records[0].trajectory
        narx, report = narx.of_plant(plant, len(first.time), first.seed)
        log.info("Lags chosen: %s", report)
    assert isinstance(narx, Narx)
    return narx


def origin() -> dict[str, str]:
    """Command line without seed and folders, time, versions and commit."""
    stamp = provenance()
    versions = json.loads(stamp["package_versions"])
    found = {
        "made": stamp["creation_time"],
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "source commit": stamp.get("source_commit", "unknown"),
    }
    if not HydraConfig.initialized():
        return found
    hidden = ("seed=", "output=", "hydra.")
    overrides = [item for item in HydraConfig.get().overrides.task if not item.lstrip("+~").startswith(hidden)]
    return {"command": shlex.join(["sysid-generate", *overrides])} | found


def tell(benchmark: Benchmark, seed: int, target: Path) -> None:
    """Log what came out in a few lines."""
    log.info("%s: %s", type(benchmark.system).__name__, benchmark.counts())
    for signal in benchmark.system.outputs:
        reached = {model: found.get(signal.name) for model, found in benchmark.scores["free_run"].items()}
        shown = ", ".join(f"{model} {_short(found['rmse'])}" for model, found in reached.items() if found)
        log.info("Free-run RMSE of %s on the test [%s]: %s", signal.name, signal.unit, shown)
    if seed < GUESSABLE:
        log.info("Note: seed %s can be guessed; to publish without the answer take a secret one of 63 bits", seed)
    log.info("Benchmark: %s", target)


def _short(value: float | None) -> str:
    return "diverges" if value is None else f"{value:.3g}"
