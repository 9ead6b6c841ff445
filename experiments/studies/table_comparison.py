"""What speaks for a reference of the acceptance, and what following the stream brings."""

import numpy as np
import xarray as xr

from experiments.benchmark_folder.markdown import number, table
from experiments.studies.label import LABELS
from experiments.studies.setting import Setting
from experiments.studies.stream import CRITERIA
from experiments.studies.table_summary import DISTINCT, Summary, select

REFERENCES = DISTINCT[1:]  # leave_one_out, in_sample
ORDER = (Setting.published.value, Setting.trained.value)  # settings that can speak for a reference
MATTERS = 1.05  # ratio of the SMSE that counts as a difference


def percent_difference(cells: list[Summary]) -> float:
    """Mean absolute difference of our median percentages accepted to the published ones, in points of percent."""
    differences = [abs(c.median("accepted_percent") - c.published.accepted_percent) for c in cells if c.n_seeds]
    return float(np.mean(differences)) if differences else float("nan")


def reference_text(cells: list[Summary]) -> str:
    """Which reference the published percentages speak for: a table, and a sentence for each setting."""
    rows, sentences, n_literal = [], [], 0
    for setting in ORDER:
        verdicts = []
        for criterion in LABELS:
            here = select(cells, setting=setting, criterion=criterion)
            difference = {r: percent_difference(select(here, variant=r)) for r in REFERENCES}
            if not np.isfinite(list(difference.values())).all():
                continue
            rows.append([setting, LABELS[criterion], *(f"{value:.1f}" for value in difference.values())])
            nearest, farthest = sorted(REFERENCES, key=lambda reference: difference[reference])
            n_literal += nearest == CRITERIA[criterion].published_reference.value
            verdicts.append(
                f"for {nearest} with {LABELS[criterion].lower()} ({difference[nearest]:.1f} against "
                f"{difference[farthest]:.1f} points)"
            )
        if verdicts:
            sentences.append(f"In the setting `{setting}` the published percentages speak {', '.join(verdicts)}.")
    if not rows:
        return ""
    head = "## Which reference the published percentages speak for\n\nMean absolute difference over the datasets:"
    grid = table(("setting", "criterion", *REFERENCES), rows)
    literal = f"The nearer reference is the one of the paper's text (`published`) in {n_literal} of {len(rows)} cases."
    return f"{head}\n\n{grid}\n\n{' '.join(sentences)} {literal}"


def adaptive_text(store: xr.Dataset) -> str:
    """What re-estimating brings, harms and costs: SMSE of adaptive over that of trained, seed by seed."""
    store = store.sel(threshold_choice="published", variant=list(DISTINCT))
    trained, adaptive = (store.sel(setting=s.value) for s in (Setting.trained, Setting.adaptive))
    ratios, seconds = adaptive["smse"] / trained["smse"], adaptive["seconds"] / trained["seconds"]
    rows, medians = [], {}
    for dataset in store["dataset"].values:
        ratio = ratios.sel(dataset=dataset)
        if not np.isfinite(ratio).any():
            continue
        medians[str(dataset)] = float(ratio.median())
        cost = (float(x.sel(dataset=dataset).median()) for x in (seconds, adaptive["seconds"], adaptive["n_estimates"]))
        rows.append([str(dataset), number(medians[str(dataset)], 3), worst(ratio), *(number(x, 3) for x in cost)])
    if not rows:
        return ""
    header = ("dataset", "SMSE ratio, median", "SMSE ratio, worst", "time ratio, median", "time [s]", "estimates")
    head = "## What `adaptive` brings, harms and costs against `trained`"
    text = (
        "Ratios adaptive / trained at the published thresholds over criteria, variants and seeds; median time of an "
        "adaptive stream and median number of estimates in it."
    )
    return f"{head}\n\n{text}\n\n{table(header, rows)}\n\n{_verdict(medians, float(seconds.median()))}"


def worst(ratio: xr.DataArray) -> str:
    """Largest ratio over criteria, variants and seeds, and where it is."""
    values = ratio.transpose("criterion", "variant", "seed")
    place = np.unravel_index(int(np.nanargmax(values.values)), values.shape)
    criterion, variant, seed = (values[d].values[i] for d, i in zip(values.dims, place, strict=True))
    acceptance = "without acceptance" if variant == "none" else f"acceptance {variant}"
    return f"{number(float(values.values[place]), 3)} ({LABELS[str(criterion)].lower()}, {acceptance}, seed {seed})"


def _verdict(medians: dict[str, float], seconds: float) -> str:
    """Datasets that it helps and harms by more than 5 percent of the SMSE, and its price."""
    helped = sorted((d for d, ratio in medians.items() if ratio < 1 / MATTERS), key=lambda d: medians[d])
    harmed = sorted((d for d, ratio in medians.items() if ratio > MATTERS), key=lambda d: -medians[d])
    named = {
        text: ", ".join(f"{d} ({number(medians[d], 3)})" for d in found) or "none"
        for text, found in (("lowers", helped), ("raises", harmed))
    }
    return (
        f"By more than 5 %, it lowers the SMSE of {len(helped)} of {len(medians)} datasets ({named['lowers']}) and "
        f"raises that of {len(harmed)} ({named['raises']}); a stream takes {number(seconds, 3)} times as long (median)."
    )
