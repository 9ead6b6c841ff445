"""Monte Carlo: many trajectories of a system in one call, compiled and in parallel."""

import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from simulators.errors import SimulationError, UserError, UserTypeError
from simulators.interpolation import Interpolation, Piece
from simulators.noise import draw_noise
from simulators.record import (
    MeasurementNoise,
    Trajectory,
    describe_signals,
    describe_simulation,
    label_signals,
    label_time,
    sample_times,
)
from simulators.runge_kutta import Problem, check_drift, follow_pieces, problem_of
from simulators.settings import Array, check_count, is_whole, read_real
from simulators.simulation import NO_MEASUREMENT_NOISE, check_states, read_input, set_sampling
from simulators.system import System, delays_of, is_refusal, names_of, read_vector

# Arrays (N, n, m) of an ensemble, and the signals of the system in their columns.
COMPUTED_SIGNALS = {
    "state": "states",
    "output": "outputs",
    "noise_free_output": "outputs",
    "noise": "noises",
}


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Records of N simulations of one system: row (i, k) belongs to trajectory i at time k dt."""

    systems: tuple[System, ...]  # one for each trajectory
    seeds: NDArray[np.int64]  # (N,)
    time: Array  # (n,) s
    input: Array  # (n, n_u) if all trajectories share it, else (N, n, n_u)
    state: Array  # (N, n, n_x)
    output: Array  # (N, n, n_y) measured
    noise_free_output: Array  # (N, n, n_y)
    noise: Array  # (N, n, n_w)
    interpolation: Interpolation
    n_clipped: NDArray[np.int64]  # (N,) substeps that ended with a state set to one of its limits

    def __repr__(self) -> str:
        system = self.systems[0]
        return (
            f"Ensemble of {len(self)} trajectories of {type(system).__name__}: "
            f"{describe_signals(system)}, {len(self.time)} samples of {system.dt:g} s each"
        )

    def __len__(self) -> int:
        return len(self.systems)

    def __getitem__(self, index: int) -> Trajectory:
        """Return one of the trajectories."""
        i = range(len(self))[index]
        is_shared = self.input.ndim == 2
        return Trajectory(
            self.systems[i],
            int(self.seeds[i]),
            self.time,
            self.input if is_shared else self.input[i],
            interpolation=self.interpolation,
            n_clipped=int(self.n_clipped[i]),
            **{name: getattr(self, name)[i] for name in COMPUTED_SIGNALS},
        )

    def to_dataset(self) -> xr.Dataset:
        """Return one variable per signal over (trajectory, time), with seeds and parameters.

        Returns
        -------
        xarray.Dataset
            As `Trajectory.to_dataset`, and over `trajectory`: `seed`, `clipped_substeps` and every
            parameter that differs between the trajectories. A shared input has the dimension time
            only.
        """
        variables = label_signals(self.systems[0], ("trajectory", "time"), self)
        settings = [asdict(system) for system in self.systems]
        shared = {}
        for name, value in settings[0].items():
            values = [settings_of_system[name] for settings_of_system in settings]
            if all(other == value for other in values):
                shared[name] = value
            else:
                variables[name] = _over_trajectories(np.array(values), f"parameter {name}")
        variables["seed"] = _over_trajectories(self.seeds, "seed of the trajectory")
        variables["clipped_substeps"] = _over_trajectories(
            self.n_clipped, "substeps that met a limit of a state"
        )
        attributes = describe_simulation(self.systems[0], self.interpolation)
        attributes["parameters"] = json.dumps(shared)
        numbers = np.arange(len(self))
        coordinates = {
            "time": label_time(self.time),
            "trajectory": _over_trajectories(numbers, "number of the trajectory"),
        }
        return xr.Dataset(variables, coords=coordinates, attrs=attributes)


def _over_trajectories(values: NDArray[Any], meaning: str) -> tuple[str, NDArray[Any], Any]:
    """Return values (N,) as a variable of a data set."""
    return "trajectory", values, {"long_name": meaning}


# A trajectory of fewer Runge-Kutta steps is so short that threads cost more than they gain.
MIN_STEPS_FOR_THREADS = 1000


def simulate_many(
    system: System,
    input: ArrayLike | None = None,
    *,
    n_trajectories: int | None = None,
    n_samples: int | None = None,
    initial_states: ArrayLike | None = None,
    parameters: Mapping[str, ArrayLike] | None = None,
    seeds: Sequence[int] | NDArray[np.int64] | None = None,
    seed: int = 0,
    dt: float | None = None,
    substeps: int | None = None,
    interpolation: Interpolation | str = Interpolation.held,
    noise: bool = True,
    measurement: MeasurementNoise = NO_MEASUREMENT_NOISE,
    workers: int | None = None,
) -> Ensemble:
    """Simulate many trajectories in open loop, in parallel.

    Trajectory i is bit-identical to ``simulate`` with input i, initial state i, parameters i and
    seed i. This depends neither on the number of trajectories nor on the number of threads. Besides
    the result, memory is needed for one trajectory per thread.

    Parameters
    ----------
    system : System
        System to simulate.
    input : (n, n_u), (n,) or (N, n, n_u) array_like, optional
        One input for all trajectories, or one for each.
    n_trajectories : int, optional
        Number of trajectories N; needed only if no other argument determines it.
    n_samples : int, optional
        Number of samples n; needed only without inputs.
    initial_states : (N, n_x) array_like, optional
        States at time zero instead of the system's own.
    parameters : mapping of str to (N,) array_like, optional
        Fields of the system that differ between the trajectories.
    seeds : (N,) sequence of int, optional
        Seeds of the trajectories; otherwise N different ones follow from `seed`.
    seed : int, optional
        Seed from which the seeds of all trajectories follow.
    dt, substeps, interpolation, noise, measurement
        As in `simulate`.
    workers : int, optional
        Number of threads. By default there is one for each core that this process may use, or a
        single one for trajectories so short that threads would wait for each other.

    Returns
    -------
    Ensemble
        All trajectories.

    Raises
    ------
    ValueError
        If the numbers of trajectories differ, a field is unknown, or as in `simulate`.
    TypeError
        If `parameters` is no mapping, or as in `simulate`.
    DivergenceError
        If a state leaves the finite numbers; the message names the trajectory.

    Examples
    --------
    >>> from simulators.systems.van_der_pol import VanDerPol
    >>> starts = np.random.default_rng(0).uniform(-2, 2, size=(20, 2))
    >>> simulate_many(VanDerPol(), n_samples=52, initial_states=starts).output.shape
    (20, 52, 1)
    """
    system = set_sampling(system, dt, substeps)
    interpolation = Interpolation(interpolation)
    measurement.check(names_of(system.outputs))
    fields = _read_fields(system, parameters)
    states = None
    if initial_states is not None:
        states = read_real(initial_states, "initial_states").astype(np.float64)
    inputs = None  # one input for each trajectory
    if input is not None:
        given = read_real(input, f"{type(system).__name__}: input")
        inputs = given if given.ndim == 3 else None
    N = _count_trajectories(system, n_trajectories, fields, states, seeds, inputs)
    seeds_of_all = spread_seeds(seed, N) if seeds is None else _read_seeds(seeds)
    u = read_input(system, input if inputs is None else inputs[0], n_samples)
    systems = _vary_system(system, fields, N)
    states = _read_starts(systems, states)
    check_drift(systems[0], states[0], u[0])
    computed = {}
    for name, signals in COMPUTED_SIGNALS.items():
        n_signals = len(getattr(system, signals))
        computed[name] = np.empty((N, len(u), n_signals))
    ensemble = Ensemble(
        systems,
        seeds_of_all,
        sample_times(system, len(u)),
        u if inputs is None else np.empty((N, *u.shape)),
        interpolation=interpolation,
        n_clipped=np.zeros(N, dtype=np.int64),
        **computed,
    )
    if workers is None and len(u) * system.substeps < MIN_STEPS_FOR_THREADS:
        workers = 1
    _run_in_parallel(_prepare_fill(ensemble, states, inputs, noise, measurement), N, workers)
    return ensemble


def _read_fields(
    system: System, parameters: Mapping[str, ArrayLike] | None
) -> dict[str, NDArray[Any]]:
    """Return the values of fields of the system as arrays."""
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        raise UserTypeError(
            "simulate_many: expected parameters as a mapping of fields of the system to arrays "
            "(N,), for example {'damping': [1.0, 2.0]}, "
            f"got {type(parameters).__name__}; change parameters"
        )
    fields = {name: np.asarray(values) for name, values in parameters.items()}
    known = set(asdict(system)) - {"dt", "substeps"}
    unknown = sorted(set(fields) - known)
    if unknown:
        raise UserError(
            f"simulate_many: expected parameters among the fields of {type(system).__name__} "
            f"other than dt and substeps, got {unknown}; rename them"
        )
    return fields


def _read_seeds(seeds: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return seeds as integers."""
    given = np.asarray(seeds)
    if given.dtype.kind not in "iu":
        raise UserError(
            f"simulate_many: expected seeds that are integers >= 0, got {given.dtype}; "
            "round them first"
        )
    return given.astype(np.int64)


