"""The page of a run: what its folder holds, in words, figures and tables."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from experiments.drawing import page
from experiments.drawing.page import (
    MAX_SAMPLES_DRAWN,
    Curve,
    describe_series,
    draw_pairs,
    draw_series,
)
from experiments.drawing.style import error_unit_of, label_of, unit_of, with_clock
from experiments.drawing.tables import error_unit, shown_unit
from experiments.files import job_file
from experiments.files.job_file import SUMMARY_NUMBERS
from experiments.plant.linear_physics import LinearPhysics
from experiments.plant.physics import read_physics
from sysid import LinearView, Model, StoreError, UserError, UserTypeError, store
from sysid.foreign import inner_path, read_json
from sysid.model.result import INITIAL, VALIDATION
from sysid.simulation.validation import Z_95

#: numbers of a summary that describe a stream; a model that had none has no such numbers
STREAM_NUMBERS = {
    "smse_initial",
    "smse_stream",
    "smse_stream_linear",
    "n_waited",
    "n_seen",
    "n_inserted",
    "n_accepted",
    "n_turned_away",
    "n_revised",
    "n_estimates",
}
# Entries of `find_points` that are no features.
NO_FEATURES = ("known", "x", "y", "entered", "target")


def write_run(folder: Path) -> Path:
    """Write the page of a run into its folder, and return its path.

    The page shows what `sysid-identify` or `sysid-validate` left in the folder.

    Raises
    ------
    sysid.StoreError
        The folder has no run, or a damaged one, or a link in place of a file; or the page cannot
        be written.
    """
    outputs = read_outputs(folder)
    pictures, left_out = page.read_pictures(folder)
    stored = folder / "validation.json"
    validation = read_json(folder, stored.name) if stored.is_file() else None
    if not outputs and validation is None:
        raise StoreError(
            f"no run in {folder}: expected a folder with summary.json, job.nc or validation.json"
        )
    free_runs: Mapping[str, xr.Dataset] = {}
    attributes: dict[str, Any] = {}
    if validation is not None:
        path = inner_path(folder, "validation.nc")
        free_runs = _read_free_runs(path, validation)
        attributes = store.header(path)
    for output in outputs:
        for part in (output["record"], output["model"]):
            if part is not None:
                attributes |= {str(name): value for name, value in part.attrs.items()}
    summaries = [output["summary"] for output in outputs]
    parts = summaries if validation is None else [*summaries, validation]
    physics = attributes.get("physics")
    drawn = _draw_figures(outputs, free_runs)
    for output in outputs:
        output["is_trained_at_once"] = is_trained_at_once(output["summary"])
        output["numbers"] = choose_numbers(output["summary"])
        output["linear_view"] = describe_linearly(
            output["model"], folder, None if physics is None else str(physics)
        )
    return page.write(
        folder / page.PAGE_FILE,
        Path(__file__).with_name("run.html"),
        {name: figure for name, (figure, _) in drawn.items()},
        has_strips=any(hasattr(figure, "children") for figure, _ in drawn.values()),
        captions={name: caption for name, (_, caption) in drawn.items()},
        is_for_simulation=bool(outputs) and all(map(_is_for_simulation, summaries)),
        title=parts[0]["system"] if outputs else parts[0]["data"]["name"],
        warnings=list(dict.fromkeys(text for part in parts for text in part["warnings"])),
        outputs=outputs,
        validation=validation,
        error_unit=error_unit,
        pictures=pictures,
        left_out=left_out,
        origin=page.read_origin(folder, attributes),
    )


def describe_linearly(
    stored: xr.Dataset | None, folder: Path, described_physics: str | None = None
) -> dict[str, Any] | None:
    """Return where a stored model is linearised, and gains and response times in words.

    None without a model, without inputs, or for a static function. If there is no linear view, the
    only entry is the reason. Physics beside the model is given as its text in the files of the run.
    """
    if stored is None:
        return None
    try:
        model = Model.restored(stored, folder)
        physics = None
        if described_physics is not None:
            physics = LinearPhysics(read_physics(described_physics, ()))
        is_static = not model.narx.max_lag and physics is None
        if not model.narx.input_names or is_static:
            return None
        with warnings.catch_warnings():  # the notes of the view, which stand on the page
            warnings.simplefilter("ignore", UserWarning)
            view = model.linearize(physics=physics)
    except (UserError, UserTypeError, StoreError) as error:
        return {"reason": str(error)}
    assert isinstance(view, LinearView)
    return {
        "where": view.where,
        "stability": view.stability,
        "sentences": view.sentences(),
        "notes": view.notes,
    }


def is_trained_at_once(summary: Mapping[str, Any]) -> bool:
    """Whether a model was trained on all samples at once, so that there was no stream."""
    return summary.get("training") is not None and not summary["n_seen"]


def _is_for_simulation(summary: Mapping[str, Any]) -> bool:
    """Whether a model was trained for the free run, and simulated."""
    return summary.get("training") is not None and summary.get("free_run") is not None


def choose_numbers(summary: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return kind and meaning of the numbers of a summary that exist for this model."""
    left_out = STREAM_NUMBERS if is_trained_at_once(summary) else set()
    return {name: words for name, words in SUMMARY_NUMBERS.items() if name not in left_out}


