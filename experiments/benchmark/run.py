"""One run of `sysid-benchmark`: run the chosen benchmarks, print one table, write the results."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from omegaconf import DictConfig
from tqdm import tqdm

from experiments.benchmark.command import free_run, jobs, loop, startup, sweep, thresholds
from experiments.benchmark.dictionary import accuracy, memory, not_inserted, replacement, soak, textbook, update
from experiments.benchmark.harness import Plan, Row, describe, machine, to_frame
from experiments.benchmark.simulation import monte_carlo, propagation, simulation, store
from experiments.cli.options import choose
from experiments.cli.progress import doing
from experiments.drawing.tables import to_markdown, to_text
from sysid.store import write_bytes

log = logging.getLogger(__name__)

MODELS = (replacement, not_inserted, update, textbook, memory, accuracy)
RUNS = (simulation, monte_carlo, propagation, store, loop, startup, sweep, thresholds, free_run, soak, jobs)
#: in the order of the table; the first line of each docstring is its line in ``benchmark.md``
BENCHMARKS: dict[str, Callable[[Plan], Iterator[Row]]] = {function.__name__: function for function in (*MODELS, *RUNS)}


def run(config: DictConfig, folder: Path) -> None:
    """Run the chosen benchmarks, print one table, write ``benchmark.json`` and ``benchmark.md``.

    Raises
    ------
    ValueError
        An unknown benchmark, or settings that leave nothing to measure.
    sysid.StoreError
        A file could not be written.
    """
    names, plan, facts = choose("benchmarks", config.benchmarks, [*BENCHMARKS]), Plan.of(config), machine()
    log.info("Measure %s; takes %s", ", ".join(names), "a minute or two" if config.quick else "some minutes")
    rows, seconds = [], {}
    for name in (bar := tqdm(names, disable=None, unit="benchmark")):
        start = time.perf_counter()
        bar.set_postfix_str(name)
        with doing(f"measuring {name}"):
            rows += [{"benchmark": name} | row for row in BENCHMARKS[name](plan)]
        seconds[name] = time.perf_counter() - start
    table = to_frame(rows)
    if config.quick:
        log.info("quick=true: sizes too small and rounds too few for the times to mean anything")
    log.info("Results\n\n%s\n\nMachine: %s", to_text(table, ["case", "unit", "details"]), describe(facts))
    log.info("Took %.0f s. Results: %s", sum(seconds.values()), folder)

    content = {"machine": facts, "quick": config.quick, "settings": vars(plan), "seconds": seconds, "rows": rows}
    write_bytes(json.dumps(content, indent=2, allow_nan=False).encode(), folder / "benchmark.json")
    purposes = "\n".join(f"- {name}: {str(BENCHMARKS[name].__doc__).splitlines()[0]}" for name in names)
    blocks = [f"# Benchmark\n\n{describe(facts)}; {facts['time']}", purposes]
    for name, part in table.groupby("benchmark", sort=False):
        blocks.append(f"## {name}\n\n{to_markdown(part.drop(columns='benchmark'))}")
    write_bytes(("\n\n".join(blocks) + "\n").encode(), folder / "benchmark.md")
