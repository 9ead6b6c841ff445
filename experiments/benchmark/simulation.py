"""Benchmarks of simulations, of many trajectories, of their files, and of free runs.

Simulations are compared with `solve_ivp` of SciPy.
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
from experiments.plant.limit import find_limit
from experiments.plant.plant import Plant
from simulators import Interpolation, System
from simulators.errors import SimulationError
from sysid.arrays import Array
from sysid.beside import n_cores
from sysid.simulation.dynamics import Dynamics, Moments
from sysid.simulation.validation import Z_95
from sysid.store import read, write

SOLVE_IVP_METHODS = ("RK45", "DOP853", "LSODA")
N_PIECES = 4  # pieces of the record that `solve_ivp` integrates
TOLERANCES = tuple(10.0 ** (-k / 2) for k in range(2, 25))  # 1e-1 to 1e-12, from loose to tight
REFERENCE_TOLERANCE = 1e-12  # tolerance of DOP853 for the reference
FORCE_PERIOD = 8192  # samples of the force on the Bouc-Wen oscillator
FORCE_SUBSTEPS = 20  # integration steps per sample of the force: 750 Hz to 15 kHz
BOUC_WEN_FORCE = simulators.Multisine(rms=50.0, band=(5.0, 150.0))  # N, Hz
SHORT_TRAJECTORY_SAMPLES = 50  # samples; too few for threads to pay
LONG_TRAJECTORY_SAMPLES = 500  # samples; enough for threads to pay
MAX_INITIAL_STATE = 2.0  # largest initial position [m] and velocity [m/s]
MONTE_CARLO_ROUNDS = 2  # rounds in each repetition of the plan; a round takes little time
TRAJECTORY_KIND = "trajectory"
N_POSITION_LAGS = 2  # lags of the model of the Van der Pol oscillator
N_FREE_RUN_STEPS = 100
CHECKED_STEPS = (10, 100)  # steps after which errors are compared with their predicted deviations
MAX_STARTS = 50  # free runs that are predicted
PROPAGATIONS: dict[str, sysid.Propagation] = {
    "mean only": sysid.MeanOnly(),
    "independent draws": sysid.MonteCarlo(100),
    "one function per trajectory": sysid.Pathwise(100, 50),
    "Taylor": sysid.Taylor(),
    "moment matching": sysid.MomentMatching(),
}

SINGLE_RUN = sysid.Pathwise(200)  # of one start


def rates_of(system: System, drift: Callable[..., None]) -> Callable[[float, Array, Array], Array]:
    """Return the function ``(t, x, row) -> x'`` of a drift; for row see `SampledProblem.rows`."""
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
    """A record of a system, simulated by `simulators`, and by `solve_ivp` on pieces of it.

    `solve_ivp` is restarted at every sample; each piece starts from the state that our simulation
    has there.

    Parameters
    ----------
    name : str
        Name of the problem in the table.
    system : System
        System that is simulated.
    input : (n, n_u) array
        Its input.
    interpolation : Interpolation
        The input between its samples: held or linear.
    seed : int
        Seed of the process noise.
    stretch : int
        Samples that `solve_ivp` integrates, in pieces that are spread over the record.

    Attributes
    ----------
    rows : (n - 1, ...) array
        Row k has all that the drift needs in the interval after sample k besides the state: time,
        input, slope of the input, noise and parameters.
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
        """Nearly exact states at the ends of the samples, (pieces, length, n_x)."""
        return self.states("DOP853", REFERENCE_TOLERANCE)

    def states(self, method: str, tolerance: float) -> Array:
        """Return the states at the ends of the samples, (pieces, length, n_x).

        `solve_ivp` is called for each sample.

        Parameters
        ----------
        method : str
            Method of `solve_ivp`.
        tolerance : float
            Relative tolerance. The absolute one of each state is the same number of standard
            deviations of the state.

        Raises
        ------
        ArithmeticError
            `solve_ivp` gives up.
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
        """Return the largest difference from the reference in standard deviations of the state."""
        return float(np.abs((states - self.reference) / self.scale).max())

    @cached_property
    def our_error(self) -> float:
        """Error of our simulation on the pieces, in standard deviations of the state."""
        pieces = [self.made.state[start + 1 :][: self.length] for start in self.starts]
        return self.error(np.array(pieces))

    def match(self, method: str) -> tuple[float, float]:
        """Return the loosest tolerance that makes a method as accurate as our simulation.

        The second value is its error.
        """

        def error_of(tolerance: float) -> float:
            return self.error(self.states(method, tolerance))

        return loosest(error_of, self.our_error)


