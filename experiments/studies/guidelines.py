"""The paper's guidelines and claims, tested on the results of the other studies."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr

from experiments.studies.claims import GUIDELINES, PaperClaim
from experiments.studies.evidence import NeedsError, Results, settings_of
from experiments.studies.figure_claims import REDUCTION_CLAIMS, SWEEP_CLAIMS
from experiments.studies.plan import Plan
from experiments.studies.points_claims import EQUIVALENCE_CLAIMS, POINTS_CLAIMS
from experiments.studies.printed import PRINTED, printed_results
from experiments.studies.setting import Setting
from experiments.studies.study import Study, Unit
from experiments.studies.table_claims import TABLE_CLAIMS
from experiments.studies.verdict import Judgement, Outcome, Verdict, judgement
from sysid import store as files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIMS: tuple[PaperClaim, ...] = tuple(
    sorted(
        (*REDUCTION_CLAIMS, *TABLE_CLAIMS, *POINTS_CLAIMS, *SWEEP_CLAIMS, *EQUIVALENCE_CLAIMS),
        key=lambda claim: (claim.guideline or 7, claim.section),
    )
)
COLUMNS = (*(setting.value for setting in Setting), PRINTED)
NEEDS = tuple(dict.fromkeys(study for claim in CLAIMS for study in claim.evidence.needs))
COUNTS = ("n_won", "n_lost", "n_equal", "n_tied", "n_missing", "n_tested")
NUMBERS = (*COUNTS, "p_sign", "p_least", "ratio")
PLACE_NUMBERS = ("median", "low", "high", "n", "p_value")


class Finding(NamedTuple):
    """A claim in one setting: what was found, or why nothing could be."""

    judgement: Judgement | None  # None: without results
    needs: str  # what is missing, "" if nothing

    @property
    def verdict(self) -> str:
        """Verdict; undecided without results, "" in a setting in which nobody computes them."""
        if self.judgement is None:
            return Verdict.undecided.value if self.needs else ""
        return self.judgement.verdict.value


class Guidelines(Study):
    """Verdicts with the numbers behind them; it computes no stream of its own."""

    name, title = "guidelines", "Where the paper's guidelines and claims hold"
    needs = NEEDS

    def units(self, plan: Plan) -> list[Unit]:
        """None: it reads the stores of other studies."""
        return []

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Nothing.

        Raises
        ------
        ValueError
            Always: there are no units.
        """
        raise ValueError(f"{self.name} has no units, got {unit}: it reads the stores of {', '.join(self.needs)}")

    def combine(self, parts: Mapping[Unit, xr.Dataset], plan: Plan) -> xr.Dataset:
        """Verdicts and numbers (claim, setting), and what every place says (claim, setting, place).

        A store that is not there leaves the claims about it undecided.

        Raises
        ------
        sysid.StoreError
            A store that cannot be read.
        """
        paths = {study: plan.folder / f"{study}.nc" for study in self.needs}
        return verdicts({study: files.read(path, kind="study") for study, path in paths.items() if path.is_file()})

    def rows(self, store: xr.Dataset) -> list[dict[str, object]]:
        """One row per claim, setting and place; one without a place where there is no result."""
        from experiments.studies.guidelines_text import csv_rows

        return csv_rows(store)

    def markdown(self, store: xr.Dataset) -> str:
        """Guidelines, claims, and how each was tested."""
        from experiments.studies.guidelines_text import markdown_text

        return markdown_text(store)

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], "Figure"]]:
        """Ratios of every place with their intervals, coloured by the verdict, per setting with results."""
        from experiments.studies.guidelines_figure import forest

        chosen = [setting for setting in COLUMNS if np.isfinite(store["median"].sel(setting=setting)).any()]
        return {
            self.name if setting == Setting.trained else f"{self.name}_{setting}": lambda s=setting: forest(store, s)  # type: ignore[misc]
            for setting in chosen
        }


def verdicts(stores: Mapping[str, xr.Dataset], claims: Sequence[PaperClaim] = CLAIMS) -> xr.Dataset:
    """All claims in all settings, and on the printed numbers, as a data set."""
    results = [printed_results() if name == PRINTED else Results(name, stores) for name in COLUMNS]
    return _dataset(claims, [[examine(claim, each) for each in results] for claim in claims])


