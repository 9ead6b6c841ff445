"""Cost of one sample in matrix-vector products: replaced, not inserted, and called from Python."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from experiments.benchmarks.material import NEVER, OldestLeaves, Samples, narx_samples, online_gp
from experiments.benchmarks.plan import Plan
from experiments.benchmarks.row import Row, Target, microseconds, ratio
from experiments.benchmarks.timing import Job, interleave, matrix_vector_product
from sysid import (
    AcceptAll,
    Acceptance,
    Criterion,
    ExceedsMinimum,
    MarginalLogLikelihood,
    MeanRelevance,
    OnlineGP,
    PriorEntropy,
)
from sysid.gp.dictionary import PROBE_INTERVAL

CRITERIA = {
    "prior_entropy": PriorEntropy(),
    "mean_relevance": MeanRelevance(),
    "marginal_log_likelihood": MarginalLogLikelihood(),
}
UNIT = "matvec"
SEARCH = 100  # blocks of samples among which accepted ones are looked for


def replacement(plan: Plan) -> Iterator[Row]:
    """One accepted replacement in a full dictionary against one product ``A @ b`` of its size.

    The same samples are learned again and again from the same dictionary by `update_many`, every one of
    them replaces a point (``accepted`` in the details is the fraction that did), and their number is a
    multiple of the interval of the drift probe, which is thereby included. With an acceptance rule, the
    refused samples of the stream are left out: they leave no trace in the dictionary.
    """
    for size in plan.sizes:
        samples = narx_samples(size + SEARCH * _block(size), noise_variance=1e-2, seed=plan.seed)
        for name, reduction, acceptance in _cases():
            yield _replacement_row(f"N={size} {name}", samples, size, plan, reduction, acceptance)


def _cases() -> Iterator[tuple[str, Criterion, Acceptance]]:
    for name, criterion in CRITERIA.items():
        yield name, criterion, AcceptAll()
        yield f"{name}, matched acceptance", criterion, ExceedsMinimum(criterion)
    yield "oldest leaves (worst case)", OldestLeaves(), AcceptAll()


def _replacement_row(
    case: str, samples: Samples, size: int, plan: Plan, reduction: Criterion, acceptance: Acceptance
) -> Row:
    gp = online_gp(size, reduction=reduction, acceptance=acceptance).fit(*samples.part(0, size))
    rewind = rewinder(gp)
    chosen = _accepted(gp, samples.part(size, len(samples.targets)), _block(size))
    jobs = _against_product(gp, rewind, chosen, size)
    seconds = interleave(jobs, plan.rounds(size))
    rewind()
    fraction = float((gp.update_many(*chosen)["removed"] >= 0).mean())
    return _row("replacement", case, seconds, Target(8.0), samples=len(chosen.targets), accepted=fraction)


def _row(benchmark: str, case: str, seconds: dict[str, np.ndarray], target: Target, **details: float) -> Row:
    return ratio(benchmark, case, seconds, ("ours", UNIT), UNIT, target, **details)


def _against_product(gp: OnlineGP, rewind: Callable[[], None], samples: Samples, size: int) -> dict[str, Job]:
    return {
        UNIT: matrix_vector_product(size, 3 * _block(size)),
        "ours": Job(lambda: gp.update_many(*samples), len(samples.targets), rewind),
    }


def _block(size: int) -> int:
    """Samples of one run: few milliseconds where possible, a multiple of the interval of the drift probe."""
    return PROBE_INTERVAL * max(1, round(2e4 / size**2))


def rewinder(gp: OnlineGP) -> Callable[[], None]:
    """Call that takes a GP back to its present state."""
    state = gp.state()
    counts = state["counts"].tolist()
    return lambda: gp.restore(state, counts)


def _accepted(gp: OnlineGP, samples: Samples, wanted: int) -> Samples:
    """First samples that replace a point, at most as many as wanted."""
    found: list[int] = []
    for start in range(0, len(samples.targets), wanted):
        reports = gp.update_many(*samples.part(start, start + wanted))
        found += (start + np.flatnonzero(reports["removed"] >= 0)).tolist()
        if len(found) >= wanted:
            break
    kept = found[: max(len(found[:wanted]) // PROBE_INTERVAL, 1) * PROBE_INTERVAL]
    return Samples(samples.inputs[kept], samples.targets[kept])


def not_inserted(plan: Plan) -> Iterator[Row]:
    """One sample predicted (mean and variance) and not inserted, against one product ``A @ b``."""
    for size in plan.sizes:
        n = _block(size)
        samples = narx_samples(size + n, noise_variance=1e-2, seed=plan.seed)
        gp = online_gp(size, insertion=NEVER).fit(*samples.part(0, size))
        jobs = _against_product(gp, lambda: None, samples.part(size, size + n), size)
        yield _row("not_inserted", f"N={size}", interleave(jobs, plan.rounds(size)), Target(2.0))


def update(plan: Plan) -> Iterator[Row]:
    """One call of `update` from Python: the sample replaces a point, or is only predicted."""
    rules: dict[str, dict[str, Any]] = {"replaced": {}, "not inserted": {"insertion": NEVER}}
    samples = narx_samples(plan.budget + 4 * PROBE_INTERVAL, noise_variance=1e-2, seed=plan.seed)
    rest = samples.part(plan.budget, len(samples.targets))
    gps = {name: online_gp(plan.budget, **rule).fit(*samples.part(0, plan.budget)) for name, rule in rules.items()}
    jobs = {name: Job(_calls(gp, rest), len(rest.targets), rewinder(gp)) for name, gp in gps.items()}
    for name, seconds in interleave(jobs, plan.rounds(plan.budget)).items():
        yield microseconds("update", f"N={plan.budget} {name}", seconds, Target(20.0))


def _calls(gp: OnlineGP, samples: Samples) -> Callable[[], None]:
    rows, targets = list(samples.inputs), samples.targets.tolist()

    def run() -> None:
        for x, y in zip(rows, targets, strict=True):
            gp.update(x, y)

    return run