def _count_trajectories(
    system: System,
    n_trajectories: int | None,
    fields: Mapping[str, NDArray[Any]],
    states: Array | None,
    seeds: Sequence[int] | NDArray[np.int64] | None,
    inputs: NDArray[Any] | None,
) -> int:
    """Return the number of trajectories on which all arguments agree."""
    if states is not None and states.shape[1:] != (len(system.states),):
        raise UserError(
            f"simulate_many: expected initial_states of shape (N, {len(system.states)}), one row "
            f"per trajectory, got {states.shape}; change initial_states"
        )
    counts = {}
    if n_trajectories is not None:
        counts["n_trajectories"] = n_trajectories
    if states is not None:
        counts["initial_states"] = len(states)
    if seeds is not None:
        counts["seeds"] = len(seeds)
    if inputs is not None:
        counts["input"] = len(inputs)
    for name, values in fields.items():
        counts[f"parameters[{name!r}]"] = len(values) if values.ndim == 1 else -1
    numbers = set(counts.values())
    if len(numbers) != 1 or not is_whole(min(numbers), 1):
        raise UserError(
            f"simulate_many: expected one number N >= 1 of trajectories, got {counts or 'none'}; "
            "give n_trajectories, or initial_states, parameters, seeds and inputs with one row "
            "per trajectory"
        )
    return numbers.pop()


