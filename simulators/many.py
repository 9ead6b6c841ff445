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
from simulators.interpolation import Interpolation
from simulators.noise import draw_noise
from simulators.record import (
    MeasurementNoise,
    Trajectory,
    describe_simulation,
    label_signals,
    label_time,
    sample_times,
)
from simulators.runge_kutta import check_drift, follow_pieces, problem_of
from simulators.settings import Array, check_count, is_whole, read_real
from simulators.simulation import NOISELESS, check_states, read_input, set_sampling
from simulators.system import System, is_refusal, names_of, read_vector

#: arrays (N, n, m) of an ensemble, with the signals of the system in their columns
COMPUTED = {
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

    def __len__(self) -> int:
        return len(self.systems)

    def __getitem__(self, index: int) -> Trajectory:
        """Return one of the trajectories."""
        i = range(len(self))[index]
        return Trajectory(
            self.systems[i],
            int(self.seeds[i]),
            self.time,
            self.input if self.input.ndim == 2 else self.input[i],
            interpolation=self.interpolation,
            n_clipped=int(self.n_clipped[i]),
            **{name: getattr(self, name)[i] for name in COMPUTED},
        )

    def to_dataset(self) -> xr.Dataset:
        """Return one variable per signal over (trajectory, time), with the seed and parameters of
        each.

        Returns
        -------
        xarray.Dataset
            As `Trajectory.to_dataset`, and over `trajectory`: `seed`, `clipped_substeps` and every
            parameter that differs between the trajectories; a shared input has the dimension time
            only.
        """
        variables = label_signals(self.systems[0], ("trajectory", "time"), self)
        settings = [asdict(system) for system in self.systems]
        shared = {
            name: value
            for name, value in settings[0].items()
            if all(s[name] == value for s in settings)
        }
        varied = {
            name: (
                "trajectory",
                np.array([s[name] for s in settings]),
                {"long_name": f"parameter {name}"},
            )
            for name in settings[0]
            if name not in shared
        }
        counts = {
            "seed": ("trajectory", self.seeds, {"long_name": "seed of the trajectory"}),
            "clipped_substeps": (
                "trajectory",
                self.n_clipped,
                {"long_name": "substeps that met a limit of a state"},
            ),
        }
        attributes = describe_simulation(self.systems[0], self.interpolation) | {
            "parameters": json.dumps(shared)
        }
        coordinates = {
            "time": label_time(self.time),
            "trajectory": (
                "trajectory",
                np.arange(len(self)),
                {"long_name": "number of the trajectory"},
            ),
        }
        return xr.Dataset(variables | varied | counts, coords=coordinates, attrs=attributes)


SHORT = 1000  # Runge-Kutta steps of a trajectory below which threads cost more than they gain


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
    measurement: MeasurementNoise = NOISELESS,
    workers: int | None = None,
) -> Ensemble:
    """Simulate many trajectories in open loop, in parallel.

    Trajectory i is bit-identical to ``simulate`` with input i, initial state i, parameters i and
    seed i, however many others there are and however many threads work. Beside the result there is
    memory for one trajectory per thread.

    Parameters
    ----------
    system : System
        System to simulate.
    input : (n, n_u), (n,) or (N, n, n_u) array_like, optional
        One input for all trajectories, or one for each.
    n_trajectories : int, optional
        Number of trajectories N; needed only if nothing else says it.
    n_samples : int, optional
        Number of samples n; needed only without inputs.
    initial_states : (N, n_x) array_like, optional
        States at time zero instead of the system's own.
    parameters : mapping of str to (N,) array_like, optional
        Fields of the system that differ between the trajectories.
    seeds : (N,) sequence of int, optional
        Seeds of the trajectories; otherwise N different ones follow from `seed`.
    seed : int, optional
        Seed of all trajectories together.
    dt, substeps, interpolation, noise, measurement
        As in `simulate`.
    workers : int, optional
        Threads; by default one for each core that this process may use, or a single one for
        trajectories so short that threads would wait for each other.

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
    states = (
        None
        if initial_states is None
        else read_real(initial_states, "initial_states").astype(np.float64)
    )
    given = np.empty(0) if input is None else read_real(input, f"{type(system).__name__}: input")
    rows = given if given.ndim == 3 else None  # one input for each trajectory
    N = _count_trajectories(system, n_trajectories, fields, states, seeds, rows)
    numbers = spread_seeds(seed, N) if seeds is None else _read_seeds(seeds)
    u = read_input(system, input if rows is None else rows[0], n_samples)
    systems = _vary_system(system, fields, N)
    states = _read_starts(systems, states)
    check_drift(systems[0], states[0], u[0])
    ensemble = Ensemble(
        systems,
        numbers,
        sample_times(system, len(u)),
        u if rows is None else np.empty((N, *u.shape)),
        interpolation=interpolation,
        n_clipped=np.zeros(N, dtype=np.int64),
        **{
            name: np.empty((N, len(u), len(getattr(system, signals))))
            for name, signals in COMPUTED.items()
        },
    )
    if workers is None and len(u) * system.substeps < SHORT:
        workers = 1
    _run_in_parallel(_prepare_fill(ensemble, states, rows, noise, measurement), N, workers)
    return ensemble


def _read_fields(
    system: System, parameters: Mapping[str, ArrayLike] | None
) -> dict[str, NDArray[Any]]:
    """Return the values of fields of the system as arrays."""
    if parameters is not None and not isinstance(parameters, Mapping):
        wanted = "parameters as a mapping of fields of the system to arrays (N,), say {'damping': [1.0, 2.0]}"
        raise UserTypeError(
            f"simulate_many: expected {wanted}, got {type(parameters).__name__}; change parameters"
        )
    fields = {name: np.asarray(values) for name, values in (parameters or {}).items()}
    unknown = sorted(set(fields) - set(asdict(system)) | set(fields) & {"dt", "substeps"})
    if unknown:
        wanted = f"the fields of {type(system).__name__} other than dt and substeps"
        raise UserError(
            f"simulate_many: expected parameters among {wanted}, got {unknown}; rename them"
        )
    return fields


def _read_seeds(seeds: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return seeds as integers."""
    given = np.asarray(seeds)
    if given.dtype.kind not in "iu":
        raise UserError(
            f"simulate_many: expected seeds of integers >= 0, got {given.dtype}; round them yourself"
        )
    return given.astype(np.int64)


