"""The folder of a benchmark, written completely or not at all.

It holds the data, the answer, the card, the scores and the checksums.
"""

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from experiments.cli.config import to_yaml
from experiments.drawing.tables import to_csv
from experiments.generate.benchmark import Benchmark
from experiments.generate.card import fill_card
from sysid import Recordings, StoreError
from sysid.data.source import RECORD_ROLES
from sysid.store import write_bytes, write_groups

SCORE_SCRIPT = Path(__file__).with_name("score.py")
#: first line of configuration.yaml
CONFIGURATION_HEADER = (
    "# This file is part of the answer: with its seed, all records can be made again\n"
)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Create a hidden folder next to `path`, and rename it to `path` when the block ends well.

    If the block raises an error, nothing is left behind.

    Raises
    ------
    StoreError
        At the start, if `path` exists already or cannot be written to. At the end, if the folder
        cannot be renamed. Nothing is left behind.
    """
    path = Path(os.path.abspath(path))
    missing_parents = [folder for folder in path.parents if not folder.exists()]
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        _check_free(path)
        temporary.mkdir(parents=True)
        yield temporary
        _check_free(path)
        os.replace(temporary, path)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        for folder in missing_parents:
            with suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError) and not isinstance(error, StoreError):
            raise StoreError(
                f"could not make the folder {path}: {error.strerror or error}; "
                "choose an output that you may write to; nothing was left behind"
            ) from error
        raise


def _check_free(path: Path) -> None:
    """Raise StoreError if there is a file, or a folder that is not empty, at the path."""
    if not os.path.lexists(path):
        return
    reason = "exists"
    if path.is_dir():
        if not any(path.iterdir()):
            return
        reason = "is a folder with files in it"
    raise StoreError(
        f"output {path} {reason}: nothing is overwritten; choose a new folder, or remove this one"
    )


def write_benchmark(
    benchmark: Benchmark, folder: Path, origin: Mapping[str, str], *, figures: bool
) -> None:
    """Write all files of a benchmark into an empty folder.

    Parameters
    ----------
    benchmark
        Records, scores and settings that are written.
    folder
        An empty folder.
    origin
        Facts of the card on how the benchmark was made.
    figures
        Whether figures are drawn.

    Raises
    ------
    sysid.StoreError
        If a file cannot be written.
    """
    configuration = to_yaml(benchmark.settings)
    _write_data(benchmark, configuration, folder)
    data_checksums = compute_checksums(folder)
    contents = {"benchmark": _describe_benchmark(benchmark), "scores": benchmark.scores}
    for name, content in contents.items():
        text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        write_bytes(text.encode(), folder / f"{name}.json")
    write_bytes((CONFIGURATION_HEADER + configuration).encode(), folder / "configuration.yaml")
    write_bytes(SCORE_SCRIPT.read_bytes(), folder / "score.py")
    if figures:
        from experiments.generate.figures import draw_time_series  # imports matplotlib

        (folder / "figures").mkdir()
        write_bytes(draw_time_series(benchmark), folder / "figures" / "time_series.png")
    card = fill_card(benchmark, origin, data_checksums, figures=figures)
    write_bytes(card.encode(), folder / "CARD.md")
    # The format that `sha256sum -c` reads.
    lines = [f"{digest}  {name}\n" for name, digest in compute_checksums(folder).items()]
    write_bytes("".join(lines).encode(), folder / "checksums.sha256")


def _describe_benchmark(benchmark: Benchmark) -> dict[str, Any]:
    """Return the content of benchmark.json, which score.py reads."""
    system = benchmark.plant.system
    test = benchmark.select("test")
    return {
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
                "n_samples": record.n_samples,
            }
            for record in test
        ],
    }


def _write_data(benchmark: Benchmark, configuration: str, folder: Path) -> None:
    """Write the NetCDF and CSV files.

    The same configuration and packages give the same content and attributes.
    """
    name_and_licence = {"name": benchmark.name, "licence": benchmark.settings["licence"]}
    digest = hashlib.sha256(configuration.encode()).hexdigest()
    attributes = {**name_and_licence, "configuration_sha256": digest}
    plant = benchmark.plant
    measured = {
        role: tuple(record.measured for record in benchmark.select(role)) for role in RECORD_ROLES
    }
    recordings = Recordings(benchmark.name, tuple(plant.inputs), tuple(plant.outputs), **measured)
    public = recordings.to_groups()
    truth = {}
    plans = {}
    for role in RECORD_ROLES:
        records = benchmark.select(role)
        for number, record in enumerate(records):
            key = role if len(records) == 1 else f"{role}/record_{number}"
            truth[key] = record.truth
            if record.decisions is not None:
                plans[key] = record.decisions
    first_narx = next(iter(benchmark.lags.values()))
    regressors = {role: first_narx.dataset(parts) for role, parts in measured.items()}
    write = partial(write_groups, reproducible=True)
    write(public, folder / "benchmark.nc", kind="benchmark", attributes=attributes)
    write(
        truth,
        folder / "truth.nc",
        kind="truth",
        attributes={**attributes, "configuration": configuration},
    )
    write(regressors, folder / "narx.nc", kind="narx", attributes=name_and_licence)
    if plans:
        write(plans, folder / "plan.nc", kind="plan", attributes=name_and_licence)
    tables = {f"csv/{record.name}.csv": record.measured for record in benchmark.records}
    noise_free = [f"{name}_noise_free" for name in plant.outputs]
    for record in benchmark.select("test"):
        tables[f"truth_csv/{record.name}.csv"] = record.truth[noise_free]
    for name, table in tables.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_bytes(to_csv(table.to_dataframe().reset_index()).encode(), folder / name)


def compute_checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of a folder in hexadecimal digits, sorted by name."""
    files = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}
