"""The folder of a benchmark: made as a whole or not at all, with data, answer, card, scores and
checksums.
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

from experiments.cli.config import to_yaml
from experiments.drawing.tables import to_csv
from experiments.generate.benchmark import Benchmark
from experiments.generate.card import fill_card
from sysid import Recordings, StoreError
from sysid.data.source import RECORD_ROLES
from sysid.store import write_bytes, write_groups

SCORE = Path(__file__).with_name("score.py")
WARNING = "# Belongs to the answer: it holds the seed, and makes all records again\n"


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Hand out a hidden folder next to the final one; it gets the final name when the block ends
    well.

    Raises
    ------
    StoreError
        At once, if there is something under the final name already or the place cannot be written
        to; at the end, if the folder cannot get its name. In every case, and after any other error,
        nothing is left.
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
            raise StoreError(
                f"could not make the folder {path}: {error.strerror or error}; {advice}"
            ) from error
        raise


def _check_free(path: Path) -> None:
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        what = "is a folder with files in it" if path.is_dir() else "exists"
        raise StoreError(
            f"output {path} {what}: nothing is overwritten; choose a new folder, or remove this one"
        )


def write_benchmark(
    benchmark: Benchmark, place: Path, origin: Mapping[str, str], *, figures: bool
) -> None:
    """Write every file into an empty folder.

    Parameters
    ----------
    benchmark
        What is written.
    place
        The folder.
    origin
        Facts of the card on how the benchmark was made.
    figures
        Whether figures are drawn.

    Raises
    ------
    sysid.StoreError
        If a file cannot be written.
    """
    system = benchmark.plant.system
    test = benchmark.select("test")
    configuration = to_yaml(benchmark.settings)
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
            {
                "measured": f"csv/{one.name}.csv",
                "noise_free": f"truth_csv/{one.name}.csv",
                "n_samples": one.n_samples,
            }
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
    card = fill_card(benchmark, origin, sums, figures=figures)
    write_bytes(card.encode(), place / "CARD.md")
    lines = "".join(f"{digest}  {name}\n" for name, digest in compute_checksums(place).items())
    write_bytes(lines.encode(), place / "checksums.sha256")  # as `sha256sum -c` reads it


def _write_data(benchmark: Benchmark, configuration: str, place: Path) -> None:
    """Write NetCDF and CSV files; the same configuration and packages give the same content and
    attributes.
    """
    own = {"name": benchmark.name, "licence": benchmark.settings["licence"]}
    digest = {
        **own,
        "configuration_sha256": hashlib.sha256(configuration.encode()).hexdigest(),
    }
    measured = {
        role: tuple(record.measured for record in benchmark.select(role)) for role in RECORD_ROLES
    }
    plant = benchmark.plant
    public = Recordings(
        benchmark.name, tuple(plant.inputs), tuple(plant.outputs), **measured
    ).to_groups()
    truth = {key: record.truth for key, record in zip(public, benchmark.records, strict=True)}
    lags = {
        role: next(iter(benchmark.lags.values())).dataset(records)
        for role, records in measured.items()
    }
    write = partial(write_groups, reproducible=True)
    write(public, place / "benchmark.nc", kind="benchmark", attributes=digest)
    write(
        truth,
        place / "truth.nc",
        kind="truth",
        attributes={**digest, "configuration": configuration},
    )
    write(lags, place / "narx.nc", kind="narx", attributes=own)
    tables = {f"csv/{record.name}.csv": record.measured for record in benchmark.records}
    clean = [f"{name}_noise_free" for name in plant.outputs]
    tables |= {
        f"truth_csv/{record.name}.csv": record.truth[clean] for record in benchmark.select("test")
    }
    for name, record in tables.items():
        (place / name).parent.mkdir(exist_ok=True)
        write_bytes(to_csv(record.to_dataframe().reset_index()).encode(), place / name)


def compute_checksums(folder: Path) -> dict[str, str]:
    """SHA-256 in hexadecimal digits of every file of a folder, sorted by name."""
    files = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}
