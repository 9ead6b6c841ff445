"""The report in short: how often the published errors are reached, what was reachable, which guidelines hold."""

from collections.abc import Mapping

import xarray as xr

from experiments.benchmark_folder.markdown import table
from experiments.studies.claims import GUIDELINES
from experiments.studies.guidelines_text import COLUMNS, HEADINGS
from experiments.studies.significant import significant
from experiments.studies.table_summary import DISTINCT, select, summaries

TABLES = ("table_2", "table_3", "table_4")
SETTINGS = ("trained", "adaptive", "published")


def headline(stores: Mapping[str, xr.Dataset]) -> str:
    """Markdown from those stores that are there, by the name of their study."""
    parts = [_counts(stores), _baselines(stores), _guidelines(stores)]
    return "\n\n".join(part for part in parts if part)


def _counts(stores: Mapping[str, xr.Dataset]) -> str:
    """Rows at or below the published SMSE: the fewest and the most over criteria and variants."""
    rows = [
        [name.replace("_", " ").capitalize(), *(_fewest_and_most(stores[name], name, setting) for setting in SETTINGS)]
        for name in TABLES
        if name in stores
    ]
    text = (
        "Datasets whose median SMSE is at or below the published one, at the published thresholds; the fewest to the "
        "most over three criteria, without acceptance and with it under each reference:"
    )
    return f"{text}\n\n{table(('', *SETTINGS), rows)}" if rows else ""


def _fewest_and_most(store: xr.Dataset, name: str, setting: str) -> str:
    """``8 to 9 of 10``."""
    cells = [cell for cell in select(summaries(store, name), setting=setting, choice="published") if cell.n_seeds]
    columns = {(cell.criterion, cell.variant) for cell in cells if cell.variant in DISTINCT}
    found = [[c.is_at_or_below for c in select(cells, criterion=k, variant=v)] for k, v in columns]
    if not found:
        return "no data"
    low, high = min(map(sum, found)), max(map(sum, found))
    return f"{low if low == high else f'{low} to {high}'} of {max(map(len, found))}"


def _baselines(stores: Mapping[str, xr.Dataset]) -> str:
    """Full GP on Van der Pol, and what was reached on the Building beside its floors."""
    if "baselines" not in stores:
        return ""
    store = stores["baselines"]
    median = store["smse"].median("seed")
    lines = []
    if _has(median, "Van der Pol", "full_gp"):
        full = float(median.sel(dataset="Van der Pol", model="full_gp"))
        lines.append(f"- Van der Pol, full GP: SMSE {significant(full)}; published 0.0002.")
    if _has(median, "Building", "vfe"):
        lines.append(_building(store.sel(dataset="Building")))
    return "\n".join(lines)


def _has(median: xr.DataArray, dataset: str, model: str) -> bool:
    return dataset in median["dataset"].values and bool(median.sel(dataset=dataset, model=model).notnull())


def _building(store: xr.Dataset) -> str:
    """VFE against the bilinear least-squares fit of the same lags and the Kalman filter of the true plant."""
    smse = {name: store["smse"].sel(model=name) for name in ("vfe", "bilinear", "online_gp", "online_gp_adaptive")}
    value = {name: significant(float(x.median())) for name, x in smse.items()}
    floor = store["floor_whole_past"]
    ratios = [significant(float((smse["vfe"] / x).median())) for x in (smse["bilinear"], floor)]
    return (
        f"- Building: VFE {value['vfe']} (published, another plant: 0.3397), {ratios[0]} times the bilinear "
        f"least-squares fit of the same lags ({value['bilinear']}), {ratios[1]} times the Kalman filter of the true "
        f"plant, told the whole past ({significant(float(floor.median()))}); the online GP {value['online_gp']}, "
        f"following the stream {value['online_gp_adaptive']}."
    )


def _guidelines(stores: Mapping[str, xr.Dataset]) -> str:
    """Verdict of each guideline by setting, and of the same tests on the numbers that the paper prints."""
    if "guidelines" not in stores:
        return ""
    verdicts = stores["guidelines"]["guideline_verdict"]
    rows = [
        [f"{n}. {text}", *(verdicts.sel(guideline=n, setting=name).item() or "-" for name in COLUMNS)]
        for n, text in GUIDELINES.items()
    ]
    header = ("guideline", *(HEADINGS[name] for name in COLUMNS))
    return f"The paper's guidelines, tested over tasks and seeds:\n\n{table(header, rows)}"
