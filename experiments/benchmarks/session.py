"""One run of `sysid-benchmark`: measure, tell, keep."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from tqdm import tqdm

from experiments.benchmarks import table
from experiments.benchmarks.accuracy import accuracy
from experiments.benchmarks.criterion import criterion
from experiments.benchmarks.loop import loop
from experiments.benchmarks.machine import describe, machine
from experiments.benchmarks.memory import memory
from experiments.benchmarks.monte_carlo import monte_carlo
from experiments.benchmarks.plan import Plan, benchmark_names
from experiments.benchmarks.propagation import propagation
from experiments.benchmarks.replacement import not_inserted, replacement, update
from experiments.benchmarks.row import Row
from experiments.benchmarks.simulation import simulation
from experiments.benchmarks.startup import startup
from experiments.benchmarks.store import store
from experiments.benchmarks.sweep import sweep, thresholds
from experiments.benchmarks.textbook import textbook
from sysid.store import write_bytes

log = logging.getLogger(__name__)

BENCHMARKS: dict[str, Callable[[Plan], Iterator[Row]]] = {
    benchmark.__name__: benchmark
    for benchmark in (
        replacement,
        not_inserted,
        update,
        textbook,
        criterion,
        memory,
        accuracy,
        simulation,
        monte_carlo,
        propagation,
        store,
        loop,
        startup,
        sweep,
        thresholds,
    )
}


def run(config: DictConfig, folder: Path) -> None:
    """Run the chosen benchmarks, print one table, write ``benchmark.json`` and ``benchmark.md``.

    Raises
    ------
    ValueError
        An unknown benchmark, or settings that leave nothing to measure.
    sysid.StoreError
        A file could not be written.
    """
    names, plan = benchmark_names(config, list(BENCHMARKS)), Plan.of(config)
    facts = machine()
    rows, seconds = measure(names, plan)
    if config.quick:
        log.info("quick=true: sizes too small and rounds too few for the times to mean anything")
    log.info("%s\n\n%s\n\nMachine: %s", "Results", table.text(rows), describe(facts))
    log.info("Took %.0f s. Results: %s", sum(seconds.values()), folder)
    content = {"machine": facts, "quick": bool(config.quick), "settings": vars(plan), "seconds": seconds}
    write(content | {"rows": [row.to_dict() for row in rows]}, rows, folder)


def measure(names: list[str], plan: Plan) -> tuple[list[Row], dict[str, float]]:
    """Rows of these benchmarks, and what each of them took [s]."""
    rows: list[Row] = []
    seconds: dict[str, float] = {}
    with tqdm(names, disable=None, unit="benchmark") as bar:
        for name in bar:
            start = time.perf_counter()
            for row in BENCHMARKS[name](plan):
                rows.append(row)
                bar.set_postfix_str(f"{name}: {row.case}")
            seconds[name] = time.perf_counter() - start
    return rows, seconds


def write(content: dict[str, Any], rows: list[Row], folder: Path) -> None:
    """Write the numbers as JSON and as tables in Markdown."""
    text = json.dumps(content, indent=2, allow_nan=False)
    write_bytes(text.encode(), folder / "benchmark.json")
    head = f"# Benchmark\n\n{describe(content['machine'])}; {content['machine']['time']}\n\n"
    notes = "\n".join(f"- {name}: {_purpose(name)}" for name in content["seconds"])
    write_bytes(f"{head}{notes}\n\n{table.markdown(rows)}\n".encode(), folder / "benchmark.md")


def _purpose(name: str) -> str:
    return str(BENCHMARKS[name].__doc__).partition("\n")[0]