def _read_free_runs(path: Path, validation: dict[str, Any]) -> Mapping[str, xr.Dataset]:
    """Return the free runs of a validation that began behind its first initialisation window."""
    horizons = validation["horizons"]
    windows = [score["window"] for score in horizons if score["horizon"] == "free_run"]
    window = windows[0]
    return store.read_groups(path, kind="validation", under=f"free_run_window_{window}")


def _draw_figures(
    outputs: list[dict[str, Any]], free_runs: Mapping[str, xr.Dataset]
) -> dict[str, tuple[Any, str]]:
    """Draw records and free runs, each with its caption.

    All series together have about MAX_SAMPLES_DRAWN samples at most.
    """
    n_series = len(outputs) + sum(free_run.sizes["output"] for free_run in free_runs.values())
    max_samples = MAX_SAMPLES_DRAWN // max(n_series, 1)
    figures = dict[str, Any]()
    for number, output in enumerate(outputs):
        if output["record"] is not None:
            drawn = draw_record(output["record"], output["model"], max_samples)
            figures |= {f"{name}{number}": figure for name, figure in drawn.items()}
    for free_run in free_runs.values():
        figures |= draw_free_run(free_run, max_samples)
    return figures


def read_outputs(folder: Path) -> list[dict[str, Any]]:
    """Return summary, record and model of every output that was identified.

    The files may be those of a full or of a lean run (``outputs=lean``).
    """
    if (folder / "summary.json").is_file():
        return [_read_full(folder, "")]
    if (folder / job_file.JOB_FILE).is_file():
        return _read_lean(inner_path(folder, job_file.JOB_FILE))
    inner = sorted(path.parent.name for path in folder.glob("*/summary.json"))
    return [_read_full(folder, f"{name}/") for name in inner]


def _read_lean(job: Path) -> list[dict[str, Any]]:
    """Return the outputs in the file of a job."""
    summary = job_file.read_summary(job)
    has_one_output = isinstance(summary.get("target"), str)
    summaries = {"": summary} if has_one_output else summary
    groups = store.read_groups(job, kind=job_file.JOB_SCHEMA)
    header = store.header(job)
    outputs = []
    for name, output_summary in summaries.items():
        record = groups.get(f"{job_file.RECORD_GROUP}/{name}".rstrip("/"))
        model = groups.get(f"{job_file.MODEL_GROUP}/{name}".rstrip("/"))
        if record is not None:
            record = record.assign_attrs(header)
        outputs.append({"summary": output_summary, "record": record, "model": model})
    return outputs


def _read_full(folder: Path, prefix: str) -> dict[str, Any]:
    """Return the output whose files have names with a prefix, that of their folder in the run.

    Record and model are None if there is no file.
    """
    parts: dict[str, Any] = {"summary": read_json(folder, f"{prefix}summary.json")}
    for name, kind in (("record", "result"), ("model", "model")):
        file = f"{prefix}{kind}.nc"
        parts[name] = None
        if (folder / file).is_file():
            parts[name] = store.read(inner_path(folder, file), kind=kind)
    return parts


def draw_record(
    record: xr.Dataset, model: xr.Dataset | None, max_samples: int
) -> dict[str, tuple[Any, str]]:
    """Draw the predictions of samples before they were learned, and of the validation part.

    The samples that became points of the model are marked.
    """
    chosen = record.isel(sample=np.flatnonzero(record["phase"] != INITIAL))
    if not chosen.sizes["sample"]:
        return {}
    chosen = with_clock(chosen, "sample")
    noise = 0.0 if model is None else float(model.attrs["noise_variance"])
    curve = Curve(chosen["mean"].values, Z_95 * np.sqrt(chosen["variance"].values + noise))
    measured = chosen["target"].values
    if record["time"].attrs.get("units") == "1":
        label = f"value [{unit_of(chosen['target'])}]"
        pairs = draw_pairs(measured, curve, label, max_samples=max_samples)
        return {"record": (pairs, "Predictions over measurements. Dashed line: both are equal.")}
    x = chosen["shown"].values
    validated = np.flatnonzero(chosen["phase"].values == VALIDATION)
    since = None
    if 0 < len(validated) < len(x):
        since = float(x[validated[0]])
    marked = None
    figures: dict[str, tuple[Any, str]] = {}
    if model is not None:
        points = find_points(chosen, model)
        figures = draw_points(points, model)
        is_known = points.pop("known")
        marked = {name: np.asarray(values)[is_known] for name, values in points.items()}
    labels = (
        chosen["shown"].attrs["label"],
        label_of(chosen["target"]),
        f"error [{error_unit_of(chosen['target'])}]",
    )
    series = draw_series(
        x,
        measured,
        {"predicted": curve},
        labels=labels,
        max_samples=max_samples,
        since=since,
        points=marked,
    )
    caption = describe_series(series, predictions="the predictions one step ahead")
    return {"record": (series, caption), **figures}


