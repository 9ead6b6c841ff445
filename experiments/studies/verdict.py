"""What paired results say about a claim: medians with intervals, exact tests, counts over places, a verdict.

Every comparison is a log ratio per seed, and a claim says in which region it lies: below 0 (lower than a rival), below
``log 1.05`` (at most 5 % more), within a band. A place (a task, say) may need several comparisons at once: the claim is
won there if all of them are, lost if one of them is.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Self

import numpy as np
from scipy.stats import binom, binomtest, wilcoxon

LEVEL = 0.05  # of tests; intervals hold 95 %
INDIFFERENT = float(np.log(1.01))  # a ratio this close to 1 is a tie


class Region(NamedTuple):
    """Log ratios that speak for a claim."""

    low: float
    high: float


LOWER = Region(-np.inf, 0.0)


def at_most(factor: float) -> Region:
    """Ratios below a factor."""
    return Region(-np.inf, float(np.log(factor)))


def within(factor: float) -> Region:
    """Ratios between ``1 / factor`` and ``factor``."""
    return Region(-float(np.log(factor)), float(np.log(factor)))


class Comparison(NamedTuple):
    """Log ratios over seeds, nan where there is none, and where the claim wants them."""

    label: str
    values: np.ndarray  # (seed,)
    region: Region = LOWER
    is_random: bool = True  # False: one number without a spread, counted but not tested


class Outcome(StrEnum):
    """What a comparison, or a place, says."""

    won = "won"
    lost = "lost"
    equal = "equal"  # both sides shown to be within 1 %; counts as a tie
    tied = "tied"
    missing = "missing"


class Judged(NamedTuple):
    """A comparison and what it says."""

    label: str
    n: int  # seeds
    median: float  # log ratio
    low: float  # 95 % interval of the median; nan without a spread
    high: float
    region: Region
    outcome: Outcome
    p_value: float  # of the outcome; nan without a test

    @property
    def excess(self) -> float:
        """How far the median lies outside of the region; negative inside."""
        return max(self.median - self.region.high, self.region.low - self.median)


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
    """p-values corrected for their number (Holm 1979); nan is no test."""
    p = np.asarray(p_values, dtype=float)
    corrected = np.full(len(p), np.nan)
    tested = np.flatnonzero(np.isfinite(p))
    order = tested[np.argsort(p[tested])]
    steps = p[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def judge(comparison: Comparison) -> Judged:
    """Median, interval, outcome and its p-value."""
    values, region = comparison.values[np.isfinite(comparison.values)], comparison.region
    nan, n = float("nan"), len(values)
    if not n:
        return Judged(comparison.label, 0, nan, nan, nan, region, Outcome.missing, nan)
    median = float(np.median(values))
    if not comparison.is_random:
        outcome = _outcome(median, median, median, region)
        outcome = Outcome.tied if outcome is Outcome.equal else outcome
        return Judged(comparison.label, n, median, nan, nan, region, outcome, nan)
    low, high = median_interval(values)
    outcome = _outcome(median, low, high, region)
    return Judged(comparison.label, n, median, low, high, region, outcome, _p_value(values, median, region, outcome))


def _outcome(median: float, low: float, high: float, region: Region) -> Outcome:
    """From the interval of the median; a bound at 0 does not count what is within 1 % of it."""
    if 0.0 in region:
        if low >= -INDIFFERENT and high <= INDIFFERENT:
            return Outcome.equal
        if abs(median) <= INDIFFERENT:
            return Outcome.tied
    if low > region.high or high < region.low:
        return Outcome.lost
    return Outcome.won if low > region.low and high < region.high else Outcome.tied


def _p_value(values: np.ndarray, median: float, region: Region, outcome: Outcome) -> float:
    """Of the median lying on its side of the bounds."""
    if outcome is Outcome.tied:
        return 1.0
    if outcome is Outcome.equal:
        return max(signed_rank(values - INDIFFERENT), signed_rank(values + INDIFFERENT))
    if outcome is Outcome.lost:
        return signed_rank(values - (region.high if median > region.high else region.low))
    return max(signed_rank(values - bound) for bound in region if np.isfinite(bound))


class Place(NamedTuple):
    """What all comparisons of a place say together."""

    outcome: Outcome
    decisive: Judged  # of those with this outcome, the one that speaks least for the claim
    p_value: float  # of the outcome, before the correction for the number of places; nan without a test

    @classmethod
    def of(cls, comparisons: Sequence[Comparison]) -> Self:
        """Won if all are won (p: the largest), lost if one is lost (p: the smallest, times their number)."""
        judged = [judge(comparison) for comparison in comparisons]
        outcomes = [each.outcome for each in judged]
        order = (Outcome.missing, Outcome.lost, Outcome.equal, Outcome.tied, Outcome.won)
        outcome = next(each for each in order if each in outcomes)
        own = [each for each in judged if each.outcome is outcome]
        p_values = np.array([each.p_value for each in own])
        p = {
            Outcome.won: p_values.max(),
            Outcome.lost: np.minimum(p_values.min() * len(judged), 1.0),
            Outcome.tied: p_values.max(),
            Outcome.missing: np.nan,
        }
        p[Outcome.equal] = p[Outcome.lost]
        return cls(outcome, max(own, key=lambda each: each.excess), float(p[outcome]))


class Verdict(StrEnum):
    """What the results say about a claim."""

    holds = "holds"
    in_part = "holds in part"
    fails = "does not hold"
    undecided = "undecided"


class Judgement(NamedTuple):
    """A claim in one setting."""

    verdict: Verdict
    n_won: int
    n_lost: int
    n_equal: int
    n_tied: int  # without the equal ones
    n_missing: int
    n_tested: int  # places with a test
    p_sign: float  # of the wins against the losses
    p_least: float  # the smallest of all places, corrected for their number; nan without a test
    ratio: float  # geometric mean over places of the decisive median ratio; nan without any
    places: Mapping[str, Place]


class Counts(NamedTuple):
    """Outcomes of some places."""

    n: int
    won: int
    lost: int
    equal: int
    tied: int  # without the equal ones
    missing: int

    @classmethod
    def of(cls, places: Collection[Place]) -> Self:
        """Counted."""
        order = (Outcome.won, Outcome.lost, Outcome.equal, Outcome.tied, Outcome.missing)
        return cls(len(places), *(sum(place.outcome is outcome for place in places) for outcome in order))

    @property
    def is_mostly_won(self) -> bool:
        """Whether more than half of the places are won."""
        return 2 * self.won > self.n


def judgement(places: Mapping[str, Sequence[Comparison]], chance: float = 0.5) -> Judgement:
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
    found = {name: Place.of(comparisons) for name, comparisons in places.items()}
    p_values = holm([place.p_value for place in found.values()])
    tested = p_values[np.isfinite(p_values)]
    count = Counts.of(found.values())
    own = Counts.of([place for place in found.values() if np.isfinite(place.p_value)])
    shown = bool(len(tested)) and float(tested.min()) <= LEVEL
    decisive = [place.decisive.median for place in found.values() if place.outcome is not Outcome.missing]
    return Judgement(
        verdict=_verdict_with_gaps(count, own, chance, shown),
        n_won=count.won,
        n_lost=count.lost,
        n_equal=count.equal,
        n_tied=count.tied,
        n_missing=count.missing,
        n_tested=len(tested),
        p_sign=sign_test(count.won, count.lost, chance),
        p_least=float(tested.min()) if len(tested) else float("nan"),
        ratio=float(np.exp(np.mean(decisive))) if decisive else float("nan"),
        places=found,
    )


def _verdict_with_gaps(count: Counts, tested: Counts, chance: float, shown: bool) -> Verdict:
    """The verdict that all missing places won, and all of them lost, would give; undecided if they differ."""
    gaps = count.missing
    if gaps == count.n:
        return Verdict.undecided
    full = tested._replace(n=tested.n + gaps)
    if_won = _verdict(count._replace(won=count.won + gaps), full._replace(won=full.won + gaps), chance, shown)
    if_lost = _verdict(count._replace(lost=count.lost + gaps), full, chance, shown)
    return if_won if if_won is if_lost else Verdict.undecided


def _verdict(count: Counts, tested: Counts, chance: float, shown: bool) -> Verdict:
    """Verdict from the counts over all places, over those with a test, and whether one of these shows anything."""
    won, lost, against = count.won, count.lost, count.lost + count.equal
    is_for = sign_test(won, lost, chance) <= LEVEL and won > chance * (won + lost)
    is_against = sign_test(won, against, chance) <= LEVEL and won < chance * (won + against)
    if not (shown or is_for or is_against):
        return Verdict.undecided
    is_mostly_won = count.is_mostly_won and (tested.is_mostly_won or not tested.n)
    if is_mostly_won and (is_for or not lost):
        return Verdict.holds
    if not (tested.won or is_for) or (2 * against >= count.n and is_against):
        return Verdict.fails
    return Verdict.in_part
