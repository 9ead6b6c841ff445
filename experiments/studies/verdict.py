"""What paired results say about a claim: medians with intervals, exact tests, counts over places, a verdict.

Every comparison is a log ratio per seed, and a claim says in which region it lies: below 0 (lower than a rival), below
``log 1.05`` (at most 5 % more), within a band. A place (a task, say) may need several comparisons at once: the claim is
won there if all of them are, lost if one of them is.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import binom, binomtest, wilcoxon

LEVEL = 0.05  # of tests; intervals hold 95 %
INDIFFERENT = float(np.log(1.01))  # a ratio this close to 1 is a tie
#: outcomes of a comparison or a place; equal: both sides shown to be within 1 %, which counts as a tie
WON, LOST, EQUAL, TIED, MISSING = "won", "lost", "equal", "tied", "missing"
VERDICTS = HOLDS, IN_PART, FAILS, UNDECIDED = "holds", "holds in part", "does not hold", "undecided"
NAN = float("nan")


class Comparison(NamedTuple):
    """Log ratios over seeds, nan where there is none, and the region where the claim wants them."""

    label: str
    values: np.ndarray  # (seed,)
    low: float = -np.inf
    high: float = 0.0
    is_random: bool = True  # False: one number without a spread, counted but not tested


class Judged(NamedTuple):
    """What a comparison says; of a place the comparison that speaks least for the claim, with the place's p-value."""

    comparison: str
    outcome: str
    median: float  # log ratio
    low: float  # 95 % interval of the median; nan without a spread
    high: float
    n: int  # seeds
    p_value: float  # of the outcome, before the correction for the number of places; nan without a test
    region_low: float
    region_high: float


class Judgement(NamedTuple):
    """A claim in one setting."""

    verdict: str
    n_won: int
    n_lost: int
    n_equal: int
    n_tied: int  # without the equal ones
    n_missing: int
    n_tested: int  # places with a test
    p_sign: float  # of the wins against the losses
    p_least: float  # the smallest of all places, corrected for their number; nan without a test
    ratio: float  # geometric mean over places of the decisive median ratio; nan without any
    places: Mapping[str, Judged]
    needs: str = ""  # what is missing


def median_interval(values: np.ndarray) -> tuple[float, float]:
    """Order statistics that hold the median of any distribution with at least 95 %; infinite below six values."""
    n = len(values)
    rank = int(binom.ppf(LEVEL / 2, n, 0.5))  # the largest k with P(fewer than k of n coins show heads) < 2.5 %
    if rank < 1:
        return -np.inf, np.inf
    ordered = np.sort(values)
    return float(ordered[rank - 1]), float(ordered[n - rank])


def signed_rank(values: np.ndarray) -> float:
    """Two-sided p-value of Wilcoxon's exact signed-rank test of a median of 0; zeros are left out."""
    nonzero = values[values != 0.0]
    return float(wilcoxon(nonzero, method="exact").pvalue) if len(nonzero) else 1.0


def sign_test(n_won: int, n_lost: int, chance: float = 0.5) -> float:
    """Two-sided p-value of as many wins if each came by chance; ties are left out."""
    return float(binomtest(n_won, n_won + n_lost, chance).pvalue) if n_won + n_lost else 1.0


def holm(p_values: Sequence[float]) -> np.ndarray:
    """p-values corrected for their number, in ascending order (Holm 1979)."""
    ordered = np.sort(np.asarray(p_values, dtype=float))
    steps = ordered * np.arange(len(ordered), 0, -1)
    return np.minimum(np.maximum.accumulate(steps), 1.0)


def judge(comparison: Comparison) -> Judged:
    """Median, interval, outcome and its p-value; a region that ends at 0 does not count what is within 1 % of it."""
    label, values, *region, is_random = comparison
    values = values[np.isfinite(values)]
    if not len(values):
        return Judged(label, MISSING, NAN, NAN, NAN, 0, NAN, *region)
    median = float(np.median(values))
    low, high = median_interval(values) if is_random else (median, median)
    if 0.0 in region and low >= -INDIFFERENT and high <= INDIFFERENT:
        outcome = EQUAL if is_random else TIED
    elif 0.0 in region and abs(median) <= INDIFFERENT:
        outcome = TIED
    elif low > region[1] or high < region[0]:
        outcome = LOST
    else:
        outcome = WON if low > region[0] and high < region[1] else TIED
    if not is_random:
        return Judged(label, outcome, median, NAN, NAN, len(values), NAN, *region)
    bounds = {  # beyond which the median is shown to lie
        WON: [bound for bound in region if np.isfinite(bound)],
        LOST: [region[1] if median > region[1] else region[0]],
        EQUAL: [INDIFFERENT, -INDIFFERENT],
        TIED: [],
    }
    p_value = max((signed_rank(values - bound) for bound in bounds[outcome]), default=1.0)
    return Judged(label, outcome, median, low, high, len(values), p_value, *region)


