"""The textbook way: the GP without point i is computed anew for every point i."""

from collections.abc import Callable, Iterator

import numpy as np

from experiments.benchmarks.left_out import LeftOut, mean_relevance, solve
from experiments.benchmarks.material import Samples, narx_samples, online_gp
from experiments.benchmarks.plan import Plan
from experiments.benchmarks.replacement import rewinder
from experiments.benchmarks.row import Row, Target, ratio
from experiments.benchmarks.timing import Job, interleave
from sysid import AcceptAll, Kernel, MeanRelevance, OnlineGP

CANDIDATES = 2  # replacements of one run of the textbook way
OURS = 500  # and of ours
NOISE_VARIANCE = 1e-2


class TextbookGP:
    """Budgeted GP whose replacement scores every point by a Cholesky factorisation of its own.

    Mean relevance, ``(mu_i - mu_/i)^2`` with the candidate in the set. Written with care: LAPACK is called
    directly, the covariance is kept, and from one set to the next only one row changes.
    """

    def __init__(self, kernel: Kernel, noise_variance: float, samples: Samples) -> None:
        self.kernel, self.noise_variance = kernel, noise_variance
        n = len(samples.targets)
        self.inputs, self.targets = samples.inputs.copy(), samples.targets.copy()
        self.covariance = np.asfortranarray(kernel(self.inputs, self.inputs) + noise_variance * np.eye(n))

    def replace(self, x: np.ndarray, y: float) -> None:
        """Predict a sample and let it take the place of the point of lowest mean relevance."""
        k = self.kernel(x[None, :], self.inputs)[0]
        itself = self.kernel(x[None, :], x[None, :])[0, 0] + self.noise_variance
        covariance = np.block([[self.covariance, k[:, None]], [k[None, :], np.array([[itself]])]])
        targets = np.append(self.targets, y)
        change = self.mean_changes(np.asfortranarray(covariance), targets)
        kept = np.delete(np.arange(len(targets)), int(np.argmin(change[:-1])))
        self.covariance = np.asfortranarray(covariance[np.ix_(kept, kept)])
        self.inputs, self.targets = np.vstack([self.inputs, x])[kept], targets[kept]
        solve(self.covariance, self.targets)  # the model that predicts the next sample

    def mean_changes(self, covariance: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """``(mu_i - mu_/i)^2`` of every point; the last entry, the candidate's, is left at infinity."""
        n = len(targets) - 1
        change = np.full(n + 1, np.inf)
        mean = targets - self.noise_variance * solve(covariance, targets)
        without, y = np.asfortranarray(covariance[1:, 1:]), targets[1:].copy()
        for i in range(n):
            row, prior = np.delete(covariance[:, i], i), covariance[i, i] - self.noise_variance
            change[i] = mean_relevance(LeftOut(without, y, row, prior, targets[i], mean[i], self.noise_variance))
            without[:, i] = without[i, :] = np.delete(covariance[:, i], i + 1)
            y[i] = targets[i]
        return change


def textbook(plan: Plan) -> Iterator[Row]:
    """One replacement by N Cholesky factorisations against ours, same criterion and same samples.

    ``same points`` in the details: fraction of the points that both dictionaries share afterwards.
    """
    samples = narx_samples(plan.budget + OURS, noise_variance=NOISE_VARIANCE, seed=plan.seed)
    start, rest = samples.part(0, plan.budget), samples.part(plan.budget, plan.budget + OURS)
    few = rest.part(0, CANDIDATES)
    gp = online_gp(plan.budget, reduction=MeanRelevance(), acceptance=AcceptAll()).fit(*start)
    rewind = rewinder(gp)
    jobs = {
        "textbook": Job(_replacements(gp, start, few), CANDIDATES),
        "ours": Job(lambda: gp.update_many(*rest), len(rest.targets), rewind),
    }
    seconds = interleave(jobs, plan.rounds(plan.budget))
    rewind()
    gp.update_many(*few)
    shared = np.isin(_replacements(gp, start, few)(), gp.targets).mean()
    over, target = ("textbook", "ours"), Target(300.0, at_least=True)
    yield ratio(
        "textbook",
        f"N={plan.budget}",
        seconds,
        over,
        "times faster",
        target,
        **{"same points": float(shared)},
    )


def _replacements(gp: OnlineGP, start: Samples, samples: Samples) -> Callable[[], np.ndarray]:
    def run() -> np.ndarray:
        textbook_gp = TextbookGP(gp.kernel, gp.noise_variance, start)
        for x, y in zip(*samples, strict=True):
            textbook_gp.replace(x, y)
        return textbook_gp.targets

    return run
