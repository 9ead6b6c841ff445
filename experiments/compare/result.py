"""The results of a comparison: a table, a figure, and a page."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from experiments.drawing.tables import fixed, shown_unit, significant, to_text, with_unit
from experiments.files.job_file import JOB_FILE, read_summary
from experiments.validate.assessment import FREE_RUN_LABEL, Assessment
from experiments.validate.report import find_warnings
from sysid import JointModel, Model, store
from sysid.foreign import read_json
from sysid.store import header

#: the parts of the computing time of a run in which its model is made
TRAINING_TIMES = ("record", "loop", "training", "bands")

#: scores of a run on its own samples: keys of its summary, with the heads of their columns
OWN_SCORES = {
    "smse": "model",
    "smse_limit": "limit",
    "smse_linear": "best ARX",
    "smse_stream": "model, stream",
    "smse_stream_linear": "recursive least squares, stream",
}


def tabulate(assessments: Mapping[str, Assessment], paths: Mapping[str, Path]) -> pd.DataFrame:
    """Return the table with a row for each run and output; nan where a score does not exist."""
    rows = []
    for name, assessment in assessments.items():
        seconds = _training_seconds(paths[name])
        one_step_case, free_run_case = assessment.main.values()
        for output, model in zip(assessment.outputs, assessment.joint.models, strict=True):
            one_step = assessment.scores[one_step_case][output]
            free_run = assessment.scores[free_run_case][output]
            row = {
                "run": name,
                "output": output,
                "unit": assessment.error_unit(output),
                "rmse_one_step": one_step.rmse,
                "rmse_free_run": free_run.rmse,
                **_errors_without_gross_errors(assessment, output),
                "fit_percent_free_run": free_run.fit_percent,
                "nlpd_one_step": one_step.nlpd,
                "nlpd_free_run": free_run.nlpd,
                "coverage_95_one_step": one_step.coverage_95,
                "coverage_95_free_run": free_run.coverage_95,
                "lags": _describe_lags_of(model),
                "points": model.gp.n_points,
                "seconds": seconds,
            }
            rows.append(row)
    return pd.DataFrame(rows)


def _errors_without_gross_errors(assessment: Assessment, output: str) -> dict[str, float]:
    """Return the RMSE of an output without gross errors of the records; empty if there are none."""
    scores = assessment.scores_without_gross_errors
    return {f"rmse_{kind}_without_gross_errors": scores[kind][output].rmse for kind in scores}


def tabulate_own_scores(
    joints: Mapping[str, JointModel], paths: Mapping[str, Path]
) -> pd.DataFrame:
    """Return a table with what each run has found on its own samples, a row for each target.

    It has the SMSE of the model, of the limit and of the best linear models, as in the summary of
    the run; nan stands for one that does not exist. Models without a run have no row.
    """
    rows = []
    for name, path in paths.items():
        for summary in _read_summaries(path, joints[name].output_names):
            scores = {key: summary.get(key) for key in OWN_SCORES}
            rows.append({"run": name, "target": summary["target"], **scores})
    return pd.DataFrame(rows, columns=["run", "target", *OWN_SCORES]).astype(
        dict.fromkeys(OWN_SCORES, float)
    )


def _read_summaries(path: Path, outputs: Sequence[str]) -> list[dict[str, Any]]:
    """Return the summaries of the run of a model, one for each output; empty if it has none."""
    if path.name == JOB_FILE:
        summary = read_summary(path)
        return [summary] if isinstance(summary.get("target"), str) else [*summary.values()]
    folder = path.parent
    names = ["summary.json"]
    if len(outputs) > 1:
        names = [f"{output}/summary.json" for output in outputs]
    return [read_json(folder, name) for name in names if (folder / name).is_file()]


def write_own_scores(table: pd.DataFrame) -> str:
    """Return the table of the runs' own scores as text; empty if there are none."""
    if not len(table):
        return ""
    text = table[["run", "target"]].copy()
    for key, words in OWN_SCORES.items():
        text[words] = [significant(value) or "-" for value in table[key]]
    title = "SMSE of each run on its own samples, one step ahead, after the stream and in it:"
    return f"{title}\n{to_text(text, words=('target',))}"


def _training_seconds(path: Path) -> float:
    """Return the time [s] in which the model of a file was made; nan if the file has no times."""
    times = json.loads(str(header(path).get("timings", "{}")))
    if not times:
        return np.nan
    return sum(times[part] for part in TRAINING_TIMES if part in times)


def _describe_lags_of(model: Model) -> str:
    """Return the lags of all signals as text, then those of a linear part."""
    n = model.narx.n_features - model.gp.n_linear
    text = _join(_describe_features(model.narx.features[:n]))
    if not model.gp.n_linear:
        return text
    of_linear_part = _describe_features(model.linear_features)
    lags = set(of_linear_part.values())
    if len(lags) == 1:
        return f"{text}; linear part {lags.pop()}"
    return f"{text}; linear part {_join(of_linear_part)}"


def _join(lags: Mapping[str, str]) -> str:
    """Return the lags of all signals as one text, ``y 1 to 3, u 0 1``."""
    return ", ".join(f"{signal} {text}" for signal, text in lags.items())


def _describe_features(features: Sequence[tuple[str, int]]) -> dict[str, str]:
    """Return the lags of every signal among these features as text."""
    lags: dict[str, list[int]] = {}
    for signal, lag in features:
        lags.setdefault(signal, []).append(lag)
    return {signal: _describe_lags(numbers) for signal, numbers in lags.items()}


