"""One run of `sysid-reproduce`: all studies, what is missing of them is computed, their files, and the report."""

import json
import logging
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import groupby
from multiprocessing import active_children, get_context
from pathlib import Path
from string import Template

import numba
import pandas as pd
import xarray as xr
from omegaconf import DictConfig, OmegaConf
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from experiments.cli.ends import Stopped
from experiments.cli.options import choose, flag, whole
from experiments.cli.progress import doing
from experiments.drawing.style import render
from experiments.drawing.tables import significant, to_markdown
from experiments.reproduce.baselines import BaselinesStudy
from experiments.reproduce.claims import Guidelines
from experiments.reproduce.online import OnlineStudy
from experiments.reproduce.stream import PREPARATIONS, Setting
from experiments.reproduce.study import Plan, Study, Unit, write_part
from experiments.reproduce.sweeps import BuildingSweep, Grid, RastriginMaps, Reduction, VanDerPolSweep
from experiments.reproduce.tables import RULES, ComplexityStudy, Table, count_below, summarise_cells
from experiments.reproduce.tasks import TASKS
from sysid import DataError, store
from sysid.beside import n_cores
from sysid.errors import UserError

log = logging.getLogger(__name__)
TEXT = Path(__file__).parent / "text"
ALL: tuple[Study, ...] = (
    ComplexityStudy(),
    BaselinesStudy(),
    Reduction(),
    Table("table_2", "Table 2: all new points offered"),
    RastriginMaps(),
    Table("table_3", "Table 3: insertion by the variance threshold"),
    Table("table_4", "Table 4: insertion by the error threshold"),
    VanDerPolSweep(),
    BuildingSweep(),
    Grid(),
    Guidelines(),
    OnlineStudy(),
)
STUDIES: dict[str, Study] = {study.name: study for study in ALL}
QUICK_WARNING = "**Computed with `quick=true`: sizes too small for the numbers to mean anything.**"


def run(config: DictConfig, folder: Path) -> None:
    """Run the chosen studies into ``config.output``.

    Raises
    ------
    ValueError
        An unknown study or task, numbers that leave nothing to compute.
    sysid.StoreError
        A damaged result in the folder; a file that cannot be written.
    Stopped
        After Ctrl-C or the death of a worker; what was computed so far is kept, and the same command goes on.
    """
    begin = time.perf_counter()
    plan, names = make_plan(config), set(choose("study", config.study, list(STUDIES)))
    names |= {needed for name in names for needed in STUDIES[name].needs}
    workers = n_cores() if config.workers is None else whole("workers", config.workers, 1)
    plan.folder.mkdir(parents=True, exist_ok=True)
    plan, gaps = read_records(plan)
    if any((plan.folder / "parts").glob("*")) and not plan.parts.is_dir():
        log.info("Results of another version, or of other settings, are in %s: all is computed again", plan.folder)
    how_long = "a minute or two" if config.quick else "minutes to hours, and can be stopped and continued"
    log.info("Reproduce %s into %s; takes %s", ", ".join(sorted(names)), plan.folder, how_long)
    studies = [study for name, study in STUDIES.items() if name in names]
    units = [unit for study in studies for unit in study.units(plan) if unit.task not in gaps]
    prepared = {unit.task for unit in units if STUDIES[unit.study].is_prepared}
    tasks = [name for name in plan.tasks if name in prepared]
    waves = [
        [Unit("preparation", task, seed) for task in tasks for seed in TASKS[task].seeds(plan.seeds)],
        [Unit("calibration", task) for task in tasks],
        units,
    ]
    everything = [unit for wave in waves for unit in wave]
    try:
        bar = tqdm(total=len(everything), initial=sum(map(plan.is_kept, everything)), disable=None, desc="studies")
        with bar, doing(f"computing in {workers} processes, each compiles what is not compiled yet"):
            for _ in execute(waves, plan, workers):
                bar.update()
    except (KeyboardInterrupt, BrokenProcessPool) as error:
        kept = f"{sum(map(plan.is_kept, everything))} of {len(everything)} units are kept in {plan.parts}"
        is_interrupt = isinstance(error, KeyboardInterrupt)
        cause = "Run interrupted." if is_interrupt else "A worker process died (killed, or out of memory?)."
        raise Stopped(f"{cause} {kept}; the same command goes on from there", 130 if is_interrupt else 1) from None
    for study in studies:
        if study.units(plan) or study.needs:
            write_study(study, plan, gaps, config)
            log.info("%s: %s", study.title, plan.folder / f"{study.name}.md")
    write_report(plan)
    for task, reason in gaps.items():
        log.warning("No data for %s, marked as a gap in the tables: %s", TASKS[task].title, reason)
    if gaps:
        log.warning("To have them, name the folder of the data by the environment variable SYSID_DATA and run again.")
    log.info("Took %.0f s with %d workers. Report: %s", time.perf_counter() - begin, workers, plan.folder / "report.md")


