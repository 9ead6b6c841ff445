"""One run of `sysid-benchmark`: run the chosen benchmarks, print one table, write the results."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
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
from experiments.benchmark.dictionary import (
    accuracy,
    memory,
    not_inserted,
    replacement,
    soak,
    textbook,
    update,
)
from experiments.benchmark.harness import QUICK, Plan, Row, describe, machine, to_frame
from experiments.benchmark.simulation import monte_carlo, propagation, simulation, store
from experiments.cli.options import choose, flag, seconds, whole
from experiments.cli.progress import doing
from experiments.drawing.tables import to_markdown, to_text
from sysid.arrays import listed, listed_numbers
from sysid.errors import UserError
from sysid.store import write_bytes

log = logging.getLogger(__name__)

MODELS = (replacement, not_inserted, update, textbook, memory, accuracy)
RUNS = (
    simulation,
    monte_carlo,
    propagation,
    store,
    loop,
    startup,
    sweep,
    thresholds,
    free_run,
    soak,
    jobs,
)
#: in the order of the table; the first line of each docstring is its line in ``benchmark.md``
BENCHMARKS: dict[str, Callable[[Plan], Iterator[Row]]] = {
    function.__name__: function for function in (*MODELS, *RUNS)
}


LEAST = {
    "budget": 2,
    "jobs": 8,
    "seed": 0,
}  # of settings that are whole numbers; others: 1


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
        An unknown benchmark, or settings that leave nothing to measure.
    sysid.StoreError
        A file could not be written.
    """
    settings = read_settings(config)
    facts = machine()
    how_long = "a minute or two" if settings.is_quick else "some minutes"
    log.info("Measure %s; takes %s", ", ".join(settings.names), how_long)
    rows, took = measure(settings)
    if settings.is_quick:
        log.info("quick=true: sizes too small and rounds too few for the times to mean anything")
    table = to_frame(rows)
    log.info(
        "Results\n\n%s\n\nMachine: %s",
        to_text(table, ["case", "unit", "details"]),
        describe(facts),
    )
    log.info("Took %.0f s. Results: %s", sum(took.values()), folder)
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
        With the name of the key.
    """
    names = choose("benchmarks", config.benchmarks, [*BENCHMARKS])
    return BenchmarkSettings(tuple(names), read_plan(config), config.quick)


def read_plan(config: DictConfig) -> Plan:
    """Read the sizes and numbers of all benchmarks; `quick` replaces the sizes.

    Raises
    ------
    ValueError
        Numbers that leave nothing to measure.
    """
    sizes = tuple(
        whole("sizes", size, 2) for size in listed(config.sizes, "sizes", "numbers of points")
    )
    if len(set(sizes)) < 2:
        raise UserError(
            f"sizes must be at least two different numbers of points, got {list(sizes)}"
        )
    seconds(config.duration)
    numbers = [one.name for one in fields(Plan) if one.type is int]
    given: dict[str, Any] = {
        name: whole(name, config[name], LEAST.get(name, 1)) for name in numbers
    }
    given |= {
        "sizes": sizes,
        "duration": str(config.duration),
        "cold": not flag("quick", config.quick),
    }
    given["sweep_thresholds"] = listed_numbers(config.sweep_thresholds, "sweep_thresholds")
    plan = Plan(**given)
    return replace(plan, **QUICK) if config.quick else plan


def measure(settings: BenchmarkSettings) -> tuple[list[Row], dict[str, float]]:
    """Run the benchmarks one after the other; returns the rows of the table and the time of each
    benchmark [s].
    """
    rows = []
    took = {}
    for name in (bar := tqdm(settings.names, disable=None, unit="benchmark")):
        start = time.perf_counter()
        bar.set_postfix_str(name)
        with doing(f"measuring {name}"):
            rows += [{"benchmark": name} | row for row in BENCHMARKS[name](settings.plan)]
        took[name] = time.perf_counter() - start
    return rows, took


def write_markdown(names: Sequence[str], table: pd.DataFrame, facts: dict[str, Any]) -> str:
    """Write what each benchmark is for, and a table of each."""
    purposes = "\n".join(
        f"- {name}: {str(BENCHMARKS[name].__doc__).splitlines()[0]}" for name in names
    )
    blocks = [f"# Benchmark\n\n{describe(facts)}; {facts['time']}", purposes]
    for name, part in table.groupby("benchmark", sort=False):
        blocks.append(f"## {name}\n\n{to_markdown(part.drop(columns='benchmark'))}")
    return "\n\n".join(blocks) + "\n"
