"""What the grid of acceptance and reduction criteria says: best cells, matched pairs, criteria that agree."""

import json
import warnings

import numpy as np
import xarray as xr

from experiments.benchmark_folder.markdown import table
from experiments.studies.label import LABELS
from experiments.studies.significant import significant

#: criteria that choose the same points (section 3.2 of the paper) and share their acceptance (section 3.3)
CLASSES = {
    "prior_entropy": "entropy",
    "predictive_entropy": "entropy",
    "mean_relevance": "relevance",
    "marginal_log_likelihood": "likelihood",
    "log_predictive_density": "likelihood",
}
PAIRS = (("prior_entropy", "predictive_entropy"), ("marginal_log_likelihood", "log_predictive_density"))
SAME = 1e-6  # relative difference of two SMSE that come from the same points
NEAR = 0.05  # relative difference of two SMSE that hardly matters
ROLES = {"reduction": "acceptance", "acceptance": "reduction"}  # each with the other


HEAD = """All new points are offered with trained hyper-parameters. The *reduction* criterion chooses the point that
leaves, the *acceptance* criterion judges whether the new point is stored at all (stored points by the leave-one-out
reference). A pair is *matched* if the acceptance is the one that the paper derives from the reduction, or one that
chooses the same points. Medians over seeds; *best* is the pair with the lowest median SMSE of the dataset."""


