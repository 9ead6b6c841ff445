"""What speaks for a reference of the acceptance, and what following the stream brings."""

import numpy as np
import xarray as xr

from experiments.benchmark_folder.markdown import table
from experiments.studies.label import LABELS, REFERENCES, acceptance_name
from experiments.studies.setting import Setting
from experiments.studies.significant import significant
from experiments.studies.stream import CRITERIA
from experiments.studies.table_summary import DISTINCT, Summary, select

TESTED = DISTINCT[1:]  # leave_one_out, in_sample
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
            difference = {r: percent_difference(select(here, variant=r)) for r in TESTED}
            if not np.isfinite(list(difference.values())).all():
                continue
            rows.append([setting, LABELS[criterion], *(f"{value:.1f}" for value in difference.values())])
            nearest, farthest = sorted(TESTED, key=lambda reference: difference[reference])
            n_literal += nearest == CRITERIA[criterion].published_reference.value
            verdicts.append(
                f"for {REFERENCES[nearest]} with {LABELS[criterion].lower()} ({difference[nearest]:.1f} against "
                f"{difference[farthest]:.1f} points)"
            )
        if verdicts:
            sentences.append(f"In the setting `{setting}` the published percentages speak {', '.join(verdicts)}.")
    if not rows:
        return ""
    head = (
        "## Which reference the published percentages speak for\n\nMean absolute difference of our median percentages "
        "accepted to the published ones over the datasets, in points of percent:"
    )
    grid = table(("setting", "criterion", *(REFERENCES[r] for r in TESTED)), rows)
    literal = f"The nearer reference is the one of the paper's formula in {n_literal} of {len(rows)} cases."
    return f"{head}\n\n{grid}\n\n{' '.join(sentences)} {literal}"


def adaptive_text(store: xr.Dataset) -> str:
    """What re-estimating brings, harms and costs: SMSE of adaptive over that of trained, seed by seed."""
    store = store.sel(threshold_choice="published", variant=list(DISTINCT))
    trained, adaptive = (store.sel(setting=s.value) for s in (Setting.trained, Setting.adaptive))
    is_record = trained["smse"].notnull().sum("seed") == 1  # one run without following stands beside every seed of it
    trained = trained.where(~is_record, trained.isel(seed=0, drop=True))
    ratios, seconds = adaptive["smse"] / trained["smse"], adaptive["seconds"] / trained["seconds"]
    rows, medians = [], {}
    for dataset in store["dataset"].values:
        ratio = ratios.sel(dataset=dataset)
        if not np.isfinite(ratio).any():
            continue
        medians[str(dataset)] = float(ratio.median())
        slower, time, n_estimates = (
            float(x.sel(dataset=dataset).median()) for x in (seconds, adaptive["seconds"], adaptive["n_estimates"])
        )
        cost = (significant(slower), significant(1e3 * time), f"{n_estimates:g}")
        rows.append([str(dataset), significant(medians[str(dataset)]), worst(ratio), *cost])
    if not rows:
        return ""
    header = ("dataset", "SMSE ratio, median", "SMSE ratio, worst", "time ratio, median", "time [ms]", "estimates")
    head = "## What `adaptive` brings, harms and costs against `trained`"
    text = (
        "Ratios adaptive / trained at the published thresholds over criteria, variants and seeds, seed by seed; "
        "median time of an adaptive stream, and how often the hyper-parameters are estimated in it (median)."
    )
    return f"{head}\n\n{text}\n\n{table(header, rows)}\n\n{_verdict(medians, float(seconds.median()))}"


def worst(ratio: xr.DataArray) -> str:
    """Largest ratio over criteria, variants and seeds, and where it is."""
    values = ratio.transpose("criterion", "variant", "seed")
    place = np.unravel_index(int(np.nanargmax(values.values)), values.shape)
    criterion, variant, seed = (values[d].values[i] for d, i in zip(values.dims, place, strict=True))
    where = f"{LABELS[str(criterion)].lower()}, {acceptance_name(str(variant))}, seed {seed}"
    return f"{significant(float(values.values[place]))} ({where})"


def _verdict(medians: dict[str, float], seconds: float) -> str:
    """Datasets that it helps and harms by more than 5 percent of the SMSE, and its price."""
    helped = sorted((d for d, ratio in medians.items() if ratio < 1 / MATTERS), key=lambda d: medians[d])
    harmed = sorted((d for d, ratio in medians.items() if ratio > MATTERS), key=lambda d: -medians[d])
    named = {
        text: ", ".join(f"{d} ({significant(medians[d])})" for d in found) or "none"
        for text, found in (("lowers", helped), ("raises", harmed))
    }
    return (
        f"By more than 5 %, it lowers the SMSE of {len(helped)} of {len(medians)} datasets ({named['lowers']}) and "
        f"raises that of {len(harmed)} ({named['raises']}); a stream takes {significant(seconds)} times as long "
        "(median)."
    )
