"""What a free run knows of its own error, and what it costs to know it."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from experiments.benchmarks.plan import Plan
from experiments.benchmarks.row import Row, microseconds
from experiments.benchmarks.timing import Job, interleave
from simulators import VanDerPol, simulate_many
from sysid import (
    ConstantMean,
    MaximumAPosteriori,
    MeanOnly,
    Model,
    MomentMatching,
    MonteCarlo,
    Narx,
    OnlineGP,
    Pathwise,
    Propagation,
    Scaling,
    Taylor,
)
from sysid.simulation.dynamics import Dynamics, Moments

WIDEST = 2.0  # largest initial position [m] and velocity [m/s]
N_LAGS, N_STEPS = 2, 100  # samples
LOOKED_AT = (10, 100)  # steps after which the error is compared with what was predicted of it
MOST_STARTS = 50
INSIDE = 1.96  # standard deviations that hold 95 % of a Gaussian
PROPAGATIONS: dict[str, Propagation] = {
    "mean only": MeanOnly(),
    "independent draws": MonteCarlo(100),
    "one function per trajectory": Pathwise(100, 50),
    "Taylor": Taylor(),
    "moment matching": MomentMatching(),
}


class Case(NamedTuple):
    """A model, and trajectories to predict with it."""

    dynamics: Dynamics
    past: np.ndarray  # (b, N_LAGS, 1) m
    true: np.ndarray  # (b, N_STEPS) m


def propagation(plan: Plan) -> Iterator[Row]:
    """Time per step and start of free runs of the Van der Pol oscillator, by each way to propagate uncertainty.

    The oscillator is free of noise: all errors are those of a model of few points. The details compare them with
    the predicted standard deviations after some steps: root mean square, mean, and how many are inside the band that
    should hold 95 %.
    """
    case = van_der_pol(plan)
    n_starts = len(case.past)
    found: dict[str, Moments] = {}
    exogenous = np.zeros((n_starts, N_STEPS, N_LAGS))

    def run(name: str) -> None:
        generator = np.random.default_rng(plan.seed)
        found[name] = PROPAGATIONS[name].propagate(case.dynamics, case.past, exogenous, generator)

    jobs = {name: Job(lambda name=name: run(name), n_starts * N_STEPS) for name in PROPAGATIONS}  # type: ignore[misc]
    for name, seconds in interleave(jobs, min(plan.repetitions, 3)).items():
        details = calibration(found[name], case)
        yield microseconds("propagation", f"{plan.budget} points, {name}", seconds, None, **details)


def van_der_pol(plan: Plan) -> Case:
    """Model of `budget` random samples, and as many other trajectories as are looked at."""
    n_starts = min(plan.trajectories, MOST_STARTS)
    states = np.random.default_rng(plan.seed).uniform(-WIDEST, WIDEST, size=(plan.budget + n_starts, 2))
    system = VanDerPol(acceleration_noise_std=0.0)
    record = simulate_many(system, n_samples=N_LAGS + N_STEPS, initial_states=states, seed=plan.seed)
    y = record.output[:, :, 0]
    narx = Narx(outputs={"displacement": N_LAGS})
    known, new = y[: plan.budget], y[plan.budget :]
    x, target = known[:, [1, 0]], known[:, 2] - known[:, 1]
    scaling, mean = Scaling.fit(x), ConstantMean().fitted(x, target)
    learned = MaximumAPosteriori(restarts=2).train(scaling.transform(x), target - mean(x), plan.seed)
    gp = OnlineGP(learned.kernel, noise_variance=learned.noise_variance, budget=plan.budget)
    gp.fit(scaling.transform(x), target - mean(x))
    return Case(Dynamics(Model(narx, scaling, mean, gp)), new[:, :N_LAGS, None], new[:, N_LAGS:])


def calibration(moments: Moments, case: Case) -> dict[str, float]:
    """Errors after `LOOKED_AT` steps beside the standard deviations predicted for them, without what diverged."""
    numbers: dict[str, float] = {}
    kept = np.isfinite(moments.variance[:, -1, 0])
    for steps in LOOKED_AT:
        error = (moments.mean[:, steps - 1, 0] - case.true[:, steps - 1])[kept]
        variance = moments.variance[kept, steps - 1, 0] + case.dynamics.noise_variance[0]
        numbers[f"error after {steps}"] = float(np.sqrt(np.mean(error**2)))
        numbers[f"std after {steps}"] = float(np.sqrt(np.mean(variance)))
        numbers[f"inside after {steps}"] = float(np.mean(np.abs(error) <= INSIDE * np.sqrt(variance)))
    return numbers | {"diverged": float(np.count_nonzero(~kept))}
