"""What a free run knows of its own error, and what it costs to know it."""

from collections.abc import Iterator
from functools import partial

import numpy as np

import sysid
from experiments.benchmarks.harness import Job, Plan, Row, interleave, timed
from simulators import VanDerPol, simulate_many
from sysid.simulation.dynamics import Dynamics, Moments

WIDEST = 2.0  # largest initial position [m] and velocity [m/s]
N_LAGS, N_STEPS = 2, 100  # samples
CHECKED = (10, 100)  # steps after which the error is compared with what was predicted of it
MOST_STARTS = 50
INSIDE = 1.96  # standard deviations that hold 95 % of a Gaussian
PROPAGATIONS: dict[str, sysid.Propagation] = {
    "mean only": sysid.MeanOnly(),
    "independent draws": sysid.MonteCarlo(100),
    "one function per trajectory": sysid.Pathwise(100, 50),
    "Taylor": sysid.Taylor(),
    "moment matching": sysid.MomentMatching(),
}


def propagation(plan: Plan) -> Iterator[Row]:
    """Time per step and start of free runs of the Van der Pol oscillator, by each way to propagate uncertainty.

    The oscillator is free of noise: all errors are those of a model of few points. The details compare them with
    the predicted standard deviations after some steps: root mean square, mean, and how many are inside the band that
    should hold 95 %.
    """
    dynamics, outputs = _van_der_pol(plan)
    past, true = outputs[:, :N_LAGS, np.newaxis], outputs[:, N_LAGS:]
    exogenous = np.zeros((len(past), N_STEPS, N_LAGS))

    found: dict[str, Moments] = {}

    def propagate(name: str, rule: sysid.Propagation) -> None:
        found[name] = rule.propagate(dynamics, past, exogenous, np.random.default_rng(plan.seed))

    jobs = {name: Job(partial(propagate, name, rule), len(past) * N_STEPS) for name, rule in PROPAGATIONS.items()}
    for name, seconds in interleave(jobs, min(plan.repetitions, 3)).items():
        details = calibration(found[name], true, dynamics.noise_variance[0])
        yield timed(f"{plan.budget} points, {name}", 1e6 * seconds, "us", **details)


def _van_der_pol(plan: Plan) -> tuple[Dynamics, np.ndarray]:
    """Model learned from the first samples of `budget` trajectories, and outputs (b, n) [m] of others."""
    n_starts = min(plan.trajectories, MOST_STARTS)
    states = np.random.default_rng(plan.seed).uniform(-WIDEST, WIDEST, size=(plan.budget + n_starts, 2))
    system = VanDerPol(acceleration_noise_std=0.0)
    record = simulate_many(system, n_samples=N_LAGS + N_STEPS, initial_states=states, seed=plan.seed)
    outputs = record.output[:, :, 0]
    known, new = outputs[: plan.budget], outputs[plan.budget :]
    x, target = known[:, [1, 0]], known[:, 2] - known[:, 1]
    scaling, mean = sysid.Scaling.fit(x), sysid.ConstantMean().fitted(x, target)
    data = scaling.transform(x), target - mean(x)
    learned = sysid.MaximumAPosteriori(restarts=2).train(*data, plan.seed)
    gp = sysid.OnlineGP(learned.kernel, noise_variance=learned.noise_variance, budget=plan.budget).fit(*data)
    return Dynamics(sysid.Model(sysid.Narx(outputs={"displacement": N_LAGS}), scaling, mean, gp)), new


def calibration(moments: Moments, true: np.ndarray, noise_variance: float) -> dict[str, float]:
    """Errors after some steps beside the standard deviations predicted for them, without what diverged."""
    numbers: dict[str, float] = {}
    kept = np.isfinite(moments.variance[:, -1, 0])
    for steps in CHECKED:
        error = (moments.mean[:, steps - 1, 0] - true[:, steps - 1])[kept]
        variance = moments.variance[kept, steps - 1, 0] + noise_variance
        numbers[f"error after {steps}"] = float(np.sqrt(np.mean(error**2)))
        numbers[f"std after {steps}"] = float(np.sqrt(np.mean(variance)))
        numbers[f"inside after {steps}"] = float(np.mean(np.abs(error) <= INSIDE * np.sqrt(variance)))
    return numbers | {"diverged": float(np.count_nonzero(~kept))}
