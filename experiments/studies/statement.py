"""Claims of the paper about one figure, tested on its store and told with every ratio."""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from experiments.studies.claims import PaperClaim
from experiments.studies.evidence import Results
from experiments.studies.significant import significant
from experiments.studies.stream import spread
from experiments.studies.verdict import Comparison, judge, judgement


def claim_list(claims: Sequence[PaperClaim], study: str, store: xr.Dataset, setting: str) -> str:
    """One item of Markdown per claim: verdict, what the paper says; below it every ratio, place by place.

    Parameters
    ----------
    claims
        About this study alone.
    study, store, setting
        Name and store of the study, and the setting to look at.
    """
    results = Results(setting, {study: store})
    lines = []
    for claim in claims:
        places = claim.evidence.places(results)
        lines.append(f"- **{judgement(places, claim.chance).verdict}**: {claim.statement}")
        lines += [f"  - {name}: {', '.join(map(_ratio, comparisons))}." for name, comparisons in places.items()]
    return "\n".join(lines)


def _ratio(comparison: Comparison) -> str:
    """Ratio with the 95 % interval of its median."""
    judged = judge(comparison)
    if not judged.n:
        return f"{comparison.label} no data"
    middle, low, high = (significant(value) for value in np.exp([judged.median, judged.low, judged.high]))
    interval = f" ({low} to {high})" if np.isfinite([judged.low, judged.high]).all() else ""
    return f"{comparison.label} {middle}{interval}"


def quartile_text(values: np.ndarray) -> str:
    """Median and quartiles over seeds."""
    if not np.isfinite(values).any():
        return "no data"
    low, middle, high = spread(values)
    return f"{significant(middle)} [{significant(low)}, {significant(high)}]"
