"""Cost of the scores of all stored points."""

from collections.abc import Iterator

import numpy as np

from experiments.benchmarks.plan import Plan
from experiments.benchmarks.row import Row, Target, ratio
from experiments.benchmarks.score_cost import COMPILED, CRITERIA, NUMPY, PUBLISHED, exponent, score_seconds

SMALL = 20  # points, the smaller size of table 1 of the paper


def criterion(plan: Plan) -> Iterator[Row]:
    """All N reduction scores our way against that of ONE point the published way, the five criteria of table 1.

    Ours, candidate included: from the cached factor, compiled as `OnlineGP` does it, or in NumPy. Published: one
    Cholesky factorisation of the set without the point, then the criterion.
    """
    for size in sorted({SMALL, plan.budget}):
        seconds = score_seconds(size, plan.rounds(size), plan.seed)
        for name in CRITERIA:
            for way in (COMPILED, NUMPY):
                yield _row(f"N={size} {name}, {way.removesuffix('_all')}", name, way, seconds)
    yield from _growth(plan)


def _row(case: str, name: str, way: str, seconds: dict[tuple[str, str], np.ndarray]) -> Row:
    times = {"one published": seconds[PUBLISHED, name], "all ours": seconds[way, name]}
    target = Target(1.0, at_least=True) if way == COMPILED else None
    return ratio("criterion", case, times, ("one published", "all ours"), "times faster", target)


def _growth(plan: Plan) -> Iterator[Row]:
    """Exponents of the times over N, of mean relevance."""
    sizes = np.array(sorted(plan.sizes))
    measured = [score_seconds(int(size), plan.repetitions, plan.seed) for size in sizes]
    for way in (PUBLISHED, COMPILED):
        fastest = np.array([seconds[way, "mean_relevance"].min() for seconds in measured])
        details = {f"N={size} us": 1e6 * value for size, value in zip(sizes, fastest, strict=True)}
        yield Row(
            "criterion",
            f"growth with N, {way.replace('_', ', ')}",
            exponent(sizes, fastest),
            "exponent",
            details=details,
        )
