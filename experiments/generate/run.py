"""One benchmark folder from end to end: simulate every record, bound what can be reached, score baselines, write."""

import hashlib
import json
import logging
import os
import secrets
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from experiments.cli.build import build_all, check_trusted, targets_of, trusted_names
from experiments.cli.config import CONF
from experiments.cli.options import flag, whole
from experiments.cli.progress import doing
from experiments.drawing.tables import to_csv
from experiments.files.outputs import is_multirun
from experiments.generate.baselines import choose_lags, score_models
from experiments.generate.benchmark import Benchmark, plan_records, read_ranges, simulate_record
from experiments.generate.card import fill_card, table
from experiments.plant.plant import Plant, plant_of, warn_of_integration
from sysid import Recordings, StoreError
from sysid.data.source import ROLES
from sysid.errors import UserError
from sysid.store import provenance, write_bytes, write_groups

WINDOW = 50  # samples that are not judged, in records that are long enough
GUESSABLE = 2**32  # seeds below it can be tried one by one
NOT_STORED = ("output", "figures", "trusted")  # keys that are no part of what makes the data
SCORE = Path(__file__).with_name("score.py")
WARNING = "# Belongs to the answer: it holds the seed, and makes all records again\n"
HIDDEN = ("seed=", "output=", "trusted=", "hydra.")  # overrides that tell the answer, or folders of this machine
OWN = {"simulators", "sysid", "experiments"}

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
    config = cast(DictConfig, OmegaConf.merge({"output": None, "figures": True}, config))  # a kept one lacks them
    settings = cast(dict[str, Any], OmegaConf.to_container(config, resolve=True))
    if not starts_from_package():
        given = HydraConfig.get().overrides.task if HydraConfig.initialized() else []
        by_command = any(item.lstrip("+").startswith("trusted=") for item in given)  # a file cannot trust itself
        check_trusted(settings, [*trusted, *(trusted_names(config) if by_command else [])])
    plant = plant_of(config)
    name = type(plant.system).__name__ if config.name is None else config.name
    check_options(config, name)
    target = Path(config.output) if config.output else folder / name
    if not is_multirun():
        log.info("Generate a benchmark of %s: records, noise floor, baselines; takes seconds to some minutes", name)
    with new_folder(target) as place:
        stored = {key: value for key, value in settings.items() if key not in NOT_STORED}
        benchmark = make_benchmark(config, name, plant, stored)
        with doing("writing files and figures"):
            write_benchmark(benchmark, place, figures=config.figures)
    tell(benchmark, target)
    return float(benchmark.scores["free_run"]["noise_floor"][plant.outputs[0]]["rmse"])


def starts_from_package() -> bool:
    """Whether the command composes its configuration from ours: what else it names stands on its command line."""
    if not HydraConfig.initialized() or HydraConfig.get().job.config_name != "generate":
        return False
    main = [source.path for source in HydraConfig.get().runtime.config_sources if source.provider == "main"]
    return main == [str(CONF)]


def check_options(config: DictConfig, name: Any) -> None:
    """Check what is not an object of its own.

    Raises
    ------
    ValueError
        With the name of the key.
    """
    texts = {"name": name, "licence": config.licence} | ({} if config.output is None else {"output": config.output})
    for key, text in texts.items():
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"{key} must be a text that is not empty, got {text!r}; change {key}")
    if "/" in name or name.startswith("."):
        raise UserError(f"name must be fit for a folder: no '/' and no '.' in front, got {name!r}; change name")
    flag("figures", config.figures)
    whole("transient", config.transient, 0)
    whole("noise_paths", config.noise_paths, 4)


def make_benchmark(config: DictConfig, name: str, plant: Plant, settings: dict[str, Any]) -> Benchmark:
    """Simulate the records and score the baselines."""
    plans = plan_records(config, float(plant.system.dt))
    ranges = read_ranges(config.initial_states, plant.system)
    baselines = build_all(config, "baseline")
    with doing("choosing the lags"):
        lags, notes = choose_lags(config, plant, plans[0].n_samples, plans[0].seed)
    shortest = min(plan.n_samples for plan in plans if plan.role != "estimation")
    window = choose_window(config.initialisation_window, shortest, max(narx.max_lag for narx in lags.values()))
    with doing("simulating"):
        records = [simulate_record(plan, plant, ranges, transient=config.transient, window=window) for plan in plans]
    notes += warn_of_integration([record.trajectory for record in records])
    with doing("computing the noise floor and the baselines"):
        scores = score_models(records, lags, baselines, plant, seed=config.seed, noise_paths=config.noise_paths)
    return Benchmark(name, settings, plant, ranges, records, lags, baselines, scores, notes)


def choose_window(given: int | None, shortest: int, largest_lag: int) -> int:
    """Choose how many samples at the start of validation and test records are not judged.

    Without a number of the configuration `WINDOW`, in records of less than ten times as many a tenth of the
    shortest, but never less than the largest lag.

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


def tell(benchmark: Benchmark, target: Path) -> None:
    """Log what came out in a few lines."""
    log.info("%s: %s", type(benchmark.plant.system).__name__, benchmark.count())
    for note in benchmark.notes:
        log.info("Note: %s", note.replace("`", ""))
    seed = benchmark.settings["seed"]
    if seed < GUESSABLE:
        log.info("Note: seed %s can be guessed; to publish without the answer take a secret one of 63 bits", seed)
    log.info("Benchmark: %s; next: read CARD.md; python %s/score.py predictions.csv scores a model", target, target)


# --- the folder -----------------------------------------------------------------------------------


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Hand out a hidden folder next to the final one; it gets the final name when the block ends well.

    Raises
    ------
    StoreError
        At once, if there is something under the final name already or the place cannot be written to; at the
        end, if the folder cannot get its name. In every case, and after any other error, nothing is left.
    """
    path = Path(os.path.abspath(path))
    made = [folder for folder in path.parents if not folder.exists()]
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        _check_free(path)
        temporary.mkdir(parents=True)
        yield temporary
        _check_free(path)
        os.replace(temporary, path)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError) and not isinstance(error, StoreError):
            advice = "choose an output that you may write to; nothing was left behind"
            raise StoreError(f"could not make the folder {path}: {error.strerror or error}; {advice}") from error
        raise


