"""Many short trajectories in one call."""

from collections.abc import Iterator

import numpy as np

from experiments.benchmarks.plan import Plan
from experiments.benchmarks.row import Row, Target, ratio
from experiments.benchmarks.timing import Job, interleave
from simulators import Ensemble, simulate, simulate_many
from simulators.systems.van_der_pol import VanDerPol

SAMPLES = 50  # of one trajectory
WIDEST = 2.0  # largest initial position [m] and velocity [m/s]
ROUNDS = 2  # for each of the plan, as one takes little time


def monte_carlo(plan: Plan) -> Iterator[Row]:
    """Trajectories of the Van der Pol oscillator with process noise from random initial states, after warm-up.

    The same ensemble by one thread and by as many as there are processors, and the same trajectories by one call of
    `simulate` each.
    """
    system, states = VanDerPol(), initial_states(plan)
    jobs = {
        "all processors": Job(lambda: ensemble(plan)),
        "one thread": Job(lambda: ensemble(plan, workers=1)),
        "one by one": Job(
            lambda: [simulate(system, n_samples=SAMPLES, initial_state=x, seed=plan.seed) for x in states]
        ),
    }
    seconds = interleave(jobs, ROUNDS * plan.repetitions)
    case, targets = f"{plan.trajectories} x {SAMPLES}", {"all processors": Target(0.1)}
    for name, taken in seconds.items():
        rate = {"samples/s": plan.trajectories * SAMPLES / taken.min()}
        median = float(np.median(taken))
        yield Row("monte_carlo", f"{case}, {name}", taken.min(), "s", median, targets.get(name), rate)
    over = ("one thread", "all processors")
    yield ratio("monte_carlo", f"{case}, threads", seconds, over, "times faster", None)


def initial_states(plan: Plan) -> np.ndarray:
    """Initial states (trajectories, 2), uniform."""
    return np.random.default_rng(plan.seed).uniform(-WIDEST, WIDEST, size=(plan.trajectories, 2))


def ensemble(plan: Plan, workers: int | None = None) -> Ensemble:
    """Simulate all trajectories."""
    states = initial_states(plan)
    return simulate_many(VanDerPol(), n_samples=SAMPLES, initial_states=states, seed=plan.seed, workers=workers)
