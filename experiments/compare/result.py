"""What a comparison leaves behind: a table, a figure, a page."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from experiments.drawing.tables import fixed, to_text, with_unit
from experiments.validate.assessment import FREE_RUN, Assessment
from experiments.validate.report import warn
from sysid import store
from sysid.store import header

LEARNING = (
    "record",
    "loop",
    "training",
    "bands",
)  # times of a run in which its model came about


def tabulate(found: Mapping[str, Assessment], paths: Mapping[str, Path]) -> pd.DataFrame:
    """Tabulate a row for each run and output; nan where a measure does not exist."""
    rows = []
    for name, assessment in found.items():
        times = json.loads(str(header(paths[name]).get("timings", "{}")))
        for output, model in zip(assessment.outputs, assessment.joint.models, strict=True):
            near, far = (assessment.scores[case][output] for case in assessment.main.values())
            row = {
                "run": name,
                "output": output,
                "unit": assessment.error_unit(output),
                "rmse_one_step": near.rmse,
            }
            row |= {"rmse_free_run": far.rmse, "fit_percent_free_run": far.fit_percent}
            row |= {"nlpd_one_step": near.nlpd, "nlpd_free_run": far.nlpd}
            row |= {
                "coverage_95_one_step": near.coverage_95,
                "coverage_95_free_run": far.coverage_95,
            }
            row |= {
                "lags": ", ".join(
                    f"{signal} {_span(lags)}" for signal, lags in model.narx.lags.items() if lags
                )
            }
            row |= {"points": model.gp.n_points}
            row |= {
                "seconds": sum(times[part] for part in LEARNING if part in times)
                if times
                else np.nan
            }
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
    """Write the table for the terminal."""
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


def longest_free_run(
    found: Mapping[str, Assessment], output: str
) -> tuple[xr.DataArray, Any, dict[str, Any]]:
    """Clock and measurement of the longest record, and the mean of the free run of every model."""
    from experiments.drawing.style import with_clock

    one = next(iter(found.values()))
    runs = one.forecasts[one.main[FREE_RUN]].records
    i = one.outputs.index(output)
    number = max(range(len(runs)), key=lambda k: len(runs[k].sample))
    clock = with_clock(one.material.records[runs[number].record], "time")["shown"].isel(
        time=runs[number].sample
    )
    means = {
        name: a.forecasts[a.main[FREE_RUN]].records[number].mean[:, i] for name, a in found.items()
    }
    return clock, runs[number].measured[:, i], means


def draw(found: Mapping[str, Assessment]) -> bytes:
    """Draw the free runs of all models over the measurement, and their errors below, output by
    output.
    """
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
    found: Mapping[str, Assessment],
    table: pd.DataFrame,
    notes: Sequence[str],
    folder: Path,
    *,
    configuration: str,
    seed: int,
) -> None:
    """Write the comparison as a page, which states the configuration as YAML and the seed."""
    from experiments.drawing import page

    one = next(iter(found.values()))
    figures = {}
    for output in one.outputs:
        clock, measured, means = longest_free_run(found, output)
        labels = (
            clock.attrs["label"],
            f"{output} [{one.unit(output) or '1'}]",
            f"error [{one.error_unit(output)}]",
        )
        curves = {name: page.Curve(mean) for name, mean in means.items()}
        most = page.MAX_SAMPLES_DRAWN // (len(curves) * len(one.outputs))
        figures[output] = page.draw_series(clock.values, measured, curves, labels=labels, most=most)
    about = {
        "package_versions": store.package_versions(),
        "configuration": configuration,
        "seed": seed,
    }
    page.write(
        folder / page.PAGE_FILE,
        Path(__file__).with_name("comparison.html"),
        figures,
        title=f"{len(found)} models compared",
        name=one.material.source.name,
        warnings=[
            *notes,
            *(f"{name}: {text}" for name, assessment in found.items() for text in warn(assessment)),
        ],
        rows=table.astype(object).where(table.notna(), None).to_dict("records"),
        part=one.material.part,
        n_samples=one.material.n_samples,
        window=one.window,
        origin=page.read_origin(folder, about),
    )
