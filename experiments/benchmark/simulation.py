"""Simulation against `solve_ivp` of SciPy, of many trajectories, their files, and free runs with
their uncertainty.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numba import njit
from scipy.integrate import solve_ivp

import simulators
import sysid
from experiments.benchmark.harness import Job, Plan, Row, interleave, ratio, row, timed
from experiments.plant.plant import Plant
from simulators import Interpolation, System
from simulators.errors import SimulationError
from sysid.arrays import Array
from sysid.beside import n_cores
from sysid.simulation.dynamics import Dynamics, Moments
from sysid.simulation.validation import Z_95
from sysid.store import read, write

METHODS = ("RK45", "DOP853", "LSODA")
N_PIECES = 4  # pieces of the record that are integrated
TOLERANCES = tuple(10.0 ** (-k / 2) for k in range(2, 25))  # 1e-1 to 1e-12, from loose to tight
REFERENCE = 1e-12  # tolerance of DOP853 for the reference
PERIOD = 8192  # samples of the force of the Bouc-Wen oscillator
STEPS = 20  # integration steps per sample of it: 750 Hz to 15 kHz
FORCE = simulators.Multisine(rms=50.0, band=(5.0, 150.0))  # N, Hz
# samples of a trajectory, few and so many that threads pay: monte_carlo
SHORT = 50
LONG = 500
WIDEST = 2.0  # largest initial position [m] and velocity [m/s]
ROUNDS = 2  # for each of the plan, as one takes little time: monte_carlo
KIND = "trajectory"
# samples
N_LAGS = 2
N_STEPS = 100
CHECKED = (
    10,
    100,
)  # steps after which the error is compared with what was predicted of it
MOST_STARTS = 50
PROPAGATIONS: dict[str, sysid.Propagation] = {
    "mean only": sysid.MeanOnly(),
    "independent draws": sysid.MonteCarlo(100),
    "one function per trajectory": sysid.Pathwise(100, 50),
    "Taylor": sysid.Taylor(),
    "moment matching": sysid.MomentMatching(),
}


def rates_of(system: System, drift: Callable[..., None]) -> Callable[[float, Array, Array], Array]:
    """Return ``(t, x, row) -> x'`` of a drift; see `SampledProblem.rows`."""
    n_u = len(system.inputs)
    noise = 1 + 2 * n_u
    parameters = 1 + 2 * n_u + len(system.noises)

    def rates(t, x, row):  # type: ignore[no-untyped-def]
        derivative = np.empty_like(x)
        u = np.empty(n_u)
        for i in range(n_u):
            u[i] = row[1 + i] + (t - row[0]) * row[1 + n_u + i]
        drift(t, x, u, row[noise:parameters], row[parameters:], derivative)
        return derivative

    return rates


