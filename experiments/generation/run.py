"""One benchmark folder from end to end: simulate every record, bound what can be reached, score baselines, write."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from experiments.build import build_all, check_trusted, trusted_names
from experiments.generation.baselines import choose_lags, label_baselines, note_scores, score_models
from experiments.generation.benchmark import Benchmark, plan_records, read_ranges, simulate_records
from experiments.generation.card import read_summary
from experiments.generation.folder import new_folder, write_benchmark
from experiments.launch import CONF
from experiments.options import flag, whole
from experiments.plant import Plant, plant_of

WINDOW = 50  # samples that are not judged, in records that are long enough
GUESSABLE = 2**32  # seeds below it can be tried one by one
NOT_STORED = ("output", "figures", "trusted")  # keys that are no part of what makes the data

log = logging.getLogger(__name__)


def run(config: DictConfig, folder: Path, *, trusted: Sequence[str] = ()) -> float:
    """Write the benchmark folder; returns the free-run noise floor of the first output.

    Parameters
    ----------
    config
        Composed from conf/generate.yaml, or the `configuration.yaml` of a benchmark folder.
    folder
        Where the benchmark goes, under its name, if the configuration has no `output`.
    trusted
        Modules and classes that the configuration may name besides those of the toolbox. Not needed on the command
        line, unless it starts from a file that somebody else may have written.

    Raises
    ------
    ValueError, ArithmeticError, sysid.StoreError
        Bad settings, a simulation that diverges, a folder that is there already or cannot be written to. No
        folder is left behind.
    """
    merged = OmegaConf.merge({"output": None, "figures": True}, config)  # a kept configuration does not have them
    settings = OmegaConf.to_container(merged, resolve=True)
    assert isinstance(merged, DictConfig)
    assert isinstance(settings, dict)
    config = merged
    if not starts_from_package():
        check_trusted(settings, [*trusted, *trusted_by_command(config)])
    plant = plant_of(config)
    name = type(plant.system).__name__ if config.name is None else config.name
    check_options(config, name)
    target = Path(config.output) if config.output else folder / name
    with new_folder(target) as place:
        stored = {str(key): value for key, value in settings.items() if key not in NOT_STORED}
        benchmark = make_benchmark(config, name, plant, stored)
        write_benchmark(benchmark, place, figures=config.figures)
    tell(benchmark, target)
    return float(benchmark.scores["free_run"]["noise_floor"][plant.outputs[0]]["rmse"])


def starts_from_package() -> bool:
    """Whether the command composes its configuration from ours: what else it names stands on its command line."""
    if not HydraConfig.initialized() or HydraConfig.get().job.config_name != "generate":
        return False
    main = [source.path for source in HydraConfig.get().runtime.config_sources if source.provider == "main"]
    return main == [str(CONF)]


def trusted_by_command(config: DictConfig) -> list[str]:
    """Modules and classes that the command line trusts; a file cannot trust itself."""
    given = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
    return trusted_names(config) if any(item.lstrip("+").startswith("trusted=") for item in given) else []


def check_options(config: DictConfig, name: Any) -> None:
    """Check what is not an object of its own.

    Raises
    ------
    ValueError
        With the name of the key.
    """
    for key, text in (("name", name), ("licence", config.licence)):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{key} must be a text that is not empty, got {text!r}; change {key}")
    if "/" in name or name.startswith("."):
        raise ValueError(f"name must be fit for a folder: no '/' and no '.' in front, got {name!r}; change name")
    flag("figures", config.figures)
    if not (config.output is None or (isinstance(config.output, str) and config.output)):
        raise ValueError(f"output must be the name of a folder, or null, got {config.output!r}")
    whole("transient", config.transient, 0)
    whole("noise_paths", config.noise_paths, 4)
    if config.initialisation_window is not None:
        whole("initialisation_window", config.initialisation_window, 1)


def make_benchmark(config: DictConfig, name: str, plant: Plant, settings: dict[str, Any]) -> Benchmark:
    """Simulate the records and score the baselines."""
    plans = plan_records(config, float(plant.system.dt))
    ranges = read_ranges(config.initial_states, plant.system)
    baselines = build_all(config, "baseline")
    lags, notes = choose_lags(config, plant, plans[0].n_samples, plans[0].seed)
    shortest = min(plan.n_samples for plan in plans if plan.role != "estimation")
    window = choose_window(config.initialisation_window, shortest, max(narx.max_lag for narx in lags.values()))
    records = simulate_records(plans, plant, ranges, transient=config.transient, window=window)
    scores = score_models(records, lags, baselines, plant, seed=config.seed, noise_paths=config.noise_paths)
    return Benchmark(
        name=name,
        settings=settings,
        plant=plant,
        ranges=ranges,
        records=records,
        lags=lags,
        labels=label_baselines(baselines),
        meanings={key: read_summary(baseline) for key, baseline in baselines.items()},
        scores=scores,
        notes=[*notes, *note_scores(scores, baselines, is_open_loop=plant.is_open_loop)],
    )


def choose_window(given: int | None, shortest: int, largest_lag: int) -> int:
    """Samples at the start of validation and test records that are not judged.

    Without a number of the configuration `WINDOW`, in records of less than ten times as many a tenth of the
    shortest, but never less than the largest lag.

    Raises
    ------
    ValueError
        A number below the largest lag, or records with nothing left to judge.
    """
    window = max(min(WINDOW, shortest // 10), largest_lag, 1) if given is None else given
    if window < largest_lag:
        raise ValueError(
            f"initialisation_window={window} must be at least the largest lag of narx, {largest_lag}: "
            "raise it, or choose smaller lags"
        )
    if window + 2 > shortest:
        raise ValueError(
            f"initialisation_window={window} leaves nothing to judge of records of {shortest} samples: lower "
            "it, or lengthen validation and test"
        )
    return window


def tell(benchmark: Benchmark, target: Path) -> None:
    """Log what came out in a few lines."""
    log.info("%s: %s", type(benchmark.system).__name__, benchmark.count())
    for name, unit, _ in benchmark.system.outputs:
        reached = []
        for key, scores in benchmark.scores["free_run"].items():
            if name in scores:
                rmse = scores[name]["rmse"]
                reached.append(f"{benchmark.labels[key]} {'diverges' if rmse is None else format(rmse, '.3g')}")
        log.info("Free-run RMSE of %s on the test [%s]: %s", name, unit, ", ".join(reached))
    for note in benchmark.notes:
        log.info("Note: %s", note.replace("`", ""))
    seed = benchmark.settings["seed"]
    if seed < GUESSABLE:
        log.info("Note: seed %s can be guessed; to publish without the answer take a secret one of 63 bits", seed)
    log.info("Benchmark: %s", target)