def find_points(record: xr.Dataset, model: xr.Dataset) -> dict[str, Any]:
    """Return when each point of a model entered, its target, and its features in their units.

    ``known`` marks the points that have a sample in the record; the first points of the model have
    none, and are nan elsewhere. A kernel that combines features does not keep them: they are left
    out. So are the features of a linear part, for which no point is stored.
    """
    slots = record["slot"].values
    last_rows = {int(slots[row]): int(row) for row in np.flatnonzero(slots >= 0)}
    n_points = model["inputs"].sizes["slot"]
    rows = np.array([last_rows.get(slot, -1) for slot in range(n_points)], dtype=int)
    is_known = rows >= 0
    x = np.where(is_known, record["shown"].values[rows], np.nan)
    target = np.where(is_known, record["target"].values[rows], np.nan)
    points: dict[str, Any] = {
        "known": is_known,
        "x": x,
        "y": target,
        "entered": x,
        "target": target,
    }
    if "feature_matrix" not in model:
        scaled = model["inputs"].values * model["feature_scale"].values
        values = scaled + model["feature_offset"].values
        names = model["feature"].values
        n_features_of_points = len(names) - model.sizes.get("lag_of_linear_part", 0)
        points |= {str(name): values[:, i] for i, name in enumerate(names[:n_features_of_points])}
    return points


def draw_points(points: dict[str, Any], model: xr.Dataset) -> dict[str, tuple[Any, str]]:
    """Draw the points in the plane of two features: the first lags of the first two signals."""
    from bokeh.transform import linear_cmap

    features = [name for name in points if name not in NO_FEATURES]
    if len(features) < 2 or not len(points["x"]):
        return {}
    i, j = _choose_plane(features)
    columns = {f"f{k}": points[name] for k, name in enumerate(features)}
    shown_on_hover = {"entered": "entered"}
    shown_on_hover |= {name: f"f{k}" for k, name in enumerate(features)}
    columns["entered"] = points["x"]
    units = json.loads(str(model.attrs.get("feature_units", "[]"))) or [""] * len(features)
    labels = (
        f"{features[i]} [{shown_unit(units[i])}]",
        f"{features[j]} [{shown_unit(units[j])}]",
    )
    entered = points["x"][points["known"]]
    low, high = (entered.min(), entered.max()) if len(entered) else (0.0, 1.0)
    color = linear_cmap("entered", "Viridis256", low=low, high=high, nan_color="gray")
    figure = page.draw_marks(
        columns,
        f"f{i}",
        f"f{j}",
        shown_on_hover,
        labels,
        380,
        color=color,
        size=8,
        line_color="gray",
    )
    caption = "The stored points of the model."
    if len(entered):
        caption += " The darker a point, the earlier it entered."
        if len(entered) < len(points["x"]):
            caption += " Grey points were chosen before the stream."
    return {"points": (figure, caption)}


def _choose_plane(features: list[str]) -> tuple[int, int]:
    """Return the indices of the first features of two signals; of one signal the first two."""
    first_of_signal: dict[str, int] = {}
    for i, name in enumerate(features):
        first_of_signal.setdefault(name.partition("[")[0], i)
    first, *others = first_of_signal.values()
    return (first, others[0]) if others else (0, 1)


def draw_free_run(found: xr.Dataset, max_samples: int) -> dict[str, tuple[Any, str]]:
    """Draw the free run of every output."""
    time = with_clock(found, "sample")["shown"]
    figures = {}
    for name in found["output"].values:
        output = found.sel(output=name)
        unit = str(output["unit"].values)
        variance = output["variance"].values + float(output["noise_variance"])
        curve = Curve(output["mean"].values, Z_95 * np.sqrt(variance))
        labels = (
            time.attrs["label"],
            f"{name} [{shown_unit(unit)}]",
            f"error [{shown_unit(error_unit(unit))}]",
        )
        figure = draw_series(
            time.values,
            output["measured"].values,
            {"free run": curve},
            labels=labels,
            max_samples=max_samples,
        )
        caption = describe_series(figure, predictions="the free run")
        figures[f"free_run_{name}"] = (figure, caption)
    return figures