def cell_medians(store: xr.Dataset) -> xr.Dataset:
    """Medians over seeds (dataset, acceptance, reduction); nan without data."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="All-NaN slice", category=RuntimeWarning)
        return store.median("seed", skipna=True).transpose("dataset", "acceptance", "reduction")


def relative(smse: xr.DataArray) -> xr.DataArray:
    """Median SMSE over that of the best cell of the same dataset."""
    return smse / smse.min(["acceptance", "reduction"])


def is_matched(acceptance: str, reduction: str) -> bool:
    """Whether the acceptance is the one that the paper gives to the reduction."""
    return CLASSES.get(acceptance) == CLASSES[reduction]


def grid_markdown(store: xr.Dataset) -> str:
    """Sections: best cells, the diagonal, the equivalences, medians per dataset."""
    medians = cell_medians(store)["smse"]
    gaps: dict[str, str] = json.loads(store.attrs.get("gaps", "{}"))
    known = medians.dropna("dataset", how="all")
    missing = [str(name) for name in medians["dataset"].values if name not in known["dataset"].values]
    parts = [f"{name}: {gaps.get(name, 'no data')}." for name in missing]
    if not known.sizes["dataset"]:
        return "\n\n".join(parts)
    parts += [HEAD, "## Best pairs", best_table(known), matched_text(known)]
    parts += ["## Criteria that choose the same points", agreement_text(store)]
    parts += [
        "## Median SMSE",
        "Rows: reduction; columns: acceptance; the lowest bold.",
        *(_dataset_table(known.sel(dataset=name)) for name in known["dataset"].values),
    ]
    return "\n\n".join(parts)


def best_table(medians: xr.DataArray) -> str:
    """Best cell of each dataset, the best matched one, the best without acceptance."""
    rows = []
    for name, ratio in zip(medians["dataset"].values, relative(medians), strict=True):
        matched = ratio.where(matched_mask(ratio)).min()
        unconditional = ratio.sel(acceptance="none").min()
        rows.append(
            [
                str(name),
                significant(float(medians.sel(dataset=name).min())),
                ", ".join(best_cells(ratio)),
                significant(float(matched), 4),
                significant(float(unconditional), 4),
            ]
        )
    header = (
        "dataset",
        "lowest SMSE",
        "best pair: reduction with acceptance",
        "best matched / best",
        "best without acceptance / best",
    )
    return table(header, rows)


def best_cells(ratio: xr.DataArray) -> list[str]:
    """Cells of a dataset that share the lowest SMSE, one for criteria that choose the same points."""
    found: dict[tuple[str, str | None], str] = {}
    for acceptance in ratio["acceptance"].values:
        for reduction in ratio["reduction"].values:
            if float(ratio.sel(acceptance=acceptance, reduction=reduction)) <= 1.0 + SAME:
                label = "no acceptance" if acceptance == "none" else f"{LABELS[acceptance].lower()}"
                found.setdefault(
                    (CLASSES[reduction], CLASSES.get(str(acceptance))), f"{LABELS[reduction]} with {label}"
                )
    return list(found.values())


def matched_mask(cells: xr.DataArray) -> xr.DataArray:
    """Whether each cell (acceptance, reduction) is matched."""
    acceptances, reductions = (cells[dim].values for dim in ("acceptance", "reduction"))
    flags = [[is_matched(str(a), str(r)) for r in reductions] for a in acceptances]
    return xr.DataArray(flags, coords={"acceptance": acceptances, "reduction": reductions})


def matched_text(medians: xr.DataArray) -> str:
    """Whether the matched acceptance is the best one: dataset by dataset, reduction by reduction, on the whole."""
    ratio = relative(medians)
    accepted = ratio.sel(acceptance=[name for name in ratio["acceptance"].values if name != "none"])
    mask = matched_mask(accepted)
    lowest = accepted.min(["acceptance", "reduction"])
    matched = accepted.where(mask).min(["acceptance", "reduction"])
    among, near = (int((matched <= lowest * (1 + margin)).sum()) for margin in (SAME, NEAR))
    per_column = accepted.where(mask).min("acceptance") <= accepted.min("acceptance") * (1 + SAME)
    mean = xr.apply_ufunc(np.exp, xr.apply_ufunc(np.log, ratio).mean("dataset"))
    rows = [
        [LABELS[str(r)]]
        + [significant(float(mean.sel(acceptance=a, reduction=r)), 4) for a in ratio["acceptance"].values]
        + [f"{int(per_column.sel(reduction=r).sum())} of {ratio.sizes['dataset']}"]
        for r in ratio["reduction"].values
    ]
    names = ["none" if a == "none" else LABELS[str(a)].lower() for a in ratio["acceptance"].values]
    header = ("reduction", *names, "matched is best in")
    n = ratio.sizes["dataset"]
    answer = (
        f"The best pair with an acceptance is a matched one in {among} of {n} datasets, and a matched one is within "
        f"{100 * NEAR:.0f} % of it in {near}. On the whole (geometric mean over datasets of SMSE / best SMSE) "
        f"{_overall(mean)}. All of these means, and in how many datasets the matched acceptance is the best one of a "
        "reduction:"
    )
    return f"{answer}\n\n{table(header, rows)}"


def _overall(mean: xr.DataArray) -> str:
    """Best pair on the whole, and the best matched one if it is another."""
    best, matched = float(mean.min()), float(mean.where(matched_mask(mean)).min())
    texts = [f"the lowest is {significant(best, 4)}: {' and '.join(best_cells(mean / best))}"]
    if matched > best * (1 + SAME):
        of_matched = best_cells((mean / matched).where(matched_mask(mean)))
        texts.append(f"the best matched pair has {significant(matched, 4)}: {' and '.join(of_matched)}")
    return "; ".join(texts)


def agreement(store: xr.Dataset, role: str) -> tuple[int, int, float]:
    """Pairs of cells that differ in two equivalent criteria of one role: how many agree, how many there are.

    Agreement: the same number of revised points and the same SMSE within a relative difference of 1e-6. The third
    number is the largest relative difference of the SMSE.
    """
    n_equal, n_all, largest = 0, 0, 0.0
    for first, second in PAIRS:
        one, other = (store.sel({role: name}) for name in (first, second))
        difference = abs(one["smse"] / other["smse"] - 1.0)
        n_all += int(difference.notnull().sum())
        n_equal += int(((difference <= SAME) & (one["n_revised"] == other["n_revised"])).sum())
        largest = max(largest, float(difference.max()))
    return n_equal, n_all, largest


def agreement_text(store: xr.Dataset) -> str:
    """Check of the paper's equivalences, cell by cell and seed by seed."""
    pairs = " and ".join(f"{LABELS[a].lower()} with {LABELS[b].lower()}" for a, b in PAIRS)
    lines = [f"Compared: {pairs}, in the same dataset and seed."]
    for role, other in ROLES.items():
        equal, n, largest = agreement(store, role)
        lines.append(
            f"As {role} criteria, under every {other}: {equal} of {n} pairs of cells agree in the number of revised "
            f"points and in the SMSE (relative difference at most {significant(SAME, 1)}); the largest difference is "
            f"{significant(largest)}."
        )
    return "\n\n".join(lines)


def _dataset_table(medians: xr.DataArray) -> str:
    """One dataset: reduction by acceptance, the best cells bold."""
    ratio = medians / medians.min()
    rows = []
    for reduction in medians["reduction"].values:
        cells = [LABELS[str(reduction)]]
        for acceptance in medians["acceptance"].values:
            where = {"acceptance": acceptance, "reduction": reduction}
            text = significant(float(medians.sel(where)))
            cells.append(f"**{text}**" if float(ratio.sel(where)) <= 1 + SAME else text)
        rows.append(cells)
    names = ["none" if a == "none" else LABELS[str(a)].lower() for a in medians["acceptance"].values]
    return f"### {medians['dataset'].item()}\n\n" + table(("reduction", *names), rows)