def _describe_lags(lags: Sequence[int]) -> str:
    """Return lags in words.

    >>> _describe_lags((1,)), _describe_lags((1, 2, 3)), _describe_lags((1, 4))
    ('1', '1 to 3', '1 4')
    """
    is_gapless = len(lags) > 1 and len(lags) == lags[-1] - lags[0] + 1
    return f"{lags[0]} to {lags[-1]}" if is_gapless else " ".join(map(str, lags))


def write_text(table: pd.DataFrame) -> str:
    """Return the table as text for the terminal."""
    text = pd.DataFrame({"run": table["run"], "output": table["output"]})
    for kind, words in (("one_step", "1 step"), (FREE_RUN_LABEL, "free run")):
        errors = zip(table[f"rmse_{kind}"], table["unit"], strict=True)
        text[f"RMSE {words}"] = [with_unit(value, unit) for value, unit in errors]
        key = f"rmse_{kind}_without_gross_errors"
        if key in table:
            errors = zip(table[key], table["unit"], strict=True)
            head = f"{words} without gross errors"
            text[head] = [with_unit(value, unit) for value, unit in errors]
        if kind == FREE_RUN_LABEL:
            text["fit %"] = [fixed(value, 1) for value in table["fit_percent_free_run"]]
        text[f"NLPD {words}"] = [fixed(value, 2) for value in table[f"nlpd_{kind}"]]
        text[f"95 % {words}"] = [fixed(100 * value, 1) for value in table[f"coverage_95_{kind}"]]
    text["lags"] = table["lags"]
    text["points"] = table["points"]
    text["seconds"] = [fixed(value, 2) for value in table["seconds"]]
    return to_text(text, words=("output", "lags"))


def longest_free_run(
    assessments: Mapping[str, Assessment], output: str
) -> tuple[xr.DataArray, Any, dict[str, Any]]:
    """Return the free runs of the longest record.

    Returns
    -------
    clock : (n,)
        Times of the samples as they are shown.
    measured : (n,)
        The measured output.
    means : dict
        The mean (n,) of the free run of every model, by the name of the run.
    """
    from experiments.drawing.style import with_clock

    first = next(iter(assessments.values()))
    free_runs = first.forecasts[first.main[FREE_RUN_LABEL]].records
    i = first.outputs.index(output)
    number = max(range(len(free_runs)), key=lambda k: len(free_runs[k].sample))
    longest = free_runs[number]
    record = with_clock(first.material.records[longest.record], "time")
    clock = record["shown"].isel(time=longest.sample)
    means = {}
    for name, assessment in assessments.items():
        forecast = assessment.forecasts[assessment.main[FREE_RUN_LABEL]]
        means[name] = forecast.records[number].mean[:, i]
    return clock, longest.measured[:, i], means


def draw(assessments: Mapping[str, Assessment]) -> bytes:
    """Draw the free runs of all models and their errors, two panels for each output, as PNG."""
    from experiments.drawing.style import PALETTE, draw_line, png, screen, show_from_to

    first = next(iter(assessments.values()))
    n_outputs = len(first.outputs)
    figure, axes = screen(2 * n_outputs, 5.0 * n_outputs, sharex=True)
    for above, below, output in zip(axes[::2], axes[1::2], first.outputs, strict=True):
        clock, measured, means = longest_free_run(assessments, output)
        x = clock.values
        draw_line(above, x, measured, color="black", linewidth=1.2, label="measured")
        for (name, mean), color in zip(means.items(), PALETTE * len(means), strict=False):
            draw_line(above, x, mean, color=color, linewidth=1.0, label=name)
            draw_line(below, x, measured - mean, color=color, linewidth=0.8)
        above.set(ylabel=f"{output} [{shown_unit(first.unit(output))}]")
        below.set(ylabel=f"error [{first.error_unit(output)}]", xlabel=clock.attrs["label"])
        show_from_to(below, x)
        above.set_title(f"Free runs after {first.window} measured samples", loc="left")
        above.legend(frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 0.0))
    return png(figure)


def write_page(
    assessments: Mapping[str, Assessment],
    table: pd.DataFrame,
    notes: Sequence[str],
    folder: Path,
    *,
    configuration: str,
    seed: int,
) -> None:
    """Write the comparison as a page, which states the configuration as YAML and the seed."""
    from experiments.drawing import page

    first = next(iter(assessments.values()))
    figures = {}
    for output in first.outputs:
        clock, measured, means = longest_free_run(assessments, output)
        labels = (
            clock.attrs["label"],
            f"{output} [{shown_unit(first.unit(output))}]",
            f"error [{first.error_unit(output)}]",
        )
        curves = {name: page.Curve(mean) for name, mean in means.items()}
        max_samples = page.MAX_SAMPLES_DRAWN // (len(curves) * len(first.outputs))
        figures[output] = page.draw_series(
            clock.values, measured, curves, labels=labels, max_samples=max_samples
        )
    attributes = {
        "package_versions": store.package_versions(),
        "configuration": configuration,
        "seed": seed,
    }
    warnings = list(notes)
    for name, assessment in assessments.items():
        warnings += [f"{name}: {text}" for text in find_warnings(assessment)]
    page.write(
        folder / page.PAGE_FILE,
        Path(__file__).with_name("comparison.html"),
        figures,
        title=f"{len(assessments)} models compared",
        name=first.material.source.name,
        warnings=warnings,
        rows=table.astype(object).where(table.notna(), None).to_dict("records"),
        part=first.material.part,
        n_samples=first.material.n_samples,
        window=first.window,
        origin=page.read_origin(folder, attributes),
    )