class SampledProblem:
    """A record of a system, simulated our way, and `solve_ivp` on pieces of it.

    `solve_ivp` is restarted at every sample; each piece starts from the state that our simulation
    has there.

    Parameters
    ----------
    name : str
    system : System
    input : (n, n_u) array
    interpolation : Interpolation
        What the input does between its samples: held or linear.
    seed : int
        Seed of the process noise.
    stretch : int
        Samples that `solve_ivp` integrates, in pieces that are spread over the record.

    Attributes
    ----------
    rows : (n - 1, ...) array
        All that the drift needs in the interval after sample k, in row k: time, input, slope of the
        input, noise and parameters; with the state they say x'.
    """

    def __init__(
        self,
        name: str,
        system: System,
        input: Array,
        interpolation: Interpolation,
        seed: int,
        stretch: int = 1,
    ) -> None:
        self.name = name
        self.system = system
        self.input = input
        self.simulate = partial(
            simulators.simulate, system, input, interpolation=interpolation, seed=seed
        )
        self.made = self.simulate()
        self.scale = self.made.state.std(axis=0)  # (n_x,)
        is_linear = interpolation is Interpolation.linear
        slope = np.diff(input, axis=0) / system.dt if is_linear else np.zeros_like(input[1:])
        parameters = np.tile(system.parameters(), (len(slope), 1))
        time = self.made.time[:-1, np.newaxis]
        noise = self.made.noise[:-1]
        self.rows = np.hstack([time, input[:-1], slope, noise, parameters])
        self.length = min(max(stretch // N_PIECES, 1), len(slope))  # samples of one piece
        self.starts = np.linspace(0, len(slope) - self.length, N_PIECES).astype(np.int64)
        compiled = njit(error_model="numpy")
        self.rates = compiled(rates_of(system, compiled(system.drift)))

    @cached_property
    def reference(self) -> Array:
        """States that our simulation should have, (pieces, length, n_x)."""
        return self.states("DOP853", REFERENCE)

    def states(self, method: str, tolerance: float) -> Array:
        """States at the ends of the samples, (pieces, length, n_x); `solve_ivp` is called for each
        sample.

        Parameters
        ----------
        method : str
            Method of `solve_ivp`.
        tolerance : float
            Relative tolerance; the absolute one of each state is as large in standard deviations of
            it.

        Raises
        ------
        ArithmeticError
            If `solve_ivp` gives up.
        """
        dt = self.system.dt
        options: dict[str, Any] = {
            "method": method,
            "rtol": tolerance,
            "atol": tolerance * self.scale,
        }
        found = np.empty((N_PIECES, self.length, len(self.scale)))
        for piece, start in enumerate(self.starts):
            x = self.made.state[start]
            for k in range(start, start + self.length):
                t = self.made.time[k]
                solution = solve_ivp(self.rates, (t, t + dt), x, args=(self.rows[k],), **options)
                if not solution.success:
                    raise SimulationError(f"{self.name}, sample {k}: {method}: {solution.message}")
                x = found[piece, k - start] = solution.y[:, -1]
        return found

    def error(self, states: Array) -> float:
        """Largest difference from the reference in standard deviations of the state."""
        return float(np.abs((states - self.reference) / self.scale).max())

    @cached_property
    def our_error(self) -> float:
        """Error of our simulation on the pieces."""
        return self.error(
            np.array([self.made.state[start + 1 :][: self.length] for start in self.starts])
        )

    def match(self, method: str) -> tuple[float, float]:
        """Find the loosest tolerance with which a method is as accurate as our simulation, and its
        error.
        """
        return loosest(lambda tolerance: self.error(self.states(method, tolerance)), self.our_error)


def building_problem(duration: float | str, seed: int, stretch: int = 1) -> SampledProblem:
    """Pose the building with the flow that its controller has set, held over the samples."""
    system = simulators.Building()
    weather = {"ambient_temperature": simulators.SyntheticWeather()}
    plant = Plant(
        system,
        simulators.PI(),
        weather,
        {},
        simulators.MeasurementNoise(),
        Interpolation.held,
    )
    flow = plant.trajectory(plant.n_samples(duration), seed).input
    return SampledProblem("building", system, flow, Interpolation.held, seed, stretch)


def bouc_wen_problem(seed: int, stretch: int = 1, *, restarts: int = 1) -> SampledProblem:
    """One period of the Bouc-Wen oscillator in steps of 15 kHz under a multisine, linear between
    its samples.

    Parameters
    ----------
    seed : int
        Seed of the phases.
    stretch : int
        See `SampledProblem`.
    restarts : int
        Samples of the force per observed sample: 1 at 750 Hz, with 20 steps each, and 20 at 15 kHz,
        with one. The force is the same.
    """
    system = simulators.BoucWen()
    system = replace(system, dt=system.dt / restarts, substeps=STEPS // restarts)
    force = FORCE.signal(PERIOD * restarts, system.dt, np.random.default_rng(seed))
    name = f"Bouc-Wen, force at {1 / system.dt:.0f} Hz"
    return SampledProblem(name, system, force[:, np.newaxis], Interpolation.linear, seed, stretch)


def loosest(error_of: Callable[[float], float], bound: float) -> tuple[float, float]:
    """Find the loosest of `TOLERANCES` whose error keeps the bound, or else the tightest; and its
    error.

    Tighter ones, which are expensive, are not tried.
    """
    for tolerance in TOLERANCES:
        error = error_of(tolerance)
        if error <= bound:
            break
    return tolerance, error


def simulation(plan: Plan) -> Iterator[Row]:
    """A record simulated our way against `solve_ivp` called sample by sample at the same accuracy,
    time per sample.

    Ours: `simulate` of the whole record with everything that it does. `solve_ivp`: each method with
    the loosest tolerance (half decades from 0.1, absolute tolerances in standard deviations of each
    state) whose largest error is at most ours. Both errors are taken over ``timed`` samples in four
    pieces spread over the record, in standard deviations of the states, from DOP853 at a tolerance
    of 1e-12. These samples are timed, and the times per sample compared. The right-hand side is our
    drift, compiled.

    The inputs of the building are held. The force on Bouc-Wen is linear between its samples:
    observed at 750 Hz, `solve_ivp` meets no kink within a sample and takes its own steps, where we
    take those of 15 kHz. The rows without a target restart it at every sample of a force given at
    15 kHz.
    """  # noqa: D401  # its first line stands in benchmark.md
    problems = (
        building_problem(plan.duration, plan.seed, plan.stretch),
        bouc_wen_problem(plan.seed, plan.stretch),
        bouc_wen_problem(plan.seed, plan.stretch, restarts=STEPS),
    )
    for problem, target in zip(problems, (">= 100", ">= 100", ""), strict=True):
        timed_samples = N_PIECES * problem.length
        matches = {method: problem.match(method) for method in METHODS}
        jobs = {"ours": Job(problem.simulate, len(problem.input))}
        for method, (tolerance, _) in matches.items():
            jobs[method] = Job(partial(problem.states, method, tolerance), timed_samples)
        times = interleave(jobs, plan.repetitions)
        for method, (tolerance, error) in matches.items():
            n = len(problem.input)
            details = {
                "samples": n,
                "record s": times["ours"].min() * n,
                "timed": timed_samples,
            }
            details |= {
                "tolerance": tolerance,
                "its error": error,
                "our error": problem.our_error,
            }
            yield ratio(
                f"{problem.name}: {method}",
                times,
                (method, "ours"),
                "times faster",
                target=target,
                **details,
            )


def monte_carlo(plan: Plan) -> Iterator[Row]:
    """Trajectories of the Van der Pol oscillator with process noise from random initial states,
    after warm-up.

    Then trajectories of `LONG` samples by one thread and by as many as there are processors.
    """
    run = _ensemble(plan)
    default = f"{SHORT}, by default"
    one = f"{LONG}, one thread"
    all_ = f"{LONG}, all processors"
    jobs = {
        default: Job(partial(run, n_samples=SHORT)),
        one: Job(partial(run, n_samples=LONG, workers=1)),
        all_: Job(partial(run, n_samples=LONG, workers=n_cores())),
    }
    seconds = interleave(jobs, ROUNDS * plan.repetitions)
    for name, taken in seconds.items():
        rate = {"samples/s": plan.trajectories * int(name.split(",")[0]) / taken.min()}
        yield timed(
            f"{plan.trajectories} x {name}",
            taken,
            "s",
            target="<= 0.1" * (name == default),
            **rate,
        )
    yield ratio(f"{plan.trajectories} x {LONG}, threads", seconds, (one, all_), "times faster")


def _ensemble(plan: Plan) -> "partial[simulators.Ensemble]":
    """Prepare the simulation of all trajectories from their random initial states."""
    states = np.random.default_rng(plan.seed).uniform(-WIDEST, WIDEST, size=(plan.trajectories, 2))
    return partial(
        simulators.simulate_many,
        simulators.VanDerPol(),
        initial_states=states,
        seed=plan.seed,
    )


def store(plan: Plan) -> Iterator[Row]:
    """Data sets written to a temporary folder and read into memory, in MB of the data set per
    second.

    `sysid.store` adds checksums, compression, checks and a flush to the disk when it writes. What
    is read was written just before and comes from the memory of the operating system.
    """  # noqa: D401  # its first line stands in benchmark.md
    datasets = {
        f"building, {plan.duration}": building_problem(plan.duration, plan.seed).made.to_dataset(),
        f"Van der Pol, {plan.trajectories} trajectories": _ensemble(plan)(
            n_samples=SHORT
        ).to_dataset(),
    }
    for case, dataset in datasets.items():
        with TemporaryDirectory(prefix="sysid-benchmark-") as folder:
            path = Path(folder, "own.nc")
            jobs = {
                "write": Job(partial(write, dataset, path, kind=KIND)),
                "read": Job(partial(read, path, kind=KIND)),
            }
            seconds = interleave(jobs, plan.repetitions)
            details: dict[str, Any] = {
                "MB": dataset.nbytes / 1e6,
                "file MB": path.stat().st_size / 1e6,
            }
        for name, taken in seconds.items():
            rate = details["MB"] / taken
            yield row(f"{case}: {name}", rate.max(), "MB/s", median=np.median(rate), **details)


# --- what a free run knows of its own error -------------------------------------------------------


def propagation(plan: Plan) -> Iterator[Row]:
    """Time per step and start of free runs of the Van der Pol oscillator, by each way to propagate
    uncertainty.

    The oscillator is free of noise: all errors are those of a model of few points. The details
    compare them with the predicted standard deviations after some steps: root mean square, mean,
    and how many are inside the band that should hold 95 %.
    """
    dynamics, outputs = _van_der_pol(plan)
    past = outputs[:, :N_LAGS, np.newaxis]
    true = outputs[:, N_LAGS:]
    exogenous = np.zeros((len(past), N_STEPS, N_LAGS))

    found: dict[str, Moments] = {}

    def propagate(name: str, rule: sysid.Propagation) -> None:
        found[name] = rule.propagate(dynamics, past, exogenous, np.random.default_rng(plan.seed))

    jobs = {
        name: Job(partial(propagate, name, rule), len(past) * N_STEPS)
        for name, rule in PROPAGATIONS.items()
    }
    for name, seconds in interleave(jobs, min(plan.repetitions, 3)).items():
        details = calibration(found[name], true, dynamics.noise_variance[0])
        yield timed(f"{plan.budget} points, {name}", 1e6 * seconds, "us", **details)


def _van_der_pol(plan: Plan) -> tuple[Dynamics, np.ndarray]:
    """Model learned from the first samples of `budget` trajectories, and outputs (b, n) [m] of
    others.
    """
    n_starts = min(plan.trajectories, MOST_STARTS)
    states = np.random.default_rng(plan.seed).uniform(
        -WIDEST, WIDEST, size=(plan.budget + n_starts, 2)
    )
    system = simulators.VanDerPol(acceleration_noise_std=0.0)
    record = simulators.simulate_many(
        system, n_samples=N_LAGS + N_STEPS, initial_states=states, seed=plan.seed
    )
    outputs = record.output[:, :, 0]
    known = outputs[: plan.budget]
    new = outputs[plan.budget :]
    x = known[:, [1, 0]]
    target = known[:, 2] - known[:, 1]
    scaling = sysid.Scaling.fit(x)
    mean = sysid.ConstantMean().fitted(x, target)
    data = scaling.transform(x), target - mean(x)
    learned = sysid.MaximumAPosteriori(restarts=2).train(*data, plan.seed)
    gp = sysid.OnlineGP(
        learned.kernel, noise_variance=learned.noise_variance, budget=plan.budget
    ).fit(*data)
    return Dynamics(
        sysid.Model(sysid.Narx(outputs={"displacement": N_LAGS}), scaling, mean, gp)
    ), new


def calibration(moments: Moments, true: np.ndarray, noise_variance: float) -> dict[str, float]:
    """Errors after some steps beside the standard deviations predicted for them, without what
    diverged.
    """
    numbers: dict[str, float] = {}
    kept = np.isfinite(moments.variance[:, -1, 0])
    for steps in CHECKED:
        error = (moments.mean[:, steps - 1, 0] - true[:, steps - 1])[kept]
        variance = moments.variance[kept, steps - 1, 0] + noise_variance
        numbers[f"error after {steps}"] = float(np.sqrt(np.mean(error**2)))
        numbers[f"std after {steps}"] = float(np.sqrt(np.mean(variance)))
        numbers[f"inside after {steps}"] = float(np.mean(np.abs(error) <= Z_95 * np.sqrt(variance)))
    return numbers | {"diverged": float(np.count_nonzero(~kept))}