def _count_trajectories(
    system: System,
    n_trajectories: int | None,
    fields: Mapping[str, NDArray[Any]],
    states: Array | None,
    seeds: Sequence[int] | NDArray[np.int64] | None,
    rows: NDArray[Any] | None,
) -> int:
    """Return the number of trajectories on which all arguments agree."""
    if states is not None and states.shape[1:] != (len(system.states),):
        wanted = f"initial_states of shape (N, {len(system.states)}), one row per trajectory"
        raise UserError(
            f"simulate_many: expected {wanted}, got {states.shape}; change initial_states"
        )
    lengths = {"initial_states": states, "seeds": seeds, "input": rows}
    given = {} if n_trajectories is None else {"n_trajectories": n_trajectories}
    given |= {name: len(values) for name, values in lengths.items() if values is not None}
    given |= {
        f"parameters[{name!r}]": len(values) if values.ndim == 1 else -1
        for name, values in fields.items()
    }
    numbers = set(given.values())
    if len(numbers) != 1 or not is_whole(min(numbers), 1):
        raise UserError(
            f"simulate_many: expected one number N >= 1 of trajectories, got {given or 'none'}; give n_trajectories, "
            "or initial_states, parameters, seeds and inputs with one row per trajectory"
        )
    return numbers.pop()


def _vary_system(system: System, fields: Mapping[str, NDArray[Any]], n: int) -> tuple[System, ...]:
    """Return the system of each trajectory; the error of settings that it refuses names the
    trajectory.
    """
    if not fields:
        return (system,) * n
    found = []
    for i in range(n):
        try:
            found.append(
                replace(
                    system,
                    **{name: values[i].item() for name, values in fields.items()},
                )
            )
        except ValueError as error:
            if not is_refusal(error, system):
                raise
            raise UserError(f"trajectory {i}: {error}") from error
    return tuple(found)


def _read_starts(systems: tuple[System, ...], states: Array | None) -> Array:
    """Return the initial states (N, n_x), given ones or those of the systems, each checked with its
    system.
    """
    different = systems if any(system is not systems[0] for system in systems) else systems[:1]
    if states is None:
        own = np.array([read_vector(system, "initial_state") for system in different])
        states = np.broadcast_to(own, (len(systems), own.shape[1]))
    for i, system in enumerate(different):
        check_states(system, states[i : i + 1] if len(different) > 1 else states, trajectory=i)
    return states


def _prepare_fill(
    ensemble: Ensemble,
    states: Array,
    rows: NDArray[Any] | None,
    noise: bool,
    measurement: MeasurementNoise,
) -> Callable[[int], None]:
    """Return the function that simulates trajectory i into its place; what all share is prepared
    once.
    """
    systems = ensemble.systems
    interpolation = ensemble.interpolation
    n = len(ensemble.time)
    shared = (
        tuple(interpolation.pieces(ensemble.input, systems[0].substeps)) if rows is None else ()
    )
    prepare = functools.cache(
        lambda own: (problem_of(own), read_vector(own, "noise_std") * bool(noise))
    )

    def fill(i: int) -> None:
        own = systems[i]
        number = int(ensemble.seeds[i])
        pieces = shared
        problem, std = prepare(own)
        ensemble.noise[i] = w = draw_noise(number, "process", n, std)
        if rows is not None:
            ensemble.input[i] = read_input(own, rows[i], n)
            pieces = tuple(interpolation.pieces(ensemble.input[i], own.substeps))
        path = follow_pieces(problem, states[i], pieces, w)
        ensemble.state[i], ensemble.n_clipped[i] = path
        ensemble.output[i] = ensemble.noise_free_output[i] = y0 = own.output(path.states)
        if measurement != NOISELESS:
            ensemble.output[i] = measurement.measure(y0, number)

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
    """Cores that this process may use: those it is bound to, or fewer by the variable
    ``PYTHON_CPU_COUNT``.

    The rule is that of `sysid.beside.n_cores`; neither package imports the other.
    """
    given = os.environ.get("PYTHON_CPU_COUNT", "")
    if given.isdigit():
        return max(1, int(given))
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _run_in_parallel(fill: Callable[[int], None], n: int, workers: int | None) -> None:
    """Call ``fill(i)`` for every trajectory, in threads: the compiled loops release the
    interpreter.
    """
    if workers is not None:
        check_count("workers", workers)
    n_threads = min(workers or _n_cores(), n)  # no result depends on it

    def part(start: int) -> tuple[int, Exception] | None:
        for i in range(start, n, n_threads):
            try:
                fill(i)
            except (ValueError, ArithmeticError) as error:
                return i, error
        return None

    with ThreadPoolExecutor(n_threads) as pool:
        failures = [failure for failure in pool.map(part, range(n_threads)) if failure]
    if failures:
        i, error = min(failures, key=lambda failure: failure[0])
        if not isinstance(error, UserError | SimulationError):
            error.add_note(f"in trajectory {i}")
            raise error
        raise type(error)(f"trajectory {i}: {error}") from error