def _check_free(path: Path) -> None:
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        what = "is a folder with files in it" if path.is_dir() else "exists"
        raise StoreError(f"output {path} {what}: nothing is overwritten; choose a new folder, or remove this one")


def write_benchmark(benchmark: Benchmark, place: Path, *, figures: bool) -> None:
    """Write every file into an empty folder.

    Raises
    ------
    sysid.StoreError
        If a file cannot be written.
    """
    system, test = benchmark.plant.system, benchmark.select("test")
    configuration = OmegaConf.to_yaml(benchmark.settings)
    _write_data(benchmark, configuration, place)
    sums = compute_checksums(place)
    about = {
        "name": benchmark.name,
        "licence": benchmark.settings["licence"],
        "sampling_time_s": float(system.dt),
        "inputs": [{"name": signal.name, "unit": signal.unit} for signal in system.inputs],
        "outputs": [{"name": signal.name, "unit": signal.unit} for signal in system.outputs],
        "initialisation_window": test[0].window,
        "test": [
            {"measured": f"csv/{one.name}.csv", "noise_free": f"truth_csv/{one.name}.csv", "n_samples": one.n_samples}
            for one in test
        ],
    }
    for name, content in (("benchmark", about), ("scores", benchmark.scores)):
        text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        write_bytes(text.encode(), place / f"{name}.json")
    write_bytes((WARNING + configuration).encode(), place / "configuration.yaml")
    write_bytes(SCORE.read_bytes(), place / "score.py")
    if figures:
        from experiments.generate.figures import draw_time_series  # imports matplotlib

        (place / "figures").mkdir()
        write_bytes(draw_time_series(benchmark), place / "figures" / "time_series.png")
    card = fill_card(benchmark, describe_origin(benchmark.settings), sums, figures=figures)
    write_bytes(card.encode(), place / "CARD.md")
    lines = "".join(f"{digest}  {name}\n" for name, digest in compute_checksums(place).items())
    write_bytes(lines.encode(), place / "checksums.sha256")  # as `sha256sum -c` reads it


def _write_data(benchmark: Benchmark, configuration: str, place: Path) -> None:
    """Write NetCDF and CSV files; the same configuration and packages give the same content and attributes."""
    own = {"name": benchmark.name, "licence": benchmark.settings["licence"]}
    digest = {**own, "configuration_sha256": hashlib.sha256(configuration.encode()).hexdigest()}
    measured = {role: tuple(record.measured for record in benchmark.select(role)) for role in ROLES}
    plant = benchmark.plant
    public = Recordings(benchmark.name, tuple(plant.inputs), tuple(plant.outputs), **measured).to_groups()
    truth = {key: record.truth for key, record in zip(public, benchmark.records, strict=True)}
    lags = {role: next(iter(benchmark.lags.values())).dataset(records) for role, records in measured.items()}
    write = partial(write_groups, reproducible=True)
    write(public, place / "benchmark.nc", kind="benchmark", attributes=digest)
    write(truth, place / "truth.nc", kind="truth", attributes={**digest, "configuration": configuration})
    write(lags, place / "narx.nc", kind="narx", attributes=own)
    tables = {f"csv/{record.name}.csv": record.measured for record in benchmark.records}
    clean = [f"{name}_noise_free" for name in plant.outputs]
    tables |= {f"truth_csv/{record.name}.csv": record.truth[clean] for record in benchmark.select("test")}
    for name, record in tables.items():
        (place / name).parent.mkdir(exist_ok=True)
        write_bytes(to_csv(record.to_dataframe().reset_index()).encode(), place / name)


def compute_checksums(folder: Path) -> dict[str, str]:
    """SHA-256 in hexadecimal digits of every file of a folder, sorted by name."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}


def describe_origin(settings: dict[str, Any]) -> dict[str, Any]:
    """Facts of the card on how a folder was made: command line without seed and folders, time, versions, commit."""
    stamp = provenance()
    versions = ", ".join(f"{name} {version}" for name, version in json.loads(stamp["package_versions"]).items())
    made = [("made", stamp["creation_time"]), ("versions", versions)]
    made.append(("source commit", stamp.get("source_commit", "unknown")))
    facts = {"made": table(("", ""), made), "command": "", "needs": ""}
    if HydraConfig.initialized():
        overrides = [item for item in HydraConfig.get().overrides.task if not item.lstrip("+~").startswith(HIDDEN)]
        for source in HydraConfig.get().runtime.config_sources:
            if source.provider == "command-line":  # the user's own files, relative to where the command ran
                below = Path(os.path.relpath(source.path))
                place = f"path/to/{below.name}" if ".." in below.parts else below.as_posix()
                overrides = ["--config-dir", place, *overrides]
        facts["command"] = shlex.join(["sysid-generate", *overrides])
        modules = {target.rpartition(".")[0] for target in targets_of(settings).values()}
        if foreign := sorted(module for module in modules if module.partition(".")[0] not in OWN):
            names = ", ".join(f"`{module}`" for module in foreign)
            facts["needs"] = f"Run it in the folder from which {names} is imported"
    return facts
