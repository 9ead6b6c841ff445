"""One benchmark folder from end to end: simulate every record, bound what can be reached, score baselines, write."""

import logging
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from experiments.benchmark_folder.baselines.contestant import labels_of
from experiments.benchmark_folder.benchmark import Benchmark
from experiments.benchmark_folder.contest import scores_of
from experiments.benchmark_folder.folder import new_folder
from experiments.benchmark_folder.lags import Lags, lags_of
from experiments.benchmark_folder.origin import origin
from experiments.benchmark_folder.record import SimulatedRecord
from experiments.benchmark_folder.remark import below_the_floor, nearly_linear
from experiments.benchmark_folder.split import Split, splits_of, whole
from experiments.benchmark_folder.start import Starts, starts_of
from experiments.benchmark_folder.writer import write
from experiments.build import build_all
from experiments.plant import Plant, plant_of

WINDOW = 50  # samples that are not judged, in records that are long enough
GUESSABLE = 2**32  # seeds below it can be tried one by one

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """Checked values of the configuration."""

    name: str
    licence: str
    transient: int
    window: int | None
    noise_paths: int
    figures: bool
    splits: tuple[Split, ...]
    starts: Starts

    @property
    def shortest(self) -> int:
        """Samples of the shortest records that are judged."""
        return min(split.n_samples for split in self.splits if split.role != "estimation")


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
    ValueError, ArithmeticError, sysid.StoreError
        Bad settings, a simulation that diverges, a folder that is there already or cannot be written to. No
        folder is left behind.
    """
    plant = plant_of(config)
    options = options_of(config, plant)
    target = Path(config.output) if config.output else folder / options.name
    with new_folder(target) as place:
        benchmark = benchmark_of(config, plant, options)
        write(benchmark, origin(benchmark.settings), place, figures=options.figures)
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
    window = config.initialisation_window
    return Options(
        name=name,
        licence=config.licence,
        transient=whole("transient", config.transient, 0),
        window=None if window is None else whole("initialisation_window", window, 1),
        noise_paths=whole("noise_paths", config.noise_paths, 4),
        figures=config.figures,
        splits=splits_of(config, float(plant.system.dt)),
        starts=starts_of(config, plant.system),
    )


def benchmark_of(config: DictConfig, plant: Plant, options: Options) -> Benchmark:
    """Simulate the records and score the baselines."""
    baselines = build_all(config, "baseline")
    lags = lags_of(config, plant, options.splits[0])
    records = simulated(plant, options, window_of(options, lags))
    scores = scores_of(records, lags, baselines, plant, seed=config.seed, noise_paths=options.noise_paths)
    remarks = nearly_linear(scores, baselines) + lags.left_out
    remarks += below_the_floor(scores, labels_of(baselines), is_open_loop=plant.is_open_loop)
    return Benchmark(
        name=options.name,
        licence=options.licence,
        plant=plant,
        starts=options.starts,
        records=records,
        lags=lags,
        baselines=baselines,
        noise_paths=options.noise_paths,
        scores=scores,
        remarks=remarks,
        settings=OmegaConf.to_container(config, resolve=True),  # type: ignore[arg-type]
    )


def window_of(options: Options, lags: Lags) -> int:
    """Samples at the start of validation and test records that are not judged.

    Without a number of the configuration `WINDOW`, in records of less than ten times as many a tenth of the
    shortest, but never less than the largest lag.

    Raises
    ------
    ValueError
        A number below the largest lag, or records with nothing left to judge.
    """
    window = options.window
    if window is None:
        window = max(min(WINDOW, options.shortest // 10), lags.largest, 1)
    if window < lags.largest:
        raise ValueError(
            f"initialisation_window={window} must be at least the largest lag of narx, {lags.largest}: "
            "raise it, or choose smaller lags"
        )
    if window + 2 > options.shortest:
        raise ValueError(
            f"initialisation_window={window} leaves nothing to judge of records of {options.shortest} samples: lower "
            "it, or lengthen validation and test"
        )
    return window


def simulated(plant: Plant, options: Options, window: int) -> list[SimulatedRecord]:
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
                start = options.starts.draw(seed)
                trajectory = plant.trajectory(split.n_samples, seed, transient=options.transient, initial_state=start)
            except (ValueError, ArithmeticError) as error:
                raise type(error)(f"record {name}: {error}") from error
            shown = 0 if split.role == "estimation" else window
            records.append(SimulatedRecord(name, split.role, trajectory, options.transient, shown))
    return records


def tell(benchmark: Benchmark, seed: int, target: Path) -> None:
    """Log what came out in a few lines."""
    log.info("%s: %s", type(benchmark.system).__name__, benchmark.counts())
    for signal in benchmark.system.outputs:
        found = benchmark.scores["free_run"].items()
        reached = {benchmark.label(model): values[signal.name] for model, values in found if signal.name in values}
        shown = ", ".join(f"{label} {_short(value['rmse'])}" for label, value in reached.items())
        log.info("Free-run RMSE of %s on the test [%s]: %s", signal.name, signal.unit, shown)
    for remark in benchmark.remarks:
        log.info("Note: %s", remark.replace("`", ""))
    if seed < GUESSABLE:
        log.info("Note: seed %s can be guessed; to publish without the answer take a secret one of 63 bits", seed)
    log.info("Benchmark: %s", target)


def _short(value: float | None) -> str:
    return "diverges" if value is None else f"{value:.3g}"