def judge_place(comparisons: Sequence[Comparison]) -> Judged:
    """Won if all comparisons are won (p: the largest), lost if one is lost (p: the smallest, times their number)."""
    judged = [judge(comparison) for comparison in comparisons]
    outcome = next(each for each in (MISSING, LOST, EQUAL, TIED, WON) if each in {one.outcome for one in judged})
    own = [one for one in judged if one.outcome == outcome]
    p_values = np.array([one.p_value for one in own])
    is_one_enough = outcome in (LOST, EQUAL)
    p_value = np.minimum(p_values.min() * len(judged), 1.0) if is_one_enough else p_values.max()
    decisive = max(own, key=lambda one: max(one.median - one.region_high, one.region_low - one.median))
    return decisive._replace(p_value=float(p_value))


def judge_claim(places: Mapping[str, Sequence[Comparison]], chance: float = 0.5) -> Judgement:
    """Verdict on a claim from the comparisons at every place.

    `chance` is the probability of a win, of wins and losses, if nothing were in the claim: a third for the lowest of
    three.

    Something is shown if one place's result is (p <= 5 % after Holm's correction over the places) or the sign test of
    wins against losses is; otherwise the claim is undecided. What is shown `holds` if more than half of the places are
    won, and of those with a test too, and none is lost or the sign test is for it. It `does not hold` if no place with
    a test is won and the sign test is not for it, or if at least half are lost or equal and the sign test (equal places
    as losses) is against it. Otherwise it holds in part: single numbers alone never make it. With missing places the
    verdict stands if it would be the same were all of them won, and all of them lost.
    """
    found = {name: judge_place(comparisons) for name, comparisons in places.items()}
    n = Counter(place.outcome for place in found.values())
    tested = holm([place.p_value for place in found.values() if np.isfinite(place.p_value)])
    p_least = float(tested.min()) if len(tested) else NAN
    medians = [place.median for place in found.values() if place.outcome != MISSING]
    verdicts = {_decide(found.values(), each, chance, p_least <= LEVEL) for each in (WON, LOST)}
    return Judgement(
        verdict=verdicts.pop() if len(verdicts) == 1 and medians else UNDECIDED,
        n_won=n[WON],
        n_lost=n[LOST],
        n_equal=n[EQUAL],
        n_tied=n[TIED],
        n_missing=n[MISSING],
        n_tested=len(tested),
        p_sign=sign_test(n[WON], n[LOST], chance),
        p_least=p_least,
        ratio=float(np.exp(np.mean(medians))) if medians else NAN,
        places=found,
    )


def _decide(places: Collection[Judged], of_missing: str, chance: float, is_shown: bool) -> str:
    """Verdict if all missing places, which may have a test, had this outcome."""
    outcomes = [of_missing if place.outcome == MISSING else place.outcome for place in places]
    is_tested = [place.outcome == MISSING or np.isfinite(place.p_value) for place in places]
    tested = [outcome for outcome, is_one in zip(outcomes, is_tested, strict=True) if is_one]
    won, lost, against = outcomes.count(WON), outcomes.count(LOST), outcomes.count(LOST) + outcomes.count(EQUAL)
    is_for = sign_test(won, lost, chance) <= LEVEL and won > chance * (won + lost)
    is_against = sign_test(won, against, chance) <= LEVEL and won < chance * (won + against)
    if not (is_shown or is_for or is_against):
        return UNDECIDED
    is_mostly_won = 2 * won > len(outcomes) and (2 * tested.count(WON) > len(tested) or not tested)
    if is_mostly_won and (is_for or not lost):
        return HOLDS
    if not (WON in tested or is_for) or (2 * against >= len(outcomes) and is_against):
        return FAILS
    return IN_PART


def sum_up(parts: Sequence[str]) -> str:
    """Verdict on a guideline from those on its parts; those that nobody computes ("") do not count.

    It holds, or does not, if all decided parts say so and at least half of the parts are decided. It holds in part if
    the decided parts say different things. Otherwise it is undecided.
    """
    known = [part for part in parts if part]
    decided = [part for part in known if part != UNDECIDED]
    if len(set(decided)) > 1:
        return IN_PART
    return (decided[0] if decided and 2 * len(decided) >= len(known) else UNDECIDED) if known else ""
