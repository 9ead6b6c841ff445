"""The models of several runs on one test record: a table, a figure, a page."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from omegaconf import DictConfig, OmegaConf

from experiments.cli.build import build, trusted_names
from experiments.cli.ends import deferred_interrupt
from experiments.cli.options import flag, whole
from experiments.drawing.tables import fixed, to_csv, to_text, with_unit
from experiments.files.job_file import FILE
from experiments.files.outputs import has_page, write_every
from experiments.files.stated import read_configuration, text_of
from experiments.validate import assessment as judged
from experiments.validate.assessment import FREE_RUN, Assessment, Material
from experiments.validate.report import warn
from experiments.validate.run import add_physics
from sysid import JointModel, Recordings, StoreError, store
from sysid.errors import UserError
from sysid.store import header

LEARNING = ("record", "loop", "training", "bands")  # times of a run in which its model came about
#: settings of a run that say what its model learned from
LEARNED = (
    *("seed", "data", "identified", "system", "controller", "weather", "excitation", "excitations", "noise"),
    *("interpolation", "duration"),
)
OTHER = "name the record for all of them: data=..., or a plant with system=..."

log = logging.getLogger(__name__)


def run(config: DictConfig, folder: Path) -> None:
    """Compare the configured runs, write table, figure and page to the folder, and tell the table.

    Raises
    ------
    ValueError, TypeError, OSError, ArithmeticError
        Fewer than two runs, one without a model, models of other outputs, runs whose test records differ where no
        record is named, records that do not fit. Nothing is written then.
    """
    flag("figures", config.figures)
    whole("seed", config.seed, 0)
    if config.window is not None:
        whole("window", config.window, 1)
    has_page(config)
    paths = find_models([str(name) for name in config.runs])
    joints = {name: JointModel.load(path, trusted=trusted_names(config)) for name, path in paths.items()}
    (first, outputs), *others = ((name, joint.output_names) for name, joint in joints.items())
    for name, names in others:
        if names != outputs:
            have = f"{first} has outputs {list(outputs)}, {name} has {list(names)}"
            raise UserError(f"runs: {have}: compare models of the same outputs")
    is_named = "_target_" in config.data or "_target_" in config.system
    material = judged.read_material(config) if is_named else read_own_record(paths, config.part)
    given = {name: fit_material(material, joints[name], path, trusted_names(config)) for name, path in paths.items()}
    needed = [one.default_window(joints[name].models[0].narx) for name, one in given.items()]
    window = config.window or max([*needed, *([] if is_named else map(read_window, paths.values()))])
    cases, propagation = judged.plan_cases([1], window, window), build(config, "propagation")
    found: dict[str, Assessment] = {}
    about = f"{material.source.name}, {material.part}: {material.n_samples} samples"
    log.info("Compare %s on %s; all are shown the first %s of each record", ", ".join(paths), about, window)
    for name, one in given.items():
        records = replace(one, records=one.records_after(window))
        found[name] = judged.assess(joints[name], records, cases, propagation, seed=config.seed)
    table, notes = tabulate(found, paths), note_differences(paths)
    with deferred_interrupt():
        files = {"comparison.csv": to_csv(table).encode()}
        if config.figures:
            files["comparison.png"] = draw(found)
        write_every([partial(store.write_bytes, content, folder / name) for name, content in files.items()])
        if has_page(config):
            write_page(config, found, table, notes, folder)
        for line in write_text(table).splitlines():
            log.info("%s", line)
        for note in notes:
            log.info("Note: %s", note)
        log.info("Results: %s", folder)


def find_models(runs: Sequence[str]) -> dict[str, Path]:
    """Find the file of the model of each run, by a short name of the run.

    Raises
    ------
    ValueError
        Fewer than two runs, or the same twice.
    sysid.StoreError
        A folder without a model.
    """
    if len(runs) < 2 or len({Path(run).resolve() for run in runs}) < len(runs):
        raise UserError(f"runs: expected two or more different folders, sysid-compare RUN RUN ..., got {list(runs)}")
    found = {}
    for run in runs:
        candidates = [Path(run)] if Path(run).is_file() else [Path(run) / name for name in ("model.nc", FILE)]
        path = next((path for path in candidates if path.is_file()), None)
        if path is None:
            what = "the folder of a run of sysid-identify, outputs/identify/..., or of a job of a sweep, multirun/.../0"
            raise StoreError(f"no model in {run}: expected {what}, or model.nc itself")
        short = Path(run).resolve().name
        found[run if [Path(other).resolve().name for other in runs].count(short) > 1 else short] = path
    return found


def read_own_record(paths: Mapping[str, Path], part: str | None) -> Material:
    """Read what the runs held back from their models, if it is the same for all.

    Raises
    ------
    ValueError
        Runs without a record of their own, with nothing held back, or with different ones.
    """
    found: dict[str, tuple[xr.Dataset, list[str], list[str]]] = {}
    for name, path in paths.items():
        trajectory = next(iter(sorted(path.parent.glob("**/trajectory.nc"))), None)  # of several outputs all are alike
        if trajectory is None:
            raise UserError(f"{name} has no record of its own (trajectory.nc): {OTHER}")
        dataset = store.read(trajectory, kind="trajectory")
        after = dataset.isel(time=np.flatnonzero(dataset["part"] == 1))
        if not after.sizes["time"]:
            raise UserError(f"{name} held back nothing to be judged by: {OTHER}")
        outputs, inputs = (json.loads(str(dataset.attrs[role])) for role in ("outputs", "inputs"))
        simulated = "physics." if "physics" in header(path) else "\0"  # beside the model, which does that itself
        found[name] = after, outputs, [one for one in inputs if not one.startswith(simulated)]
    best = max(found, key=lambda name: len(found[name][1] + found[name][2]))  # the others may know fewer signals
    base, outputs, inputs = found[best]
    for name, (other, *signals) in found.items():
        for signal in ("time", *signals[0], *signals[1]):
            if signal not in base or not np.array_equal(base[signal].values, other[signal].values):
                raise UserError(f"the test records of {best} and {name} differ in {signal}: {OTHER}")
    records = []
    for number, rows in base.groupby("record"):
        about = {"name": f"{best}, record {number}", "initialisation_window": 0}
        about["sampling_time"] = float(np.diff(rows["time"].values[:2]).sum()) or 1.0
        records.append(rows[[*outputs, *inputs]].drop_vars(["record", "part"]).assign_attrs(about))
    held = Recordings(f"record of {best}", tuple(inputs), tuple(outputs), test=tuple(records))
    return judged.select_records(held, part)


def read_window(path: Path) -> int:
    """Measured samples that a run gave its model before it was validated; 1 if it was not."""
    validation = path.parent / "validation.json"
    return int(json.loads(validation.read_text())["horizons"][0]["window"]) if validation.is_file() else 1


def note_differences(paths: Mapping[str, Path]) -> list[str]:
    """Say what the runs learned from, where it is not the same for all: their options alone do not explain the rest.

    A model that states no configuration is left out; one that cannot be read counts as different.
    """
    found, unknown = dict[str, dict[str, str]](), []
    for name, path in paths.items():
        if text := str(header(path).get("configuration", "")):
            if (settings := read_configuration(text)) is None:
                unknown.append(name)
                continue
            if isinstance(settings.get("data"), dict):
                settings["data"].pop("test", None)  # judges
            stated = {key: text_of(value) for key, value in settings.items() if key in LEARNED}
            found[name] = dict.fromkeys(LEARNED, "") | stated
    differing = []
    for key in LEARNED:
        values = {name: one[key] for name, one in found.items()}
        if len({*values.values()}) > 1:
            is_short = not any("\n" in value for value in values.values())
            told = f" ({', '.join(f'{name} {value}' for name, value in values.items())})" if is_short else ""
            differing.append(key + told)
    what, notes = "in what their models learned from", []
    if differing:
        notes.append(f"the runs differ {what}: {', '.join(differing)}")
    if unknown:
        lost = f"no configuration can be read in the file of {', '.join(unknown)}"
        notes.append(f"the runs may differ {what}: {lost}")
    return notes


def fit_material(material: Material, joint: JointModel, path: Path, trusted: Sequence[str]) -> Material:
    """What a model is given: its physics is added, signals that it does not know are left out."""
    material = add_physics(material, path, trusted)
    surplus = {*material.source.inputs, *material.source.outputs} - {*joint.output_names, *joint.input_names}
    judged.check_signals(joint, material, sorted(surplus))
    return material


def tabulate(found: Mapping[str, Assessment], paths: Mapping[str, Path]) -> pd.DataFrame:
    """A row for each run and output; nan where a measure does not exist."""
    rows = []
    for name, assessment in found.items():
        times = json.loads(str(header(paths[name]).get("timings", "{}")))
        for output, model in zip(assessment.outputs, assessment.joint.models, strict=True):
            near, far = (assessment.scores[case][output] for case in assessment.main.values())
            row = {"run": name, "output": output, "unit": assessment.error_unit(output), "rmse_one_step": near.rmse}
            row |= {"rmse_free_run": far.rmse, "fit_percent_free_run": far.fit_percent}
            row |= {"nlpd_one_step": near.nlpd, "nlpd_free_run": far.nlpd}
            row |= {"coverage_95_one_step": near.coverage_95, "coverage_95_free_run": far.coverage_95}
            row |= {"lags": ", ".join(f"{signal} {_span(lags)}" for signal, lags in model.narx.lags.items() if lags)}
            row |= {"points": model.gp.n_points}
            row |= {"seconds": sum(times[part] for part in LEARNING if part in times) if times else np.nan}
            rows.append(row)
    return pd.DataFrame(rows)


def _span(lags: Sequence[int]) -> str:
    """Lags in words.

    >>> _span((1,)), _span((1, 2, 3)), _span((1, 4))
    ('1', '1 to 3', '1 4')
    """
    is_gapless = len(lags) > 1 and len(lags) == lags[-1] - lags[0] + 1
    return f"{lags[0]} to {lags[-1]}" if is_gapless else " ".join(map(str, lags))


def write_text(table: pd.DataFrame) -> str:
    """The table for the terminal."""
    text = pd.DataFrame({"run": table["run"], "output": table["output"]})
    for kind, words in (("one_step", "1 step"), (FREE_RUN, "free run")):
        errors = zip(table[f"rmse_{kind}"], table["unit"], strict=True)
        text[f"RMSE {words}"] = [with_unit(value, unit) for value, unit in errors]
        if kind == FREE_RUN:
            text["fit %"] = [fixed(value, 1) for value in table["fit_percent_free_run"]]
        text[f"NLPD {words}"] = [fixed(value, 2) for value in table[f"nlpd_{kind}"]]
        text[f"95 % {words}"] = [fixed(100 * value, 1) for value in table[f"coverage_95_{kind}"]]
    text["lags"], text["points"] = table["lags"], table["points"]
    text["seconds"] = [fixed(value, 2) for value in table["seconds"]]
    return to_text(text, words=("output", "lags"))


def longest_free_run(found: Mapping[str, Assessment], output: str) -> tuple[xr.DataArray, Any, dict[str, Any]]:
    """Clock and measurement of the longest record, and the mean of the free run of every model."""
    from experiments.drawing.style import with_clock

    one = next(iter(found.values()))
    runs, i = one.forecasts[one.main[FREE_RUN]].records, one.outputs.index(output)
    number = max(range(len(runs)), key=lambda k: len(runs[k].sample))
    clock = with_clock(one.material.records[runs[number].record], "time")["shown"].isel(time=runs[number].sample)
    means = {name: a.forecasts[a.main[FREE_RUN]].records[number].mean[:, i] for name, a in found.items()}
    return clock, runs[number].measured[:, i], means


def draw(found: Mapping[str, Assessment]) -> bytes:
    """Draw the free runs of all models over the measurement, and their errors below, output by output."""
    from experiments.drawing.style import PALETTE, png, screen, show_from_to

    one = next(iter(found.values()))
    figure, axes = screen(2 * len(one.outputs), 5.0 * len(one.outputs), sharex=True)
    for above, below, output in zip(axes[::2], axes[1::2], one.outputs, strict=True):
        clock, measured, means = longest_free_run(found, output)
        above.plot(clock, measured, color="black", linewidth=1.2, label="measured")
        for (name, mean), color in zip(means.items(), PALETTE * len(means), strict=False):
            above.plot(clock, mean, color=color, linewidth=1.0, label=name)
            below.plot(clock, measured - mean, color=color, linewidth=0.8)
        above.set(ylabel=f"{output} [{one.unit(output) or '1'}]")
        below.set(ylabel=f"error [{one.error_unit(output)}]", xlabel=clock.attrs["label"])
        show_from_to(below, clock.values)
        above.set_title(f"Free runs after {one.window} measured samples", loc="left")
        above.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 0.0))
    return png(figure)


def write_page(
    config: DictConfig, found: Mapping[str, Assessment], table: pd.DataFrame, notes: Sequence[str], folder: Path
) -> None:
    """Write the comparison as a page."""
    from experiments.drawing import page

    one = next(iter(found.values()))
    figures = {}
    for output in one.outputs:
        clock, measured, means = longest_free_run(found, output)
        labels = clock.attrs["label"], f"{output} [{one.unit(output) or '1'}]", f"error [{one.error_unit(output)}]"
        curves = {name: page.Curve(mean) for name, mean in means.items()}
        most = page.MOST_DRAWN // (len(curves) * len(one.outputs))
        figures[output] = page.draw_series(clock.values, measured, curves, labels=labels, most=most)
    about = {"package_versions": store.package_versions(), "configuration": OmegaConf.to_yaml(config, resolve=True)}
    page.write(
        folder / page.FILE,
        Path(__file__).with_name("comparison.html"),
        figures,
        title=f"{len(found)} models compared",
        name=one.material.source.name,
        warnings=[*notes, *(f"{name}: {text}" for name, assessment in found.items() for text in warn(assessment))],
        rows=table.astype(object).where(table.notna(), None).to_dict("records"),
        part=one.material.part,
        n_samples=one.material.n_samples,
        window=one.window,
        origin=page.read_origin(folder, about | {"seed": config.seed}),
    )
