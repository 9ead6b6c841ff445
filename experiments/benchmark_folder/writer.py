"""The files of a benchmark folder."""

import hashlib
import json
from pathlib import Path
from typing import Any

from experiments.benchmark_folder.benchmark import Benchmark
from experiments.benchmark_folder.card import Facts, card
from experiments.benchmark_folder.folder import checksums, write_checksums
from experiments.benchmark_folder.table import csv_text
from sysid import Recordings
from sysid.data.source import ROLES
from sysid.store import write_bytes, write_groups

SCORE = Path(__file__).with_name("score.py")
WARNING = "# Belongs to the answer: it holds the seed, and makes all records again\n"


def write(benchmark: Benchmark, origin: dict[str, str], place: Path, *, figures: bool) -> None:
    """Write every file into an empty folder.

    Raises
    ------
    sysid.StoreError
        If a file cannot be written.
    """
    write_data(benchmark, place)
    write_tables(benchmark, place)
    sums = checksums(place)
    write_text(place / "configuration.yaml", WARNING + benchmark.configuration)
    write_text(place / "benchmark.json", _json(about(benchmark)))
    write_text(place / "scores.json", _json(benchmark.scores))
    write_text(place / "score.py", SCORE.read_text(encoding="utf-8"))
    drawn = write_figures(benchmark, place) if figures else ()
    write_text(place / "CARD.md", card(Facts(benchmark, origin, sums, drawn)))
    write_checksums(place)


def write_text(path: Path, text: str) -> None:
    """Write one text file, complete or not at all."""
    write_bytes(text.encode(), path)


def write_data(benchmark: Benchmark, place: Path) -> None:
    """Write the NetCDF files; the same configuration and packages give the same content and attributes."""
    own = {"name": benchmark.name, "licence": benchmark.licence}
    digest = {"configuration_sha256": hashlib.sha256(benchmark.configuration.encode()).hexdigest()}
    measured = {role: tuple(record.measured for record in benchmark.of_role(role)) for role in ROLES}
    system = benchmark.system
    inputs, outputs = (tuple(signal.name for signal in signals) for signals in (system.inputs, system.outputs))
    public = Recordings(benchmark.name, inputs, outputs, **measured).to_groups()
    truth = {key: record.truth for key, record in zip(public, benchmark.records, strict=True)}
    lags = {role: benchmark.lags.first.dataset(found) for role, found in measured.items()}
    for kind, groups, more in (
        ("benchmark", public, digest),
        ("truth", truth, digest | {"configuration": benchmark.configuration}),
        ("narx", lags, {}),
    ):
        write_groups(groups, place / f"{kind}.nc", kind=kind, attributes=own | more, reproducible=True)


def write_tables(benchmark: Benchmark, place: Path) -> None:
    """Write every record as CSV, and the noise-free outputs of the test records apart."""
    for folder in ("csv", "truth_csv"):
        (place / folder).mkdir()
    names = [f"{signal.name}_noise_free" for signal in benchmark.system.outputs]
    for record in benchmark.records:
        write_text(place / "csv" / f"{record.name}.csv", csv_text(record.measured))
    for record in benchmark.of_role("test"):
        write_text(place / "truth_csv" / f"{record.name}.csv", csv_text(record.truth[names]))


def write_figures(benchmark: Benchmark, place: Path) -> tuple[str, ...]:
    """Draw; matplotlib is imported only here. Returns the names of the figures."""
    from experiments.benchmark_folder import figures

    (place / "figures").mkdir()
    drawings = figures.drawings(benchmark)
    for name, draw in drawings.items():
        write_bytes(figures.png(draw()), place / "figures" / f"{name}.png")
    return tuple(drawings)


def about(benchmark: Benchmark) -> dict[str, Any]:
    """Content of benchmark.json: what score.py reads."""
    system = benchmark.system
    return {
        "name": benchmark.name,
        "licence": benchmark.licence,
        "sampling_time_s": float(system.dt),
        "inputs": [{"name": signal.name, "unit": signal.unit} for signal in system.inputs],
        "outputs": [{"name": signal.name, "unit": signal.unit} for signal in system.outputs],
        "initialisation_window": benchmark.window,
        "test": [
            {
                "measured": f"csv/{record.name}.csv",
                "noise_free": f"truth_csv/{record.name}.csv",
                "n_samples": record.n_samples,
            }
            for record in benchmark.of_role("test")
        ],
    }


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
