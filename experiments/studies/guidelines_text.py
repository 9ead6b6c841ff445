"""Verdicts on the guidelines in words and rows."""

import numpy as np
import xarray as xr

from experiments.benchmark_folder.markdown import number, table
from experiments.studies.claims import GUIDELINES
from experiments.studies.verdict import Outcome

COLUMNS = ("trained", "published", "adaptive", "printed")
HEADINGS = {"trained": "trained", "published": "published", "adaptive": "adaptive", "printed": "the paper's numbers"}
INTRODUCTION = """\
Each claim is a statement about log ratios, paired over seeds (same seed, same data), at several places (tasks,
mostly). A place is won if the 95 % interval of the median ratio (order statistics) lies where the claim wants it, lost
if it lies outside, tied otherwise and where the median is within 1 % of 1; where a place compares several ratios, all
must be won, and one lost is enough. Records without seeds (Boston, Concrete, Tanks) are one number each, counted but
not tested. Tests: Wilcoxon's signed-rank test (exact) at every place, corrected by Holm for the number of places, and
a sign test over the places (for the lowest of three against a chance of a third). Undecided: neither shows anything at
5 %. Holds: more than half of the places are won, and of those with seeds too, and none is lost or the sign test is for
it. Does not hold: no place with seeds is won and the sign test is not for it, or at least half are lost (or shown to be
equal) and the sign test is against it. In part: the rest. `published` and `adaptive` are the other settings; the last
column puts the same test to the numbers that the paper prints, which have no seeds: only the sign test speaks there."""


def csv_rows(store: xr.Dataset) -> list[dict[str, object]]:
    """One row per claim, setting and place; one without a place where there is no result."""
    rows: list[dict[str, object]] = []
    for claim in store["claim"].values:
        for setting in store["setting"].values:
            part = store.sel(claim=claim, setting=setting)
            if not part["verdict"].item():
                continue
            about = {"claim": str(claim), "source": part["source"].item(), "setting": str(setting)}
            about |= {"verdict": part["verdict"].item(), "needs": part["needs"].item()}
            counts = {key: int(part[key]) for key in ("n_won", "n_lost", "n_equal", "n_tied", "n_missing")}
            tests = {key: float(part[key]) for key in ("p_sign", "p_least", "ratio")}
            found = [place for place in part["place"].values if part["outcome"].sel(place=place).item()] or [""]
            rows += [about | counts | tests | _place_columns(part, str(place)) for place in found]
    return rows


def _place_columns(part: xr.Dataset, place: str) -> dict[str, object]:
    """What one place says; nan without one."""
    names = {"median": "place_ratio", "low": "place_ratio_low", "high": "place_ratio_high"}
    if not place:
        numbers = dict.fromkeys((*names.values(), "place_p", "n_seeds"), float("nan"))
        return {"place": "", "outcome": "", "comparison": "", **numbers}
    chosen = part.sel(place=place)
    texts = {"place": place, "outcome": chosen["outcome"].item(), "comparison": chosen["comparison"].item()}
    ratios = {new: float(np.exp(chosen[old])) for old, new in names.items()}
    return {**texts, **ratios, "place_p": float(chosen["p_value"]), "n_seeds": float(chosen["n"])}


def markdown_text(store: xr.Dataset) -> str:
    """Guidelines, claims, and how each was tested."""
    parts = [
        INTRODUCTION,
        "## The six guidelines",
        guideline_table(store),
        "## All claims and parts of guidelines",
        "Won / lost / tied places, the ratio (geometric mean over places of the median ratio that speaks least for the "
        "claim; below 1 speaks for it) and the p-values are those of the setting `trained`.",
        claim_table(store),
        "## How each was tested",
        *(paragraph(store.sel(claim=claim)) for claim in store["claim"].values),
    ]
    return "\n\n".join(parts)


def guideline_table(store: xr.Dataset) -> str:
    """Verdict on each guideline per setting, and those on its parts in the setting `trained`."""
    rows = []
    for guideline, text in GUIDELINES.items():
        own = store.sel(claim=store["guideline_of"] == guideline)
        verdicts = [
            f"{str(name).replace('_', ' ')}: {own['verdict'].sel(claim=name, setting='trained').item()}"
            for name in own["claim"].values
        ]
        summed = [store["guideline_verdict"].sel(guideline=guideline, setting=name).item() for name in COLUMNS]
        rows.append([f"{guideline}. {text}", *(f"**{each}**" if each else "-" for each in summed), "; ".join(verdicts)])
    return table(("guideline", *(HEADINGS[name] for name in COLUMNS), "parts (trained)"), rows)


def claim_table(store: xr.Dataset) -> str:
    """One row per claim: verdicts in all settings, numbers of the headline."""
    rows = []
    for claim in store["claim"].values:
        part = store.sel(claim=claim)
        trained = part.sel(setting="trained")
        cells = [part["verdict"].sel(setting=name).item() or "-" for name in COLUMNS]
        numbers = [_number(trained[key].item()) for key in ("ratio", "p_sign", "p_least")]
        label = str(claim).replace("_", " ")
        rows.append([label, part["source"].item(), f"**{cells[0]}**", *cells[1:], counts(trained), *numbers])
    header = (
        "claim",
        "from",
        *(HEADINGS[name] for name in COLUMNS),
        "won / lost / tied",
        "ratio",
        "p, sign",
        "p, least",
    )
    return table(header, rows)


def counts(part: xr.Dataset) -> str:
    """``7 / 1 / 2``; nothing where nothing was found."""
    won, lost, equal, tied = (int(part[key]) for key in ("n_won", "n_lost", "n_equal", "n_tied"))
    return f"{won} / {lost} / {equal + tied}" if won + lost + equal + tied else "-"


def paragraph(part: xr.Dataset) -> str:
    """A claim, its test, and what every place says in the setting `trained`."""
    trained = part.sel(setting="trained")
    lines = [f"**{str(part['claim'].item()).replace('_', ' ')}** ({part['source'].item()}). {part['statement'].item()}"]
    lines.append(f"{part['test'].item()}")
    lines.append(f"Verdict: {_verdict(trained)}.")
    for outcome in Outcome:
        names = [str(name) for name in part["place"].values if trained["outcome"].sel(place=name) == outcome.value]
        if names and outcome is Outcome.missing:
            lines.append(f"No results: {', '.join(names)}.")
        elif names:
            lines.append(f"{outcome.value.capitalize()}: {', '.join(_ratio(trained.sel(place=n)) for n in names)}.")
    others = [
        f"{HEADINGS[name]} {_verdict(part.sel(setting=name))} ({counts(part.sel(setting=name))})".replace(" (-)", "")
        for name in COLUMNS[1:]
        if part["verdict"].sel(setting=name).item()
    ]
    return " ".join([*lines, *([f"Elsewhere: {'; '.join(others)}."] if others else [])])


def _verdict(part: xr.Dataset) -> str:
    """Verdict, with what is missing."""
    needs = part["needs"].item()
    verdict = part["verdict"].item() or "not computed"
    return f"{verdict}: needs {needs}" if needs and verdict == "undecided" else verdict


def _ratio(place: xr.Dataset) -> str:
    """``Rastrigin 0.81 [0.7, 0.9]``."""
    middle, low, high = (float(np.exp(place[key])) for key in ("median", "low", "high"))
    has_interval = np.isfinite(low) and np.isfinite(high)
    return f"{place['place'].item()} {_number(middle)}" + (
        f" [{_number(low)}, {_number(high)}]" if has_interval else ""
    )


def _number(value: float) -> str:
    return number(value, 3) if np.isfinite(value) else "-"
