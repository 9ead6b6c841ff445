"""Cost of the scores of all stored points."""

from collections.abc import Callable, Iterator

import numpy as np

from experiments.benchmarks.material import narx_samples, online_gp
from experiments.benchmarks.plan import Plan
from experiments.benchmarks.row import Row, Target, ratio
from experiments.benchmarks.textbook import solve
from experiments.benchmarks.timing import Job, interleave
from sysid import OnlineGP
from sysid.criteria import MeanRelevance

CALLS = 200


def criterion(plan: Plan) -> Iterator[Row]:
    """Mean relevance of all N stored points our way against that of ONE point the textbook way.

    Ours: leave-one-out residuals and variances from the cached factor, one formula in NumPy for all points.
    Textbook: one Cholesky factorisation of the set without the point and one prediction at its place.
    """
    gp = online_gp(plan.budget, reduction=MeanRelevance())
    gp.fit(*narx_samples(plan.budget, noise_variance=1e-2, seed=plan.seed))
    jobs = {"one by textbook": Job(_one_score(gp), CALLS), "ours": Job(_all_scores(gp), CALLS)}
    seconds = interleave(jobs, plan.rounds(plan.budget))
    over, target = ("one by textbook", "ours"), Target(1.0, at_least=True)
    yield ratio("criterion", f"N={plan.budget} all scores", seconds, over, "times faster", target)


def _all_scores(gp: OnlineGP) -> Callable[[], None]:
    formula: Callable[..., np.ndarray] = MeanRelevance.reduction  # type: ignore[assignment]

    def run() -> None:
        for _ in range(CALLS):
            formula(*gp.leave_one_out(), gp.noise_variance)

    return run


def _one_score(gp: OnlineGP) -> Callable[[], None]:
    x, y, noise_variance = gp.inputs, gp.targets, gp.noise_variance
    covariance = np.asfortranarray(gp.kernel(x, x) + noise_variance * np.eye(len(y)))
    without, row = np.asfortranarray(covariance[1:, 1:]), covariance[0, 1:].copy()

    def run() -> None:
        for _ in range(CALLS):
            (y[0] - row @ solve(without, y[1:])) ** 2

    return run
