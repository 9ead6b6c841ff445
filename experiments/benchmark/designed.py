"""Benchmark of the choice of an input that is expected to tell most."""

from collections.abc import Iterator
from functools import partial

import numpy as np

import simulators
import sysid
from experiments.benchmark.harness import Job, Plan, Row, interleave, row
from sysid.arrays import Array

TIMED_HORIZON = 50  # samples of a candidate
N_TIMED_CANDIDATES = 30  # stretches that a decision compares
N_ROUNDS = 3  # decisions in each repetition of the plan
MIN_SAMPLES = 300  # that the model has learned before, and four for each point
PUMP_LEVELS = simulators.APRBS(
    low=-2.0, high=2.0, shortest_hold=12.0, longest_hold=100.0, offset=3.0
)  # V, s
TIMED_LEVEL_LIMITS = (0.5, 9.5)  # V
MAX_DECISION_MS = 20  # largest median time of a decision
REFERENCE_SIZE = 300  # rows of the matrix whose factorisation tells how busy the machine is
N_REFERENCE_FACTORS = 10  # factorisations in one run

TIMED_CRITERIA: tuple[sysid.DesignCriterion, ...] = (
    sysid.InformationGain(),
    sysid.VarianceReduction(),
    sysid.SpaceFilling(),
)


def informative_input(plan: Plan) -> Iterator[Row]:
    """Time a decision of `InformativeInput`: 30 candidates of 50 samples for the cascaded tanks.

    Each criterion decides without and with limits of the level. Ten Cholesky factorisations of a
    matrix of 300 rows take turns with them: `reference ms`, which a busy machine raises as well.
    """
    identification, outputs, inputs = _learned_tanks(plan)
    jobs = {"reference": Job(_factorise)}
    for criterion in TIMED_CRITERIA:
        for limits in ({}, {"level": TIMED_LEVEL_LIMITS}):
            design = sysid.InformativeInput(
                {"pump_voltage": (1.0, 5.0)},
                horizon=TIMED_HORIZON,
                n_candidates=N_TIMED_CANDIDATES,
                criterion=criterion,
                output_limits=limits,
                seed=plan.seed,
            )
            name = type(criterion).__name__ + (", level limited" if limits else "")
            jobs[name] = Job(partial(design.next, identification, outputs, inputs))
    seconds = interleave(jobs, N_ROUNDS * plan.repetitions)
    reference = float(np.median(seconds.pop("reference")))
    for name, taken in seconds.items():
        median = float(np.median(taken))
        yield row(
            f"{plan.budget} points, {name}",
            1e3 * median,
            "ms",
            median=1e3 * median,
            target=f"<= {MAX_DECISION_MS}",
            **{
                "fastest ms": 1e3 * taken.min(),
                "slowest ms": 1e3 * taken.max(),
                "reference ms": 1e3 * reference,
            },
        )


def _learned_tanks(plan: Plan) -> tuple[sysid.Identification, Array, Array]:
    """Return an identification that has learned the tanks, and their last outputs and inputs."""
    system = simulators.CascadedTanks()
    n_samples = max(MIN_SAMPLES, 4 * plan.budget)
    pump = PUMP_LEVELS.signal(n_samples, system.dt, np.random.default_rng(plan.seed))
    record = simulators.simulate(system, pump, seed=plan.seed)
    narx = sysid.Narx({"level": 2}, {"pump_voltage": 2})
    settings = sysid.Settings(budget=plan.budget, linear_part="none", seed=plan.seed)
    identification = sysid.Identification(narx, settings)
    signals = {"level": record.output[:, 0], "pump_voltage": record.input[:, 0]}
    rows = narx.regressors(signals)
    identification.observe_many(rows.regressor, rows.target)
    n_known = narx.max_lag
    return identification, record.output[-n_known:], record.input[-n_known:]


def _factorise() -> None:
    """Factorise a fixed matrix some times."""
    matrix = np.eye(REFERENCE_SIZE) + 0.5
    for _ in range(N_REFERENCE_FACTORS):
        np.linalg.cholesky(matrix)
