"""Simulation of a record against scipy's `solve_ivp`."""

from collections.abc import Iterator
from functools import partial

from experiments.benchmarks.adaptive import Adaptive, Match
from experiments.benchmarks.plan import Plan
from experiments.benchmarks.row import Row, Target, ratio
from experiments.benchmarks.sampled_problem import SampledProblem, bouc_wen_problem, building_problem
from experiments.benchmarks.timing import Job, interleave
from experiments.options import seconds

METHODS = ("RK45", "DOP853", "LSODA")
RATES = ("compiled", "plain")
TARGET = Target(100.0, at_least=True)


def simulation(plan: Plan) -> Iterator[Row]:
    """A record simulated our way against `solve_ivp` called sample by sample at the same accuracy, time per sample.

    Ours: `simulate` of the whole record with everything that it does. `solve_ivp`: each method with the loosest
    tolerance (half decades from 0.1, absolute tolerances in standard deviations of each state) whose
    largest error is at most ours. Both errors are taken over ``timed`` samples in four pieces spread over the record,
    in standard deviations of the states, from DOP853 at a tolerance of 1e-12. These samples are timed, and the
    times per sample compared. The right-hand side is our drift, compiled and in plain Python: the faster one
    counts, ``against`` the other is in the details.

    The inputs of the building are held. The force on Bouc-Wen is linear between its samples: observed at
    750 Hz, `solve_ivp` meets no kink within a sample and takes its own steps, where we take those of 15 kHz. The
    rows without a target restart it at every sample of a force given at 15 kHz.
    """
    fair = (building_problem(seconds(plan.duration), plan.seed), bouc_wen_problem(plan.seed))
    for problem in fair:
        yield from _rows(problem, plan, TARGET)
    yield from _rows(bouc_wen_problem(plan.seed, restarts=20), plan, None)


def _rows(problem: SampledProblem, plan: Plan, target: Target | None) -> Iterator[Row]:
    adaptive = Adaptive(problem, plan.stretch)
    matches = {method: adaptive.match(method) for method in METHODS}
    jobs = {"ours": Job(problem.simulate, len(problem.input))}
    for method, match in matches.items():
        jobs |= _jobs(adaptive, method, match)
    times = interleave(jobs, plan.repetitions)
    for method, match in matches.items():
        best, other = sorted((f"{method} {rates}" for rates in RATES), key=lambda name: times[name].min())
        details = {
            f"against {other}": times[other].min() / times["ours"].min(),
            "samples": len(problem.input),
            "record s": times["ours"].min() * len(problem.input),
            "timed": adaptive.n_samples,
            "tolerance": match.tolerance,
            "its error": match.error,
            "our error": adaptive.our_error(),
        }
        yield ratio("simulation", f"{problem.name}: {method}", times, (best, "ours"), "times faster", target, **details)


def _jobs(adaptive: Adaptive, method: str, match: Match) -> dict[str, Job]:
    rates = zip(RATES, (adaptive.compiled, adaptive.plain), strict=True)
    return {
        f"{method} {name}": Job(partial(adaptive.states, function, method, match.tolerance), adaptive.n_samples)
        for name, function in rates
    }
