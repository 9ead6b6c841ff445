"""The page of a run: what its folder holds, in words, figures and tables."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from experiments.drawing import page
from experiments.drawing.page import MAX_SAMPLES_DRAWN, Curve, draw_pairs, draw_series
from experiments.drawing.style import label_of, unit_of, with_clock
from experiments.files import job_file
from experiments.files.job_file import SUMMARY_NUMBERS
from sysid import StoreError, store
from sysid.model.result import INITIAL, VALIDATION
from sysid.simulation.validation import Z_95


def write_run(folder: Path) -> Path:
    """Write the page of a run into its folder, from what `sysid-identify` or `sysid-validate` left
    there.

    Raises
    ------
    sysid.StoreError
        No run in the folder, or a damaged one; the page cannot be written.
    """
    outputs, pictures, left_out = read_outputs(folder), *page.read_pictures(folder)
    stored = folder / "validation.json"
    free_runs = dict[str, xr.Dataset]()
    validation = json.loads(stored.read_text()) if stored.is_file() else None
    if not outputs and validation is None:
        raise StoreError(
            f"no run in {folder}: expected a folder with summary.json, job.nc or validation.json"
        )
    known = [part for one in outputs for part in (one["record"], one["model"]) if part is not None]
    attributes = {key: value for part in known for key, value in part.attrs.items()}
    if validation is not None:
        window = next(
            one["window"] for one in validation["horizons"] if one["horizon"] == "free_run"
        )
        path = stored.with_suffix(".nc")
        free_runs = store.read_groups(path, kind="validation", under=f"free_run_window_{window}")
        attributes = store.header(path) | attributes
    n_series = len(outputs) + sum(one.sizes["output"] for one in free_runs.values())
    most = MAX_SAMPLES_DRAWN // max(n_series, 1)
    figures = dict[str, Any]()
    for number, one in enumerate(outputs):
        if one["record"] is not None:
            drawn = draw_record(one["record"], one["model"], most)
            figures |= {f"{name}{number}": figure for name, figure in drawn.items()}
    for free_run in free_runs.values():
        figures |= draw_free_run(free_run, most)
    parts = [
        *(one["summary"] for one in outputs),
        *([] if validation is None else [validation]),
    ]
    return page.write(
        folder / page.PAGE_FILE,
        Path(__file__).with_name("run.html"),
        figures,
        title=parts[0]["system"] if outputs else parts[0]["data"]["name"],
        warnings=list(dict.fromkeys(text for part in parts for text in part["warnings"])),
        outputs=outputs,
        validation=validation,
        numbers=SUMMARY_NUMBERS,
        pictures=pictures,
        left_out=left_out,
        origin=page.read_origin(folder, attributes),
    )


def read_outputs(folder: Path) -> list[dict[str, Any]]:
    """Summary, record and model of every output that was identified, of full or lean outputs."""
    if (folder / "summary.json").is_file():
        return [_read_full(folder)]
    if (job := folder / job_file.JOB_FILE).is_file():
        summary = job_file.read_summary(job)
        summaries = {"": summary} if isinstance(summary.get("target"), str) else summary
        groups = store.read_groups(job, kind=job_file.JOB_SCHEMA)
        header = store.header(job)
        found = []
        for name, one in summaries.items():
            record, model = (
                groups.get(f"{kind}/{name}".rstrip("/"))
                for kind in (job_file.RECORD_GROUP, job_file.MODEL_GROUP)
            )
            record = None if record is None else record.assign_attrs(header)
            found.append({"summary": one, "record": record, "model": model})
        return found
    return [_read_full(path.parent) for path in sorted(folder.glob("*/summary.json"))]


def _read_full(folder: Path) -> dict[str, Any]:
    parts: dict[str, Any] = {"summary": json.loads((folder / "summary.json").read_text())}
    for name, kind in (("record", "result"), ("model", "model")):
        path = folder / f"{kind}.nc"
        parts[name] = store.read(path, kind=kind) if path.is_file() else None
    return parts


def draw_record(record: xr.Dataset, model: xr.Dataset | None, most: int) -> dict[str, Any]:
    """Draw what was predicted before it was learned, and after; with the samples that became points
    of the model.
    """
    record = with_clock(record, "sample")
    chosen = record.isel(sample=np.flatnonzero(record["phase"] != INITIAL))
    if not chosen.sizes["sample"]:
        return {}
    noise = 0.0 if model is None else float(model.attrs["noise_variance"])
    curve = Curve(chosen["mean"].values, Z_95 * np.sqrt(chosen["variance"].values + noise))
    measured = chosen["target"].values
    unit = unit_of(chosen["target"])
    if record["time"].attrs.get("units") == "1":
        return {"record": draw_pairs(measured, curve, f"value [{unit}]", most=most)}
    x = chosen["shown"].values
    after = np.flatnonzero(chosen["phase"].values == VALIDATION)
    labels = (
        chosen["shown"].attrs["label"],
        label_of(chosen["target"]),
        f"error [{unit}]",
    )
    since = float(x[after[0]]) if 0 < len(after) < len(x) else None
    points = None
    figures = {}
    if model is not None:
        points = find_points(record, model)
        figures = draw_points(points, model)
        points = {name: np.asarray(values)[points["known"]] for name, values in points.items()}
        del points["known"]
    series = draw_series(
        x,
        measured,
        {"predicted": curve},
        labels=labels,
        most=most,
        since=since,
        points=points,
    )
    return {"record": series, **figures}


def find_points(record: xr.Dataset, model: xr.Dataset) -> dict[str, Any]:
    """Find the points of a model in its record: when each entered, its target, and its features in
    their units.

    The points of the beginning have no sample of their own: they are not ``known``. Features of a
    kernel that combines them cannot be told.
    """
    slots = record["slot"].values
    last = {int(slots[row]): int(row) for row in np.flatnonzero(slots >= 0)}
    rows = np.array(
        [last.get(slot, -1) for slot in range(model["inputs"].sizes["slot"])], dtype=int
    )
    x, target = (
        np.where(rows >= 0, record[name].values[rows], np.nan) for name in ("shown", "target")
    )
    points: dict[str, Any] = {
        "known": rows >= 0,
        "x": x,
        "y": target,
        "entered": x,
        "target": target,
    }
    if "feature_matrix" not in model:
        values = (
            model["inputs"].values * model["feature_scale"].values + model["feature_offset"].values
        )
        points |= {str(name): values[:, i] for i, name in enumerate(model["feature"].values)}
    return points


def draw_points(points: dict[str, Any], model: xr.Dataset) -> dict[str, Any]:
    """Draw the points in the plane of the first lag of the first two signals."""
    from bokeh.transform import linear_cmap

    features = [name for name in points if name not in ("known", "x", "y", "entered", "target")]
    first = list(
        {name.partition("[")[0]: i for i, name in reversed(list(enumerate(features)))}.values()
    )[::-1]
    if len(features) < 2 or not len(points["x"]):
        return {}
    i, j = (*first, 0, 1)[:2] if len(first) > 1 else (0, 1)
    columns = {f"f{k}": points[name] for k, name in enumerate(features)} | {"entered": points["x"]}
    units = json.loads(str(model.attrs.get("feature_units", "[]"))) or [""] * len(features)
    labels = f"{features[i]} [{units[i] or '1'}]", f"{features[j]} [{units[j] or '1'}]"
    entered = points["x"][points["known"]]
    low, high = (entered.min(), entered.max()) if len(entered) else (0.0, 1.0)
    color = linear_cmap("entered", "Viridis256", low=low, high=high, nan_color="gray")
    told = {"entered": "entered"} | dict(zip(features, columns, strict=False))
    look = {"size": 8, "line_color": "gray"}
    return {
        "points": page.draw_marks(columns, f"f{i}", f"f{j}", told, labels, 380, color=color, **look)
    }


def draw_free_run(found: xr.Dataset, most: int) -> dict[str, Any]:
    """Draw the free run of every output."""
    shown = with_clock(found, "sample")["shown"]
    figures = {}
    for output in found["output"].values:
        one = found.sel(output=output)
        unit = str(one["unit"].values) or "1"
        half = Z_95 * np.sqrt(one["variance"].values + float(one["noise_variance"]))
        labels = (shown.attrs["label"], f"{output} [{unit}]", f"error [{unit}]")
        curves = {"free run": Curve(one["mean"].values, half)}
        series = draw_series(shown.values, one["measured"].values, curves, labels=labels, most=most)
        figures[f"free_run_{output}"] = series
    return figures