def examine(claim: PaperClaim, results: Results) -> Finding:
    """A claim on the results of one setting."""
    studies = claim.evidence.needs
    known = [results.stores[study] for study in studies if study in results.stores]
    if any(results.setting not in settings_of(each) for each in known):
        return Finding(None, "")
    if results.setting == PRINTED and len(known) < len(studies):
        return Finding(None, "")
    try:
        found = judgement(claim.evidence.places(results), claim.chance)
    except NeedsError as error:
        return Finding(None, "" if results.setting == PRINTED else str(error))
    gaps = [name for name, place in found.places.items() if place.outcome is Outcome.missing]
    if len(gaps) == len(found.places):
        return Finding(None, "" if results.setting == PRINTED else _missing(studies, gaps))
    few = [name for name, place in found.places.items() if np.isinf(place.decisive.low)]
    if few and not gaps and found.verdict is Verdict.undecided:
        return Finding(found, f"six seeds of {', '.join(few)}")  # fewer have no 95 % interval
    return Finding(found, _missing(studies, gaps) if gaps else "")


def _missing(studies: Sequence[str], places: Sequence[str]) -> str:
    """Which results are not there."""
    names = ", ".join(studies)
    return f"{names} for {', '.join(places)}" if places else f"a case of {names} that it speaks of"


def _dataset(claims: Sequence[PaperClaim], found: Sequence[Sequence[Finding]]) -> xr.Dataset:
    """Verdicts, counts and places; nan and "" where nothing was computed."""
    nothing = judgement({})._replace(p_sign=np.nan)
    judged = [[each.judgement or nothing for each in row] for row in found]
    names = list(dict.fromkeys(name for row in judged for each in row for name in each.places))
    shape, over = (len(claims), len(COLUMNS), len(names)), ("claim", "setting", "place")
    texts = {name: np.full(shape, "", dtype=object) for name in ("outcome", "comparison")}
    numbers = {name: np.full(shape, np.nan) for name in (*PLACE_NUMBERS, "region_low", "region_high")}
    for i, row in enumerate(judged):
        for j, each in enumerate(row):
            for name, place in each.places.items():
                at, decisive = (i, j, names.index(name)), place.decisive
                texts["outcome"][at], texts["comparison"][at] = place.outcome.value, decisive.label
                for key in ("median", "low", "high", "n"):
                    numbers[key][at] = getattr(decisive, key)
                numbers["p_value"][at] = place.p_value
                numbers["region_low"][at], numbers["region_high"][at] = decisive.region
    columns = {key: (over[:2], [[float(getattr(each, key)) for each in row] for row in judged]) for key in NUMBERS}
    about = {key: ("claim", [str(getattr(claim, key)) for claim in claims]) for key in ("source", "statement", "test")}
    return xr.Dataset(
        {
            "verdict": (over[:2], [[each.verdict for each in row] for row in found]),
            "needs": (over[:2], [[each.needs for each in row] for row in found]),
            "guideline_verdict": (("guideline", "setting"), _guideline_verdicts(claims, found)),
            **columns,
            **{key: (over, values.astype(str)) for key, values in texts.items()},
            **{key: (over, values) for key, values in numbers.items()},
            **about,
            "guideline_of": ("claim", [claim.guideline for claim in claims]),
        },
        coords={
            "claim": [claim.name for claim in claims],
            "setting": list(COLUMNS),
            "place": names,
            "guideline": list(GUIDELINES),
        },
    )


def _guideline_verdicts(claims: Sequence[PaperClaim], found: Sequence[Sequence[Finding]]) -> list[list[str]]:
    """Verdict on every guideline in every setting."""
    return [
        [
            summed([row[j].verdict for claim, row in zip(claims, found, strict=True) if claim.guideline == guideline])
            for j in range(len(COLUMNS))
        ]
        for guideline in GUIDELINES
    ]


def summed(parts: Sequence[str]) -> str:
    """Verdict on a guideline from those on its parts; those that nobody computes ("") do not count.

    It holds, or does not, if all decided parts say so and at least half of the parts are decided. It holds in part if
    the decided parts say different things. Otherwise it is undecided.
    """
    known = [part for part in parts if part]
    decided = {part for part in known if part != Verdict.undecided}
    if not known:
        return ""
    if len(decided) > 1:
        return Verdict.in_part.value
    n_decided = sum(part != Verdict.undecided for part in known)
    return decided.pop() if decided and 2 * n_decided >= len(known) else Verdict.undecided.value