def _vary_system(system: System, fields: Mapping[str, NDArray[Any]], n: int) -> tuple[System, ...]:
    """Return the system of each trajectory.

    If a system refuses its settings, the error names the trajectory.
    """
    if not fields:
        return (system,) * n
    systems = []
    for i in range(n):
        settings = {name: values[i].item() for name, values in fields.items()}
        try:
            systems.append(replace(system, **settings))
        except ValueError as error:
            if not is_refusal(error, system):
                raise
            raise UserError(f"trajectory {i}: {error}") from error
    return tuple(systems)


def _read_starts(systems: tuple[System, ...], states: Array | None) -> Array:
    """Return the initial states (N, n_x), given ones or those of the systems.

    Each is checked with its system.
    """
    are_same = all(system is systems[0] for system in systems)
    different = systems[:1] if are_same else systems
    if states is None:
        own = np.array([read_vector(system, "initial_state") for system in different])
        states = np.broadcast_to(own, (len(systems), own.shape[1]))
    if are_same:
        check_states(systems[0], states, trajectory=0)
    else:
        for i, system in enumerate(systems):
            check_states(system, states[i : i + 1], trajectory=i)
    return states


def _prepare_fill(
    ensemble: Ensemble,
    states: Array,
    inputs: NDArray[Any] | None,
    noise: bool,
    measurement: MeasurementNoise,
) -> Callable[[int], None]:
    """Return the function that simulates trajectory i and writes it into the ensemble.

    Whatever the trajectories share is prepared once.
    """
    systems = ensemble.systems
    interpolation = ensemble.interpolation
    n = len(ensemble.time)
    shared_pieces: tuple[Piece, ...] = ()
    delays = [delays_of(system) for system in systems]
    have_shared_pieces = inputs is None and all(each == delays[0] for each in delays)
    if have_shared_pieces:
        shared_pieces = tuple(interpolation.pieces(ensemble.input, systems[0].substeps, delays[0]))

    @functools.cache
    def prepare(system: System) -> tuple[Problem, Array]:
        problem = problem_of(system)
        std = read_vector(system, "noise_std")
        return problem, std if noise else np.zeros_like(std)

    def fill(i: int) -> None:
        system = systems[i]
        seed = int(ensemble.seeds[i])
        pieces = shared_pieces
        problem, std = prepare(system)
        w = draw_noise(seed, "process", n, std)
        ensemble.noise[i] = w
        if inputs is not None:
            ensemble.input[i] = read_input(system, inputs[i], n)
        if not have_shared_pieces:
            u = ensemble.input if inputs is None else ensemble.input[i]
            pieces = tuple(interpolation.pieces(u, system.substeps, delays[i]))
        path = follow_pieces(problem, states[i], pieces, w)
        ensemble.state[i] = path.states
        ensemble.n_clipped[i] = path.n_clipped
        y0 = system.output(path.states)
        ensemble.noise_free_output[i] = y0
        ensemble.output[i] = y0
        if measurement != NO_MEASUREMENT_NOISE:
            ensemble.output[i] = measurement.measure(y0, seed)

    return fill


