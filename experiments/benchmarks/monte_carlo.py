"""Many short trajectories in one call."""

import os
from collections.abc import Iterator

import numpy as np

from experiments.benchmarks.plan import Plan
from experiments.benchmarks.row import Row, Target, ratio
from experiments.benchmarks.timing import Job, interleave
from simulators import Ensemble, VanDerPol, simulate, simulate_many

SAMPLES = 50  # of one trajectory
LONG = 500  # samples of a trajectory for which threads pay
WIDEST = 2.0  # largest initial position [m] and velocity [m/s]
ROUNDS = 2  # for each of the plan, as one takes little time


def monte_carlo(plan: Plan) -> Iterator[Row]:
    """Trajectories of the Van der Pol oscillator with process noise from random initial states, after warm-up.

    Once by default and once by one call of `simulate` each; then trajectories of `LONG` samples by one thread and by
    as many as there are processors.
    """
    system, states = VanDerPol(), initial_states(plan)
    jobs = {
        f"{SAMPLES}, by default": Job(lambda: ensemble(plan, SAMPLES)),
        f"{SAMPLES}, one by one": Job(
            lambda: [simulate(system, n_samples=SAMPLES, initial_state=x, seed=plan.seed) for x in states]
        ),
        f"{LONG}, one thread": Job(lambda: ensemble(plan, LONG, workers=1)),
        f"{LONG}, all processors": Job(lambda: ensemble(plan, LONG, workers=os.cpu_count())),
    }
    seconds = interleave(jobs, ROUNDS * plan.repetitions)
    targets = {f"{SAMPLES}, by default": Target(0.1)}
    for name, taken in seconds.items():
        rate = {"samples/s": plan.trajectories * int(name.split(",")[0]) / taken.min()}
        median = float(np.median(taken))
        yield Row("monte_carlo", f"{plan.trajectories} x {name}", taken.min(), "s", median, targets.get(name), rate)
    over = (f"{LONG}, one thread", f"{LONG}, all processors")
    yield ratio("monte_carlo", f"{plan.trajectories} x {LONG}, threads", seconds, over, "times faster", None)


def initial_states(plan: Plan) -> np.ndarray:
    """Initial states (trajectories, 2), uniform."""
    return np.random.default_rng(plan.seed).uniform(-WIDEST, WIDEST, size=(plan.trajectories, 2))


def ensemble(plan: Plan, n_samples: int, workers: int | None = None) -> Ensemble:
    """Simulate all trajectories."""
    states = initial_states(plan)
    return simulate_many(VanDerPol(), n_samples=n_samples, initial_states=states, seed=plan.seed, workers=workers)
