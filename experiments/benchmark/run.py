"""One run of `sysid-benchmark`: run the chosen benchmarks, print one table, write the results."""

import inspect
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import inf
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import DictConfig
from tqdm import tqdm

from experiments.benchmark.command import (
    free_run,
    jobs,
    loop,
    startup,
    sweep,
    thresholds,
)
from experiments.benchmark.control import predictive_control
from experiments.benchmark.designed import informative_input
from experiments.benchmark.dictionary import (
    accuracy,
    memory,
    not_inserted,
    replacement,
    soak,
    textbook,
    update,
)
from experiments.benchmark.exported import exported_c
from experiments.benchmark.gate import gate
from experiments.benchmark.harness import QUICK, Plan, Row, describe, machine, to_frame
from experiments.benchmark.reading import reading
from experiments.benchmark.simulation import limit, monte_carlo, propagation, simulation, store
from experiments.cli.options import MAX_OPTION, choose, flag, seconds, whole
from experiments.cli.progress import doing
from experiments.drawing.tables import to_markdown, to_text
from sysid.arrays import listed, listed_numbers
from sysid.errors import UserError
from sysid.gp.online import MAX_BUDGET
from sysid.store import write_bytes

log = logging.getLogger(__name__)

MODEL_BENCHMARKS = (
    replacement,
    not_inserted,
    update,
    textbook,
    memory,
    accuracy,
    exported_c,
    predictive_control,
    gate,
)
OTHER_BENCHMARKS = (
    simulation,
    limit,
    monte_carlo,
    propagation,
    informative_input,
    store,
    reading,
    loop,
    startup,
    sweep,
    thresholds,
    free_run,
    soak,
    jobs,
)
#: All benchmarks in the order of the table. `purpose_of` reads what each measures.
BENCHMARKS: dict[str, Callable[[Plan], Iterator[Row]]] = {
    function.__name__: function for function in (*MODEL_BENCHMARKS, *OTHER_BENCHMARKS)
}
#: Smallest values of the settings that are whole numbers; 1 for those that are not listed.
SMALLEST_NUMBERS = {
    "budget": 2,
    "jobs": 8,
    "rows": 100,
    "seed": 0,
}
#: Largest values of these settings: larger ones would not fit into memory
LARGEST_NUMBERS = {
    "budget": MAX_BUDGET,
    "jobs": 1_000_000,
    "rows": 20_000_000,
    "soak_samples": 1_000_000_000,
    "stretch": 20_000_000,
    "sweep_seeds": 100_000,
    "trajectories": 1_000_000,
}


@dataclass(frozen=True)
class BenchmarkSettings:
    """What one run measures."""

    names: tuple[str, ...]  # of the benchmarks, in the order of the table
    plan: Plan  # sizes and numbers of all benchmarks
    is_quick: bool  # whether the sizes are too small for the times to mean anything


def run(config: DictConfig, folder: Path) -> None:
    """Run the chosen benchmarks, print one table, write ``benchmark.json`` and ``benchmark.md``.

    Raises
    ------
    ValueError
        A benchmark is unknown, or the settings leave nothing to measure.
    sysid.StoreError
        A file could not be written.
    """
    settings = read_settings(config)
    facts = machine()
    how_long = "a minute or two" if settings.is_quick else "some minutes"
    log.info("Measure %s; this takes %s", ", ".join(settings.names), how_long)
    rows, took = measure(settings)
    if settings.is_quick:
        log.info("quick=true: the times mean nothing, sizes are too small and rounds too few")
    table = to_frame(rows)
    log.info(
        "Results\n\n%s\n\nMachine: %s",
        to_text(table, ["case", "unit", "details"]),
        describe(facts),
    )
    log.info("This took %.0f s. Results: %s", sum(took.values()), folder)
    content = {
        "machine": facts,
        "quick": settings.is_quick,
        "settings": vars(settings.plan),
        "seconds": took,
        "rows": rows,
    }
    write_bytes(
        json.dumps(content, indent=2, allow_nan=False).encode(),
        folder / "benchmark.json",
    )
    write_bytes(write_markdown(settings.names, table, facts).encode(), folder / "benchmark.md")


def read_settings(config: DictConfig) -> BenchmarkSettings:
    """Read and check the configuration.

    Raises
    ------
    ValueError
        A value is wrong; the message names its key.
    """
    names = choose("benchmarks", config.benchmarks, [*BENCHMARKS])
    return BenchmarkSettings(tuple(names), read_plan(config), config.quick)


def read_plan(config: DictConfig) -> Plan:
    """Read the sizes and numbers of all benchmarks; ``quick=true`` replaces the sizes.

    Raises
    ------
    ValueError
        The numbers leave nothing to measure.
    """
    given_sizes = listed(config.sizes, "sizes", "numbers of points")
    sizes = tuple(whole("sizes", size, 2, MAX_BUDGET) for size in given_sizes)
    if len(set(sizes)) < 2:
        raise UserError(
            f"sizes must be at least two different numbers of points, got {list(sizes)}"
        )
    seconds(config.duration)  # raises unless it is a duration
    given: dict[str, Any] = {}
    for field in fields(Plan):
        if field.type is int:
            smallest = SMALLEST_NUMBERS.get(field.name, 1)
            largest = LARGEST_NUMBERS.get(field.name, MAX_OPTION)
            given[field.name] = whole(field.name, config[field.name], smallest, largest)
    given["sizes"] = sizes
    given["duration"] = str(config.duration)
    given["cold"] = not flag("quick", config.quick)
    given["sweep_thresholds"] = _read_thresholds(config.sweep_thresholds)
    plan = Plan(**given)
    return replace(plan, **QUICK) if config.quick else plan


def _read_thresholds(values: Any) -> tuple[float, ...]:
    """Return the error thresholds [K] of the jobs of a sweep; there is at least one."""
    thresholds = listed_numbers(values, "sweep_thresholds")
    if not thresholds or not all(0 <= threshold < inf for threshold in thresholds):
        raise UserError(
            "sweep_thresholds must be one or more finite numbers of at least 0, got "
            f"{list(thresholds)}"
        )
    return thresholds


def measure(settings: BenchmarkSettings) -> tuple[list[Row], dict[str, float]]:
    """Run the benchmarks one after the other.

    Returns
    -------
    rows : list of dict
        Rows of the table.
    took : dict
        Time of each benchmark [s].
    """
    rows = []
    took = {}
    bar = tqdm(settings.names, disable=None, unit="benchmark")
    for name in bar:
        start = time.perf_counter()
        bar.set_postfix_str(name)
        with doing(f"measuring {name}"):
            rows += [{"benchmark": name} | row for row in BENCHMARKS[name](settings.plan)]
        took[name] = time.perf_counter() - start
    return rows, took


def purpose_of(name: str) -> str:
    """Return what a benchmark does: the first paragraph of its docstring as one line."""
    paragraph = inspect.cleandoc(str(BENCHMARKS[name].__doc__)).split("\n\n")[0]
    return " ".join(paragraph.split())


def write_markdown(names: Sequence[str], table: pd.DataFrame, facts: dict[str, Any]) -> str:
    """Return the Markdown text: what each benchmark does, and a table of its rows."""
    purposes = "\n".join(f"- {name}: {purpose_of(name)}" for name in names)
    blocks = [f"# Benchmark\n\n{describe(facts)}; {facts['time']}", purposes]
    for name, part in table.groupby("benchmark", sort=False):
        blocks.append(f"## {name}\n\n{to_markdown(part.drop(columns='benchmark'))}")
    return "\n\n".join(blocks) + "\n"