def spread_seeds(seed: int, n: int) -> NDArray[np.int64]:
    """Return n seeds (n,) that follow from one; a longer list begins with the shorter one.

    Raises
    ------
    ValueError
        If the seed is negative.

    Examples
    --------
    >>> bool(spread_seeds(0, 3)[2] == spread_seeds(0, 9)[2])
    True
    """
    check_count("seed", seed, lowest=0)
    words = np.random.SeedSequence(seed).generate_state(n, np.uint64)
    return (words >> np.uint64(1)).astype(np.int64)


def _n_cores() -> int:
    """Return the number of cores that this process may use.

    These are the cores that it is bound to, unless the environment variable ``PYTHON_CPU_COUNT``
    gives a number. `sysid.beside.n_cores` has the same rule; neither package imports the other.
    """
    given = os.environ.get("PYTHON_CPU_COUNT", "")
    if given.isdigit():
        return max(1, int(given))
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _run_in_parallel(fill: Callable[[int], None], n: int, workers: int | None) -> None:
    """Call ``fill(i)`` for every trajectory, in threads.

    The compiled loops release the interpreter, so that threads work at the same time. If several
    trajectories fail, the error is that of the one with the smallest number.
    """
    if workers is not None:
        check_count("workers", workers)
    n_threads = min(workers or _n_cores(), n)  # no result depends on it

    def fill_every_nth(start: int) -> tuple[int, Exception] | None:
        for i in range(start, n, n_threads):
            try:
                fill(i)
            except (ValueError, ArithmeticError) as error:
                return i, error
        return None

    with ThreadPoolExecutor(n_threads) as pool:
        results = list(pool.map(fill_every_nth, range(n_threads)))
    failures = [result for result in results if result is not None]
    if failures:
        i, error = min(failures, key=lambda failure: failure[0])
        if not isinstance(error, UserError | SimulationError):
            error.add_note(f"in trajectory {i}")
            raise error
        raise type(error)(f"trajectory {i}: {error}") from error