def building_problem(duration: float | str, seed: int, stretch: int = 1) -> SampledProblem:
    """Return the building under the flow that its controller has set, held over the samples."""
    plant = _building_plant()
    flow = plant.trajectory(plant.n_samples(duration), seed).input
    return SampledProblem("building", plant.system, flow, Interpolation.held, seed, stretch)


def _building_plant() -> Plant:
    """Return the building under its controller, with synthetic weather."""
    return Plant(
        simulators.Building(),
        simulators.PI(),
        {"ambient_temperature": simulators.SyntheticWeather()},
        {},
        simulators.MeasurementNoise(),
        Interpolation.held,
    )


def bouc_wen_problem(seed: int, stretch: int = 1, *, restarts: int = 1) -> SampledProblem:
    """Return one period of the Bouc-Wen oscillator, integrated in steps of 15 kHz.

    The force is a multisine, linear between its samples.

    Parameters
    ----------
    seed : int
        Seed of the phases.
    stretch : int
        See `SampledProblem`.
    restarts : int
        Samples of the force per observed sample: 1 (750 Hz, each with 20 steps), or 20 (15 kHz,
        each with one step). The force is the same.
    """
    system = simulators.BoucWen()
    system = replace(system, dt=system.dt / restarts, substeps=FORCE_SUBSTEPS // restarts)
    rng = np.random.default_rng(seed)
    force = BOUC_WEN_FORCE.signal(FORCE_PERIOD * restarts, system.dt, rng)
    name = f"Bouc-Wen, force at {1 / system.dt:.0f} Hz"
    return SampledProblem(name, system, force[:, np.newaxis], Interpolation.linear, seed, stretch)


def loosest(error_of: Callable[[float], float], bound: float) -> tuple[float, float]:
    """Return the loosest of `TOLERANCES` whose error is within the bound, and its error.

    If none is, the tightest is returned. Tighter ones than the returned one, which are expensive,
    are not tried.
    """
    for tolerance in TOLERANCES:
        error = error_of(tolerance)
        if error <= bound:
            break
    return tolerance, error


def simulation(plan: Plan) -> Iterator[Row]:
    """Time a simulated record per sample against `solve_ivp` at the same accuracy.

    ``ours`` is `simulate` of the whole record with everything that it does. `solve_ivp` is called
    sample by sample, by each method with the loosest tolerance (half decades from 0.1, absolute
    tolerances in standard deviations of each state) whose largest error is at most ours. Both
    errors are taken over ``timed`` samples in four pieces spread over the record, in standard
    deviations of the states, from DOP853 at a tolerance of 1e-12. These samples are timed, and the
    times per sample compared. The right-hand side is our drift, compiled.

    The inputs of the building are held. The force on Bouc-Wen is linear between its samples. If it
    is observed at 750 Hz, `solve_ivp` meets no kink within a sample and takes its own steps, where
    we take those of 15 kHz. The rows without a target restart it at every sample of a force given
    at 15 kHz.
    """
    problems = (
        building_problem(plan.duration, plan.seed, plan.stretch),
        bouc_wen_problem(plan.seed, plan.stretch),
        bouc_wen_problem(plan.seed, plan.stretch, restarts=FORCE_SUBSTEPS),
    )
    for problem, target in zip(problems, (">= 100", ">= 100", ""), strict=True):
        n_samples = len(problem.input)
        n_timed = N_PIECES * problem.length
        matches = {method: problem.match(method) for method in SOLVE_IVP_METHODS}
        jobs = {"ours": Job(problem.simulate, n_samples)}
        for method, (tolerance, _) in matches.items():
            jobs[method] = Job(partial(problem.states, method, tolerance), n_timed)
        times = interleave(jobs, plan.repetitions)
        for method, (tolerance, error) in matches.items():
            details = {
                "samples": n_samples,
                "record s": times["ours"].min() * n_samples,
                "timed": n_timed,
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


def limit(plan: Plan) -> Iterator[Row]:
    """Time the limit of one-step prediction against the simulation that it belongs to.

    The building is simulated sample by sample, as a run does it.
    """
    plant = _building_plant()
    n_samples = plant.n_samples(plan.duration)
    trajectory = plant.trajectory(n_samples, plan.seed)
    jobs = {
        "simulation": Job(lambda: list(plant.samples(n_samples, plan.seed)), n_samples),
        "limit": Job(partial(find_limit, plant, trajectory), n_samples),
    }
    times = interleave(jobs, plan.repetitions)
    yield ratio(
        "building",
        times,
        ("limit", "simulation"),
        "times as long",
        target="<= 5",
        samples=n_samples,
    )


def monte_carlo(plan: Plan) -> Iterator[Row]:
    """Time trajectories of the Van der Pol oscillator with process noise, after warm-up.

    The initial states are random. Short trajectories are simulated by default settings, long ones
    by one thread and by one for each processor.
    """
    simulate = _ensemble(plan)
    default = f"{SHORT_TRAJECTORY_SAMPLES}, by default"
    one_thread = f"{LONG_TRAJECTORY_SAMPLES}, one thread"
    all_processors = f"{LONG_TRAJECTORY_SAMPLES}, all processors"
    jobs = {
        default: Job(partial(simulate, n_samples=SHORT_TRAJECTORY_SAMPLES)),
        one_thread: Job(partial(simulate, n_samples=LONG_TRAJECTORY_SAMPLES, workers=1)),
        all_processors: Job(
            partial(simulate, n_samples=LONG_TRAJECTORY_SAMPLES, workers=n_cores())
        ),
    }
    lengths = {
        default: SHORT_TRAJECTORY_SAMPLES,
        one_thread: LONG_TRAJECTORY_SAMPLES,
        all_processors: LONG_TRAJECTORY_SAMPLES,
    }
    seconds = interleave(jobs, MONTE_CARLO_ROUNDS * plan.repetitions)
    for name, taken in seconds.items():
        n_samples = plan.trajectories * lengths[name]
        yield timed(
            f"{plan.trajectories} x {name}",
            taken,
            "s",
            target="<= 0.1" if name == default else "",
            **{"samples/s": n_samples / taken.min()},
        )
    yield ratio(
        f"{plan.trajectories} x {LONG_TRAJECTORY_SAMPLES}, threads",
        seconds,
        (one_thread, all_processors),
        "times faster",
    )


def _ensemble(plan: Plan) -> "partial[simulators.Ensemble]":
    """Return the simulation of all trajectories from random initial states."""
    states = _random_states(plan.trajectories, plan.seed)
    return partial(
        simulators.simulate_many,
        simulators.VanDerPol(),
        initial_states=states,
        seed=plan.seed,
    )


def _random_states(n: int, seed: int) -> Array:
    """Return n random positions and velocities of the oscillator, (n, 2)."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-MAX_INITIAL_STATE, MAX_INITIAL_STATE, size=(n, 2))


def store(plan: Plan) -> Iterator[Row]:
    """Time data sets that are written to a temporary folder and read into memory, in MB per second.

    `sysid.store` adds checksums, compression, checks and a flush to the disk when it writes. What
    is read was written just before and comes from the memory of the operating system.
    """
    building = building_problem(plan.duration, plan.seed).made
    ensemble = _ensemble(plan)(n_samples=SHORT_TRAJECTORY_SAMPLES)
    datasets = {
        f"building, {plan.duration}": building.to_dataset(),
        f"Van der Pol, {plan.trajectories} trajectories": ensemble.to_dataset(),
    }
    for case, dataset in datasets.items():
        with TemporaryDirectory(prefix="sysid-benchmark-") as folder:
            path = Path(folder, "own.nc")
            jobs = {
                "write": Job(partial(write, dataset, path, kind=TRAJECTORY_KIND)),
                "read": Job(partial(read, path, kind=TRAJECTORY_KIND)),
            }
            seconds = interleave(jobs, plan.repetitions)
            details: dict[str, Any] = {
                "MB": dataset.nbytes / 1e6,
                "file MB": path.stat().st_size / 1e6,
            }
        for name, taken in seconds.items():
            rate = details["MB"] / taken
            yield row(f"{case}: {name}", rate.max(), "MB/s", median=np.median(rate), **details)


# --- predicted errors of a free run ---------------------------------------------------------------


def propagation(plan: Plan) -> Iterator[Row]:
    """Time free runs of the Van der Pol oscillator by each way to propagate uncertainty.

    The times are per step and start. The oscillator is free of noise: all errors are those of a
    model of few points. The details compare the errors after some steps with their predicted
    standard deviations: root mean square, mean, and the fraction of the errors inside the band that
    should hold 95 %. The last row is that of a single start, as when a record is validated.
    """
    dynamics, outputs = _van_der_pol(plan)
    past = outputs[:, :N_POSITION_LAGS, np.newaxis]
    true = outputs[:, N_POSITION_LAGS:]
    exogenous = np.zeros((len(past), N_FREE_RUN_STEPS, N_POSITION_LAGS))

    found: dict[str, Moments] = {}

    def propagate(name: str, rule: sysid.Propagation) -> None:
        found[name] = rule.propagate(dynamics, past, exogenous, np.random.default_rng(plan.seed))

    jobs = {
        name: Job(partial(propagate, name, rule), len(past) * N_FREE_RUN_STEPS)
        for name, rule in PROPAGATIONS.items()
    }
    for name, seconds in interleave(jobs, min(plan.repetitions, 3)).items():
        details = calibration(found[name], true, dynamics.noise_variance[0])
        yield timed(f"{plan.budget} points, {name}", 1e6 * seconds, "us", **details)

    def propagate_one() -> None:
        SINGLE_RUN.propagate(dynamics, past[:1], exogenous[:1], np.random.default_rng(plan.seed))

    (seconds,) = interleave(
        {"one": Job(propagate_one, N_FREE_RUN_STEPS)}, min(plan.repetitions, 3)
    ).values()
    case = f"{plan.budget} points, one start, {SINGLE_RUN.n_samples} functions"
    yield timed(case, 1e6 * seconds, "us")


def _van_der_pol(plan: Plan) -> tuple[Dynamics, np.ndarray]:
    """Return a model of the oscillator, and the outputs (b, n) [m] of trajectories to predict.

    The model is learned from the first samples of ``budget`` other trajectories.
    """
    n_starts = min(plan.trajectories, MAX_STARTS)
    record = simulators.simulate_many(
        simulators.VanDerPol(acceleration_noise_std=0.0),
        n_samples=N_POSITION_LAGS + N_FREE_RUN_STEPS,
        initial_states=_random_states(plan.budget + n_starts, plan.seed),
        seed=plan.seed,
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
    narx = sysid.Narx(outputs={"displacement": N_POSITION_LAGS})
    return Dynamics(sysid.Model(narx, scaling, mean, gp)), new


def calibration(moments: Moments, true: np.ndarray, noise_variance: float) -> dict[str, float]:
    """Return the errors after some steps beside their predicted standard deviations.

    Free runs that diverge are left out and counted.
    """
    numbers: dict[str, float] = {}
    kept = np.isfinite(moments.variance[:, -1, 0])
    for steps in CHECKED_STEPS:
        error = (moments.mean[:, steps - 1, 0] - true[:, steps - 1])[kept]
        variance = moments.variance[kept, steps - 1, 0] + noise_variance
        is_inside = np.abs(error) <= Z_95 * np.sqrt(variance)
        numbers[f"error after {steps}"] = float(np.sqrt(np.mean(error**2)))
        numbers[f"std after {steps}"] = float(np.sqrt(np.mean(variance)))
        numbers[f"inside after {steps}"] = float(np.mean(is_inside))
    numbers["diverged"] = float(np.count_nonzero(~kept))
    return numbers
