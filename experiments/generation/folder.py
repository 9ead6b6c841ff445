"""The folder of a benchmark: it appears complete or not at all; its files, their checksums, how it was made."""

import hashlib
import json
import os
import secrets
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from experiments.build import targets_of
from experiments.generation.benchmark import Benchmark
from experiments.generation.card import fill_card, table
from experiments.plots.frames import to_csv
from sysid import Recordings, StoreError
from sysid.data.source import ROLES
from sysid.store import provenance, write_bytes, write_groups

SCORE = Path(__file__).with_name("score.py")
WARNING = "# Belongs to the answer: it holds the seed, and makes all records again\n"
HIDDEN = ("seed=", "output=", "trusted=", "hydra.")  # overrides that tell the answer, or folders of this machine
OWN = {"simulators", "sysid", "experiments"}


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
    _check_free(path)
    made = [folder for folder in path.parents if not folder.exists()]
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        _check_free(path)
        os.replace(temporary, path)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        for folder in made:
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, StoreError) or not isinstance(error, OSError):
            raise
        raise StoreError(
            f"could not make the folder {path}: {error.strerror or error}; choose an output that you may "
            "write to; nothing was left behind"
        ) from error


def _check_free(path: Path) -> None:
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.exists() or path.is_symlink():
        what = "is a folder with files in it" if path.is_dir() else "exists"
        raise StoreError(f"output {path} {what}: nothing is overwritten; choose a new folder, or remove this one")


def write_benchmark(benchmark: Benchmark, place: Path, *, figures: bool) -> None:
    """Write every file into an empty folder.

    Raises
    ------
    sysid.StoreError
        If a file cannot be written.
    """
    system, test = benchmark.system, benchmark.select("test")
    configuration = OmegaConf.to_yaml(OmegaConf.create(benchmark.settings))
    _write_data(benchmark, configuration, place)
    for folder in ("csv", "truth_csv"):
        (place / folder).mkdir()
    for record in benchmark.records:
        _write_text(to_csv(record.measured.to_dataframe().reset_index()), place / "csv" / f"{record.name}.csv")
    for record in test:
        clean = record.truth[[f"{signal.name}_noise_free" for signal in system.outputs]]
        _write_text(to_csv(clean.to_dataframe().reset_index()), place / "truth_csv" / f"{record.name}.csv")
    sums = compute_checksums(place)
    about = {
        "name": benchmark.name,
        "licence": benchmark.settings["licence"],
        "sampling_time_s": float(system.dt),
        "inputs": [{"name": signal.name, "unit": signal.unit} for signal in system.inputs],
        "outputs": [{"name": signal.name, "unit": signal.unit} for signal in system.outputs],
        "initialisation_window": test[0].window,
        "test": [
            {
                "measured": f"csv/{record.name}.csv",
                "noise_free": f"truth_csv/{record.name}.csv",
                "n_samples": record.measured.sizes["time"],
            }
            for record in test
        ],
    }
    for name, content in (("benchmark", about), ("scores", benchmark.scores)):
        text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        _write_text(text, place / f"{name}.json")
    _write_text(WARNING + configuration, place / "configuration.yaml")
    _write_text(SCORE.read_text(encoding="utf-8"), place / "score.py")
    if figures:
        from experiments.generation.figures import draw  # imports matplotlib

        (place / "figures").mkdir()
        for name, picture in draw(benchmark).items():
            write_bytes(picture, place / "figures" / f"{name}.png")
    _write_text(fill_card(benchmark, describe_origin(benchmark.settings), sums, figures=figures), place / "CARD.md")
    lines = [f"{digest}  {name}\n" for name, digest in compute_checksums(place).items()]
    _write_text("".join(lines), place / "checksums.sha256")  # as `sha256sum -c` reads it


def _write_text(text: str, path: Path) -> None:
    write_bytes(text.encode(), path)


def _write_data(benchmark: Benchmark, configuration: str, place: Path) -> None:
    """Write the NetCDF files; the same configuration and packages give the same content and attributes."""
    own = {"name": benchmark.name, "licence": benchmark.settings["licence"]}
    digest = {"configuration_sha256": hashlib.sha256(configuration.encode()).hexdigest()}
    measured = {role: tuple(record.measured for record in benchmark.select(role)) for role in ROLES}
    inputs, outputs = tuple(benchmark.plant.inputs), tuple(benchmark.plant.outputs)
    public = Recordings(benchmark.name, inputs, outputs, **measured).to_groups()
    truth = {key: record.truth for key, record in zip(public, benchmark.records, strict=True)}
    narx = next(iter(benchmark.lags.values()))
    lags = {role: narx.dataset(records) for role, records in measured.items()}
    for kind, groups, more in (
        ("benchmark", public, digest),
        ("truth", truth, digest | {"configuration": configuration}),
        ("narx", lags, {}),
    ):
        write_groups(groups, place / f"{kind}.nc", kind=kind, attributes=own | more, reproducible=True)


def compute_checksums(folder: Path) -> dict[str, str]:
    """SHA-256 in hexadecimal digits of every file of a folder, sorted by name."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}


def describe_origin(settings: dict[str, Any]) -> dict[str, Any]:
    """Facts of the card on how a folder was made: command line without seed and folders, time, versions, commit."""
    stamp = provenance()
    versions = json.loads(stamp["package_versions"])
    made = {
        "made": stamp["creation_time"],
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "source commit": stamp.get("source_commit", "unknown"),
    }
    facts = {"made": table(("", ""), made.items()), "command": "", "needs": ""}
    if HydraConfig.initialized():
        overrides = [item for item in HydraConfig.get().overrides.task if not item.lstrip("+~").startswith(HIDDEN)]
        facts["command"] = shlex.join(["sysid-generate", *_name_config_dir(), *overrides])
        modules = {target.rpartition(".")[0] for target in targets_of(settings).values()}
        if foreign := sorted(module for module in modules if module.partition(".")[0] not in OWN):
            names = ", ".join(f"`{module}`" for module in foreign)
            facts["needs"] = f"Run it in the folder from which {names} is imported"
    return facts


def _name_config_dir() -> list[str]:
    """Folder of the user's configuration files as an option, relative to where the command ran if it lies below."""
    for source in HydraConfig.get().runtime.config_sources:
        if source.provider == "command-line":
            below = Path(os.path.relpath(source.path))
            return ["--config-dir", below.as_posix() if ".." not in below.parts else f"path/to/{below.name}"]
    return []