def make_plan(config: DictConfig) -> Plan:
    """Check the settings.

    Raises
    ------
    ValueError
        With the name of the key.
    """
    flag("figures", config.figures)
    if not isinstance(config.output, str) or not config.output:
        raise UserError(f"output must be the name of a folder, got {config.output!r}")
    tasks = choose("tasks", config.tasks, list(TASKS))
    plan = Plan(Path(config.output), tuple(tasks), whole("seeds", config.seeds, 1), whole("budget", config.budget, 2))
    if plan.budget != Plan.budget and choose("study", config.study, list(STUDIES)) != ["online"]:
        raise UserError(f"budget must be {Plan.budget}, the paper's, but for study=online alone; got {plan.budget}")
    return plan.shorten() if flag("quick", config.quick) else plan


def read_records(plan: Plan) -> tuple[Plan, dict[str, str]]:
    """Return the plan with the digests of the measured records, and why some tasks have none."""
    digests, gaps = {}, {}
    for name in plan.tasks:
        try:
            digests[name] = TASKS[name].digest()
        except DataError as error:
            gaps[name] = str(error).partition(" The download: ")[0]
    return replace(plan, records=tuple((name, text) for name, text in digests.items() if text)), gaps


def execute(waves: Sequence[Sequence[Unit]], plan: Plan, workers: int) -> Iterator[Unit]:
    """Compute what is not kept yet, wave after wave, in processes of one thread; yield each unit when it is done.

    All units of a task and seed are computed by the same process, for studies have streams in common. Left early, by
    Ctrl-C say, the processes are ended: the unit that each was at is computed again next time.

    Raises
    ------
    concurrent.futures.process.BrokenProcessPool
        A process died.
    sysid.StoreError
        A result that cannot be written.
    """
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_start_worker)  # starts them when needed
    try:
        for wave in waves:
            missing = [unit for unit in wave if not plan.is_kept(unit)]
            missing.sort(key=lambda unit: ([*TASKS, ""].index(unit.task), unit.seed), reverse=True)  # the longest first
            groups = [list(group) for _, group in groupby(missing, key=lambda unit: unit[1:])]
            futures = {pool.submit(compute_units, group, plan): group for group in groups}
            for future in as_completed(futures):
                future.result()
                yield from futures[future]
    except BaseException:
        for process in active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """One thread; Ctrl-C reaches every process of the terminal, and the parent decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)
    numba.set_num_threads(1)


# --- files of a study, and the report --------------------------------------------------------------


def compute_unit(unit: Unit, plan: Plan) -> None:
    """Compute a unit and keep it; what is kept already is not computed again."""
    if plan.is_kept(unit):
        return
    compute = PREPARATIONS.get(unit.study) or STUDIES[unit.study].compute
    write_part(compute(unit, plan), unit, plan)


def compute_units(units: Sequence[Unit], plan: Plan) -> None:
    """Compute and keep some units."""
    for unit in units:
        compute_unit(unit, plan)


def write_study(study: Study, plan: Plan, gaps: Mapping[str, str], config: DictConfig) -> None:
    """Combine the kept parts and write every file of a study, the store first.

    Raises
    ------
    sysid.StoreError
        A damaged part, or a file that cannot be written.
    """
    reasons = json.dumps({TASKS[task].title: reason for task, reason in gaps.items()})
    combined = study.combine(plan).assign_attrs(title=study.title, quick=int(plan.quick), gaps=reasons)
    attributes = {"configuration": OmegaConf.to_yaml(config, resolve=True), "fingerprint": plan.fingerprint}
    attributes["records"] = json.dumps(dict(plan.records))
    store.write(combined, plan.folder / f"{study.name}.nc", kind="study", attributes=attributes)
    store.write_bytes(to_short_csv(study.rows(combined)).encode(), plan.folder / f"{study.name}.csv")
    drawings = study.figures(combined) if config.figures else {}
    pictures = "\n\n".join(f"![{name.replace('_', ' ')}]({name}.png)" for name in drawings)
    head, places = f"# {study.title}\n\n{QUICK_WARNING if plan.quick else ''}", study.tables(combined)
    numbers = {"n_seeds": str(plan.seeds), "budget": str(plan.budget)}
    text = fill_template(study.template or study.name, head, pictures, **numbers, **places)
    store.write_bytes(text.encode(), plan.folder / f"{study.name}.md")
    for name, draw in drawings.items():
        for form, content in render(draw, "pdf", "png").items():
            store.write_bytes(content, plan.folder / f"{name}.{form}")


def fill_template(name: str, head: str = "", tail: str = "", **places: str) -> str:
    """Text written by hand, with tables in its places; one empty line where an empty place left several."""
    body = Template((TEXT / f"{name}.md").read_text(encoding="utf-8")).substitute(places)
    return re.sub(r"\n{3,}", "\n\n", f"{head}\n\n{body}\n\n{tail}").strip() + "\n"


def to_short_csv(frame: pd.DataFrame) -> str:
    """CSV with a header line; numbers with six digits, nan empty."""
    return frame.to_csv(index=False, lineterminator="\n", float_format="%.6g")


def write_report(plan: Plan) -> None:
    """Write all tables of the folder into one file, what they show on top."""
    stores = plan.read_stores([*STUDIES])
    parts = [(plan.folder / f"{name}.md").read_text(encoding="utf-8") for name in stores]
    sections = "\n".join(re.sub("^(?=#+ )", "#", part, flags=re.MULTILINE) for part in parts)
    warning = QUICK_WARNING if plan.quick else ""
    head = fill_template("report", n_seeds=str(plan.seeds), warning=warning, short=summarise_stores(stores))
    store.write_bytes(f"{head}\n{sections}".encode(), plan.folder / "report.md")


def summarise_stores(stores: Mapping[str, xr.Dataset]) -> str:
    """Counts of the tables, what the baselines reach, verdicts on the guidelines: of the stores that are there."""
    counts, tables = [], []
    for name in (name for name in RULES if name in stores):
        cells, row = summarise_cells(stores[name], name), {"": name.replace("_", " ").capitalize()}
        row |= {f"at or below the published SMSE, {s}": count_below(cells[cells["setting"] == s]) for s in Setting}
        counts.append(row)
    if "baselines" in stores:
        rows = STUDIES["baselines"].rows(stores["baselines"]).query("dataset in ['Van der Pol', 'Building']")
        numbers = rows[["smse", "smse_published"]].map(significant)
        tables.append(to_markdown(rows[["dataset", "model"]].join(numbers)))
    if "guidelines" in stores:
        tables.append(STUDIES["guidelines"].tables(stores["guidelines"])["guidelines"])
    return "\n\n".join(filter(None, [to_markdown(pd.DataFrame(counts)), *tables]))
